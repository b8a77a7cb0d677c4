//! Runs `gradus-rank` for single tasks outside of runs.

pub mod steps;

use std::process::Command;

use crate::error::Error;
use crate::error::exit;
use crate::settings::GlobalSettings;

/// The command `gradus-rank WHAT ARGUMENT`, with the libtorch that was found.
///
/// # Errors
/// [`Error::Code`] if the library is missing or incomplete.
pub fn command(settings: &GlobalSettings, what: &str, argument: &str) -> Result<Command, Error> {
    let libraries = agent::libraries(settings.libtorch.as_deref()).map_err(|finding| Error::Code {
        message: finding.message,
        hint: finding.hint,
        code: exit::WORLD,
    })?;
    let mut command = Command::new(&settings.rank_program);
    command.arg(what).arg(argument).env("LD_LIBRARY_PATH", libraries);
    Ok(command)
}
