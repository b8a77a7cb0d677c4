//! `gradus plan`: what will be done, before anything is spent.

mod job;
mod local;

use server::Home;

pub use job::JobArgs;
pub use local::{draft, lines};

use crate::error::Error;
use crate::printer::Printer;
use crate::settings::Settings;

/// Arguments of `gradus plan`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub job: JobArgs,
}

/// Prints the plan.
///
/// # Errors
/// [`Error::Job`] with everything wrong in the file, [`Error::Infeasible`] with every reason.
pub fn run(args: Args, settings: &Settings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let (job, plan) = draft(&args.job, settings, &home, printer)?;
    if printer.is_json() {
        printer.json(&serde_json::json!({ "job": job, "plan": plan }));
    } else {
        for line in lines(&job, &plan) {
            printer.data(line);
        }
    }
    Ok(crate::exit::DONE)
}
