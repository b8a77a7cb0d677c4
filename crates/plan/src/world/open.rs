//! Which runs are open, so that a decision looks at those and not at every run there ever was.

use domain::{Event, RunId};

use super::{Run, World};

impl World {
    /// Every run for which something is left to do: it is not at its end, or not billed.
    pub fn open_runs(&self) -> impl Iterator<Item = (&RunId, &Run)> {
        self.open.iter().filter_map(|id| self.runs.get_key_value(id))
    }

    /// Finds the open runs anew: for a world that was not folded from events but read.
    pub fn find_open(&mut self) {
        self.open = self.runs.iter().filter(|(_, run)| is_open(run)).map(|(id, _)| id.clone()).collect();
    }

    /// Keeps the open runs in step with an event that was applied.
    pub(super) fn note_open(&mut self, event: &Event) {
        let Some(id) = self.run_of(event).cloned() else { return };
        if self.runs.get(&id).is_some_and(is_open) {
            self.open.insert(id);
        } else {
            self.open.remove(&id);
        }
    }

    /// The run that an event is about, if it is about one that is known.
    pub fn run_of<'a>(&'a self, event: &'a Event) -> Option<&'a RunId> {
        match event {
            Event::Submitted(submitted) => Some(&submitted.run),
            Event::RentIntended(intent) => Some(&intent.run),
            Event::StopRequested { run, .. } | Event::ResumeRequested { run, .. } => Some(run),
            Event::AttemptIntended { run, .. } | Event::BudgetAlert { run, .. } => Some(run),
            Event::Ended { run, .. } | Event::Billed { run, .. } => Some(run),
            Event::SweepSubmitted(_) | Event::SweepStopRequested { .. } | Event::SweepResumeRequested { .. } => None,
            Event::SweepBudgetAlert { .. } | Event::SweepEnded { .. } => None,
            Event::Launched { instance, .. } | Event::RentFailed { instance, .. } | Event::AgentUp { instance, .. } => {
                self.instances.get(instance).map(|instance| &instance.run)
            }
            Event::ReleaseIntended { instance }
            | Event::Released { instance, .. }
            | Event::DoubleEnded { instance, .. } => self.instances.get(instance).map(|instance| &instance.run),
            Event::AttemptReady { attempt, .. } | Event::AttemptEnded { attempt, .. } => {
                self.attempts.get(attempt).map(|attempt| &attempt.run)
            }
        }
    }
}

fn is_open(run: &Run) -> bool {
    !run.state.is_final() || run.bill.is_none()
}
