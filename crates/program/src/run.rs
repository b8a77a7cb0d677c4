//! The calls of a program, from its first to its last.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use checkpoint::interval::Pace;
use domain::rank::{Environment, Fetching, Metrics, NotFinite, Ready, Report, Step};
use domain::train::Every;
use domain::units::Duration;
use domain::{Cause, Fence, Finding};

use crate::error::sentence_finding;
use crate::line::AgentLine;
use crate::saving::{SaveOutcome, Saving, StateView, hold_at_begin};
use crate::{Error, ResumedState, handover, resumed};

/// Who the program is, and where it saves.
#[derive(Debug, Clone, PartialEq)]
pub struct ProgramSettings {
    /// The run.
    pub run: String,
    /// Number of the attempt; 0 outside of gradus, where each process counts one up.
    pub attempt: u64,
    /// This process among all, from 0.
    pub rank: u32,
    /// Number of processes that train together.
    pub world: u32,
    /// How many of them are on this machine, if this is the only machine; otherwise 1.
    pub ranks_here: u32,
    /// The folder of checkpoints.
    pub checkpoints: Option<PathBuf>,
    /// The agent's socket.
    pub socket: Option<PathBuf>,
    /// A name that distinguishes this program's checkpoints from those of others; may be empty.
    pub program: String,
    /// How many of the newest checkpoints stay.
    pub keep: u32,
    /// When to save.
    pub every: Every,
    /// Mean time between failures, for `auto`.
    pub mtbf: Duration,
    /// Seconds without a call after which the program counts as hung; `None` for never.
    pub hang_after_s: Option<u64>,
    /// Total number of steps, if known; otherwise 0.
    pub steps: u64,
    /// Description of its environment.
    pub environment: Environment,
}

/// Metrics that a program logs for a step.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LoggedStep {
    /// From 1.
    pub step: u64,
    /// From 0.
    pub epoch: u32,
    /// Mean loss of the batch.
    pub loss: Option<f64>,
    /// Learning rate.
    pub lr: Option<f64>,
    /// Samples in the batch.
    pub samples: u32,
    /// Figures with names of the program's own.
    pub others: BTreeMap<String, f64>,
}

/// A running program: its reports, its saves and its orders.
#[derive(Debug)]
pub struct ProgramRun {
    settings: ProgramSettings,
    line: AgentLine,
    saving: Mutex<Saving>,
    logging: Mutex<Logging>,
}

#[derive(Debug, Default)]
struct Logging {
    is_ready: bool,
    /// The step that was logged last, and when.
    last: Option<(u64, Instant)>,
    /// A metric is not finite, which was reported, and has not become finite since.
    is_not_finite: bool,
    /// It was reported that the program fails.
    has_failed: bool,
}

impl ProgramRun {
    /// Begins: connects to the agent if there is one, and outside of gradus counts the attempt.
    ///
    /// # Errors
    /// When the folder of checkpoints cannot be made or read, or, outside of gradus, another process has it.
    pub fn begin(mut settings: ProgramSettings) -> Result<ProgramRun, Error> {
        let mut held = None;
        if let Some(folder) = settings.checkpoints.clone() {
            let failed = |source| Error::File { doing: "make", path: folder.clone(), source };
            fs::create_dir_all(&folder).map_err(failed)?;
            let is_outside = settings.attempt == 0;
            if is_outside && settings.rank == 0 {
                held = hold_at_begin(&folder)?;
            }
            if is_outside {
                settings.attempt = highest(&folder) + u64::from(settings.rank == 0);
            }
            if settings.rank == 0 {
                // What stays is removed by the next save.
                let _ = handover::clear(&folder);
                checkpoint::claim(&folder, Fence(settings.attempt))?;
            }
        }
        let line = AgentLine::connect(settings.socket.as_deref(), settings.hang_after_s);
        let (rank, pid, environment) = (settings.rank, std::process::id(), settings.environment.clone());
        line.send(Report::Hello { rank, pid, environment });
        let saving = Mutex::new(Saving::new(Pace::new(settings.every, settings.mtbf, 0), settings.keep, held));
        Ok(ProgramRun { settings, line, saving, logging: Mutex::default() })
    }

    /// Who it is.
    pub fn settings(&self) -> &ProgramSettings {
        &self.settings
    }

    /// Whether it is connected to an agent.
    pub fn is_attended(&self) -> bool {
        self.line.is_connected()
    }

    /// The newest durable step of this process.
    pub fn durable(&self) -> Option<u64> {
        lock(&self.saving).durable
    }

    /// Reports a step. Values that are not finite are dropped, with one warning.
    ///
    /// # Errors
    /// If a later attempt has taken over. Errors of an earlier save are in the returned list.
    pub fn log(&self, logged: LoggedStep) -> Result<Vec<String>, Error> {
        self.line.moved();
        let mut complaints = Vec::new();
        let mut saving = lock(&self.saving);
        saving.poll(&self.line, &mut complaints)?;
        let checkpoint_us = std::mem::take(&mut saving.stall_us);
        drop(saving);
        let mut logging = lock(&self.logging);
        if !logging.is_ready {
            self.ready(&mut logging, logged.step.saturating_sub(1), Vec::new());
        }
        let now = Instant::now();
        let (steps, since) = match logging.last {
            Some((step, at)) => (logged.step.saturating_sub(step).max(1), now.duration_since(at)),
            None => (1, std::time::Duration::ZERO),
        };
        let step_us = u64::try_from(since.as_micros()).unwrap_or(u64::MAX) / steps;
        let LoggedStep { step, epoch, loss, lr, samples, mut others } = logged;
        if loss.is_some() {
            logging.last = Some((step, now));
        }
        let own = [loss.map(|loss| ("loss", loss)), lr.map(|lr| ("lr", lr))].into_iter().flatten();
        self.check_finite(&mut logging, step, own.chain(others.iter().map(|(name, value)| (name.as_str(), *value))));
        drop(logging);
        let not_finite = NotFinite::among(&others);
        others.retain(|_, value| value.is_finite());
        if let Some(loss) = loss.filter(|loss| loss.is_finite()) {
            let lr = lr.filter(|lr| lr.is_finite()).unwrap_or(0.0);
            let (data_wait_us, data) = (0, Fetching::default());
            let report = Step { step, epoch, loss, lr, samples, step_us, data_wait_us, checkpoint_us, data };
            self.line.send(Report::Step(report));
        }
        let lost = loss.and_then(NotFinite::of);
        if !others.is_empty() || lost.is_some() || !not_finite.is_empty() {
            self.line.send(Report::Metrics(Metrics { step, values: others, loss: lost, not_finite }));
        }
        Ok(complaints)
    }

    /// Warns once about metrics that are not finite, until all are again.
    fn check_finite<'a>(&self, logging: &mut Logging, step: u64, values: impl Iterator<Item = (&'a str, f64)>) {
        let names: Vec<String> =
            values.filter(|(_, value)| !value.is_finite()).map(|(name, _)| format!("`{name}`")).collect();
        if !names.is_empty() && !logging.is_not_finite {
            let verb = if names.len() == 1 { "is" } else { "are" };
            let mut text = format!("{} of step {step} {verb} not finite, and left out", names.join(", "));
            if names.iter().any(|name| name == "`loss`") {
                let run = &self.settings.run;
                text.push_str(&format!("; the program continues, at the run's cost: `gradus stop {run}` stops it"));
            }
            self.line.send(Report::Note { text });
        }
        logging.is_not_finite = !names.is_empty();
    }

    /// Whether to save the state after `step`: it is due, the agent requests it, or the program must stop.
    ///
    /// # Errors
    /// As [`ProgramRun::log`].
    pub fn should_save(&self, step: u64) -> Result<(bool, Vec<String>), Error> {
        self.line.moved();
        self.line.listens();
        let mut saving = lock(&self.saving);
        let mut complaints = Vec::new();
        saving.poll(&self.line, &mut complaints)?;
        let is_new = saving.handed != Some(step);
        let is_asked = self.line.is_to_save() || self.line.is_to_stop();
        // Ranks count steps alike, but not time or what a save has cost: these rank 0 alone knows.
        let decides = self.settings.rank == 0 || matches!(self.settings.every, Every::Steps(_));
        let is_due = saving.is_due(step) && decides;
        Ok((is_due || is_new && is_asked, complaints))
    }

    /// Whether the program is to save its state and end.
    pub fn should_stop(&self) -> bool {
        self.line.moved();
        self.line.listens();
        self.line.is_to_stop()
    }

    /// Notes a signal to stop.
    pub fn ask_to_stop(&self) {
        self.line.ask_to_stop();
    }

    /// Saves a state: copies it, and writes it in the background. On ranks other than 0 only the generators are passed
    /// on.
    ///
    /// # Errors
    /// If another process saves there, a later attempt has taken over, later steps would be replaced, the last load has
    /// found that no checkpoint there verifies (newer ones would replace them one by one), or the state is inconsistent.
    pub fn save(&self, state: StateView) -> Result<SaveOutcome, Error> {
        self.line.moved();
        let (handed, damaged) = {
            let saving = lock(&self.saving);
            (saving.handed, saving.damaged.clone())
        };
        if let (Some(folder), false) = (&self.settings.checkpoints, damaged.is_empty()) {
            return Err(Error::NoneVerifies { folder: folder.clone(), reasons: damaged });
        }
        if let Some(newest) = handed.filter(|handed| state.step < *handed) {
            return Err(Error::Backwards { newest, step: state.step });
        }
        if self.settings.rank > 0 {
            return self.give(&state);
        }
        let step = state.step;
        let mut saving = lock(&self.saving);
        match saving.save(&self.settings, &self.line, state) {
            Err(error) if error.may_pass() => {
                saving.put_off(step);
                let text = saving.put_up_with(&self.line, error);
                Ok(SaveOutcome { complaints: vec![text], ..SaveOutcome::default() })
            }
            outcome => outcome,
        }
    }

    /// Passes on what only this rank has. A disk that refuses it ends no training: the others would wait for this rank.
    fn give(&self, state: &StateView) -> Result<SaveOutcome, Error> {
        let folder = self.settings.checkpoints.as_deref().ok_or(Error::NoFolder)?;
        let rank = self.settings.rank;
        let mut complaints = Vec::new();
        if let (Some(part), true) = (&state.generators, self.settings.ranks_here > 1)
            && let Err(error) = handover::give(folder, state.step, rank, part)
        {
            complaints.push(format!("the random number generators of rank {rank} were not saved: {error}"));
        }
        lock(&self.saving).passed_on(&self.line, state.step);
        Ok(SaveOutcome { is_handed: true, complaints, ..SaveOutcome::default() })
    }

    /// Loads the newest checkpoint that verifies; `None` if none was saved yet.
    ///
    /// # Errors
    /// If the newest is of another program, none verifies, or one cannot be read now.
    pub fn load(&self) -> Result<Option<ResumedState>, Error> {
        let Some(folder) = &self.settings.checkpoints else { return Ok(None) };
        match self.wait() {
            // A save that failed leaves the checkpoints before it.
            Err(error) if error.may_pass() => {
                let text = format!("a checkpoint was not saved: {}", error.while_training());
                self.line.send(Report::Note { text });
            }
            waited => waited?,
        }
        let found = resumed::newest(folder, &self.settings.program, self.settings.rank);
        match &found {
            Ok(_) => lock(&self.saving).damaged.clear(),
            Err(Error::NoneVerifies { reasons, .. }) => lock(&self.saving).damaged.clone_from(reasons),
            Err(_) => {}
        }
        let found = found?;
        let (step, passed_over) =
            found.as_ref().map_or((0, Vec::new()), |found| (found.step, found.passed_over.clone()));
        if self.settings.rank == 0 {
            for text in &passed_over {
                self.line.send(Report::Note { text: text.clone() });
            }
        }
        let mut saving = lock(&self.saving);
        saving.restart(Pace::new(self.settings.every, self.settings.mtbf, step));
        if self.settings.rank == 0 {
            saving.hold_early(folder);
        }
        drop(saving);
        self.ready(&mut lock(&self.logging), step, passed_over);
        Ok(found)
    }

    /// Waits until the last save is durable.
    ///
    /// # Errors
    /// Why it is not; earlier checkpoints remain durable.
    pub fn wait(&self) -> Result<(), Error> {
        lock(&self.saving).wait(&self.line)
    }

    /// Reports that an error which nothing has caught ends the program: a sentence, which may have a hint in a line of its
    /// own.
    pub fn fail(&self, error: &str) {
        lock(&self.logging).has_failed = true;
        self.line.send(Report::Failed(sentence_finding(error, Cause::ExitCode)));
    }

    /// The last call: waits for the save in flight, reports its error, and disconnects.
    ///
    /// # Errors
    /// As [`ProgramRun::wait`]; also if the last save has failed before, which is more than a warning at the end, and more than
    /// an error that the program has caught.
    pub fn finish(&mut self) -> Result<(), Error> {
        let saved = self.finish_saves();
        self.line.close();
        saved
    }

    /// As [`finish`](ProgramRun::finish), where the process is about to end: the agent notices if it does not.
    ///
    /// # Errors
    /// As [`ProgramRun::finish`].
    pub fn end(&mut self) -> Result<(), Error> {
        let saved = self.finish_saves();
        self.line.end();
        saved
    }

    fn finish_saves(&self) -> Result<(), Error> {
        let waited = self.wait();
        let saved = match lock(&self.saving).refused.take() {
            Some(error) => waited.and(Err(error)),
            None => waited,
        };
        if let Err(error) = &saved {
            let text = format!("the last checkpoint was not saved: {error}");
            self.line.send(Report::Note { text });
            // What has ended the program before is told first.
            if !lock(&self.logging).has_failed {
                let finding = error.finding();
                let message = format!("the last checkpoint was not saved: {}", finding.message);
                self.line.send(Report::Failed(Finding { message, ..finding }));
            }
        }
        saved
    }

    fn ready(&self, logging: &mut Logging, step: u64, passed_over: Vec<String>) {
        let ready = Ready { passed_over, ..Ready::of_program(step, self.settings.steps) };
        logging.is_ready = true;
        self.line.send(Report::Ready(ready));
    }
}

/// The highest attempt that has claimed a folder; 0 if none has.
fn highest(folder: &Path) -> u64 {
    let text = fs::read_to_string(folder.join("fence")).unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

/// A call that panicked leaves the state consistent.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
