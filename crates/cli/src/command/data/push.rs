//! `gradus data push`: upload to an object store or copy to another folder.

use std::path::{Path, PathBuf};
use std::time::Duration;

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
    /// Delete objects that the data set no longer needs: a push marks them, and the first one after the grace period removes
    /// them (with `--plain`, at once)
    #[arg(long)]
    pub(super) delete: bool,
    /// Grace period of `--delete` in hours: readers of an earlier version of the data set can finish in it; 0 removes
    /// objects at once
    #[arg(long, value_name = "HOURS", default_value_t = 24)]
    pub(super) grace: u32,
    /// Read and hash everything stored at the target, and replace what is damaged
    #[arg(long, conflicts_with = "plain")]
    pub(super) verify: bool,
}

/// Uploads new data.
///
/// # Errors
/// [`Error::Store`]; the same command resumes it.
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let Args { source, target, plain, transfer, delete, grace, verify } = args;
    let form = if plain { StoreFormat::Plain } else { StoreFormat::Chunks };
    let location: Location = target.parse()?;
    refuse_home(&location, settings)?;
    store::may_push(&source, &location)?;
    let remote = store::open(&location, &settings.access, transfer.limits())?;
    let grace = Duration::from_secs(u64::from(grace) * 3600);
    let options = store::Options { verify, grace, ..transfer.options(form, delete, settings) };
    let begun = transfer.begin(&remote);
    let pushed = begun.watch(printer, |meter| store::push(&source, &remote, &options, meter))?;
    begun.tell(printer, &TransferSummary::pushed(&pushed, options.dry_run));
    Ok(crate::error::exit::DONE)
}

/// Refuses the home folder as a target: what is stored would lie among runs and keys.
fn refuse_home(target: &Location, settings: &GlobalSettings) -> Result<(), Error> {
    let whole =
        |path: &Path| path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.into());
    match target.local() {
        Some(path) if whole(path).starts_with(whole(&settings.home)) => Err(Error::Usage {
            message: format!("`{target}` is in the home of gradus, which holds its runs and keys"),
            hint: "name another folder".to_owned(),
        }),
        _ => Ok(()),
    }
}
