//! What the steps of each attempt took, summed as they are kept: where the time of a run went is told without reading
//! all of its steps.

use std::collections::BTreeMap;

use domain::rank::{Report, Step};
use domain::{AttemptId, Record, RunId, Timestamp};
use plan::{Goodput, StepTotals};
use rusqlite::{Connection, params};

use super::Series;
use super::newest::machine_of;
use crate::error::Error;

/// Makes the table, with the sums of what an earlier version has kept.
pub(super) fn create(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(
        "CREATE TABLE IF NOT EXISTS step_begins (attempt TEXT PRIMARY KEY, run TEXT NOT NULL, at INTEGER NOT NULL) STRICT;
         CREATE TABLE IF NOT EXISTS output_ends (attempt TEXT PRIMARY KEY, run TEXT NOT NULL, at INTEGER NOT NULL) STRICT;
         CREATE INDEX IF NOT EXISTS output_ends_by_run ON output_ends (run);",
    )?;
    let exists = "SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = 'step_totals')";
    if db.query_row(exists, [], |row| row.get(0))? {
        return Ok(());
    }
    // Another process may have made it meanwhile: then its insertions have begun, and nothing is left to sum.
    db.execute_batch(
        "BEGIN IMMEDIATE;
         CREATE TABLE IF NOT EXISTS step_totals (attempt TEXT PRIMARY KEY, run TEXT NOT NULL, step_us INTEGER NOT NULL,
            data_wait_us INTEGER NOT NULL, checkpoint_us INTEGER NOT NULL) STRICT;
         CREATE INDEX IF NOT EXISTS step_totals_by_run ON step_totals (run);
         INSERT OR IGNORE INTO step_totals
            SELECT attempt, max(run), sum(json_extract(report, '$.step_us')), sum(json_extract(report, '$.data_wait_us')),
                sum(json_extract(report, '$.checkpoint_us'))
            FROM points WHERE json_valid(report) AND json_extract(report, '$.report') = 'step' GROUP BY attempt;
         COMMIT;",
    )
}

/// Adds a step that is stored for the first time, `at` the time when it arrived.
pub(super) fn add(
    db: &Connection,
    run: &RunId,
    attempt: &AttemptId,
    (step, at): (&Step, Timestamp),
) -> rusqlite::Result<()> {
    let mut first = StepTotals::default();
    first.begin(step, at);
    // Of an attempt that an earlier version has begun to keep, the first step is past.
    let sql = "INSERT OR IGNORE INTO step_begins SELECT ?1, ?2, ?3
        WHERE NOT EXISTS (SELECT 1 FROM step_totals WHERE attempt = ?1)";
    let began = first.began.unwrap_or(at).0;
    db.prepare_cached(sql)?.execute(params![attempt.as_str(), run.as_str(), began])?;
    let sql = "INSERT INTO step_totals VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (attempt) DO UPDATE SET
        step_us = step_us + excluded.step_us, data_wait_us = data_wait_us + excluded.data_wait_us,
        checkpoint_us = checkpoint_us + excluded.checkpoint_us";
    let [all, wait, saving] = [step.step_us, step.data_wait_us, step.checkpoint_us].map(|micros| micros as i64);
    db.prepare_cached(sql)?.execute(params![attempt.as_str(), run.as_str(), all, wait, saving]).map(drop)
}

/// Notes since when an attempt only sends what it has written; the earliest time counts.
pub(super) fn end_output(db: &Connection, run: &RunId, attempt: &AttemptId, at: Timestamp) -> rusqlite::Result<()> {
    let sql = "INSERT INTO output_ends VALUES (?1, ?2, ?3)
        ON CONFLICT (attempt) DO UPDATE SET at = min(output_ends.at, excluded.at)";
    db.prepare_cached(sql)?.execute(params![attempt.as_str(), run.as_str(), at.0]).map(drop)
}

/// Machine-readable goodput: total microseconds and their parts, and the productive share.
pub fn goodput_json(goodput: &Goodput) -> serde_json::Value {
    let parts = goodput.parts().map(|(part, time)| serde_json::json!({ "part": part, "us": time.0 }));
    serde_json::json!({ "wall_us": goodput.wall().0, "productive": goodput.share(), "parts": parts })
}

/// What [`goodput_json`] has written.
pub fn goodput_of_json(value: &serde_json::Value) -> Option<Goodput> {
    let mut goodput = Goodput::default();
    for part in value["parts"].as_array()? {
        let time = domain::Elapsed(part["us"].as_u64()?);
        match part["part"].as_str()? {
            "productive" => goodput.productive = time,
            "start-up" => goodput.start_up = time,
            "waiting for data" => goodput.data_wait = time,
            "checkpoints" => goodput.checkpoint = time,
            "recovery" => goodput.recovery = time,
            "lost work" => goodput.lost = time,
            "waiting for a machine" => goodput.waiting = time,
            _ => return None,
        }
    }
    Some(goodput)
}

impl Series {
    /// How the time of a run was spent until its end, or until `now`. `records` are all events of the run.
    ///
    /// # Errors
    /// [`Error::State`] if the database cannot be read.
    pub fn goodput(&self, run: &RunId, records: &[Record], now: Timestamp) -> Result<Goodput, Error> {
        let sums = || -> rusqlite::Result<(BTreeMap<AttemptId, StepTotals>, BTreeMap<AttemptId, StepTotals>)> {
            let steps = self.step_totals(run)?;
            let kept = plan::kept_steps(records);
            let lost = kept.into_iter().map(|(attempt, last)| Ok((attempt.clone(), self.after(run, &attempt, last)?)));
            Ok((steps, lost.collect::<rusqlite::Result<_>>()?))
        };
        let (steps, lost) = sums().map_err(Error::sqlite("read", &self.path))?;
        Ok(plan::goodput(records, &steps, &lost, now))
    }

    fn step_totals(&self, run: &RunId) -> rusqlite::Result<BTreeMap<AttemptId, StepTotals>> {
        let sql = "SELECT totals.attempt, step_us, data_wait_us, checkpoint_us, begins.at FROM step_totals AS totals
            LEFT JOIN step_begins AS begins ON begins.attempt = totals.attempt WHERE totals.run = ?1";
        let mut statement = self.db.prepare_cached(sql)?;
        let rows = statement.query_map(params![run.as_str()], |row| {
            let micros = |column| row.get::<_, i64>(column).map(|micros| micros.max(0) as u64);
            let [step_us, data_wait_us, checkpoint_us] = [micros(1)?, micros(2)?, micros(3)?];
            let began = row.get::<_, Option<i64>>(4)?.map(Timestamp);
            let totals = StepTotals { step_us, data_wait_us, checkpoint_us, began, ended: None };
            Ok((AttemptId::new(row.get::<_, String>(0)?), totals))
        })?;
        let mut totals = rows.collect::<rusqlite::Result<BTreeMap<AttemptId, StepTotals>>>()?;
        let mut statement = self.db.prepare_cached("SELECT attempt, at FROM output_ends WHERE run = ?1")?;
        let mut rows = statement.query(params![run.as_str()])?;
        while let Some(row) = rows.next()? {
            let ended = Timestamp(row.get(1)?);
            totals.entry(AttemptId::new(row.get::<_, String>(0)?)).or_default().ended = Some(ended);
        }
        Ok(totals)
    }

    /// The sum over the steps of an attempt after step `last`, which are its newest.
    fn after(&self, run: &RunId, attempt: &AttemptId, last: u64) -> rusqlite::Result<StepTotals> {
        // Older ones may have been stored later. What an earlier version has kept has the order in which it was stored.
        let machine = machine_of(&self.db, attempt)?;
        let sql = match machine {
            Some(_) => "SELECT report FROM points WHERE instance = ?3 AND +run = ?1 AND attempt = ?2 ORDER BY seq DESC",
            None => "SELECT report FROM points WHERE run = ?1 AND attempt = ?2 AND ?3 IS NULL ORDER BY number DESC",
        };
        let mut statement = self.db.prepare_cached(sql)?;
        let machine = machine.as_ref().map(|machine| machine.as_str());
        let mut rows = statement.query(params![run.as_str(), attempt.as_str(), machine])?;
        let mut sum = StepTotals::default();
        while let Some(row) = rows.next()? {
            let Ok(Report::Step(step)) = serde_json::from_str(&row.get::<_, String>(0)?) else { continue };
            if step.step <= last {
                break;
            }
            sum.add(&step);
        }
        Ok(sum)
    }
}

#[cfg(test)]
mod tests {
    use domain::InstanceId;
    use domain::rank::{Fetching, Pause};
    use domain::wire::{AgentEvent, Entry};

    use super::*;
    use crate::home::Home;

    fn step(seq: u64, attempt: &str, number: u64) -> Entry {
        let step = Step {
            step: number,
            epoch: 0,
            loss: 1.0,
            lr: 0.1,
            samples: 64,
            step_us: 100 + number,
            data_wait_us: 10,
            checkpoint_us: 1,
            data: Fetching::default(),
        };
        let event = AgentEvent::Reported { rank: 0, report: Report::Step(step) };
        Entry { seq, attempt: AttemptId::new(attempt), event }
    }

    #[test]
    fn steps_of_other_machines_than_rank_0s_are_not_kept() {
        let folder = tempfile::tempdir().unwrap();
        let mut series = Series::open(&Home::open(folder.path()).unwrap()).unwrap();
        let (run, mut other) = (RunId::new("r"), step(1, "r-a1", 1));
        let AgentEvent::Reported { rank, .. } = &mut other.event else { panic!("a report") };
        *rank = 1;
        series.keep(domain::Timestamp(1), &run, &InstanceId::new("r-i2"), &[other]).unwrap();
        assert!(series.newest(&run, 10).unwrap().is_empty());
    }

    #[test]
    fn what_devices_do_is_found_behind_many_fast_steps() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        let (run, instance) = (RunId::new("r"), InstanceId::new("r-i1"));
        let devices = Report::Devices { devices: Vec::new() };
        let event = AgentEvent::Reported { rank: 0, report: devices.clone() };
        let mut entries = vec![Entry { seq: 1, attempt: AttemptId::new("r-a1"), event }];
        entries.extend((2..=300).map(|number| step(number, "r-a1", number)));
        let mut series = Series::open(&home).unwrap();
        series.keep(domain::Timestamp(1), &run, &instance, &entries).unwrap();
        assert!(series.newest(&run, 200).unwrap().iter().all(|(_, point)| point.report != devices));
        let newest = series.newest_with_devices(&run, 200).unwrap();
        assert_eq!((newest.len(), &newest[0].1.report), (201, &devices));
        // Once, where it is among the newest already.
        assert_eq!(series.newest_with_devices(&run, 300).unwrap().len(), 300);
        assert_eq!(series.newest_devices(&RunId::new("other")).unwrap(), None);
        let later: Vec<Entry> = (301..=600).map(|number| step(number, "r-a2", number)).collect();
        series.keep(domain::Timestamp(2), &run, &instance, &later).unwrap();
        assert_eq!(series.newest_with_devices(&run, 200).unwrap().len(), 200, "another attempt's");
    }

    #[test]
    fn the_last_save_is_found_behind_many_fast_steps() {
        let folder = tempfile::tempdir().unwrap();
        let mut series = Series::open(&Home::open(folder.path()).unwrap()).unwrap();
        let (run, instance) = (RunId::new("r"), InstanceId::new("r-i1"));
        let saved = domain::rank::Checkpointed { step: 9, bytes: 1, stall_us: 7, commit_us: 8 };
        let event = AgentEvent::Reported { rank: 0, report: Report::Checkpointed(saved) };
        let mut entries = vec![step(1, "r-a1", 1), Entry { seq: 2, attempt: AttemptId::new("r-a1"), event }];
        entries.extend((3..=300).map(|number| step(number, "r-a1", number)));
        series.keep(domain::Timestamp(1), &run, &instance, &entries).unwrap();
        let newest = series.newest_with_devices(&run, 200).unwrap();
        assert_eq!((newest.len(), &newest[0].1.report), (201, &Report::Checkpointed(saved)));
    }

    #[test]
    fn where_training_began_is_found_behind_any_number_of_steps() {
        let folder = tempfile::tempdir().unwrap();
        let mut series = Series::open(&Home::open(folder.path()).unwrap()).unwrap();
        let (run, instance) = (RunId::new("r"), InstanceId::new("r-i1"));
        assert_eq!(series.newest_ready(&run).unwrap(), None);
        let ready = crate::report::curves::tests::ready(4);
        let event = AgentEvent::Reported { rank: 0, report: ready.clone() };
        let mut entries = vec![Entry { seq: 1, attempt: AttemptId::new("r-a1"), event }];
        entries.extend((2..=20_100).map(|number| step(number, "r-a1", number)));
        series.keep(domain::Timestamp(1), &run, &instance, &entries).unwrap();
        assert_eq!(series.newest_ready(&run).unwrap().map(|(_, point)| point.report), Some(ready.clone()));
        let newest = series.newest_with_devices(&run, 200).unwrap();
        assert_eq!((newest.len(), &newest[0].1.report), (201, &ready));
        // The total of an attempt that is not ready yet is unknown.
        series.keep(domain::Timestamp(2), &run, &instance, &[step(20_101, "r-a2", 20_101)]).unwrap();
        assert_eq!(series.newest_with_devices(&run, 200).unwrap().len(), 200);
    }

    #[test]
    fn goodput_is_read_as_it_was_written() {
        let parts = [1, 2, 3, 4, 5, 6, 7].map(domain::Elapsed);
        let [productive, start_up, data_wait, checkpoint, recovery, lost, waiting] = parts;
        let goodput = Goodput { productive, start_up, data_wait, checkpoint, recovery, lost, waiting };
        assert_eq!(goodput_of_json(&goodput_json(&goodput)), Some(goodput));
    }

    #[test]
    fn output_has_ended_as_long_ago_as_it_was_sent_also_if_that_is_stored_late() {
        let folder = tempfile::tempdir().unwrap();
        let mut series = Series::open(&Home::open(folder.path()).unwrap()).unwrap();
        let (run, attempt) = (RunId::new("r"), AttemptId::new("r-a1"));
        let sending = |seq, us| {
            let report = Report::Pausing { pause: Pause::Sending { us } };
            Entry { seq, attempt: attempt.clone(), event: AgentEvent::Reported { rank: 0, report } }
        };
        let entries = [sending(1, 0), sending(2, 5_000_000)];
        series.keep(Timestamp(9_000_000), &run, &InstanceId::new("r-i1"), &entries).unwrap();
        assert_eq!(series.step_totals(&run).unwrap()[&attempt].ended, Some(Timestamp(4_000_000)));
    }

    #[test]
    fn steps_after_one_are_summed_although_older_ones_were_stored_late() {
        let folder = tempfile::tempdir().unwrap();
        let mut series = Series::open(&Home::open(folder.path()).unwrap()).unwrap();
        let (run, instance, attempt) = (RunId::new("r"), InstanceId::new("r-i1"), AttemptId::new("r-a1"));
        for numbers in [1..=3, 8..=9, 4..=7] {
            let entries: Vec<Entry> = numbers.map(|number| step(number, "r-a1", number)).collect();
            series.keep(Timestamp(1), &run, &instance, &entries).unwrap();
        }
        assert_eq!(series.after(&run, &attempt, 5).unwrap().step_us, 106 + 107 + 108 + 109);
        series.db.execute_batch("DELETE FROM newest_steps").unwrap();
        assert_eq!(series.after(&run, &attempt, 6).unwrap().step_us, 107, "of an earlier version, as it was stored");
    }

    #[test]
    fn sums_are_those_of_what_was_kept_once_and_of_what_an_earlier_version_kept() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        let (run, instance) = (RunId::new("r"), InstanceId::new("r-i1"));
        let entries: Vec<Entry> = (1..=5).map(|number| step(number, "r-a1", number)).collect();
        let check = |series: &Series| {
            let began = Some(Timestamp(1_000_000 - 101));
            let totals = StepTotals { step_us: 515, data_wait_us: 50, checkpoint_us: 5, began, ended: None };
            assert_eq!(series.step_totals(&run).unwrap(), BTreeMap::from([(AttemptId::new("r-a1"), totals)]));
            let after = series.after(&run, &AttemptId::new("r-a1"), 3).unwrap();
            assert_eq!(
                after,
                StepTotals { step_us: 209, data_wait_us: 20, checkpoint_us: 2, began: None, ended: None }
            );
        };
        let mut series = Series::open(&home).unwrap();
        series.keep(Timestamp(1_000_000), &run, &instance, &entries[..3]).unwrap();
        // An agent that got no reply repeats its entries.
        series.keep(Timestamp(2_000_000), &run, &instance, &entries).unwrap();
        check(&series);
        series.db.execute_batch("DROP TABLE step_totals").unwrap();
        check(&Series::open(&home).unwrap());
        // An earlier version kept the sums alone, and goes on with them.
        series.db.execute_batch("DROP TABLE step_begins").unwrap();
        let mut series = Series::open(&home).unwrap();
        series.keep(Timestamp(3_000_000), &run, &instance, &[step(6, "r-a1", 6)]).unwrap();
        assert_eq!(series.step_totals(&run).unwrap()[&AttemptId::new("r-a1")].began, None);
    }
}
