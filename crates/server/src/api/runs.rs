//! Runs: plan, submit, list, show, stop, resume.

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use domain::run::StopBy;
use domain::{Duration, Event, Money, RunId};
use plan::Resumption;
use serde::Deserialize;
use serde_json::{Value, json};

use super::failure::ApiError;
use super::views::{ResumeRequest, RunSummary, SubmitRequest, SubmittedRun, spent};
use super::{Api, reading};
use crate::clock;
use crate::submit::{job_hash, named};

/// Runs in one answer, at most.
const PAGE: usize = 1_000;

/// Plans a job without submitting it.
pub(super) async fn plan(
    State(api): State<Api>,
    request: Result<Json<SubmitRequest>, JsonRejection>,
) -> Result<Json<Value>, ApiError> {
    let request = body(request)?;
    let (job, plan) = reading::blocking(move || (api.planner)(&request)).await?;
    Ok(Json(json!({ "job": job.name, "plan": plan })))
}

/// Submits a job. With an `Idempotency-Key`, the same request sent again finds the same run.
pub(super) async fn submit(
    State(api): State<Api>,
    headers: HeaderMap,
    request: Result<Json<SubmitRequest>, JsonRejection>,
) -> Result<(StatusCode, Json<SubmittedRun>), ApiError> {
    let request = body(request)?;
    let key = headers.get("idempotency-key").map(|key| key.to_str().map(str::to_owned)).transpose();
    let key = key.map_err(|_| ApiError::new(400, "`Idempotency-Key` holds letters that are no text"))?;
    let planning = api.clone();
    let file = format!("{}/{}", request.folder.trim_end_matches('/'), request.file);
    let (mut job, plan) = reading::blocking(move || (planning.planner)(&request)).await?;
    let hash = job_hash(&job, &plan);
    let run = named(&job.name, key.as_deref());
    let known = {
        let run = run.clone();
        api.door.look(move |world| world.runs.get(&run).map(|run| (run.job_hash.clone(), run.plan.clone()))).await?
    };
    if let Some((before, plan)) = known {
        if before != hash {
            let message = format!("this `Idempotency-Key` was used for another job, run `{run}`");
            return Err(ApiError::new(409, message).hint("send another key"));
        }
        return Ok((StatusCode::OK, Json(SubmittedRun { run, is_new: false, plan })));
    }
    api.key.seal_job(&mut job).map_err(ApiError::inside)?;
    let event =
        domain::event::Submitted { run: run.clone(), job, plan: plan.clone(), job_hash: hash, file, trial: None };
    match api.door.request(Event::Submitted(Box::new(event))).await {
        Ok(_) => Ok((StatusCode::CREATED, Json(SubmittedRun { run, is_new: true, plan }))),
        // The same request, sent twice at the same time.
        Err(failure) if failure.status == 409 && key.is_some() => {
            Ok((StatusCode::OK, Json(SubmittedRun { run, is_new: false, plan })))
        }
        Err(failure) => Err(failure),
    }
}

/// Which runs to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// Only those in this state.
    state: Option<String>,
    /// So many at most, the newest ones.
    limit: Option<usize>,
    /// Only those that were submitted before this run.
    before: Option<String>,
}

/// Lists runs, the newest first.
pub(super) async fn list(
    State(api): State<Api>,
    query: Result<Query<ListQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    let Query(query) = query.map_err(|error| ApiError::new(400, error.body_text()))?;
    let now = clock::now();
    let listed = api.door.look(move |world| {
        let before = match &query.before {
            Some(name) => world.runs.get(&RunId::new(name.clone())).map(|run| run.order).ok_or(name.clone())?,
            None => u64::MAX,
        };
        let mut runs: Vec<_> = world.runs.iter().filter(|(_, run)| run.order < before).collect();
        runs.retain(|(_, run)| query.state.as_ref().is_none_or(|state| run.state.word() == state));
        runs.sort_by_key(|(_, run)| std::cmp::Reverse(run.order));
        let limit = query.limit.unwrap_or(100).min(PAGE);
        let more = runs.len() > limit;
        let runs: Vec<RunSummary> =
            runs.into_iter().take(limit).map(|(id, run)| RunSummary::of(world, id, run, now)).collect();
        Ok((runs, more))
    });
    let (runs, more) = listed.await?.map_err(|name: String| ApiError::no_run(&name))?;
    Ok(Json(json!({ "runs": runs, "has_more": more })))
}

/// Shows a run with its attempts and machines.
pub(super) async fn show(State(api): State<Api>, Path(run): Path<String>) -> Result<Json<Value>, ApiError> {
    let (id, now) = (RunId::new(run.clone()), clock::now());
    let shown = api.door.look(move |world| {
        let run = world.runs.get(&id)?;
        let attempts: Vec<Value> = run
            .attempts
            .iter()
            .filter_map(|id| Some(json!({ "attempt": id, "body": world.attempts.get(id)? })))
            .collect();
        let instances: Vec<Value> = run
            .instances
            .iter()
            .filter_map(|id| Some(json!({ "instance": id, "body": world.instances.get(id)? })))
            .collect();
        Some(json!({
            "run": id, "state": run.state, "word": run.state.word(), "plan": run.plan, "bill": run.bill,
            "cost_micro_usd": spent(world, run, now).micros(), "submitted": run.submitted,
            "attempts": attempts, "instances": instances,
        }))
    });
    shown.await?.map(Json).ok_or_else(|| ApiError::no_run(&run))
}

/// Asks a run to save and stop. A run that has stopped already stays as it is.
pub(super) async fn stop(
    State(api): State<Api>,
    Path(run): Path<String>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let id = RunId::new(run.clone());
    let state = {
        let id = id.clone();
        api.door.look(move |world| world.runs.get(&id).map(|run| run.state.clone())).await?
    };
    let state = state.ok_or_else(|| ApiError::no_run(&run))?;
    let is_stopping = matches!(state, domain::run::RunState::Stopping { .. });
    if !state.is_final() && !is_stopping {
        api.door.request(Event::StopRequested { run: id.clone(), by: StopBy::User }).await?;
    }
    Ok((StatusCode::ACCEPTED, Json(json!({ "run": id }))))
}

/// Resumes a run that was stopped, has failed or has reached a limit.
pub(super) async fn resume(
    State(api): State<Api>,
    Path(run): Path<String>,
    request: Option<Json<ResumeRequest>>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let Json(request) = request.unwrap_or_default();
    let id = RunId::new(run.clone());
    let wrong = |what: &str, why: String| ApiError::new(400, format!("`{what}`: {why}"));
    let budget = request.budget.map(|text| text.parse::<Money>()).transpose();
    let deadline = request.deadline.map(|text| text.parse::<Duration>()).transpose();
    let event = Event::ResumeRequested {
        run: id.clone(),
        budget: budget.map_err(|error| wrong("budget", error.to_string()))?,
        deadline: deadline.map_err(|error| wrong("deadline", error.to_string()))?,
        epochs: None,
        accept_data_change: request.accept_data_change,
    };
    let (asked, now) = (event.clone(), clock::now());
    let is_known = {
        let id = id.clone();
        api.door.look(move |world| world.runs.contains_key(&id).then(|| plan::resume::run(world, now, &id, &asked)))
    };
    let resumption = is_known.await?.ok_or_else(|| ApiError::no_run(&run))?;
    let refused = match resumption.map_err(|illegal| ApiError::new(409, illegal.why))? {
        Resumption::Allowed | Resumption::Reached(StopBy::User) => None,
        Resumption::Unfinished => Some((format!("run `{run}` is still running"), "stop it first")),
        Resumption::Complete => Some((format!("run `{run}` has ended with its result"), "submit the job again")),
        Resumption::TrialOf(sweep) => Some((format!("run `{run}` is a trial of sweep `{sweep}`"), "resume the sweep")),
        Resumption::Reached(_) => {
            let message = format!("run `{run}` has reached its limit and would be stopped again at once");
            Some((message, "raise the limit with `budget` or `deadline`"))
        }
    };
    if let Some((message, hint)) = refused {
        return Err(ApiError::new(409, message).hint(hint));
    }
    api.door.request(event).await?;
    Ok((StatusCode::ACCEPTED, Json(json!({ "run": id }))))
}

fn body<T>(request: Result<Json<T>, JsonRejection>) -> Result<T, ApiError> {
    request.map(|Json(body)| body).map_err(|error| {
        let hint = "see `/v1/openapi.json` for what is expected";
        ApiError::new(error.status().as_u16(), error.body_text()).hint(hint)
    })
}
