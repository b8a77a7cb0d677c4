//! Our own trainer: the specification that a rank reads, and the command that starts it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use domain::rank::{self, Rendezvous, SPEC_SCHEMA, Spec};
use domain::threads::Threads;
use domain::wire::{NodeAddress, Start};
use domain::{Cause, Finding, Train};

use super::{Tools, library};
use node::folder::not_written;

/// A rank's position among those of its attempt.
#[derive(Debug, Clone)]
pub struct Seat {
    /// From 0, among all ranks.
    pub rank: u32,
    /// Number of ranks.
    pub ranks: u32,
    /// From 0, among the ranks of this machine.
    pub local_rank: u32,
    /// Number of ranks of this machine.
    pub local_ranks: u32,
    /// Node rank of this machine.
    pub node: u32,
    /// Their rendezvous address.
    pub meeting: NodeAddress,
}

/// The command that runs a rank on `data` with a specification in the attempt's folder; it will report to `socket`.
pub fn command(
    start: &Start,
    tools: &Tools,
    train: Train,
    data: &Path,
    folder: &Path,
    socket: &Path,
    seat: Seat,
) -> Result<Command, Box<Finding>> {
    let libraries = library::check(tools.libtorch.as_deref())?;
    let path = folder.join(format!("rank-{}.json", seat.rank));
    let text = serde_json::to_vec_pretty(&spec(start, train, data, socket, seat.clone()));
    let text = text.map_err(|error| Finding::new(Cause::Internal, error.to_string()))?;
    fs::write(&path, text).map_err(|error| not_written("write", &path, &error))?;
    let mut command = Command::new(&tools.rank_program);
    command.arg(&path).current_dir(folder);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let cores = u32::try_from(cores).unwrap_or(u32::MAX);
    command.envs(Threads { per_rank: start.threads, ranks: seat.local_ranks, cores }.environment());
    // What cuBLAS needs to give the same sums on every run; see PyTorch's notes on reproducibility.
    command.env("CUBLAS_WORKSPACE_CONFIG", ":4096:8");
    // A rank reads local files only, and credentials it does not have cannot leak.
    store::VARIABLES.iter().for_each(|name| {
        command.env_remove(name);
    });
    command.envs(start.job.environment());
    // As with torchrun: whatever launched the agent, these are the ranks of this attempt.
    for name in ["RANK", "LOCAL_RANK", "GROUP_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"] {
        command.env_remove(name);
    }
    command.env_remove("TORCHELASTIC_USE_AGENT_STORE");
    if seat.ranks > 1 {
        command.env("RANK", seat.rank.to_string()).env("LOCAL_RANK", seat.local_rank.to_string());
        command.env("GROUP_RANK", seat.node.to_string());
        command.env("WORLD_SIZE", seat.ranks.to_string()).env("LOCAL_WORLD_SIZE", seat.local_ranks.to_string());
        command.env("MASTER_ADDR", &seat.meeting.host).env("MASTER_PORT", seat.meeting.port.to_string());
    }
    // Before the path that was linked in, so that a rank runs on the libraries that were just checked.
    command.env("LD_LIBRARY_PATH", libraries);
    Ok(command)
}

fn spec(start: &Start, train: Train, data: &Path, socket: &Path, seat: Seat) -> Spec {
    let run = PathBuf::from(&start.folder);
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    Spec {
        schema: SPEC_SCHEMA,
        run: start.run.clone(),
        attempt: start.attempt.clone(),
        fence: start.fence,
        rank: seat.rank,
        world_size: seat.ranks,
        meeting: (seat.ranks > 1).then(|| Rendezvous {
            host: seat.meeting.host,
            port: seat.meeting.port,
            local_rank: seat.local_rank,
            is_kept: false,
            patience_s: rank::patience().saturating_add(data::preloading(&train.data).as_secs()),
            // Every attempt has its own store.
            prefix: String::new(),
        }),
        job_hash: start.job_hash.clone(),
        data: text(data.to_owned()),
        train,
        threads: start.threads,
        accept_data_change: start.accept_data_change,
        checkpoints: text(run.join("checkpoints")),
        export: text(run.join("export")),
        tokens: run.ancestors().nth(2).map(|home| text(home.join("cache/tokens"))).unwrap_or_default(),
        socket: text(socket.to_owned()),
    }
}
