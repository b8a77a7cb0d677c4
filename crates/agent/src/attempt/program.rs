//! The user's own program: bash scripts with the variables that torchrun and SkyPilot give to theirs.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

use domain::wire::Start;

use super::process::not_written;
use super::verdict::Role;
use domain::Finding;

/// The command that runs `text` in the attempt's working folder, as a script of its own so that a message of bash
/// names its line.
pub fn command(start: &Start, role: Role, text: &str, folder: &Path) -> Result<Command, Box<Finding>> {
    let script = folder.join(if role == Role::Setup { "setup.sh" } else { "run.sh" });
    fs::write(&script, text).map_err(|error| not_written("write", &script, &error))?;
    let checkpoints = Path::new(&start.folder).join("checkpoints");
    let mut command = Command::new("bash");
    command.arg(&script).current_dir(folder.join("workdir"));
    command.envs(start.job.environment()).envs(environment(start, &checkpoints, free_port()));
    Ok(command)
}

/// What a program finds in its environment: one node, one rank.
fn environment(start: &Start, checkpoints: &Path, port: u16) -> Vec<(&'static str, String)> {
    let one = "1".to_owned();
    let zero = "0".to_owned();
    let address = "127.0.0.1".to_owned();
    vec![
        ("RANK", zero.clone()),
        ("LOCAL_RANK", zero.clone()),
        ("GROUP_RANK", zero.clone()),
        ("NODE_RANK", zero.clone()),
        ("WORLD_SIZE", one.clone()),
        ("LOCAL_WORLD_SIZE", one.clone()),
        ("MASTER_ADDR", address.clone()),
        ("MASTER_PORT", port.to_string()),
        ("PET_NNODES", one.clone()),
        ("PET_NPROC_PER_NODE", one.clone()),
        ("PET_NODE_RANK", zero.clone()),
        ("PET_MASTER_ADDR", address.clone()),
        ("PET_MASTER_PORT", port.to_string()),
        ("SKYPILOT_NODE_RANK", zero.clone()),
        ("SKYPILOT_NODE_IPS", address),
        ("SKYPILOT_NUM_NODES", one),
        ("SKYPILOT_NUM_GPUS_PER_NODE", zero),
        // The run's, not the attempt's: a program that resumes finds the same name after a recovery.
        ("SKYPILOT_TASK_ID", start.run.to_string()),
        ("GRADUS_RUN", start.run.to_string()),
        ("GRADUS_CHECKPOINTS", checkpoints.to_string_lossy().into_owned()),
    ]
}

/// A port that nobody uses now. Another program may take it before this one does, which torchrun risks as well.
pub fn free_port() -> u16 {
    let port = TcpListener::bind(("127.0.0.1", 0)).and_then(|listener| listener.local_addr());
    port.map_or(29500, |address| address.port())
}
