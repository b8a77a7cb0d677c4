//! The commands. One file each: its arguments, whose comments are the help text, and one function.

mod agent;
mod bench;
mod catalog;
mod cost;
mod data;
mod events;
mod logs;
mod models;
mod offers;
pub mod plan;
mod rank;
pub mod report;
mod resume;
pub mod run;
mod status;
mod steps;
mod stop;

use std::collections::BTreeMap;

use ::plan::{Instance, World};
use domain::{Elapsed, InstanceId, RunId, SweepId};

use crate::error::Error;
use crate::printer::Printer;
use crate::settings::Settings;

/// What can be asked.
#[derive(Debug, clap::Subcommand)]
pub enum Command {
    /// Say what a job will do, how long it takes and what it costs; nothing is spent
    Plan(plan::Args),
    /// Train a job, or run its program; after a crash, go on with it
    Run(run::Args),
    /// List what can be rented: GPUs, prices, dates and sources
    Offers(offers::Args),
    /// Tell how old prices are, import newer ones, or machines of your own
    Catalog(catalog::Args),
    /// List runs, or tell where one stands
    Status(status::Args),
    /// Print what a run's processes have written
    Logs(logs::Args),
    /// Save a run's state and stop it
    Stop(stop::Args),
    /// Go on with a run that was stopped, failed or left alone
    Resume(resume::Args),
    /// List, show and export trained models
    Models(models::Args),
    /// Tell what runs have cost
    Cost(cost::Args),
    /// Pack, look at, move and measure data sets
    Data(data::Args),
    /// Measure how fast this machine trains a model
    Bench(bench::Args),
    /// Print the event log: everything that was decided and done
    Events(events::Args),
    /// Write a run's report and TensorBoard files again
    Report(report::Args),
    /// Look after one node (started by gradus itself)
    #[command(hide = true)]
    Agent(agent::Args),
}

impl Command {
    /// Does what was asked; returns the exit code.
    ///
    /// # Errors
    /// [`Error`], told to the user.
    pub fn run(self, settings: &Settings, printer: &mut Printer) -> Result<u8, Error> {
        match self {
            Command::Plan(args) => plan::run(args, settings, printer),
            Command::Run(args) => run::run(args, settings, printer),
            Command::Offers(args) => offers::run(args, settings, printer),
            Command::Catalog(args) => catalog::run(args, settings, printer),
            Command::Status(args) => status::run(args, settings, printer),
            Command::Logs(args) => logs::run(args, settings, printer),
            Command::Stop(args) => stop::run(args, settings, printer),
            Command::Resume(args) => resume::run(args, settings, printer),
            Command::Models(args) => models::run(args, settings, printer),
            Command::Cost(args) => cost::run(args, settings, printer),
            Command::Data(args) => data::run(args, settings, printer),
            Command::Bench(args) => bench::run(args, settings, printer),
            Command::Events(args) => events::run(args, settings, printer),
            Command::Report(args) => report::run(args, settings, printer),
            Command::Agent(args) => agent::run(args, settings),
        }
    }
}

/// A run or a sweep that a user means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Meant {
    /// A run, which may be a trial.
    Run(RunId),
    /// A sweep.
    Sweep(SweepId),
}

/// The run or sweep that a user means: its name, the start of it if only one has that, or `last`. The start of a
/// sweep's name means the sweep and not its trials, whose names begin alike.
fn find_any(world: &World, name: &str) -> Result<Meant, Error> {
    let sweep = |(id, sweep): (&SweepId, &::plan::Sweep)| (sweep.order, id.to_string(), Meant::Sweep(id.clone()));
    let alone = world.runs.iter().filter(|(_, run)| run.trial.is_none());
    let run = |(id, run): (&RunId, &::plan::Run)| (run.order, id.to_string(), Meant::Run(id.clone()));
    let all: Vec<(u64, String, Meant)> = world.sweeps.iter().map(sweep).chain(alone.map(run)).collect();
    if name == "last" {
        let newest = all.into_iter().max_by_key(|(order, ..)| *order);
        return newest.map(|(.., meant)| meant).ok_or_else(|| server::Error::NoRun(name.to_owned()).into());
    }
    let starting: Vec<&(u64, String, Meant)> = all.iter().filter(|(_, id, _)| id.starts_with(name)).collect();
    match (starting.iter().find(|(_, id, _)| id == name), &starting[..]) {
        (Some((.., meant)), _) | (None, [(.., meant)]) => Ok(meant.clone()),
        (None, _) => find(world, name).map(Meant::Run),
    }
}

/// The run that a user means: its name, the start of it if only one run has that, or `last`. A sweep is none.
fn find(world: &World, name: &str) -> Result<RunId, Error> {
    let sweep = SweepId::new(name);
    if let Some(trials) = world.sweeps.get(&sweep).map(|sweep| &sweep.trials) {
        let message = format!("`{name}` is a sweep, and this is for one run");
        let trial = trials.first().map_or("a trial".to_owned(), |trial| format!("`{trial}`"));
        return Err(Error::Usage { message, hint: format!("name one of its trials, such as {trial}") });
    }
    if name == "last" {
        let newest = world.runs.iter().max_by_key(|(_, run)| run.order);
        return newest.map(|(id, _)| id.clone()).ok_or_else(|| server::Error::NoRun(name.to_owned()).into());
    }
    let id = RunId::new(name);
    if world.runs.contains_key(&id) {
        return Ok(id);
    }
    let mut starting = world.runs.keys().filter(|id| id.as_str().starts_with(name));
    match (starting.next(), starting.next()) {
        (Some(id), None) => Ok(id.clone()),
        (Some(_), Some(_)) => {
            let message = format!("more than one run starts with `{name}`");
            Err(Error::Usage { message, hint: "list the runs with `gradus status`".to_owned() })
        }
        (None, _) => Err(server::Error::NoRun(name.to_owned()).into()),
    }
}

/// Rent so far of every machine that is not released, by the wall clock; the bill is made from its meter.
pub fn meters(world: &World) -> BTreeMap<InstanceId, Elapsed> {
    let now = server::clock::now();
    let running = |(id, instance): (&InstanceId, &Instance)| Some((id.clone(), now.since(instance.started?)));
    world.live_instances().filter_map(running).collect()
}
