//! Files of runs, for agents that do not share this machine's disk: inputs are sent ([`send`]), outputs are received
//! ([`receive`]).
//!
//! An agent may read the files in the [`Grant`] of its run, and its run's own files; it may write only below the run's
//! own folder, and only while its attempt is the newest. These are the routes; the work is done on blocking threads.

mod blobs;
mod grant;
mod limit;
mod receive;
mod send;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, Query, State};
use axum::http::StatusCode;
use axum::routing::{get, post, put};
use axum::{Json, Router};
use domain::RunId;
use domain::files::{BroughtPart, FileListing, KeepRequest, PartsRequest, Received, RunInput};

use crate::clock;
use crate::error::is_full;
use crate::home::{DiskSpace, Home, StoredKind, Transfers};

pub(crate) use blobs::{BlobPart, BlobState, BlobStore};
pub use grant::Grant;
use limit::StorageLimit;

/// Why a request was refused: the status, and a sentence.
pub(crate) type Refused = (StatusCode, String);

/// Where the runs of a home lie.
#[derive(Debug)]
pub(crate) struct Runs {
    folder: PathBuf,
    transfers: Arc<Transfers>,
    limit: StorageLimit,
    space: Arc<DiskSpace>,
}

impl Runs {
    /// Those in a folder; what agents send of them takes no more space than `quota`, where there is one. What is refused for
    /// want of space is known to `space`.
    pub(crate) fn new(
        folder: PathBuf,
        quota: Option<domain::Bytes>,
        (space, transfers): (Arc<DiskSpace>, Arc<Transfers>),
    ) -> Runs {
        let limit = StorageLimit::new(&folder, quota, transfers.clone());
        Runs { folder, transfers, limit, space }
    }

    /// The home folder, in which they are.
    fn home(&self) -> PathBuf {
        self.folder.parent().unwrap_or(&self.folder).to_owned()
    }

    /// The folder of a run that exists.
    fn run(&self, run: &str) -> Result<PathBuf, Refused> {
        let folder = self.folder.join(run);
        let is_name = domain::files::is_safe(run) && !run.contains('/');
        if is_name && folder.is_dir() {
            return Ok(folder);
        }
        Err((StatusCode::NOT_FOUND, format!("there is no run `{run}`")))
    }
}

/// Lets the agent of an attempt use files of its run, and no older one write any more.
///
/// # Errors
/// If the folder of the run cannot be written.
pub(crate) fn grant(home: &Home, run: &RunId, grant: &Grant) -> std::io::Result<()> {
    let locks = home.transfers().of(run.as_str());
    let _held = locks.fence();
    grant.write(&home.run(run))
}

/// The routes for files, below `/v1` or another prefix.
pub(crate) fn router(home: &Home, quota: Option<domain::Bytes>) -> Router {
    Router::new()
        .route("/runs/{run}/inputs/{input}", get(list_input).post(read_input))
        .route("/runs/{run}/mounts/{number}", get(list_mount).post(read_mount))
        .route("/runs/{run}/files", get(list_files).post(read_files))
        .route("/runs/{run}/files/{*path}", put(bring))
        .route("/runs/{run}/keep", post(keep))
        .with_state(Arc::new(Runs::new(home.runs(), quota, (home.space().clone(), home.transfers().clone()))))
}

async fn list_input(
    State(runs): State<Arc<Runs>>,
    Path((run, input)): Path<(String, RunInput)>,
) -> Result<Json<FileListing>, Refused> {
    blocking(move || {
        let path = Grant::of(&runs.run(&run)?)?.input(input)?;
        if input == RunInput::Workdir { send::list_workdir(&path, &runs.home()) } else { send::list(&path) }
    })
    .await
    .map(Json)
}

async fn read_input(
    State(runs): State<Arc<Runs>>,
    Path((run, input)): Path<(String, RunInput)>,
    Json(request): Json<PartsRequest>,
) -> Result<Vec<u8>, Refused> {
    blocking(move || send::read(&Grant::of(&runs.run(&run)?)?.input(input)?, &request)).await
}

async fn list_mount(
    State(runs): State<Arc<Runs>>,
    Path((run, number)): Path<(String, u32)>,
) -> Result<Json<FileListing>, Refused> {
    blocking(move || send::list_mount(&Grant::of(&runs.run(&run)?)?.mount(number)?, &runs.home())).await.map(Json)
}

async fn read_mount(
    State(runs): State<Arc<Runs>>,
    Path((run, number)): Path<(String, u32)>,
    Json(request): Json<PartsRequest>,
) -> Result<Vec<u8>, Refused> {
    blocking(move || send::read_mount(&Grant::of(&runs.run(&run)?)?.mount(number)?, &request)).await
}

async fn list_files(State(runs): State<Arc<Runs>>, Path(run): Path<String>) -> Result<Json<FileListing>, Refused> {
    blocking(move || send::list(&runs.run(&run)?.join("checkpoints"))).await.map(Json)
}

async fn read_files(
    State(runs): State<Arc<Runs>>,
    Path(run): Path<String>,
    Json(request): Json<PartsRequest>,
) -> Result<Vec<u8>, Refused> {
    blocking(move || send::read(&runs.run(&run)?.join("checkpoints"), &request)).await
}

async fn bring(
    State(runs): State<Arc<Runs>>,
    Path((run, path)): Path<(String, String)>,
    Query(part): Query<BroughtPart>,
    body: Bytes,
) -> Result<Json<Received>, Refused> {
    blocking(move || {
        let received = runs.bring(&run, &path, &part, &body);
        // A part that was there already says nothing of the space that is left.
        let has_grown = part.total.is_none() && !body.is_empty();
        let is_stored = received.as_ref().map(|received| received.is_whole || has_grown);
        note(&runs.space, &StoredKind::Files(RunId::new(run)), &path, is_stored);
        received
    })
    .await
    .map(Json)
}

async fn keep(
    State(runs): State<Arc<Runs>>,
    Path(run): Path<String>,
    Json(request): Json<KeepRequest>,
) -> Result<(), Refused> {
    blocking(move || runs.keep(&run, &request)).await
}

/// Runs blocking file operations on a separate thread.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T, Refused> + Send + 'static) -> Result<T, Refused> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())))
}

/// Notes whether something was refused for want of space, or was stored.
fn note(space: &DiskSpace, stored: &StoredKind, place: &str, result: Result<bool, &Refused>) {
    match result {
        Ok(true) => space.accepted(stored, place, clock::now()),
        Err((StatusCode::INSUFFICIENT_STORAGE, why)) => space.refused(stored, place, why, clock::now()),
        Ok(false) | Err(_) => {}
    }
}

/// An I/O error, passed on for the agent's log.
fn failed(doing: &str, path: &std::path::Path) -> impl FnOnce(std::io::Error) -> Refused {
    let doing = format!("cannot {doing} `{}`", path.display());
    move |error| {
        let status = match error.kind() {
            std::io::ErrorKind::NotFound => StatusCode::NOT_FOUND,
            _ if is_full(&error) => StatusCode::INSUFFICIENT_STORAGE,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        (status, format!("{doing}: {error}"))
    }
}
