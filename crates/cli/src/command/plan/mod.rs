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
mod network;
mod page;
mod plot;
mod preset;
mod refusal;
mod remedies;
mod spot_check;
mod tell;

use std::path::PathBuf;

use server::Home;

pub use job::{JobArgs, Typed};
pub use local::{draft, known, lines, short};

use crate::error::Error;
use crate::printer::Printer;
use crate::settings::Settings;
use crate::sweep::preview::{self, Preview};

/// Arguments of `gradus plan`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    /// The job file
    #[arg(value_name = "JOB")]
    file: Option<PathBuf>,
    #[command(flatten)]
    typed: Typed,
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
    let file = args.file.as_deref().ok_or_else(|| no_job(&args.market))?;
    let price = args.typed.price;
    let read = job::read(file, &args.typed, printer)?;
    if args.market.asks() || read.unrentable.is_some() || (read.job.workload.is_some() && !read.job.wants.here) {
        return market::run(read.job, &read.source, &args.market, settings, printer);
    }
    let home = Home::open(&settings.home)?;
    let job = &read.job;
    let drafted = match args.market.calibrates() {
        true => local::draft_measured(job, price, settings, &home, printer).map(|(plan, made)| (plan, Some(made))),
        false => local::draft_here(job, price, settings, &home, printer).map(|plan| (plan, None)),
    };
    let (plan, measured) = drafted.map_err(|error| local::where_data_comes_from(error, &read.source))?;
    if let Some(sweep) = &job.sweep {
        let known = known(settings, &home, job, printer)?;
        let preview = Preview::of(job, sweep, &plan, known, &file.to_string_lossy())?;
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

/// Why nothing can be planned: no job is named, or `--calibrate` took its name for that of a table.
fn no_job(market: &market::Args) -> Error {
    let (message, hint) = match market.table() {
        Some(table) => {
            let table = table.display();
            let message = format!("no job file is named: `--calibrate` took `{table}` for its table of steps");
            (message, format!("if that is the job, name it first: `gradus plan {table} --calibrate`; else add the job"))
        }
        None if market.calibrates() => {
            let message = "no job file is named, so there is nothing whose steps could be measured".to_owned();
            (
                message,
                "name it first: `gradus plan JOB --calibrate`, or `gradus plan JOB --calibrate FILE.csv`".to_owned(),
            )
        }
        None => {
            let message = "no job file is named".to_owned();
            (message, "write `gradus plan JOB`, such as `gradus plan examples/digits.yaml`".to_owned())
        }
    };
    Error::Usage { message, hint }
}
