//! `gradus plan JOB --profile N`: a user's program for a few steps on this machine, outside of any run.
//!
//! It is started as an attempt starts it, in a copy of its working folder and with nothing to resume from. The package
//! `gradus` in it times its steps (`GRADUS_PROFILE`), writes them to a file (`GRADUS_PROFILE_TO`) and ends its process;
//! whatever else the program has started is ended here.

use std::fs::{self, File};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, ExitStatus};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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

/// How long a program may take to end that has timed fewer steps than asked for, for its exit code to be known.
const END: Duration = Duration::from_secs(20);

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
    /// Whether an exception that nothing caught ended it.
    #[serde(default)]
    pub failed: bool,
}

/// Runs the program of `job` in `folder`, which is made and removed by the caller, until it has logged `steps` steps more than
/// the first, or has ended well after fewer.
///
/// # Errors
/// Why there are no steps, or that the program has failed before it had logged them.
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
        let script = command(&start, Role::Setup, text, folder, &[], (None, &Resume::default()))?;
        let ended = wait(script, folder, || false)?;
        if ended.is_none_or(|status| !status.success()) {
            return Err(failed("`setup` has failed", ADD, folder));
        }
    }
    let to = folder.join("profile.json");
    let mut program = command(&start, Role::Program, run, folder, &[], (None, &Resume::default()))?;
    program.env("GRADUS_PROFILE", steps.to_string()).env("GRADUS_PROFILE_TO", &to);
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let read = || fs::read(&to).ok().and_then(|bytes| serde_json::from_slice::<ProfiledSteps>(&bytes).ok());
    let mut ends_since = None;
    let ended = wait(program, folder, || match read() {
        Some(found) if has_all(&found, steps) => true,
        Some(_) => ends_since.get_or_insert_with(Instant::now).elapsed() > END,
        None => false,
    })?;
    let found = judged(read(), ended, steps).map_err(|(message, hint)| failed(&message, hint, folder))?;
    Ok(ProfiledSteps { started, ..found })
}

/// Whether all steps that were asked for are timed; the first only begins.
fn has_all(found: &ProfiledSteps, steps: u32) -> bool {
    found.steps.len() > steps as usize
}

/// The steps that can be planned from, out of what was `found`; else why there are none, and a hint. `ended` is how the program
/// ended if it was not killed here.
fn judged(
    found: Option<ProfiledSteps>,
    ended: Option<ExitStatus>,
    steps: u32,
) -> Result<ProfiledSteps, (String, &'static str)> {
    let how = match (ended.and_then(|status| status.code()), ended.and_then(|status| status.signal())) {
        (Some(0), _) | (None, None) => None,
        (Some(code), _) => Some(format!("ended with code {code}")),
        (None, Some(signal)) => Some(format!("was ended by signal {signal}")),
    };
    let Some(found) = found else {
        return Err(match how {
            Some(how) => (format!("the program {how} before it had logged a step"), CORRECT),
            None => ("the program ended, and has logged no step with `gradus.init().log(step)`".to_owned(), ADD),
        });
    };
    if has_all(&found, steps) {
        return Ok(found);
    }
    // A script may go on after a command of it has failed.
    if let Some(how) = how.or_else(|| found.failed.then(|| "ended with an exception".to_owned())) {
        let logged = found.steps.len();
        return Err((format!("the program {how} after {logged} of the {} steps to be logged", steps + 1), CORRECT));
    }
    match found.steps.len() {
        0 | 1 => Err(("the program has logged fewer than two steps before it ended".to_owned(), ADD)),
        _ => Ok(found),
    }
}

/// The hint for a program that ends well and says nothing of steps.
const ADD: &str = "add `run = gradus.init()` and `run.log(step, loss=loss)` to the script: docs/own-program.md";

/// The hint for one that fails.
const CORRECT: &str = "correct the program first; `gradus plan` without `--profile` starts nothing";

/// Runs a script to its end, which is returned, or `until` that holds; then everything that it has started is killed.
fn wait(
    mut script: Process,
    folder: &Path,
    mut until: impl FnMut() -> bool,
) -> Result<Option<ExitStatus>, Box<Finding>> {
    let log = folder.join("log");
    let file = File::options().create(true).append(true).open(&log);
    let outputs = file.and_then(|file| Ok((file.try_clone()?, file)));
    let (stdout, stderr) = outputs.map_err(|error| not_written("open", &log, &error))?;
    script.stdin(std::process::Stdio::null()).stdout(stdout).stderr(stderr);
    session::own_and_bound(&mut script);
    let mut child = script.spawn().map_err(|error| not_written("start", &log, &error))?;
    let group = Pid::from_child(&child);
    let ended = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if until() => break None,
            Ok(None) => std::thread::sleep(LOOK),
            Err(_) => break None,
        }
    };
    // Until it is reaped, its number is of no other group.
    let _ = kill_process_group(group, Signal::KILL);
    let _ = child.wait();
    Ok(ended)
}

fn failed(message: &str, hint: &str, folder: &Path) -> Box<Finding> {
    let said = tail(&folder.join("log"));
    let said = if said.is_empty() { String::new() } else { format!("; its output ends with:\n{said}") };
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

    /// What the package writes of these steps, in the file that it writes to.
    fn writing(steps: &str, failed: bool) -> String {
        let text = format!(
            r#"{{"steps": {steps}, "total": 9, "samples": 4, "parameters": 5, "memory": 6, "gpu_memory": 0, "device": "x", "failed": {failed}}}"#
        );
        format!("echo '{text}' > draft; mv draft $GRADUS_PROFILE_TO")
    }

    const ALL: &str = "[[1, 10.0], [2, 10.5], [3, 11.0], [4, 11.5]]";
    const SOME: &str = "[[1, 10.0], [2, 10.5]]";

    #[test]
    fn a_program_that_writes_its_steps_is_ended_with_all_that_it_has_started() {
        let begun = Instant::now();
        let found = profiled(&format!("cat made; {}; sleep 60 & sleep 60", writing(ALL, false))).unwrap();
        assert_eq!((found.steps.len(), found.total, found.parameters), (4, 9, 5));
        assert!(found.started > 1.7e9 && begun.elapsed() < Duration::from_secs(30));
    }

    #[test]
    fn a_program_that_ends_well_after_fewer_steps_is_planned_from_these() {
        assert_eq!(profiled(&writing(SOME, false)).unwrap().steps.len(), 2);
    }

    #[test]
    fn a_program_that_fails_is_not_planned_from() {
        let why = profiled(&format!("{}; echo boom; exit 3", writing(SOME, false))).unwrap_err();
        let expected = "the program ended with code 3 after 2 of the 4 steps to be logged; its output ends with:\nboom";
        assert_eq!(why, expected);
        let why = profiled(&format!("{}; kill -9 $$", writing(SOME, false))).unwrap_err();
        assert!(why.starts_with("the program was ended by signal 9 after 2 of"), "{why}");
        // The script itself continues, and ends well.
        let why = profiled(&format!("{}; echo done", writing(SOME, true))).unwrap_err();
        assert!(why.starts_with("the program ended with an exception after 2 of"), "{why}");
    }

    #[test]
    fn a_program_without_steps_is_told_what_it_lacks() {
        let why = profiled("echo [$GRADUS_PROFILE] [$GRADUS_RESUME]").unwrap_err();
        assert!(why.starts_with("the program ended, and has logged no step") && why.ends_with("[3] []"), "{why}");
        let why = profiled("exit 3").unwrap_err();
        assert_eq!(why, "the program ended with code 3 before it had logged a step");
        let why = profiled(&writing("[[1, 1.0]]", false)).unwrap_err();
        assert!(why.starts_with("the program has logged fewer than two steps"), "{why}");
    }
}
