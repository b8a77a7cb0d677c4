//! `gradus data sync`: makes the target hold what the source holds, in whichever direction.

use std::path::PathBuf;

use store::Location;

use super::transfer::TransferArgs;
use super::{pull, push};
use crate::error::Error;
use crate::printer::Printer;
use crate::settings::Settings;

/// Arguments of `gradus data sync`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to copy: a path, or an address to fetch from
    #[arg(value_name = "SOURCE")]
    source: String,
    /// Where to: an address, or a folder when the source is an address
    #[arg(value_name = "TARGET")]
    target: String,
    /// Store a file an object when sending
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    transfer: TransferArgs,
    /// Remove at the target what the source does not have
    #[arg(long)]
    delete: bool,
}

/// Pushes or pulls, by where source and target are.
///
/// # Errors
/// [`Error::Store`]; the same command goes on where it was.
pub fn run(args: Args, settings: &Settings, printer: &mut Printer) -> Result<u8, Error> {
    let Args { source, target, plain, transfer, delete } = args;
    let ends: [Location; 2] = [source.parse()?, target.parse()?];
    match [ends[0].local(), ends[1].local()] {
        [Some(path), _] => {
            let path = path.to_owned();
            push::run(push::Args { source: path, target, plain, transfer, delete }, settings, printer)
        }
        [None, Some(path)] => {
            let target: PathBuf = path.to_owned();
            pull::run(pull::Args { source, target, transfer, delete }, settings, printer)
        }
        [None, None] => {
            let message = "neither end is on this machine".to_owned();
            Err(Error::Usage { message, hint: "pull into a folder first, then push that".into() })
        }
    }
}
