//! What lies beside the log and is read by the handler itself: events, measurements, output of programs.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};

use axum::Json;
use axum::extract::{Path, Query, State};
use domain::{RunId, Timestamp};
use plan::World;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Api;
use super::failure::ApiError;
use crate::series::{Series, goodput_json};

/// Points or events in one answer, at most.
const PAGE: usize = 10_000;

/// Bytes of a log in one answer, at most.
const LOG_PAGE: u64 = 1 << 20;

/// Where to go on.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct After {
    after: u64,
}

/// Which part of which log.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct LogQuery {
    file: Option<String>,
    offset: u64,
}

type Checked<T> = Result<Query<T>, axum::extract::rejection::QueryRejection>;

fn query<T>(query: Checked<T>) -> Result<T, ApiError> {
    query.map(|Query(query)| query).map_err(|error| ApiError::new(400, error.body_text()))
}

/// The events of a run, oldest first. Values of `envs` and secrets stay sealed.
pub(super) async fn events(
    State(api): State<Api>,
    Path(run): Path<String>,
    after: Checked<After>,
) -> Result<Json<Value>, ApiError> {
    let After { after } = query(after)?;
    let id = known(&api, &run).await?;
    let records = blocking(move || api.reader.records(&id, after).map_err(ApiError::inside)).await?;
    let has_more = records.len() > PAGE;
    Ok(Json(json!({ "events": &records[..records.len().min(PAGE)], "has_more": has_more })))
}

/// The measurements of a run, oldest first.
pub(super) async fn series(
    State(api): State<Api>,
    Path(run): Path<String>,
    after: Checked<After>,
) -> Result<Json<Value>, ApiError> {
    let After { after } = query(after)?;
    let id = known(&api, &run).await?;
    let points = blocking(move || {
        let series = Series::open(&api.home).map_err(ApiError::inside)?;
        series.points(&id, after).map_err(ApiError::inside)
    });
    let points = points.await?;
    let has_more = points.len() > PAGE;
    let points: Vec<Value> = points
        .into_iter()
        .take(PAGE)
        .map(|(seq, point)| json!({ "seq": seq, "at": point.at, "report": point.report }))
        .collect();
    Ok(Json(json!({ "points": points, "has_more": has_more })))
}

/// Where the time of a run went, in microseconds, and the share that brought it forward.
pub(super) async fn goodput(api: &Api, id: RunId, now: Timestamp) -> Result<Value, ApiError> {
    let api = api.clone();
    blocking(move || {
        let records = api.reader.records(&id, 0).map_err(ApiError::inside)?;
        let series = Series::open(&api.home).map_err(ApiError::inside)?;
        Ok(goodput_json(&series.goodput(&id, &records, now).map_err(ApiError::inside)?))
    })
    .await
}

/// The logs of a run: their names and sizes, or a part of one from `offset` on.
pub(super) async fn logs(
    State(api): State<Api>,
    Path(run): Path<String>,
    wanted: Checked<LogQuery>,
) -> Result<Json<Value>, ApiError> {
    let wanted = query(wanted)?;
    let id = known(&api, &run).await?;
    let folder = api.home.run(&id).join("logs");
    blocking(move || {
        let Some(name) = wanted.file else {
            let entries =
                fs::read_dir(&folder).map(|entries| entries.flatten().collect()).unwrap_or_else(|_| Vec::new());
            let mut files: Vec<(String, u64)> = entries
                .iter()
                .filter_map(|entry| Some((entry.file_name().to_str()?.to_owned(), entry.metadata().ok()?.len())))
                .collect();
            files.sort();
            let files: Vec<Value> =
                files.into_iter().map(|(file, bytes)| json!({ "file": file, "bytes": bytes })).collect();
            return Ok(json!({ "files": files }));
        };
        if !domain::files::is_safe(&name) || name.contains('/') {
            return Err(ApiError::new(400, format!("`{name}` is no name of a log")));
        }
        let path = folder.join(&name);
        let missing = |error: std::io::Error| ApiError::new(404, format!("cannot read the log `{name}`: {error}"));
        let mut file = File::open(&path).map_err(missing)?;
        let size = file.metadata().map_err(missing)?.len();
        file.seek(SeekFrom::Start(wanted.offset)).map_err(missing)?;
        let mut bytes = Vec::new();
        file.take(LOG_PAGE).read_to_end(&mut bytes).map_err(missing)?;
        // A letter that is cut in two comes whole with the next part.
        let whole = match std::str::from_utf8(&bytes) {
            Err(error) if error.error_len().is_none() && error.valid_up_to() > 0 => error.valid_up_to(),
            _ => bytes.len(),
        };
        let next = wanted.offset + whole as u64;
        let text = String::from_utf8_lossy(&bytes[..whole]).into_owned();
        Ok(json!({ "file": name, "text": text, "next": next, "has_more": next < size }))
    })
    .await
    .map(Json)
}

/// The name of a run that is known.
async fn known(api: &Api, run: &str) -> Result<RunId, ApiError> {
    stored(api, run).await.map(|_| RunId::new(run))
}

/// A run with all that belongs to it, as it is on disk.
pub(super) async fn stored(api: &Api, run: &str) -> Result<World, ApiError> {
    let (reader, id) = (api.reader.clone(), RunId::new(run));
    let found = blocking(move || reader.run(&id).map_err(ApiError::inside)).await?;
    found.ok_or_else(|| ApiError::no_run(run))
}

/// Does work on a thread that may wait for the disk.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(ApiError::inside(error)))
}
