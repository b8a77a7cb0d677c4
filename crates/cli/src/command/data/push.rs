//! `gradus data push`: from here to an object store or another folder.

use std::path::PathBuf;

use store::{Form, Location};

use super::transfer::{Told, TransferArgs};
use crate::error::Error;
use crate::printer::Printer;
use crate::settings::Settings;

/// Arguments of `gradus data push`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The file or folder to send
    #[arg(value_name = "PATH")]
    pub(super) source: PathBuf,
    /// Where to: a path, or `s3://BUCKET/PREFIX`, `gs://`, `az://`, `oss://`, `cos://`
    #[arg(value_name = "TARGET")]
    pub(super) target: String,
    /// Store a file an object, which other programs can read, and not as chunks, of which only new ones are sent
    #[arg(long)]
    pub(super) plain: bool,
    #[command(flatten)]
    pub(super) transfer: TransferArgs,
    /// Remove objects that the data set does not need any more
    #[arg(long)]
    pub(super) delete: bool,
}

/// Sends what is new.
///
/// # Errors
/// [`Error::Store`]; the same command goes on where it was.
pub fn run(args: Args, settings: &Settings, printer: &mut Printer) -> Result<u8, Error> {
    let Args { source, target, plain, transfer, delete } = args;
    let form = if plain { Form::Plain } else { Form::Chunks };
    let location: Location = target.parse()?;
    store::may_push(&source, &location)?;
    let remote = store::open(&location, &settings.access, transfer.limits())?;
    let options = transfer.options(form, delete, settings);
    let begun = transfer.begin(&remote);
    let pushed = begun.watch(printer, |meter| store::push(&source, &remote, &options, meter))?;
    begun.tell(printer, &Told::pushed(&pushed, options.dry_run));
    Ok(crate::exit::DONE)
}
