//! `gradus data push`: upload to an object store or copy to another folder.

use std::path::PathBuf;

use store::{Location, StoreFormat};

use crate::error::Error;
use crate::fetch::transfer::{TransferArgs, TransferSummary};
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus data push`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// File or folder to upload
    #[arg(value_name = "PATH")]
    pub(super) source: PathBuf,
    /// Target: `s3://BUCKET/PREFIX`, `gs://`, `az://`, `oss://`, `cos://`, or a path
    #[arg(value_name = "TARGET")]
    pub(super) target: String,
    /// Upload each file as one object that other programs can read, instead of deduplicated chunks
    #[arg(long)]
    pub(super) plain: bool,
    #[command(flatten)]
    pub(super) transfer: TransferArgs,
    /// Delete objects that the data set no longer needs
    #[arg(long)]
    pub(super) delete: bool,
    /// Read and hash everything stored at the target, and replace what is damaged
    #[arg(long, conflicts_with = "plain")]
    pub(super) verify: bool,
}

/// Uploads what is new.
///
/// # Errors
/// [`Error::Store`]; the same command resumes it.
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let Args { source, target, plain, transfer, delete, verify } = args;
    let form = if plain { StoreFormat::Plain } else { StoreFormat::Chunks };
    let location: Location = target.parse()?;
    store::may_push(&source, &location)?;
    let remote = store::open(&location, &settings.access, transfer.limits())?;
    let options = store::Options { verify, ..transfer.options(form, delete, settings) };
    let begun = transfer.begin(&remote);
    let pushed = begun.watch(printer, |meter| store::push(&source, &remote, &options, meter))?;
    begun.tell(printer, &TransferSummary::pushed(&pushed, options.dry_run));
    Ok(crate::error::exit::DONE)
}
