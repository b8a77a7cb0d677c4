//! `gradus bench`: how fast this machine trains; how long a job takes to be good enough; and what was measured before.

mod history;
mod kept;
mod time_to_train;
mod train;

use crate::error::Error;
use crate::printer::Printer;
use crate::settings::Settings;

/// Arguments of `gradus bench`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Time the training step of a model: step, samples a second, peak memory
    Train(train::Args),
    /// Run a job with several seeds until its model is good enough: seconds, epochs and dollars to an accuracy
    TimeToTrain(time_to_train::Args),
    /// Hold the newest measurement of each case against those before it on the same machine
    History(history::Args),
}

/// Measures.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &Settings, printer: &mut Printer) -> Result<u8, Error> {
    match args.what {
        What::Train(args) => train::run(&args, settings, printer),
        What::TimeToTrain(args) => time_to_train::run(&args, settings, printer),
        What::History(args) => history::run(&args, settings, printer),
    }
}
