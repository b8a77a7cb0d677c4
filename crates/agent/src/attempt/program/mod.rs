//! The user's own program: bash scripts with the variables that torchrun and SkyPilot give to theirs.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::Path;
use std::process::Command;

use domain::wire::{NodeAddress, NodeRank, Start};

mod contained;
mod container;
mod failed;
mod hosts;
mod idle;
mod link;
mod observed;
mod profile;
mod resume;
mod set_up;
mod start;
mod torchrun;
mod user;

pub use contained::container_request;
pub use container::{Container, StopScope};
pub use failed::of_first_failed;
pub use idle::Idleness;
pub use link::ProgramLink;
pub use observed::{Observer, PriorState, WatchedPlaces};
pub use profile::{ProfileWatch, ProfiledSteps, end_profile, profile};
pub use resume::Resume;
pub use set_up::{SetupKey, forget_setup};

use super::verdict::Role;
use domain::Finding;
use node::folder::not_written;

/// The command that runs `text` in the attempt's working folder, as a script file so that error messages of bash have
/// its line numbers. `nodes` are the machines of the attempt by node rank, if there are several. The program finds its
/// agent's `socket`, and what of its framework's checkpoints it can `resume` from.
pub fn command(
    start: &Start,
    role: Role,
    text: &str,
    folder: &Path,
    nodes: &[NodeAddress],
    (socket, resume): (Option<&Path>, &Resume),
) -> Result<Command, Box<Finding>> {
    let script = folder.join(if role == Role::Setup { "setup.sh" } else { "run.sh" });
    fs::write(&script, text).map_err(|error| not_written("write", &script, &error))?;
    let checkpoints = Path::new(&start.folder).join("checkpoints");
    let mut command = Command::new("bash");
    command.arg(&script).current_dir(folder.join("workdir"));
    let gpus = gpus_of(start);
    // A job may have its own.
    command.envs(hosts::variables(folder, start.member, nodes, gpus)?);
    command.envs(start.job.environment()).envs(environment(start, &checkpoints, nodes, gpus));
    // Variables set by an agent around this one do not concern this program.
    command.envs(limits(start)).env_remove("GRADUS_SOCKET").env("GRADUS_RESUME", resume.variable());
    if let Some(socket) = socket.filter(|_| role == Role::Program) {
        command.env("GRADUS_SOCKET", socket);
    }
    Ok(command)
}

/// The limits of the job, for the program; empty if there are none.
fn limits(start: &Start) -> [(&'static str, String); 2] {
    let budget = start.job.budget.map_or(String::new(), |budget| format!("{:.6}", budget.max.micros() as f64 / 1e6));
    let deadline = start.job.deadline.map_or(String::new(), |deadline| (deadline.micros() / 1_000_000).to_string());
    [("GRADUS_BUDGET", budget), ("GRADUS_DEADLINE", deadline)]
}

/// The environment of a program: one process per node, with the node's rank.
fn environment(start: &Start, checkpoints: &Path, nodes: &[NodeAddress], gpus: usize) -> Vec<(&'static str, String)> {
    let place = start.member.unwrap_or(NodeRank { rank: 0, nodes: 1 });
    let (node, count) = (place.rank.to_string(), place.nodes.to_string());
    let alone = NodeAddress { host: HERE.to_owned(), port: free_port() };
    let NodeAddress { host, port } = nodes.first().unwrap_or(&alone).clone();
    let addresses: Vec<&str> = nodes.iter().map(|node| node.host.as_str()).collect();
    let addresses = if addresses.is_empty() { HERE.to_owned() } else { addresses.join("\n") };
    vec![
        ("RANK", node.clone()),
        ("LOCAL_RANK", "0".to_owned()),
        ("GROUP_RANK", node.clone()),
        ("NODE_RANK", node.clone()),
        ("WORLD_SIZE", count.clone()),
        ("LOCAL_WORLD_SIZE", "1".to_owned()),
        ("MASTER_ADDR", host.clone()),
        ("MASTER_PORT", port.to_string()),
        ("PET_NNODES", count.clone()),
        // As `torchrun --nproc-per-node auto`.
        ("PET_NPROC_PER_NODE", gpus.max(1).to_string()),
        ("PET_NODE_RANK", node.clone()),
        ("PET_MASTER_ADDR", host),
        ("PET_MASTER_PORT", port.to_string()),
        ("SKYPILOT_NODE_RANK", node),
        ("SKYPILOT_NODE_IPS", addresses),
        ("SKYPILOT_NUM_NODES", count),
        ("SKYPILOT_NUM_GPUS_PER_NODE", gpus.to_string()),
        // The run's, not the attempt's: a program that resumes finds the same name after a recovery.
        ("SKYPILOT_TASK_ID", start.run.to_string()),
        ("GRADUS_RUN", start.run.to_string()),
        ("GRADUS_ATTEMPT_NUMBER", start.fence.0.to_string()),
        ("GRADUS_CHECKPOINTS", checkpoints.to_string_lossy().into_owned()),
    ]
}

/// GPUs that the job's processes see: those of this machine, or of them those that the job's `CUDA_VISIBLE_DEVICES` names.
pub fn gpus_of(start: &Start) -> usize {
    let list = start.job.environment().find(|(name, _)| *name == "CUDA_VISIBLE_DEVICES");
    visible(gpus(Path::new("/dev")), list.map(|(_, list)| list))
}

/// How many of so many GPUs a list names. CUDA ends it at the first entry that names none.
fn visible(gpus: usize, list: Option<&str>) -> usize {
    let Some(list) = list else { return gpus };
    let is_gpu = |entry: &&str| match entry.trim().parse::<i64>() {
        Ok(number) => usize::try_from(number).is_ok_and(|number| number < gpus),
        Err(_) => entry.trim().starts_with("GPU-") || entry.trim().starts_with("MIG-"),
    };
    list.split(',').take_while(is_gpu).count()
}

/// NVIDIA GPUs of this machine: its driver makes a device file for each, `nvidia0`, `nvidia1`, ….
fn gpus(devices: &Path) -> usize {
    let names = fs::read_dir(devices).into_iter().flatten().flatten().map(|entry| entry.file_name());
    let is_gpu = |name: std::ffi::OsString| {
        let number = name.to_str().and_then(|name| name.strip_prefix("nvidia"));
        number.is_some_and(|number| !number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit()))
    };
    names.filter(|name| is_gpu(name.clone())).count()
}

/// Loopback address for the rendezvous of processes on one machine.
pub const HERE: &str = "127.0.0.1";

/// A port that is free now. Another program may take it before this one does, a race that torchrun has too.
pub fn free_port() -> u16 {
    let port = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).and_then(|listener| listener.local_addr());
    port.map_or(29500, |address| address.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_visible_gpus_count() {
        for (list, expected) in [
            (None, 4),
            (Some("0,2"), 2),
            (Some(" 3"), 1),
            (Some(""), 0),
            (Some("-1"), 0),
            (Some("NoDevFiles"), 0),
            (Some("1,-1,0"), 1),
            (Some("0,9,1"), 1),
            (Some("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,1"), 2),
        ] {
            assert_eq!(visible(4, list), expected, "{list:?}");
        }
    }

    #[test]
    fn gpus_are_counted_by_their_device_files() {
        let devices = tempfile::tempdir().unwrap();
        for name in ["nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "nvidia", "null"] {
            fs::write(devices.path().join(name), "").unwrap();
        }
        assert_eq!(gpus(devices.path()), 3);
        assert_eq!(gpus(&devices.path().join("absent")), 0);
    }
}
