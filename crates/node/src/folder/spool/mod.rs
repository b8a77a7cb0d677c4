//! The agent's reports on disk, one line per entry, until the loop has acknowledged them.
//!
//! Those whose loss would cost work are in `spool.jsonl`, which is append-only while one of them is unacknowledged, and emptied when
//! none is. Measurements are in files of limited length (`segments`), from which the agent reads back what its memory has no space
//! for ([`SpoolRead`]). The provider reads both with [`Folder::unacknowledged`] when the agent is gone.

mod growing;
mod reading;
mod segments;

use std::fs::{self, File};
use std::io;
use std::ops::RangeInclusive;

use domain::wire::{AgentEvent, Entry};

use super::{Folder, found};
use growing::GrowingFile;
use reading::LAST_BYTES;
pub use reading::{SpoolPart, SpoolRead};
use segments::Segments;

/// A file is emptied only when it is larger than this, so that its end is a readable trace.
const KEEP: u64 = 1 << 20;

/// How much disk space measurements may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpoolLimits {
    /// Bytes of one file; the next measurement begins another one.
    pub file: u64,
    /// Bytes of all files but the newest, at most; the oldest are deleted. They are also limited by what is free.
    pub all: u64,
}

impl Default for SpoolLimits {
    /// For 4 hours of 1,000 steps per second.
    fn default() -> SpoolLimits {
        SpoolLimits { file: 8 << 20, all: 4 << 30 }
    }
}

/// The files of an agent's entries.
#[derive(Debug)]
pub struct Spool {
    decisions: GrowingFile,
    measurements: Segments,
    /// The line that was written last: its memory serves the next one.
    line: Vec<u8>,
}

impl Spool {
    /// Begins an empty spool in the folder of an instance.
    ///
    /// # Errors
    /// When the files cannot be made.
    pub fn create(folder: &Folder) -> io::Result<Spool> {
        Spool::with_limits(folder, SpoolLimits::default())
    }

    /// The same with so much disk space for measurements.
    ///
    /// # Errors
    /// When the files cannot be made.
    pub fn with_limits(folder: &Folder, limits: SpoolLimits) -> io::Result<Spool> {
        let mut decisions = GrowingFile::new(folder.spool());
        decisions.create()?;
        found(fs::remove_dir_all(folder.measurements()))?;
        fs::create_dir(folder.measurements())?;
        // A synced event is of no use in a file whose directory entry is lost.
        File::open(folder.path())?.sync_all()?;
        Ok(Spool { decisions, measurements: Segments::new(folder.measurements(), limits), line: Vec::new() })
    }

    /// Writes an entry. A decision is on the disk when this returns. Measurements before it outlive the agent; a loss of power may
    /// cost those of the last seconds.
    ///
    /// # Errors
    /// When the disk refuses; what it refuses is written later, if it can be.
    pub fn write(&mut self, entry: &Entry, is_decision: bool) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, entry)?;
        self.line.push(b'\n');
        let is_measurement = matches!(entry.event, AgentEvent::Reported { .. });
        let measured = if is_measurement { self.measurements.add(entry.seq, &self.line) } else { Ok(()) };
        if is_decision {
            self.decisions.add(&self.line);
            self.decisions.sync()?;
            self.measurements.sync()?;
        }
        measured
    }

    /// Called when no decision is pending, and no entry before this one.
    ///
    /// # Errors
    /// On an I/O error.
    pub fn forget(&mut self, before: u64) -> io::Result<()> {
        self.measurements.forget(before);
        if self.decisions.size() > KEEP { self.decisions.empty() } else { Ok(()) }
    }

    /// Finds measurements, so that they can be read back: the oldest of these entries, up to so many bytes, one at least.
    pub fn find(&self, entries: RangeInclusive<u64>, bytes: usize) -> SpoolRead {
        SpoolRead { pieces: self.measurements.pieces(&entries), entries, bytes }
    }
}

impl Drop for Spool {
    /// Gigabytes that nobody reads would stay on the disk of a node.
    fn drop(&mut self) {
        self.measurements.leave(LAST_BYTES);
    }
}

#[cfg(test)]
mod tests;
