//! Queries of the rows, concurrent with the process that appends.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use domain::run::BilledKind;
use domain::{Elapsed, InstanceId, Money, Record, RunId, SweepId, Timestamp};
use plan::money::ledger::LedgerLine;
use plan::{RunOrSweep, World};
use rusqlite::{Connection, OpenFlags, OptionalExtension, Row, params};

use super::{alone, log, rows};
use crate::error::Error;
use crate::home::Home;

/// Reads a home's state while another process, or another thread, appends to it. Results are durable.
#[derive(Debug)]
pub struct StateReader {
    pub(super) db: Mutex<Connection>,
    pub(super) path: PathBuf,
}

/// Which runs to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only those in this state.
    pub state: Option<String>,
    /// Only those whose names begin with this.
    pub name: Option<String>,
    /// Only those that were submitted before this one.
    pub before: Option<RunId>,
    /// Without the trials of sweeps.
    pub no_trials: bool,
    /// Maximum number, newest first.
    pub limit: usize,
}

/// A run in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedRun {
    /// Its name.
    pub run: RunId,
    /// Its state, as one word.
    pub state: String,
    /// When it was submitted.
    pub submitted: Timestamp,
    /// Attempts that were started.
    pub attempts: u64,
    /// Micro-dollars of its final bill.
    pub billed_micro_usd: Option<i64>,
    /// The sweep that it is a trial of.
    pub sweep: Option<SweepId>,
}

impl StateReader {
    /// Opens the state of a home that some process has opened before.
    ///
    /// # Errors
    /// [`Error::State`].
    pub fn open(home: &Home) -> Result<StateReader, Error> {
        let path = home.state();
        let db = alone::open(&path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX);
        let db = db.map_err(Error::sqlite("open", &path))?;
        db.busy_timeout(Duration::from_secs(20)).map_err(Error::sqlite("open", &path))?;
        Ok(StateReader { db: Mutex::new(db), path })
    }

    pub(super) fn ask<T>(&self, ask: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        let db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = db.unchecked_transaction().map_err(Error::sqlite("read", &self.path))?;
        ask(&transaction).map_err(Error::sqlite("read", &self.path))
    }

    /// Every event of one run after `seq`, oldest first, at most so many.
    ///
    /// # Errors
    /// [`Error::State`] or [`Error::Unreadable`].
    pub fn records(&self, run: &RunId, seq: u64, limit: usize) -> Result<Vec<Record>, Error> {
        log::of_run(&self.db.lock().unwrap_or_else(PoisonError::into_inner), &self.path, run, seq, limit)
    }

    /// Every event after `seq`, oldest first, at most so many.
    ///
    /// # Errors
    /// [`Error::State`] or [`Error::Unreadable`].
    pub fn all_records(&self, seq: u64, limit: usize) -> Result<Vec<Record>, Error> {
        log::page(&self.db.lock().unwrap_or_else(PoisonError::into_inner), &self.path, seq, limit)
    }

    /// A run with its sweep, if it is a trial, and their machines and attempts; `None` if there is none of this name.
    ///
    /// # Errors
    /// [`Error::State`].
    pub fn run(&self, run: &RunId) -> Result<Option<World>, Error> {
        self.ask(|db| match rows::work_of_run(db, run)? {
            Some(work) => rows::load(db, &work),
            None => Ok(None),
        })
    }

    /// The state of a run that has ended and is billed; `None` for any other.
    ///
    /// # Errors
    /// [`Error::State`].
    pub fn billed(&self, run: &RunId) -> Result<Option<String>, Error> {
        self.ask(|db| {
            let sql = "SELECT state FROM run_rows WHERE id = ?1 AND is_open = 0 AND cost IS NOT NULL";
            db.prepare_cached(sql)?.query_row([run.as_str()], |row| row.get(0)).optional()
        })
    }

    /// Runs, the newest first, and whether there are more.
    ///
    /// # Errors
    /// [`Error::State`]; [`Error::NoRun`] where the run to begin after is unknown.
    pub fn list(&self, filter: &RunFilter) -> Result<(Vec<ListedRun>, bool), Error> {
        let before = match &filter.before {
            None => i64::MAX,
            Some(run) => {
                let sql = "SELECT ord FROM run_rows WHERE id = ?1";
                let order = self.ask(|db| {
                    let mut statement = db.prepare_cached(sql)?;
                    statement.query_map([run.as_str()], |row| row.get(0))?.next().transpose()
                })?;
                order.ok_or_else(|| Error::NoRun(run.to_string()))?
            }
        };
        let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX).saturating_add(1);
        let listed = |row: &Row<'_>| {
            Ok(ListedRun {
                run: RunId::new(row.get::<_, String>(0)?),
                state: row.get(1)?,
                submitted: Timestamp(row.get(2)?),
                attempts: row.get::<_, i64>(3)?.unsigned_abs(),
                billed_micro_usd: row.get(4)?,
                sweep: row.get::<_, Option<String>>(5)?.map(SweepId::new),
            })
        };
        let columns = "SELECT id, state, submitted, attempts, cost, sweep FROM run_rows";
        let alone = filter.no_trials;
        let mut runs: Vec<ListedRun> = self.ask(|db| match (&filter.name, &filter.state) {
            (Some(name), state) => {
                let sql = format!(
                    "{columns} WHERE id >= ?3 AND id < ?4 AND ord < ?1 AND (?5 IS NULL OR state = ?5)
                        AND (?6 = 0 OR sweep IS NULL) ORDER BY ord DESC LIMIT ?2"
                );
                let parameters = params![before, limit, name, format!("{name}\u{10FFFF}"), state, alone];
                db.prepare_cached(&sql)?.query_map(parameters, listed)?.collect()
            }
            (None, None) => {
                let sql = format!(
                    "{columns} INDEXED BY runs_listed WHERE ord < ?1 AND (?3 = 0 OR sweep IS NULL)
                        ORDER BY ord DESC LIMIT ?2"
                );
                db.prepare_cached(&sql)?.query_map(params![before, limit, alone], listed)?.collect()
            }
            (None, Some(state)) => {
                let sql = format!(
                    "{columns} WHERE state = ?3 AND ord < ?1 AND (?4 = 0 OR sweep IS NULL) ORDER BY ord DESC LIMIT ?2"
                );
                db.prepare_cached(&sql)?.query_map(params![before, limit, state, alone], listed)?.collect()
            }
        })?;
        let has_more = runs.len() > filter.limit;
        runs.truncate(filter.limit);
        Ok((runs, has_more))
    }

    /// Every line of every final bill, and adjustments to providers' bills.
    ///
    /// # Errors
    /// [`Error::State`].
    pub fn costs(&self) -> Result<Vec<LedgerLine>, Error> {
        let read = |row: &Row<'_>| {
            Ok(LedgerLine {
                run: RunId::new(row.get::<_, String>(0)?),
                instance: InstanceId::new(row.get::<_, String>(1)?),
                provider: row.get(2)?,
                user: row.get(3)?,
                project: row.get(4)?,
                started: Timestamp(row.get(5)?),
                elapsed: Elapsed(row.get::<_, i64>(6)?.unsigned_abs()),
                amount: Money::from_micros(row.get(7)?),
                race: row.get(8)?,
                adjusts: row.get::<_, Option<String>>(9)?.as_deref().and_then(BilledKind::of_word),
                is_final: true,
            })
        };
        self.ask(|db| {
            let sql =
                "SELECT run, instance, provider, user, project, started, elapsed, micros, race, adjusts FROM cost_rows";
            db.prepare_cached(sql)?.query_map([], read)?.collect()
        })
    }

    /// How many runs are in each state.
    ///
    /// # Errors
    /// [`Error::State`].
    pub fn count_by_state(&self) -> Result<Vec<(String, u64)>, Error> {
        self.ask(|db| {
            let mut statement = db.prepare_cached("SELECT state, count(*) FROM run_rows GROUP BY state")?;
            statement.query_map([], |row| Ok((row.get(0)?, row.get::<_, i64>(1)?.unsigned_abs())))?.collect()
        })
    }
}

/// The candidates for a name: an exact match, runs or sweeps that begin with it, or the newest for `last`.
pub(super) fn named(db: &Connection, name: &str) -> rusqlite::Result<Vec<RunOrSweep>> {
    if name == "last" {
        // The newest run may be a trial of a sweep that is older than another run.
        let mut works = newest(db, 1)?;
        let sql = "SELECT id FROM run_rows INDEXED BY runs_listed WHERE sweep IS NULL ORDER BY ord DESC LIMIT 1";
        let alone: Option<String> = db.prepare_cached(sql)?.query_row([], |row| row.get(0)).optional()?;
        works.extend(alone.map(|id| RunOrSweep::Run(RunId::new(id))));
        return Ok(works);
    }
    // The exact name sorts first; a second candidate already makes it ambiguous.
    let (from, to) = (name, format!("{name}\u{10FFFF}"));
    let sql = |table: &str| format!("SELECT id FROM {table} WHERE id >= ?1 AND id < ?2 ORDER BY id LIMIT 20");
    let mut ids = db.prepare_cached(&sql("sweep_rows"))?;
    let sweeps = ids.query_map(params![from, to], |row| row.get::<_, String>(0))?;
    let mut works: Vec<RunOrSweep> =
        sweeps.map(|id| Ok(RunOrSweep::Sweep(SweepId::new(id?)))).collect::<rusqlite::Result<_>>()?;
    let mut ids = db.prepare_cached(&sql("run_rows"))?;
    for id in ids.query_map(params![from, to], |row| row.get::<_, String>(0))? {
        works.push(RunOrSweep::Run(RunId::new(id?)));
    }
    Ok(works)
}

/// The newest runs and sweeps, at most so many of each.
pub(super) fn newest(db: &Connection, limit: usize) -> rusqlite::Result<Vec<RunOrSweep>> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let mut statement =
        db.prepare_cached("SELECT id FROM run_rows INDEXED BY runs_listed ORDER BY ord DESC LIMIT ?1")?;
    let runs: Vec<String> = statement.query_map([limit], |row| row.get(0))?.collect::<Result<_, _>>()?;
    // A sweep whose first trial has not started has no run yet.
    let mut statement = db.prepare_cached("SELECT id FROM sweep_rows ORDER BY ord DESC LIMIT ?1")?;
    let sweeps: Vec<String> = statement.query_map([limit], |row| row.get(0))?.collect::<Result<_, _>>()?;
    let mut works: Vec<RunOrSweep> = runs.into_iter().map(|id| RunOrSweep::Run(RunId::new(id))).collect();
    works.extend(sweeps.into_iter().map(|id| RunOrSweep::Sweep(SweepId::new(id))));
    Ok(works)
}

/// How many runs there are, where they are not more than `most`. SQLite counts by reading a whole index.
pub(super) fn count(db: &Connection, most: u64) -> rusqlite::Result<u64> {
    let most = i64::try_from(most).unwrap_or(i64::MAX);
    let sql = "SELECT count(*) FROM (SELECT 1 FROM run_rows INDEXED BY runs_listed LIMIT ?1)";
    let counted: i64 = db.prepare_cached(sql)?.query_row([most], |row| row.get(0))?;
    Ok(counted.unsigned_abs())
}

/// The newest runs of a job, by its hash.
pub(super) fn of_job(db: &Connection, job_hash: &str) -> rusqlite::Result<Vec<RunOrSweep>> {
    let mut statement = db.prepare_cached("SELECT id FROM run_rows WHERE job_hash = ?1 ORDER BY ord DESC LIMIT 100")?;
    let ids = statement.query_map([job_hash], |row| row.get::<_, String>(0))?;
    ids.map(|id| Ok(RunOrSweep::Run(RunId::new(id?)))).collect()
}
