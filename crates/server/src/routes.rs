//! The loop's door: HTTP on a Unix socket that only this user can open.

use std::os::unix::fs::PermissionsExt;
use std::sync::mpsc::Sender;
use std::time::Duration;

use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Json, Router};
use domain::Bytes;
use domain::wire::{HEARTBEAT_MAX, Heartbeat, HeartbeatReply};
use tokio::net::UnixListener;

use crate::control::Wake;
use crate::error::Error;
use crate::files;
use crate::home::Home;

/// Where calls wake the loop.
pub(crate) type Inbox = Sender<Wake>;

/// An agent's call contains its measurements since the loop was last available.
pub(crate) const BODY_MAX: usize = HEARTBEAT_MAX;

/// The loop answers within this time or the agent calls again.
const ANSWER: Duration = Duration::from_secs(10);

/// Serves agents on a separate thread; each call wakes the loop. Only the holder of the loop's lock may call this,
/// because it takes over the socket. What agents send of all runs takes no more disk space than `quota`.
///
/// # Errors
/// [`Error::File`] if the socket cannot be created.
pub fn serve(home: &Home, inbox: Sender<Wake>, quota: Option<Bytes>) -> Result<Door, Error> {
    let socket = &home.socket();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(Error::file("start the server at", socket))?;
    let listener = {
        let _guard = runtime.enter();
        let _ = std::fs::remove_file(socket);
        UnixListener::bind(socket).map_err(Error::file("listen at", socket))?
    };
    let private = std::fs::Permissions::from_mode(0o600);
    std::fs::set_permissions(socket, private).map_err(Error::file("protect", socket))?;
    let calls = Router::new().route("/tick", post(heartbeat)).with_state(inbox);
    let calls = calls.merge(files::router(home, quota)).layer(DefaultBodyLimit::max(BODY_MAX));
    let router = Router::new().nest("/v1", calls);
    let (closed, close) = tokio::sync::oneshot::channel::<()>();
    let serve = move || {
        runtime.block_on(async {
            tokio::select! {
                _ = axum::serve(listener, router) => {}
                _ = close => {}
            }
        });
        // Connected agents find the next loop at the same path.
        runtime.shutdown_background();
    };
    let thread = std::thread::Builder::new().name("door".into()).spawn(serve);
    thread.map(|_| Door { _closed: closed }).map_err(Error::file("start the server at", socket))
}

/// Open until this is dropped.
#[derive(Debug)]
pub struct Door {
    _closed: tokio::sync::oneshot::Sender<()>,
}

pub(crate) async fn heartbeat(
    State(inbox): State<Inbox>,
    Json(heartbeat): Json<Heartbeat>,
) -> Result<Json<HeartbeatReply>, StatusCode> {
    let (reply, answer) = tokio::sync::oneshot::channel();
    inbox.send(Wake::Heartbeat(Box::new(heartbeat), reply)).map_err(|_| StatusCode::SERVICE_UNAVAILABLE)?;
    match tokio::time::timeout(ANSWER, answer).await {
        Ok(Ok(orders)) => Ok(Json(orders)),
        Ok(Err(_)) | Err(_) => Err(StatusCode::SERVICE_UNAVAILABLE),
    }
}
