//! Runs: plan, submit, list, show, stop; [`resume`]; [`schedules`] and [`pipelines`], which submit them.

mod kept;
pub(super) mod keys;
pub(super) mod pipelines;
pub(super) mod resume;
pub(super) mod schedules;

use std::sync::{Arc, Mutex};

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use domain::run::{RunState, StopBy};
use domain::{Event, Job, Plan, RunId};
use plan::World;
use serde::Deserialize;
use serde_json::{Value, json};

use self::keys::{SubmissionKey, key, other_request};
use super::access::NamedClient;
use super::failure::ApiError;
use super::views::{RunDetails, RunSummary, SubmitRequest, SubmittedRun, spent};
use super::{Api, PaidRequest, PlannedJob, reading};
use crate::clock;
use crate::error::Error;
use crate::home::Shortage;
use crate::series::{Series, newest_step};
use crate::state::{ListedRun, RunFilter};
use crate::submit::{job_hash, named};

/// Runs in one answer, at most.
const PAGE: usize = 1_000;

/// Number of names drawn for a run or sweep before giving up.
pub(super) const NAMES: usize = 10;

/// Plans a job without submitting it.
pub(super) async fn plan(
    State(api): State<Api>,
    request: Result<Json<SubmitRequest>, JsonRejection>,
) -> Result<Json<Value>, ApiError> {
    let request = body(request)?;
    if let Some(pipeline) = pipelines::read(&request)? {
        let plans = pipelines::plans(&api, &pipelines::placed_now(request), &pipeline, None).await?;
        let tasks = pipeline.tasks.iter().zip(plans).map(|(task, plan)| json!({ "task": task.name, "plan": plan }));
        return Ok(Json(json!({ "pipeline": pipeline.name, "tasks": tasks.collect::<Vec<_>>() })));
    }
    let planned = reading::blocking(move || (api.answers.planner)(&request)).await?;
    let PlannedJob { job, plan, known, warnings } = planned;
    let mut answer = json!({ "job": job.name, "plan": plan, "warnings": warnings });
    if let (Some(known), Some(sweep)) = (known, &job.sweep) {
        answer["sweep"] = json!({ "known": known, "search": sweep });
    }
    Ok(Json(answer))
}

/// Submits a job. With an `Idempotency-Key`, the same request sent again finds the same run.
pub(super) async fn submit(
    State(api): State<Api>,
    headers: HeaderMap,
    client: Option<Extension<NamedClient>>,
    request: Result<Json<SubmitRequest>, JsonRejection>,
) -> Result<(StatusCode, Json<SubmittedRun>), ApiError> {
    let request = body(request)?;
    let key = key(&headers)?.map(|key| SubmissionKey::new(key, &request));
    // Before it is planned: what was acknowledged is answered alike, also where it could not be planned any more.
    if let Some(key) = &key
        && let Some(answer) = answered_before(&api, key).await?
    {
        return Ok(answer);
    }
    let (file, user) = (request.path(), api.user(client));
    let PlannedJob { mut job, plan, warnings, .. } = planned(&api, request).await?;
    let hash = job_hash(&job, &plan);
    let mut run = RunId::new(named(&job.name, key.as_ref().map(|key| &*key.text)));
    if key.is_some()
        && let Some(answer) = answered_by_name(&api, &run, &hash).await?
    {
        return Ok(answer);
    }
    let admitted = match admit_job(&api, &job, &plan, user.as_deref()).await {
        Ok(admitted) => admitted,
        // The same request, sent twice at the same time, may have had what is missing now.
        Err(refused) => {
            let Some(key) = &key else { return Err(refused) };
            return answered_before(&api, key).await?.ok_or(refused);
        }
    };
    if let Some(key) = &key {
        run = RunId::new(key.claimed(&api, run.to_string()).await?);
    }
    api.key.seal_job(&mut job).map_err(ApiError::inside)?;
    let mut event =
        domain::event::Submitted { run: run.clone(), job, plan: plan.clone(), job_hash: hash, file, trial: None, user };
    for _ in 0..NAMES {
        match api.door.request_holding(Event::Submitted(Box::new(event.clone())), admitted.clone()).await {
            Ok(_) => return Ok(created(event.run, plan, warnings)),
            // The same request, sent twice at the same time.
            Err(failure) if failure.status == 409 && key.is_some() => {
                return answer_of(&api, &event.run).await?.ok_or(failure);
            }
            // Another run has the name that was drawn.
            Err(failure) if failure.status == 409 => event.run = RunId::new(named(&event.job.name, None)),
            Err(failure) => return Err(failure),
        }
    }
    Err(ApiError::new(500, format!("{NAMES} names that were drawn for the run were taken")))
}

/// The job of a single run, with its plan.
async fn planned(api: &Api, request: SubmitRequest) -> Result<PlannedJob, ApiError> {
    let api = api.clone();
    let planned = reading::blocking(move || (api.answers.planner)(&request)).await?;
    if planned.known.is_some() {
        return Err(ApiError::new(422, "this job has a `sweep:`, and is no single run").hint("send it to `/v1/sweeps`"));
    }
    Ok(planned)
}

/// What was admitted, held until the work is on disk.
pub(super) type Admitted = Arc<Mutex<Box<dyn Send>>>;

/// One request is admitted at a time: others wait here, and not on threads that readers need.
static ADMITTING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Admits a job that is submitted, perhaps for a user.
pub(super) async fn admit_job(api: &Api, job: &Job, plan: &Plan, user: Option<&str>) -> Result<Admitted, ApiError> {
    let (api, job, plan, user) = (api.clone(), job.clone(), plan.clone(), user.map(str::to_owned));
    admitted(move || (api.answers.admitter)(PaidRequest::Submit(&job, &plan, user.as_deref()))).await
}

/// Admits work that may spend money.
pub(super) async fn admitted(
    admit: impl FnOnce() -> Result<Box<dyn Send>, ApiError> + Send + 'static,
) -> Result<Admitted, ApiError> {
    let _alone = ADMITTING.lock().await;
    reading::blocking(admit).await.map(|admitted| Arc::new(Mutex::new(admitted)))
}

/// A submission, as it is answered.
type Submission = (StatusCode, Json<SubmittedRun>);

/// The answer to a request that has submitted a run.
fn created(run: RunId, plan: Plan, warnings: Vec<String>) -> Submission {
    (StatusCode::CREATED, Json(SubmittedRun { run, is_new: true, plan, warnings }))
}

/// The answer to a request that came before with this key, if it asked for the same.
async fn answered_before(api: &Api, key: &SubmissionKey) -> Result<Option<Submission>, ApiError> {
    match key.known(api).await? {
        Some(name) => answer_of(api, &RunId::new(name)).await,
        None => Ok(None),
    }
}

/// The same for a request to a server of an earlier version, which stored the key in the name of the run alone.
async fn answered_by_name(api: &Api, run: &RunId, hash: &str) -> Result<Option<Submission>, ApiError> {
    match submitted_before(api, run).await? {
        Some((before, _)) if before != hash => Err(other_request(run.as_str())),
        Some(_) => answer_of(api, run).await,
        None => Ok(None),
    }
}

/// The answer for a run that is in the log.
async fn answer_of(api: &Api, run: &RunId) -> Result<Option<Submission>, ApiError> {
    let Some((_, plan)) = submitted_before(api, run).await? else { return Ok(None) };
    Ok(Some((StatusCode::OK, Json(SubmittedRun { run: run.clone(), is_new: false, plan, warnings: Vec::new() }))))
}

/// The hash of the job and the plan of a run that is known already.
async fn submitted_before(api: &Api, run: &RunId) -> Result<Option<(String, Plan)>, ApiError> {
    match reading::stored(api, run.as_str()).await {
        Ok(mut world) => Ok(world.runs.remove(run).map(|run| (run.job_hash, run.plan))),
        Err(failure) if failure.status == 404 => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Which runs to list.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ListQuery {
    /// Only those in this state.
    state: Option<String>,
    /// Maximum number of runs, newest first.
    limit: Option<usize>,
    /// Only those that were submitted before this run.
    before: Option<String>,
    /// Only runs whose names begin with this.
    name: Option<String>,
    /// Whether trials of sweeps are among them.
    trials: Option<bool>,
    /// Also the full state of each and its newest step, and the number of runs.
    #[serde(default)]
    details: bool,
}

/// Lists runs, the newest first.
pub(super) async fn list(
    State(api): State<Api>,
    query: Result<Query<ListQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Json<Value>, ApiError> {
    let Query(query) = query.map_err(|error| ApiError::new(400, error.body_text()))?;
    let limit = query.limit.unwrap_or(100).min(PAGE);
    let before = query.before.map(RunId::new);
    let no_trials = query.trials == Some(false);
    let filter = RunFilter { state: known_state(query.state)?, name: query.name, before, no_trials, limit };
    let listed = reading::blocking(move || {
        let (listed, has_more) = api.reader.list(&filter).map_err(|error| match error {
            Error::NoRun(name) => ApiError::no_run(&name),
            error => ApiError::inside(error),
        })?;
        let series = query.details.then(|| Series::open(&api.home)).transpose().map_err(ApiError::inside)?;
        let summary = |listed| summary(&api, series.as_ref(), listed);
        let runs = listed.into_iter().map(summary).collect::<Result<Vec<_>, _>>()?;
        let mut answer = json!({ "runs": runs, "has_more": has_more });
        if query.details {
            let counted = api.reader.count_by_state().map_err(ApiError::inside)?;
            answer["total"] = json!(counted.iter().map(|(_, count)| count).sum::<u64>());
        }
        Ok(answer)
    });
    listed.await.map(Json)
}

/// A state to list, where it is one: of a misspelled one there would never be a run.
fn known_state(state: Option<String>) -> Result<Option<String>, ApiError> {
    match state {
        Some(state) if !RunState::WORDS.contains(&state.as_str()) => {
            let hint = format!("send one of {}", RunState::WORDS.map(|word| format!("`{word}`")).join(", "));
            Err(ApiError::new(400, format!("`state`: no run is ever `{state}`")).hint(hint))
        }
        state => Ok(state),
    }
}

/// A run for a list; its cost is computed if its bill is not final. With measurements, in detail.
fn summary(api: &Api, series: Option<&Series>, listed: ListedRun) -> Result<RunSummary, ApiError> {
    let billed = listed.billed_micro_usd.filter(|_| series.is_none());
    let world = match billed {
        Some(_) => World::default(),
        None => api.reader.run(&listed.run).map_err(ApiError::inside)?.unwrap_or_default(),
    };
    let run = world.runs.get(&listed.run);
    let cost = listed.billed_micro_usd.or_else(|| Some(spent(&world, run?, clock::now()).micros()));
    let details = series.zip(run).map(|(series, run)| {
        let step = newest_step(series, &listed.run).map_err(ApiError::inside)?;
        Ok(RunDetails { state: json!(run.state), step })
    });
    Ok(RunSummary::of(listed, cost.unwrap_or_default(), details.transpose()?))
}

/// Level of detail.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ShowQuery {
    /// So many of the newest measurements.
    newest: u64,
}

/// Shows a run with its attempts and machines.
pub(super) async fn show(
    State(api): State<Api>,
    Path(run): Path<String>,
    wanted: reading::Checked<ShowQuery>,
) -> Result<Json<Value>, ApiError> {
    let most = reading::query(wanted)?.newest.min(PAGE as u64);
    let (id, now) = (RunId::new(run.clone()), clock::now());
    let world = reading::stored(&api, &run).await?;
    let known = world.runs.get(&id).ok_or_else(|| ApiError::no_run(&run))?;
    let attempts: Vec<Value> = known
        .attempts
        .iter()
        .filter_map(|id| Some(json!({ "attempt": id, "body": world.attempts.get(id)? })))
        .collect();
    let instances: Vec<Value> = known
        .instances
        .iter()
        .filter_map(|id| Some(json!({ "instance": id, "body": world.instances.get(id)? })))
        .collect();
    let goodput = reading::goodput(&api, id.clone(), now).await?;
    let (newest, step) = reading::newest(&api, id.clone(), most).await?;
    let waits_for = match known.state {
        RunState::Queued => waits_for(&api, id.clone()).await?,
        _ => None,
    };
    let shortages = api.home.space().shortages();
    let shortages: Vec<&Shortage> = shortages.iter().filter(|shortage| shortage.concerns(&id)).collect();
    let refused: Vec<String> = shortages.iter().map(ToString::to_string).collect();
    Ok(Json(json!({
        "run": id, "state": known.state, "goodput": goodput, "word": known.state.word(), "plan": known.plan, "bill": known.bill,
        "cost_micro_usd": spent(&world, known, now).micros(), "submitted": known.submitted, "step": step,
        "waits_for": waits_for, "body": known, "attempts": attempts, "instances": instances, "newest": newest,
        "last_seq": world.last_seq, "refused": refused, "shortages": shortages,
    })))
}

/// The run that uses the machine which this one waits for.
async fn waits_for(api: &Api, id: RunId) -> Result<Option<RunId>, ApiError> {
    let other = move |world: &World| {
        let run = world.runs.get(&id)?;
        world.instance_before(&id, run).map(|instance| instance.run.clone())
    };
    api.door.look(other).await
}

/// The bill of a run, or its cost up to now.
pub(super) async fn cost(State(api): State<Api>, Path(run): Path<String>) -> Result<Json<Value>, ApiError> {
    let id = RunId::new(run.clone());
    let world = reading::stored(&api, &run).await?;
    let known = world.runs.get(&id).ok_or_else(|| ApiError::no_run(&run))?;
    let cost = spent(&world, known, clock::now()).micros();
    let rate = known.rate();
    Ok(Json(
        json!({ "run": id, "final": known.bill.is_some(), "bill": known.bill, "cost_micro_usd": cost, "rate": rate }),
    ))
}

/// Tells a run to save and stop. A run that has stopped already is unchanged.
pub(super) async fn stop(
    State(api): State<Api>,
    Path(run): Path<String>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let id = RunId::new(run.clone());
    let world = reading::stored(&api, &run).await?;
    let state = &world.runs.get(&id).ok_or_else(|| ApiError::no_run(&run))?.state;
    let is_stopping = matches!(state, domain::run::RunState::Stopping { .. });
    if !state.is_final() && !is_stopping {
        api.door.request(Event::StopRequested { run: id.clone(), by: StopBy::User }).await?;
    }
    Ok((StatusCode::ACCEPTED, Json(json!({ "run": id }))))
}

/// The body of a request, if it is right.
pub(super) fn body<T>(request: Result<Json<T>, JsonRejection>) -> Result<T, ApiError> {
    request.map(|Json(body)| body).map_err(unreadable)
}

/// The error of a malformed body.
pub(super) fn unreadable(error: JsonRejection) -> ApiError {
    ApiError::new(error.status().as_u16(), error.body_text()).hint("see `/v1/openapi.json` for what is expected")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_listed_in_states_that_there_are() {
        for word in RunState::WORDS {
            assert_eq!(known_state(Some(word.to_owned())), Ok(Some(word.to_owned())));
        }
        assert_eq!(known_state(None), Ok(None));
        let refused = known_state(Some("runing".to_owned())).unwrap_err();
        assert_eq!((refused.status, refused.message.contains("`runing`")), (400, true), "{refused:?}");
        assert!(refused.hint.unwrap().contains("`running`, `recovering`"));
    }
}
