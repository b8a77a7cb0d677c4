//! What the keepers of schedules and pipelines share: requests that were kept for later, and the runs that come of them.

use domain::event::Submitted;
use domain::{Event, RunId};

use super::admit_job;
use crate::api::failure::ApiError;
use crate::api::views::SubmitRequest;
use crate::api::{Api, PlannedJob, reading};
use crate::submit::{job_hash, request_of};

/// A request that was kept for later.
pub(in crate::api) fn opened(api: &Api, sealed: &str) -> Result<SubmitRequest, ApiError> {
    let request = request_of(&api.key, sealed);
    request.ok_or_else(|| ApiError::new(409, "its job was sealed with the key of another home"))
}

/// Submits a run that was planned, for its user.
pub(in crate::api) async fn submit_planned(
    api: &Api,
    planned: PlannedJob,
    (run, file, user): (&RunId, String, Option<String>),
) -> Result<(), ApiError> {
    let PlannedJob { mut job, plan, known, .. } = planned;
    if known.is_some() {
        return Err(ApiError::new(422, "its job has a `sweep:`, and is no single run"));
    }
    let admitted = admit_job(api, &job, &plan, user.as_deref()).await?;
    let job_hash = job_hash(&job, &plan);
    api.key.seal_job(&mut job).map_err(ApiError::inside)?;
    let submitted = Submitted { run: run.clone(), job, plan, job_hash, file, trial: None, user };
    api.door.request_holding(Event::Submitted(Box::new(submitted)), admitted).await.map(|_| ())
}

/// Has an event appended. One that cannot follow any more, because a user was faster, is left out.
pub(in crate::api) async fn append(api: &Api, event: Event) -> Result<(), ApiError> {
    match api.door.request(event).await {
        Err(failure) if failure.status != 409 => Err(failure),
        Ok(_) | Err(_) => Ok(()),
    }
}

/// A run as it is on disk; `None` if there is none of this name.
pub(in crate::api) async fn state_of(api: &Api, run: &RunId) -> Result<Option<plan::Run>, ApiError> {
    let (reader, run) = (api.reader.clone(), run.clone());
    let found = reading::blocking(move || {
        let world = reader.run(&run).map_err(ApiError::inside)?;
        Ok(world.and_then(|mut world| world.runs.remove(&run)))
    });
    found.await
}
