//! What schedules submit: runs, sweeps and pipelines. Where one stands, how it is submitted, and how it is told to stop.

use domain::event::SweepSubmitted;
use domain::pipeline::PipelineEnd;
use domain::run::{Outcome, RunState, StopBy};
use domain::schedule::DueRun;
use domain::{Event, PipelineId, RunId, ScheduleId, SweepId, Timestamp};
use plan::{LastDueRun, NamedWork, PipelineState, ScheduleRecord};

use crate::api::failure::ApiError;
use crate::api::runs::kept::{opened, state_of, submit_planned};
use crate::api::runs::{admit_job, pipelines};
use crate::api::views::SubmitRequest;
use crate::api::{Api, DueStart, PlannedJob, reading};
use crate::submit::{job_hash, pipeline_submitted};

/// Where what a schedule has submitted under this name stands, as it is on disk; `None` if there is nothing of this name.
pub(super) async fn standing(
    api: &Api,
    record: &ScheduleRecord,
    name: &RunId,
    now: Timestamp,
) -> Result<Option<LastDueRun>, ApiError> {
    let (reader, work, name) = (api.reader.clone(), record.named(name), name.clone());
    let found = reading::blocking(move || {
        let found = match &work {
            NamedWork::Run(run) => {
                let world = reader.run(run).map_err(ApiError::inside)?;
                world.and_then(|world| Some(LastDueRun::of_run(&name, world.runs.get(run)?, now)))
            }
            NamedWork::Sweep(sweep) => {
                let sweep = reader.sweep_alone(sweep).map_err(ApiError::inside)?;
                sweep.map(|sweep| LastDueRun::of_sweep(&name, &sweep, now))
            }
            NamedWork::Pipeline(pipeline) => {
                let pipeline = reader.pipeline(pipeline).map_err(ApiError::inside)?;
                pipeline.map(|pipeline| LastDueRun::of_pipeline(&name, &pipeline, now))
            }
        };
        Ok(found)
    });
    found.await
}

/// The request that work makes way for the next.
pub(super) fn stop(work: NamedWork) -> Event {
    match work {
        NamedWork::Run(run) => Event::StopRequested { run, by: StopBy::User },
        NamedWork::Sweep(sweep) => Event::SweepStopRequested { sweep, by: StopBy::User },
        NamedWork::Pipeline(pipeline) => Event::PipelineStopRequested { pipeline },
    }
}

/// Plans and submits what is due under this name, as if its user had. Returns whether it was submitted: planning takes time, in
/// which the schedule may have been paused or removed.
pub(super) async fn submit(
    api: &Api,
    (id, record): (&ScheduleId, &ScheduleRecord),
    name: &RunId,
    due: DueRun,
) -> Result<bool, ApiError> {
    let work = record.named(name);
    if let NamedWork::Pipeline(pipeline) = work {
        return submit_pipeline(api, (id, record), pipeline, &due).await;
    }
    let request = opened(api, &record.request)?;
    let start = DueStart { due, last: if record.times.warm_start { newest_success(api, record).await? } else { None } };
    let planning = api.clone();
    let planned = reading::blocking(move || (planning.answers.due_planner)(&request, &start)).await?;
    if !is_unchanged(api, id, record).await? {
        return Ok(false);
    }
    let (file, user) = (record.file.clone(), record.user.clone());
    match record.named(name) {
        NamedWork::Sweep(sweep) => submit_sweep(api, planned, (sweep, file, user)).await?,
        NamedWork::Run(_) | NamedWork::Pipeline(_) => submit_planned(api, planned, (name, file, user)).await?,
    }
    Ok(true)
}

/// Submits a sweep that was planned, for its user.
async fn submit_sweep(
    api: &Api,
    planned: PlannedJob,
    (sweep, file, user): (SweepId, String, Option<String>),
) -> Result<(), ApiError> {
    let PlannedJob { mut job, plan, known, .. } = planned;
    let Some(known) = known else { return Err(ApiError::new(422, "its job has no `sweep:`")) };
    let admitted = admit_job(api, &job, &plan, user.as_deref()).await?;
    let job_hash = job_hash(&job, &plan);
    api.key.seal_job(&mut job).map_err(ApiError::inside)?;
    let submitted = SweepSubmitted { sweep, job, plan, known, job_hash, file, user };
    api.door.request_holding(Event::SweepSubmitted(Box::new(submitted)), admitted).await.map(|_| ())
}

/// Plans all tasks of a pipeline, and submits it with the times that its file names. Each task is planned again once it is due.
async fn submit_pipeline(
    api: &Api,
    (id, record): (&ScheduleId, &ScheduleRecord),
    pipeline: PipelineId,
    due: &DueRun,
) -> Result<bool, ApiError> {
    let request = opened(api, &record.request)?;
    let request = SubmitRequest { job: due.placed(&request.job), ..request };
    let Some(tasks) = pipelines::read(&request)? else {
        return Err(ApiError::new(422, "its file has a single document, and is no pipeline"));
    };
    let last_runs = if record.times.warm_start { newest_complete(api, record).await? } else { Vec::new() };
    pipelines::plans(api, &request, &tasks, Some(&last_runs)).await?;
    if !is_unchanged(api, id, record).await? {
        return Ok(false);
    }
    let event = pipeline_submitted((pipeline, &tasks), &request, &api.key, record.user.clone(), last_runs);
    api.door.request(event.map_err(ApiError::inside)?).await?;
    Ok(true)
}

/// Whether a schedule is as it was.
async fn is_unchanged(api: &Api, id: &ScheduleId, before: &ScheduleRecord) -> Result<bool, ApiError> {
    let (asked, before) = (id.clone(), before.clone());
    api.door.look(move |world| world.schedules.get(&asked) == Some(&before)).await
}

/// The newest run of a schedule that has succeeded, of those that are known by name.
async fn newest_success(api: &Api, record: &ScheduleRecord) -> Result<Option<RunId>, ApiError> {
    for run in record.runs.iter().rev() {
        if let Some(known) = state_of(api, run).await?
            && matches!(known.state, RunState::Done { outcome: Outcome::Trained { .. } | Outcome::Succeeded })
        {
            return Ok(Some(run.clone()));
        }
    }
    Ok(None)
}

/// The runs of the newest pipeline of a schedule whose tasks have all succeeded, of those that are known by name; none if there
/// is none.
async fn newest_complete(api: &Api, record: &ScheduleRecord) -> Result<Vec<RunId>, ApiError> {
    let (reader, names) = (api.reader.clone(), record.runs.clone());
    let found = reading::blocking(move || {
        for name in names.iter().rev() {
            let known = reader.pipeline(&PipelineId::new(name.as_str())).map_err(ApiError::inside)?;
            if let Some(known) = known.filter(|known| known.state == PipelineState::Ended { how: PipelineEnd::Done }) {
                return Ok(known.runs);
            }
        }
        Ok(Vec::new())
    });
    found.await
}
