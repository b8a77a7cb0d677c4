//! Makes reports of what was seen: each step once, whichever source shows it first.

use std::collections::{BTreeMap, BTreeSet};

use domain::rank::{Fetching, Metrics, NotFinite, Ready, Report, Step};

/// Numbers of one step, as far as they were seen.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct ObservedStep {
    /// From 1.
    pub step: u64,
    /// Steps in all.
    pub steps: Option<u64>,
    /// May have a fraction.
    pub epoch: Option<f64>,
    pub loss: Option<f64>,
    pub lr: Option<f64>,
    /// Samples of a step.
    pub samples: Option<u64>,
    /// Figures by names of the program's own.
    pub others: BTreeMap<String, f64>,
    /// When, in seconds since 1970.
    pub at: f64,
}

/// Where numbers were seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// Lines that match the pattern of the job.
    Output,
    /// TensorBoard files.
    Scalars,
    /// `trainer_state.json` of Hugging Face's trainer.
    TrainerState,
}

/// What there was before this attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriorState {
    /// It is the first.
    Nothing,
    /// Another attempt, and no checkpoint of a known layout.
    AnotherAttempt,
    /// A checkpoint of this step, which the program was given.
    Checkpoint(u64),
}

/// The steps that were reported.
#[derive(Debug)]
pub(super) struct Steps {
    before: PriorState,
    has_begun: bool,
    /// The last step with a loss, finite or not, and when.
    last: Option<(u64, f64)>,
    lr: f64,
    epoch: f64,
    /// The newest step of each figure, by name.
    figures: BTreeMap<String, u64>,
    /// Sources whose numbers are not finite, which was reported once.
    not_finite: BTreeSet<Source>,
}

impl Steps {
    /// The steps of an attempt.
    pub fn after(before: PriorState) -> Steps {
        let (figures, not_finite) = (BTreeMap::new(), BTreeSet::new());
        Steps { before, has_begun: false, last: None, lr: 0.0, epoch: 0.0, figures, not_finite }
    }

    /// The step of the checkpoint that the program was given.
    pub fn resumed_from(&self) -> Option<u64> {
        if let PriorState::Checkpoint(step) = self.before { Some(step) } else { None }
    }

    /// The step that was seen last, and when; before the first one, that which was `started` from.
    pub fn last(&self, started: f64) -> (u64, f64) {
        let before = if let PriorState::Checkpoint(step) = self.before { step } else { 0 };
        self.last.unwrap_or((before, started))
    }

    /// The reports about `seen`: a step whose loss was not reported yet, and figures that are new.
    pub fn take(&mut self, source: Source, mut seen: ObservedStep) -> Vec<Report> {
        let mut reports = Vec::new();
        let lost = seen.loss.and_then(NotFinite::of);
        let mut not_finite = NotFinite::among(&seen.others);
        self.check_finite(source, &mut seen, &mut reports);
        self.lr = seen.lr.unwrap_or(self.lr);
        self.epoch = seen.epoch.unwrap_or(self.epoch);
        let is_next = self.last.is_none_or(|(step, _)| seen.step > step);
        if let Some(loss) = seen.loss.filter(|_| is_next && seen.step > 0) {
            self.begin(&seen, &mut reports);
            reports.push(Report::Step(self.step(&seen, loss)));
            self.last = Some((seen.step, seen.at));
        }
        let lost = lost.filter(|_| is_next && seen.step > 0);
        if lost.is_some() {
            self.last = Some((seen.step, seen.at));
        }
        let mut values = std::mem::take(&mut seen.others);
        let is_new = |name: &String| self.figures.get(name).is_none_or(|step| seen.step > *step);
        values.retain(|name, _| is_new(name));
        not_finite.retain(|name, _| is_new(name));
        if !values.is_empty() || lost.is_some() || !not_finite.is_empty() {
            self.begin(&seen, &mut reports);
            self.figures.extend(values.keys().chain(not_finite.keys()).map(|name| (name.clone(), seen.step)));
            reports.push(Report::Metrics(Metrics { step: seen.step, values, loss: lost, not_finite }));
        }
        reports
    }

    fn step(&self, seen: &ObservedStep, loss: f64) -> Step {
        // The first one has nothing to be measured from.
        let (steps, since) = self.last.map_or((1, 0.0), |(step, at)| (seen.step - step, seen.at - at));
        Step {
            step: seen.step,
            epoch: self.epoch.max(0.0) as u32,
            loss,
            lr: self.lr,
            samples: u32::try_from(seen.samples.unwrap_or(0)).unwrap_or(u32::MAX),
            step_us: (since.max(0.0) * 1e6) as u64 / steps,
            data_wait_us: 0,
            checkpoint_us: 0,
            data: Fetching::default(),
        }
    }

    /// Reports once where training begins.
    fn begin(&mut self, seen: &ObservedStep, reports: &mut Vec<Report>) {
        if std::mem::replace(&mut self.has_begun, true) {
            return;
        }
        let step = match self.before {
            PriorState::Nothing => 0,
            PriorState::Checkpoint(step) if step < seen.step => step,
            // It has resumed from something of its own, or starts over.
            PriorState::Checkpoint(_) | PriorState::AnotherAttempt => seen.step.saturating_sub(1),
        };
        reports.push(Report::Ready(Ready::of_program(step, seen.steps.unwrap_or(0))));
    }

    /// Leaves out what is not finite, and says so once, until all is finite again.
    fn check_finite(&mut self, source: Source, seen: &mut ObservedStep, reports: &mut Vec<Report>) {
        let is_finite = |value: &f64| value.is_finite();
        let is_lost = seen.loss.is_some_and(|loss| !loss.is_finite());
        let all = seen.loss.iter().chain(&seen.lr).chain(seen.others.values()).all(is_finite);
        seen.loss = seen.loss.filter(is_finite);
        seen.lr = seen.lr.filter(is_finite);
        seen.epoch = seen.epoch.filter(is_finite);
        seen.others.retain(|_, value| value.is_finite());
        if all {
            self.not_finite.remove(&source);
        } else if self.not_finite.insert(source) {
            let mut text = format!("a figure that the program shows for step {} is not finite", seen.step);
            if is_lost {
                text.push_str("; the program continues, at the run's cost: `gradus stop RUN` stops it");
            }
            reports.push(Report::Note { text });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(step: u64, loss: f64, at: f64) -> ObservedStep {
        ObservedStep { step, loss: Some(loss), at, ..ObservedStep::default() }
    }

    /// Where training begins, as it is said when the first step is seen.
    fn check(before: PriorState, first: u64, expected: u64) {
        let reports = Steps::after(before).take(Source::Output, seen(first, 1.0, 0.0));
        assert!(matches!(&reports[0], Report::Ready(ready) if ready.step == expected), "{reports:?}");
        assert!(matches!(&reports[1], Report::Step(step) if step.step == first && step.step_us == 0));
    }

    #[test]
    fn training_begins_after_the_checkpoint_that_it_was_given() {
        check(PriorState::Nothing, 10, 0);
        check(PriorState::Checkpoint(20), 30, 20);
        check(PriorState::Checkpoint(20), 10, 9);
        check(PriorState::AnotherAttempt, 31, 30);
    }

    #[test]
    fn each_step_comes_once_and_takes_the_time_between_two() {
        let mut steps = Steps::after(PriorState::Nothing);
        steps.take(Source::Output, seen(10, 1.0, 100.0));
        assert!(steps.take(Source::Scalars, seen(10, 1.0, 100.5)).is_empty());
        let reports = steps.take(Source::Scalars, seen(20, 0.5, 105.0));
        assert!(matches!(&reports[..], [Report::Step(step)] if step.step_us == 500_000), "{reports:?}");
        let f1 = |step, value| ObservedStep {
            step,
            others: BTreeMap::from([("f1".to_owned(), value)]),
            ..ObservedStep::default()
        };
        assert_eq!(steps.take(Source::Output, f1(10, 0.5)).len(), 1, "an evaluation may come late");
        assert!(steps.take(Source::Scalars, f1(10, 0.5)).is_empty());
        assert_eq!(steps.take(Source::Output, f1(20, 0.6)).len(), 1);
    }

    #[test]
    fn a_loss_that_is_not_finite_is_noted_once() {
        let mut steps = Steps::after(PriorState::Nothing);
        let mut take = |step: u64, loss: f64| {
            let reports = steps.take(Source::Output, seen(step, loss, step as f64));
            let word = |report: &Report| match report {
                Report::Note { text } => format!("note: {text}"),
                Report::Ready(_) => "ready".to_owned(),
                Report::Step(step) => format!("step {} in {} s", step.step, step.step_us / 1_000_000),
                Report::Metrics(Metrics { step, values, loss, .. }) => format!("{step} {} {loss:?}", values.len()),
                other => format!("{other:?}"),
            };
            reports.iter().map(word).collect::<Vec<_>>()
        };
        let note = |step: u64| {
            format!(
                "note: a figure that the program shows for step {step} is not finite; the program continues, at the \
                 run's cost: `gradus stop RUN` stops it"
            )
        };
        assert_eq!(take(1, f64::NAN), [note(1), "ready".to_owned(), "1 0 Some(Nan)".to_owned()]);
        assert_eq!(take(2, f64::INFINITY), ["2 0 Some(Infinite)"]);
        assert_eq!(take(2, f64::NAN), Vec::<String>::new(), "each step comes once");
        assert_eq!(take(3, 0.5), ["step 3 in 1 s"]);
        assert_eq!(take(4, f64::NAN), [note(4), "4 0 Some(Nan)".to_owned()]);
    }

    #[test]
    fn a_figure_that_is_not_finite_is_reported_as_such() {
        let mut steps = Steps::after(PriorState::Nothing);
        let mut take = |step: u64, value: f64| {
            let others = BTreeMap::from([("eval_loss".to_owned(), value)]);
            let reports = steps.take(Source::Output, ObservedStep { step, others, ..ObservedStep::default() });
            let figures = reports.into_iter().filter_map(|report| match report {
                Report::Metrics(metrics) => Some((metrics.values.len(), metrics.not_finite)),
                _ => None,
            });
            figures.collect::<Vec<_>>()
        };
        assert_eq!(take(1, 0.5), [(1, BTreeMap::new())]);
        assert_eq!(take(2, f64::NAN), [(0, BTreeMap::from([("eval_loss".to_owned(), NotFinite::Nan)]))]);
        assert!(take(2, 0.5).is_empty(), "each figure comes once for a step");
    }
}
