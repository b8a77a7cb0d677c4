//! `gradus plan JOB --profile N`: a plan for this machine from steps of the user's own program.

use std::path::PathBuf;

use agent::ProfiledSteps;
use domain::{Bytes, Duration, Job, Plan, Rate, Work};
use plan::local::{JobFacts, ProgramProfile};
use server::Home;

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
/// [`Error::Code`] if the program fails, or logs no steps.
pub fn draft(
    job: &Job,
    price: Rate,
    steps: u32,
    settings: &GlobalSettings,
    home: &Home,
    printer: &mut Printer,
) -> Result<Plan, Error> {
    let folder = Folder::make(settings)?;
    printer.say(format!("timing {steps} steps of the program on this machine …"));
    let of_machine = (GlobalSettings::variable("HOME").map(PathBuf::from), settings.access.clone());
    let found = agent::profile(job, &folder.attempt(), steps, of_machine).map_err(|finding| Error::Code {
        message: finding.message.clone(),
        hint: finding.hint.clone(),
        code: exit::RUN_FAILED,
    })?;
    let timed = found.steps.len().saturating_sub(1);
    if timed < steps as usize {
        printer.say(format!("the program ended after {timed} of these {steps} steps"));
    }
    let facts = JobFacts { program: Some(profile(&found)), ..JobFacts::default() };
    draft_known(job, price, &facts, settings, home)
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

/// A folder for the program's files, which is removed when the plan is made.
struct Folder(PathBuf);

impl Folder {
    fn make(settings: &GlobalSettings) -> Result<Folder, Error> {
        let path = settings.home.join("cache").join(format!("profile-{}", std::process::id()));
        let folder = Folder(path);
        let attempt = folder.attempt();
        std::fs::create_dir_all(&attempt).map_err(Error::file("make the folder", &attempt))?;
        Ok(folder)
    }

    /// Named like that of an attempt, so that what a profile that was killed has put in place is known as gradus's.
    fn attempt(&self) -> PathBuf {
        self.0.join("attempts/1")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
