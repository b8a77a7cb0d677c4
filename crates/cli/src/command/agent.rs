//! `gradus agent`: one node, looked after. A provider starts it.

use std::path::PathBuf;

use crate::error::Error;
use crate::settings::Settings;

/// Arguments of `gradus agent`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder of its instance
    #[arg(long)]
    folder: PathBuf,
}

/// Looks after one node until it is told to leave.
///
/// # Errors
/// [`Error::Agent`].
pub fn run(args: Args, settings: &Settings) -> Result<u8, Error> {
    if let Some(chaos) = &settings.chaos {
        chaos::aim(chaos, "agent");
    }
    Ok(agent::attend(agent::Settings { folder: args.folder, access: settings.access.clone() })?.exit_code())
}
