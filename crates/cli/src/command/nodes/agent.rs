//! `gradus agent`: the agent of one machine. A provider starts it.

use std::path::PathBuf;

use crate::error::Error;
use crate::settings::GlobalSettings;

/// Arguments of `gradus agent`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Folder of the instance
    #[arg(long)]
    folder: PathBuf,
}

/// Runs until it is told to leave or its lease ends.
///
/// # Errors
/// [`Error::Agent`].
pub fn run(args: Args, settings: &GlobalSettings) -> Result<u8, Error> {
    if let Some(chaos) = &settings.chaos {
        chaos::aim(chaos, "agent");
    }
    let (access, metadata) = (settings.access.clone(), settings.metadata.clone());
    let user_home = GlobalSettings::variable("HOME").map(PathBuf::from);
    Ok(agent::attend(agent::AgentSettings { folder: args.folder, user_home, access, metadata })?.exit_code())
}
