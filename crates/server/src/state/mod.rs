//! The event log in SQLite, and the world derived from it.
//!
//! [`State::append`] is the only way to write: it takes the write lock, reads the events of other processes, checks
//! that the new events can follow, and commits them with the rows that they change in one synced transaction. An
//! acknowledged event is on disk. `log` has the events; `rows` has state derived from them, so that a start reads
//! unfinished work and not the full history; `reader` answers queries concurrently with the process that appends.

pub(crate) mod alone;
mod follow;
mod log;
mod named;
mod opening;
mod reader;
mod rows;
pub(crate) mod sqlite;
mod sweeps;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use domain::{Event, Record, RunId};
use plan::{RunOrSweep, World};
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::clock;
use crate::error::Error;
use crate::home::Home;
use crate::secrets::{self, SecretKey};

pub(crate) use follow::Foreign;
use follow::{follow, foreign};
use opening::read;
pub use reader::{ListedRun, RunFilter, StateReader};
pub use sweeps::{SweepEvents, SweepFilter};

/// The event log and the world it amounts to.
#[derive(Debug)]
pub struct State {
    db: Connection,
    path: PathBuf,
    world: World,
    key: SecretKey,
    /// Settled runs and sweeps that stay in memory; `None` if all do.
    kept: Option<BTreeSet<RunOrSweep>>,
    /// Whether commits fail as on a full disk.
    #[cfg(test)]
    pub(crate) is_full: std::sync::Arc<std::sync::atomic::AtomicBool>,
}

impl State {
    /// Opens the log of a home, created on first use, with its full history.
    ///
    /// # Errors
    /// [`Error::State`], [`Error::Unreadable`] or [`Error::Illegal`] if it cannot be used or is inconsistent.
    pub fn open(home: &Home) -> Result<State, Error> {
        State::load(home, None, rows::load_all)
    }

    /// Opens the log with unfinished work only. The rest is loaded on demand.
    ///
    /// # Errors
    /// As [`State::open`].
    pub fn open_lean(home: &Home) -> Result<State, Error> {
        State::load(home, Some(BTreeSet::new()), rows::load_open)
    }

    fn load(
        home: &Home,
        kept: Option<BTreeSet<RunOrSweep>>,
        load: fn(&Connection) -> rusqlite::Result<World>,
    ) -> Result<State, Error> {
        let path = home.state();
        let key = SecretKey::open(home.root())?;
        // A file that is closed takes the lock with it by which the process has its database for itself.
        if !alone::is_kept(&path) {
            secrets::private(&path).map_err(Error::file("open", &path))?;
        }
        let db = alone::open(&path, OpenFlags::default()).map_err(Error::sqlite("open", &path))?;
        sqlite::configure(&db, "full").map_err(Error::sqlite("open", &path))?;
        let world = read(&db, &path, &key, |db| load(db).map_err(Error::sqlite("read", &path)))?;
        let state = State {
            db,
            path,
            world,
            key,
            kept,
            #[cfg(test)]
            is_full: std::sync::Arc::default(),
        };
        state.check_key(&state.world)?;
        Ok(state)
    }

    /// The values of these jobs must have been sealed with the key of this home.
    fn check_key(&self, world: &World) -> Result<(), Error> {
        match world.runs.values().any(|run| secrets::is_foreign(&self.key, &run.job)) {
            true => Err(Error::Key(self.path.with_file_name("secret.key"))),
            false => Ok(()),
        }
    }

    /// The key that values of jobs are sealed with.
    pub fn key(&self) -> &SecretKey {
        &self.key
    }

    /// The known state: everything, or unfinished work and what was recalled.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Loads a settled run or sweep and keeps it in memory; returns false if there is none of this name.
    ///
    /// # Errors
    /// As [`State::open`].
    pub fn recall(&mut self, work: &RunOrSweep) -> Result<bool, Error> {
        let work = match work {
            RunOrSweep::Run(run) if !self.world.runs.contains_key(run) => {
                rows::work_of_run(&self.db, run).map_err(Error::sqlite("read", &self.path))?
            }
            RunOrSweep::Run(run) => self.world.work_of_run(run),
            RunOrSweep::Sweep(_) => Some(work.clone()),
        };
        let Some(work) = work else { return Ok(false) };
        if !self.world.holds(&work) {
            let part = read(&self.db, &self.path, &self.key, |db| {
                let part = rows::load(db, &work).map_err(Error::sqlite("read", &self.path))?;
                Ok((foreign(db, &self.path, &self.world)?, part))
            });
            let (Foreign { records, recalled }, Some(part)) = part? else { return Ok(false) };
            self.check_key(&part)?;
            self.world.catch_up(&records, recalled)?;
            if !self.world.holds(&work) {
                self.world.merge(part);
            }
        }
        if let Some(kept) = &mut self.kept {
            kept.insert(work);
        }
        Ok(true)
    }

    /// Loads the runs and sweeps that a name on the command line may refer to: an exact match, some that begin with it,
    /// and for `last` the newest.
    ///
    /// # Errors
    /// As [`State::open`].
    pub fn recall_named(&mut self, name: &str) -> Result<(), Error> {
        let works = reader::named(&self.db, name).map_err(Error::sqlite("read", &self.path))?;
        works.iter().try_for_each(|work| self.recall(work).map(|_| ()))
    }

    /// Recalls the newest runs and sweeps, at most so many of each.
    ///
    /// # Errors
    /// As [`State::open`].
    pub fn recall_newest(&mut self, limit: usize) -> Result<(), Error> {
        let works = reader::newest(&self.db, limit).map_err(Error::sqlite("read", &self.path))?;
        works.iter().try_for_each(|work| self.recall(work).map(|_| ()))
    }

    /// How many runs there are, in memory or not; `most` where there are more, which takes no longer with a longer history.
    ///
    /// # Errors
    /// As [`State::open`].
    pub fn count_runs(&self, most: u64) -> Result<u64, Error> {
        reader::count(&self.db, most).map_err(Error::sqlite("read", &self.path))
    }

    /// Loads the newest runs of a job, by its hash; at most a hundred.
    ///
    /// # Errors
    /// As [`State::open`].
    pub fn recall_of_job(&mut self, job_hash: &str) -> Result<(), Error> {
        let works = reader::of_job(&self.db, job_hash).map_err(Error::sqlite("read", &self.path))?;
        works.iter().try_for_each(|work| self.recall(work).map(|_| ()))
    }

    /// Reads the events that other processes have appended since.
    ///
    /// # Errors
    /// As [`State::open`].
    pub fn refresh(&mut self) -> Result<(), Error> {
        if log::newest(&self.db).map_err(Error::sqlite("read", &self.path))? == self.world.last_seq {
            return Ok(());
        }
        let Foreign { records, recalled } =
            read(&self.db, &self.path, &self.key, |db| foreign(db, &self.path, &self.world))?;
        self.world.catch_up(&records, recalled)?;
        if let Some(kept) = &self.kept {
            self.world.evict_settled(kept);
        }
        Ok(())
    }

    /// Appends events in one transaction; when this returns, they are on disk.
    ///
    /// # Errors
    /// [`Error::Illegal`] if one cannot follow the current history; then none is appended. [`Error::State`] on an I/O
    /// error; then none is acknowledged.
    pub fn append(&mut self, events: Vec<Event>) -> Result<Vec<Record>, Error> {
        let result = self.try_append(events);
        if result.is_err() {
            // The world in memory may be ahead of the disk.
            self.world = self.reload()?;
            for work in self.kept.clone().unwrap_or_default() {
                self.recall(&work)?;
            }
        }
        result
    }

    fn try_append(&mut self, mut events: Vec<Event>) -> Result<Vec<Record>, Error> {
        let path = self.path.clone();
        let doing = |doing| Error::sqlite(doing, &path);
        for event in &mut events {
            match event {
                Event::Submitted(submitted) => self.key.seal_job(&mut submitted.job)?,
                Event::SweepSubmitted(submitted) => self.key.seal_job(&mut submitted.job)?,
                _ => {}
            }
        }
        let now = clock::now();
        let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(doing("lock"))?;
        rows::catch_up(&transaction, &path)?;
        follow(&transaction, &path, &mut self.world)?;
        let mut records = Vec::with_capacity(events.len());
        let mut changes = rows::RowChanges::default();
        for event in events {
            let record = Record { seq: self.world.last_seq + 1, at: now, event };
            rows::recall(&transaction, &mut self.world, &record.event).map_err(doing("read"))?;
            self.world.apply(&record)?;
            log::insert(&transaction, &self.world, &record).map_err(doing("write"))?;
            changes.note(&self.world, &record);
            records.push(record);
        }
        changes.write(&transaction, &self.world).map_err(doing("write"))?;
        chaos::point("event.before");
        transaction.commit().map_err(doing("write"))?;
        chaos::point("event.after");
        if let Some(kept) = &self.kept {
            self.world.evict_settled(kept);
        }
        Ok(records)
    }

    /// Takes the world out, for the controller, which drops settled work from it.
    pub(crate) fn take_world(&mut self) -> World {
        self.kept.get_or_insert_default();
        std::mem::take(&mut self.world)
    }

    /// Puts it back.
    pub(crate) fn put_world(&mut self, world: World) {
        self.world = world;
    }

    /// Drops tables of earlier versions. Only the process that runs the loop may call this.
    pub(crate) fn forget_old_rows(&self) -> Result<(), Error> {
        rows::forget_old(&self.db).map_err(Error::sqlite("write", &self.path))
    }

    /// Commits records that were applied to `world` already, in one synced transaction; when this returns they are on
    /// disk. If another process has appended first, none is committed.
    ///
    /// # Errors
    /// [`Error::State`] on an I/O error; then none is acknowledged.
    pub(crate) fn commit(&mut self, records: &[Record], world: &World) -> Result<Commit, Error> {
        let path = self.path.clone();
        let doing = |doing| Error::sqlite(doing, &path);
        let Some(first) = records.first() else { return Ok(Commit::Done) };
        #[cfg(test)]
        if self.is_full.load(std::sync::atomic::Ordering::SeqCst) {
            let full = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_FULL);
            return Err(doing("write")(rusqlite::Error::SqliteFailure(full, None)));
        }
        let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(doing("lock"))?;
        let (newest, rows) = (log::newest(&transaction), rows::head(&transaction));
        let before = Some(first.seq - 1);
        if Some(newest.map_err(doing("read"))?) != before || rows.map_err(doing("read"))? != before {
            return Ok(Commit::Overtaken);
        }
        let mut changes = rows::RowChanges::default();
        for record in records {
            log::insert(&transaction, world, record).map_err(doing("write"))?;
            changes.note(world, record);
        }
        changes.write(&transaction, world).map_err(doing("write"))?;
        if records.iter().any(|record| matches!(record.event, Event::Billed { .. })) {
            chaos::point("bill");
        }
        chaos::point("event.before");
        transaction.commit().map_err(doing("write"))?;
        chaos::point("event.after");
        Ok(Commit::Done)
    }

    /// The unfinished work, or everything, as it is on disk.
    ///
    /// # Errors
    /// As [`State::open`].
    pub(crate) fn reload(&self) -> Result<World, Error> {
        let load = if self.kept.is_some() { rows::load_open } else { rows::load_all };
        read(&self.db, &self.path, &self.key, |db| load(db).map_err(Error::sqlite("read", &self.path)))
    }

    /// Events that other processes have appended after those in `world`; takes microseconds if there are none.
    ///
    /// # Errors
    /// As [`State::open`].
    pub(crate) fn foreign(&self, world: &World) -> Result<Option<Foreign>, Error> {
        if log::newest(&self.db).map_err(Error::sqlite("read", &self.path))? <= world.last_seq {
            return Ok(None);
        }
        read(&self.db, &self.path, &self.key, |db| foreign(db, &self.path, world)).map(Some)
    }

    /// The subject of an event that has left memory, as it is on disk. [`Recalled::Behind`] if `world` must first apply
    /// events of other processes.
    ///
    /// # Errors
    /// As [`State::open`].
    pub(crate) fn recall_for(&self, world: &World, event: &Event) -> Result<Recalled, Error> {
        read(&self.db, &self.path, &self.key, |db| {
            let doing = || Error::sqlite("read", &self.path);
            if log::newest(db).map_err(doing())? > world.last_seq {
                return Ok(Recalled::Behind);
            }
            let mut part = World::at(world.last_seq);
            rows::recall(db, &mut part, event).map_err(doing())?;
            let is_empty = part.runs.is_empty() && part.sweeps.is_empty();
            Ok(if is_empty { Recalled::Unknown } else { Recalled::Part(Box::new(part)) })
        })
    }

    /// Every event of one run after `seq`, oldest first.
    ///
    /// # Errors
    /// As [`State::open`].
    pub fn records(&self, run: &RunId, seq: u64) -> Result<Vec<Record>, Error> {
        log::of_run(&self.db, &self.path, run, seq, usize::MAX)
    }

    /// Every event after `seq`, oldest first.
    ///
    /// # Errors
    /// As [`State::open`].
    pub fn records_after(&self, seq: u64) -> Result<Vec<Record>, Error> {
        log::page(&self.db, &self.path, seq, usize::MAX)
    }
}

/// Result of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Commit {
    /// It is on disk.
    Done,
    /// Another process has appended first; nothing was written.
    Overtaken,
}

/// The subject of an event.
#[derive(Debug)]
pub(crate) enum Recalled {
    /// A settled run or sweep.
    Part(Box<World>),
    /// It does not exist.
    Unknown,
    /// Other processes have appended events that the world does not know yet.
    Behind,
}

impl Error {
    pub(crate) fn sqlite(doing: &'static str, path: &Path) -> impl FnOnce(rusqlite::Error) -> Error + use<> {
        let path = path.to_owned();
        move |source| Error::State { doing, path, source }
    }
}
