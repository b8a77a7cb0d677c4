//! Pipelines: submit, list, show, stop, resume; [`keeper`] submits the runs of their tasks.

pub(in crate::api) mod keeper;

use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use domain::file::JobPipeline;
use domain::{Event, PipelineId, Plan, RunId};
use plan::{PipelineRecord, PipelineResumption, PipelineState};
use serde_json::{Value, json};

use super::kept::state_of;
use super::keys::{SubmissionKey, key};
use super::resume::resume as resume_run;
use super::{NAMES, body, unreadable};
use crate::api::access::NamedClient;
use crate::api::failure::ApiError;
use crate::api::views::{ResumeRequest, SubmitRequest};
use crate::api::{Api, TaskStart, reading};
use crate::clock;
use crate::submit::{named, pipeline_submitted};

/// A submission or change, as it is answered.
type Answer = (StatusCode, Json<Value>);

/// Lists pipelines, the newest first.
pub(in crate::api) async fn list(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    let pipelines = api.door.look(|world| world.pipelines.clone()).await?;
    let mut newest: Vec<(&PipelineId, &PipelineRecord)> = pipelines.iter().collect();
    newest.sort_by_key(|(_, record)| std::cmp::Reverse(record.order));
    let views: Vec<Value> = newest.into_iter().map(|(id, record)| view(id, record)).collect();
    Ok(Json(json!({ "pipelines": views })))
}

/// Shows a pipeline.
pub(in crate::api) async fn show(
    State(api): State<Api>,
    Path(pipeline): Path<String>,
) -> Result<Json<Value>, ApiError> {
    let (id, record) = known(&api, &pipeline).await?;
    Ok(Json(view(&id, &record)))
}

/// Submits a file of several documents. With an `Idempotency-Key`, the same request sent again finds the same pipeline.
pub(in crate::api) async fn submit(
    State(api): State<Api>,
    headers: HeaderMap,
    client: Option<Extension<NamedClient>>,
    request: Result<Json<SubmitRequest>, JsonRejection>,
) -> Result<Answer, ApiError> {
    let request = body(request)?;
    let key = key(&headers)?.map(|key| SubmissionKey::new(key, &request));
    if let Some(key) = &key
        && let Some(name) = key.known(&api).await?
        && let Some(answer) = answer_of(&api, &PipelineId::new(name)).await?
    {
        return Ok(answer);
    }
    let request = placed_now(request);
    let Some(pipeline) = read(&request)? else {
        let refusal = ApiError::new(422, "this file has a single document, and is no pipeline");
        return Err(refusal.hint("send it to `/v1/runs`"));
    };
    plans(&api, &request, &pipeline, None).await?;
    let mut name = named(&pipeline.name, key.as_ref().map(|key| &*key.text));
    if let Some(key) = &key {
        name = key.claimed(&api, name).await?;
    }
    let (mut id, user) = (PipelineId::new(name), api.user(client));
    for _ in 0..NAMES {
        let event = pipeline_submitted((id.clone(), &pipeline), &request, &api.key, user.clone(), Vec::new());
        let event = event.map_err(ApiError::inside)?;
        match api.door.request(event).await {
            Ok(_) => return Ok((StatusCode::CREATED, Json(json!({ "pipeline": id, "is_new": true })))),
            // The same request, sent twice at the same time.
            Err(failure) if failure.status == 409 && key.is_some() => {
                return answer_of(&api, &id).await?.ok_or(failure);
            }
            // Another pipeline has the name that was drawn.
            Err(failure) if failure.status == 409 => id = PipelineId::new(named(&pipeline.name, None)),
            Err(failure) => return Err(failure),
        }
    }
    Err(ApiError::new(500, format!("{NAMES} names that were drawn for the pipeline were taken")))
}

/// The pipeline of a request; `None` for a single job.
pub(in crate::api) fn read(request: &SubmitRequest) -> Result<Option<JobPipeline>, ApiError> {
    let read = JobPipeline::read(&request.job, &request.file);
    read.map_err(|problems| ApiError::of_problems(422, &problems))
}

/// A request of a pipeline with `schedule:` that is submitted now, with the times that its tasks name.
pub(in crate::api) fn placed_now(request: SubmitRequest) -> SubmitRequest {
    SubmitRequest { job: domain::file::due_now(&request.job, clock::now()), ..request }
}

/// The plans of all tasks: each is planned before the first starts. `due` is for a pipeline of a schedule: the runs whose results
/// its tasks start with, in their order, or none.
pub(in crate::api) async fn plans(
    api: &Api,
    request: &SubmitRequest,
    pipeline: &JobPipeline,
    due: Option<&[RunId]>,
) -> Result<Vec<Plan>, ApiError> {
    let mut plans = Vec::with_capacity(pipeline.tasks.len());
    for place in 0..pipeline.tasks.len() {
        let (planning, asked) = (api.clone(), request.clone());
        let last = due.and_then(|runs| runs.get(place)).cloned();
        let start = TaskStart { place, earlier: None, budget: pipeline.budget, last, is_due: due.is_some() };
        let planned = reading::blocking(move || (planning.answers.task_planner)(&asked, &start)).await?;
        plans.push(planned.plan);
    }
    Ok(plans)
}

/// The answer for a pipeline that is in the log.
async fn answer_of(api: &Api, id: &PipelineId) -> Result<Option<Answer>, ApiError> {
    match known(api, id.as_str()).await {
        Ok((id, _)) => Ok(Some((StatusCode::OK, Json(json!({ "pipeline": id, "is_new": false }))))),
        Err(failure) if failure.status == 404 => Ok(None),
        Err(failure) => Err(failure),
    }
}

/// Tells a pipeline to stop, with the task that runs. One that has ended is unchanged.
pub(in crate::api) async fn stop(State(api): State<Api>, Path(pipeline): Path<String>) -> Result<Answer, ApiError> {
    let (id, record) = known(&api, &pipeline).await?;
    if record.state == PipelineState::Running {
        api.door.request(Event::PipelineStopRequested { pipeline: id.clone() }).await?;
    }
    Ok((StatusCode::ACCEPTED, Json(json!({ "pipeline": id }))))
}

/// Resumes a pipeline that was stopped or has failed, beginning with the run of its newest task where that has not
/// succeeded; what the body changes is changed for that run. A pipeline that runs is unchanged.
pub(in crate::api) async fn resume(
    State(api): State<Api>,
    Path(pipeline): Path<String>,
    headers: HeaderMap,
    request: Result<Option<Json<ResumeRequest>>, JsonRejection>,
) -> Result<Answer, ApiError> {
    let (id, record) = known(&api, &pipeline).await?;
    let accepted = (StatusCode::ACCEPTED, Json(json!({ "pipeline": id })));
    let last = match record.runs.last() {
        Some(run) => state_of(&api, run).await?,
        None => None,
    };
    match record.resumption(last.as_ref().map(|run| &run.state)) {
        PipelineResumption::Running => return Ok(accepted),
        PipelineResumption::Stopping => {
            let refusal = ApiError::new(409, format!("pipeline `{id}` saves the state of a task, and then stops"));
            return Err(refusal.hint("resume it once it has stopped"));
        }
        PipelineResumption::Complete => {
            let refusal = ApiError::new(409, format!("pipeline `{id}` has ended with its results"));
            return Err(refusal.hint("submit the file again"));
        }
        PipelineResumption::Run(run) => {
            let _answer = resume_run(State(api.clone()), Path(run.to_string()), headers, request).await?;
        }
        PipelineResumption::Next => {
            let Json(changes) = request.map_err(unreadable)?.unwrap_or_default();
            if changes != ResumeRequest::default() {
                let message = format!("no run of pipeline `{id}` is to be resumed, so there is nothing to change");
                return Err(ApiError::new(422, message).hint("send the request without a body"));
            }
        }
    }
    match api.door.request(Event::PipelineResumeRequested { pipeline: id }).await {
        // The same request, sent twice at the same time.
        Err(failure) if failure.status == 409 && known(&api, &pipeline).await?.1.state == PipelineState::Running => {
            Ok(accepted)
        }
        answer => answer.map(|_| accepted),
    }
}

async fn known(api: &Api, pipeline: &str) -> Result<(PipelineId, PipelineRecord), ApiError> {
    let id = PipelineId::new(pipeline);
    let found =
        api.door.look(move |world| world.pipelines.get_key_value(&id).map(|(id, record)| (id.clone(), record.clone())));
    found.await?.ok_or_else(|| ApiError::no_pipeline(pipeline))
}

/// A pipeline as API and commands show it.
pub fn view(id: &PipelineId, record: &PipelineRecord) -> Value {
    json!({
        "pipeline": id, "state": record.state, "word": record.state.word(), "tasks": record.tasks, "runs": record.runs,
        "budget": record.budget.map(|budget| budget.max), "file": record.file, "user": record.user,
        "submitted": record.submitted,
    })
}
