//! The events as they are on disk.

use std::path::Path;

use domain::{Record, RunId, SweepId, Timestamp};
use plan::World;
use rusqlite::{Connection, params};

use super::rows;
use crate::error::Error;
use crate::secrets::SecretKey;

/// Events of some run or of none, in order. `run` is empty for events of sweeps.
const CREATE: &str = "CREATE TABLE IF NOT EXISTS events
    (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, run TEXT, event TEXT NOT NULL) STRICT";

/// Makes the table on first use.
pub fn create(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(CREATE)
}

/// Number of the newest event.
pub fn newest(db: &Connection) -> rusqlite::Result<u64> {
    let newest: i64 = db.prepare_cached("SELECT coalesce(max(seq), 0) FROM events")?.query_row([], |row| row.get(0))?;
    Ok(newest as u64)
}

/// Events after `seq`, oldest first, at most so many.
pub fn page(db: &Connection, path: &Path, seq: u64, limit: usize) -> Result<Vec<Record>, Error> {
    let sql = "SELECT seq, at, event FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?2";
    select(db, path, sql, params![i64::try_from(seq).unwrap_or(i64::MAX), i64::try_from(limit).unwrap_or(i64::MAX)])
}

/// Events of one run after `seq`, oldest first, at most so many.
pub fn of_run(db: &Connection, path: &Path, run: &RunId, seq: u64, limit: usize) -> Result<Vec<Record>, Error> {
    let sql = "SELECT seq, at, event FROM events WHERE run = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3";
    let (seq, limit) = (i64::try_from(seq).unwrap_or(i64::MAX), i64::try_from(limit).unwrap_or(i64::MAX));
    select(db, path, sql, params![run.as_str(), seq, limit])
}

/// Events of the trials of a sweep and of all sweeps after `seq`, oldest first, at most so many. Read in the order of the log,
/// and each run looked up by its name, because who follows a sweep of thousands of trials asks again and again for the few
/// events that are new.
pub fn of_trials(db: &Connection, path: &Path, sweep: &SweepId, seq: u64, limit: usize) -> Result<Vec<Record>, Error> {
    let sql = "SELECT seq, at, event FROM events WHERE seq > ?1
        AND (+run IS NULL OR EXISTS (SELECT 1 FROM run_rows WHERE id = events.run AND sweep = ?2)) ORDER BY seq LIMIT ?3";
    let (seq, limit) = (i64::try_from(seq).unwrap_or(i64::MAX), i64::try_from(limit).unwrap_or(i64::MAX));
    select(db, path, sql, params![seq, sweep.as_str(), limit])
}

/// Writes an event that was applied to this world.
pub fn insert(db: &Connection, world: &World, record: &Record) -> rusqlite::Result<()> {
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

/// Version of the log, in SQLite's `user_version`: 1 where the values of jobs are sealed.
const SEALED: i64 = 1;

/// Whether all values are sealed.
pub fn is_sealed(db: &Connection) -> bool {
    db.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).is_ok_and(|version| version >= SEALED)
}

/// Seals the values that an earlier version wrote as they were; whether there were any. The rows are made
/// again then.
pub fn seal_values(db: &Connection, path: &Path, key: &SecretKey) -> Result<bool, Error> {
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
        rows::clear(db).and_then(|()| rows::forget_old(db)).map_err(doing("write"))?;
    }
    db.pragma_update(None, "user_version", SEALED).map_err(doing("write"))?;
    Ok(has_sealed)
}
