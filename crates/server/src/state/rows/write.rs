//! Rows written as events change them.

use std::collections::BTreeSet;

use domain::subject::EventSubject;
use domain::{AttemptId, InstanceId, PipelineId, Record, RunId, ScheduleId, SweepId};
use plan::{Run, RunOrSweep, World};
use rusqlite::{Connection, params};
use serde::Serialize;

use super::LAYOUT;

/// Rows that events have changed, each to be written once.
#[derive(Debug, Default)]
pub struct RowChanges {
    runs: BTreeSet<RunId>,
    instances: BTreeSet<InstanceId>,
    attempts: BTreeSet<AttemptId>,
    sweeps: BTreeSet<SweepId>,
    schedules: BTreeSet<ScheduleId>,
    pipelines: BTreeSet<PipelineId>,
}

impl RowChanges {
    /// Records the changes of an event: at most one run, one attempt and one sweep, and the instances of one request.
    pub fn note(&mut self, world: &World, record: &Record) {
        let event = &record.event;
        self.runs.extend(world.run_of(event).cloned());
        self.instances.extend(event.instances().cloned());
        self.attempts.extend(event.attempt().cloned());
        if let Some(RunOrSweep::Sweep(sweep)) = world.work_of(event) {
            self.sweeps.insert(sweep);
        }
        match event.subject() {
            EventSubject::Schedule(schedule) => self.schedules.extend([schedule.clone()]),
            EventSubject::Pipeline(pipeline) => self.pipelines.extend([pipeline.clone()]),
            EventSubject::Run(_) | EventSubject::Instance(_) | EventSubject::Attempt(_) | EventSubject::Sweep(_) => {}
        }
    }

    /// Writes the rows as they are in this world, and how far they go.
    pub fn write(&self, db: &Connection, world: &World) -> rusqlite::Result<()> {
        let put = "INSERT OR REPLACE INTO";
        let mut statement =
            db.prepare_cached(&format!("{put} run_rows VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"))?;
        for (id, run) in self.runs.iter().filter_map(|id| world.runs.get_key_value(id)) {
            let sweep = run.trial.as_ref().map(|trial| trial.sweep.as_str());
            let cost = run.bill.as_ref().map(|bill| (bill.total + run.adjusted()).micros());
            let (order, attempts) = (run.order as i64, run.attempts.len() as i64);
            let (is_open, word, hash) = (world.is_open(id), run.state.word(), &run.job_hash);
            let body = body(run)?;
            let submitted = run.submitted.0;
            let row = params![id.as_str(), order, sweep, is_open, word, submitted, attempts, cost, hash, body];
            statement.execute(row)?;
            write_costs(db, world, id, run)?;
        }
        let mut statement = db.prepare_cached(&format!("{put} instance_rows VALUES (?1, ?2, ?3)"))?;
        for (id, instance) in self.instances.iter().filter_map(|id| world.instances.get_key_value(id)) {
            statement.execute(params![id.as_str(), instance.run.as_str(), body(instance)?])?;
        }
        let mut statement = db.prepare_cached(&format!("{put} attempt_rows VALUES (?1, ?2, ?3)"))?;
        for (id, attempt) in self.attempts.iter().filter_map(|id| world.attempts.get_key_value(id)) {
            statement.execute(params![id.as_str(), attempt.run.as_str(), body(attempt)?])?;
        }
        let mut statement = db.prepare_cached(&format!("{put} sweep_rows VALUES (?1, ?2, ?3, ?4)"))?;
        for (id, sweep) in self.sweeps.iter().filter_map(|id| world.sweeps.get_key_value(id)) {
            let (order, is_open) = (sweep.order as i64, !sweep.state.is_final());
            statement.execute(params![id.as_str(), order, is_open, body(sweep)?])?;
        }
        let mut statement = db.prepare_cached(&format!("{put} pipeline_rows VALUES (?1, ?2)"))?;
        for (id, pipeline) in self.pipelines.iter().filter_map(|id| world.pipelines.get_key_value(id)) {
            statement.execute(params![id.as_str(), body(pipeline)?])?;
        }
        for id in &self.schedules {
            match world.schedules.get(id) {
                Some(schedule) => {
                    let mut statement = db.prepare_cached(&format!("{put} schedule_rows VALUES (?1, ?2)"))?;
                    statement.execute(params![id.as_str(), body(schedule)?])?
                }
                None => db.prepare_cached("DELETE FROM schedule_rows WHERE id = ?1")?.execute([id.as_str()])?,
            };
        }
        db.prepare_cached("DELETE FROM row_head")?.execute([])?;
        db.prepare_cached("INSERT INTO row_head VALUES (?1, ?2)")?.execute(params![LAYOUT, world.last_seq as i64])?;
        Ok(())
    }
}

/// Writes the lines of a run's bill and its adjustments, in place of those of an earlier one.
fn write_costs(db: &Connection, world: &World, id: &RunId, run: &Run) -> rusqlite::Result<()> {
    db.prepare_cached("DELETE FROM cost_rows WHERE run = ?1")?.execute([id.as_str()])?;
    let Some(bill) = &run.bill else { return Ok(()) };
    let sql = "INSERT INTO cost_rows VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)";
    let mut statement = db.prepare_cached(sql)?;
    let provider_of = |id: &InstanceId| world.instances.get(id).map_or("", |instance| instance.offer.provider.as_str());
    for (number, line) in bill.lines.iter().enumerate() {
        statement.execute(params![
            id.as_str(),
            number as i64,
            line.instance.as_str(),
            provider_of(&line.instance),
            run.user,
            run.job.project,
            line.usage.started.0,
            i64::try_from(line.usage.elapsed.0).unwrap_or(i64::MAX),
            line.amount.micros(),
            line.race,
            None::<&str>
        ])?;
    }
    for (number, adjustment) in run.adjustments.iter().enumerate() {
        statement.execute(params![
            id.as_str(),
            (bill.lines.len() + number) as i64,
            adjustment.instance.as_str(),
            provider_of(&adjustment.instance),
            run.user,
            run.job.project,
            adjustment.at.0,
            0_i64,
            adjustment.amount.micros(),
            false,
            Some(adjustment.kind.word())
        ])?;
    }
    Ok(())
}

fn body(body: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(body).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}
