//! A home folder with job files, and the command run in it.

use std::fs;
use std::process::Command;

use serde_json::Value;
use tempfile::TempDir;

/// A folder with a home and job files.
pub struct Workdir(pub TempDir);

/// What a command came to.
pub struct Said {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Workdir {
    pub fn new() -> Workdir {
        Workdir(TempDir::new().unwrap())
    }

    pub fn file(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.0.path().join(name), text).unwrap();
    }

    pub fn gradus(&self, words: &[&str]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradus"));
        command.current_dir(self.0.path()).args(["--home", "home"]).args(words);
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// The same, where no program of another is found.
    pub fn gradus_without_path(&self, words: &[&str]) -> Said {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradus"));
        command.current_dir(self.0.path()).env("PATH", self.0.path()).args(["--home", "home"]).args(words);
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// The same, where `ssh` is a script, in the folder of which it keeps what it writes.
    pub fn gradus_with_ssh(&self, script: &str, words: &[&str]) -> Said {
        let folder = self.0.path().join("programs");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("draft"), format!("#!/bin/sh\ncd '{}'\n{script}\n", folder.display())).unwrap();
        // Written by another process: while a child that another test starts has the file open, nobody can execute it.
        let mut install = Command::new("install");
        assert!(
            install.args(["-m", "755"]).args([folder.join("draft"), folder.join("ssh")]).status().unwrap().success()
        );
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradus"));
        command.current_dir(self.0.path()).env("PATH", format!("{}:/usr/bin:/bin", folder.display()));
        let output = command.args(["--home", "home"]).args(words).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Said { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// What is said of words that are refused, with the exit code `code`: stdout stays empty.
    #[track_caller]
    pub fn refused(&self, words: &[&str], code: i32) -> String {
        let said = self.gradus(words);
        assert_eq!((said.code, &*said.out), (Some(code), ""), "{words:?}: {}", said.err);
        said.err
    }

    pub fn plan(&self, yaml: &str, words: &[&str]) -> Value {
        self.file("job.yaml", yaml);
        let said = self.gradus(&[&["plan", "job.yaml", "--json"], words].concat());
        assert_eq!(said.code, Some(0), "{}", said.err);
        serde_json::from_str(&said.out).unwrap()
    }
}
