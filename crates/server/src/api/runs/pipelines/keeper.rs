//! Submits the runs of pipelines' tasks, one after the other. What is next is decided by [`PipelineRecord::decide`].

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use domain::job::Budget;
use domain::run::StopBy;
use domain::{Event, Money, PipelineId, RunId};
use plan::{PipelineDecision, PipelineRecord, PipelineState};

use crate::api::failure::ApiError;
use crate::api::runs::kept::{append, opened, state_of, submit_planned};
use crate::api::views::spent;
use crate::api::{Api, TaskStart, reading};
use crate::clock;

/// Interval between two looks at the pipelines.
const LOOK: Duration = Duration::from_secs(1);

/// How long a pipeline is left alone after something of the server failed.
const REST: Duration = Duration::from_secs(60);

/// Keeps the pipelines of a home going until the process ends.
pub(in crate::api) async fn keep(api: Api) {
    let mut rests: BTreeMap<PipelineId, Instant> = BTreeMap::new();
    loop {
        tokio::time::sleep(LOOK).await;
        let open = api.door.look(|world| {
            let is_open = |record: &PipelineRecord| !matches!(record.state, PipelineState::Ended { .. });
            let open = world.pipelines.iter().filter(|(_, record)| is_open(record));
            open.map(|(id, record)| (id.clone(), record.clone())).collect::<Vec<_>>()
        });
        // The loop starts or ends: it is asked again.
        let Ok(open) = open.await else { continue };
        rests.retain(|_, until| *until > Instant::now());
        for (id, record) in open {
            if !rests.contains_key(&id) && go_on(&api, &id, &record).await.is_err() {
                rests.insert(id, Instant::now() + REST);
            }
        }
    }
}

/// Does what is next of a pipeline.
async fn go_on(api: &Api, id: &PipelineId, record: &PipelineRecord) -> Result<(), ApiError> {
    let last = match record.runs.last() {
        Some(run) => state_of(api, run).await?,
        None => None,
    };
    match record.decide(last.as_ref().map(|run| &run.state)) {
        PipelineDecision::Wait => Ok(()),
        PipelineDecision::Stop { run } => append(api, Event::StopRequested { run, by: StopBy::User }).await,
        PipelineDecision::End { end } => append(api, Event::PipelineEnded { pipeline: id.clone(), end }).await,
        PipelineDecision::Submit { place } => submit(api, id, record, place).await,
    }
}

/// Submits the run of a task, or ends the pipeline where that is refused.
async fn submit(api: &Api, id: &PipelineId, record: &PipelineRecord, place: usize) -> Result<(), ApiError> {
    let run = id.task(place + 1);
    // It may have been submitted before this process started.
    let is_there = state_of(api, &run).await?.is_some();
    let submitted = if is_there { Ok(true) } else { submit_task(api, (id, record), &run, place).await };
    let pipeline = id.clone();
    let advanced = Event::PipelineAdvanced { pipeline: pipeline.clone(), run: run.clone() };
    let failure = match submitted {
        Ok(true) => return append(api, advanced).await,
        // The next look sees that it is to stop.
        Ok(false) => return Ok(()),
        Err(failure) => failure,
    };
    // The server's own failures pass.
    if failure.status >= 500 {
        return Err(failure);
    }
    // An earlier request was answered late.
    if state_of(api, &run).await?.is_some() {
        return append(api, advanced).await;
    }
    let end = record.refused(place, &failure.message, failure.hint.as_deref());
    append(api, Event::PipelineEnded { pipeline, end }).await
}

/// Plans and submits the run of a task, which may cost what is left of the budget of all. Returns whether it was submitted:
/// planning takes time, in which the pipeline may have been told to stop.
async fn submit_task(
    api: &Api,
    (id, record): (&PipelineId, &PipelineRecord),
    run: &RunId,
    place: usize,
) -> Result<bool, ApiError> {
    let request = opened(api, &record.request)?;
    let start = TaskStart {
        place,
        earlier: Some(record.runs.clone()),
        budget: left(api, record).await?,
        last: record.last_runs.get(place).cloned(),
        is_due: false,
    };
    let planning = api.clone();
    let planned = reading::blocking(move || (planning.answers.task_planner)(&request, &start)).await?;
    let (asked, before) = (id.clone(), record.clone());
    if !api.door.look(move |world| world.pipelines.get(&asked) == Some(&before)).await? {
        return Ok(false);
    }
    submit_planned(api, planned, (run, record.task_file(place), record.user.clone())).await?;
    Ok(true)
}

/// What the tasks so far have left of the budget of all.
async fn left(api: &Api, record: &PipelineRecord) -> Result<Option<Budget>, ApiError> {
    if record.budget.is_none() {
        return Ok(None);
    }
    let (reader, runs) = (api.reader.clone(), record.runs.clone());
    let cost = reading::blocking(move || {
        let mut cost = Money::default();
        for run in &runs {
            if let Some(world) = reader.run(run).map_err(ApiError::inside)?
                && let Some(known) = world.runs.get(run)
            {
                cost += spent(&world, known, clock::now());
            }
        }
        Ok(cost)
    });
    let left = record.left(cost.await?);
    left.map_err(|message| ApiError::new(409, message).hint("raise `budget` in the first document of the file"))
}
