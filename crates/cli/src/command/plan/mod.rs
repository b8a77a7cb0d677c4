//! `gradus plan`: what will be done, before anything is spent.
//!
//! A job for this machine is planned by [`local`]; one that describes what it trains, or asks for machines of a cloud,
//! over everything that is offered by [`market`].

mod check;
mod job;
mod lessons;
mod local;
mod market;
mod measure;
mod model;
mod page;
mod plot;
mod preset;
mod refusal;
mod remedies;
mod spot_check;
mod tell;

use server::Home;

pub use job::JobArgs;
pub use local::{draft, known, lines, short};

use crate::error::Error;
use crate::printer::Printer;
use crate::settings::Settings;
use crate::sweep::preview::{self, Preview};

/// Arguments of `gradus plan`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct Args {
    #[command(flatten)]
    job: Option<JobArgs>,
    #[command(flatten)]
    market: market::Args,
    #[command(subcommand)]
    ask: Option<Ask>,
}

/// Questions about the planner itself.
#[derive(Debug, clap::Subcommand)]
enum Ask {
    /// Hold estimates of time and memory beside tables of measurements
    Check(check::Args),
    /// Tell what a model file is read as: its weights, arithmetic and what is not understood
    Model(model::Args),
    /// Hold the cost model of spot machines beside traces of what happened
    SpotCheck(spot_check::Args),
}

/// Prints the plan.
///
/// # Errors
/// [`Error::Job`] with everything wrong in the file, [`Error::Infeasible`] with every reason.
pub fn run(args: Args, settings: &Settings, printer: &mut Printer) -> Result<u8, Error> {
    match &args.ask {
        Some(Ask::Check(args)) => return check::run(args, printer),
        Some(Ask::Model(args)) => return model::run(args, printer),
        Some(Ask::SpotCheck(args)) => return spot_check::run(args, printer),
        None => {}
    }
    let Some(job_args) = &args.job else {
        let message = "no job file is named".to_owned();
        return Err(Error::Usage { message, hint: "write `gradus plan JOB`".to_owned() });
    };
    let read = job::read(job_args, printer)?;
    if args.market.asks() || read.unrentable.is_some() || read.job.workload.is_some() {
        let file = job_args.file.to_string_lossy().into_owned();
        return market::run(read.job, file, &args.market, settings, printer);
    }
    let home = Home::open(&settings.home)?;
    let job = &read.job;
    let (plan, measured) = match args.market.calibrates() {
        true => {
            let (plan, measured) = local::draft_measured(job, job_args.price, settings, &home, printer)?;
            (plan, Some(measured))
        }
        false => (local::draft_here(job, job_args.price, settings, &home, printer)?, None),
    };
    if let Some(sweep) = &job.sweep {
        let known = known(settings, &home, job, printer)?;
        let preview = Preview::of(job, sweep, &plan, known, &job_args.file.to_string_lossy())?;
        if printer.is_json() {
            let value = serde_json::json!({ "job": job, "plan": plan, "measured": measured, "sweep": preview.json() });
            printer.json(&value);
        } else {
            preview::lines(job, &plan, &preview).iter().for_each(|line| printer.data(line));
        }
        return Ok(crate::exit::DONE);
    }
    if printer.is_json() {
        printer.json(&serde_json::json!({ "job": job, "plan": plan, "measured": measured }));
    } else {
        for line in lines(job, &plan) {
            printer.data(line);
        }
    }
    Ok(crate::exit::DONE)
}
