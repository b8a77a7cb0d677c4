//! The schedule that a simulated user adds. The keeper of the server submits its runs, or its sweeps.

use domain::event::ScheduleAdded;
use domain::schedule::ScheduledWork;
use domain::{Event, RunId, ScheduleId};

use crate::scenario::Scenario;

/// Its name.
pub(crate) const SCHEDULE: &str = "c1";

pub(crate) fn schedule_id() -> ScheduleId {
    ScheduleId::new(SCHEDULE)
}

/// Whether this is the name of the schedule, of one of its runs or sweeps, or of a trial of those.
pub(crate) fn is_of_schedule(run: &RunId) -> bool {
    run.as_str().starts_with(SCHEDULE)
}

/// The schedule is asked for.
pub(crate) fn schedule_added(scenario: &Scenario) -> Event {
    let is_of_sweeps = scenario.schedule.sweep.trials > 0;
    Event::ScheduleAdded(Box::new(ScheduleAdded {
        schedule: schedule_id(),
        times: scenario.schedule.times(),
        work: if is_of_sweeps { ScheduledWork::Sweep } else { ScheduledWork::Run },
        request: "sealed".into(),
        file: "job.yaml".into(),
        user: None,
    }))
}
