//! Uploaded files: what a job needs that is submitted from another machine.

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use plan::{PipelineState, World};
use serde_json::{Value, json};

use crate::api::Api;
use crate::api::bodies::BLOB_PART_MAX;
use crate::api::failure::ApiError;
use crate::api::reading::{Checked, blocking, query};
use crate::files::{BlobPart, BlobState, Refused};
use crate::secrets::SecretKey;
use crate::submit::request_of;

/// All of them.
pub(in crate::api) async fn list(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    let blobs = blocking(move || Ok(api.blobs.list())).await?;
    Ok(Json(json!({ "blobs": blobs })))
}

/// What is there of one.
pub(in crate::api) async fn show(
    State(api): State<Api>,
    Path(blob): Path<String>,
) -> Result<Json<BlobState>, ApiError> {
    let missing = no_blob(&blob);
    blocking(move || Ok(api.blobs.find(&blob))).await?.map(Json).ok_or(missing)
}

/// Takes a part of one. The answer says how much of it is there: the offset of the next part.
pub(in crate::api) async fn put(
    State(api): State<Api>,
    Path(blob): Path<String>,
    part: Checked<BlobPart>,
    body: Body,
) -> Result<Response, ApiError> {
    let part = query(part)?;
    let unread = |error| ApiError::new(400, format!("the body cannot be read: {error}"));
    let bytes = to_bytes(body, BLOB_PART_MAX).await.map_err(unread)?;
    let (state, is_new) = blocking(move || api.blobs.put(&blob, &part, &bytes).map_err(refused)).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    Ok((status, Json(state)).into_response())
}

/// Deletes one that no schedule and no unfinished run, sweep or pipeline names.
pub(in crate::api) async fn delete(State(api): State<Api>, Path(blob): Path<String>) -> Result<Json<Value>, ApiError> {
    let (wanted, key) = (blob.clone(), api.key.clone());
    if let Some(name) = api.door.look(move |world| user(world, &key, &wanted)).await? {
        let hint = "stop that or remove the schedule first, or wait until it has ended";
        return Err(ApiError::new(409, format!("`{name}` uses it")).hint(hint));
    }
    let missing = no_blob(&blob);
    match blocking(move || api.blobs.remove(&blob).map_err(refused)).await? {
        true => Ok(Json(json!({ "deleted": true }))),
        false => Err(missing),
    }
}

/// The schedule, or the unfinished run, sweep or pipeline, whose job names a blob: its hash is in each of its paths.
fn user(world: &World, key: &SecretKey, sha256: &str) -> Option<String> {
    let names = |job: &domain::Job| serde_json::to_string(job).is_ok_and(|text| text.contains(sha256));
    // Of schedules and pipelines the log has the request, sealed.
    let asks = |sealed: &str| {
        let request = request_of(key, sealed);
        request.is_some_and(|request| serde_json::to_string(&request).is_ok_and(|text| text.contains(sha256)))
    };
    let is_open = |state: &PipelineState| !matches!(state, PipelineState::Ended { .. });
    let mut runs = world.runs.iter().filter(|(_, run)| !run.state.is_final());
    let mut sweeps = world.sweeps.iter().filter(|(_, sweep)| !sweep.state.is_final());
    let mut pipelines = world.pipelines.iter().filter(|(_, pipeline)| is_open(&pipeline.state));
    let run = runs.find(|(_, run)| names(&run.job)).map(|(id, _)| id.to_string());
    run.or_else(|| sweeps.find(|(_, sweep)| names(&sweep.job)).map(|(id, _)| id.to_string()))
        .or_else(|| pipelines.find(|(_, pipeline)| asks(&pipeline.request)).map(|(id, _)| id.to_string()))
        .or_else(|| {
            let mut schedules = world.schedules.iter();
            schedules.find(|(_, schedule)| asks(&schedule.request)).map(|(id, _)| id.to_string())
        })
}

fn no_blob(sha256: &str) -> ApiError {
    ApiError::new(404, format!("nothing of a blob `{sha256}` has arrived")).hint("list blobs with `GET /v1/blobs`")
}

fn refused((status, why): Refused) -> ApiError {
    ApiError::new(status.as_u16(), why)
}
