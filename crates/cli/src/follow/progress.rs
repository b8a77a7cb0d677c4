//! The progress line of a run: epoch, step, loss, rate, data wait, remaining time, and cost last.

use domain::rank::{Ready, Report, Step};
use domain::{Elapsed, Money, Rate};

use crate::figures::{clock, grouped};

/// The state of the progress line.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProgressLine {
    ready: Option<Ready>,
    last: Option<Step>,
    /// Running means over the steps of this attempt: a step's time, its wait and its samples; see [`SHARE`].
    step_us: f64,
    wait_us: f64,
    samples: f64,
    /// Name and value.
    accuracy: Option<(&'static str, f64)>,
    /// Samples that were prepared, before the first step.
    prepared: Option<u64>,
}

/// Share of a new step in the running means: about the newest 20 steps count.
const SHARE: f64 = 0.05;

impl ProgressLine {
    /// The progress of a run from the ready report of its newest attempt.
    pub fn since(ready: Option<Ready>) -> ProgressLine {
        ProgressLine { ready, ..ProgressLine::default() }
    }

    /// Adds a report; whether the line has changed.
    pub fn take(&mut self, report: &Report) -> bool {
        match report {
            Report::Preparing { done } => {
                self.prepared = Some(*done);
                return true;
            }
            Report::Ready(ready) => *self = ProgressLine { ready: Some(ready.clone()), ..ProgressLine::default() },
            Report::Step(step) => {
                let share = if self.last.is_none() { 1.0 } else { SHARE };
                self.step_us += share * (step.step_us as f64 - self.step_us);
                self.wait_us += share * (step.data_wait_us as f64 - self.wait_us);
                self.samples += share * (f64::from(step.samples) - self.samples);
                self.last = Some(*step);
            }
            Report::Evaluated(evaluated) => {
                self.accuracy = Some((evaluated.figures.accuracy_name(), evaluated.accuracy));
            }
            Report::Hello { .. } | Report::Checkpointed(_) | Report::Note { .. } | Report::Exported(_) => return false,
            Report::Metrics(_) | Report::Result(_) | Report::Devices { .. } | Report::Pausing { .. } => return false,
            Report::Trained | Report::Stopped { .. } | Report::Failed(_) => return false,
        }
        self.last.is_some()
    }

    /// Remaining time at the pace of the newest steps.
    pub fn left(&self) -> Option<Elapsed> {
        let (ready, last) = (self.ready.as_ref().filter(|ready| ready.steps > 0)?, self.last?);
        let steps = ready.steps.saturating_sub(last.step);
        Some(Elapsed((steps as f64 * self.step_us) as u64))
    }

    /// The line; `None` before the first step, unless data is being prepared.
    pub fn line(&self, spent: Money, rate: Rate) -> Option<String> {
        if let (Some(prepared), None) = (self.prepared, self.last) {
            return Some(format!("preparing data · {} samples · {spent} so far", grouped(prepared)));
        }
        let last = self.last?;
        let Some(ready) = self.ready.as_ref().filter(|ready| ready.steps > 0) else {
            return Some(self.open_line(last, spent));
        };
        let epochs = ready.steps.div_ceil(ready.steps_per_epoch.max(1));
        let seconds = self.step_us.max(1.0) / 1e6;
        let wait = 100.0 * self.wait_us / self.step_us.max(1.0);
        let left = self.left().unwrap_or_default();
        // The least important part is last, because a narrow terminal truncates it.
        // A user's program says how many steps there are, and not how many epochs.
        let epoch = match ready.steps_per_epoch {
            steps if steps == ready.steps && last.epoch > 0 => String::new(),
            _ => format!("epoch {}/{epochs} · ", last.epoch + 1),
        };
        let mut line = format!(
            "{epoch}step {}/{} · {} left · {spent} so far, {} at the end · loss {:.4}",
            last.step,
            ready.steps,
            clock(left),
            spent + rate.cost(left),
            last.loss,
        );
        if let Some((name, accuracy)) = self.accuracy {
            line.push_str(&format!(" · {name} {}", crate::figures::accuracy(name, accuracy)));
        }
        if self.samples > 0.0 {
            line.push_str(&format!(
                " · {} samples/s · data wait {wait:.0} %",
                grouped((self.samples / seconds) as u64)
            ));
        }
        Some(line)
    }

    /// The line of a user's program with an unknown number of steps.
    fn open_line(&self, last: Step, spent: Money) -> String {
        let mut line = format!("step {} · {spent} so far · loss {:.4}", grouped(last.step), last.loss);
        if self.samples > 0.0 {
            let seconds = self.step_us.max(1.0) / 1e6;
            line.push_str(&format!(" · {} samples/s", grouped((self.samples / seconds) as u64)));
        }
        line
    }
}

/// Parts that a narrow terminal has no room for, in the order in which they are left out: by what they contain.
const DISPENSABLE: [&str; 8] = ["data wait", "samples/s", "epoch ", "accuracy", "mAP", "R²", "so far", " left"];

/// The line for a terminal of so many columns: step and loss stand there whatever else has to go.
pub fn fitted(line: &str, width: usize) -> String {
    let mut parts: Vec<&str> = line.split(" · ").collect();
    let length = |parts: &[&str]| parts.iter().map(|part| part.chars().count() + 3).sum::<usize>() - 3;
    for word in DISPENSABLE {
        // The cost at the end goes before the cost so far.
        if word == "epoch " && length(&parts) > width {
            for part in parts.iter_mut().filter(|part| part.contains("so far, ")) {
                *part = part.split(", ").next().unwrap_or(part);
            }
        }
        if length(&parts) > width {
            parts.retain(|part| !part.contains(word));
        }
    }
    parts.join(" · ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_narrow_terminal_still_shows_step_and_loss() {
        let line = "epoch 9/30 · step 180/600 · 0:30 left · $1.80 so far, $3.60 at the end · loss 0.2500 · accuracy 98.00 % · 64 samples/s · data wait 2 %";
        assert_eq!(fitted(line, 200), line);
        assert_eq!(
            fitted(line, 100),
            "epoch 9/30 · step 180/600 · 0:30 left · $1.80 so far · loss 0.2500 · accuracy 98.00 %"
        );
        assert_eq!(fitted(line, 60), "step 180/600 · 0:30 left · $1.80 so far · loss 0.2500");
        assert_eq!(fitted(line, 30), "step 180/600 · loss 0.2500");
    }

    #[test]
    fn the_line_has_the_time_left_and_the_cost() {
        let mut progress = ProgressLine::default();
        let (samples, classes) = ([128, 10, 10], vec!["a".to_owned()]);
        let ready = Ready {
            step: 0,
            steps: 3_600,
            steps_per_epoch: 2,
            samples,
            classes,
            parameters: 9,
            passed_over: vec![],
            sample: None,
            data: None,
        };
        progress.take(&Report::Ready(ready));
        let rate: Rate = "3.60/h".parse().unwrap();
        assert_eq!(progress.line(Money::default(), rate), None);
        let step = Step {
            step: 1_800,
            epoch: 899,
            loss: 0.25,
            lr: 0.1,
            samples: 64,
            step_us: 1_000_000,
            data_wait_us: 20_000,
            checkpoint_us: 0,
            data: Default::default(),
        };
        assert!(progress.take(&Report::Step(step)));
        let line = progress.line(Money::from_micros(1_800_000), rate).unwrap();
        assert_eq!(
            line,
            "epoch 900/1800 · step 1800/3600 · 30:00 left · $1.80 so far, $3.60 at the end · loss 0.2500 · 64 samples/s · data wait 2 %"
        );

        // A user's program does not say how many steps it has.
        let mut program = ProgressLine::default();
        program.take(&Report::Step(step));
        assert_eq!(
            program.line(Money::from_micros(1_800_000), rate).unwrap(),
            "step 1,800 · $1.80 so far · loss 0.2500 · 64 samples/s"
        );
        assert_eq!(program.left(), None);
    }
}
