//! What of a home was refused for want of disk space.
//!
//! On a full disk neither an event nor a note can be written. So the process that runs the loop has what was refused in
//! memory, and in a file whose blocks were allocated before, from which other processes read it ([`slots`]). What belongs into
//! the log of operations waits until there is space.

mod slots;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use control::OperationNote;
use domain::{Elapsed, RunId, Timestamp};
use serde::{Deserialize, Serialize};

use crate::error::{Error, is_full};

/// The newest refusals are written to it at this interval at most; new ones, and those that are over, at once.
const RENEWED: Elapsed = Elapsed(10_000_000);

/// What was not refused again for so long is over: whoever has sent it has given up.
const EXPIRES: Elapsed = Elapsed(120_000_000);

/// Bytes by which it is tried whether there is space again: more than a server that starts needs before it has written anything.
const PROBE: usize = 256 << 10;

/// A reader of the file tries so often to find a state that is whole: both slots may be written while it reads.
const READS: usize = 16;

/// Notes that wait for space, at most.
const NOTES: usize = 1000;

/// What is stored in a home.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StoredKind {
    /// The event log, without which nothing is decided.
    Events,
    /// Measurements of runs, and the log of operations.
    Measurements,
    /// Files that agents send of a run.
    Files(RunId),
    /// Files that clients upload.
    Uploads,
}

/// Something that there is no space for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shortage {
    /// What is refused.
    pub stored: StoredKind,
    /// Which file of it was refused last; empty for a database.
    pub place: String,
    /// Why.
    pub why: String,
    /// When it was refused first.
    pub since: Timestamp,
    /// When it was refused last.
    pub last: Timestamp,
}

impl Shortage {
    /// Whether a run waits for it.
    pub fn concerns(&self, run: &RunId) -> bool {
        match &self.stored {
            StoredKind::Events | StoredKind::Measurements => true,
            StoredKind::Files(of) => of == run,
            StoredKind::Uploads => false,
        }
    }

    /// What the log of operations is to say of it.
    pub fn note(&self) -> OperationNote {
        OperationNote { subject: self.stored.subject(), text: self.to_string(), is_mistake: false }
    }

    fn is_over(&self, now: Timestamp) -> bool {
        now.since(self.last) >= EXPIRES
    }
}

impl std::fmt::Display for Shortage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "no disk space for {}: {}", self.stored, self.why)
    }
}

impl StoredKind {
    fn subject(&self) -> String {
        match self {
            StoredKind::Events | StoredKind::Measurements | StoredKind::Uploads => "server".to_owned(),
            StoredKind::Files(run) => run.to_string(),
        }
    }
}

impl std::fmt::Display for StoredKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            StoredKind::Events => f.write_str("the event log"),
            StoredKind::Measurements => f.write_str("measurements"),
            StoredKind::Files(run) => write!(f, "files of run `{run}`"),
            StoredKind::Uploads => f.write_str("uploads"),
        }
    }
}

/// What is refused now, as the process that runs the loop knows it.
#[derive(Debug, Default)]
pub struct DiskSpace {
    path: PathBuf,
    known: Mutex<Known>,
    listener: OnceLock<Listener>,
}

#[derive(Debug, Default)]
struct Known {
    shortages: BTreeMap<StoredKind, Shortage>,
    /// What the log of operations is to have once it can be written.
    notes: Vec<(Timestamp, OperationNote)>,
    /// When the file was written.
    written: Timestamp,
    /// The number of the state that was written to it last.
    number: u64,
}

/// Hears of each shortage when it begins and when it is over.
struct Listener(Box<dyn Fn(&str) + Send + Sync>);

impl std::fmt::Debug for Listener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Listener")
    }
}

impl DiskSpace {
    /// That of a home folder.
    pub(super) fn of(root: &Path) -> DiskSpace {
        DiskSpace { path: file(root), ..DiskSpace::default() }
    }

    /// Allocates the file for other processes, for the process that runs the loop. What an earlier one has left is over.
    pub(crate) fn prepare(&self) {
        let mut known = self.known();
        known.number = 1;
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&self.path);
        // Without it, other processes do not see what is refused.
        let _ = file.and_then(|file| {
            for number in 0..=known.number {
                file.write_all_at(&slots::slot(number, &listed(&[])), slots::offset(number))?;
            }
            file.sync_all()
        });
    }

    /// Has a function called with a line when something is refused for want of space, and when that is over.
    pub fn listen(&self, listener: impl Fn(&str) + Send + Sync + 'static) {
        let _ = self.listener.set(Listener(Box::new(listener)));
    }

    /// Something could not be stored for want of space.
    pub(crate) fn refused(&self, stored: &StoredKind, place: &str, why: &str, now: Timestamp) {
        let mut known = self.known();
        let since = known.shortages.get(stored).map_or(now, |had| had.since);
        let (place, why) = (place.to_owned(), why.to_owned());
        let shortage = Shortage { stored: stored.clone(), place, why, since, last: now };
        let note = shortage.note();
        let is_new = known.shortages.insert(stored.clone(), shortage).is_none();
        if is_new {
            known.wait(now, note.clone());
        }
        if is_new || now.since(known.written) >= RENEWED {
            self.publish(&mut known, now);
        }
        drop(known);
        if is_new {
            self.say(&note.text);
        }
    }

    /// It could be stored. What is refused of other files of a run says nothing of this one.
    pub(crate) fn accepted(&self, stored: &StoredKind, place: &str, now: Timestamp) {
        self.end(now, |shortage| shortage.stored == *stored && shortage.place == place);
    }

    /// Drops what was not refused for long.
    pub(crate) fn expire(&self, now: Timestamp) {
        self.end(now, |shortage| shortage.is_over(now));
    }

    /// What is refused now.
    pub fn shortages(&self) -> Vec<Shortage> {
        self.known().shortages.values().cloned().collect()
    }

    /// Notes for the log of operations, oldest first.
    pub(crate) fn notes(&self) -> Vec<(Timestamp, OperationNote)> {
        self.known().notes.clone()
    }

    /// The first so many of them are there.
    pub(crate) fn noted(&self, number: usize) {
        self.known().notes.drain(..number);
    }

    /// Tries whether a file can be written.
    pub(crate) fn probe(&self) -> io::Result<()> {
        let path = self.path.with_file_name(".space-probe");
        let written = File::create(&path).and_then(|mut file| {
            file.write_all(&vec![1; PROBE])?;
            file.sync_all()
        });
        let _ = fs::remove_file(&path);
        written
    }

    /// Whether an error is one of a full disk.
    pub(crate) fn explains(&self, error: &Error) -> bool {
        error.lacks_space() || error.is_failed_write() && self.probe().is_err_and(|error| is_out_of_space(&error))
    }

    /// Whether a file could not be written because the disk is full.
    pub fn refuses(&self, error: &io::Error) -> bool {
        is_full(error) || is_out_of_space(error) && self.probe().is_err()
    }

    fn end(&self, now: Timestamp, is_over: impl Fn(&Shortage) -> bool) {
        let mut known = self.known();
        let over: Vec<Shortage> = known.shortages.values().filter(|shortage| is_over(shortage)).cloned().collect();
        if over.is_empty() {
            return;
        }
        let mut lines = Vec::new();
        for Shortage { stored, since, last, .. } in over {
            known.shortages.remove(&stored);
            let seconds = last.since(since).0.div_ceil(1_000_000);
            let text = format!("{stored}: no longer refused for want of disk space, after {seconds} s");
            known.wait(now, OperationNote { subject: stored.subject(), text: text.clone(), is_mistake: false });
            lines.push(text);
        }
        self.publish(&mut known, now);
        drop(known);
        lines.iter().for_each(|line| self.say(line));
    }

    /// Writes what is refused for other processes, in place.
    fn publish(&self, known: &mut Known, now: Timestamp) {
        known.written = now;
        known.number += 1;
        let shortages: Vec<&Shortage> = known.shortages.values().collect();
        let text = slots::slot(known.number, &listed(&shortages));
        // Where it cannot be written, other processes see what was there for a while, or nothing.
        let _ = OpenOptions::new().write(true).open(&self.path).and_then(|file| {
            let written = file.write_all_at(&text, slots::offset(known.number));
            // The file of an earlier version has one slot, and there may be no space for another one.
            written.or_else(|_| file.write_all_at(&text, slots::offset(known.number + 1)))
        });
    }

    fn say(&self, line: &str) {
        if let Some(Listener(say)) = self.listener.get() {
            say(line);
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn wait(&mut self, at: Timestamp, note: OperationNote) {
        if self.notes.len() < NOTES {
            self.notes.push((at, note));
        }
    }
}

/// What the process that runs the loop of a home refuses, as any process may read it; nothing where none does.
pub(super) fn read(root: &Path, now: Timestamp) -> Vec<Shortage> {
    let path = file(root);
    for _ in 0..READS {
        let Ok(bytes) = fs::read(&path) else { return Vec::new() };
        if let Some(content) = slots::newest(&bytes) {
            let shortages: Vec<Shortage> = serde_json::from_slice(content).unwrap_or_default();
            return shortages.into_iter().filter(|shortage| !shortage.is_over(now)).collect();
        }
    }
    Vec::new()
}

/// Whether a disk is full, or not even a small file may be written (`ulimit -f`).
fn is_out_of_space(error: &io::Error) -> bool {
    is_full(error) || error.kind() == io::ErrorKind::FileTooLarge
}

fn file(root: &Path) -> PathBuf {
    root.join("refused.json")
}

/// As many of them as fit into the file.
fn listed(shortages: &[&Shortage]) -> Vec<u8> {
    let mut text = vec![b'['];
    for shortage in shortages {
        let Ok(one) = serde_json::to_vec(shortage) else { continue };
        if text.len() + one.len() + 2 > slots::ROOM {
            break;
        }
        if text.len() > 1 {
            text.push(b',');
        }
        text.extend(one);
    }
    text.push(b']');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> Timestamp {
        Timestamp(seconds * 1_000_000)
    }

    fn files() -> StoredKind {
        StoredKind::Files(RunId::new("r"))
    }

    #[test]
    fn a_refusal_is_said_once_and_again_when_it_is_over() {
        let folder = tempfile::tempdir().unwrap();
        let space = DiskSpace::of(folder.path());
        space.prepare();
        let (sender, said) = std::sync::mpsc::channel();
        let sender = Mutex::new(sender);
        space.listen(move |line| sender.lock().unwrap().send(line.to_owned()).unwrap());
        for second in 1..100 {
            space.refused(&files(), "checkpoints/a", "full", at(second));
            // A log still fits.
            space.accepted(&files(), "logs/a", at(second));
        }
        space.accepted(&files(), "checkpoints/a", at(100));
        space.accepted(&files(), "checkpoints/a", at(101));
        let said: Vec<String> = said.try_iter().collect();
        let over = "files of run `r`: no longer refused for want of disk space, after 98 s";
        assert_eq!(said, ["no disk space for files of run `r`: full", over]);
        let notes: Vec<String> = space.notes().into_iter().map(|(_, note)| note.text).collect();
        assert_eq!(notes, said, "the log of operations gets the same, once it can be written");
        space.noted(1);
        assert_eq!(space.notes().len(), 1);
    }

    /// The kernel lets another process read a file while it is written: the newest bytes, and behind them what was there.
    #[test]
    fn other_processes_read_what_was_refused_before_or_after_a_write_and_never_between() {
        let folder = tempfile::tempdir().unwrap();
        let space = DiskSpace::of(folder.path());
        space.prepare();
        let path = file(folder.path());
        let (mut before, mut had) = (fs::read(&path).unwrap(), Vec::new());
        // Each changes the file at once; the states of several runs take more than a page.
        for second in 1..20 {
            let long = "no space left on the device, ".repeat(10);
            space.refused(&StoredKind::Files(RunId::new(format!("r-{second}"))), "checkpoints/a", &long, at(second));
            let (after, has) = (fs::read(&path).unwrap(), space.shortages());
            let differs: Vec<usize> = (0..after.len()).filter(|place| before[*place] != after[*place]).collect();
            let (first, last) = (differs[0], differs[differs.len() - 1]);
            for end in (first..=last).step_by(97).chain([first + 1, last, last + 1]) {
                for torn in [[&after[..end], &before[end..]].concat(), [&before[..end], &after[end..]].concat()] {
                    fs::write(&path, torn).unwrap();
                    let seen = read(folder.path(), at(second));
                    assert!(seen == had || seen == has, "{end} of {first} to {last}: {} are seen", seen.len());
                }
            }
            fs::write(&path, &after).unwrap();
            assert_eq!(read(folder.path(), at(second)), has);
            (before, had) = (after, has);
        }
    }

    #[test]
    fn the_file_of_an_earlier_version_is_read_and_made_use_of() {
        let folder = tempfile::tempdir().unwrap();
        let space = DiskSpace::of(folder.path());
        let path = file(folder.path());
        let shortage = Shortage { stored: files(), place: "a".into(), why: "full".into(), since: at(1), last: at(1) };
        let mut text = serde_json::to_vec(&[&shortage]).unwrap();
        text.resize(16 << 10, b' ');
        fs::write(&path, &text).unwrap();
        assert_eq!(read(folder.path(), at(2)), [shortage]);
        space.prepare();
        assert_eq!(read(folder.path(), at(2)), [], "what an earlier process has left is over");
        for second in 3..6 {
            space.refused(&StoredKind::Files(RunId::new(format!("r-{second}"))), "a", "full", at(second));
            assert_eq!(read(folder.path(), at(second)), space.shortages());
        }
        space.prepare();
        assert_eq!(read(folder.path(), at(6)), []);
        space.refused(&StoredKind::Events, "", "full", at(7));
        assert_eq!(read(folder.path(), at(7)), space.shortages(), "it counts from the start again");
    }

    #[test]
    fn other_processes_read_what_is_refused_while_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let space = DiskSpace::of(folder.path());
        space.prepare();
        assert_eq!(read(folder.path(), at(0)), []);
        let length = || fs::metadata(file(folder.path())).unwrap().len();
        let allocated = length();
        space.refused(&files(), "checkpoints/a", "full", at(1));
        space.refused(&StoredKind::Events, "", "full", at(2));
        let known = read(folder.path(), at(3));
        assert_eq!(known, space.shortages());
        assert!(known.iter().all(|shortage| shortage.concerns(&RunId::new("r"))));
        assert_eq!(known.iter().filter(|shortage| shortage.concerns(&RunId::new("other"))).count(), 1);
        for run in 0..1000 {
            space.refused(&StoredKind::Files(RunId::new(format!("r-{run}"))), "checkpoints/a", "full", at(4));
        }
        assert_eq!(length(), allocated, "no block is allocated on a full disk");
        assert!(!read(folder.path(), at(5)).is_empty());
        // A process that was killed says nothing for ever, and an agent that is gone sends nothing again.
        assert_eq!(read(folder.path(), at(500)), []);
        space.expire(at(500));
        assert_eq!(space.shortages(), []);
    }
}
