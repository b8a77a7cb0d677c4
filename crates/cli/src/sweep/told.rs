//! What is said of an event of a sweep: one line when a trial starts, resumes or ends. Where the events come from is the
//! caller's.

use domain::event::RunEnd;
use domain::run::Outcome;
use domain::{Event, Record, RunId, SweepId};
use plan::World;

use super::preview::said;
use crate::follow::narrator::{record_json, stopping};
use crate::printer::Printer;

/// Prints an event of a sweep.
pub fn tell(printer: &mut Printer, world: &World, id: &SweepId, record: &Record) {
    if printer.is_json() {
        printer.json(&record_json(record));
    } else if let Some(sentence) = sentence(world, id, &record.event) {
        printer.say(sentence);
    }
}

fn trial<'a>(world: &'a World, sweep: &SweepId, run: &RunId) -> Option<&'a plan::Run> {
    let run = world.runs.get(run)?;
    run.trial.as_ref().filter(|trial| trial.sweep == *sweep).map(|_| run)
}

/// Whether an event is one of a sweep, or of the beginning or end of one of its trials.
pub fn concerns(world: &World, id: &SweepId, event: &Event) -> bool {
    let is_trial = |run: &RunId| trial(world, id, run).is_some();
    match event {
        Event::SweepSubmitted(submitted) => submitted.sweep == *id,
        Event::SweepStopRequested { sweep, .. } | Event::SweepResumeRequested { sweep, .. } => sweep == id,
        Event::SweepBudgetAlert { sweep, .. } | Event::SweepEnded { sweep, .. } => sweep == id,
        Event::Submitted(submitted) => is_trial(&submitted.run),
        Event::StopRequested { run, .. } | Event::ResumeRequested { run, .. } => is_trial(run),
        Event::Ended { run, .. } | Event::Billed { run, .. } => is_trial(run),
        _ => false,
    }
}

/// The message for an event, if it has one.
fn sentence(world: &World, id: &SweepId, event: &Event) -> Option<String> {
    let sweep = world.sweeps.get(id)?;
    let number = |run: &RunId| trial(world, id, run).and_then(|run| run.trial.as_ref()).map_or(0, |trial| trial.number);
    let text = match event {
        Event::SweepSubmitted(submitted) => format!("sweep {}: submitted", submitted.sweep),
        Event::SweepStopRequested { by, .. } => stopping(*by).to_owned(),
        Event::SweepResumeRequested { .. } => "resuming".to_owned(),
        Event::SweepBudgetAlert { spent, .. } => format!("budget alert: {spent} spent"),
        Event::Submitted(submitted) => {
            let trial = submitted.trial.as_ref()?;
            let is_counted = sweep.search.trials.is_some() || plan::sweep::most(&sweep.search) < u32::MAX;
            let all = plan::sweep::most(&sweep.search);
            let of = if is_counted && all < domain::sweep::MOST_TRIALS { format!(" of {all}") } else { String::new() };
            format!("trial {}{of}: {}", trial.number, said(&trial.values))
        }
        Event::ResumeRequested { run, epochs: Some(epochs), .. } => {
            format!("trial {}: resumed, to {epochs} epochs", number(run))
        }
        Event::ResumeRequested { run, .. } => format!("trial {}: resumed", number(run)),
        Event::Ended { run, end } => {
            let known = trial(world, id, run)?;
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
                RunEnd::Done { outcome: Outcome::Succeeded } => {
                    let value = known.results.last().and_then(|result| result.value);
                    match sweep.search.metric.zip(value) {
                        Some((metric, value)) => format!("trial {number}: {} {}", metric.name(), metric.say(value)),
                        None => format!("trial {number}: succeeded"),
                    }
                }
                RunEnd::Stopped { .. } => format!("trial {number}: stopped; checkpoint saved"),
            }
        }
        _ => return None,
    };
    Some(text)
}

/// `3 epochs`, from steps.
fn epochs_of(run: &plan::Run, steps: u64) -> String {
    let epochs = run.ready.as_ref().map_or(0, |ready| steps / ready.steps_per_epoch.max(1));
    if epochs == 1 { "1 epoch".to_owned() } else { format!("{epochs} epochs") }
}
