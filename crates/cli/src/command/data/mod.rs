//! `gradus data`: what lies in a data set, where it goes, and how fast it becomes batches.
//!
//! Each verb is one file beside this one, its arguments and one function.

mod bench;
mod dump;
mod inspect;
mod pack;
pub mod place;
mod probe;
mod pull;
mod push;
mod recipe;
mod sync;
pub mod transfer;

use crate::error::Error;
use crate::printer::Printer;
use crate::settings::Settings;

/// Arguments of `gradus data`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    ask: Ask,
}

#[derive(Debug, clap::Subcommand)]
enum Ask {
    /// Measure how fast pictures, pictures with boxes, or texts become batches
    Bench(bench::Args),
    /// Tell what lies in a data set, and whether it is sound
    Inspect(inspect::Args),
    /// Pack a data set into shards: shuffled once, with an index and hashes
    Pack(pack::Args),
    /// Write one prepared sample as a NumPy file
    Dump(dump::Args),
    /// Send a file or folder to an object store; only what is new travels
    Push(push::Args),
    /// Fetch what was pushed, or plain objects, into a folder; only what is missing travels
    Pull(pull::Args),
    /// Measure how fast the disk below a folder is
    Probe(probe::Args),
    /// Make a target hold what a source holds, in whichever direction
    Sync(sync::Args),
}

/// Does what was asked of a data set.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &Settings, printer: &mut Printer) -> Result<u8, Error> {
    match args.ask {
        Ask::Bench(args) => bench::run(args, settings, printer),
        Ask::Inspect(args) => inspect::run(args, settings, printer),
        Ask::Pack(args) => pack::run(args, settings, printer),
        Ask::Dump(args) => dump::run(args, settings, printer),
        Ask::Push(args) => push::run(args, settings, printer),
        Ask::Pull(args) => pull::run(args, settings, printer),
        Ask::Probe(args) => probe::run(args, printer),
        Ask::Sync(args) => sync::run(args, settings, printer),
    }
}
