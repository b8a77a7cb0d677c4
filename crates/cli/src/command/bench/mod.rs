//! `gradus bench`: training speed of this machine, time to a target accuracy, and the history of both; learning rates and
//! batches to choose from.

mod batch;
mod history;
mod lr;
mod record;
mod time_to_train;
mod train;

use crate::error::Error;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Benchmark the training step of a model: step time, samples/s, peak memory
    Train(train::Args),
    /// Measure time to a target accuracy over several seeds
    TimeToTrain(time_to_train::Args),
    /// Suggest a learning rate: train some steps while the rate grows, and find where the loss falls most steeply
    Lr(lr::Args),
    /// Find the fastest number of samples at a time that fits into memory; the batch of a step stays
    Batch(batch::Args),
    /// Compare the newest measurement of each case with earlier ones on the same machine
    History(history::Args),
}

/// Runs the sub-command.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    match args.command {
        Subcommand::Train(args) => train::run(&args, settings, printer),
        Subcommand::TimeToTrain(args) => time_to_train::run(&args, settings, printer),
        Subcommand::Lr(args) => lr::run(args, settings, printer),
        Subcommand::Batch(args) => batch::run(&args, settings, printer),
        Subcommand::History(args) => history::run(&args, settings, printer),
    }
}
