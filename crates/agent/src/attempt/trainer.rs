//! Our own trainer: the specification that a rank reads, and the command that starts it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use domain::rank::{SPEC_SCHEMA, Spec};
use domain::wire::Start;
use domain::{Cause, Finding, Train};

use super::process::not_written;
use super::{Tools, library};

/// The command that runs rank 0 on `data` with a specification in the attempt's folder; it will report to `socket`.
pub fn command(
    start: &Start,
    tools: &Tools,
    train: Train,
    data: &Path,
    folder: &Path,
    socket: &Path,
) -> Result<Command, Box<Finding>> {
    let libraries = library::check(tools.libtorch.as_deref())?;
    let path = folder.join("rank-0.json");
    let text = serde_json::to_vec_pretty(&spec(start, train, data, socket));
    let text = text.map_err(|error| Finding::new(Cause::Internal, error.to_string()))?;
    fs::write(&path, text).map_err(|error| not_written("write", &path, &error))?;
    let mut command = Command::new(&tools.rank_program);
    command.arg(&path).current_dir(folder);
    command.env("OMP_NUM_THREADS", start.threads.to_string());
    // A thread that waits must sleep: spinning for a core that something else uses made steps seven times slower.
    command.env("OMP_WAIT_POLICY", "passive");
    // What cuBLAS needs to give the same sums on every run; see PyTorch's notes on reproducibility.
    command.env("CUBLAS_WORKSPACE_CONFIG", ":4096:8");
    // A rank reads local files only, and what it does not have it cannot tell.
    store::VARIABLES.iter().for_each(|name| {
        command.env_remove(name);
    });
    command.envs(&start.job.envs);
    // Before the path that was linked in, so that a rank runs on the libraries that were just checked.
    command.env("LD_LIBRARY_PATH", libraries);
    Ok(command)
}

fn spec(start: &Start, train: Train, data: &Path, socket: &Path) -> Spec {
    let run = PathBuf::from(&start.folder);
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    Spec {
        schema: SPEC_SCHEMA,
        run: start.run.clone(),
        attempt: start.attempt.clone(),
        fence: start.fence,
        rank: 0,
        world_size: 1,
        job_hash: start.job_hash.clone(),
        data: text(data.to_owned()),
        train,
        threads: start.threads,
        checkpoints: text(run.join("checkpoints")),
        export: text(run.join("export")),
        socket: text(socket.to_owned()),
    }
}
