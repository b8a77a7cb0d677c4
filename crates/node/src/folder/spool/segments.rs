//! Measurements on disk, in files of limited length: those that are acknowledged are deleted, oldest first, and so are those for
//! which there is no space. `measurements/SEQ.jsonl` begins with entry SEQ.

use std::collections::VecDeque;
use std::fs::{self, OpenOptions};
use std::io;
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use super::SpoolLimits;
use super::growing::GrowingFile;
use super::reading::SpoolPiece;

/// Measurements may take one in so many bytes of what would be free without them.
const SHARE: u64 = 10;

/// Between two places in a file at which it is known which entry is there.
const MARK: u64 = 256 << 10;

/// So many bytes are written at once.
const BUFFER: usize = 8 << 10;

/// Bytes that wait in memory for a disk that refuses them, at most.
const UNWRITTEN: usize = 1 << 20;

/// The files.
#[derive(Debug)]
pub(super) struct Segments {
    folder: PathBuf,
    limits: SpoolLimits,
    /// Those that are complete, oldest first.
    closed: VecDeque<Segment>,
    /// The newest.
    open: Option<OpenSegment>,
}

/// What is in a file.
#[derive(Debug)]
struct Segment {
    first: u64,
    last: u64,
    bytes: u64,
    /// Some of the entries, and where each begins.
    marks: Vec<(u64, u64)>,
}

#[derive(Debug)]
struct OpenSegment {
    segment: Segment,
    file: GrowingFile,
}

impl Segment {
    fn overlaps(&self, entries: &RangeInclusive<u64>) -> bool {
        self.first <= *entries.end() && self.last >= *entries.start()
    }

    /// A place before which there is nothing from this entry on.
    fn offset_of(&self, seq: u64) -> u64 {
        let known = self.marks.partition_point(|(marked, _)| *marked <= seq);
        known.checked_sub(1).map_or(0, |index| self.marks[index].1)
    }
}

impl Segments {
    /// None, in a folder that exists.
    pub fn new(folder: PathBuf, limits: SpoolLimits) -> Segments {
        Segments { folder, limits, closed: VecDeque::new(), open: None }
    }

    /// Adds a measurement.
    pub fn add(&mut self, seq: u64, line: &[u8]) -> io::Result<()> {
        let open = self.open.get_or_insert_with(|| OpenSegment {
            segment: Segment { first: seq, last: seq, bytes: 0, marks: Vec::new() },
            file: GrowingFile::new(path_of(&self.folder, seq)),
        });
        let at = open.file.size();
        if open.segment.marks.last().is_none_or(|(_, marked)| at >= marked + MARK) {
            open.segment.marks.push((seq, at));
        }
        open.segment.last = seq;
        open.file.add(line);
        if open.file.size() >= self.limits.file {
            return self.close();
        }
        if open.file.pending().len() < BUFFER { Ok(()) } else { self.flush() }
    }

    /// Writes what is pending. What a disk refuses for long is dropped.
    pub fn flush(&mut self) -> io::Result<()> {
        let Some(OpenSegment { segment, file }) = &mut self.open else { return Ok(()) };
        let flushed = file.flush();
        if flushed.is_err() {
            if file.pending().len() > UNWRITTEN {
                file.drop_pending();
                segment.marks.retain(|(_, marked)| *marked <= file.written());
            }
            // What the disk was filled with may be checkpoints.
            self.trim();
        }
        flushed
    }

    /// Returns once the newest file is on the disk.
    pub fn sync(&mut self) -> io::Result<()> {
        self.flush()?;
        self.open.as_mut().map_or(Ok(()), |open| open.file.sync())
    }

    /// Begins another file with the next measurement, unless the disk refuses the rest of this one.
    fn close(&mut self) -> io::Result<()> {
        self.flush()?;
        if let Some(OpenSegment { segment, file }) = self.open.take() {
            self.closed.push_back(Segment { bytes: file.written(), ..segment });
        }
        self.trim();
        Ok(())
    }

    /// Deletes the oldest complete files while they take too much of the disk.
    fn trim(&mut self) {
        let mut total: u64 = self.closed.iter().map(|segment| segment.bytes).sum();
        let allowed = allowed(self.limits.all, free(&self.folder), total);
        while total > allowed {
            let Some(oldest) = self.closed.pop_front() else { break };
            total -= oldest.bytes;
            self.delete(oldest.first);
        }
    }

    /// Deletes what has no entry from this one on. The newest file stays while it is short, as a readable trace.
    pub fn forget(&mut self, before: u64) {
        while self.closed.front().is_some_and(|oldest| oldest.last < before) {
            if let Some(oldest) = self.closed.pop_front() {
                self.delete(oldest.first);
            }
        }
        let is_over = |open: &mut OpenSegment| open.segment.last < before && open.file.size() > super::KEEP;
        if let Some(OpenSegment { segment, file }) = self.open.take_if(is_over) {
            drop(file);
            self.delete(segment.first);
        }
    }

    /// Called when the agent ends: of more than so many bytes only the newest files are read once it is gone. The oldest file
    /// stays, without its contents: its name says how many measurements are missing.
    pub fn leave(&self, most: u64) {
        let mut left = most.saturating_sub(self.open.as_ref().map_or(0, |open| open.file.size()));
        let fitting = self.closed.iter().rev().take_while(|segment| {
            let fits = segment.bytes <= left;
            left = left.saturating_sub(segment.bytes);
            fits
        });
        // One is read in any case.
        let kept = fitting.count().max(usize::from(self.open.is_none()));
        let unread = self.closed.len().saturating_sub(kept);
        let mut unread = self.closed.iter().take(unread).map(|segment| segment.first);
        if let Some(oldest) = unread.next() {
            let _ = OpenOptions::new().write(true).truncate(true).open(path_of(&self.folder, oldest));
        }
        unread.for_each(|first| self.delete(first));
    }

    /// A file that cannot be deleted is not read any more.
    fn delete(&self, first: u64) {
        let _ = fs::remove_file(path_of(&self.folder, first));
    }

    /// Where these entries are, oldest first.
    pub fn pieces(&self, entries: &RangeInclusive<u64>) -> Vec<SpoolPiece> {
        let open = self.open.as_ref().filter(|open| open.segment.overlaps(entries));
        let closed = self.closed.iter().filter(|segment| segment.overlaps(entries));
        let parts = closed.map(|segment| (segment, segment.bytes));
        let parts = parts.chain(open.map(|open| (&open.segment, open.file.written())));
        let files = parts.map(|(segment, end)| SpoolPiece::File {
            path: path_of(&self.folder, segment.first),
            from: segment.offset_of(*entries.start()),
            to: end,
        });
        files.chain(open.map(|open| SpoolPiece::Memory(open.file.pending().to_vec()))).collect()
    }
}

fn path_of(folder: &Path, first: u64) -> PathBuf {
    folder.join(format!("{first}.jsonl"))
}

/// Bytes that may be used on the folder's disk, if that is known.
fn free(folder: &Path) -> Option<u64> {
    let disk = rustix::fs::statvfs(folder).ok()?;
    Some(disk.f_bavail.saturating_mul(disk.f_frsize))
}

/// Bytes that complete files may take in all, if they take so many now.
fn allowed(most: u64, free: Option<u64>, used: u64) -> u64 {
    free.map_or(most, |free| most.min(free.saturating_add(used) / SHARE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_leave_most_of_the_disk_to_others() {
        assert_eq!(allowed(1_000, None, 5), 1_000, "nobody knows the disk");
        assert_eq!(allowed(1_000, Some(1 << 40), 5), 1_000);
        assert_eq!(allowed(1_000, Some(4_900), 100), 500);
        assert_eq!(allowed(1_000, Some(0), 800), 80, "a full disk gets back nine tenths");
        assert_eq!(allowed(u64::MAX, Some(u64::MAX), u64::MAX), u64::MAX / 10);
    }

    #[test]
    fn a_full_disk_gets_space_back_before_another_file_is_complete() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = temporary.path().to_owned();
        let mut segments = Segments::new(folder.clone(), SpoolLimits { file: 10_000, all: u64::MAX });
        let line = [b'a'; 10_000];
        (1..=3).for_each(|seq| segments.add(seq, &line).unwrap());
        assert_eq!(segments.closed.len(), 3);
        // Less is free than before, and nothing can be written.
        segments.limits.all = 15_000;
        std::os::unix::fs::symlink("/dev/full", path_of(&folder, 4)).unwrap();
        assert!(segments.add(4, &line).is_err());
        let is_there = |first: u64| path_of(&folder, first).exists();
        assert_eq!((segments.closed.len(), is_there(1), is_there(2), is_there(3)), (1, false, false, true));
    }
}
