//! Checks of the keys of a sweep.

use super::Validator;
use crate::job::{Job, Work};
use crate::sweep::{Asha, MOST_TRIALS, Method, Metric, Parameter, Range, Sweep, VARIABLES};
use crate::train::{Split, Train};

impl Validator {
    pub(super) fn search(&mut self, job: &Job, work: Option<&Work>) {
        let Some(sweep) = &job.sweep else { return };
        match sweep.method {
            Method::Grid => self.grid(sweep),
            Method::Table => self.table(sweep),
            Method::Random | Method::Asha(_) => self.drawn(job, sweep),
        }
        match work {
            Some(Work::Train(train)) => {
                self.metric(sweep, train);
                if let Method::Asha(asha) = sweep.method {
                    self.halving(sweep, asha, train);
                }
            }
            Some(Work::Command(_)) => self.of_programs(job, sweep),
            None => {}
        }
    }

    fn table(&mut self, sweep: &Sweep) {
        let size = sweep.grid_size();
        match sweep.trials {
            None if size > u64::from(MOST_TRIALS) => {
                let message = format!("the table has {size} rows; a sweep has at most {MOST_TRIALS} trials");
                self.wrong("sweep.table", message, "divide it between several jobs");
            }
            Some(trials) if size > u64::from(trials) => {
                let message = format!("the table has {size} rows, of which only the first {trials} are tried");
                self.warn("sweep.trials", message, "leave `trials` out");
            }
            None | Some(_) => {}
        }
    }

    /// Trials of a program, whose epochs and results are not known.
    fn of_programs(&mut self, job: &Job, sweep: &Sweep) {
        if let Method::Asha(_) = sweep.method {
            let message = "successive halving counts epochs, and those of a `run:` program are not known";
            self.wrong("sweep.method.asha", message, "write `method: grid` or `method: random`");
        }
        let place = if sweep.method == Method::Table { "sweep.table" } else { "sweep.parameters" };
        for Parameter { key, range } in &sweep.parameters {
            let place = format!("{place}.{key}");
            if key.strip_prefix(VARIABLES).is_some_and(|name| job.secrets.contains_key(name)) {
                let message = "this variable is a secret, whose value all trials have";
                self.wrong(&place, message, "leave it out of `secrets`, or sweep another variable");
            }
            if let Range::Choices(values) = range {
                values.iter().filter_map(|value| value.as_str()).for_each(|value| self.text(&place, value));
            }
        }
    }

    fn grid(&mut self, sweep: &Sweep) {
        for parameter in &sweep.parameters {
            if let Range::Numbers(between) = &parameter.range
                && between.points.is_none()
            {
                let message = "a grid takes a number of values, and how many of this range is not said";
                let key = format!("sweep.parameters.{}", parameter.key);
                self.wrong(&key, message, "add `points: 5`, or write the values as a list");
            }
        }
        let size = sweep.grid_size();
        let most = u64::from(sweep.trials.unwrap_or(MOST_TRIALS));
        if sweep.trials.is_none() && size > most {
            let message = format!("the grid has {size} combinations; a sweep has at most {MOST_TRIALS} trials");
            self.wrong("sweep.parameters", message, "take fewer values, or `method: random`");
        } else if size > most {
            let message = format!("the grid has {size} combinations, of which only the first {most} are tried");
            self.warn("sweep.trials", message, "leave `trials` out, or take `method: random`");
        }
    }

    fn drawn(&mut self, job: &Job, sweep: &Sweep) {
        for parameter in &sweep.parameters {
            let points = match &parameter.range {
                Range::Choices(_) => None,
                Range::Integers(between) => between.points,
                Range::Numbers(between) => between.points,
            };
            if points.is_some() {
                let key = format!("sweep.parameters.{}.points", parameter.key);
                self.wrong(&key, "only a grid takes so many values", "leave the key out, or write `method: grid`");
            }
        }
        if sweep.trials.is_none() && job.budget.is_none() && job.deadline.is_none() {
            let message = "nothing ends this search: neither `trials`, nor `budget`, nor `deadline` is given";
            self.wrong("sweep", message, "write for example `trials: 20`");
        }
    }

    fn metric(&mut self, sweep: &Sweep, train: &Train) {
        let Some(metric) = sweep.metric else { return };
        let known = Metric::of(train);
        if !known.contains(&metric) {
            let names: Vec<String> = known.iter().map(|metric| format!("`{}`", metric.name())).collect();
            let message = format!("`{}` is not measured for `{}`", metric.name(), train.model.name());
            self.wrong("sweep.metric", message, format!("write one of {}", names.join(", ")));
        } else if sweep.goal != metric.goal() {
            let message = format!("the worst trial is looked for: less `{}` is worse", metric.name());
            let message = match metric.goal() {
                crate::sweep::Goal::Maximize => message,
                crate::sweep::Goal::Minimize => message.replace("less", "more"),
            };
            self.warn("sweep.goal", message, "leave `goal` out");
        }
        if let Split::Shares([_, validation, _]) = train.data.split
            && validation == 0.0
        {
            let message = "trials are judged by validation samples, and the split has none";
            self.wrong("sweep", message, "give validation a share in `train.data.split`");
        }
    }

    fn halving(&mut self, sweep: &Sweep, asha: Asha, train: &Train) {
        if sweep.parameters.iter().any(|parameter| parameter.key == "epochs") {
            let message = "successive halving itself says how many epochs a trial has";
            self.wrong("sweep.parameters.epochs", message, "leave the key out, or write `method: random`");
        } else {
            let most = asha.max_epochs.unwrap_or(train.epochs);
            if asha.min_epochs >= most {
                let message =
                    format!("trials of {} epochs have nothing to go on to: {most} are the most", asha.min_epochs);
                let hint = "make `min_epochs` smaller than `max_epochs`, which is `train.epochs` unless it is given";
                self.wrong("sweep.method.asha.min_epochs", message, hint);
            }
        }
        if train.stop.is_some_and(|stop| stop.epochs.is_some()) {
            let message = "successive halving itself says after how many epochs a trial stops";
            self.wrong("train.stop.epochs", message, "leave the key out");
        }
    }
}
