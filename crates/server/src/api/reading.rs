//! Data that handlers read themselves: events, measurements, and files that a program may have made.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;

use axum::Json;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use domain::series::Point;
use domain::{Record, RunId, Timestamp};
use plan::World;
use rustix::fs::OFlags;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Api;
use super::failure::ApiError;
use super::follow::{self, Message};
use crate::series::{PointPage, Series, goodput_json, newest_step};

/// Points or events in one answer, at most.
pub(super) const PAGE: usize = 10_000;

/// The position to continue from, and whether to follow.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct After {
    pub(super) after: u64,
    pub(super) follow: Option<String>,
}

/// The position to continue from.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct AllAfter {
    after: u64,
}

/// A query, or why it was rejected.
pub(super) type Checked<T> = Result<Query<T>, axum::extract::rejection::QueryRejection>;

/// The query, if it is right.
pub(super) fn query<T>(query: Checked<T>) -> Result<T, ApiError> {
    query.map(|Query(query)| query).map_err(|error| ApiError::new(400, error.body_text()))
}

/// The events of all runs and sweeps, oldest first.
pub(super) async fn all_events(State(api): State<Api>, after: Checked<AllAfter>) -> Result<Json<Value>, ApiError> {
    let AllAfter { after } = query(after)?;
    let records = blocking(move || api.reader.all_records(after, PAGE + 1).map_err(ApiError::inside)).await?;
    let has_more = records.len() > PAGE;
    Ok(Json(json!({ "events": &records[..records.len().min(PAGE)], "has_more": has_more })))
}

/// The events of a run, oldest first. Values of `envs` and secrets stay sealed.
pub(super) async fn events(
    State(api): State<Api>,
    Path(run): Path<String>,
    headers: HeaderMap,
    after: Checked<After>,
) -> Result<Response, ApiError> {
    let After { after, follow } = query(after)?;
    let id = known(&api, &run).await?;
    if follow::is_wanted(&headers, follow.as_deref())? {
        return follow::stream(api, id, follow::last_number(&headers)?.unwrap_or(after), new_events);
    }
    let records = blocking(move || api.reader.records(&id, after, PAGE + 1).map_err(ApiError::inside)).await?;
    let has_more = records.len() > PAGE;
    Ok(Json(json!({ "events": &records[..records.len().min(PAGE)], "has_more": has_more })).into_response())
}

fn new_events(api: &Api, run: &RunId, after: u64, _ended: bool) -> Result<(Vec<Message>, u64), ApiError> {
    let records = api.reader.records(run, after, PAGE).map_err(ApiError::inside)?;
    let next = records.last().map_or(after, |record| record.seq);
    let message = |record: Record| Message { kind: "record", id: record.seq.to_string(), data: json!(record) };
    Ok((records.into_iter().map(message).collect(), next))
}

/// The measurements of a run, oldest first.
pub(super) async fn series(
    State(api): State<Api>,
    Path(run): Path<String>,
    headers: HeaderMap,
    after: Checked<After>,
) -> Result<Response, ApiError> {
    let After { after, follow } = query(after)?;
    let id = known(&api, &run).await?;
    if follow::is_wanted(&headers, follow.as_deref())? {
        let after = follow::last_number(&headers)?.unwrap_or(after);
        return follow::stream(api, id, (None, after), new_points);
    }
    let page = blocking(move || {
        let series = Series::open(&api.home).map_err(ApiError::inside)?;
        points_after(&series, &id, after, PAGE)
    });
    let PointPage { points, has_more, .. } = page.await?;
    let points: Vec<Value> = points.into_iter().map(|(seq, point)| point_json(seq, point)).collect();
    Ok(Json(json!({ "points": points, "has_more": has_more })).into_response())
}

/// The next points of a run: none only where there are no more, for a client continues after the last one that it was given.
fn points_after(series: &Series, run: &RunId, mut after: u64, limit: usize) -> Result<PointPage, ApiError> {
    loop {
        let page = series.page(run, after, limit).map_err(ApiError::inside)?;
        if !page.points.is_empty() || !page.has_more {
            return Ok(page);
        }
        after = page.next;
    }
}

/// A measurement with its sequence number, from which to continue.
pub(super) fn point_json(seq: u64, point: Point) -> Value {
    json!({ "seq": seq, "at": point.at, "attempt": point.attempt, "report": point.report })
}

/// The measurements' database, opened once for a stream, and how far it was read.
type SeriesPlace = (Option<Series>, u64);

fn new_points(
    api: &Api,
    run: &RunId,
    (series, after): SeriesPlace,
    _ended: bool,
) -> Result<(Vec<Message>, SeriesPlace), ApiError> {
    let series = series.map_or_else(|| Series::open(&api.home), Ok).map_err(ApiError::inside)?;
    let PointPage { points, next, .. } = points_after(&series, run, after, PAGE)?;
    let message = |(seq, point)| Message { kind: "point", id: u64::to_string(&seq), data: point_json(seq, point) };
    Ok((points.into_iter().map(message).collect(), (Some(series), next)))
}

/// How the time of a run was spent, in microseconds, and the productive share.
pub(super) async fn goodput(api: &Api, id: RunId, now: Timestamp) -> Result<Value, ApiError> {
    let api = api.clone();
    blocking(move || {
        let records = api.reader.records(&id, 0, usize::MAX).map_err(ApiError::inside)?;
        let series = Series::open(&api.home).map_err(ApiError::inside)?;
        Ok(goodput_json(&series.goodput(&id, &records, now).map_err(ApiError::inside)?))
    })
    .await
}

/// The newest measurements of a run, at most so many, and the newest step.
pub(super) async fn newest(api: &Api, id: RunId, most: u64) -> Result<(Vec<Value>, Option<u64>), ApiError> {
    let api = api.clone();
    blocking(move || {
        let series = Series::open(&api.home).map_err(ApiError::inside)?;
        let points = series.newest_with_devices(&id, most).map_err(ApiError::inside)?;
        let points = points.into_iter().map(|(seq, point)| point_json(seq, point)).collect();
        Ok((points, newest_step(&series, &id).map_err(ApiError::inside)?))
    })
    .await
}

/// The name of a run that is known.
pub(super) async fn known(api: &Api, run: &str) -> Result<RunId, ApiError> {
    stored(api, run).await.map(|_| RunId::new(run))
}

/// A run with all that belongs to it, as it is on disk.
pub(super) async fn stored(api: &Api, run: &str) -> Result<World, ApiError> {
    let (reader, id) = (api.reader.clone(), RunId::new(run));
    let found = blocking(move || reader.run(&id).map_err(ApiError::inside)).await?;
    found.ok_or_else(|| ApiError::no_run(run))
}

/// Opens a file of a run. It is no link, which may lead to anything of this machine, and nothing that reading could hang on.
pub(super) fn plain_file(path: &std::path::Path) -> io::Result<File> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no plain file")),
    }
}

/// Does work on a thread that may wait for the disk.
pub(super) async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(ApiError::inside(error)))
}

#[cfg(test)]
mod tests {
    use domain::rank::Report;
    use domain::wire::{AgentEvent, Entry};
    use domain::{AttemptId, InstanceId};

    use super::*;
    use crate::home::Home;

    #[test]
    fn a_page_of_points_of_a_later_version_is_passed_over() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        let (mut series, run) = (Series::open(&home).unwrap(), RunId::new("r"));
        let entry = |seq: u64| {
            let event = AgentEvent::Reported { rank: 0, report: Report::Note { text: seq.to_string() } };
            Entry { seq, attempt: AttemptId::new("r-a1"), event }
        };
        let entries: Vec<Entry> = (1..=5).map(entry).collect();
        series.keep(Timestamp(1), &run, &InstanceId::new("r-i1"), &entries).unwrap();
        let db = rusqlite::Connection::open(home.series()).unwrap();
        db.execute("UPDATE points SET report = '{}' WHERE number < 4", []).unwrap();
        let PointPage { points, next, has_more } = points_after(&series, &run, 0, 2).unwrap();
        let numbers: Vec<u64> = points.into_iter().map(|(number, _)| number).collect();
        assert_eq!((numbers, next, has_more), (vec![4], 4, true));
        assert!(points_after(&series, &run, 5, 2).unwrap().points.is_empty());
    }
}
