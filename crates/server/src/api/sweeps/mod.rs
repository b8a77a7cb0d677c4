//! Sweeps: list, show, stop, follow, report; [`submit`] and [`resume`].
//!
//! A list reads the rows of sweeps, and of trials only those of sweeps that have not ended. What is shown of one comes with
//! a page of its trials.

pub(super) mod resume;
pub(super) mod submit;

use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{Html, IntoResponse, Response};
use domain::run::StopBy;
use domain::sweep::SweepEnd;
use domain::{Event, InstanceId, Record, SweepId, Timestamp};
use plan::sweep::TrialRow;
use plan::{SweepRecord, SweepState, World};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::Api;
use super::failure::ApiError;
use super::follow::{self, Message};
use super::reading::{self, After, Checked};
use super::views::{SweepSummary, rents};
use crate::clock;
use crate::error::Error;
use crate::report::sweep_html;
use crate::state::{SweepEvents, SweepFilter};

/// Sweeps or trials in one answer, at most.
const PAGE: usize = 1_000;

/// Sweeps or trials in one answer, if nothing else is asked for.
const PAGE_USUAL: usize = 100;

/// Which sweeps to list.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ListQuery {
    /// Maximum number of sweeps, newest first.
    limit: Option<usize>,
    /// Only those that were submitted before this sweep.
    before: Option<String>,
    /// Only sweeps whose names begin with this.
    name: Option<String>,
}

/// Lists sweeps, the newest first.
pub(super) async fn list(State(api): State<Api>, query: Checked<ListQuery>) -> Result<Json<Value>, ApiError> {
    let ListQuery { limit, before, name } = reading::query(query)?;
    let limit = limit.unwrap_or(PAGE_USUAL).min(PAGE);
    let filter = SweepFilter { name, before: before.map(SweepId::new), limit };
    let listed = reading::blocking(move || {
        let (listed, has_more) = api.reader.sweeps(&filter).map_err(|error| match error {
            Error::NoRun(name) => ApiError::no_sweep(&name),
            error => ApiError::inside(error),
        })?;
        let summaries = listed.iter().map(|(id, sweep)| summary(&api, id, sweep)).collect::<Result<Vec<_>, _>>()?;
        Ok(json!({ "sweeps": summaries, "has_more": has_more }))
    });
    listed.await.map(Json)
}

/// A sweep for a list. One that has ended says itself what it cost and which trial was best.
fn summary(api: &Api, id: &SweepId, sweep: &SweepRecord) -> Result<SweepSummary, ApiError> {
    let (cost, best) = match (&sweep.state, sweep.total) {
        (SweepState::Ended { how }, Some(total)) => (total, how_best(how).cloned()),
        (SweepState::Running | SweepState::Stopping { .. } | SweepState::Ended { .. }, _) => {
            let world = api.reader.sweep(id).map_err(ApiError::inside)?.unwrap_or_default();
            let sweep = world.sweeps.get(id).unwrap_or(sweep);
            let meters = rents(&world, clock::now());
            (plan::sweep::spent(&world, sweep, &meters), plan::sweep::best(&world, sweep))
        }
    };
    Ok(SweepSummary {
        sweep: id.to_string(),
        state: json!(sweep.state),
        word: sweep.state.word().to_owned(),
        metric: json!(sweep.search.metric),
        goal: json!(sweep.search.goal),
        trials: sweep.trials.len() as u64,
        best: json!(best),
        cost_micro_usd: cost.micros(),
        submitted: sweep.submitted.0,
    })
}

fn how_best(how: &SweepEnd) -> Option<&domain::sweep::Best> {
    match how {
        SweepEnd::Done { best } | SweepEnd::Stopped { best, .. } | SweepEnd::Failed { best, .. } => best.as_ref(),
    }
}

/// Which trials to show.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct ShowQuery {
    /// Only those after this number.
    after: usize,
    /// Maximum number of trials.
    limit: Option<usize>,
}

/// Shows a sweep with a page of its trials, by number; with the first page, also what the list says of it.
pub(super) async fn show(
    State(api): State<Api>,
    Path(sweep): Path<String>,
    wanted: Checked<ShowQuery>,
) -> Result<Json<Value>, ApiError> {
    let ShowQuery { after, limit } = reading::query(wanted)?;
    let limit = limit.unwrap_or(PAGE_USUAL).min(PAGE);
    let shown = reading::blocking(move || {
        let (id, now) = (SweepId::new(sweep.clone()), clock::now());
        let world = api.reader.trials(&id, after, limit).map_err(ApiError::inside)?;
        let world = world.ok_or_else(|| ApiError::no_sweep(&sweep))?;
        let known = world.sweeps.get(&id).ok_or_else(|| ApiError::no_sweep(&sweep))?;
        // Cost and best trial rest on all trials, which are not read again for each page.
        let mut shown = if after == 0 { json!(summary(&api, &id, known)?) } else { json!({ "sweep": id }) };
        let has_more = known.trials.len() > after.saturating_add(limit);
        shown["trial_count"] = json!(known.trials.len());
        shown["trials"] = trials(&world, known, now).into();
        shown["has_more"] = json!(has_more);
        shown["body"] = json!(known);
        shown["now"] = json!(now);
        shown["last_seq"] = json!(world.last_seq);
        Ok(shown)
    });
    shown.await.map(Json)
}

/// The trials of a sweep that a world has, by number.
fn trials(world: &World, sweep: &SweepRecord, now: Timestamp) -> Vec<Value> {
    let mut rows = plan::sweep::rows(world, sweep, &rents(world, now));
    rows.sort_by_key(|row| row.number);
    rows.iter().map(|row| trial(world, row)).collect()
}

fn trial(world: &World, row: &TrialRow) -> Value {
    let run = world.runs.get(&row.run);
    let values: Map<String, Value> =
        row.values.iter().map(|setting| (setting.key.clone(), setting.value.clone())).collect();
    let machine = |id: &InstanceId| Some(json!({ "instance": id, "body": world.instances.get(id)? }));
    let instances: Vec<Value> = run.into_iter().flat_map(|run| &run.instances).filter_map(machine).collect();
    json!({
        "trial": row.number, "run": row.run, "word": row.word, "epochs": row.epochs, "value": row.value,
        "cause": row.cause, "values": values, "cost_micro_usd": row.cost.micros(), "body": run, "instances": instances,
    })
}

/// A sweep without its trials.
async fn known(api: &Api, sweep: &str) -> Result<World, ApiError> {
    let (reader, id) = (api.reader.clone(), SweepId::new(sweep));
    let found = reading::blocking(move || reader.trials(&id, 0, 0).map_err(ApiError::inside)).await?;
    found.ok_or_else(|| ApiError::no_sweep(sweep))
}

/// A sweep with all of its trials.
async fn whole(api: &Api, sweep: &str) -> Result<World, ApiError> {
    let (reader, id) = (api.reader.clone(), SweepId::new(sweep));
    let found = reading::blocking(move || reader.sweep(&id).map_err(ApiError::inside)).await?;
    found.ok_or_else(|| ApiError::no_sweep(sweep))
}

/// Tells a sweep to stop with all of its trials. One that has stopped already is unchanged.
pub(super) async fn stop(
    State(api): State<Api>,
    Path(sweep): Path<String>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let id = SweepId::new(sweep.clone());
    let world = known(&api, &sweep).await?;
    let state = &world.sweeps.get(&id).ok_or_else(|| ApiError::no_sweep(&sweep))?.state;
    if *state == SweepState::Running {
        api.door.request(Event::SweepStopRequested { sweep: id.clone(), by: StopBy::User }).await?;
    }
    Ok((StatusCode::ACCEPTED, Json(json!({ "sweep": id }))))
}

/// The events of a sweep and its trials, oldest first. Values of `envs` and secrets stay sealed.
pub(super) async fn events(
    State(api): State<Api>,
    Path(sweep): Path<String>,
    headers: HeaderMap,
    after: Checked<After>,
) -> Result<Response, ApiError> {
    let After { after, follow } = reading::query(after)?;
    known(&api, &sweep).await?;
    let id = SweepId::new(sweep);
    if follow::is_wanted(&headers, follow.as_deref())? {
        return follow::stream(api, id, follow::last_number(&headers)?.unwrap_or(after), new_events);
    }
    let read = reading::blocking(move || api.reader.sweep_records(&id, after, reading::PAGE).map_err(ApiError::inside));
    let SweepEvents { records, next, has_more } = read.await?;
    Ok(Json(json!({ "events": records, "next": next, "has_more": has_more })).into_response())
}

fn new_events(api: &Api, sweep: &SweepId, mut after: u64, _ended: bool) -> Result<(Vec<Message>, u64), ApiError> {
    loop {
        let read = api.reader.sweep_records(sweep, after, reading::PAGE).map_err(ApiError::inside)?;
        after = read.next;
        // A page of events of other sweeps alone is not the end.
        if !read.records.is_empty() || !read.has_more {
            let message = |record: Record| Message { kind: "record", id: record.seq.to_string(), data: json!(record) };
            return Ok((read.records.into_iter().map(message).collect(), after));
        }
    }
}

/// The report of a sweep, as `gradus report` writes it.
pub(super) async fn report(State(api): State<Api>, Path(sweep): Path<String>) -> Result<Html<String>, ApiError> {
    let world = whole(&api, &sweep).await?;
    let page = sweep_html(&world, &SweepId::new(sweep.clone()), &rents(&world, clock::now()));
    page.map(Html).ok_or_else(|| ApiError::no_sweep(&sweep))
}
