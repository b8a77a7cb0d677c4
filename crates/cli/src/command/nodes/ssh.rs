//! `gradus ssh`: a shell on a node.

use std::os::unix::process::CommandExt;

use cloud::ssh::Connection;
use server::Home;

use crate::error::Error;
use crate::local::machine;
use crate::settings::GlobalSettings;

/// Arguments of `gradus ssh`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Name of the node
    node: String,
    /// Command to run there instead of a shell
    #[arg(trailing_var_arg = true)]
    command: Vec<String>,
}

/// Replaces this process by `ssh` with the node's address.
///
/// # Errors
/// [`Error::Usage`] for a name that is no node, [`Error::File`] when `ssh` cannot be started.
pub fn run(args: &Args, settings: &GlobalSettings) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let inventory = machine::inventory(&home)?;
    let host = super::find(&inventory, &args.node)?;
    let error = Connection::new(host, home.owner()).interactive(&args.command).exec();
    Err(Error::file("start", std::path::Path::new("ssh"))(error))
}
