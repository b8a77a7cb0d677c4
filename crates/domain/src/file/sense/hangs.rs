//! Limits after which an attempt counts as hung.

use super::Validator;
use crate::hang::HangLimit;
use crate::job::{Job, Work};

/// The shortest limit, in microseconds: several times the 5 s between two heartbeats of a program.
const SHORTEST: u64 = 30_000_000;

/// The shortest limit of a step that is not warned of on several machines, in microseconds. They survive a cut of the network of
/// 45 s, after which TCP may need as long again to send what was lost.
const SURE_AMONG_MACHINES: u64 = 90_000_000;

impl Validator {
    pub(super) fn hang_after(&mut self, job: &Job, work: Option<&Work>) {
        let limits = job.hang_after;
        let named =
            [("hang_after.setup", limits.setup), ("hang_after.step", limits.step), ("hang_after.save", limits.save)];
        let stated: Vec<(&str, HangLimit)> = named.into_iter().filter_map(|(key, limit)| Some((key, limit?))).collect();
        for (key, limit) in &stated {
            let is_of_trainer = *key != "hang_after.step" && matches!(work, Some(Work::Command(_)));
            if is_of_trainer {
                let message =
                    "it is for `train:`; of a `run:` program, `step` limits the time between two of its calls";
                self.wrong(key, message, "leave the key out");
            } else if limit.after().is_some_and(|after| after.micros() < SHORTEST) {
                let hint = "write `30s` or more, such as `10m`, or `false` for no limit";
                self.wrong(key, "it is at least 30 s", hint);
            }
        }
        let off = stated.iter().find(|(_, limit)| *limit == HangLimit::Off);
        if let (Some((key, _)), None, None) = (off, job.budget, job.deadline) {
            let message = "nothing ends an attempt that hangs there: the job has neither a budget nor a deadline";
            self.warn(key, message, "add `budget: {max: $5}` or `deadline: 12h`, or write a long limit, such as `6h`");
        }
        let step = limits.step.and_then(HangLimit::after);
        if job.nodes() > 1 && step.is_some_and(|step| (SHORTEST..SURE_AMONG_MACHINES).contains(&step.micros())) {
            let message = "several machines survive a cut of the network of 45 s, after which a step may take 90 s";
            self.warn("hang_after.step", message, "write `2m` or more");
        }
    }
}
