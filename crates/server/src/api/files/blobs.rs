//! Uploaded files: what a job needs that is submitted from another machine.

use axum::Json;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use plan::World;
use serde_json::{Value, json};

use crate::api::Api;
use crate::api::bodies::BLOB_PART_MAX;
use crate::api::failure::ApiError;
use crate::api::reading::{Checked, blocking, query};
use crate::files::{BlobPart, BlobState, Refused};

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

/// Deletes one that no unfinished run or sweep names.
pub(in crate::api) async fn delete(State(api): State<Api>, Path(blob): Path<String>) -> Result<Json<Value>, ApiError> {
    let wanted = blob.clone();
    if let Some(name) = api.door.look(move |world| user(world, &wanted)).await? {
        return Err(ApiError::new(409, format!("`{name}` uses it")).hint("stop that first, or wait until it has ended"));
    }
    let missing = no_blob(&blob);
    match blocking(move || api.blobs.remove(&blob).map_err(refused)).await? {
        true => Ok(Json(json!({ "deleted": true }))),
        false => Err(missing),
    }
}

/// The unfinished run or sweep whose job names a blob. Its hash is in the path of each of its names.
fn user(world: &World, sha256: &str) -> Option<String> {
    let names = |job: &domain::Job| serde_json::to_string(job).is_ok_and(|text| text.contains(sha256));
    let run = world.runs.iter().find(|(_, run)| !run.state.is_final() && names(&run.job)).map(|(id, _)| id.to_string());
    let mut sweeps = world.sweeps.iter().filter(|(_, sweep)| !sweep.state.is_final());
    run.or_else(|| sweeps.find(|(_, sweep)| names(&sweep.job)).map(|(id, _)| id.to_string()))
}

fn no_blob(sha256: &str) -> ApiError {
    ApiError::new(404, format!("nothing of a blob `{sha256}` has arrived")).hint("list blobs with `GET /v1/blobs`")
}

fn refused((status, why): Refused) -> ApiError {
    ApiError::new(status.as_u16(), why)
}
