//! Checks of `schedule:`.

use super::Validator;
use crate::job::{Job, Work};

impl Validator {
    pub(super) fn run_schedule(&mut self, job: &Job, work: Option<&Work>) {
        let Some(schedule) = &job.schedule else { return };
        if let Err((key, why)) = schedule.times() {
            let hint = match key {
                "timezone" => "write a name of the IANA database, such as `Europe/Berlin`",
                _ => "write minute, hour, day of month, month and day of week, such as `0 3 * * *`",
            };
            self.wrong(&format!("schedule.{key}"), why, hint);
        }
        if job.sweep.is_some() {
            let message = "each run of a schedule is a single one, and this job has `sweep:`";
            self.wrong(
                "schedule",
                message,
                "remove the key, and have cron run `gradus run FILE --yes --new --detach` at these times",
            );
        }
        if schedule.new_data && (!schedule.warm_start || matches!(work, Some(Work::Command(_)))) {
            let message = "it is for a `train` job that continues from the model of the run before";
            self.wrong("schedule.new_data", message, "add `warm_start: true`, or leave the key out");
        }
        if let Some(Work::Command(command)) = work
            && schedule.warm_start
            && command.outputs.is_empty()
        {
            let message = "a run starts with the `outputs` of the one before, and this job has none";
            self.wrong("schedule.warm_start", message, "add `outputs: [FOLDER]`, or leave the key out");
        }
    }
}
