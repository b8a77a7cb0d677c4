//! Schedules: add, list, show, pause, resume, remove; [`keeper`] submits their runs, sweeps and pipelines.

pub(in crate::api) mod keeper;
mod work;

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use domain::event::ScheduleAdded;
use domain::schedule::{DueTimes, JobSchedule, ScheduleChange, ScheduledWork};
use domain::{Event, RunId, ScheduleId, Timestamp};
use plan::ScheduleRecord;
use serde_json::{Value, json};

use super::keys::{SubmissionKey, key};
use super::{NAMES, body, pipelines};
use crate::api::access::NamedClient;
use crate::api::failure::ApiError;
use crate::api::views::SubmitRequest;
use crate::api::{Api, PlannedJob, reading};
use crate::error::Error;
use crate::state::StateReader;
use crate::submit::{named, sealed_request};

/// A change, as it is answered.
type Changed = Result<(StatusCode, Json<Value>), ApiError>;

/// Lists schedules by name.
pub(in crate::api) async fn list(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    let schedules = api.door.look(|world| world.schedules.clone()).await?;
    let views = reading::blocking(move || {
        let views = schedules.iter().map(|(id, record)| view(&api.reader, (id, record), 1));
        views.collect::<Result<Vec<Value>, Error>>().map_err(ApiError::inside)
    });
    Ok(Json(json!({ "schedules": views.await? })))
}

/// Shows a schedule.
pub(in crate::api) async fn show(
    State(api): State<Api>,
    Path(schedule): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let (id, record) = known(&api, &schedule).await?;
    let shown = move || view(&api.reader, (&id, &record), usize::MAX).map_err(ApiError::inside);
    Ok(Json(reading::blocking(shown).await?))
}

/// Has a job or pipeline with `schedule:` run at its due times. With an `Idempotency-Key`, the same request sent again finds the same
/// schedule.
pub(in crate::api) async fn add(
    State(api): State<Api>,
    headers: HeaderMap,
    client: Option<Extension<NamedClient>>,
    request: Result<Json<SubmitRequest>, JsonRejection>,
) -> Changed {
    let request = body(request)?;
    let key = key(&headers)?.map(|key| SubmissionKey::new(key, &request));
    if let Some(key) = &key
        && let Some(name) = key.known(&api).await?
        && let Some(answer) = answer_of(&api, &ScheduleId::new(name)).await?
    {
        return Ok(answer);
    }
    let (job_name, times, work) = checked(&api, &request).await?;
    let mut name = named(&job_name, key.as_ref().map(|key| &*key.text));
    if let Some(key) = &key {
        name = key.claimed(&api, name).await?;
    }
    let (sealed, user) = (sealed_request(&api.key, &request).map_err(ApiError::inside)?, api.user(client));
    let schedule = ScheduleId::new(name);
    let mut event = ScheduleAdded { schedule, times, work, request: sealed, file: request.path(), user };
    for _ in 0..NAMES {
        match api.door.request(Event::ScheduleAdded(Box::new(event.clone()))).await {
            Ok(_) => return Ok((StatusCode::CREATED, Json(json!({ "schedule": event.schedule, "is_new": true })))),
            // The same request, sent twice at the same time.
            Err(failure) if failure.status == 409 && key.is_some() => {
                return answer_of(&api, &event.schedule).await?.ok_or(failure);
            }
            // Another schedule has the name that was drawn.
            Err(failure) if failure.status == 409 => event.schedule = ScheduleId::new(named(&job_name, None)),
            Err(failure) => return Err(failure),
        }
    }
    Err(ApiError::new(500, format!("{NAMES} names that were drawn for the schedule were taken")))
}

/// The name of a job or pipeline, its `schedule:`, and what it submits. It is planned as it would be now, so that a mistake is
/// found before the first due time.
async fn checked(api: &Api, request: &SubmitRequest) -> Result<(String, JobSchedule, ScheduledWork), ApiError> {
    if let Some(pipeline) = pipelines::read(request)? {
        let Some(times) = pipeline.schedule.clone() else {
            let refusal = ApiError::new(422, "the first document of this file has no `schedule:`");
            return Err(refusal.hint("send a single pipeline to `/v1/pipelines`"));
        };
        pipelines::plans(api, &pipelines::placed_now(request.clone()), &pipeline, None).await?;
        return Ok((pipeline.name, times, ScheduledWork::Pipeline));
    }
    let (planning, asked) = (api.clone(), request.clone());
    let PlannedJob { job, .. } = reading::blocking(move || (planning.answers.planner)(&asked)).await?;
    let Some(times) = job.schedule else {
        let refusal = ApiError::new(422, "this job has no `schedule:`");
        return Err(refusal.hint("send a single run to `/v1/runs`"));
    };
    let work = if job.sweep.is_some() { ScheduledWork::Sweep } else { ScheduledWork::Run };
    Ok((job.name, times, work))
}

/// The answer for a schedule that is in the log.
async fn answer_of(api: &Api, id: &ScheduleId) -> Result<Option<(StatusCode, Json<Value>)>, ApiError> {
    match known(api, id.as_str()).await {
        Ok((id, _)) => Ok(Some((StatusCode::OK, Json(json!({ "schedule": id, "is_new": false }))))),
        Err(failure) if failure.status == 404 => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Submits no run of a schedule until it is resumed.
pub(in crate::api) async fn pause(State(api): State<Api>, Path(schedule): Path<String>) -> Changed {
    change(&api, &schedule, ScheduleChange::Pause).await
}

/// Submits runs of a schedule again, at due times from now on.
pub(in crate::api) async fn resume(State(api): State<Api>, Path(schedule): Path<String>) -> Changed {
    change(&api, &schedule, ScheduleChange::Resume).await
}

/// Removes a schedule; its runs stay.
pub(in crate::api) async fn remove(State(api): State<Api>, Path(schedule): Path<String>) -> Changed {
    change(&api, &schedule, ScheduleChange::Remove).await
}

async fn change(api: &Api, schedule: &str, change: ScheduleChange) -> Changed {
    let (id, _) = known(api, schedule).await?;
    api.door.request(Event::ScheduleChanged { schedule: id.clone(), change }).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "schedule": id }))))
}

async fn known(api: &Api, schedule: &str) -> Result<(ScheduleId, ScheduleRecord), ApiError> {
    let id = ScheduleId::new(schedule);
    let found =
        api.door.look(move |world| world.schedules.get_key_value(&id).map(|(id, record)| (id.clone(), record.clone())));
    found.await?.ok_or_else(|| ApiError::no_schedule(schedule))
}

/// A schedule as API and commands show it, with the states of so many of its newest runs, sweeps or pipelines, the newest first.
/// Times are those of its zone.
///
/// # Errors
/// [`Error::State`].
pub fn view(reader: &StateReader, (id, record): (&ScheduleId, &ScheduleRecord), most: usize) -> Result<Value, Error> {
    let state = |name: &RunId| -> Result<Value, Error> {
        Ok(json!({ "name": name, "word": reader.word(&record.named(name))? }))
    };
    let newest = record.runs.iter().rev().take(most).map(state).collect::<Result<Vec<Value>, Error>>()?;
    let times = record.times.times().ok();
    let local = |at: Timestamp| times.as_ref().map(|times| times.local(at));
    let next =
        times.as_ref().filter(|_| record.paused.is_none()).and_then(|times: &DueTimes| times.next(record.settled));
    Ok(json!({
        "schedule": id, "work": record.work, "word": if record.paused.is_some() { "paused" } else { "active" },
        "cron": record.times.cron, "timezone": record.times.timezone, "catch_up": record.times.catch_up,
        "overlap": record.times.overlap, "warm_start": record.times.warm_start, "new_data": record.times.new_data,
        "file": record.file, "user": record.user, "added": record.added, "next_due": next.and_then(local),
        "last_due": record.last_due.and_then(local), "runs": record.runs, "newest": newest, "submitted": record.fired,
        "skipped": record.skipped,
        "last_skip": record.last_skip.as_ref().map(|(due, why)| json!({ "due": local(*due), "why": why })),
    }))
}
