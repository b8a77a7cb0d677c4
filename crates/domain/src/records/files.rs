//! File transfers between the loop and an agent that does not share its disk: relative paths below a folder.
//!
//! The agent requests its run's inputs ([`RunInput`]) and checkpoints, and uploads the run's outputs. Every path is
//! relative and goes only down ([`is_safe`]); only the side that has a folder knows its location.

use serde::{Deserialize, Serialize};

use crate::id::Fence;
use crate::job::Work;
use crate::mounts::is_address;
use crate::train::{ModelSource, Module};

/// A file below a folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct FileInfo {
    /// Its path, relative to the folder, with `/` between names.
    pub path: String,
    /// Its size.
    pub bytes: u64,
    /// Modification time, in microseconds since 1970; only to detect changed files.
    pub modified: i64,
    /// Whether it may be executed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_executable: bool,
    /// Whether only its owner may read it, as keys and passwords are.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_private: bool,
}

/// An input of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunInput {
    /// `train.data.path`.
    Data,
    /// `train.weights`.
    Weights,
    /// The user's own module, of `train.model`.
    Module,
    /// `train.data.text.tokenizer`.
    Tokenizer,
    /// `train.data.trained_on`.
    TrainedOn,
    /// `workdir`.
    Workdir,
}

impl RunInput {
    /// Every input that a job may have.
    pub const ALL: [RunInput; 6] = [
        RunInput::Data,
        RunInput::Weights,
        RunInput::Module,
        RunInput::Tokenizer,
        RunInput::TrainedOn,
        RunInput::Workdir,
    ];

    /// Its path in a job; `None` if the job does not have it, or names the address of an object store.
    pub fn of(self, work: &Work) -> Option<&str> {
        let path = match (self, work) {
            (RunInput::Data, Work::Train(train)) => Some(&train.data.path),
            (RunInput::Weights, Work::Train(train)) => train.weights.as_ref(),
            (RunInput::Module, Work::Train(train)) => match &train.model {
                ModelSource::Module(Module::Torchscript(path)) => Some(path),
                _ => None,
            },
            (RunInput::Tokenizer, Work::Train(train)) => {
                train.data.text.as_ref().and_then(|text| text.tokenizer.as_ref())
            }
            (RunInput::TrainedOn, Work::Train(train)) => train.data.trained_on.as_ref(),
            (RunInput::Workdir, Work::Command(command)) => command.workdir.as_ref(),
            (_, _) => None,
        };
        path.map(String::as_str).filter(|path| !path.contains("://"))
    }

    /// Replaces its path in the job.
    pub fn replace(self, work: &mut Work, path: String) {
        match (self, work) {
            (RunInput::Data, Work::Train(train)) => train.data.path = path,
            (RunInput::Weights, Work::Train(train)) => train.weights = Some(path),
            (RunInput::Module, Work::Train(train)) => train.model = ModelSource::Module(Module::Torchscript(path)),
            (RunInput::Tokenizer, Work::Train(train)) => {
                if let Some(text) = &mut train.data.text {
                    text.tokenizer = Some(path);
                }
            }
            (RunInput::TrainedOn, Work::Train(train)) => train.data.trained_on = Some(path),
            (RunInput::Workdir, Work::Command(command)) => command.workdir = Some(path),
            (_, _) => {}
        }
    }

    /// Its name in URLs.
    pub fn word(self) -> &'static str {
        match self {
            RunInput::Data => "data",
            RunInput::Weights => "weights",
            RunInput::Module => "module",
            RunInput::Tokenizer => "tokenizer",
            RunInput::TrainedOn => "trained_on",
            RunInput::Workdir => "workdir",
        }
    }
}

/// The `file_mounts` of a job that are files and folders of the loop's machine, by their place among all.
pub fn local_mounts(work: &Work) -> impl Iterator<Item = (u32, &str)> {
    let mounts = match work {
        Work::Command(command) => Some(command.file_mounts.values()),
        Work::Train(_) => None,
    };
    let numbered = (0..).zip(mounts.into_iter().flatten().map(String::as_str));
    numbered.filter(|(_, source)| !is_address(source))
}

/// The files of an input, or of a run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileListing {
    /// Whether it is one file and no folder; its path is then its name.
    pub is_file: bool,
    /// Every file, by path.
    pub files: Vec<FileInfo>,
}

/// Parts of files to send: the answer is their contents, concatenated.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PartsRequest {
    /// Which parts, [`PARTS_MAX`] bytes of them at most.
    pub parts: Vec<FilePart>,
}

/// A part of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FilePart {
    /// The file, as it was listed.
    pub path: String,
    /// Where the part begins.
    pub offset: u64,
    /// How long it is.
    pub bytes: u64,
}

/// Maximum number of bytes per request or upload.
pub const PARTS_MAX: u64 = 16 << 20;

/// A part of an uploaded file, in the query of `PUT /v1/runs/RUN/files/PATH`; the body is its contents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BroughtPart {
    /// Number of the uploading attempt; uploads of a replaced attempt are refused.
    pub fence: u64,
    /// Where the part begins.
    pub offset: u64,
    /// Size of the complete file. `None` for a file that grows, such as a log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// SHA-256 of the complete file, if its size is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
    /// Its modification time, in microseconds since 1970. `None` for a file that grows, and from older agents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub modified: Option<i64>,
    /// Length of a hole that is sent in place of contents: that much of a growing file was dropped. 0 from older agents,
    /// which send its zeros; an older loop takes it for a part without contents, and answers that nothing has arrived.
    #[serde(default, skip_serializing_if = "crate::wire::is_zero")]
    pub hole: u64,
}

/// The files of a run to retain: those that its newest checkpoints list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepRequest {
    /// Number of the requesting attempt; a replaced attempt is refused.
    pub fence: Fence,
    /// Paths in `checkpoints/`.
    pub files: Vec<String>,
    /// Files in `checkpoints/` that this attempt has uploaded, and that its program has deleted since.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
}

/// Progress of a file that is being uploaded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Received {
    /// Bytes from its start.
    pub bytes: u64,
    /// Whether it is complete: its checksum matches, and it was renamed.
    pub is_whole: bool,
}

/// Folders of a run that an agent writes to and its loop keeps.
pub const KEPT: [&str; 4] = ["checkpoints", "logs", "export", "profile"];

/// The beginning of the note by which an agent reports why an attempt without processes has not ended yet.
pub const STILL_SENDING: &str = "its processes have ended, and their output is still being sent";

/// Whether a path stays below the folder that it is relative to.
pub fn is_safe(path: &str) -> bool {
    !path.is_empty()
        && !path.contains(['\0', '\\'])
        && path.split('/').all(|name| !name.is_empty() && name != "." && name != "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Agents and loops of other versions: a part without a hole has no trace of it, and one with it says how long it is.
    #[test]
    fn parts_of_earlier_versions_are_read_and_written_alike() {
        for (text, hole) in [(r#"{"fence":1,"offset":4}"#, 0), (r#"{"fence":1,"offset":4,"hole":9}"#, 9)] {
            let part: BroughtPart = serde_json::from_str(text).unwrap();
            assert_eq!(part.hole, hole);
            assert_eq!(serde_json::to_string(&part).unwrap(), text);
        }
    }

    #[test]
    fn paths_only_go_down() {
        for path in ["a", "a/b.txt", "a b/ü", "..a", "a..", ".hidden"] {
            assert!(is_safe(path), "{path}");
        }
        for path in ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "../a", "a\0b", "a\\b"] {
            assert!(!is_safe(path), "{path}");
        }
    }
}
