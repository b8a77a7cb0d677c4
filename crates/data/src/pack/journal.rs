//! `pack.journal`: what is done, one line a shard, so that a pack that was killed goes on, and a second one ends at once.
//!
//! A line is written when its shard is durable. The first line names the plan: the data as it lay there, and the
//! options. It is no promise to anybody else, and may be deleted once the folder has its manifest.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::refusing;
use crate::manifest::{Left, Manifest, Shard};
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
    /// A shard is in place, and all positions of its part before `position` are done.
    Shard {
        shard: Shard,
        position: u64,
        left: Vec<Left>,
    },
    /// Positions were passed over without a shard: none of their samples could be read.
    Passed {
        part: Option<Part>,
        position: u64,
        left: Vec<Left>,
    },
    /// All is done.
    Finished {
        manifest: Manifest,
    },
}

/// What the journal tells.
#[derive(Debug, Default)]
pub(super) struct Done {
    pub shards: Vec<Shard>,
    pub left: Vec<Left>,
    /// Positions of each part that are done.
    positions: Vec<(Option<Part>, u64)>,
    pub manifest: Option<Manifest>,
}

impl Done {
    pub fn position(&self, part: Option<Part>) -> u64 {
        self.positions.iter().rev().find(|(of, _)| *of == part).map_or(0, |(_, position)| *position)
    }
}

pub(super) struct Journal {
    file: File,
}

impl Journal {
    /// Opens the journal of a folder for a plan. The folder must be empty, or have been packed by this plan.
    pub fn open(out: &Path, fingerprint: &str) -> Result<(Journal, Done), Error> {
        let path = out.join(NAME);
        let refused = refusing(&path);
        let other = |why: &str| Error::Layout {
            path: out.to_owned(),
            why: why.into(),
            hint: "name another folder, or remove this one".into(),
        };
        let text = match fs::metadata(&path) {
            Ok(metadata) if metadata.len() > LARGEST => return Err(other("its `pack.journal` is none")),
            Ok(_) => fs::read(&path).map_err(&refused)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(source) => return Err(refused(source)),
        };
        let mut done = Done::default();
        // A line without its end was being written when the pack was killed.
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let mut sound = 0;
        for (number, line) in text[..whole].split_inclusive(|byte| *byte == b'\n').enumerate() {
            match (number, serde_json::from_slice(line)) {
                (0, Ok(Line::Plan { fingerprint: planned })) if planned == fingerprint => {}
                (0, Ok(Line::Plan { .. })) => {
                    return Err(other("it was packed from other data, or with other options"));
                }
                (0, _) | (_, Ok(Line::Plan { .. })) => return Err(other("its `pack.journal` is none")),
                // Shards behind a damaged line, or that are not there any more, are written again.
                (_, Ok(ref line)) if done.accept(out, line) => {}
                _ => break,
            }
            sound += line.len();
        }
        if sound == 0 {
            let mut others = fs::read_dir(out).map_err(&refused)?.filter_map(|entry| Some(entry.ok()?.file_name()));
            if others.any(|name| name != NAME) {
                return Err(other("the folder to pack into is not empty"));
            }
        }
        let mut file = OpenOptions::new().create(true).append(true).truncate(false).open(&path).map_err(&refused)?;
        file.set_len(sound as u64).map_err(&refused)?;
        if sound == 0 {
            write(&mut file, &Line::Plan { fingerprint: fingerprint.into() }).map_err(&refused)?;
        }
        remove_temporary(out).map_err(&refused)?;
        Ok((Journal { file }, done))
    }

    pub fn shard(&mut self, shard: &Shard, position: u64, left: &[Left]) -> io::Result<()> {
        write(&mut self.file, &Line::Shard { shard: shard.clone(), position, left: left.to_vec() })
    }

    pub fn passed(&mut self, part: Option<Part>, position: u64, left: &[Left]) -> io::Result<()> {
        write(&mut self.file, &Line::Passed { part, position, left: left.to_vec() })
    }

    pub fn finish(&mut self, manifest: &Manifest) -> io::Result<()> {
        write(&mut self.file, &Line::Finished { manifest: manifest.clone() })
    }
}

impl Done {
    /// Whether what a line tells is so.
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
                self.left.extend_from_slice(left);
            }
            Line::Passed { part, position, left } => {
                self.positions.push((*part, *position));
                self.left.extend_from_slice(left);
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

/// What a killed pack was writing.
fn remove_temporary(out: &Path) -> io::Result<()> {
    for entry in fs::read_dir(out)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().ends_with(".tmp") && entry.file_type()?.is_file() {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}
