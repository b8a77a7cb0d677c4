//! `gradus plan JOB --profile N`: a user's program for a few steps on this machine, outside of any run.
//!
//! It is started as an attempt starts it, in a copy of its working folder and with nothing to resume from. The package
//! `gradus` in it times its steps (`GRADUS_PROFILE`), writes them to a file (`GRADUS_PROFILE_TO`) and ends its process; from
//! the first step on it writes the newest one to a file beside that one. Whatever else the program has started is ended by
//! `held`.

mod held;

use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command as Process, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use domain::wire::Start;
use domain::{Cause, Command, Fence, Finding, Job, RunId, Work};
use serde::Deserialize;
use store::Access;

use super::super::verdict::Role;
use super::super::workdir::{self, MountTarget, WorkdirSource};
use super::{Resume, command};
use crate::travel::Brought;
pub use held::end_profile;
use held::{Waited, wait};
use node::folder::not_written;
use node::log::tail;

/// How long a program may take to end that has timed fewer steps than asked for, for its exit code to be known.
const END: Duration = Duration::from_secs(20);

/// How long a program may run without logging a step.
#[derive(Debug, Clone, Copy)]
struct Limits {
    /// Until the user is told what is waited for; before the first step only.
    hint: Duration,
    /// Until it is ended.
    step: Duration,
}

/// As long as a run's first step may take.
const LIMITS: Limits = Limits { hint: Duration::from_secs(60), step: Duration::from_secs(600) };

/// What connects a profile with the command that waits for it.
pub struct ProfileWatch<'a> {
    /// Whether the profile is to be ended.
    pub interrupted: &'a AtomicBool,
    /// Prints a message.
    pub say: &'a mut dyn FnMut(&str),
}

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

/// Runs the program of `job` in `folder`, which is made and removed by the caller, until it has logged `steps` steps more
/// than the first, or has ended well after fewer; `None` if it was interrupted.
///
/// # Errors
/// Why there are no steps, or that the program has failed before it had logged them.
pub fn profile(
    job: &Job,
    folder: &Path,
    steps: u32,
    access: (Option<PathBuf>, Access),
    watch: ProfileWatch,
) -> Result<Option<ProfiledSteps>, Box<Finding>> {
    profile_within(job, folder, steps, access, watch, LIMITS)
}

fn profile_within(
    job: &Job,
    folder: &Path,
    steps: u32,
    (user_home, access): (Option<PathBuf>, Access),
    watch: ProfileWatch,
    limits: Limits,
) -> Result<Option<ProfiledSteps>, Box<Finding>> {
    let program = own_program(job)?;
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
        match wait(script, folder, || interruption(watch.interrupted))? {
            Waited::Interrupted => return Ok(None),
            Waited::Exited(status) if status.success() => {}
            Waited::Exited(_) | Waited::Done | Waited::Unlogged => {
                return Err(failed("`setup` has failed", ADD, folder));
            }
        }
    }
    let script = command(&start, Role::Program, run, folder, &[], (None, &Resume::default()))?;
    timed(script, folder, steps, watch, limits)
}

/// The program of a job that can be profiled.
fn own_program(job: &Job) -> Result<&Command, Box<Finding>> {
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
    Ok(program)
}

/// Runs the program, and returns its steps; `None` if it was interrupted.
fn timed(
    mut program: Process,
    folder: &Path,
    steps: u32,
    watch: ProfileWatch,
    limits: Limits,
) -> Result<Option<ProfiledSteps>, Box<Finding>> {
    let ProfileWatch { interrupted, say } = watch;
    let (to, note) = (folder.join("profile.json"), folder.join("profile.json.first"));
    program.env("GRADUS_PROFILE", steps.to_string()).env("GRADUS_PROFILE_TO", &to);
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64());
    let read = || fs::read(&to).ok().and_then(|bytes| serde_json::from_slice::<ProfiledSteps>(&bytes).ok());
    let (mut noted, mut has_said) = (NotedStep::none(), false);
    let mut ends_since: Option<Instant> = None;
    let left = wait(program, folder, || {
        if let Some(left) = interruption(interrupted) {
            return Some(left);
        }
        if let Some(found) = read() {
            let has_ended = ends_since.get_or_insert_with(Instant::now).elapsed() > END;
            return (has_all(&found, steps) || has_ended).then_some(Waited::Done);
        }
        noted.look(&note);
        match silence(noted.since.elapsed(), noted.progress(), has_said, limits) {
            Silence::Wait => None,
            Silence::Hint => {
                has_said = true;
                say(&waits(limits));
                None
            }
            Silence::End => Some(Waited::Unlogged),
        }
    })?;
    let ended = match left {
        Waited::Interrupted => return Ok(None),
        Waited::Unlogged => {
            let message = format!("the program has logged no step within {}, and was ended", spelled(limits.step));
            let hint = match noted.progress() {
                LoggedProgress::Nothing => format!("{ADD}; {SLOW}"),
                LoggedProgress::First | LoggedProgress::Newest => HUNG.to_owned(),
            };
            return Err(failed(&message, &hint, folder));
        }
        Waited::Exited(status) => Some(status),
        Waited::Done => None,
    };
    let found = judged(read(), ended, steps).map_err(|(message, hint)| failed(&message, hint, folder))?;
    Ok(Some(ProfiledSteps { started, ..found }))
}

fn interruption(interrupted: &AtomicBool) -> Option<Waited> {
    interrupted.load(Ordering::SeqCst).then_some(Waited::Interrupted)
}

/// The newest step that a program has noted, and since when that is so.
struct NotedStep {
    text: Option<String>,
    since: Instant,
}

impl NotedStep {
    fn none() -> NotedStep {
        NotedStep { text: None, since: Instant::now() }
    }

    fn look(&mut self, note: &Path) {
        let text = fs::read_to_string(note).ok();
        if text != self.text {
            *self = NotedStep { text, since: Instant::now() };
        }
    }

    fn progress(&self) -> LoggedProgress {
        match self.text.as_deref() {
            None => LoggedProgress::Nothing,
            Some("") => LoggedProgress::First,
            Some(_) => LoggedProgress::Newest,
        }
    }
}

/// What a program says of its steps before it writes them all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LoggedProgress {
    Nothing,
    /// That it has logged one: the package of an earlier version says nothing of later ones.
    First,
    /// Which is its newest.
    Newest,
}

/// What to do about a program that is silent.
#[derive(Debug, PartialEq)]
enum Silence {
    Wait,
    Hint,
    End,
}

/// `waited` is the time since its newest step, or since its start.
fn silence(waited: Duration, progress: LoggedProgress, has_said: bool, limits: Limits) -> Silence {
    if progress == LoggedProgress::First {
        return Silence::Wait;
    }
    if waited >= limits.step {
        return Silence::End;
    }
    let is_due = waited >= limits.hint && !has_said && progress == LoggedProgress::Nothing;
    if is_due { Silence::Hint } else { Silence::Wait }
}

/// What is said once of a program that has logged no step.
fn waits(limits: Limits) -> String {
    let (waited, most) = (spelled(limits.hint), spelled(limits.step));
    format!(
        "note: the program has run for {waited} without logging a step; it is ended after {most} without one\n\
         hint: {ADD}"
    )
}

/// A duration as messages have it.
fn spelled(time: Duration) -> String {
    match time.as_secs() {
        seconds if seconds > 60 => format!("{} min", seconds / 60),
        seconds => format!("{seconds} s"),
    }
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

/// The hint for a program that needs long before its first step.
const SLOW: &str = "move what takes longer, such as a download, into `setup`, which has no limit";

/// The hint for a program that logs no more steps.
const HUNG: &str = "see where it stands: start it by itself, then run `py-spy dump --pid PID`; if its steps take longer, \
                    call `run.log(step)` more often";

/// The hint for one that fails.
const CORRECT: &str = "correct the program first; `gradus plan` without `--profile` starts nothing";

fn failed(message: &str, hint: &str, folder: &Path) -> Box<Finding> {
    let said = tail(&folder.join("log"));
    let said = if said.is_empty() { String::new() } else { format!("; its output ends with:\n{said}") };
    Box::new(Finding::new(Cause::Job, format!("{message}{said}")).hint(hint))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn profiled(run: &str) -> Result<ProfiledSteps, String> {
        let (found, said) = profiled_within(run, LIMITS, false);
        assert_eq!(said, "");
        found.map(Option::unwrap)
    }

    /// The steps, and what is said meanwhile; the program can wait for the file `said` in the folder above its own.
    fn profiled_within(
        run: &str,
        limits: Limits,
        interrupted: bool,
    ) -> (Result<Option<ProfiledSteps>, String>, String) {
        let folder = tempfile::tempdir().unwrap();
        let job = Job::parse(&format!("setup: echo made > made\nrun: |\n  {run}\n"), "job.yaml").unwrap().job;
        let mut said = String::new();
        let mut say = |line: &str| {
            said.push_str(line);
            fs::write(folder.path().join("said"), "").unwrap();
        };
        let watch = ProfileWatch { interrupted: &AtomicBool::new(interrupted), say: &mut say };
        let access = (None, Access::default());
        let found = profile_within(&job, folder.path(), 3, access, watch, limits).map_err(|finding| finding.message);
        let to = folder.path().join("profile.json");
        assert!(!node::processes::any(&[("GRADUS_PROFILE_TO", &to.to_string_lossy())]).unwrap());
        (found, said)
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

    #[test]
    fn a_program_that_logs_nothing_is_ended_in_the_end() {
        let limits = Limits { hint: Duration::from_secs(600), step: Duration::ZERO };
        let (found, said) = profiled_within("sleep 600 & sleep 600", limits, false);
        let why = found.unwrap_err();
        assert!(why.starts_with("the program has logged no step within 0 s, and was ended"), "{why}");
        assert_eq!(said, "");
    }

    #[test]
    fn a_program_that_logs_nothing_is_spoken_of_once() {
        let limits = Limits { hint: Duration::ZERO, step: Duration::from_secs(600) };
        let run = format!("until [ -e ../said ]; do sleep 0.05; done; sleep 0.2; {}", writing(SOME, false));
        let (found, said) = profiled_within(&run, limits, false);
        assert_eq!(found.unwrap().unwrap().steps.len(), 2);
        assert_eq!(said.matches("it is ended after 10 min").count(), 1, "{said}");
        assert!(said.contains("hint: add `run = gradus.init()`"), "{said}");
    }

    #[test]
    fn a_program_that_hangs_after_a_step_is_ended() {
        let folder = tempfile::tempdir().unwrap();
        // As the package does at a step.
        fs::write(folder.path().join("profile.json.first"), "7").unwrap();
        let job = Job::parse("run: sleep 20\n", "job.yaml").unwrap().job;
        let limits = Limits { hint: Duration::ZERO, step: Duration::ZERO };
        let watch = ProfileWatch { interrupted: &AtomicBool::new(false), say: &mut |line| panic!("{line}") };
        let access = (None, Access::default());
        let finding = profile_within(&job, folder.path(), 3, access, watch, limits).unwrap_err();
        assert!(finding.message.starts_with("the program has logged no step within 0 s, and was ended"), "{finding:?}");
        assert!(finding.hint.as_deref().is_some_and(|hint| hint.contains("py-spy dump")), "{finding:?}");
    }

    #[test]
    fn each_step_begins_the_time_for_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let note = folder.path().join("note");
        let mut noted = NotedStep::none();
        let mut look = |text: Option<&str>| {
            text.into_iter().for_each(|text| fs::write(&note, text).unwrap());
            let before = noted.since;
            noted.look(&note);
            (noted.progress(), noted.since > before)
        };
        assert_eq!(look(None), (LoggedProgress::Nothing, false));
        assert_eq!(look(Some("")), (LoggedProgress::First, true));
        assert_eq!(look(Some("7")), (LoggedProgress::Newest, true));
        assert_eq!(look(Some("7")), (LoggedProgress::Newest, false));
        assert_eq!(look(Some("8")), (LoggedProgress::Newest, true));
    }

    #[test]
    fn an_interrupted_profile_has_no_steps_and_no_processes() {
        let (found, said) = profiled_within("sleep 600", LIMITS, true);
        assert_eq!((found, said.as_str()), (Ok(None), ""));
    }

    #[test]
    fn a_program_without_another_step_runs_out_of_time() {
        use LoggedProgress::{First, Newest, Nothing};
        let silence =
            |seconds, progress, has_said| super::silence(Duration::from_secs(seconds), progress, has_said, LIMITS);
        assert_eq!([silence(59, Nothing, false), silence(60, Nothing, false)], [Silence::Wait, Silence::Hint]);
        assert_eq!([silence(61, Nothing, true), silence(599, Nothing, true)], [Silence::Wait, Silence::Wait]);
        assert_eq!([silence(600, Nothing, true), silence(600, Nothing, false)], [Silence::End, Silence::End]);
        assert_eq!([silence(599, Newest, false), silence(600, Newest, false)], [Silence::Wait, Silence::End]);
        // An earlier version of the package does not say whether there are more.
        assert_eq!([silence(60, First, false), silence(9_999, First, false)], [Silence::Wait, Silence::Wait]);
    }
}
