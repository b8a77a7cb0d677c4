//! The folder in which a document's commands run, and the commands run in it.

use std::fs::{self, File};
use std::io::{Read, Seek};
use std::path::Path;
use std::process::{self, Stdio};

use snapbox::IntoData;
use tempfile::TempDir;

use crate::merge::merge;
use crate::text::{Block, Command, without_figures};

/// A command that printed something else than its document says.
pub struct Difference {
    /// For people.
    pub message: String,
    /// The command and its output as they stand in the document.
    pub expected: String,
    /// The same with what was printed where it differs.
    pub merged: String,
}

/// A folder that looks like a checkout, and a home beside it.
pub struct Page {
    folder: TempDir,
    /// The exit code of the last command, for `echo $?`.
    code: i32,
}

impl Page {
    pub fn new(repository: &Path) -> Page {
        let folder = TempDir::new().unwrap();
        let examples = folder.path().join("gradus/examples");
        fs::create_dir_all(&examples).unwrap();
        for entry in fs::read_dir(repository.join("examples")).unwrap().map(Result::unwrap) {
            if entry.file_type().unwrap().is_file() {
                fs::copy(entry.path(), examples.join(entry.file_name())).unwrap();
            }
        }
        Page { folder, code: 0 }
    }

    /// Does what each block says, and returns the commands whose output differs.
    pub fn run(&mut self, blocks: &[Block]) -> Vec<Difference> {
        let mut differences = Vec::new();
        for block in blocks {
            match block {
                Block::File { name, text } => fs::write(self.folder.path().join("gradus").join(name), text).unwrap(),
                Block::Console { commands, figures_vary } => {
                    differences.extend(commands.iter().filter_map(|command| self.difference(command, *figures_vary)));
                }
            }
        }
        differences
    }

    /// What is wrong with a command, if anything is.
    fn difference(&mut self, command: &Command, figures_vary: bool) -> Option<Difference> {
        let output = self.output(&command.line);
        let message = self.message(command, &output, figures_vary)?;
        let merged = merge(&command.output, &output, figures_vary);
        Some(Difference { message, expected: command.text(&command.output), merged: command.text(&merged) })
    }

    fn message(&self, command: &Command, output: &str, figures_vary: bool) -> Option<String> {
        let may_fail = command.output.lines().any(|line| line.starts_with("error:"));
        if self.code != 0 && !may_fail {
            return Some(format!("$ {}\nexit code {}\n{output}", command.line, self.code));
        }
        let [expected, actual] = [&command.output, output].map(|text| match figures_vary {
            true => without_figures(text),
            false => text.lines().map(|line| format!("{}\n", line.trim_end())).collect(),
        });
        let [expected, actual] = [expected, actual].map(|text| (text.trim_end().to_owned() + "\n").into_data());
        let compared = snapbox::Assert::new().normalize_paths(false).try_eq(Some(&command.line), actual, expected);
        compared.err().map(|difference| format!("{difference}\nas it was printed:\n{output}"))
    }

    /// What a command prints to stdout and stderr, with the test's own folders as a reader has them.
    fn output(&mut self, line: &str) -> String {
        if line == "echo $?" {
            return format!("{}\n", std::mem::take(&mut self.code));
        }
        let mut words = line.split_whitespace();
        assert_eq!(words.next(), Some("gradus"), "only `gradus` is run, not `{line}`");
        let (here, home) = (self.folder.path().join("gradus"), self.folder.path().join("home"));
        // One file for both, so that lines stand in the order in which they were printed.
        let mut both = tempfile::tempfile().unwrap();
        let stream = |file: &File| Stdio::from(file.try_clone().unwrap());
        let status = process::Command::new(env!("CARGO_BIN_EXE_gradus"))
            .args(words)
            .current_dir(&here)
            .env("GRADUS_HOME", &home)
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stdout(stream(&both))
            .stderr(stream(&both))
            .status()
            .unwrap();
        self.code = status.code().unwrap_or(-1);
        let mut text = String::new();
        both.rewind().unwrap();
        both.read_to_string(&mut text).unwrap();
        let folder = fs::canonicalize(self.folder.path()).unwrap();
        let own = |name: &str| folder.join(name).to_string_lossy().into_owned();
        text.replace(&own("home"), "~/.local/share/gradus").replace(&own("gradus"), "~/gradus")
    }
}
