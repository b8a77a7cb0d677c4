//! Measurements: steps, evaluations, checkpoints and notes of every run, in a separate database.
//!
//! They are not events: they do not influence decisions, and losing the newest second of them loses no work. A point is
//! stored once, however often an agent repeats it.

mod newest;
mod totals;

use std::path::PathBuf;

pub use newest::newest_step;
pub use totals::{goodput_json, goodput_of_json};

use control::OperationNote;
use domain::rank::{Pause, Report};
use domain::series::Point;
use domain::wire::{AgentEvent, Entry};
use domain::{AttemptId, InstanceId, RunId, Timestamp};
use rusqlite::{Connection, OpenFlags, Params, params};

use crate::error::Error;
use crate::home::Home;
use crate::state::{alone, sqlite};
use newest::NewestSteps;

/// The measurements of a home.
#[derive(Debug)]
pub struct Series {
    db: Connection,
    path: PathBuf,
}

/// Points of a run, oldest first.
#[derive(Debug, Clone, PartialEq)]
pub struct PointPage {
    /// Each with its number; one that this version cannot read is passed over.
    pub points: Vec<(u64, Point)>,
    /// The number after which to continue.
    pub next: u64,
    /// Whether there are later ones.
    pub has_more: bool,
}

/// The step of a report.
pub fn step_of(report: &Report) -> Option<u64> {
    match report {
        Report::Step(step) => Some(step.step),
        Report::Exported(exported) => Some(exported.steps),
        Report::Ready(ready) => Some(ready.step),
        Report::Evaluated(evaluated) => Some(evaluated.step),
        Report::Metrics(metrics) | Report::Result(metrics) => Some(metrics.step),
        Report::Checkpointed(checkpointed) => Some(checkpointed.step),
        Report::Stopped { step } => Some(*step),
        Report::Hello { .. } | Report::Preparing { .. } | Report::Note { .. } | Report::Trained | Report::Failed(_) => {
            None
        }
        Report::Devices { .. } | Report::Pausing { .. } => None,
    }
}

/// Measurements in which the newest use of GPUs and the last save are looked for: more than the fastest steps add between two
/// of them.
const DEVICES_WITHIN: u64 = 20_000;

/// Takes the newest of some points, where `?2` is the machine whose numbers tell the order of its reports.
const NEWEST_FIRST: &str =
    "ORDER BY length(attempt) DESC, attempt DESC, (instance = ?2) * seq DESC, number DESC LIMIT 1";

impl Series {
    /// Opens the measurements of a home, made on first use.
    ///
    /// # Errors
    /// [`Error::State`] when the database cannot be used.
    pub fn open(home: &Home) -> Result<Series, Error> {
        let path = home.series();
        let doing = |doing| Error::sqlite(doing, &path);
        let db = alone::open(&path, OpenFlags::default()).map_err(doing("open"))?;
        let set_up = || -> rusqlite::Result<()> {
            sqlite::configure(&db, "normal")?;
            db.execute_batch(
                "CREATE TABLE IF NOT EXISTS points (number INTEGER PRIMARY KEY, instance TEXT NOT NULL, seq INTEGER NOT NULL,
                    run TEXT NOT NULL, attempt TEXT NOT NULL, at INTEGER NOT NULL, report TEXT NOT NULL) STRICT;
                 CREATE UNIQUE INDEX IF NOT EXISTS points_once ON points (instance, seq);
                 CREATE INDEX IF NOT EXISTS points_by_run ON points (run, number);
                 CREATE INDEX IF NOT EXISTS points_ready ON points (run, number)
                    WHERE substr(report, 1, 17) = '{\"report\":\"ready\"';
                 CREATE TABLE IF NOT EXISTS operations (number INTEGER PRIMARY KEY, at INTEGER NOT NULL, subject TEXT NOT NULL,
                    text TEXT NOT NULL, is_mistake INTEGER NOT NULL) STRICT;",
            )?;
            newest::create(&db)?;
            totals::create(&db)
        };
        set_up().map_err(doing("open"))?;
        Ok(Series { db, path })
    }

    /// Opens the measurements for a server, as [`State::open_for_server`](crate::State::open_for_server) does the log.
    ///
    /// # Errors
    /// As [`Series::open`].
    pub fn open_for_server(home: &Home, lacked: &mut Option<String>) -> Result<Series, Error> {
        alone::opened(home, &home.series(), lacked, || Series::open(home))
    }

    /// Stores the measurements among an agent's entries.
    ///
    /// # Errors
    /// [`Error::State`] on a database error.
    pub fn keep(&mut self, at: Timestamp, run: &RunId, instance: &InstanceId, entries: &[Entry]) -> Result<(), Error> {
        let path = self.path.clone();
        let mut insert = || -> rusqlite::Result<()> {
            let transaction = self.db.transaction()?;
            let mut newest = NewestSteps::default();
            for entry in entries {
                let AgentEvent::Reported { rank, report } = &entry.event else { continue };
                // Those of other machines than rank 0's are only compared with its own.
                if *rank > 0 && matches!(report, Report::Step(_)) {
                    continue;
                }
                newest.take(&transaction, instance, entry)?;
                let text = serde_json::to_string(report)
                    .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
                let sql = "INSERT OR IGNORE INTO points (instance, seq, run, attempt, at, report) VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
                let mut statement = transaction.prepare_cached(sql)?;
                let attempt = entry.attempt.as_str();
                let row = params![instance.as_str(), entry.seq as i64, run.as_str(), attempt, at.0, text];
                let is_new = statement.execute(row)? > 0;
                if let (true, Report::Step(step)) = (is_new, report) {
                    totals::add(&transaction, run, &entry.attempt, (step, at))?;
                }
                if let Report::Pausing { pause: Pause::Sending { us } } = report {
                    let ended = Timestamp(at.0.saturating_sub(i64::try_from(*us).unwrap_or(i64::MAX)));
                    totals::end_output(&transaction, run, &entry.attempt, ended)?;
                }
            }
            newest.write(&transaction, run)?;
            transaction.commit()
        };
        insert().map_err(Error::sqlite("write", &path))
    }

    /// Writes a note into the operations log.
    ///
    /// # Errors
    /// [`Error::State`] when the disk refuses.
    pub fn note(&self, at: Timestamp, note: &OperationNote) -> Result<(), Error> {
        let sql = "INSERT INTO operations (at, subject, text, is_mistake) VALUES (?1, ?2, ?3, ?4)";
        let written = self.db.execute(sql, params![at.0, note.subject, note.text, note.is_mistake]);
        written.map(|_| ()).map_err(Error::sqlite("write", &self.path))
    }

    /// The operations log, oldest first.
    ///
    /// # Errors
    /// [`Error::State`] when the database cannot be read.
    pub fn operations(&self) -> Result<Vec<(Timestamp, OperationNote)>, Error> {
        let rows = || -> rusqlite::Result<Vec<(Timestamp, OperationNote)>> {
            let mut statement =
                self.db.prepare_cached("SELECT at, subject, text, is_mistake FROM operations ORDER BY number")?;
            let rows = statement.query_map([], |row| {
                let note = OperationNote { subject: row.get(1)?, text: row.get(2)?, is_mistake: row.get(3)? };
                Ok((Timestamp(row.get(0)?), note))
            })?;
            rows.collect()
        };
        rows().map_err(Error::sqlite("read", &self.path))
    }

    /// The points of a run after point `after`, oldest first, each with its number; a point that this version cannot
    /// read is passed over.
    ///
    /// # Errors
    /// [`Error::State`] when the database cannot be read.
    pub fn points(&self, run: &RunId, after: u64) -> Result<Vec<(u64, Point)>, Error> {
        let sql = "SELECT number, attempt, at, report FROM points WHERE run = ?1 AND number > ?2 ORDER BY number";
        self.select(sql, run, after)
    }

    /// At most so many points of a run after point `after`, oldest first. A run may have more than fit into memory.
    ///
    /// # Errors
    /// [`Error::State`] when the database cannot be read.
    pub fn page(&self, run: &RunId, after: u64, limit: usize) -> Result<PointPage, Error> {
        let sql =
            "SELECT number, attempt, at, report FROM points WHERE run = ?1 AND number > ?2 ORDER BY number LIMIT ?3";
        let most = i64::try_from(limit).unwrap_or(i64::MAX).saturating_add(1);
        let mut rows = self.rows(sql, params![run.as_str(), i64::try_from(after).unwrap_or(i64::MAX), most])?;
        // One more is asked for, by which it is known whether there are more.
        let has_more = rows.len() > limit;
        if has_more {
            rows.pop();
        }
        let next = rows.last().map_or(after, |(number, ..)| *number as u64);
        Ok(PointPage { points: readable(rows), next, has_more })
    }

    /// What the GPUs of a run's machine did last; none where that is not among the newest measurements. Fast steps push it
    /// out of the few that are read for everything else.
    ///
    /// # Errors
    /// [`Error::State`] when the database cannot be read.
    pub fn newest_devices(&self, run: &RunId) -> Result<Option<(u64, Point)>, Error> {
        self.newest_of(run, "devices")
    }

    /// The newest report of a kind, if it is not too old.
    fn newest_of(&self, run: &RunId, kind: &str) -> Result<Option<(u64, Point)>, Error> {
        let sql = format!(
            "SELECT number, attempt, at, report FROM
            (SELECT * FROM points WHERE run = ?1 ORDER BY number DESC LIMIT {DEVICES_WITHIN})
            WHERE report LIKE '{{\"report\":\"{kind}\"%' {NEWEST_FIRST}"
        );
        self.newest_found(run, &sql)
    }

    /// Where training of a run's newest attempt that was ready began, however long ago.
    ///
    /// # Errors
    /// [`Error::State`] when the database cannot be read.
    pub fn newest_ready(&self, run: &RunId) -> Result<Option<(u64, Point)>, Error> {
        let sql = format!(
            "SELECT number, attempt, at, report FROM points
            WHERE run = ?1 AND substr(report, 1, 17) = '{{\"report\":\"ready\"' {NEWEST_FIRST}"
        );
        self.newest_found(run, &sql)
    }

    /// The point that a query for a run finds, which ends with [`NEWEST_FIRST`].
    fn newest_found(&self, run: &RunId, sql: &str) -> Result<Option<(u64, Point)>, Error> {
        let machine = newest::machine_of_run(&self.db, run).map_err(Error::sqlite("read", &self.path))?;
        let machine = machine.as_ref().map_or("", InstanceId::as_str);
        Ok(readable(self.rows(sql, params![run.as_str(), machine])?).pop())
    }

    /// The newest points of a run, oldest first, at most `most`, and before them where training began, what its GPUs
    /// did last, and its last save.
    ///
    /// # Errors
    /// [`Error::State`] when the database cannot be read.
    pub fn newest_with_devices(&self, run: &RunId, most: u64) -> Result<Vec<(u64, Point)>, Error> {
        let (mut before, mut points) = (Vec::new(), self.newest(run, most)?);
        let attempt = points.last().map(|(_, point)| point.attempt.clone());
        let has_devices = points.iter().any(|(_, point)| matches!(point.report, Report::Devices { .. }));
        let has_save = points.iter().any(|(_, point)| matches!(point.report, Report::Checkpointed(_)));
        let has_ready = points.iter().any(|(_, point)| matches!(point.report, Report::Ready(_)));
        // What an earlier attempt's machine did is over.
        let is_current = |(_, point): &(u64, Point)| Some(&point.attempt) == attempt.as_ref();
        if !has_ready {
            before.extend(self.newest_ready(run)?.filter(is_current));
        }
        for (kind, is_there) in [("devices", has_devices), ("checkpointed", has_save)] {
            if !is_there {
                before.extend(self.newest_of(run, kind)?.filter(is_current));
            }
        }
        before.sort_by_key(|(number, _)| *number);
        before.append(&mut points);
        Ok(before)
    }

    fn select(&self, sql: &str, run: &RunId, number: u64) -> Result<Vec<(u64, Point)>, Error> {
        let rows = self.rows(sql, params![run.as_str(), i64::try_from(number).unwrap_or(i64::MAX)])?;
        Ok(readable(rows))
    }

    fn rows(&self, sql: &str, parameters: impl Params) -> Result<Vec<PointRow>, Error> {
        let rows = || -> rusqlite::Result<Vec<PointRow>> {
            let mut statement = self.db.prepare_cached(sql)?;
            let rows =
                statement.query_map(parameters, |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?)))?;
            rows.collect()
        };
        rows().map_err(Error::sqlite("read", &self.path))
    }
}

/// A point as it is stored: its number, its attempt, when it arrived, and the report.
type PointRow = (i64, String, i64, String);

/// The points among these that this version can read.
fn readable(rows: Vec<PointRow>) -> Vec<(u64, Point)> {
    let point = |(number, attempt, at, text): PointRow| {
        let report = serde_json::from_str(&text).ok()?;
        Some((number as u64, Point { at: Timestamp(at), attempt: AttemptId::new(attempt), report }))
    };
    rows.into_iter().filter_map(point).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_read_page_by_page_past_those_that_cannot_be_read() {
        let folder = tempfile::tempdir().unwrap();
        let mut series = Series::open(&Home::open(folder.path()).unwrap()).unwrap();
        let (run, attempt) = (RunId::new("r"), AttemptId::new("r-a1"));
        let entries: Vec<Entry> = (1..=5)
            .map(|seq| {
                let event = AgentEvent::Reported { rank: 0, report: Report::Note { text: seq.to_string() } };
                Entry { seq, attempt: attempt.clone(), event }
            })
            .collect();
        series.keep(Timestamp(1), &run, &InstanceId::new("r-i1"), &entries).unwrap();
        series.db.execute("UPDATE points SET report = 'of a later version' WHERE seq IN (3, 4)", []).unwrap();
        let page = |after: u64| {
            let PointPage { points, next, has_more } = series.page(&run, after, 2).unwrap();
            (points.into_iter().map(|(number, _)| number).collect::<Vec<u64>>(), next, has_more)
        };
        assert_eq!(page(0), (vec![1, 2], 2, true));
        assert_eq!(page(2), (vec![], 4, true));
        assert_eq!(page(4), (vec![5], 5, false));
        assert_eq!(page(5), (vec![], 5, false));
    }
}
