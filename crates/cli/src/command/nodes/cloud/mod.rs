//! `gradus cloud`: what an account of a cloud allows, and what is rented there.

pub mod audit;
mod check;

use crate::error::Error;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus cloud`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Show who you are to a cloud, what you may do there, and which permissions are missing; changes nothing
    Check(check::Args),
    /// Print the least IAM policy with which jobs can be run
    Policy(check::PolicyArgs),
    /// List rented machines in all regions, with their price per hour and whether a run uses them
    Audit(audit::Args),
}

/// A cloud that machines can be rented from.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum CloudName {
    Aws,
}

/// Carries out the subcommand.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    match args.command {
        Subcommand::Check(args) => check::run(&args, settings, printer),
        Subcommand::Policy(args) => check::policy(&args, printer),
        Subcommand::Audit(args) => audit::run(&args, settings, printer),
    }
}
