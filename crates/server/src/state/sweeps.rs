//! Queries of sweeps. A list reads their rows alone; one sweep comes with as many of its trials as are asked for.

use std::sync::PoisonError;

use domain::subject::EventSubject;
use domain::{Record, SweepId};
use plan::{RunOrSweep, SweepRecord, World};
use rusqlite::{Connection, OptionalExtension, params};

use super::{StateReader, log, rows};
use crate::error::Error;

/// Which sweeps to list.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepFilter {
    /// Only those whose names begin with this.
    pub name: Option<String>,
    /// Only those that were submitted before this one.
    pub before: Option<SweepId>,
    /// Maximum number, newest first.
    pub limit: usize,
}

/// Events of a sweep and its trials.
#[derive(Debug, Clone, PartialEq)]
pub struct SweepEvents {
    /// Oldest first.
    pub records: Vec<Record>,
    /// Position in the log up to which these are all, and after which to continue.
    pub next: u64,
    /// Whether the log has later events.
    pub has_more: bool,
}

impl StateReader {
    /// Sweeps without their trials, the newest first, and whether there are more.
    ///
    /// # Errors
    /// [`Error::State`]; [`Error::NoRun`] where the sweep to begin after is unknown.
    pub fn sweeps(&self, filter: &SweepFilter) -> Result<(Vec<(SweepId, SweepRecord)>, bool), Error> {
        let before = match &filter.before {
            None => i64::MAX,
            Some(sweep) => self.ask(|db| order_of(db, sweep))?.ok_or_else(|| Error::NoRun(sweep.to_string()))?,
        };
        let limit = i64::try_from(filter.limit).unwrap_or(i64::MAX).saturating_add(1);
        // Their bodies are large: only those of this page are read.
        let condition = "WHERE id IN (SELECT id FROM sweep_rows WHERE ord < ?1
            AND (?3 IS NULL OR (id >= ?3 AND id < ?4)) ORDER BY ord DESC LIMIT ?2) ORDER BY ord DESC";
        let end = filter.name.as_ref().map(|name| format!("{name}\u{10FFFF}"));
        let mut sweeps = self.ask(|db| rows::sweeps(db, condition, params![before, limit, filter.name, end]))?;
        let has_more = sweeps.len() > filter.limit;
        sweeps.truncate(filter.limit);
        Ok((sweeps, has_more))
    }

    /// A sweep with all of its trials, and their machines and attempts; `None` if there is none of this name.
    ///
    /// # Errors
    /// [`Error::State`].
    pub fn sweep(&self, sweep: &SweepId) -> Result<Option<World>, Error> {
        self.ask(|db| rows::load(db, &RunOrSweep::Sweep(sweep.clone())))
    }

    /// A sweep with `limit` of its trials after the first `after`; `None` if there is none of this name.
    ///
    /// # Errors
    /// [`Error::State`].
    pub fn trials(&self, sweep: &SweepId, after: usize, limit: usize) -> Result<Option<World>, Error> {
        self.ask(|db| rows::load_trials(db, sweep, (after, limit)))
    }

    /// The state of a sweep that has ended; `None` for any other.
    ///
    /// # Errors
    /// [`Error::State`].
    pub fn ended_sweep(&self, sweep: &SweepId) -> Result<Option<String>, Error> {
        let found = self.ask(|db| rows::sweeps(db, "WHERE id = ?1 AND is_open = 0", [sweep.as_str()]))?;
        Ok(found.first().map(|(_, sweep)| sweep.state.word().to_owned()))
    }

    /// Events of a sweep and its trials after `seq`, of at most so many that are looked at.
    ///
    /// # Errors
    /// [`Error::State`] or [`Error::Unreadable`].
    pub fn sweep_records(&self, sweep: &SweepId, seq: u64, limit: usize) -> Result<SweepEvents, Error> {
        let db = self.db.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = db.unchecked_transaction().map_err(Error::sqlite("read", &self.path))?;
        let order = order_of(&transaction, sweep).map_err(Error::sqlite("read", &self.path))?;
        // Nothing of it is older than its submission.
        let first = order.map_or(0, |order| order.unsigned_abs().saturating_sub(1));
        let mut records = log::of_trials(&transaction, &self.path, sweep, seq.max(first), limit)?;
        let has_more = records.len() >= limit;
        let next = match records.last().filter(|_| has_more) {
            Some(last) => last.seq,
            None => seq.max(log::newest(&transaction).map_err(Error::sqlite("read", &self.path))?),
        };
        records.retain(|record| match record.event.subject() {
            EventSubject::Sweep(of) => of == sweep,
            EventSubject::Run(_) | EventSubject::Instance(_) | EventSubject::Attempt(_) => true,
            EventSubject::Schedule(_) | EventSubject::Pipeline(_) => false,
        });
        Ok(SweepEvents { records, next, has_more })
    }
}

/// The number of the event that submitted a sweep. Read without the sweep itself, because each stream asks several times a
/// second.
fn order_of(db: &Connection, sweep: &SweepId) -> rusqlite::Result<Option<i64>> {
    let mut statement = db.prepare_cached("SELECT ord FROM sweep_rows WHERE id = ?1")?;
    statement.query_row([sweep.as_str()], |row| row.get(0)).optional()
}
