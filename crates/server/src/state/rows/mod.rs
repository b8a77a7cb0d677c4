//! Runs, instances, attempts, sweeps, schedules and pipelines as rows: unfinished work is loaded at a start, and the rest on
//! demand. All rows are derived from the log: missing or unreadable ones, or those of another layout, are rebuilt.

mod load;
mod write;

use std::collections::BTreeSet;
use std::path::Path;

use plan::World;
use rusqlite::{CachedStatement, Connection, OptionalExtension};

use super::log;
use crate::error::Error;

pub use load::{load, load_all, load_open, load_trials, pipeline, recall, sweeps, work_of, work_of_run};
pub use write::RowChanges;

/// Number of this layout; rows of another one are thrown away and made again.
const LAYOUT: i64 = 8;

/// Events that are applied between two writes of the rows, while those are made again.
const CHUNK: usize = 5_000;

/// Names differ from those of earlier layouts: a process of an earlier version may still use its own. Large columns
/// come last in each row, so that the others are read without them.
const CREATE: &str = "
    CREATE TABLE IF NOT EXISTS run_rows (id TEXT PRIMARY KEY, ord INTEGER NOT NULL, sweep TEXT, is_open INTEGER NOT NULL,
        state TEXT NOT NULL, submitted INTEGER NOT NULL, attempts INTEGER NOT NULL, cost INTEGER,
        job_hash TEXT NOT NULL, body TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS instance_rows (id TEXT PRIMARY KEY, run TEXT NOT NULL, body TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS attempt_rows (id TEXT PRIMARY KEY, run TEXT NOT NULL, body TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS sweep_rows (id TEXT PRIMARY KEY, ord INTEGER NOT NULL, is_open INTEGER NOT NULL,
        body TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS schedule_rows (id TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS pipeline_rows (id TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS cost_rows (run TEXT NOT NULL, line INTEGER NOT NULL, instance TEXT NOT NULL,
        provider TEXT NOT NULL, user TEXT, project TEXT, started INTEGER NOT NULL, elapsed INTEGER NOT NULL,
        micros INTEGER NOT NULL, race INTEGER NOT NULL, adjusts TEXT, PRIMARY KEY (run, line)) STRICT, WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS row_head (layout INTEGER NOT NULL, seq INTEGER NOT NULL) STRICT;
    CREATE INDEX IF NOT EXISTS runs_listed ON run_rows (ord, id, sweep, is_open, state, submitted, attempts, cost);
    CREATE INDEX IF NOT EXISTS runs_by_state ON run_rows (state, ord);
    CREATE INDEX IF NOT EXISTS runs_open ON run_rows (is_open, sweep, id) WHERE is_open = 1;
    CREATE INDEX IF NOT EXISTS runs_by_sweep ON run_rows (sweep) WHERE sweep IS NOT NULL;
    CREATE INDEX IF NOT EXISTS runs_by_job ON run_rows (job_hash, ord);
    CREATE INDEX IF NOT EXISTS instances_by_run ON instance_rows (run);
    CREATE INDEX IF NOT EXISTS attempts_by_run ON attempt_rows (run);
    CREATE INDEX IF NOT EXISTS events_by_run ON events (run, seq);
";

const CLEAR: &str = "
    DROP TABLE IF EXISTS run_rows; DROP TABLE IF EXISTS instance_rows; DROP TABLE IF EXISTS attempt_rows;
    DROP TABLE IF EXISTS sweep_rows; DROP TABLE IF EXISTS schedule_rows; DROP TABLE IF EXISTS pipeline_rows;
    DROP TABLE IF EXISTS cost_rows; DROP TABLE IF EXISTS row_head;
";

/// Tables of earlier layouts.
const OLD: &str = "
    DROP TABLE IF EXISTS runs; DROP TABLE IF EXISTS instances; DROP TABLE IF EXISTS attempts;
    DROP TABLE IF EXISTS sweeps; DROP TABLE IF EXISTS view;
";

/// The newest event in the rows; `None` if they are missing or of another layout.
pub fn head(db: &Connection) -> rusqlite::Result<Option<u64>> {
    let sql = "SELECT layout, seq FROM row_head";
    let ask = |mut statement: CachedStatement<'_>| {
        statement.query_row([], |row| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?))).optional()
    };
    match db.prepare_cached(sql).and_then(ask) {
        Ok(head) => Ok(head.filter(|(layout, _)| *layout == LAYOUT).map(|(_, seq)| seq as u64)),
        Err(error) if is_unusable(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a query failed because a table is missing or unreadable.
pub fn is_unusable(error: &rusqlite::Error) -> bool {
    let is_unreadable = matches!(error, rusqlite::Error::FromSqlConversionFailure(..));
    is_unreadable || error.sqlite_error().is_some_and(|error| error.extended_code == rusqlite::ffi::SQLITE_ERROR)
}

/// Forgets all rows.
pub fn clear(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(CLEAR)
}

/// Drops tables of earlier versions. Only the process that runs the loop may call this.
pub fn forget_old(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(OLD)
}

/// Brings the rows up to date, from the first event if they are empty. The write lock must be held.
///
/// # Errors
/// [`Error::State`], [`Error::Unreadable`] or [`Error::Illegal`].
pub fn catch_up(db: &Connection, path: &Path) -> Result<(), Error> {
    let (reading, writing) = (|| Error::sqlite("read", path), || Error::sqlite("write", path));
    let head = match head(db).map_err(reading())? {
        Some(head) => head,
        None => {
            clear(db).map_err(writing())?;
            db.execute_batch(CREATE).map_err(writing())?;
            0
        }
    };
    let mut world = World::at(head);
    loop {
        let records = log::page(db, path, world.last_seq, CHUNK)?;
        let mut changes = RowChanges::default();
        for record in &records {
            recall(db, &mut world, &record.event).map_err(reading())?;
            world.apply(record)?;
            changes.note(&world, record);
        }
        changes.write(db, &world).map_err(writing())?;
        world.evict_settled(&BTreeSet::new());
        if records.len() < CHUNK {
            return Ok(());
        }
    }
}
