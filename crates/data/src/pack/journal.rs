//! `pack.journal`: progress of a pack, one line per shard, so that a killed pack resumes and a second one returns at
//! once.
//!
//! A line is written after its shard is synced. The first line identifies the plan: the state of the data and the
//! options. The file is internal, and may be deleted once the folder has its manifest.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::refusing;
use crate::shard::manifest::{ShardFile, ShardManifest, SkippedSample};
use crate::{Error, Part};

const NAME: &str = "pack.journal";
/// No journal is larger: each line is a shard.
const LARGEST: u64 = 1 << 30;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Line {
    Plan {
        fingerprint: String,
    },
    /// A shard is complete, and so are all positions of its part before `position`.
    Shard {
        shard: ShardFile,
        position: u64,
        left: Vec<SkippedSample>,
    },
    /// Positions were skipped without a shard, because none of their samples could be read.
    Passed {
        part: Option<Part>,
        position: u64,
        left: Vec<SkippedSample>,
    },
    /// All is done.
    Finished {
        manifest: ShardManifest,
    },
}

/// Progress recorded in a journal.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub shards: Vec<ShardFile>,
    pub skipped: Vec<SkippedSample>,
    /// Positions of each part that are done.
    positions: Vec<(Option<Part>, u64)>,
    pub manifest: Option<ShardManifest>,
}

impl Done {
    /// The first position of a part that is not done.
    pub fn position(&self, part: Option<Part>) -> u64 {
        self.positions.iter().rev().find(|(of, _)| *of == part).map_or(0, |(_, position)| *position)
    }
}

/// The journal, locked: one pack at a time writes to a folder.
pub(super) struct Journal {
    file: File,
}

impl Journal {
    /// Opens the journal of a folder for a plan. The folder must be empty, or have been packed by this plan.
    pub fn open(out: &Path, fingerprint: &str) -> Result<(Journal, Done), Error> {
        const FOREIGN: &str = "the folder to pack into is not empty";
        let path = out.join(NAME);
        let refused = refusing(&path);
        let is_foreign = || {
            let mut others = fs::read_dir(out).map_err(&refused)?.filter_map(|entry| Some(entry.ok()?.file_name()));
            Ok::<bool, Error>(others.any(|name| name != NAME))
        };
        // A folder with other contents is left unchanged.
        if !path.exists() && is_foreign()? {
            return Err(unusable(out, FOREIGN));
        }
        let mut file = OpenOptions::new().create(true).read(true).append(true).open(&path).map_err(&refused)?;
        lock(&file, out)?;
        let mut text = Vec::new();
        Read::by_ref(&mut file).take(LARGEST + 1).read_to_end(&mut text).map_err(&refused)?;
        if text.len() as u64 > LARGEST {
            return Err(unusable(out, NOT_A_JOURNAL));
        }
        let (done, sound) = replay(out, fingerprint, &text)?;
        if sound == 0 && is_foreign()? {
            return Err(unusable(out, FOREIGN));
        }
        file.set_len(sound as u64).map_err(&refused)?;
        if sound == 0 {
            write(&mut file, &Line::Plan { fingerprint: fingerprint.into() }).map_err(&refused)?;
        }
        remove_temporary(out).map_err(&refused)?;
        Ok((Journal { file }, done))
    }

    /// Notes that a shard is durable and its part is done up to `position`.
    pub fn shard(&mut self, shard: &ShardFile, position: u64, left: &[SkippedSample]) -> io::Result<()> {
        write(&mut self.file, &Line::Shard { shard: shard.clone(), position, left: left.to_vec() })
    }

    /// Notes that all samples of a part up to `position` were skipped since its last shard.
    pub fn passed(&mut self, part: Option<Part>, position: u64, left: &[SkippedSample]) -> io::Result<()> {
        write(&mut self.file, &Line::Passed { part, position, left: left.to_vec() })
    }

    /// Notes that everything is written.
    pub fn finish(&mut self, manifest: &ShardManifest) -> io::Result<()> {
        write(&mut self.file, &Line::Finished { manifest: manifest.clone() })
    }
}

/// The error of a folder that holds something else than this pack.
fn unusable(out: &Path, why: &str) -> Error {
    Error::Layout { path: out.to_owned(), why: why.into(), hint: "name another folder, or remove this one".into() }
}

const NOT_A_JOURNAL: &str = "its `pack.journal` is none";

/// Locks the journal of a folder, where its disk has locks.
fn lock(file: &File, out: &Path) -> Result<(), Error> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        // Some shared disks have no locks.
        Err(TryLockError::Error(error)) if error.kind() == io::ErrorKind::Unsupported => Ok(()),
        Err(TryLockError::Error(error)) => Err(refusing(&out.join(NAME))(error)),
        Err(TryLockError::WouldBlock) => Err(Error::Layout {
            path: out.to_owned(),
            why: "another pack is at work there".into(),
            hint: "wait until it has ended, or name another folder".into(),
        }),
    }
}

/// Reads what a journal of this plan records as done, and how many of its bytes are valid.
///
/// # Errors
/// [`Error::Layout`] if it is the journal of another plan, or not a journal.
fn replay(out: &Path, fingerprint: &str, text: &[u8]) -> Result<(Done, usize), Error> {
    let mut done = Done::default();
    // A line without its end was being written when the pack was killed.
    let complete = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    let mut sound = 0;
    for (number, line) in text[..complete].split_inclusive(|byte| *byte == b'\n').enumerate() {
        match (number, serde_json::from_slice(line)) {
            (0, Ok(Line::Plan { fingerprint: planned })) if planned == fingerprint => {}
            (0, Ok(Line::Plan { .. })) => {
                return Err(unusable(out, "it was packed from other data, or with other options"));
            }
            (0, _) | (_, Ok(Line::Plan { .. })) => return Err(unusable(out, NOT_A_JOURNAL)),
            // Shards behind a damaged line, or that are not there any more, are written again.
            (_, Ok(ref line)) if done.accept(out, line) => {}
            _ => break,
        }
        sound += line.len();
    }
    Ok((done, sound))
}

impl Done {
    /// Whether the state on disk matches a line.
    fn accept(&mut self, out: &Path, line: &Line) -> bool {
        match line {
            Line::Plan { .. } => return false,
            Line::Shard { shard, position, left } => {
                let path: PathBuf = out.join(&shard.file);
                if !fs::metadata(path).is_ok_and(|file| file.len() == shard.bytes) {
                    return false;
                }
                self.positions.push((shard.part, *position));
                self.shards.push(shard.clone());
                self.skipped.extend_from_slice(left);
            }
            Line::Passed { part, position, left } => {
                self.positions.push((*part, *position));
                self.skipped.extend_from_slice(left);
            }
            Line::Finished { manifest } => self.manifest = Some(manifest.clone()),
        }
        true
    }
}

fn write(file: &mut File, line: &Line) -> io::Result<()> {
    let mut text = serde_json::to_vec(line)?;
    text.push(b'\n');
    file.write_all(&text)?;
    file.sync_all()
}

/// Removes what a killed pack was writing.
fn remove_temporary(out: &Path) -> io::Result<()> {
    for entry in fs::read_dir(out)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().ends_with(".tmp") && entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
