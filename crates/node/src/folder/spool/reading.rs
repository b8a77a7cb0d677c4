//! How entries are read: by the agent, a range at a time, to send them; and by the provider, all of them, when the agent is gone.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use domain::Bytes;
use domain::rank::Report;
use domain::wire::{AgentEvent, Entry};

use crate::folder::{Folder, found};

/// Bytes of measurements that are read of an agent that is gone, at most. Its loop takes them into memory at once, and gives up a
/// call to a node after a minute: with more, a slow network would cost it the decisions too.
pub(super) const LAST_BYTES: u64 = 64 << 20;

/// A part of a spool that is to be read. Reading takes as long as the disk does, so a thread that must not wait passes this to
/// another one.
#[derive(Debug)]
pub struct SpoolRead {
    pub(super) pieces: Vec<SpoolPiece>,
    pub(super) entries: RangeInclusive<u64>,
    pub(super) bytes: usize,
}

/// Where entries are.
#[derive(Debug)]
pub(super) enum SpoolPiece {
    File { path: PathBuf, from: u64, to: u64 },
    Memory(Vec<u8>),
}

/// What was read.
#[derive(Debug, PartialEq)]
pub struct SpoolPart {
    /// All entries from the first that was asked for up to this one are there, or lost.
    pub through: u64,
    /// Oldest first.
    pub entries: Vec<Entry>,
}

impl SpoolRead {
    /// Reads it. What was deleted meanwhile is missing.
    ///
    /// # Errors
    /// If a file cannot be read.
    pub fn read(&self) -> io::Result<SpoolPart> {
        self.read_each(Err)
    }

    /// Reads what can be read of it.
    pub fn read_readable(&self) -> SpoolPart {
        let nothing = SpoolPart { through: *self.entries.end(), entries: Vec::new() };
        self.read_each(|_| Ok(true)).unwrap_or(nothing)
    }

    /// Reads piece by piece; `failed` says whether to continue after one that cannot be read.
    fn read_each(&self, failed: impl Fn(io::Error) -> io::Result<bool>) -> io::Result<SpoolPart> {
        let mut part = SpoolPart { through: *self.entries.end(), entries: Vec::new() };
        let mut left = self.bytes;
        for piece in &self.pieces {
            let lines = piece.open();
            let has_more = lines.and_then(|lines| self.add(lines, &mut part, &mut left)).or_else(&failed)?;
            if !has_more {
                break;
            }
        }
        Ok(part)
    }

    /// Adds the entries of a piece, as long as there are bytes left; whether later ones may follow.
    fn add(&self, mut lines: impl BufRead, part: &mut SpoolPart, left: &mut usize) -> io::Result<bool> {
        let mut line = Vec::new();
        while lines.read_until(b'\n', &mut line)? > 0 {
            // A crash or a full disk may have torn a line.
            let entry = serde_json::from_slice::<Entry>(&line).ok().filter(|entry| entry.seq >= *self.entries.start());
            if let Some(entry) = entry {
                if entry.seq > *self.entries.end() {
                    return Ok(false);
                }
                if line.len() > *left && !part.entries.is_empty() {
                    part.through = entry.seq - 1;
                    return Ok(false);
                }
                *left = left.saturating_sub(line.len());
                part.entries.push(entry);
            }
            line.clear();
        }
        Ok(true)
    }
}

impl SpoolPiece {
    fn open(&self) -> io::Result<Box<dyn BufRead + '_>> {
        let (path, from, to) = match self {
            SpoolPiece::File { path, from, to } => (path, *from, *to),
            SpoolPiece::Memory(lines) => return Ok(Box::new(lines.as_slice())),
        };
        let Some(mut file) = found(File::open(path))? else { return Ok(Box::new(io::empty())) };
        file.seek(SeekFrom::Start(from))?;
        Ok(Box::new(BufReader::new(file.take(to.saturating_sub(from)))))
    }
}

/// A file of measurements.
#[derive(Debug, Clone, PartialEq, Eq)]
struct MeasurementFile {
    path: PathBuf,
    first: u64,
    bytes: u64,
}

impl Folder {
    /// Reads the agent's reports, oldest first: all that were not acknowledged, and some that were. Empty if no agent
    /// ever ran here. Of more measurements than a loop takes at once the oldest are missing, and so are those that cannot be
    /// read: they cost no decision. Notes say how many.
    ///
    /// # Errors
    /// If the decisions cannot be read, or the folder of the measurements.
    pub fn unacknowledged(&self) -> io::Result<Vec<Entry>> {
        self.unacknowledged_within(LAST_BYTES)
    }

    pub(super) fn unacknowledged_within(&self, bytes: u64) -> io::Result<Vec<Entry>> {
        let mut entries = Vec::new();
        // Agents of earlier versions have written measurements here too.
        add_entries(&self.spool(), &mut entries)?;
        let (files, missing) = newest(measurement_files(&self.measurements())?, bytes);
        let unread = files.iter().filter_map(|file| add_entries(&file.path, &mut entries).err());
        let unread: Vec<io::Error> = unread.collect();
        // What is both is in both files.
        entries.sort_by_key(|entry| entry.seq);
        entries.dedup_by_key(|entry| entry.seq);
        let missing = (missing > 0).then(|| {
            format!(
                "up to {missing} measurements are missing: they waited for the control loop when their agent ended, and \
                 only the newest {} are read",
                Bytes(bytes)
            )
        });
        let unread = unread.first().map(|error| {
            format!("measurements are missing: {} of {} files could not be read: {error}", unread.len(), files.len())
        });
        for text in missing.into_iter().chain(unread) {
            add_note(&mut entries, text);
        }
        Ok(entries)
    }
}

/// Adds a note behind the last entry, if there is one.
fn add_note(entries: &mut Vec<Entry>, text: String) {
    let Some(last) = entries.last() else { return };
    let event = AgentEvent::Reported { rank: 0, report: Report::Note { text } };
    let note = Entry { seq: last.seq + 1, attempt: last.attempt.clone(), event };
    entries.push(note);
}

/// Adds the entries of a file, if it is there. A crash may have torn a line; events acknowledged as durable are intact on another.
fn add_entries(path: &Path, entries: &mut Vec<Entry>) -> io::Result<()> {
    let Some(file) = found(File::open(path))? else { return Ok(()) };
    let (mut lines, mut line) = (BufReader::new(file), Vec::new());
    while lines.read_until(b'\n', &mut line)? > 0 {
        entries.extend(serde_json::from_slice::<Entry>(&line).ok());
        line.clear();
    }
    Ok(())
}

/// The files of measurements, oldest first. One may be deleted at any time while its agent lives.
fn measurement_files(folder: &Path) -> io::Result<Vec<MeasurementFile>> {
    let mut files = Vec::new();
    for entry in found(fs::read_dir(folder))?.into_iter().flatten() {
        let entry = entry?;
        let path = entry.path();
        let number = path.file_stem().and_then(|stem| stem.to_str()).and_then(|stem| stem.parse::<u64>().ok());
        if let (Some(first), Some(meta)) = (number, found(entry.metadata())?) {
            files.push(MeasurementFile { path, first, bytes: meta.len() });
        }
    }
    files.sort_by_key(|file| file.first);
    Ok(files)
}

/// The newest files up to so many bytes, one at least, and how many entries the others have at most, or had: an agent that ends
/// leaves its oldest file empty where nobody would read it.
fn newest(mut files: Vec<MeasurementFile>, bytes: u64) -> (Vec<MeasurementFile>, u64) {
    let oldest = files.first().map(|file| file.first);
    files.retain(|file| file.bytes > 0);
    let mut left = bytes;
    let fitting = files.iter().rev().take_while(|file| {
        let fits = file.bytes <= left;
        left = left.saturating_sub(file.bytes);
        fits
    });
    let omitted = files.len().saturating_sub(fitting.count().max(1));
    let kept = files.split_off(omitted);
    let missing = match (oldest, kept.first()) {
        (Some(oldest), Some(first)) => first.first - oldest,
        _ => 0,
    };
    (kept, missing)
}
