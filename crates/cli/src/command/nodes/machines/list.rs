//! `gradus machines list`.

use cloud::rented::kept::KeptMachine;
use domain::run::InstanceState;
use domain::{Elapsed, InstanceId, Timestamp};
use plan::{Instance, Run, World};
use serde_json::json;
use server::{Home, State};

use super::MARK;
use super::kept;
use crate::error::{Error, exit};
use crate::figures::short;
use crate::follow::liveness::meters;
use crate::local::disks;
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use crate::table;

/// Lists every machine that is not released.
///
/// # Errors
/// [`Error`] when the state of the home cannot be read.
pub fn run(settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let state = State::open_lean(&home)?;
    let world = state.world();
    let (meters, now) = (meters(&home, world), server::clock::now());
    let mut rows = Vec::new();
    for (id, instance) in world.live_instances() {
        let Some(run) = world.runs.get(&instance.run) else { continue };
        let rented = meters.get(id).copied().unwrap_or_default();
        let spent = instance.cost(rented);
        let ends = ends(run, now);
        let is_job = !run.job.envs.contains_key(MARK);
        if printer.is_json() {
            printer.json(&json!({
                "instance": id,
                "machine": instance.machine_name(id),
                "run": instance.run,
                "provider": instance.offer.provider,
                "kind": instance.offer.kind,
                "handle": instance.handle,
                "account": instance.account,
                "state": word(instance),
                "rate_micro_usd": instance.offer.rate.micros_per_hour(),
                "rented_us": rented.0,
                "cost_micro_usd": spent.micros(),
                "ends_in_us": ends.map(|ends| ends.0),
                "is_job": is_job,
            }));
            continue;
        }
        let ends = ends.map_or("with its run".to_owned(), |ends| format!("in {}", length(ends)));
        rows.push(vec![
            instance.run.to_string(),
            format!("{} {}", instance.offer.provider, instance.offer.kind),
            standing(instance),
            instance.offer.rate.to_string(),
            length(rented),
            spent.to_string(),
            ends,
            if is_job { "job" } else { "machine" }.to_owned(),
        ]);
    }
    for machine in kept::stopped(&home)?.into_iter().filter(|machine| !is_live(world, &machine.instance)) {
        rows.extend(stopped(&machine, now, printer));
    }
    if printer.is_json() {
        return Ok(exit::DONE);
    }
    if rows.is_empty() {
        printer.say("no machine is rented; take one with `gradus machines up`");
        return Ok(exit::DONE);
    }
    let head = ["run", "machine", "state", "price", "rented", "cost", "ends", "for"];
    table::lines(&head, &rows).into_iter().for_each(|line| printer.data(line));
    Ok(exit::DONE)
}

/// The state of a machine, and the name that it was rented under where its run has taken it over from another one.
fn standing(instance: &Instance) -> String {
    match &instance.machine {
        None => word(instance).to_owned(),
        Some(name) => format!("{}, rented as {name}", word(instance)),
    }
}

/// Whether a run has it still.
fn is_live(world: &World, instance: &InstanceId) -> bool {
    world.live_instances().any(|(id, _)| id == instance)
}

/// A machine that is stopped: as JSON, or a row.
fn stopped(machine: &KeptMachine, now: Timestamp, printer: &mut Printer) -> Option<Vec<String>> {
    let since = machine.stopped()?;
    let (length_of, owed) = (now.since(since), disks::owed(machine, now));
    if printer.is_json() {
        printer.json(&json!({
            "instance": machine.instance,
            "machine": machine.instance,
            "run": machine.run(),
            "provider": machine.offer.provider,
            "kind": machine.offer.kind,
            "handle": machine.handle,
            "account": machine.account,
            "state": "stopped",
            "rate_micro_usd": machine.disk.micros_per_hour(),
            "stopped_us": length_of.0,
            "cost_micro_usd": owed.micros(),
            "is_job": false,
        }));
        return None;
    }
    Some(vec![
        machine.run().to_string(),
        format!("{} {}", machine.offer.provider, machine.offer.kind),
        "stopped".to_owned(),
        machine.disk.to_string(),
        length(length_of),
        owed.to_string(),
        "never".to_owned(),
        "machine".to_owned(),
    ])
}

/// When its run must end, from now on; none where nothing says so.
fn ends(run: &Run, now: Timestamp) -> Option<Elapsed> {
    let deadline = run.job.deadline?;
    Some(Elapsed(deadline.micros().saturating_sub(run.age(now).0)))
}

fn length(time: Elapsed) -> String {
    short(domain::Duration::from_micros(time.0))
}

fn word(instance: &Instance) -> &'static str {
    match instance.state {
        InstanceState::Intended => "asked for",
        InstanceState::Launching => "starting",
        InstanceState::Up => "up",
        InstanceState::Releasing => "ending",
        InstanceState::Released { .. } => "released",
    }
}
