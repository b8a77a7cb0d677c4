//! Runs and sweeps read from their rows.

use domain::subject::EventSubject;
use domain::{AttemptId, Event, InstanceId, PipelineId, RunId, ScheduleId, SweepId};
use plan::{PipelineRecord, RunOrSweep, SweepRecord, World};
use rusqlite::types::Type;
use rusqlite::{Connection, OptionalExtension, Params};
use serde::de::DeserializeOwned;

use super::head;

/// Loads the unfinished work.
pub fn load_open(db: &Connection) -> rusqlite::Result<World> {
    let mut world = World::at(head(db)?.unwrap_or(0));
    let alone = "FROM run_rows r INDEXED BY runs_open";
    let open = "WHERE r.is_open = 1 AND r.sweep IS NULL";
    let part = Rows {
        runs: &format!("SELECT r.id, r.body {alone} {open}"),
        instances: &format!("SELECT i.id, i.body {alone} CROSS JOIN instance_rows i ON i.run = r.id {open}"),
        attempts: &format!("SELECT a.id, a.body {alone} CROSS JOIN attempt_rows a ON a.run = r.id {open}"),
    };
    part.load(db, &mut world, [])?;
    let sweeps = "SELECT id FROM sweep_rows WHERE is_open = 1 UNION
        SELECT sweep FROM run_rows INDEXED BY runs_open WHERE is_open = 1 AND sweep IS NOT NULL";
    let sweeps: Vec<String> = db.prepare(sweeps)?.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for sweep in sweeps {
        world.merge(load(db, &RunOrSweep::Sweep(SweepId::new(sweep)))?.unwrap_or_default());
    }
    load_plans(db, &mut world)?;
    world.find_open();
    Ok(world)
}

/// Everything.
pub fn load_all(db: &Connection) -> rusqlite::Result<World> {
    let mut world = World::at(head(db)?.unwrap_or(0));
    let part = Rows {
        runs: "SELECT id, body FROM run_rows",
        instances: "SELECT id, body FROM instance_rows",
        attempts: "SELECT id, body FROM attempt_rows",
    };
    let sweeps = table(db, "SELECT id, body FROM sweep_rows", [])?;
    world.sweeps = sweeps.into_iter().map(|(id, body)| (SweepId::new(id), body)).collect();
    part.load(db, &mut world, [])?;
    load_plans(db, &mut world)?;
    world.find_open();
    Ok(world)
}

/// Adds every schedule and pipeline to a world: they are few.
fn load_plans(db: &Connection, world: &mut World) -> rusqlite::Result<()> {
    let schedules = table(db, "SELECT id, body FROM schedule_rows", [])?;
    world.schedules.extend(schedules.into_iter().map(|(id, body)| (ScheduleId::new(id), body)));
    let pipelines = table(db, "SELECT id, body FROM pipeline_rows", [])?;
    world.pipelines.extend(pipelines.into_iter().map(|(id, body)| (PipelineId::new(id), body)));
    Ok(())
}

/// Loads one run or sweep with everything that belongs to it; `None` if it is unknown.
pub fn load(db: &Connection, work: &RunOrSweep) -> rusqlite::Result<Option<World>> {
    let mut world = World::at(head(db)?.unwrap_or(0));
    match work {
        RunOrSweep::Run(run) => OF_RUN.load(db, &mut world, [run.as_str()])?,
        RunOrSweep::Sweep(sweep) => {
            let sweeps = table(db, "SELECT id, body FROM sweep_rows WHERE id = ?1", [sweep.as_str()])?;
            world.sweeps = sweeps.into_iter().map(|(id, body)| (SweepId::new(id), body)).collect();
            let of = "FROM run_rows r CROSS JOIN";
            let part = Rows {
                runs: "SELECT id, body FROM run_rows WHERE sweep = ?1",
                instances: &format!("SELECT i.id, i.body {of} instance_rows i ON i.run = r.id WHERE r.sweep = ?1"),
                attempts: &format!("SELECT a.id, a.body {of} attempt_rows a ON a.run = r.id WHERE r.sweep = ?1"),
            };
            part.load(db, &mut world, [sweep.as_str()])?;
        }
    }
    world.find_open();
    Ok(world.holds(work).then_some(world))
}

/// A sweep with `limit` of its trials after the first `after`, and nothing of the others; `None` if there is no such sweep.
pub fn load_trials(
    db: &Connection,
    sweep: &SweepId,
    (after, limit): (usize, usize),
) -> rusqlite::Result<Option<World>> {
    let Some((_, record)) = sweeps(db, "WHERE id = ?1", [sweep.as_str()])?.pop() else { return Ok(None) };
    let mut world = World::at(head(db)?.unwrap_or(0));
    for run in record.trials.iter().skip(after).take(limit) {
        OF_RUN.load(db, &mut world, [run.as_str()])?;
    }
    world.sweeps.insert(sweep.clone(), record);
    world.find_open();
    Ok(Some(world))
}

/// The rows of sweeps that a condition selects, without their trials.
pub fn sweeps(
    db: &Connection,
    condition: &str,
    parameters: impl Params,
) -> rusqlite::Result<Vec<(SweepId, SweepRecord)>> {
    let rows = table(db, &format!("SELECT id, body FROM sweep_rows {condition}"), parameters)?;
    Ok(rows.into_iter().map(|(id, body)| (SweepId::new(id), body)).collect())
}

/// The row of a pipeline; `None` if there is none of this name.
pub fn pipeline(db: &Connection, pipeline: &PipelineId) -> rusqlite::Result<Option<PipelineRecord>> {
    let rows = table(db, "SELECT id, body FROM pipeline_rows WHERE id = ?1", [pipeline.as_str()])?;
    Ok(rows.into_iter().next().map(|(_, record)| record))
}

/// The unit that a run is loaded with: its sweep, or itself. `None` if there is no such run.
pub fn work_of_run(db: &Connection, run: &RunId) -> rusqlite::Result<Option<RunOrSweep>> {
    let mut statement = db.prepare_cached("SELECT sweep FROM run_rows WHERE id = ?1")?;
    let sweep: Option<Option<String>> = statement.query_row([run.as_str()], |row| row.get(0)).optional()?;
    Ok(sweep.map(|sweep| match sweep {
        Some(sweep) => RunOrSweep::Sweep(SweepId::new(sweep)),
        None => RunOrSweep::Run(run.clone()),
    }))
}

/// The run that an instance was rented for.
fn run_of_instance(db: &Connection, instance: &InstanceId) -> rusqlite::Result<Option<RunId>> {
    let mut statement = db.prepare_cached("SELECT run FROM instance_rows WHERE id = ?1")?;
    statement.query_row([instance.as_str()], |row| Ok(RunId::new(row.get::<_, String>(0)?))).optional()
}

/// The run or sweep that an event belongs to, according to the rows.
pub fn work_of(db: &Connection, event: &Event) -> rusqlite::Result<Option<RunOrSweep>> {
    let run = match event.subject() {
        EventSubject::Sweep(sweep) => return Ok(Some(RunOrSweep::Sweep(sweep.clone()))),
        EventSubject::Schedule(_) | EventSubject::Pipeline(_) => None,
        EventSubject::Run(run) => Some(run.clone()),
        EventSubject::Instance(instance) => run_of_instance(db, instance)?,
        EventSubject::Attempt(attempt) => {
            let mut statement = db.prepare_cached("SELECT run FROM attempt_rows WHERE id = ?1")?;
            let run = statement.query_row([attempt.as_str()], |row| row.get::<_, String>(0)).optional()?;
            run.map(RunId::new)
        }
    };
    run.map_or(Ok(None), |run| work_of_run(db, &run))
}

/// Loads the subject of an event if it has left memory. The rows must be at the same event as the world.
pub fn recall(db: &Connection, world: &mut World, event: &Event) -> rusqlite::Result<()> {
    match event.subject() {
        EventSubject::Schedule(schedule) if !world.schedules.contains_key(schedule) => {
            let rows = table(db, "SELECT id, body FROM schedule_rows WHERE id = ?1", [schedule.as_str()])?;
            world.schedules.extend(rows.into_iter().map(|(id, body)| (ScheduleId::new(id), body)));
            return Ok(());
        }
        EventSubject::Pipeline(pipeline) if !world.pipelines.contains_key(pipeline) => {
            let rows = table(db, "SELECT id, body FROM pipeline_rows WHERE id = ?1", [pipeline.as_str()])?;
            world.pipelines.extend(rows.into_iter().map(|(id, body)| (PipelineId::new(id), body)));
            return Ok(());
        }
        EventSubject::Schedule(_) | EventSubject::Pipeline(_) => return Ok(()),
        EventSubject::Run(_) | EventSubject::Instance(_) | EventSubject::Attempt(_) | EventSubject::Sweep(_) => {}
    }
    if world.work_of(event).is_some_and(|work| world.holds(&work)) {
        return Ok(());
    }
    let submitted = world.work_of(event).filter(|_| matches!(event, Event::Submitted(_) | Event::SweepSubmitted(_)));
    let Some(work) = submitted.map_or_else(|| work_of(db, event), |work| Ok(Some(work)))? else { return Ok(()) };
    if !world.holds(&work)
        && let Some(part) = load(db, &work)?
    {
        world.merge(part);
    }
    Ok(())
}

/// Queries for the parts of some runs; each gives names and bodies.
struct Rows<'a> {
    runs: &'a str,
    instances: &'a str,
    attempts: &'a str,
}

/// The parts of one run.
const OF_RUN: Rows<'static> = Rows {
    runs: "SELECT id, body FROM run_rows WHERE id = ?1",
    instances: "SELECT id, body FROM instance_rows WHERE run = ?1",
    attempts: "SELECT id, body FROM attempt_rows WHERE run = ?1",
};

impl Rows<'_> {
    /// Adds the results of the queries to a world.
    fn load(&self, db: &Connection, world: &mut World, parameters: impl Params + Clone) -> rusqlite::Result<()> {
        let runs = table(db, self.runs, parameters.clone())?;
        let instances = table(db, self.instances, parameters.clone())?;
        let attempts = table(db, self.attempts, parameters)?;
        world.runs.extend(runs.into_iter().map(|(id, body)| (RunId::new(id), body)));
        world.instances.extend(instances.into_iter().map(|(id, body)| (InstanceId::new(id), body)));
        world.attempts.extend(attempts.into_iter().map(|(id, body)| (AttemptId::new(id), body)));
        Ok(())
    }
}

/// Every row of a query: its name and its body.
fn table<T: DeserializeOwned>(
    db: &Connection,
    sql: &str,
    parameters: impl Params,
) -> rusqlite::Result<Vec<(String, T)>> {
    let mut statement = db.prepare_cached(sql)?;
    let rows = statement.query_map(parameters, |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    let mut entries = Vec::new();
    for row in rows {
        let (id, body) = row?;
        let body = serde_json::from_str(&body)
            .map_err(|error| rusqlite::Error::FromSqlConversionFailure(1, Type::Text, error.into()))?;
        entries.push((id, body));
    }
    Ok(entries)
}
