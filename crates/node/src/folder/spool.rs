//! The agent's reports on disk: one line per entry, for events whose loss would cost work.
//!
//! The file is append-only while a decision in it is unacknowledged, and truncated when none is. The provider reads it
//! with [`Folder::unacknowledged`] when the agent is gone.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Seek, SeekFrom, Write};

use domain::wire::Entry;

use super::{Folder, found};

/// The file is emptied only when it is larger than this, so that its end is a readable trace.
const KEEP: u64 = 1 << 20;

/// The file is emptied above this though measurements in it were not acknowledged.
const LARGEST: u64 = 64 << 20;

/// The file of an agent's entries.
#[derive(Debug)]
pub struct Spool {
    file: BufWriter<File>,
    written: u64,
    /// The line that was written last: its memory serves the next one.
    line: Vec<u8>,
}

impl Folder {
    /// Reads the agent's reports, oldest first: all that were not acknowledged, and some that were. Empty if no agent
    /// ever ran here.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn unacknowledged(&self) -> io::Result<Vec<Entry>> {
        let text = found(fs::read(self.spool()))?.unwrap_or_default();
        // A crash may have torn a line; events acknowledged as durable are intact on another.
        Ok(text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }
}

impl Spool {
    /// Begins an empty spool in the folder of an instance.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn create(folder: &Folder) -> io::Result<Spool> {
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(folder.spool())?;
        // A synced event is of no use in a file whose directory entry is lost.
        File::open(folder.path())?.sync_all()?;
        Ok(Spool { file: BufWriter::new(file), written: 0, line: Vec::new() })
    }

    /// Writes an entry; a durable one is on disk when this returns.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&mut self, entry: &Entry, durable: bool) -> io::Result<()> {
        self.line.clear();
        serde_json::to_writer(&mut self.line, entry)?;
        self.line.push(b'\n');
        self.file.write_all(&self.line)?;
        self.written += self.line.len() as u64;
        if durable {
            self.file.flush()?;
            self.file.get_ref().sync_data()?;
        }
        Ok(())
    }

    /// Called when no decision in it is pending; `all` means that no entry is. Truncates the file once it is large.
    ///
    /// # Errors
    /// On an I/O error.
    pub fn forget(&mut self, all: bool) -> io::Result<()> {
        let limit = if all { KEEP } else { LARGEST };
        if self.written <= limit {
            return Ok(());
        }
        self.file.flush()?;
        self.file.get_ref().set_len(0)?;
        self.file.seek(SeekFrom::Start(0))?;
        self.written = 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use domain::AttemptId;
    use domain::rank::Report;
    use domain::wire::AgentEvent;

    use super::*;

    fn entry(seq: u64, event: AgentEvent) -> Entry {
        Entry { seq, attempt: AttemptId::new("digits-1-a1"), event }
    }

    fn note(length: usize) -> AgentEvent {
        AgentEvent::Reported { rank: 0, report: Report::Note { text: "a".repeat(length) } }
    }

    #[test]
    fn what_matters_is_on_disk_with_all_before_it_and_the_file_does_not_grow_for_ever() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::new(temporary.path());
        let mut spool = Spool::create(&folder).unwrap();
        let entries = [entry(1, note(10)), entry(2, AgentEvent::Started)];
        spool.write(&entries[0], false).unwrap();
        spool.write(&entries[1], true).unwrap();
        assert_eq!(folder.unacknowledged().unwrap(), entries);
        spool.forget(true).unwrap();
        assert_eq!(folder.unacknowledged().unwrap(), entries, "a short file stays as a trace");
        for seq in 3..=5 {
            spool.write(&entry(seq, note(1 << 19)), false).unwrap();
        }
        spool.forget(false).unwrap();
        assert!(folder.unacknowledged().unwrap().len() > 2, "measurements wait still");
        spool.forget(true).unwrap();
        assert_eq!(folder.unacknowledged().unwrap(), []);
        spool.write(&entry(6, AgentEvent::Started), true).unwrap();
        drop(spool);
        assert_eq!(folder.unacknowledged().unwrap(), [entry(6, AgentEvent::Started)]);
    }

    #[test]
    fn spooled_events_survive_a_torn_line() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::new(temporary.path());
        assert_eq!(folder.unacknowledged().unwrap(), []);
        let entry = |seq| entry(seq, AgentEvent::Started);
        let line = |seq| serde_json::to_string(&entry(seq)).unwrap() + "\n";
        let whole = line(1) + &line(2);
        for length in 0..line(3).len() - 1 {
            fs::write(folder.spool(), whole.clone() + &line(3)[..length]).unwrap();
            assert_eq!(folder.unacknowledged().unwrap(), [entry(1), entry(2)], "torn after {length} bytes");
        }
        fs::write(folder.spool(), whole + &line(3)).unwrap();
        assert_eq!(folder.unacknowledged().unwrap(), [entry(1), entry(2), entry(3)]);
    }
}
