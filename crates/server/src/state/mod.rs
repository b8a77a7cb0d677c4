//! The event log in SQLite, and the world folded from it.
//!
//! [`State::append`] is the only way in: it takes the write lock, reads what other processes have appended, checks
//! that the new events can follow, and commits them with the views in one synced transaction. An event that was
//! acknowledged is on disk. `views` holds what can be rebuilt.

mod views;

use std::path::{Path, PathBuf};
use std::time::Duration;

use domain::{Event, Record, RunId, SweepId, Timestamp};
use plan::World;
use rusqlite::{Connection, OpenFlags, TransactionBehavior, params};

use crate::clock;
use crate::error::Error;
use crate::home::Home;
use crate::secrets::{self, SecretKey};

/// The event log and the world it amounts to.
#[derive(Debug)]
pub struct State {
    db: Connection,
    path: PathBuf,
    world: World,
    key: SecretKey,
}

impl State {
    /// Opens the log of a home, made on first use.
    ///
    /// # Errors
    /// [`Error::State`], [`Error::Unreadable`] or [`Error::Illegal`] when it cannot be used or believed.
    pub fn open(home: &Home) -> Result<State, Error> {
        let path = home.state();
        let doing = |doing| Error::sqlite(doing, &path);
        let key = SecretKey::open(home.root())?;
        secrets::private(&path).map_err(Error::file("open", &path))?;
        let mut db = Connection::open_with_flags(&path, OpenFlags::default()).map_err(doing("open"))?;
        configure(&db).map_err(doing("open"))?;
        let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(doing("open"))?;
        transaction
            .execute_batch("CREATE TABLE IF NOT EXISTS events (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, run TEXT, event TEXT NOT NULL) STRICT")
            .map_err(doing("open"))?;
        let has_sealed = seal_values(&transaction, &path, &key)?;
        let mut world = views::load(&transaction).map_err(doing("read"))?.unwrap_or_default();
        let known = world.last_seq;
        follow(&transaction, &path, &mut world)?;
        if known != world.last_seq || known == 0 {
            views::rebuild(&transaction, &world).map_err(doing("write"))?;
        }
        transaction.commit().map_err(doing("write"))?;
        if has_sealed {
            // Pages and journals still hold what was overwritten.
            db.execute_batch("VACUUM; PRAGMA wal_checkpoint(TRUNCATE);").map_err(doing("write"))?;
        }
        if world.runs.values().any(|run| secrets::is_foreign(&key, &run.job)) {
            return Err(Error::Key(home.root().join("secret.key")));
        }
        Ok(State { db, path, world, key })
    }

    /// The key that values of jobs are sealed with.
    pub fn key(&self) -> &SecretKey {
        &self.key
    }

    /// Everything that is known.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// Reads what other processes have appended since.
    ///
    /// # Errors
    /// As [`State::open`].
    pub fn refresh(&mut self) -> Result<(), Error> {
        follow(&self.db, &self.path, &mut self.world)
    }

    /// Appends events in one transaction; when this returns, they are on disk.
    ///
    /// # Errors
    /// [`Error::Illegal`] when one cannot follow what is known by now; then none is appended. [`Error::State`] when
    /// the disk refuses; then none is acknowledged.
    pub fn append(&mut self, events: Vec<Event>) -> Result<Vec<Record>, Error> {
        let result = self.try_append(events);
        if result.is_err() {
            // The world in memory may be ahead of the disk.
            self.world = World::default();
            self.refresh()?;
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
        follow(&transaction, &path, &mut self.world)?;
        let mut records = Vec::with_capacity(events.len());
        for event in events {
            let record = Record { seq: self.world.last_seq + 1, at: now, event };
            self.world.apply(&record)?;
            insert(&transaction, &self.world, &record).map_err(doing("write"))?;
            views::update(&transaction, &self.world, &record).map_err(doing("write"))?;
            records.push(record);
        }
        chaos::point("event.before");
        transaction.commit().map_err(doing("write"))?;
        chaos::point("event.after");
        Ok(records)
    }

    /// Takes the world out, for the controller to go on with.
    pub(crate) fn take_world(&mut self) -> World {
        std::mem::take(&mut self.world)
    }

    /// Puts it back.
    pub(crate) fn put_world(&mut self, world: World) {
        self.world = world;
    }

    /// Commits records that were applied to `world` already, in one synced transaction; when this returns they are on
    /// disk. None is where another process has appended before: then none is.
    ///
    /// # Errors
    /// [`Error::State`] when the disk refuses; then none is acknowledged.
    pub(crate) fn commit(&mut self, records: &[Record], world: &World) -> Result<Commit, Error> {
        let path = self.path.clone();
        let doing = |doing| Error::sqlite(doing, &path);
        let Some(first) = records.first() else { return Ok(Commit::Done) };
        let transaction = self.db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(doing("lock"))?;
        if newest(&transaction).map_err(doing("read"))? + 1 != first.seq {
            return Ok(Commit::Overtaken);
        }
        for record in records {
            insert(&transaction, world, record).map_err(doing("write"))?;
            views::update(&transaction, world, record).map_err(doing("write"))?;
        }
        if records.iter().any(|record| matches!(record.event, Event::Billed { .. })) {
            chaos::point("bill");
        }
        chaos::point("event.before");
        transaction.commit().map_err(doing("write"))?;
        chaos::point("event.after");
        Ok(Commit::Done)
    }

    /// The world as it is on disk.
    ///
    /// # Errors
    /// As [`State::open`].
    pub(crate) fn reload(&self) -> Result<World, Error> {
        let mut world = views::load(&self.db).map_err(Error::sqlite("read", &self.path))?.unwrap_or_default();
        follow(&self.db, &self.path, &mut world)?;
        Ok(world)
    }

    /// Every event after `seq`; a question of microseconds where there is none.
    ///
    /// # Errors
    /// As [`State::open`].
    pub(crate) fn records_after_head(&self, seq: u64) -> Result<Vec<Record>, Error> {
        if newest(&self.db).map_err(Error::sqlite("read", &self.path))? <= seq {
            return Ok(Vec::new());
        }
        self.records_after(seq)
    }

    /// Every event of one run after `seq`, oldest first.
    ///
    /// # Errors
    /// As [`State::open`].
    pub fn records(&self, run: &RunId, seq: u64) -> Result<Vec<Record>, Error> {
        let sql = "SELECT seq, at, event FROM events WHERE run = ?1 AND seq > ?2 ORDER BY seq";
        select(&self.db, &self.path, sql, params![run.as_str(), seq as i64])
    }

    /// Every event after `seq`, oldest first.
    ///
    /// # Errors
    /// As [`State::open`].
    pub fn records_after(&self, seq: u64) -> Result<Vec<Record>, Error> {
        let sql = "SELECT seq, at, event FROM events WHERE seq > ?1 ORDER BY seq";
        select(&self.db, &self.path, sql, [seq as i64])
    }
}

/// Every event of one run after `seq`, oldest first, read beside the process that appends.
///
/// # Errors
/// As [`State::open`].
pub fn records(home: &Home, run: &RunId, seq: u64) -> Result<Vec<Record>, Error> {
    let path = home.state();
    let db =
        Connection::open_with_flags(&path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(Error::sqlite("open", &path))?;
    db.busy_timeout(Duration::from_secs(20)).map_err(Error::sqlite("open", &path))?;
    let sql = "SELECT seq, at, event FROM events WHERE run = ?1 AND seq > ?2 ORDER BY seq";
    select(&db, &path, sql, params![run.as_str(), i64::try_from(seq).unwrap_or(i64::MAX)])
}

/// How a commit went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Commit {
    /// It is on disk.
    Done,
    /// Another process has appended before; nothing was written.
    Overtaken,
}

/// Number of the newest event.
fn newest(db: &Connection) -> rusqlite::Result<u64> {
    let newest: i64 = db.prepare_cached("SELECT coalesce(max(seq), 0) FROM events")?.query_row([], |row| row.get(0))?;
    Ok(newest as u64)
}

impl Error {
    pub(crate) fn sqlite(doing: &'static str, path: &Path) -> impl FnOnce(rusqlite::Error) -> Error + use<> {
        let path = path.to_owned();
        move |source| Error::State { doing, path, source }
    }
}

/// Version of the log, in SQLite's `user_version`: 1 where the values of jobs are sealed.
const SEALED: i64 = 1;

/// Seals the values that an earlier version wrote as they were; whether there were any. The views are rebuilt then.
fn seal_values(db: &Connection, path: &Path, key: &SecretKey) -> Result<bool, Error> {
    let doing = |doing| Error::sqlite(doing, path);
    let version: i64 = db.pragma_query_value(None, "user_version", |row| row.get(0)).map_err(doing("read"))?;
    if version >= SEALED {
        return Ok(false);
    }
    let mut plain = Vec::new();
    {
        let sql = "SELECT seq, event FROM events WHERE event LIKE '%\"envs\":{\"%'";
        let mut statement = db.prepare(sql).map_err(doing("read"))?;
        let mut rows = statement.query([]).map_err(doing("read"))?;
        while let Some(row) = rows.next().map_err(doing("read"))? {
            plain.push((row.get::<_, i64>(0).map_err(doing("read"))?, row.get::<_, String>(1).map_err(doing("read"))?));
        }
    }
    let mut has_sealed = false;
    for (seq, text) in plain {
        // What cannot be read is reported where the log is replayed.
        let Ok(mut event) = serde_json::from_str(&text) else { continue };
        if key.seal_event(&mut event)? {
            has_sealed = true;
            let changed = db.execute("UPDATE events SET event = ?2 WHERE seq = ?1", params![seq, event.to_string()]);
            changed.map_err(doing("write"))?;
        }
    }
    if has_sealed {
        views::forget(db).map_err(doing("write"))?;
    }
    db.pragma_update(None, "user_version", SEALED).map_err(doing("write"))?;
    Ok(has_sealed)
}

/// WAL with FULL: a commit that was acknowledged survives a power cut.
fn configure(db: &Connection) -> rusqlite::Result<()> {
    db.busy_timeout(Duration::from_secs(20))?;
    db.pragma_update(None, "journal_mode", "wal")?;
    db.pragma_update(None, "synchronous", "full")
}

fn follow(db: &Connection, path: &Path, world: &mut World) -> Result<(), Error> {
    let sql = "SELECT seq, at, event FROM events WHERE seq > ?1 ORDER BY seq";
    for record in select(db, path, sql, [world.last_seq as i64])? {
        world.apply(&record)?;
    }
    Ok(())
}

fn insert(db: &Connection, world: &World, record: &Record) -> rusqlite::Result<()> {
    let event =
        serde_json::to_string(&record.event).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let run = world.run_of(&record.event).map(RunId::as_str);
    let mut statement = db.prepare_cached("INSERT INTO events (seq, at, run, event) VALUES (?1, ?2, ?3, ?4)")?;
    statement.execute(params![record.seq as i64, record.at.0, run, event])?;
    Ok(())
}

fn select(db: &Connection, path: &Path, sql: &str, parameters: impl rusqlite::Params) -> Result<Vec<Record>, Error> {
    let doing = |doing| Error::sqlite(doing, path);
    let mut statement = db.prepare_cached(sql).map_err(doing("read"))?;
    let rows =
        statement.query_map(parameters, |row| Ok((row.get::<_, i64>(0)?, row.get(1)?, row.get::<_, String>(2)?)));
    let mut records = Vec::new();
    for row in rows.map_err(doing("read"))? {
        let (seq, at, text) = row.map_err(doing("read"))?;
        let seq = seq as u64;
        let event =
            serde_json::from_str(&text).map_err(|source| Error::Unreadable { seq, path: path.to_owned(), source })?;
        records.push(Record { seq, at: Timestamp(at), event });
    }
    Ok(records)
}

/// The sweep that an event is about, also by way of a run that is one of its trials.
pub(crate) fn sweep_of<'a>(world: &'a World, event: &'a Event) -> Option<&'a SweepId> {
    match event {
        Event::SweepSubmitted(submitted) => Some(&submitted.sweep),
        Event::SweepStopRequested { sweep, .. } | Event::SweepResumeRequested { sweep, .. } => Some(sweep),
        Event::SweepBudgetAlert { sweep, .. } | Event::SweepEnded { sweep, .. } => Some(sweep),
        Event::Submitted(submitted) => submitted.trial.as_ref().map(|trial| &trial.sweep),
        Event::ResumeRequested { run, .. } => world.runs.get(run)?.trial.as_ref().map(|trial| &trial.sweep),
        _ => None,
    }
}
