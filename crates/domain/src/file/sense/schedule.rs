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
        if job.sweep.is_some() && schedule.warm_start {
            let message =
                "trials of a sweep differ from each other, so there is no one model that the next sweep starts with";
            let hint = "leave `warm_start` and `new_data` out; `${schedule.previous_date}` in `train.data.path` names new data";
            self.wrong("schedule.warm_start", message, hint);
            return;
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
