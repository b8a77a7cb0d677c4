//! The meter of an instance: `meter.jsonl`, from which its rent is billed.
//!
//! The agent writes the rented time on a monotonic clock; the provider reads it, also when the agent is gone.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use domain::run::Usage;
use domain::{Elapsed, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Folder, found};

/// Bytes of one line in the meter, line end included.
const LINE: usize = 96;

/// One line of the meter: the rented time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct MeterLine {
    started: Timestamp,
    elapsed: Elapsed,
}

/// The meter of a folder, being written.
#[derive(Debug)]
pub struct MeterFile {
    file: File,
    started: Timestamp,
    next: usize,
}

impl Folder {
    /// Reads the meter: the line with the most time, synced or not, or `None` if no agent ever ran here.
    ///
    /// # Errors
    /// If the file cannot be read.
    pub fn usage(&self) -> io::Result<Option<Usage>> {
        let text = found(fs::read(self.meter_path()))?.unwrap_or_default();
        // A crash may have torn the line that was being written; the one before it stands in the other line.
        let lines = text.chunks(LINE).filter_map(|line| serde_json::from_slice::<MeterLine>(line).ok());
        Ok(lines.max_by_key(|line| line.elapsed).map(|line| Usage { started: line.started, elapsed: line.elapsed }))
    }

    /// Begins the meter with a first line.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn meter(&self, started: Timestamp) -> io::Result<MeterFile> {
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(self.meter_path())?;
        let mut meter = MeterFile { file, started, next: 0 };
        meter.write(Elapsed(0))?;
        File::open(self.path())?.sync_all()?;
        Ok(meter)
    }

    fn meter_path(&self) -> PathBuf {
        self.path().join("meter.jsonl")
    }
}

impl MeterFile {
    /// Writes the rented time and syncs it.
    ///
    /// Two lines of equal length are synced alternately, so that a full disk cannot stop the meter, and a torn write loses only
    /// what was noted since the other one was synced: about a second.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn write(&mut self, elapsed: Elapsed) -> io::Result<()> {
        self.note(elapsed)?;
        self.file.sync_data()?;
        self.next = 1 - self.next;
        Ok(())
    }

    /// Writes the rented time without a sync: it outlives the agent, but not a loss of power.
    ///
    /// The line that was synced last stays as it is until the other one has been synced.
    ///
    /// # Errors
    /// If the file cannot be written.
    pub fn note(&mut self, elapsed: Elapsed) -> io::Result<()> {
        let mut line = serde_json::to_vec(&MeterLine { started: self.started, elapsed })?;
        line.resize(LINE - 1, b' ');
        line.push(b'\n');
        self.file.write_all_at(&line, (self.next * LINE) as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::super::temporary;
    use super::*;

    #[test]
    fn the_meter_survives_a_torn_line_and_does_not_grow() {
        let (_temporary, folder) = temporary();
        assert_eq!(folder.usage().unwrap(), None);
        let started = Timestamp(1_700_000_000_000_000);
        let mut meter = folder.meter(started).unwrap();
        assert_eq!(folder.usage().unwrap(), Some(Usage { started, elapsed: Elapsed(0) }));
        for elapsed in 1..100 {
            meter.write(Elapsed(elapsed * 250_000)).unwrap();
        }
        let whole = Usage { started, elapsed: Elapsed(99 * 250_000) };
        assert_eq!(folder.usage().unwrap(), Some(whole));
        let path = folder.meter_path();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 2 * LINE);

        // Tear the newest line at every length: the one before it stands.
        let newest = bytes.chunks(LINE).position(|line| String::from_utf8_lossy(line).contains("24750000")).unwrap();
        for length in 0..30 {
            let mut torn = bytes.clone();
            torn[newest * LINE + length..][..LINE - length].fill(0);
            fs::write(&path, &torn).unwrap();
            assert_eq!(folder.usage().unwrap().unwrap().elapsed, Elapsed(98 * 250_000), "torn after {length} bytes");
        }
    }

    /// A disk that loses power may tear every line that was written since the last sync.
    #[test]
    fn what_was_noted_counts_and_what_was_synced_stays_whole_beside_it() {
        let (_temporary, folder) = temporary();
        let mut meter = folder.meter(Timestamp(1_700_000_000_000_000)).unwrap();
        let elapsed = |folder: &Folder| folder.usage().unwrap().unwrap().elapsed.0;
        for second in 1..5 {
            meter.write(Elapsed(second * 1_000_000)).unwrap();
            let synced = fs::read(folder.meter_path()).unwrap();
            for quarter in 1..4 {
                let noted = second * 1_000_000 + quarter * 250_000;
                meter.note(Elapsed(noted)).unwrap();
                assert_eq!(elapsed(&folder), noted, "it is read as soon as it is written");
            }
            let whole = fs::read(folder.meter_path()).unwrap();
            let torn = whole.iter().zip(&synced).map(|(byte, before)| if byte == before { *byte } else { 0 });
            fs::write(folder.meter_path(), torn.collect::<Vec<u8>>()).unwrap();
            assert_eq!(elapsed(&folder), second * 1_000_000, "torn after {second} s");
            fs::write(folder.meter_path(), &whole).unwrap();
        }
    }
}
