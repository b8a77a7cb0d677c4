//! `gradus plan JOB --profile N`: a plan for this machine from steps of the user's own program.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use agent::{ProfileWatch, ProfiledSteps};
use domain::{Bytes, Duration, Job, Plan, Rate, Work};
use plan::local::{JobFacts, ProgramProfile};
use server::Home;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

use super::market;
use crate::error::{Error, exit};
use crate::local::draft::draft_known;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Refuses what a profile cannot serve, before anything is started.
///
/// # Errors
/// [`Error::Usage`].
pub fn check(args: &market::Args, job: &Job) -> Result<(), Error> {
    if args.profiles().is_none() {
        return Ok(());
    }
    let usage = |message: &str, hint: &str| Err(Error::Usage { message: message.to_owned(), hint: hint.to_owned() });
    if let Work::Train(_) = job.work {
        return usage("`--profile` times a program of your own, and this job has `train:`", "use `--calibrate`");
    }
    let is_elsewhere = job.wants.node.is_some() || !job.wants.clouds.is_empty();
    if args.asks() || is_elsewhere {
        let hint = "plan for this machine: leave `--catalog` and the like out, and `infra` of the job; over the catalog, pass \
            measured steps as `--calibrate FILE.csv`";
        return usage("`--profile` plans for the machine that it runs on", hint);
    }
    Ok(())
}

/// Times steps of the job's program, and plans from them.
///
/// # Errors
/// [`Error::Code`] if the program fails, logs no steps, or is interrupted.
pub fn draft(
    job: &Job,
    price: Rate,
    steps: u32,
    settings: &GlobalSettings,
    home: &Home,
    printer: &mut Printer,
) -> Result<Plan, Error> {
    // Dropped after the folder: until that is removed, no signal ends this process at once.
    let interruption = Interruption::watch()?;
    let folder = Folder::make(&settings.home.join("cache"))?;
    printer.say(format!("timing {steps} steps of the program on this machine …"));
    let of_machine = (GlobalSettings::variable("HOME").map(PathBuf::from), settings.access.clone());
    let watch = ProfileWatch { interrupted: &interruption.0, say: &mut |line| printer.say(line) };
    let found = agent::profile(job, &folder.attempt(), steps, of_machine, watch);
    drop(folder);
    if interruption.is_over() {
        return Err(interrupted());
    }
    let found = found.map_err(|finding| Error::Code {
        message: finding.message.clone(),
        hint: finding.hint.clone(),
        code: exit::RUN_FAILED,
    })?;
    let found = found.ok_or_else(interrupted)?;
    let timed = found.steps.len().saturating_sub(1);
    if timed < steps as usize {
        printer.say(format!("the program ended after {timed} of these {steps} steps"));
    }
    let facts = JobFacts { program: Some(profile(&found)), ..JobFacts::default() };
    draft_known(job, price, &facts, settings, home)
}

/// The error for Ctrl-C.
fn interrupted() -> Error {
    let message = "interrupted; the program was ended, and nothing is planned".to_owned();
    let hint = "without `--profile`, `gradus plan` starts nothing".to_owned();
    Error::Code { message, hint: Some(hint), code: exit::INTERRUPTED }
}

/// The first Ctrl-C, SIGTERM or SIGHUP of a profile, which ends its program. Another one ends this process, and so does
/// any after the profile.
struct Interruption(Arc<AtomicBool>);

impl Interruption {
    fn watch() -> Result<Interruption, Error> {
        let heard = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the first one only sets the flag.
            flag::register_conditional_default(signal, Arc::clone(&heard)).map_err(Error::file("watch", "signals"))?;
            flag::register(signal, Arc::clone(&heard)).map_err(Error::file("watch", "signals"))?;
        }
        Ok(Interruption(heard))
    }

    /// Watches no longer, and returns whether there was one.
    fn is_over(&self) -> bool {
        self.0.swap(true, Ordering::SeqCst)
    }
}

impl Drop for Interruption {
    fn drop(&mut self) {
        self.is_over();
    }
}

/// What the steps say. A program may log only some of them; those between are taken as equally long.
fn profile(found: &ProfiledSteps) -> ProgramProfile {
    let after = |seconds: f64| Duration::from_micros((seconds.max(0.0) * 1e6).round() as u64);
    let times = found.steps.windows(2).filter_map(|pair| {
        let [(one, at), (other, then)] = [pair[0], pair[1]];
        (other > one).then(|| (other - one, (then - at) / (other - one) as f64))
    });
    let times: Vec<(u64, f64)> = times.collect();
    let timed: u64 = times.iter().map(|(steps, _)| steps).sum();
    let mean = times.iter().map(|(steps, each)| *steps as f64 * each).sum::<f64>() / timed.max(1) as f64;
    let mut each: Vec<f64> = times.iter().map(|(_, each)| *each).collect();
    each.sort_by(f64::total_cmp);
    let at = |share: f64| each.get((share * (each.len() - 1) as f64).round() as usize).copied().unwrap_or(mean);
    let known = |number: u64| Some(number).filter(|number| *number > 0);
    let first = found.steps.first().copied().unwrap_or((1, found.started));
    // Steps before the first that was logged are not set-up.
    let start = first.1 - found.started - first.0.saturating_sub(1) as f64 * mean;
    ProgramProfile {
        timed,
        step: after(mean),
        range: [after(at(0.1)), after(at(0.9))],
        start: after(start),
        steps: known(found.total),
        samples: known(found.samples),
        parameters: known(found.parameters),
        memory: Bytes(found.memory),
        gpu_memory: known(found.gpu_memory).map(Bytes),
    }
}

/// A folder for the program's files, which is removed when its steps are timed. It is locked, so that no other profile
/// removes it.
struct Folder {
    path: PathBuf,
    _lock: Option<node::Lock>,
}

impl Folder {
    fn make(cache: &Path) -> Result<Folder, Error> {
        clear(cache);
        let path = cache.join(format!("{PREFIX}{}", std::process::id()));
        let mut folder = Folder { path, _lock: None };
        let attempt = folder.attempt();
        std::fs::create_dir_all(&attempt).map_err(Error::file("make the folder", &attempt))?;
        folder._lock = node::Folder::new(&folder.path).lock().map_err(Error::file("lock", &folder.path))?;
        Ok(folder)
    }

    /// Named like that of an attempt, so that what a profile that was killed has put in place is known as gradus's.
    fn attempt(&self) -> PathBuf {
        attempt_in(&self.path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.path);
    }
}

/// What the name of a profile's folder begins with; the number of its process follows.
const PREFIX: &str = "profile-";

fn attempt_in(folder: &Path) -> PathBuf {
    folder.join("attempts/1")
}

/// Removes the folders of profiles that were killed, and ends what still runs in them.
fn clear(cache: &Path) {
    for entry in std::fs::read_dir(cache).into_iter().flatten().flatten() {
        let Some(owner) = owner(&entry.file_name().to_string_lossy()) else { continue };
        let path = entry.path();
        let is_held = node::Folder::new(&path).is_held().unwrap_or(true);
        let lives = owner != std::process::id() && Path::new("/proc").join(owner.to_string()).exists();
        if is_left(is_held, lives) {
            agent::end_profile(&attempt_in(&path));
            let _ = std::fs::remove_dir_all(&path);
        }
    }
}

/// The process that a folder with this name belongs to, if it is that of a profile.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.parse().ok()
}

/// Whether nobody uses a folder any more. One that is being made is not locked yet, and the process of one that is locked
/// may be in another container.
fn is_left(is_held: bool, lives: bool) -> bool {
    !is_held && !lives
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_of_killed_profiles_are_removed_and_no_others() {
        let cache = tempfile::tempdir().unwrap();
        let made = |name: &str| {
            let path = cache.path().join(name);
            std::fs::create_dir_all(attempt_in(&path)).unwrap();
            path
        };
        // Numbers of processes end far below the first; 1 lives as long as the machine.
        let (killed, held) = (made("profile-4000000001"), made("profile-4000000002"));
        let others = [made("profile-1"), made("profile-x"), made("data")];
        let lock = node::Folder::new(&held).lock().unwrap();
        let folder = Folder::make(cache.path()).unwrap();
        assert!(!killed.exists() && held.exists() && others.iter().all(|path| path.exists()));
        let own = folder.path.clone();
        assert!(own.is_dir());
        drop((folder, lock));
        assert!(!own.exists());
    }

    #[test]
    fn a_folder_is_left_when_it_is_not_locked_and_its_process_is_gone() {
        let of = [(false, false), (true, false), (false, true), (true, true)];
        assert_eq!(of.map(|(is_held, lives)| is_left(is_held, lives)), [true, false, false, false]);
        assert_eq!(["profile-7", "profile-", "profile-7x", "pieces"].map(owner), [Some(7), None, None, None]);
    }

    #[test]
    fn steps_that_were_logged_now_and_then_are_as_long_as_those_between() {
        let found = ProfiledSteps {
            steps: vec![(10, 105.0), (20, 106.0), (30, 108.0), (40, 109.0)],
            started: 100.0,
            total: 0,
            samples: 32,
            parameters: 7,
            memory: 1_000,
            gpu_memory: 0,
            device: "cpu".into(),
            failed: false,
        };
        let known = profile(&found);
        assert_eq!((known.timed, known.step.micros()), (30, 133_333));
        assert_eq!(known.range.map(|time| time.micros()), [100_000, 200_000]);
        // Nine steps were before the first one that was logged.
        assert_eq!(known.start.micros(), 3_800_000);
        assert_eq!((known.steps, known.samples, known.gpu_memory), (None, Some(32), None));
    }
}
