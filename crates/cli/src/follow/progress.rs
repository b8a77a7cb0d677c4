//! The progress line of a run: epoch, step, loss, rate, data wait, remaining time, and cost last.

use domain::rank::{Metrics, NotFinite, Ready, Report, Step};
use domain::{Elapsed, Money, Rate};

use crate::figures::{clock, grouped};

/// The state of the progress line.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ProgressLine {
    ready: Option<Ready>,
    last: Option<LastStep>,
    /// Steps of this attempt whose time is known.
    measured: u64,
    /// Running means over these: a step's time, its wait and its samples; see [`SHARE`].
    step_us: f64,
    wait_us: f64,
    samples: f64,
    /// Name and value.
    accuracy: Option<(&'static str, f64)>,
    /// Samples that were prepared, before the first step.
    prepared: Option<u64>,
}

/// What the line shows of the newest step.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
struct LastStep {
    step: u64,
    epoch: u32,
    loss: f64,
}

/// Share of a new step in the running means: about the newest 20 steps count. Of fewer, each counts alike.
const SHARE: f64 = 0.05;

/// Where training began, if the report says so.
pub fn ready_of(report: &Report) -> Option<&Ready> {
    if let Report::Ready(ready) = report { Some(ready) } else { None }
}

/// The newest loss, which may not be finite.
pub fn newest_loss(reports: &[Report]) -> Option<f64> {
    reports.iter().rev().find_map(|report| match report {
        Report::Step(step) => Some(step.loss),
        Report::Metrics(metrics) => metrics.loss.map(NotFinite::value),
        _ => None,
    })
}

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
                self.measure(step);
                self.last = Some(LastStep { step: step.step, epoch: step.epoch, loss: step.loss });
            }
            Report::Metrics(Metrics { step, loss: Some(loss), .. }) => {
                let last = self.last.get_or_insert_default();
                last.step = last.step.max(*step);
                last.loss = loss.value();
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

    /// Adds a step to the running means. A program's first step has nothing that its time could be measured from.
    fn measure(&mut self, step: &Step) {
        if step.step_us == 0 {
            return;
        }
        self.measured += 1;
        let share = SHARE.max(1.0 / self.measured as f64);
        self.step_us += share * (step.step_us as f64 - self.step_us);
        self.wait_us += share * (step.data_wait_us as f64 - self.wait_us);
        self.samples += share * (f64::from(step.samples) - self.samples);
    }

    /// Remaining time at the pace of the newest steps; `None` before the first step whose time is known.
    pub fn left(&self) -> Option<Elapsed> {
        let (ready, last) = (self.ready.as_ref().filter(|ready| ready.steps > 0)?, self.last?);
        let steps = ready.steps.saturating_sub(last.step);
        (self.measured > 0).then_some(Elapsed((steps as f64 * self.step_us) as u64))
    }

    /// Samples in a second; `None` if they are not known, or the time of no step is.
    fn speed(&self) -> Option<String> {
        let is_known = self.measured > 0 && self.samples > 0.0;
        is_known.then(|| format!(" · {} samples/s", grouped((self.samples * 1e6 / self.step_us) as u64)))
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
        // The least important part is last, because a narrow terminal truncates it.
        // A user's program says how many steps there are, and not how many epochs.
        let epoch = match ready.steps_per_epoch {
            steps if steps == ready.steps && last.epoch > 0 => String::new(),
            _ => format!("epoch {}/{epochs} · ", last.epoch + 1),
        };
        let cost = match self.left() {
            Some(left) => format!("{} left · {spent} so far, {} at the end", clock(left), spent + rate.cost(left)),
            None => format!("{spent} so far"),
        };
        let mut line = format!("{epoch}step {}/{} · {cost} · loss {:.4}", last.step, ready.steps, last.loss);
        if let Some((name, accuracy)) = self.accuracy {
            line.push_str(&format!(" · {name} {}", crate::figures::accuracy(name, accuracy)));
        }
        if let Some(speed) = self.speed() {
            let wait = 100.0 * self.wait_us / self.step_us;
            line.push_str(&format!("{speed} · data wait {wait:.0} %"));
        }
        Some(line)
    }

    /// The line of a user's program with an unknown number of steps.
    fn open_line(&self, last: LastStep, spent: Money) -> String {
        let speed = self.speed().unwrap_or_default();
        format!("step {} · {spent} so far · loss {:.4}{speed}", grouped(last.step), last.loss)
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

    /// A program of 12 steps after so many, of 8 samples in 2 seconds each; the time of its first is unknown.
    fn program(steps: u64) -> ProgressLine {
        let mut progress = ProgressLine::default();
        progress.take(&Report::Ready(Ready::of_program(0, 12)));
        for number in 1..=steps {
            progress.take(&step(number, if number == 1 { 0 } else { 2_000_000 }));
        }
        progress
    }

    fn step(step: u64, step_us: u64) -> Report {
        let (epoch, loss, lr, samples, data) = (0, 0.5, 0.1, 8, Default::default());
        Report::Step(Step { step, epoch, loss, lr, samples, step_us, data_wait_us: 0, checkpoint_us: 0, data })
    }

    fn line(progress: &ProgressLine) -> String {
        progress.line(Money::from_micros(1_000_000), "3.60/h".parse().unwrap()).unwrap()
    }

    #[test]
    fn a_step_of_unknown_time_says_nothing_about_the_pace() {
        assert_eq!(line(&program(1)), "epoch 1/1 · step 1/12 · $1.00 so far · loss 0.5000");
        assert_eq!(program(1).left(), None);
        assert_eq!(
            line(&program(4)),
            "epoch 1/1 · step 4/12 · 0:16 left · $1.00 so far, $1.016 at the end · loss 0.5000 · 4 samples/s · data wait 0 %"
        );
        let mut open = ProgressLine::default();
        open.take(&step(1, 0));
        assert_eq!(line(&open), "step 1 · $1.00 so far · loss 0.5000");
        // The first steps count alike, and a slow one soon no more than the others.
        let mut uneven = program(1);
        uneven.take(&step(2, 3_000_000));
        uneven.take(&step(3, 1_000_000));
        assert_eq!(uneven.left(), Some(Elapsed(18_000_000)));
    }

    #[test]
    fn a_loss_that_is_not_finite_moves_the_line() {
        let metrics = |step, loss| Report::Metrics(Metrics { step, loss, ..Metrics::default() });
        let lost = |step, loss| metrics(step, NotFinite::of(loss));
        let mut progress = program(4);
        assert!(progress.take(&lost(5, f64::NAN)));
        assert_eq!(
            line(&progress),
            "epoch 1/1 · step 5/12 · 0:14 left · $1.00 so far, $1.014 at the end · loss NaN · 4 samples/s · data wait 0 %"
        );
        progress.take(&lost(6, f64::INFINITY));
        assert!(line(&progress).starts_with("epoch 1/1 · step 6/12 ") && line(&progress).contains(" · loss inf · "));
        progress.take(&step(7, 2_000_000));
        // Other metrics say nothing about the loss.
        assert!(!progress.take(&metrics(8, None)));
        assert!(line(&progress).starts_with("epoch 1/1 · step 7/12 ") && line(&progress).contains(" · loss 0.5000 · "));
        let newest = [step(1, 9), lost(2, f64::NAN), metrics(3, None)];
        assert!(newest_loss(&newest).is_some_and(f64::is_nan));
        assert_eq!((newest_loss(&newest[..1]), newest_loss(&newest[2..])), (Some(0.5), None));
        let mut first = ProgressLine::default();
        assert!(first.take(&lost(1, f64::NAN)));
        assert_eq!(line(&first), "step 1 · $1.00 so far · loss NaN");
    }
}
