//! The schedule that a simulated user adds. The keeper of the server submits its runs.

use domain::event::ScheduleAdded;
use domain::schedule::ScheduledWork;
use domain::{Event, RunId, ScheduleId};

use crate::scenario::Scenario;

/// Its name.
pub(crate) const SCHEDULE: &str = "c1";

pub(crate) fn schedule_id() -> ScheduleId {
    ScheduleId::new(SCHEDULE)
}

/// Whether this is the name of the schedule, or of one of its runs.
pub(crate) fn is_of_schedule(run: &RunId) -> bool {
    run.as_str().starts_with(SCHEDULE)
}

/// The schedule is asked for.
pub(crate) fn schedule_added(scenario: &Scenario) -> Event {
    Event::ScheduleAdded(Box::new(ScheduleAdded {
        schedule: schedule_id(),
        times: scenario.schedule.times(),
        work: ScheduledWork::Run,
        request: "sealed".into(),
        file: "job.yaml".into(),
        user: None,
    }))
}
