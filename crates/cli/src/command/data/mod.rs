//! `gradus data`: inspect, pack, transfer and benchmark data sets. Each sub-command is one file.

mod bench;
mod check;
mod dump;
mod inspect;
mod pack;
mod probe;
mod pull;
mod push;
mod recipe;
mod sync;

use crate::error::Error;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus data`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Benchmark the data loader on images, detection images or text
    Bench(bench::Args),
    /// Show the contents of a data set, and verify it
    Inspect(inspect::Args),
    /// Pack a data set into shuffled shards with an index and hashes
    Pack(pack::Args),
    /// Write one preprocessed sample as a NumPy file
    Dump(dump::Args),
    /// Upload a file or folder to an object store, sending only what changed
    Push(push::Args),
    /// Download pushed data or plain objects into a folder, fetching only what is missing
    Pull(pull::Args),
    /// Check that pushed data can be pulled: nothing stored is missing or damaged
    Check(check::Args),
    /// Benchmark the disk that holds a folder
    Probe(probe::Args),
    /// Copy a folder to an address, or an address to a folder, transferring only what differs; extra files stay unless
    /// `--delete` is given
    Sync(sync::Args),
}

/// Runs the sub-command.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    match args.command {
        Subcommand::Bench(args) => bench::run(args, settings, printer),
        Subcommand::Inspect(args) => inspect::run(args, settings, printer),
        Subcommand::Pack(args) => pack::run(args, settings, printer),
        Subcommand::Dump(args) => dump::run(args, settings, printer),
        Subcommand::Push(args) => push::run(args, settings, printer),
        Subcommand::Pull(args) => pull::run(args, settings, printer),
        Subcommand::Check(args) => check::run(args, settings, printer),
        Subcommand::Probe(args) => probe::run(args, printer),
        Subcommand::Sync(args) => sync::run(args, settings, printer),
    }
}
