//! Submitting a sweep, once for each key however often it is sent.

use axum::extract::State;
use axum::extract::rejection::JsonRejection;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use domain::event::SweepSubmitted;
use domain::{Event, SweepId};

use crate::api::access::NamedClient;
use crate::api::failure::ApiError;
use crate::api::runs::keys::{SubmissionKey, key};
use crate::api::runs::{NAMES, admit_job, body};
use crate::api::views::{SubmitRequest, SubmittedSweep};
use crate::api::{Api, PlannedJob, reading};
use crate::submit::{job_hash, named};

/// A submission, as it is answered.
type Submission = (StatusCode, Json<SubmittedSweep>);

/// Submits a job with `sweep:`. With an `Idempotency-Key`, the same request sent again finds the same sweep.
pub(in crate::api) async fn submit(
    State(api): State<Api>,
    headers: HeaderMap,
    client: Option<Extension<NamedClient>>,
    request: Result<Json<SubmitRequest>, JsonRejection>,
) -> Result<Submission, ApiError> {
    let request = body(request)?;
    let key = key(&headers)?.map(|key| SubmissionKey::new(key, &request));
    // Before it is planned: what was acknowledged is answered alike, also where it could not be planned any more.
    if let Some(key) = &key
        && let Some(answer) = answered_before(&api, key).await?
    {
        return Ok(answer);
    }
    let planning = api.clone();
    let (file, user) = (request.path(), api.user(client));
    let planned = reading::blocking(move || (planning.answers.planner)(&request)).await?;
    let PlannedJob { mut job, plan, known, warnings } = planned;
    let Some(known) = known else {
        return Err(ApiError::new(422, "this job has no `sweep:`").hint("send a single run to `/v1/runs`"));
    };
    let admitted = match admit_job(&api, &job, &plan, user.as_deref()).await {
        Ok(admitted) => admitted,
        // The same request, sent twice at the same time, may have had what is missing now.
        Err(refused) => {
            let Some(key) = &key else { return Err(refused) };
            return answered_before(&api, key).await?.ok_or(refused);
        }
    };
    let mut name = named(&job.name, key.as_ref().map(|key| &*key.text));
    if let Some(key) = &key {
        name = key.claimed(&api, name).await?;
    }
    let job_hash = job_hash(&job, &plan);
    api.key.seal_job(&mut job).map_err(ApiError::inside)?;
    let mut event = SweepSubmitted { sweep: SweepId::new(name), job, plan: plan.clone(), known, job_hash, file, user };
    for _ in 0..NAMES {
        match api.door.request_holding(Event::SweepSubmitted(Box::new(event.clone())), admitted.clone()).await {
            Ok(_) => {
                let submitted = SubmittedSweep { sweep: event.sweep, is_new: true, plan, warnings };
                return Ok((StatusCode::CREATED, Json(submitted)));
            }
            // The same request, sent twice at the same time.
            Err(failure) if failure.status == 409 && key.is_some() => {
                return answer_of(&api, &event.sweep).await?.ok_or(failure);
            }
            // Another sweep has the name that was drawn.
            Err(failure) if failure.status == 409 => event.sweep = SweepId::new(named(&event.job.name, None)),
            Err(failure) => return Err(failure),
        }
    }
    Err(ApiError::new(500, format!("{NAMES} names that were drawn for the sweep were taken")))
}

/// The answer to a request that came before with this key, if it asked for the same.
async fn answered_before(api: &Api, key: &SubmissionKey) -> Result<Option<Submission>, ApiError> {
    match key.known(api).await? {
        Some(name) => answer_of(api, &SweepId::new(name)).await,
        None => Ok(None),
    }
}

/// The answer for a sweep that is in the log.
async fn answer_of(api: &Api, sweep: &SweepId) -> Result<Option<Submission>, ApiError> {
    let world = match super::known(api, sweep.as_str()).await {
        Err(failure) if failure.status == 404 => return Ok(None),
        found => found?,
    };
    let Some(known) = world.sweeps.get(sweep) else { return Ok(None) };
    let submitted =
        SubmittedSweep { sweep: sweep.clone(), is_new: false, plan: known.plan.clone(), warnings: Vec::new() };
    Ok(Some((StatusCode::OK, Json(submitted))))
}
