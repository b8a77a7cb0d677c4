//! Resuming a run, once for each request however often it is sent.

use std::fs;
use std::path::Path as FilePath;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use domain::run::StopBy;
use domain::sweep::Setting;
use domain::{Duration, Event, Money, Problems, RunId, Work};
use node::durable;
use plan::{Resumption, RunOrSweep, World};
use serde_json::{Value, json};

use super::keys::key;
use super::{Admitted, admitted, unreadable};
use crate::api::failure::ApiError;
use crate::api::views::ResumeRequest;
use crate::api::{Api, PaidRequest, reading};
use crate::clock;
use crate::submit::sha256;

/// Resumes a run that was stopped, has failed or has reached a limit. With an `Idempotency-Key`, a repeated request has
/// no effect.
pub(in crate::api) async fn resume(
    State(api): State<Api>,
    Path(run): Path<String>,
    headers: HeaderMap,
    request: Result<Option<Json<ResumeRequest>>, JsonRejection>,
) -> Result<(StatusCode, Json<Value>), ApiError> {
    let Json(request) = request.map_err(unreadable)?.unwrap_or_default();
    let id = RunId::new(run.clone());
    let key = key(&headers)?.map(|key| sha256(key.as_bytes()));
    let wrong = |what: &str, why: String| ApiError::new(400, format!("`{what}`: {why}"));
    let budget = request.budget.map(|text| text.parse::<Money>()).transpose();
    let deadline = request.deadline.map(|text| text.parse::<Duration>()).transpose();
    let world = reading::stored(&api, &run).await?;
    let event = Event::ResumeRequested {
        run: id.clone(),
        budget: budget.map_err(|error| wrong("budget", error.to_string()))?,
        deadline: deadline.map_err(|error| wrong("deadline", error.to_string()))?,
        epochs: None,
        accept_data_change: request.accept_data_change,
        set: settings(&world, &id, &request.set)?,
    };
    let accepted = || (StatusCode::ACCEPTED, Json(json!({ "run": id })));
    if let Some(key) = key.clone()
        && was_resumed(&api, &id, &key).await?
    {
        return Ok(accepted());
    }
    let resumption = plan::resume::run(&world, clock::now(), &id, &event);
    let refused = match resumption.map_err(|illegal| ApiError::new(409, illegal.why))? {
        Resumption::Allowed | Resumption::Reached(StopBy::User | StopBy::Idle) => None,
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
    let (checking, known, checked) = (api.clone(), world.clone(), RunOrSweep::Run(id.clone()));
    reading::blocking(move || (checking.answers.resume_check)(&known, &checked)).await?;
    let admitted = admit(&api, &world, &id, &event).await?;
    if let Some(key) = key {
        note(&api, &id, key, world.last_seq).await?;
    }
    api.door.request_holding(event, admitted).await?;
    Ok(accepted())
}

/// Refuses a run that may spend more than is left.
async fn admit(api: &Api, world: &World, id: &RunId, event: &Event) -> Result<Option<Admitted>, ApiError> {
    let (Event::ResumeRequested { budget, .. }, Some(run)) = (event, world.runs.get(id).cloned()) else {
        return Ok(None);
    };
    let (api, id, budget) = (api.clone(), id.clone(), *budget);
    admitted(move || (api.answers.admitter)(PaidRequest::Resume(&id, &run, budget))).await.map(Some)
}

/// The settings of `train:` that a request asks for, such as `epochs=60`.
fn settings(world: &World, id: &RunId, set: &[String]) -> Result<Vec<Setting>, ApiError> {
    match world.runs.get(id).map(|run| &run.job.work) {
        _ if set.is_empty() => Ok(Vec::new()),
        Some(Work::Train(train)) => {
            let refused = |problems| ApiError::of_problems(400, &Problems { file: "set".to_owned(), problems });
            train.settings(set).map_err(refused)
        }
        Some(Work::Command(_)) | None => Err(ApiError::new(400, "`set`: only a run of `train:` has keys to set")),
    }
}

/// Whether a request with this key came before, and the run was resumed after it.
async fn was_resumed(api: &Api, id: &RunId, key: &str) -> Result<bool, ApiError> {
    let (api, id, key) = (api.clone(), id.clone(), key.to_owned());
    reading::blocking(move || {
        let Some(seq) = asked_after(&api.home.run(&id), &key)? else { return Ok(false) };
        let records = api.reader.records(&id, seq, usize::MAX).map_err(ApiError::inside)?;
        Ok(records.iter().any(|record| matches!(record.event, Event::ResumeRequested { .. })))
    })
    .await
}

/// Remembers a request with a key.
async fn note(api: &Api, id: &RunId, key: String, seq: u64) -> Result<(), ApiError> {
    let folder = api.home.run(id);
    reading::blocking(move || remember(&folder, key, seq)).await
}

/// Resume requests with a key, and the event after which each follows: stored in the folder of the run or sweep before the
/// event is requested, so that a repeated request is recognized whenever the server was killed.
type Asked = Vec<(String, u64)>;

/// Requests that are remembered for each run or sweep.
const REMEMBERED: usize = 16;

/// The file of these requests.
const FILE: &str = "resumed.json";

fn asked(path: &FilePath) -> Result<Asked, ApiError> {
    match fs::read(path) {
        // Where a machine has lost power, an earlier version has left it empty: a request that came before is not recognized then.
        Ok(text) => Ok(serde_json::from_slice(&text).unwrap_or_default()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Asked::new()),
        Err(error) => Err(ApiError::inside(error)),
    }
}

/// The event after which a request with this key came before, for the run or sweep of this folder.
pub(in crate::api) fn asked_after(folder: &FilePath, key: &str) -> Result<Option<u64>, ApiError> {
    let before = asked(&folder.join(FILE))?.into_iter().rev().find(|(known, _)| known == key);
    Ok(before.map(|(_, seq)| seq))
}

/// Remembers a request with a key for the run or sweep of this folder.
pub(in crate::api) fn remember(folder: &FilePath, key: String, seq: u64) -> Result<(), ApiError> {
    let path = folder.join(FILE);
    let mut all = asked(&path)?;
    all.retain(|(known, _)| *known != key);
    all.push((key, seq));
    let newest = &all[all.len().saturating_sub(REMEMBERED)..];
    let text = serde_json::to_vec(newest).map_err(ApiError::inside)?;
    let written = fs::create_dir_all(folder).and_then(|()| durable::replace(&path, &text));
    written.map_err(ApiError::inside)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_remembered_also_where_a_loss_of_power_has_left_an_empty_file() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(FILE), "").unwrap();
        assert_eq!(asked_after(folder.path(), "one"), Ok(None));
        remember(folder.path(), "one".to_owned(), 7).unwrap();
        remember(folder.path(), "other".to_owned(), 9).unwrap();
        assert_eq!((asked_after(folder.path(), "one"), asked_after(folder.path(), "none")), (Ok(Some(7)), Ok(None)));
    }
}
