//! Checkpoints that frameworks write by themselves: found by their layout, and verified by the rules of their formats.
//!
//! A program that nobody has changed saves as its framework does, and is to resume from the newest checkpoint that is
//! whole. A kill while one is written leaves a part of it: files that are cut short, or some that are missing. Neither
//! can be seen from the folder's name, and a trainer that is given such a one fails in every attempt. Nothing here is
//! written, and no pickle is run. Read next: `hugging_face`, `lightning`, `distributed` (what each layout is), `whole`
//! (whether a file is).

mod distributed;
mod hugging_face;
mod lightning;
#[cfg(test)]
mod tests;
mod whole;

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

/// Whose checkpoint it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framework {
    /// A folder `checkpoint-STEP` of Hugging Face's trainer.
    HuggingFace,
    /// A file of Lightning, such as `epoch=1-step=500.ckpt`.
    Lightning,
    /// A folder of `torch.distributed.checkpoint`.
    Distributed,
}

impl fmt::Display for Framework {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Framework::HuggingFace => "Hugging Face's trainer",
            Framework::Lightning => "Lightning",
            Framework::Distributed => "torch.distributed.checkpoint",
        })
    }
}

/// A checkpoint of a framework, whole or not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FrameworkCheckpoint {
    /// Whose it is.
    pub framework: Framework,
    /// Its folder or file.
    pub path: PathBuf,
    /// The step whose state it holds; 0 where neither name nor contents say it.
    pub step: u64,
}

impl FrameworkCheckpoint {
    /// Bytes of its files.
    pub fn bytes(&self) -> u64 {
        fn below(path: &Path) -> u64 {
            match fs::symlink_metadata(path) {
                Ok(about) if about.is_dir() => {
                    fs::read_dir(path).into_iter().flatten().flatten().map(|entry| below(&entry.path())).sum()
                }
                Ok(about) => about.len(),
                Err(_) => 0,
            }
        }
        below(&self.path)
    }

    /// Whether it is as its framework wrote it, by the rules of its format; or what it lacks, as half a sentence.
    ///
    /// # Errors
    /// What is missing, or cut short.
    pub fn verify(&self) -> Result<(), String> {
        match self.framework {
            Framework::HuggingFace => hugging_face::verify(&self.path, self.step),
            Framework::Lightning => whole::archive(&self.path),
            Framework::Distributed => distributed::verify(&self.path),
        }
    }
}

/// Most entries of folders that are looked at.
const MOST: usize = 20_000;

/// Most folders below one another, as in `outputs/out/lightning_logs/version_0/checkpoints/`.
const DEEPEST: usize = 7;

/// The checkpoints of frameworks below a folder, newest first: by step, and of one step the one that was written last.
pub fn find(folder: &Path) -> Vec<FrameworkCheckpoint> {
    let mut found = Vec::new();
    let mut waiting = vec![(folder.to_owned(), 0)];
    let mut entries = 0;
    while let Some((folder, depth)) = waiting.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            entries += 1;
            if entries > MOST {
                break;
            }
            let (name, path) = (entry.file_name(), entry.path());
            let Some(name) = name.to_str() else { continue };
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            match recognized(name, &path, is_folder) {
                Some((framework, step)) => found.push(FrameworkCheckpoint { framework, path, step }),
                None if is_folder && depth < DEEPEST && !name.starts_with('.') => waiting.push((path, depth + 1)),
                None => {}
            }
        }
    }
    let written = |path: &Path| fs::metadata(path).and_then(|about| about.modified()).ok();
    found.sort_by_cached_key(|one| std::cmp::Reverse((one.step, written(&one.path), one.path.clone())));
    found
}

fn recognized(name: &str, path: &Path, is_folder: bool) -> Option<(Framework, u64)> {
    if !is_folder {
        return Some((Framework::Lightning, lightning::step(name, path)?));
    }
    if let Some(step) = hugging_face::step(name) {
        return Some((Framework::HuggingFace, step));
    }
    Some((Framework::Distributed, distributed::step(name, path)?))
}

/// The step of the Hugging Face checkpoint that a file lies in.
pub fn step_of(file: &Path) -> Option<u64> {
    hugging_face::step(file.parent()?.file_name()?.to_str()?)
}

/// The newest checkpoint below a folder that is whole, and a sentence for each newer one that is not, newest first.
pub fn newest(folder: &Path) -> (Option<FrameworkCheckpoint>, Vec<String>) {
    let mut passed_over = Vec::new();
    for found in find(folder) {
        match found.verify() {
            Ok(()) => return (Some(found), passed_over),
            Err(why) => passed_over.push(format!("the checkpoint `{}` is not used: {why}", found.path.display())),
        }
    }
    (None, passed_over)
}
