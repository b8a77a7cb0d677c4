//! Resuming a sweep, once for each request however often it is sent.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use domain::run::StopBy;
use domain::{Duration, Event, Money, SweepId};
use plan::{Resumption, RunOrSweep};
use serde_json::{Value, json};

use crate::api::failure::ApiError;
use crate::api::runs::keys::key;
use crate::api::runs::resume::{asked_after, remember};
use crate::api::runs::{admitted, unreadable};
use crate::api::views::SweepResumeRequest;
use crate::api::{Api, PaidRequest, reading};
use crate::clock;
use crate::submit::sha256;

/// Resumes a sweep that was stopped, has failed or has reached a limit. With an `Idempotency-Key`, a repeated request has no
/// effect.
pub(in crate::api) async fn resume(
    State(api): State<Api>,
    Path(sweep): Path<String>,
    headers: HeaderMap,
    request: Result<Option<Json<SweepResumeRequest>>, JsonRejection>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let Json(request) = request.map_err(unreadable)?.unwrap_or_default();
    let id = SweepId::new(sweep.clone());
    let key = key(&headers)?.map(|key| sha256(key.as_bytes()));
    let wrong = |what: &str, why: String| ApiError::new(400, format!("`{what}`: {why}"));
    let budget = request.budget.map(|text| text.parse::<Money>()).transpose();
    let budget = budget.map_err(|error| wrong("budget", error.to_string()))?;
    let deadline = request.deadline.map(|text| text.parse::<Duration>()).transpose();
    let event = Event::SweepResumeRequested {
        sweep: id.clone(),
        budget,
        deadline: deadline.map_err(|error| wrong("deadline", error.to_string()))?,
        accept_data_change: request.accept_data_change,
    };
    let world = super::whole(&api, &sweep).await?;
    let accepted = || (StatusCode::ACCEPTED, Json(json!({ "sweep": id })));
    if let Some(key) = key.clone()
        && was_resumed(&api, &id, key).await?
    {
        return Ok(accepted());
    }
    let resumption = plan::resume::sweep(&world, clock::now(), &id, &event);
    require_allowed(&sweep, resumption.map_err(|illegal| ApiError::new(409, illegal.why))?)?;
    let record = world.sweeps.get(&id).cloned().ok_or_else(|| ApiError::no_sweep(&sweep))?;
    let (seq, checking, checked) = (world.last_seq, api.clone(), RunOrSweep::Sweep(id.clone()));
    reading::blocking(move || (checking.answers.resume_check)(&world, &checked)).await?;
    let admitting = api.clone();
    let admitted = admitted(move || (admitting.answers.admitter)(PaidRequest::ResumeSweep(&record, budget))).await?;
    let (home, folder) = (api.home.clone(), api.home.sweep(&id));
    let noted = reading::blocking(move || {
        if let Some(key) = key {
            remember(&folder, key, seq)?;
        }
        // Its next end is reported again.
        home.unmark_reported(&folder);
        Ok(())
    });
    noted.await?;
    api.door.request_holding(event, admitted).await?;
    Ok(accepted())
}

fn require_allowed(sweep: &str, resumption: Resumption) -> Result<(), ApiError> {
    let (message, hint) = match resumption {
        Resumption::Allowed | Resumption::Reached(StopBy::User | StopBy::Idle) => return Ok(()),
        Resumption::Unfinished => (format!("sweep `{sweep}` is still running"), "stop it first"),
        Resumption::Complete => (format!("sweep `{sweep}` has ended with its result"), "submit the job again"),
        Resumption::TrialOf(other) => (format!("`{sweep}` is a trial of sweep `{other}`"), "resume that sweep"),
        Resumption::Reached(StopBy::Budget | StopBy::Deadline) => {
            let message = format!("sweep `{sweep}` has reached its limit and would be stopped again at once");
            (message, "raise the limit with `budget` or `deadline`")
        }
    };
    Err(ApiError::new(409, message).hint(hint))
}

/// Whether a request with this key came before, and the sweep was resumed after it.
async fn was_resumed(api: &Api, id: &SweepId, key: String) -> Result<bool, ApiError> {
    let (api, id) = (api.clone(), id.clone());
    reading::blocking(move || {
        let Some(mut after) = asked_after(&api.home.sweep(&id), &key)? else { return Ok(false) };
        loop {
            let read = api.reader.sweep_records(&id, after, reading::PAGE).map_err(ApiError::inside)?;
            if read.records.iter().any(|record| matches!(record.event, Event::SweepResumeRequested { .. })) {
                return Ok(true);
            }
            if !read.has_more {
                return Ok(false);
            }
            after = read.next;
        }
    })
    .await
}
