//! `gradus plan`: memory, time and cost of a job before it runs.
//!
//! A job for this machine is planned by [`draft`]; one with a `workload`, or that requests cloud machines, by
//! [`market`] over the catalog.

mod check;
mod local_page;
mod market;
mod model;
mod profiled;
mod spot_check;

use std::path::PathBuf;

use server::Home;

use crate::error::Error;
use crate::local::draft::{self, known, lines};
use crate::local::job_file::{self, JobOverrides};
use crate::local::measure::StepMeasurement;
use crate::local::{machine, weights};
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use crate::sweep::preview::{self, Preview};

/// Arguments of `gradus plan`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Args {
    /// Job file
    #[arg(value_name = "JOB")]
    file: Option<PathBuf>,
    #[command(flatten)]
    typed: JobOverrides,
    #[command(flatten)]
    market: market::Args,
    #[command(subcommand)]
    command: Option<Subcommand>,
}

/// Commands on the planner itself.
#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Compare estimates of time and memory with tables of measurements
    Check(check::Args),
    /// Show how a model file is read: parameters, multiply-adds and unknown operators
    Model(model::Args),
    /// Compare the cost model of spot machines with preemption traces
    SpotCheck(spot_check::Args),
}

/// Prints the plan.
///
/// # Errors
/// [`Error::Job`] with everything wrong in the file, [`Error::Infeasible`] with every reason.
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    match &args.command {
        Some(Subcommand::Check(args)) => return check::run(args, printer),
        Some(Subcommand::Model(args)) => return model::run(args, printer),
        Some(Subcommand::SpotCheck(args)) => return spot_check::run(args, printer),
        None => {}
    }
    let file = args.file.as_deref().ok_or_else(|| no_job(&args.market))?;
    let read = job_file::read(file, &args.typed, &GlobalSettings::variable, printer)?;
    weights::require_files(&read.job, &read.source)?;
    let is_of_a_cloud = !read.job.wants.clouds.is_empty();
    profiled::check(&args.market, &read.job)?;
    if args.market.asks()
        || read.unrentable.is_some()
        || is_of_a_cloud
        || (read.job.workload.is_some() && !read.job.wants.here && args.market.profiles().is_none())
    {
        return market::run(read.job, &read.source, &args.market, settings, printer);
    }
    let home = Home::open(&settings.home)?;
    let price = machine::price(&home, args.typed.price)?;
    let job = &read.job;
    let drafted = drafted(job, price, &args.market, settings, &home, printer);
    let is_missing = |error: &Error| matches!(error, Error::Data(data::Error::Missing { .. }));
    let (plan, measured) = match drafted {
        Ok(drafted) => drafted,
        // The job describes its data: enough for a plan over the market.
        Err(error) if is_missing(&error) && states_data(job) && !printer.is_json() => {
            printer.say(format!("note: {error}; planned from `data:`, over the catalog"));
            return market::run(read.job, &read.source, &args.market, settings, printer);
        }
        // Files that are shipped say in their first lines how to get the data.
        Err(error) if is_missing(&error) && read.source.preface().is_empty() => {
            return Err(with_hint(draft::where_data_comes_from(error, &read.source), WITHOUT_FILES));
        }
        Err(error) => return Err(draft::where_data_comes_from(error, &read.source)),
    };
    if let Some(sweep) = &job.sweep {
        let known = known(settings, &home, job, printer)?;
        let preview = Preview::of(job, sweep, &plan, known, &file.to_string_lossy())?;
        write_page(&args.market, &job.name, &preview::lines(job, &plan, &preview))?;
        if printer.is_json() {
            let value = serde_json::json!({ "job": job, "plan": plan, "measured": measured, "sweep": preview.json() });
            printer.json(&value);
        } else {
            preview::lines(job, &plan, &preview).iter().for_each(|line| printer.data(line));
        }
        return Ok(crate::error::exit::DONE);
    }
    let said = lines(job, &plan);
    write_page(&args.market, &job.name, &said)?;
    match printer.is_json() {
        true => printer.json(&serde_json::json!({ "job": job, "plan": plan, "measured": measured })),
        false => said.iter().for_each(|line| printer.data(line)),
    }
    Ok(crate::error::exit::DONE)
}

/// The plan for this machine: from steps of the job's program, from steps that are measured for it, or estimated.
fn drafted(
    job: &domain::Job,
    price: domain::Rate,
    market: &market::Args,
    settings: &GlobalSettings,
    home: &Home,
    printer: &mut Printer,
) -> Result<(domain::Plan, Option<StepMeasurement>), Error> {
    if let Some(steps) = market.profiles() {
        return profiled::draft(job, price, steps, settings, home, printer).map(|plan| (plan, None));
    }
    match market.calibrates() {
        true => draft::draft_measured(job, price, settings, home, printer).map(|(plan, made)| (plan, Some(made))),
        false => draft::draft_here(job, price, settings, (home, &|_| Ok(())), printer).map(|plan| (plan, None)),
    }
}

/// Writes the plan as a page, where that is asked for.
fn write_page(market: &market::Args, name: &str, lines: &[String]) -> Result<(), Error> {
    let Some(path) = market.page() else { return Ok(()) };
    std::fs::write(path, local_page::html(name, lines)).map_err(Error::file("write", path))
}

/// How to plan before there are files.
const WITHOUT_FILES: &str = "to plan without the files, state what they will be: \
    `data: {samples: 1281167, bytes: 140GB}` beside `train:`, then `gradus plan JOB --catalog`";

/// Whether a job specifies the number of samples of its data.
fn states_data(job: &domain::Job) -> bool {
    job.data.samples.is_some()
}

/// The same error with one more hint.
fn with_hint(error: Error, more: &str) -> Error {
    let hint = error.hint().map_or(more.to_owned(), |hint| format!("{hint}\n  {more}"));
    Error::Code { message: error.to_string(), hint: Some(hint), code: error.code() }
}

/// The error for a missing job file, including a job file that `--calibrate` consumed as its table.
fn no_job(market: &market::Args) -> Error {
    let (message, hint) = match market.table() {
        Some(table) => {
            let table = table.display();
            let message = format!("no job file: `--calibrate` took `{table}` as its table of steps");
            (
                message,
                format!(
                    "if that is the job file, put it first: `gradus plan {table} --calibrate`; otherwise add the job file"
                ),
            )
        }
        None if market.calibrates() => {
            let message = "no job file".to_owned();
            (
                message,
                "put it first: `gradus plan JOB --calibrate`, or `gradus plan JOB --calibrate FILE.csv`".to_owned(),
            )
        }
        None => {
            let message = "no job file".to_owned();
            (message, "use `gradus plan JOB`, such as `gradus plan examples/digits.yaml`".to_owned())
        }
    };
    Error::Usage { message, hint }
}
