//! Tables that spare a start the replay of the whole log. Each can be dropped; the next start rebuilds it.

use domain::{Event, Record};
use plan::World;
use rusqlite::{Connection, OptionalExtension, params};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::sweep_of;

/// Number of this layout; another one found on disk is thrown away and rebuilt.
const LAYOUT: i64 = 4;

const CREATE: &str = "
    CREATE TABLE IF NOT EXISTS runs (id TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS instances (id TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS attempts (id TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS sweeps (id TEXT PRIMARY KEY, body TEXT NOT NULL) STRICT;
    CREATE TABLE IF NOT EXISTS view (layout INTEGER NOT NULL, seq INTEGER NOT NULL, rows INTEGER NOT NULL) STRICT;
    CREATE INDEX IF NOT EXISTS events_by_run ON events (run, seq);
";

/// The world as the views tell it, or none when they are missing, of another layout, incomplete or unreadable.
pub fn load(db: &Connection) -> rusqlite::Result<Option<World>> {
    db.execute_batch(CREATE)?;
    let head = db.query_row("SELECT layout, seq, rows FROM view", [], |row| {
        Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?, row.get::<_, i64>(2)?))
    });
    let Some((layout, seq, rows)) = head.optional()? else { return Ok(None) };
    let newest: i64 = db.query_row("SELECT coalesce(max(seq), 0) FROM events", [], |row| row.get(0))?;
    if layout != LAYOUT || seq > newest {
        return Ok(None);
    }
    let Some(runs) = table(db, "runs")? else { return Ok(None) };
    let Some(instances) = table(db, "instances")? else { return Ok(None) };
    let Some(attempts) = table(db, "attempts")? else { return Ok(None) };
    let Some(sweeps) = table(db, "sweeps")? else { return Ok(None) };
    let mut world = World { last_seq: seq as u64, ..World::default() };
    world.runs = runs.into_iter().map(|(id, body)| (domain::RunId::new(id), body)).collect();
    world.instances = instances.into_iter().map(|(id, body)| (domain::InstanceId::new(id), body)).collect();
    world.attempts = attempts.into_iter().map(|(id, body)| (domain::AttemptId::new(id), body)).collect();
    world.sweeps = sweeps.into_iter().map(|(id, body)| (domain::SweepId::new(id), body)).collect();
    world.find_open();
    Ok((count(&world) == rows).then_some(world))
}

/// Deletes what the views hold, so that they are rebuilt from the log.
pub fn forget(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch(CREATE)?;
    db.execute_batch(
        "DELETE FROM runs; DELETE FROM instances; DELETE FROM attempts; DELETE FROM sweeps; DELETE FROM view;",
    )
}

/// Writes every view anew.
pub fn rebuild(db: &Connection, world: &World) -> rusqlite::Result<()> {
    db.execute_batch(
        "DROP TABLE runs; DROP TABLE instances; DROP TABLE attempts; DROP TABLE sweeps; DROP TABLE view;",
    )?;
    db.execute_batch(CREATE)?;
    for (id, run) in &world.runs {
        put(db, "runs", id.as_str(), run)?;
    }
    for (id, instance) in &world.instances {
        put(db, "instances", id.as_str(), instance)?;
    }
    for (id, attempt) in &world.attempts {
        put(db, "attempts", id.as_str(), attempt)?;
    }
    for (id, sweep) in &world.sweeps {
        put(db, "sweeps", id.as_str(), sweep)?;
    }
    head(db, world)
}

/// Writes what one event has changed: never more than one run, one instance, one attempt and one sweep.
pub fn update(db: &Connection, world: &World, record: &Record) -> rusqlite::Result<()> {
    let event = &record.event;
    if let Some(id) = world.run_of(event)
        && let Some(run) = world.runs.get(id)
    {
        put(db, "runs", id.as_str(), run)?;
    }
    let instance = match event {
        Event::RentIntended(intent) => Some(&intent.instance),
        Event::Launched { instance, .. } | Event::RentFailed { instance, .. } | Event::AgentUp { instance, .. } => {
            Some(instance)
        }
        Event::ReleaseIntended { instance }
        | Event::Released { instance, .. }
        | Event::DoubleEnded { instance, .. } => Some(instance),
        Event::Submitted(_) | Event::StopRequested { .. } | Event::ResumeRequested { .. } | Event::Ended { .. } => None,
        Event::AttemptIntended { .. } | Event::AttemptReady { .. } | Event::AttemptEnded { .. } => None,
        Event::BudgetAlert { .. } | Event::Billed { .. } => None,
        Event::SweepSubmitted(_) | Event::SweepStopRequested { .. } | Event::SweepResumeRequested { .. } => None,
        Event::SweepBudgetAlert { .. } | Event::SweepEnded { .. } => None,
    };
    if let Some(id) = instance
        && let Some(body) = world.instances.get(id)
    {
        put(db, "instances", id.as_str(), body)?;
    }
    if let Event::AttemptIntended { attempt: id, .. }
    | Event::AttemptReady { attempt: id, .. }
    | Event::AttemptEnded { attempt: id, .. } = event
        && let Some(body) = world.attempts.get(id)
    {
        put(db, "attempts", id.as_str(), body)?;
    }
    if let Some(id) = sweep_of(world, event)
        && let Some(sweep) = world.sweeps.get(id)
    {
        put(db, "sweeps", id.as_str(), sweep)?;
    }
    head(db, world)
}

fn head(db: &Connection, world: &World) -> rusqlite::Result<()> {
    db.execute("DELETE FROM view", [])?;
    db.execute("INSERT INTO view VALUES (?1, ?2, ?3)", params![LAYOUT, world.last_seq as i64, count(world)])?;
    Ok(())
}

fn count(world: &World) -> i64 {
    (world.runs.len() + world.instances.len() + world.attempts.len() + world.sweeps.len()) as i64
}

fn put(db: &Connection, table: &str, id: &str, body: &impl Serialize) -> rusqlite::Result<()> {
    let body = serde_json::to_string(body).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))?;
    let mut statement = db.prepare_cached(&format!("INSERT OR REPLACE INTO {table} VALUES (?1, ?2)"))?;
    statement.execute(params![id, body])?;
    Ok(())
}

/// Every row of a view, or none when one cannot be read.
fn table<T: DeserializeOwned>(db: &Connection, table: &str) -> rusqlite::Result<Option<Vec<(String, T)>>> {
    let mut statement = db.prepare(&format!("SELECT id, body FROM {table}"))?;
    let rows = statement.query_map([], |row| Ok((row.get::<_, String>(0)?, row.get::<_, String>(1)?)))?;
    let mut entries = Vec::new();
    for row in rows {
        let (id, body) = row?;
        let Ok(body) = serde_json::from_str(&body) else { return Ok(None) };
        entries.push((id, body));
    }
    Ok(Some(entries))
}
