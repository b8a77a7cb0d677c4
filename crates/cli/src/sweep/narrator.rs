//! Prints what happens to a sweep: one line when a trial starts, resumes or ends. It reads the event log, so its output is
//! the same whichever process runs the control loop. It also writes the reports of the trials and of the sweep.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::event::RunEnd;
use domain::run::Outcome;
use domain::{Event, Record, RunId, SweepId};
use plan::RunOrSweep;
use server::{Home, Series, State};

use super::preview::said;
use crate::error::Error;
use crate::follow::narrator::{record_json, stopping};
use crate::follow::report;
use crate::printer::Printer;

/// Polling interval.
const LOOK: Duration = Duration::from_millis(50);

/// Prints the progress of a sweep.
pub struct SweepNarrator<'a> {
    home: &'a Home,
    sweep: SweepId,
    /// Its source.
    pub state: State,
    series: Series,
    told: u64,
}

impl<'a> SweepNarrator<'a> {
    /// A narrator of events after `since`.
    ///
    /// # Errors
    /// [`Error::Server`] if the state cannot be opened.
    pub fn open(home: &'a Home, sweep: &SweepId, since: u64) -> Result<SweepNarrator<'a>, Error> {
        let (mut state, series) = (State::open_lean(home)?, Series::open(home)?);
        state.recall(&RunOrSweep::Sweep(sweep.clone()))?;
        Ok(SweepNarrator { home, sweep: sweep.clone(), state, series, told: since })
    }

    /// Prints until `ended`, and then the rest.
    ///
    /// # Errors
    /// [`Error`] when the state cannot be read or a report not be written.
    pub fn tell(&mut self, printer: &mut Printer, ended: &AtomicBool) -> Result<(), Error> {
        loop {
            let last = ended.load(Ordering::SeqCst);
            self.state.refresh()?;
            for record in self.state.records_after(self.told)? {
                self.told = record.seq;
                if self.concerns(&record.event) {
                    self.record(printer, &record)?;
                }
            }
            if last {
                return Ok(());
            }
            std::thread::sleep(LOOK);
        }
    }

    fn record(&self, printer: &mut Printer, record: &Record) -> Result<(), Error> {
        if printer.is_json() {
            printer.json(&record_json(record));
        } else if let Some(sentence) = self.sentence(&record.event) {
            printer.say(sentence);
        }
        if let Event::Billed { run, .. } = &record.event {
            report::write(self.home, &self.state, &self.series, run)?;
            self.home.mark_reported(&self.home.run(run))?;
            super::write_report(self.home, &self.state, &self.sweep)?;
        }
        Ok(())
    }

    fn trial(&self, run: &RunId) -> Option<&plan::Run> {
        let run = self.state.world().runs.get(run)?;
        run.trial.as_ref().filter(|trial| trial.sweep == self.sweep).map(|_| run)
    }

    fn concerns(&self, event: &Event) -> bool {
        match event {
            Event::SweepSubmitted(submitted) => submitted.sweep == self.sweep,
            Event::SweepStopRequested { sweep, .. } | Event::SweepResumeRequested { sweep, .. } => *sweep == self.sweep,
            Event::SweepBudgetAlert { sweep, .. } | Event::SweepEnded { sweep, .. } => *sweep == self.sweep,
            Event::Submitted(submitted) => self.trial(&submitted.run).is_some(),
            Event::StopRequested { run, .. } | Event::ResumeRequested { run, .. } => self.trial(run).is_some(),
            Event::Ended { run, .. } | Event::Billed { run, .. } => self.trial(run).is_some(),
            _ => false,
        }
    }

    /// The message for an event, if it has one.
    fn sentence(&self, event: &Event) -> Option<String> {
        let world = self.state.world();
        let sweep = world.sweeps.get(&self.sweep)?;
        let number = |run: &RunId| self.trial(run).and_then(|run| run.trial.as_ref()).map_or(0, |trial| trial.number);
        let text = match event {
            Event::SweepSubmitted(submitted) => format!("sweep {}: submitted", submitted.sweep),
            Event::SweepStopRequested { by, .. } => stopping(*by).to_owned(),
            Event::SweepResumeRequested { .. } => "resuming".to_owned(),
            Event::SweepBudgetAlert { spent, .. } => format!("budget alert: {spent} spent"),
            Event::Submitted(submitted) => {
                let trial = submitted.trial.as_ref()?;
                let is_counted = sweep.search.trials.is_some() || plan::sweep::most(&sweep.search) < u32::MAX;
                let all = plan::sweep::most(&sweep.search);
                let of =
                    if is_counted && all < domain::sweep::MOST_TRIALS { format!(" of {all}") } else { String::new() };
                format!("trial {}{of}: {}", trial.number, said(&trial.values))
            }
            Event::ResumeRequested { run, epochs: Some(epochs), .. } => {
                format!("trial {}: resumed, to {epochs} epochs", number(run))
            }
            Event::ResumeRequested { run, .. } => format!("trial {}: resumed", number(run)),
            Event::Ended { run, end } => {
                let known = self.trial(run)?;
                let number = number(run);
                match end {
                    RunEnd::Done { outcome: Outcome::Trained { model } } => {
                        let metric = sweep.search.metric?;
                        // The newest result may be of a later rung by now; the model that the event names is of this one.
                        let value = metric.measured(model).map_or("unknown".to_owned(), |value| metric.say(value));
                        let epochs = epochs_of(known, model.steps);
                        format!("trial {number}: {} {value} after {epochs}", metric.name())
                    }
                    RunEnd::Done { outcome: Outcome::Failed { finding } } => {
                        let first = finding.message.lines().next().unwrap_or_default();
                        format!("trial {number}: failed: {first}")
                    }
                    RunEnd::Done { outcome: Outcome::Succeeded } => format!("trial {number}: succeeded"),
                    RunEnd::Stopped { .. } => format!("trial {number}: stopped; checkpoint saved"),
                }
            }
            _ => return None,
        };
        Some(text)
    }
}

/// `3 epochs`, from steps.
fn epochs_of(run: &plan::Run, steps: u64) -> String {
    let epochs = run.ready.as_ref().map_or(0, |ready| steps / ready.steps_per_epoch.max(1));
    if epochs == 1 { "1 epoch".to_owned() } else { format!("{epochs} epochs") }
}
