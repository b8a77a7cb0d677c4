//! `gradus plan JOB --profile N`: a user's program for a few steps on this machine, outside of any run.
//!
//! It is started as an attempt starts it, in a copy of its working folder and with nothing to resume from. The package
//! `gradus` in it times its steps (`GRADUS_PROFILE`), writes them to a file (`GRADUS_PROFILE_TO`) and ends its process;
//! whatever else the program has started is ended here.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command as Process;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use domain::wire::Start;
use domain::{Cause, Command, Fence, Finding, Job, RunId, Work};
use node::session;
use rustix::process::{Pid, Signal, kill_process_group};
use serde::Deserialize;
use store::Access;

use super::super::verdict::Role;
use super::super::workdir::{self, MountTarget, WorkdirSource};
use super::{Resume, command};
use crate::travel::Brought;
use node::folder::not_written;
use node::log::tail;

/// Between two looks for the file.
const LOOK: Duration = Duration::from_millis(20);

/// What a program says of its steps.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub struct ProfiledSteps {
    /// Each logged step, and when it was logged, in seconds since 1970.
    pub steps: Vec<(u64, f64)>,
    /// When the program was started; set here.
    #[serde(default)]
    pub started: f64,
    /// Steps in all, if the program has said so; otherwise 0.
    pub total: u64,
    /// Samples of a step, if it has said so; otherwise 0.
    pub samples: u64,
    /// Parameters of the models that were loaded or saved; 0 if there were none.
    pub parameters: u64,
    /// Peak memory of the process in bytes.
    pub memory: u64,
    /// Peak memory of its GPU in bytes; 0 without one.
    pub gpu_memory: u64,
    /// Name of the device that it trained on.
    pub device: String,
}

/// Runs the program of `job` in `folder`, which is made and removed by the caller, until it has logged `steps` steps more than
/// the first.
///
/// # Errors
/// Why there are no steps.
pub fn profile(
    job: &Job,
    folder: &Path,
    steps: u32,
    (user_home, access): (Option<PathBuf>, Access),
) -> Result<ProfiledSteps, Box<Finding>> {
    let Work::Command(program) = &job.work else {
        let message = "only a job that runs a program can be profiled";
        return Err(Box::new(Finding::new(Cause::Job, message).hint("use `--calibrate` for `train:`")));
    };
    if program.image.is_some() {
        let message = "a program in a container (`image_id`) cannot be profiled";
        let hint =
            "leave `image_id` out and run the program where its packages are installed, or plan without `--profile`";
        return Err(Box::new(Finding::new(Cause::Job, message).hint(hint)));
    }
    let checkpoints = folder.join("checkpoints");
    fs::create_dir_all(&checkpoints).map_err(|error| not_written("make", &checkpoints, &error))?;
    let source = program.workdir.as_deref().map(|path| WorkdirSource::Original(path.into()));
    workdir::prepare(source.as_ref(), &folder.join("workdir"), &(checkpoints, program.outputs.clone()))?;
    let target = MountTarget { attempt: folder.to_owned(), root: folder.to_owned(), user_home, access };
    let _placed = workdir::place(&program.file_mounts, &Brought::default(), &target)?;
    let run = RunId::new("profile".to_owned());
    let start = Start {
        attempt: run.attempt(Fence(1)),
        run,
        fence: Fence(1),
        job: job.clone(),
        job_hash: String::new(),
        threads: 1,
        accept_data_change: false,
        member: None,
        folder: folder.to_string_lossy().into_owned(),
    };
    let Command { setup, run, .. } = program;
    if let Some(text) = setup {
        let ended = wait(command(&start, Role::Setup, text, folder, &[], (None, &Resume::default()))?, folder, None)?;
        if ended.is_none_or(|code| code != 0) {
            return Err(failed("`setup` has failed", folder));
        }
    }
    let to = folder.join("profile.json");
    let mut program = command(&start, Role::Program, run, folder, &[], (None, &Resume::default()))?;
    program.env("GRADUS_PROFILE", steps.to_string()).env("GRADUS_PROFILE_TO", &to);
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    wait(program, folder, Some(&to))?;
    let found = fs::read(&to).ok().and_then(|bytes| serde_json::from_slice::<ProfiledSteps>(&bytes).ok());
    match found {
        Some(found) if found.steps.len() > 1 => Ok(ProfiledSteps { started, ..found }),
        Some(_) => Err(failed("the program has logged fewer than two steps before it ended", folder)),
        None => Err(failed("the program ended, and has logged no step with `gradus.init().log(step, loss=…)`", folder)),
    }
}

/// Runs a script to its end, or until a file is there; then everything that it has started is killed.
fn wait(mut script: Process, folder: &Path, until: Option<&Path>) -> Result<Option<i32>, Box<Finding>> {
    let log = folder.join("log");
    let file = File::options().create(true).append(true).open(&log);
    let outputs = file.and_then(|file| Ok((file.try_clone()?, file)));
    let (stdout, stderr) = outputs.map_err(|error| not_written("open", &log, &error))?;
    script.stdin(std::process::Stdio::null()).stdout(stdout).stderr(stderr);
    session::own_and_bound(&mut script);
    let mut child = script.spawn().map_err(|error| not_written("start", &log, &error))?;
    let group = Pid::from_child(&child);
    let code = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status.code(),
            Ok(None) if until.is_some_and(Path::exists) => break Some(0),
            Ok(None) => std::thread::sleep(LOOK),
            Err(_) => break None,
        }
    };
    // Until it is reaped, its number is of no other group.
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait();
    Ok(code)
}

fn failed(message: &str, folder: &Path) -> Box<Finding> {
    let said = tail(&folder.join("log"));
    let said = if said.is_empty() { String::new() } else { format!("; its output ends with:\n{said}") };
    let hint = "add `run = gradus.init()` and `run.log(step, loss=loss)` to the script: docs/own-program.md";
    Box::new(Finding::new(Cause::Job, format!("{message}{said}")).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profiled(run: &str) -> Result<ProfiledSteps, String> {
        let folder = tempfile::tempdir().unwrap();
        let job = Job::parse(&format!("setup: echo made > made\nrun: |\n  {run}\n"), "job.yaml").unwrap().job;
        profile(&job, folder.path(), 3, (None, Access::default())).map_err(|finding| finding.message)
    }

    #[test]
    fn a_program_that_writes_its_steps_is_ended_with_all_that_it_has_started() {
        let text = r#"{"steps": [[1, 10.0], [2, 10.5]], "total": 9, "samples": 4, "parameters": 5, "memory": 6, "gpu_memory": 0, "device": "x"}"#;
        let begun = std::time::Instant::now();
        let write = format!("cat made; echo '{text}' > draft; mv draft $GRADUS_PROFILE_TO; sleep 60 & sleep 60");
        let found = profiled(&write).unwrap();
        assert_eq!((found.steps.len(), found.total, found.parameters), (2, 9, 5));
        assert!(found.started > 1.7e9 && begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_program_without_steps_is_told_what_it_lacks() {
        let why = profiled("echo [$GRADUS_PROFILE] [$GRADUS_RESUME]; exit 3").unwrap_err();
        assert!(why.starts_with("the program ended, and has logged no step") && why.ends_with("[3] []"), "{why}");
        let one = r#"{"steps": [[1, 1.0]], "total": 0, "samples": 0, "parameters": 0, "memory": 0, "gpu_memory": 0, "device": ""}"#;
        let why = profiled(&format!("echo '{one}' > $GRADUS_PROFILE_TO")).unwrap_err();
        assert!(why.starts_with("the program has logged fewer than two steps"), "{why}");
    }
}
