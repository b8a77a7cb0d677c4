//! Users' own programs: started without a job file, with one made of another system's, or of what a folder holds.

use std::fs;
use std::process::{Command, Stdio};

mod import;
mod init;
mod launch;

/// A folder with a home and scripts.
struct Folder(tempfile::TempDir);

/// What a command came to.
struct Outcome {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Folder {
    fn with(files: &[(&str, &str)]) -> Folder {
        let folder = Folder(tempfile::tempdir().unwrap());
        for (name, text) in files {
            let path = folder.0.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        folder
    }

    fn gradus(&self, words: &[&str]) -> Outcome {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradus"));
        let home = self.0.path().join("state");
        command.current_dir(self.0.path()).args(words).env("GRADUS_HOME", home).env("NO_COLOR", "1");
        let output = command.stdin(Stdio::null()).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Outcome { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// Runs a command that is refused as a usage error, and finds these words in what it says.
    #[track_caller]
    fn refuses(&self, words: &[&str], expected: &[&str]) {
        let outcome = self.gradus(words);
        assert_eq!(outcome.code, Some(2), "{words:?}\n{}{}", outcome.out, outcome.err);
        for expected in expected {
            assert!(outcome.err.contains(expected), "{words:?}: `{expected}` is not in\n{}", outcome.err);
        }
    }
}
