//! `gradus data pull`: download from an object store, a web server or another folder.

use std::path::PathBuf;

use store::{Location, StoreFormat};

use crate::error::Error;
use crate::fetch::transfer::{TransferArgs, TransferSummary};
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus data pull`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Source: pushed data, plain objects under a prefix, or one object
    #[arg(value_name = "SOURCE")]
    pub(super) source: String,
    /// Target folder
    #[arg(value_name = "FOLDER")]
    pub(super) target: PathBuf,
    #[command(flatten)]
    pub(super) transfer: TransferArgs,
    /// Delete files of the folder that the source does not have
    #[arg(long)]
    pub(super) delete: bool,
}

/// Downloads missing data.
///
/// # Errors
/// [`Error::Store`]; the same command resumes it.
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let Args { source, target, transfer, delete } = args;
    let location: Location = source.parse()?;
    store::may_pull(&location, &target)?;
    let remote = store::open(&location, &settings.access, transfer.limits())?;
    // The stored data determines its format.
    let options = transfer.options(StoreFormat::Chunks, delete, settings);
    let begun = transfer.begin(&remote);
    let pulled = begun.watch(printer, |meter| store::pull(&remote, &target, &options, meter))?;
    begun.tell(printer, &TransferSummary::pulled(&pulled, options.dry_run));
    Ok(crate::error::exit::DONE)
}
