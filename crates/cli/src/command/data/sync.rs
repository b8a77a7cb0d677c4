//! `gradus data sync`: make a target match a source, in either direction.

use std::path::PathBuf;

use domain::Duration;
use store::Location;

use super::{pull, push};
use crate::error::Error;
use crate::fetch::transfer::TransferArgs;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus data sync`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Source: a path, or an address such as `s3://bucket/prefix`
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Target: an address, or a folder if the source is an address
    #[arg(value_name = "TARGET")]
    target: String,
    /// Upload each file as one object instead of chunks
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    transfer: TransferArgs,
    /// Delete from the target what the source does not have
    #[arg(long)]
    delete: bool,
    /// Grace period of `--delete`, if the target is an address of chunks
    #[arg(long, value_name = "DURATION", default_value = "24h", value_parser = Duration::parse_with_unit)]
    grace: Duration,
}

/// Pushes or pulls, by where source and target are.
///
/// # Errors
/// [`Error::Store`]; the same command resumes it.
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let Args { source, target, plain, transfer, delete, grace } = args;
    let ends: [Location; 2] = [source.parse()?, target.parse()?];
    match [ends[0].local(), ends[1].local()] {
        [Some(path), _] => {
            let path = path.to_owned();
            let args = push::Args { source: path, target, plain, transfer, delete, grace, verify: false };
            push::run(args, settings, printer)
        }
        [None, Some(path)] => {
            let target: PathBuf = path.to_owned();
            pull::run(pull::Args { source, target, transfer, delete }, settings, printer)
        }
        [None, None] => {
            let message = "source and target are both remote".to_owned();
            Err(Error::Usage { message, hint: "pull into a folder first, then push the folder".into() })
        }
    }
}
