//! A disk without space: the loop decides nothing while it cannot write an event, and continues once it can.
//!
//! Decisions that are not durable are void, so the controller is put back to what is on the disk, as by a restart. Agents
//! get no answers meanwhile, and continue until their lease is over; queries are answered from what is on the disk.

use std::time::{Duration, Instant};

use domain::wire::{AgentEvent, Entry};
use domain::{InstanceId, RunId};
use plan::World;

use super::{Control, Running};
use crate::clock;
use crate::error::Error;
use crate::home::StoredKind;
use crate::series::Series;

/// Between two tries to write.
const RETRY: Duration = Duration::from_secs(1);

impl Control<'_> {
    /// Reads what other processes have appended, and makes what the loop needs on the disk. Where the start has lacked space,
    /// nothing can be written; returns until when that is not tried.
    pub(super) fn begin(&mut self) -> Result<Option<Instant>, Error> {
        self.state.refresh()?;
        let space = self.home.space();
        space.prepare();
        match &self.lacked {
            None => {
                self.state.forget_old_rows()?;
                Ok(None)
            }
            Some(why) => {
                space.refused(&StoredKind::Events, "", why, clock::now());
                Ok(Some(Instant::now() + RETRY))
            }
        }
    }
}

impl Running<'_, '_> {
    /// Whether decisions can be written, as far as is known.
    pub(super) fn is_writable(&mut self) -> bool {
        let Some(until) = self.stalled else { return true };
        if Instant::now() < until {
            return false;
        }
        match self.control.home.space().probe() {
            Ok(()) => {
                self.stalled = None;
                true
            }
            Err(error) => {
                self.stall(&error.to_string());
                false
            }
        }
    }

    /// Decides nothing for a while.
    pub(super) fn stall(&mut self, why: &str) {
        self.control.home.space().refused(&StoredKind::Events, "", why, clock::now());
        self.stalled = Some(Instant::now() + RETRY);
    }

    /// Whether a loop whose start has lacked space is over, now that there is some: it is started again, and shares its databases
    /// with other processes.
    pub(super) fn has_space_again(&mut self) -> bool {
        if self.control.lacked.is_none() {
            return false;
        }
        self.control.home.space().accepted(&StoredKind::Events, "", clock::now());
        self.write_notes();
        true
    }

    /// Whether the disk is full, by an error of a write.
    pub(super) fn lacks_space(&self, error: &Error) -> bool {
        self.control.home.space().explains(error)
    }

    /// Stores the measurements among an agent's entries, of the run that has its machine or one before; whether that was
    /// possible.
    pub(super) fn keep(&mut self, run: &RunId, instance: &InstanceId, entries: &[Entry]) -> bool {
        let kept = store(&mut self.control.series, self.controller.world(), (run, instance), entries);
        let space = self.control.home.space();
        let is_measurement = |entry: &Entry| matches!(entry.event, AgentEvent::Reported { .. });
        match &kept {
            Err(error) if self.lacks_space(error) => {
                space.refused(&StoredKind::Measurements, "", &error.with_cause(), clock::now());
            }
            Ok(()) if entries.iter().any(is_measurement) => space.accepted(&StoredKind::Measurements, "", clock::now()),
            Ok(()) | Err(_) => {}
        }
        kept.is_ok()
    }

    /// Puts what is refused for want of space into the log of operations, once that can be written.
    pub(super) fn note_shortages(&mut self) {
        let space = self.control.home.space();
        space.expire(clock::now());
        if self.noted.elapsed() < RETRY {
            return;
        }
        self.noted = Instant::now();
        self.write_notes();
    }

    fn write_notes(&self) {
        let space = self.control.home.space();
        let notes = space.notes();
        let written = notes.iter().take_while(|(at, note)| self.control.series.note(*at, note).is_ok());
        space.noted(written.count());
    }
}

/// Stores measurements, each with the run that it was made for: those of a run that has ended may arrive when another run has
/// taken over its machine.
fn store(
    series: &mut Series,
    world: &World,
    (run, instance): (&RunId, &InstanceId),
    entries: &[Entry],
) -> Result<(), Error> {
    let now = clock::now();
    for of_attempt in entries.chunk_by(|one, next| one.attempt == next.attempt) {
        let made_for = of_attempt.first().and_then(|entry| plan::run_of_report(world, instance, &entry.attempt));
        series.keep(now, made_for.as_ref().unwrap_or(run), instance, of_attempt)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::Ordering;
    use std::sync::mpsc::{Sender, channel};

    use cloud::Provider;
    use domain::event::PipelineSubmitted;
    use domain::rank::Report;
    use domain::{AttemptId, Event, PipelineId};
    use tokio::sync::oneshot;

    use super::super::{Left, Question, Wake};
    use super::*;
    use crate::home::{Home, Shortage};
    use crate::state::State;

    /// Requests a pipeline; whether it is durable.
    fn is_submitted(loop_: &Sender<Wake>, name: &str) -> bool {
        let event = Event::PipelineSubmitted(Box::new(PipelineSubmitted {
            pipeline: PipelineId::new(name),
            tasks: vec!["first".into(), "second".into()],
            budget: None,
            request: String::new(),
            file: "pipeline.yaml".into(),
            user: None,
            last_runs: Vec::new(),
        }));
        let (reply, answer) = oneshot::channel();
        loop_.send(Wake::Request(Box::new(event), reply)).unwrap();
        matches!(answer.blocking_recv(), Ok(Ok(_)))
    }

    /// The number of events that the loop decides by.
    fn events(loop_: &Sender<Wake>) -> u64 {
        let (reply, answer) = oneshot::channel();
        let question = Question::new(move |world| reply.send(world.last_seq).unwrap());
        loop_.send(Wake::Question(question)).unwrap();
        answer.blocking_recv().unwrap()
    }

    #[test]
    fn what_a_run_measured_stays_its_own_when_another_has_taken_over_its_machine() {
        let folder = tempfile::tempdir().unwrap();
        let mut series = Series::open(&Home::open(folder.path()).unwrap()).unwrap();
        let entry = |seq: u64, attempt: &str| {
            let event = AgentEvent::Reported { rank: 0, report: Report::Note { text: seq.to_string() } };
            Entry { seq, attempt: AttemptId::new(attempt), event }
        };
        let entries = [entry(1, "a-a1"), entry(2, "a-a1"), entry(3, "b-a1")];
        let (a, b, machine) = (RunId::new("a"), RunId::new("b"), InstanceId::new("a-i1"));
        store(&mut series, &World::default(), (&b, &machine), &entries).unwrap();
        let attempts = |run: &RunId| -> Vec<String> {
            series.points(run, 0).unwrap().into_iter().map(|(_, point)| point.attempt.to_string()).collect()
        };
        assert_eq!((attempts(&a), attempts(&b)), (vec!["a-a1".to_owned(); 2], vec!["b-a1".to_owned()]));
    }

    #[test]
    fn a_full_disk_ends_no_loop_and_it_continues_once_there_is_space() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        let state = State::open_lean(&home).unwrap();
        let is_full = state.is_full.clone();
        let (sender, inbox) = channel();
        let asker = sender.clone();
        let providers: [Arc<dyn Provider>; 0] = [];
        let mut control = Control::new(state, Series::open(&home).unwrap(), &home, &providers);
        control.keeps_all = true;
        let (space, asker) = (home.space(), &asker);
        let (left, (refused, shortages, last)) = std::thread::scope(|scope| {
            let asked = scope.spawn(move || {
                is_full.store(true, Ordering::SeqCst);
                let refused = !is_submitted(asker, "refused");
                let shortages = space.shortages();
                let during = events(asker);
                is_full.store(false, Ordering::SeqCst);
                let begun = Instant::now();
                while !is_submitted(asker, "accepted") && begun.elapsed() < Duration::from_secs(60) {
                    std::thread::sleep(Duration::from_millis(10));
                }
                let last = (during, events(asker));
                asker.send(Wake::Interrupt).unwrap();
                (refused, shortages, last)
            });
            (control.run(&sender, &inbox, |_| false), asked.join().unwrap())
        });
        assert_eq!(left.unwrap(), Left::Interrupted, "it has not ended by itself");
        assert!(refused);
        let [Shortage { stored: StoredKind::Events, why, .. }] = &shortages[..] else { panic!("{shortages:?}") };
        assert!(why.starts_with("cannot write the state in `"), "{why}");
        assert_eq!(last, (0, 1), "what was refused is not known, and what came later is on the disk");
        assert_eq!(home.space().shortages(), [], "and it is over");
        assert_eq!(State::open(&home).unwrap().world().last_seq, 1);
    }

    #[test]
    fn a_loop_that_was_started_without_space_answers_questions_until_there_is_some() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        // What is no file cannot be written.
        let probe = home.root().join(".space-probe");
        std::fs::create_dir(&probe).unwrap();
        let (sender, inbox) = channel();
        let asker = sender.clone();
        let providers: [Arc<dyn Provider>; 0] = [];
        let state = State::open_lean(&home).unwrap();
        let mut control = Control::new(state, Series::open(&home).unwrap(), &home, &providers);
        control.keeps_all = true;
        control.lacked = Some("cannot open it".to_owned());
        let (space, asker) = (home.space(), &asker);
        let (left, (refused, shortages, known)) = std::thread::scope(|scope| {
            let asked = scope.spawn(move || {
                let known = events(asker);
                let (refused, shortages) = (!is_submitted(asker, "refused"), space.shortages());
                std::fs::remove_dir(&probe).unwrap();
                (refused, shortages, known)
            });
            let left = control.run(&sender, &inbox, |_| false);
            // Whoever still asks is not left waiting.
            drop(inbox);
            (left, asked.join().unwrap())
        });
        assert_eq!(left.unwrap(), Left::Done, "it is started again");
        let [Shortage { stored: StoredKind::Events, .. }] = &shortages[..] else { panic!("{shortages:?}") };
        assert!(refused && known == 0, "{known}");
        assert_eq!(home.space().shortages(), [], "and it is over");
        let notes = Series::open(&home).unwrap().operations().unwrap();
        let texts: Vec<&str> = notes.iter().map(|(_, note)| note.text.as_str()).collect();
        let [begun, over] = texts[..] else { panic!("{texts:?}") };
        assert!(begun == "no disk space for the event log: cannot open it" && over.contains("no longer refused"));
    }
}
