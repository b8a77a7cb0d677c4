//! `gradus data pull`: from an object store, a web server or another folder to here.

use std::path::PathBuf;

use store::{Form, Location};

use super::transfer::{Told, TransferArgs};
use crate::error::Error;
use crate::printer::Printer;
use crate::settings::Settings;

/// Arguments of `gradus data pull`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to fetch: what was pushed there, or plain objects below a prefix, or one object
    #[arg(value_name = "SOURCE")]
    pub(super) source: String,
    /// The folder that its files are put into
    #[arg(value_name = "FOLDER")]
    pub(super) target: PathBuf,
    #[command(flatten)]
    pub(super) transfer: TransferArgs,
    /// Remove files of the folder that the source does not have
    #[arg(long)]
    pub(super) delete: bool,
}

/// Fetches what is missing.
///
/// # Errors
/// [`Error::Store`]; the same command goes on where it was.
pub fn run(args: Args, settings: &Settings, printer: &mut Printer) -> Result<u8, Error> {
    let Args { source, target, transfer, delete } = args;
    let location: Location = source.parse()?;
    store::may_pull(&location, &target)?;
    let remote = store::open(&location, &settings.access, transfer.limits())?;
    // What is stored says itself in which form.
    let options = transfer.options(Form::Chunks, delete, settings);
    let begun = transfer.begin(&remote);
    let pulled = begun.watch(printer, |meter| store::pull(&remote, &target, &options, meter))?;
    begun.tell(printer, &Told::pulled(&pulled, options.dry_run));
    Ok(crate::exit::DONE)
}
