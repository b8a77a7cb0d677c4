//! `gradus nodes`: machines that jobs can run on over SSH.

mod add;
pub mod agent;
pub mod answer;
mod change;
pub mod cloud;
pub mod doctor;
pub mod exec;
pub mod facts;
pub mod forward;
mod list;
pub mod machines;
mod members;
mod show;
pub mod ssh;

use ::cloud::ssh::{Host, Inventory};

use crate::error::Error;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus nodes`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Add a machine: connect to it, copy gradus there, and record its hardware
    Add(add::Args),
    /// List nodes with their hardware and what runs on them
    List,
    /// Show what is known of a node: processor, disk, GPUs, software and network
    Show(show::Args),
    /// Start nothing new on a node; what runs there continues
    Drain(change::Args),
    /// Use a drained node again
    Resume(change::Args),
    /// Put a node into a pool, of which a job can ask for any node, or take it out
    Pool(change::PoolArgs),
    /// Remove a node, and what was copied to it for this home; programs and libtorch go with the last home that uses them
    Rm(change::RemoveArgs),
}

/// Carries out the subcommand.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    match args.command {
        Subcommand::Add(args) => add::run(args, settings, printer),
        Subcommand::List => list::run(settings, printer),
        Subcommand::Show(args) => show::run(&args, settings, printer),
        Subcommand::Drain(args) => change::drain(&args, true, settings, printer),
        Subcommand::Resume(args) => change::drain(&args, false, settings, printer),
        Subcommand::Pool(args) => change::pool(&args, settings, printer),
        Subcommand::Rm(args) => change::remove(&args, settings, printer),
    }
}

/// The node of this name.
///
/// # Errors
/// [`Error::Usage`] with the names that there are.
fn find<'a>(inventory: &'a Inventory, name: &str) -> Result<&'a Host, Error> {
    inventory.hosts.iter().find(|host| host.name == name).ok_or_else(|| {
        let names: Vec<&str> = inventory.hosts.iter().map(|host| host.name.as_str()).collect();
        let message = match names.is_empty() {
            true => format!("there is no node `{name}`, for none was added yet"),
            false => format!("there is no node `{name}`; there are {}", names.join(", ")),
        };
        Error::Usage { message, hint: "add one with `gradus nodes add NAME --address user@host`".to_owned() }
    })
}
