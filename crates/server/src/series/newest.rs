//! The newest step of each attempt, noted as measurements are stored, and the newest measurements of a run.
//!
//! Measurements are not always stored in the order in which they were made: those that an agent has left are read when it
//! is gone, while older ones may still be on their way. An agent numbers its reports, so these numbers tell the order.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;

use domain::rank::Report;
use domain::series::Point;
use domain::wire::{AgentEvent, Entry};
use domain::{AttemptId, InstanceId, RunId};
use rusqlite::{Connection, OptionalExtension, Params, Row, params};

use super::{PointRow, Series, readable, step_of};
use crate::error::Error;

/// Measurements in which the newest step of a run is looked for that an earlier version has kept.
const NEWEST: u64 = 8;

/// The newest step in the measurements of a run: the greatest one of its newest attempt that has any.
///
/// # Errors
/// [`Error::State`] if the database cannot be read.
pub fn newest_step(series: &Series, run: &RunId) -> Result<Option<u64>, Error> {
    if let Some(newest) = of_run(&series.db, run).map_err(Error::sqlite("read", &series.path))? {
        return Ok(Some(newest.step));
    }
    Ok(series.newest(run, NEWEST)?.iter().filter_map(|(_, point)| step_of(&point.report)).max())
}

/// Makes the table. What an earlier version has kept is not in it.
pub(super) fn create(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(
        "CREATE TABLE IF NOT EXISTS newest_steps (attempt TEXT PRIMARY KEY, run TEXT NOT NULL, step INTEGER NOT NULL,
            instance TEXT NOT NULL, seq INTEGER NOT NULL, since INTEGER NOT NULL) STRICT;
         CREATE INDEX IF NOT EXISTS newest_steps_by_run ON newest_steps (run);",
    )
}

/// The newest step of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
struct NewestStep {
    step: u64,
    /// Who has reported it, and under which number.
    instance: InstanceId,
    seq: u64,
    /// The number of the newest report that says where training is. Reports before it are ignored: training may have
    /// returned to an earlier step since.
    since: u64,
}

impl NewestStep {
    /// The newest step after another report of the attempt is taken in.
    fn with(self, found: NewestStep, is_lagging: bool) -> NewestStep {
        if self.instance != found.instance {
            // Their numbers have no common order.
            return if found.step > self.step { found } else { self };
        }
        if found.seq <= self.since {
            return self;
        }
        let since = if is_lagging { self.since } else { found.seq };
        let has_moved = !is_lagging && found.seq > self.seq;
        if has_moved || found.step > self.step { NewestStep { since, ..found } } else { NewestStep { since, ..self } }
    }

    fn from_row(row: &Row<'_>) -> rusqlite::Result<NewestStep> {
        let number = |column| row.get::<_, i64>(column).map(|number| number.max(0) as u64);
        let instance = InstanceId::new(row.get::<_, String>(1)?);
        Ok(NewestStep { step: number(0)?, instance, seq: number(2)?, since: number(3)? })
    }
}

/// Whether a report may name a step that training has already passed. The others say where training is, also after it has
/// returned to an earlier step, because a program was started again or a loss was not finite.
fn is_lagging(report: &Report) -> bool {
    match report {
        Report::Step(_) | Report::Ready(_) => false,
        // With a loss that is not finite they stand for a step; other figures may come from a file that is read later.
        Report::Metrics(metrics) => metrics.loss.is_none(),
        Report::Checkpointed(_) | Report::Evaluated(_) | Report::Exported(_) | Report::Result(_) => true,
        Report::Stopped { .. } | Report::Hello { .. } | Report::Preparing { .. } | Report::Note { .. } => true,
        Report::Trained | Report::Failed(_) | Report::Devices { .. } | Report::Pausing { .. } => true,
    }
}

/// The newest steps of attempts whose measurements are being stored.
#[derive(Debug, Default)]
pub(super) struct NewestSteps<'a>(BTreeMap<&'a AttemptId, Option<NewestStep>>);

impl<'a> NewestSteps<'a> {
    /// Takes in an entry.
    pub fn take(&mut self, db: &Connection, instance: &InstanceId, entry: &'a Entry) -> rusqlite::Result<()> {
        let AgentEvent::Reported { rank: 0, report } = &entry.event else { return Ok(()) };
        let Some(step) = step_of(report) else { return Ok(()) };
        let is_lagging = is_lagging(report);
        let since = if is_lagging { 0 } else { entry.seq };
        let found = NewestStep { step, instance: instance.clone(), seq: entry.seq, since };
        let known = match self.0.entry(&entry.attempt) {
            Slot::Occupied(known) => known.into_mut(),
            Slot::Vacant(unknown) => unknown.insert(of_attempt(db, &entry.attempt)?),
        };
        *known = Some(match known.take() {
            Some(known) => known.with(found, is_lagging),
            None => found,
        });
        Ok(())
    }

    /// Writes them.
    pub fn write(&self, db: &Connection, run: &RunId) -> rusqlite::Result<()> {
        let sql = "INSERT OR REPLACE INTO newest_steps VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        for (attempt, newest) in &self.0 {
            let Some(NewestStep { step, instance, seq, since }) = newest else { continue };
            let [step, seq, since] = [*step, *seq, *since].map(|number| i64::try_from(number).unwrap_or(i64::MAX));
            let row = params![attempt.as_str(), run.as_str(), step, instance.as_str(), seq, since];
            db.prepare_cached(sql)?.execute(row)?;
        }
        Ok(())
    }
}

fn of_attempt(db: &Connection, attempt: &AttemptId) -> rusqlite::Result<Option<NewestStep>> {
    let sql = "SELECT step, instance, seq, since FROM newest_steps WHERE attempt = ?1";
    db.prepare_cached(sql)?.query_row(params![attempt.as_str()], NewestStep::from_row).optional()
}

/// The machine whose reports have the steps of an attempt.
pub(super) fn machine_of(db: &Connection, attempt: &AttemptId) -> rusqlite::Result<Option<InstanceId>> {
    Ok(of_attempt(db, attempt)?.map(|newest| newest.instance))
}

/// The newest step of a run's newest attempt that has any: the names of attempts end with their numbers.
fn of_run(db: &Connection, run: &RunId) -> rusqlite::Result<Option<NewestStep>> {
    let sql = "SELECT step, instance, seq, since FROM newest_steps WHERE run = ?1
        ORDER BY length(attempt) DESC, attempt DESC LIMIT 1";
    db.prepare_cached(sql)?.query_row(params![run.as_str()], NewestStep::from_row).optional()
}

/// The machine whose reports have the newest step of a run.
pub(super) fn machine_of_run(db: &Connection, run: &RunId) -> rusqlite::Result<Option<InstanceId>> {
    Ok(of_run(db, run)?.map(|newest| newest.instance))
}

/// A point as it is stored, who has reported it, and under which number.
type PlacedRow = (PointRow, String, u64);

fn placed(db: &Connection, sql: &str, parameters: impl Params) -> rusqlite::Result<Vec<PlacedRow>> {
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map(parameters, |row| {
        let point = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
        Ok((point, row.get(4)?, row.get::<_, i64>(5)?.max(0) as u64))
    })?;
    rows.collect()
}

impl Series {
    /// The newest points of a run, oldest first, at most `most`.
    ///
    /// # Errors
    /// [`Error::State`] when the database cannot be read.
    pub fn newest(&self, run: &RunId, most: u64) -> Result<Vec<(u64, Point)>, Error> {
        let most = i64::try_from(most).unwrap_or(i64::MAX);
        let rows = self.newest_rows(run, most).map_err(Error::sqlite("read", &self.path))?;
        Ok(readable(rows.into_iter().map(|(point, ..)| point).collect()))
    }

    /// The number of the point of a run that was stored last; 0 without any.
    ///
    /// # Errors
    /// [`Error::State`] when the database cannot be read.
    pub fn last_number(&self, run: &RunId) -> Result<u64, Error> {
        let sql = "SELECT max(number) FROM points WHERE run = ?1";
        let last = || -> rusqlite::Result<Option<i64>> {
            self.db.prepare_cached(sql)?.query_row(params![run.as_str()], |row| row.get(0))
        };
        Ok(last().map_err(Error::sqlite("read", &self.path))?.map_or(0, |number| number.max(0) as u64))
    }

    fn newest_rows(&self, run: &RunId, most: i64) -> rusqlite::Result<Vec<PlacedRow>> {
        let sql = "SELECT number, attempt, at, report, instance, seq FROM points WHERE run = ?1
            ORDER BY number DESC LIMIT ?2";
        let mut rows = placed(&self.db, sql, params![run.as_str(), most])?;
        rows.reverse();
        let Some(newest) = of_run(&self.db, run)? else { return Ok(rows) };
        let is_of_newest = |instance: &str| instance == newest.instance.as_str();
        let of_newest = rows.iter().filter(|(_, instance, _)| is_of_newest(instance));
        let numbers: Vec<u64> = of_newest.map(|(.., seq)| *seq).collect();
        let has_order_of_attempts = rows.is_sorted_by_key(|((_, attempt, ..), ..)| (attempt.len(), attempt));
        // Without any of the newest, only what an older attempt has left was stored since.
        let has_order_of_numbers = numbers.is_sorted() && numbers.last().is_some_and(|last| *last >= newest.seq);
        if has_order_of_attempts && has_order_of_numbers {
            return Ok(rows);
        }
        // `+` keeps the index of runs from being used, which would sort all that the run has.
        let sql = "SELECT number, attempt, at, report, instance, seq FROM points WHERE instance = ?2 AND +run = ?1
            ORDER BY seq DESC LIMIT ?3";
        rows.retain(|(_, instance, _)| !is_of_newest(instance));
        rows.extend(placed(&self.db, sql, params![run.as_str(), newest.instance.as_str(), most])?);
        rows.sort_by_cached_key(|((_, attempt, ..), instance, seq)| {
            (attempt.len(), attempt.clone(), is_of_newest(instance), *seq)
        });
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        Ok(rows.split_off(rows.len().saturating_sub(most)))
    }
}

#[cfg(test)]
mod tests {
    use domain::Timestamp;
    use domain::rank::{Checkpointed, Fetching, Metrics, NotFinite, Step};

    use super::*;
    use crate::home::Home;

    fn reported(seq: u64, attempt: &str, report: Report) -> Entry {
        Entry { seq, attempt: AttemptId::new(attempt), event: AgentEvent::Reported { rank: 0, report } }
    }

    fn step(seq: u64, attempt: &str, number: u64) -> Entry {
        let (epoch, loss, lr, samples, step_us, data_wait_us, checkpoint_us) = (0, 1.0, 0.1, 64, 100, 10, 1);
        let data = Fetching::default();
        let step = Step { step: number, epoch, loss, lr, samples, step_us, data_wait_us, checkpoint_us, data };
        reported(seq, attempt, Report::Step(step))
    }

    fn saved(seq: u64, attempt: &str, step: u64) -> Entry {
        reported(seq, attempt, Report::Checkpointed(Checkpointed { step, bytes: 1, stall_us: 1, commit_us: 1 }))
    }

    /// What is stored of parts that arrive one after the other, each from the machine of its attempt.
    fn stored(folder: &tempfile::TempDir, parts: &[(&str, Vec<Entry>)]) -> Series {
        let mut series = Series::open(&Home::open(folder.path()).unwrap()).unwrap();
        for (instance, entries) in parts {
            series.keep(Timestamp(1), &RunId::new("r"), &InstanceId::new(*instance), entries).unwrap();
        }
        series
    }

    fn steps(points: &[(u64, Point)]) -> Vec<u64> {
        points.iter().filter_map(|(_, point)| step_of(&point.report)).collect()
    }

    #[test]
    fn older_measurements_that_are_stored_late_are_not_the_newest() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunId::new("r");
        let made = |from: u64, to: u64| (from..=to).map(|number| step(number, "r-a1", number)).collect::<Vec<Entry>>();
        // What the agent has left is read while its last call is on its way, of which a copy comes later still.
        let parts = [(1, 3), (900, 1000), (4, 899), (4, 899)].map(|(from, to)| ("r-i1", made(from, to)));
        let series = stored(&folder, &parts);
        assert_eq!(newest_step(&series, &run).unwrap(), Some(1000));
        assert_eq!(steps(&series.newest(&run, 200).unwrap()), (801..=1000).collect::<Vec<u64>>());
        assert_eq!(steps(&series.newest_with_devices(&run, 5).unwrap()), [996, 997, 998, 999, 1000]);
        assert_eq!(series.newest(&run, 5000).unwrap().len(), 1000, "each is stored once");
        assert_eq!(series.last_number(&run).unwrap(), series.points(&run, 0).unwrap().last().unwrap().0);
    }

    #[test]
    fn the_newest_attempt_has_the_newest_step_although_it_is_smaller() {
        let folder = tempfile::tempdir().unwrap();
        let ready = |seq, attempt| reported(seq, attempt, crate::report::curves::tests::ready(50));
        let first = (1..=80).map(|number| step(number, "r-a9", number));
        let (first, late): (Vec<Entry>, Vec<Entry>) = first.partition(|entry| entry.seq <= 60 || entry.seq > 70);
        let parts = [("r-i1", first), ("r-i2", vec![ready(1, "r-a10"), step(2, "r-a10", 51)]), ("r-i1", late)];
        for (count, newest) in [(1, 80), (2, 51), (3, 51)] {
            let series = stored(&folder, &parts[..count]);
            assert_eq!(newest_step(&series, &RunId::new("r")).unwrap(), Some(newest), "after {count} parts");
            let points = series.newest(&RunId::new("r"), 200).unwrap();
            assert_eq!(steps(&points).last(), Some(&newest), "after {count} parts");
        }
    }

    #[test]
    fn what_an_older_attempt_has_left_does_not_hide_the_newest() {
        let folder = tempfile::tempdir().unwrap();
        let run = RunId::new("r");
        let ready = |seq, attempt| reported(seq, attempt, crate::report::curves::tests::ready(50));
        let of_older = |from: u64, to: u64| (from..=to).map(|number| step(number, "r-a9", number));
        let left: Vec<Entry> = std::iter::once(ready(61, "r-a9")).chain(of_older(62, 360)).collect();
        let newest = vec![ready(1, "r-a10"), step(2, "r-a10", 51)];
        let series = stored(&folder, &[("r-i1", of_older(1, 60).collect()), ("r-i2", newest), ("r-i1", left)]);
        assert_eq!(steps(&series.newest(&run, 5).unwrap()), [358, 359, 360, 50, 51]);
        let (_, began) = series.newest_ready(&run).unwrap().unwrap();
        assert_eq!(began.attempt, AttemptId::new("r-a10"));
    }

    #[test]
    fn the_last_save_is_not_the_one_that_was_stored_last() {
        let folder = tempfile::tempdir().unwrap();
        let entry = |seq: u64| match seq {
            400 | 750 => saved(seq, "r-a1", seq),
            _ => step(seq, "r-a1", seq),
        };
        let made = |from: u64, to: u64| (from..=to).map(entry).collect::<Vec<Entry>>();
        let parts = [(1, 3), (700, 1000), (4, 699)].map(|(from, to)| ("r-i1", made(from, to)));
        let newest = stored(&folder, &parts).newest_with_devices(&RunId::new("r"), 200).unwrap();
        let saves = newest.iter().filter(|(_, point)| matches!(point.report, Report::Checkpointed(_)));
        assert_eq!(saves.filter_map(|(_, point)| step_of(&point.report)).collect::<Vec<u64>>(), [750]);
    }

    #[test]
    fn a_program_that_is_started_again_begins_where_it_says() {
        let folder = tempfile::tempdir().unwrap();
        let ready = |seq| reported(seq, "r-a1", crate::report::curves::tests::ready(50));
        let before: Vec<Entry> = (1..=80).map(|number| step(number, "r-a1", number)).collect();
        let parts = [("r-i1", before), ("r-i1", vec![ready(81)]), ("r-i1", vec![step(82, "r-a1", 51)])];
        for (count, newest) in [(1, 80), (2, 50), (3, 51)] {
            let series = stored(&folder, &parts[..count]);
            assert_eq!(newest_step(&series, &RunId::new("r")).unwrap(), Some(newest), "after {count} parts");
        }
    }

    #[test]
    fn a_step_after_a_roll_back_is_the_newest_although_it_is_smaller() {
        let folder = tempfile::tempdir().unwrap();
        let steps = |from: u64, to: u64| (from..=to).map(|number| step(number, "r-a1", number));
        let metrics = |seq, step, loss| {
            let metrics = Metrics { step, loss, ..Metrics::default() };
            reported(seq, "r-a1", Report::Metrics(metrics))
        };
        let late: Vec<Entry> = steps(61, 69).chain([saved(70, "r-a1", 69)]).collect();
        let parts: [(Vec<Entry>, u64); 7] = [
            (steps(1, 60).chain(steps(71, 80)).collect(), 80),
            (vec![step(81, "r-a1", 51)], 51),
            (vec![saved(82, "r-a1", 50), step(83, "r-a1", 52)], 52),
            (late, 52),
            (vec![metrics(84, 40, None)], 52),
            (vec![metrics(85, 53, Some(NotFinite::Nan))], 53),
            (vec![metrics(86, 51, Some(NotFinite::Nan))], 51),
        ];
        for count in 1..=parts.len() {
            let stored_parts: Vec<_> = parts[..count].iter().map(|(part, _)| ("r-i1", part.clone())).collect();
            let (series, newest) = (stored(&folder, &stored_parts), parts[count - 1].1);
            assert_eq!(newest_step(&series, &RunId::new("r")).unwrap(), Some(newest), "after {count} parts");
        }
    }

    #[test]
    fn a_save_that_is_stored_before_its_steps_keeps_its_own() {
        let folder = tempfile::tempdir().unwrap();
        let steps = (1..=60).map(|number| step(number, "r-a1", number)).collect();
        let series = stored(&folder, &[("r-i1", vec![saved(90, "r-a1", 80)]), ("r-i1", steps)]);
        assert_eq!(newest_step(&series, &RunId::new("r")).unwrap(), Some(80));
    }

    #[test]
    fn the_newest_step_of_what_an_earlier_version_has_kept_is_among_its_last() {
        let folder = tempfile::tempdir().unwrap();
        let series = stored(&folder, &[("r-i1", vec![step(1, "r-a1", 1), step(2, "r-a1", 2)])]);
        series.db.execute_batch("DROP TABLE newest_steps").unwrap();
        let series = stored(&folder, &[]);
        assert_eq!(newest_step(&series, &RunId::new("r")).unwrap(), Some(2));
        assert_eq!(newest_step(&series, &RunId::new("other")).unwrap(), None);
    }
}
