//! `cargo xtask bench server`: the resources of a server with a long history and many agents, compared with those of
//! other servers at rest.

mod agent;

use std::path::Path;

use xtask::build;
use xtask::doing::{self, Outcome};

use crate::measure::quiet::Watch;

pub use agent::agent;

/// Resident memory (PSS) of an idle local server, measured on a machine with two cores after a minute without a job.
const PEERS: &str = "others, idle: SkyPilot 0.14.1 1,682 MiB in 13 processes, dstack 0.22.5 250 MiB in one";

/// Runs the example `load` of the package `gradus-server` with these arguments.
pub fn server(root: &Path, arguments: &[String]) -> Outcome {
    let build = ["build", "--release", "--workspace", "--bin", "gradus"];
    doing::run(&mut doing::cargo(root, &build), "read the compiler's message above")?;
    let program = build::target(root).join("release/gradus");
    let run = ["run", "--release", "--quiet", "--package", "gradus-server", "--example", "load", "--", "--gradus"];
    let mut command = doing::cargo(root, &run);
    command.arg(program).args(arguments);
    let watch = Watch::begin(&[std::process::id()]);
    doing::run(&mut command, "read the message above")?;
    Ok(format!("{PEERS}\n{}", watch.end()))
}
