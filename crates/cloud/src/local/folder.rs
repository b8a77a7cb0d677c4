//! The folder of one instance of this machine, shared by the provider and the agent that lives in it.
//!
//! `launch.json` says what was asked, `agent.lock` is held for as long as the agent lives, `meter.jsonl` is the meter
//! that the bill is made from. The provider proves with these three that an instance is alive or gone. `spool.jsonl`
//! holds what the agent has to say, for the case that it is gone before anybody has listened.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use domain::run::Usage;
use domain::wire::Entry;
use domain::{Elapsed, InstanceId, Timestamp};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The version of the files in the folder.
pub const SCHEMA: u32 = 1;

/// Bytes of one tick in the meter, line end included.
const TICK: usize = 96;

/// What an agent is launched with, in `launch.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// Version of this file.
    pub schema: u32,
    /// Name of the instance.
    pub instance: InstanceId,
    /// The token it was asked for with.
    pub token: String,
    /// Whose it is.
    pub owner: String,
    /// Unix socket of the loop.
    pub socket: PathBuf,
    /// The executable that our own trainer runs in.
    pub rank_program: PathBuf,
    /// Folder of the tensor library, when one was found.
    pub libtorch: Option<PathBuf>,
}

/// What is read of `launch.json` first: all that every version has in common.
#[derive(Deserialize)]
struct Version {
    schema: u32,
}

/// One tick of the meter: the rent so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Tick {
    started: Timestamp,
    elapsed: Elapsed,
}

/// The folder of one instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Folder(PathBuf);

/// The lock of a folder; free again when this and every copy of its file is closed.
#[derive(Debug)]
pub struct Lock(File);

/// The meter of a folder, being written.
#[derive(Debug)]
pub struct Meter {
    file: File,
    started: Timestamp,
    next: usize,
}

impl Folder {
    /// The folder at `path`, which need not exist.
    pub fn new(path: impl Into<PathBuf>) -> Folder {
        Folder(path.into())
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// The file that holds the agent's stdout and stderr.
    pub fn log(&self) -> PathBuf {
        self.0.join("agent.log")
    }

    /// Reads what the agent was launched with; none when nothing was asked.
    ///
    /// # Errors
    /// When the file cannot be read, is not what it should be, or was written by a later version than this one.
    pub fn order(&self) -> io::Result<Option<Order>> {
        let Some(text) = found(fs::read_to_string(self.0.join("launch.json")))? else { return Ok(None) };
        let Version { schema } = serde_json::from_str(&text)?;
        if schema > SCHEMA {
            let message = format!("`launch.json` is of version {schema}, and this program reads up to {SCHEMA}");
            return Err(io::Error::other(message));
        }
        Ok(Some(serde_json::from_str(&text)?))
    }

    /// Writes what the agent is to be launched with, so that a crash leaves all of it or nothing.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn write_order(&self, order: &Order) -> io::Result<()> {
        let partial = self.0.join("launch.json.partial");
        let mut file = File::create(&partial)?;
        file.write_all(&serde_json::to_vec_pretty(order)?)?;
        file.sync_all()?;
        fs::rename(&partial, self.0.join("launch.json"))?;
        File::open(&self.0)?.sync_all()
    }

    /// Takes the lock; none when another holds it.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn lock(&self) -> io::Result<Option<Lock>> {
        let file = OpenOptions::new().create(true).read(true).write(true).truncate(false).open(self.lock_path())?;
        take(file)
    }

    /// Takes over the lock that came with `file`, such as the standard input of an agent; none when `file` is
    /// something else, or the lock is held by another.
    ///
    /// # Errors
    /// When the lock cannot be asked for.
    pub fn inherit(&self, file: File) -> io::Result<Option<Lock>> {
        use std::os::unix::fs::MetadataExt;
        let Some(expected) = found(fs::metadata(self.lock_path()))? else { return Ok(None) };
        let given = file.metadata()?;
        if (given.dev(), given.ino()) == (expected.dev(), expected.ino()) { take(file) } else { Ok(None) }
    }

    /// Whether an agent holds the lock.
    ///
    /// # Errors
    /// When the lock cannot be asked for.
    pub fn is_held(&self) -> io::Result<bool> {
        let Some(file) = found(File::open(self.lock_path()))? else { return Ok(false) };
        match flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(false),
            Err(Errno::WOULDBLOCK) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }

    /// The process that wrote itself into the lock it holds, if one did already.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn holder(&self) -> io::Result<Option<i32>> {
        let text = found(fs::read_to_string(self.lock_path()))?.unwrap_or_default();
        Ok(text.trim().parse().ok())
    }

    /// Reads the meter: the last durable tick, or none when no agent ever lived here.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn usage(&self) -> io::Result<Option<Usage>> {
        let text = found(fs::read(self.meter_path()))?.unwrap_or_default();
        // A crash may have torn the tick that was being written; the one before it stands in the other line.
        let ticks = text.chunks(TICK).filter_map(|line| serde_json::from_slice::<Tick>(line).ok());
        Ok(ticks.max_by_key(|tick| tick.elapsed).map(|tick| Usage { started: tick.started, elapsed: tick.elapsed }))
    }

    /// The file that holds what the agent has to say: one [`Entry`] a line.
    pub fn spool(&self) -> PathBuf {
        self.0.join("spool.jsonl")
    }

    /// Reads what the agent has said or wanted to say, oldest first: all that was not acknowledged, and some that was.
    /// Empty when no agent ever lived here.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn last_words(&self) -> io::Result<Vec<Entry>> {
        let text = found(fs::read(self.spool()))?.unwrap_or_default();
        // A crash may have torn a line; what was promised to be durable stands whole in another.
        Ok(text.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }

    /// Begins the meter with a first tick.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn meter(&self, started: Timestamp) -> io::Result<Meter> {
        let file = OpenOptions::new().create(true).truncate(true).write(true).open(self.meter_path())?;
        let mut meter = Meter { file, started, next: 0 };
        meter.tick(Elapsed(0))?;
        File::open(&self.0)?.sync_all()?;
        Ok(meter)
    }

    fn lock_path(&self) -> PathBuf {
        self.0.join("agent.lock")
    }

    fn meter_path(&self) -> PathBuf {
        self.0.join("meter.jsonl")
    }
}

impl Lock {
    /// Writes the calling process into the lock, so that the provider knows whom to signal.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn sign(&mut self) -> io::Result<()> {
        self.0.set_len(0)?;
        self.0.seek(SeekFrom::Start(0))?;
        writeln!(self.0, "{}", std::process::id())
    }

    /// The locked file, to be handed on to the process that shall hold the lock.
    pub fn into_file(self) -> File {
        self.0
    }
}

impl Meter {
    /// Writes the rent so far, and returns when it is durable.
    ///
    /// Two lines are written in turn, each of the same length, so that a full disk cannot stop the meter and a torn
    /// write cannot lose more than one tick.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn tick(&mut self, elapsed: Elapsed) -> io::Result<()> {
        let mut line = serde_json::to_vec(&Tick { started: self.started, elapsed })?;
        line.resize(TICK - 1, b' ');
        line.push(b'\n');
        self.file.write_all_at(&line, (self.next * TICK) as u64)?;
        self.file.sync_data()?;
        self.next = 1 - self.next;
        Ok(())
    }
}

fn take(file: File) -> io::Result<Option<Lock>> {
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(Lock(file))),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The same result, with none in place of "not found".
pub(super) fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use domain::AttemptId;
    use domain::wire::Word;

    use super::*;

    fn folder() -> (tempfile::TempDir, Folder) {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::new(temporary.path());
        (temporary, folder)
    }

    #[test]
    fn the_meter_survives_a_torn_line_and_does_not_grow() {
        let (_temporary, folder) = folder();
        assert_eq!(folder.usage().unwrap(), None);
        let started = Timestamp(1_700_000_000_000_000);
        let mut meter = folder.meter(started).unwrap();
        assert_eq!(folder.usage().unwrap(), Some(Usage { started, elapsed: Elapsed(0) }));
        for elapsed in 1..100 {
            meter.tick(Elapsed(elapsed * 250_000)).unwrap();
        }
        let whole = Usage { started, elapsed: Elapsed(99 * 250_000) };
        assert_eq!(folder.usage().unwrap(), Some(whole));
        let path = folder.meter_path();
        let bytes = fs::read(&path).unwrap();
        assert_eq!(bytes.len(), 2 * TICK);

        // Tear the newest tick at every length: the one before it stands.
        let newest = bytes.chunks(TICK).position(|line| String::from_utf8_lossy(line).contains("24750000")).unwrap();
        for length in 0..30 {
            let mut torn = bytes.clone();
            torn[newest * TICK + length..][..TICK - length].fill(0);
            fs::write(&path, &torn).unwrap();
            assert_eq!(folder.usage().unwrap().unwrap().elapsed, Elapsed(98 * 250_000), "torn after {length} bytes");
        }
    }

    #[test]
    fn the_lock_is_held_once_and_can_be_handed_on() {
        let (_temporary, folder) = folder();
        assert!(!folder.is_held().unwrap());
        let lock = folder.lock().unwrap().unwrap();
        assert!(folder.is_held().unwrap());
        assert!(folder.lock().unwrap().is_none());

        let file = lock.into_file();
        let copy = file.try_clone().unwrap();
        drop(file);
        let mut inherited = folder.inherit(copy).unwrap().unwrap();
        inherited.sign().unwrap();
        assert_eq!(folder.holder().unwrap(), Some(std::process::id() as i32));
        assert!(folder.inherit(File::open("/dev/null").unwrap()).unwrap().is_none());
        drop(inherited);
        assert!(!folder.is_held().unwrap());
    }

    #[test]
    fn last_words_survive_a_torn_line() {
        let (_temporary, folder) = folder();
        assert_eq!(folder.last_words().unwrap(), []);
        let entry = |seq| Entry { seq, attempt: AttemptId::new("digits-1-a1"), word: Word::Started };
        let line = |seq| serde_json::to_string(&entry(seq)).unwrap() + "\n";
        let whole = line(1) + &line(2);
        for length in 0..line(3).len() - 1 {
            fs::write(folder.spool(), whole.clone() + &line(3)[..length]).unwrap();
            assert_eq!(folder.last_words().unwrap(), [entry(1), entry(2)], "torn after {length} bytes");
        }
        fs::write(folder.spool(), whole + &line(3)).unwrap();
        assert_eq!(folder.last_words().unwrap(), [entry(1), entry(2), entry(3)]);
    }

    #[test]
    fn the_order_reads_back() {
        let (_temporary, folder) = folder();
        assert_eq!(folder.order().unwrap(), None);
        let order = Order {
            schema: SCHEMA,
            instance: InstanceId::new("digits-1-i1"),
            token: "t".into(),
            owner: "o".into(),
            socket: "/home/loop.sock".into(),
            rank_program: "/usr/bin/gradus-rank".into(),
            libtorch: None,
        };
        folder.write_order(&order).unwrap();
        assert_eq!(folder.order().unwrap(), Some(order.clone()));
        // What an earlier version wrote is read, what a later one wrote is refused by its version, whatever its shape.
        folder.write_order(&Order { schema: SCHEMA - 1, ..order }).unwrap();
        assert_eq!(folder.order().unwrap().unwrap().schema, SCHEMA - 1);
        fs::write(folder.path().join("launch.json"), r#"{"schema": 2, "name": "digits-1-i1"}"#).unwrap();
        let error = folder.order().unwrap_err().to_string();
        assert!(error.contains("version 2"), "{error}");
    }
}
