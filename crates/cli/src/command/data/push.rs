//! `gradus data push`: upload to an object store or copy to another folder.

use std::path::{Path, PathBuf};

use domain::Duration;
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
    /// Grace period of `--delete`: readers of an earlier version of the data set can finish in it; `0s` removes objects
    /// at once
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = Duration::parse_with_unit)]
    pub(super) grace: Duration,
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
    let options = store::Options { verify, grace: whole_seconds(grace), ..transfer.options(form, delete, settings) };
    let begun = transfer.begin(&remote);
    let pushed = begun.watch(printer, |meter| store::push(&source, &remote, &options, meter))?;
    begun.tell(printer, &TransferSummary::pushed(&pushed, options.dry_run));
    Ok(crate::error::exit::DONE)
}

/// A grace period as the store counts it. Part of a second is a second: only none at all removes objects at once.
fn whole_seconds(grace: Duration) -> std::time::Duration {
    std::time::Duration::from_secs(grace.micros().div_ceil(1_000_000))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_grace_period_of_nothing_removes_objects_at_once() {
        let seconds = |text: &str| whole_seconds(text.parse().unwrap()).as_secs();
        assert_eq!((seconds("0s"), seconds("500ms"), seconds("1.2s"), seconds("24h")), (0, 1, 2, 86_400));
    }
}
