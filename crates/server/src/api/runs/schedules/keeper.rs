//! Submits the runs of schedules when they are due. What is due is decided by [`ScheduleRecord::decide`].
//!
//! The run is submitted first, under the name that follows from its due time, and then written down as that of the schedule.
//! Killed in between, the next start finds the run under that name; it is neither lost nor submitted twice. The same is true of
//! sweeps and pipelines ([`super::work`]).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use domain::schedule::{DueRun, DueTimes, SkipReason};
use domain::{Event, ScheduleId, Timestamp};
use plan::{ScheduleDecision, ScheduleRecord};

use super::work;
use crate::api::Api;
use crate::api::failure::ApiError;
use crate::api::runs::kept::append;
use crate::clock;

/// Interval between two looks at the schedules.
const LOOK: Duration = Duration::from_secs(1);

/// How long a schedule is left alone after something of the server failed.
const REST: Duration = Duration::from_secs(60);

/// How long such a failure is retried; then the due time has no run.
const RETRIES: Duration = Duration::from_secs(3_600);

/// Failures of the server with one schedule.
#[derive(Debug, Clone, Copy)]
struct Trouble {
    /// When the first of them was.
    since: Instant,
    /// Until when the schedule is left alone.
    until: Instant,
}

/// Keeps the schedules of a home until the process ends.
pub(in crate::api) async fn keep(api: Api) {
    let mut troubles: BTreeMap<ScheduleId, Trouble> = BTreeMap::new();
    loop {
        tokio::time::sleep(LOOK).await;
        // The loop starts or ends: it is asked again.
        let Ok(schedules) = api.door.look(|world| world.schedules.clone()).await else { continue };
        troubles.retain(|id, _| schedules.contains_key(id));
        for (id, record) in schedules {
            let trouble = troubles.get(&id).copied();
            if trouble.is_some_and(|trouble| trouble.until > Instant::now()) {
                continue;
            }
            let since = trouble.map_or_else(Instant::now, |trouble| trouble.since);
            match settle(&api, &id, &record, since.elapsed() < RETRIES).await {
                Ok(()) => {
                    troubles.remove(&id);
                }
                Err(_) => {
                    troubles.insert(id, Trouble { since, until: Instant::now() + REST });
                }
            }
        }
    }
}

/// Does what is due of a schedule.
async fn settle(api: &Api, id: &ScheduleId, record: &ScheduleRecord, is_retried: bool) -> Result<(), ApiError> {
    // One that only a later version can read waits for it.
    let Ok(times) = record.times.times() else { return Ok(()) };
    let now = clock::now();
    let Some(due) = times.next(record.settled).filter(|due| *due <= now) else { return Ok(()) };
    // It was submitted before this process started; this counts as well if the schedule was paused since.
    let first = id.run(due);
    if work::standing(api, record, &first, now).await?.is_some() {
        return append(api, Event::ScheduleFired { schedule: id.clone(), due, run: first }).await;
    }
    let last = match record.runs.last() {
        Some(run) => work::standing(api, record, run, now).await?,
        None => None,
    };
    match record.decide(&times, last.as_ref(), now) {
        ScheduleDecision::Wait { .. } | ScheduleDecision::WaitFor { .. } => Ok(()),
        ScheduleDecision::Stop { run } => append(api, work::stop(record.named(&run))).await,
        ScheduleDecision::Skip { due, count, why } => skip(api, id, due, (count, why)).await,
        ScheduleDecision::Submit { due } => submit(api, (id, record), (&times, due), is_retried).await,
    }
}

/// Submits the run of a due time, or writes down why there is none.
async fn submit(
    api: &Api,
    (id, record): (&ScheduleId, &ScheduleRecord),
    (times, due): (&DueTimes, Timestamp),
    is_retried: bool,
) -> Result<(), ApiError> {
    let previous = record.last_due.unwrap_or(record.added);
    let (run, named) = (id.run(due), DueRun { due: times.local(due), previous: times.local(previous) });
    let fired = Event::ScheduleFired { schedule: id.clone(), due, run: run.clone() };
    let failure = match work::submit(api, (id, record), &run, named).await {
        Ok(true) => return append(api, fired).await,
        // The next look sees what has changed.
        Ok(false) => return Ok(()),
        Err(failure) => failure,
    };
    // A failure of the server, or of what it has to reach, may pass; a refusal of the job stays one.
    if failure.status >= 500 && is_retried {
        return Err(failure);
    }
    // An earlier request was answered late.
    if work::standing(api, record, &run, clock::now()).await?.is_some() {
        return append(api, fired).await;
    }
    let hint = failure.hint.map_or(String::new(), |hint| format!(" (hint: {hint})"));
    let why = SkipReason::Refused { message: format!("{}{hint}", failure.message) };
    skip(api, id, due, (1, why)).await
}

async fn skip(api: &Api, id: &ScheduleId, due: Timestamp, (count, why): (u32, SkipReason)) -> Result<(), ApiError> {
    append(api, Event::ScheduleSkipped { schedule: id.clone(), due, count, why }).await
}
