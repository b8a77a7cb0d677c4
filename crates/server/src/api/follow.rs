//! Server-Sent Events: streams the progress of a run or a sweep until it has ended and is billed.
//!
//! Each message has an `id`. A client that has lost the connection sends the last one as `Last-Event-ID`, and misses
//! nothing. A stream polls only when its client has consumed earlier messages, so a slow client costs no memory.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use domain::{RunId, SweepId};
use futures_util::stream::unfold;
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::Api;
use super::failure::ApiError;
use super::reading::blocking;
use crate::error::Error;
use crate::state::StateReader;

/// Polling interval.
const LOOK: Duration = Duration::from_millis(100);

/// A comment is sent after this time without messages, so that proxies do not close the connection.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Maximum number of open streams.
const STREAMS: usize = 256;

/// Permits for streams.
pub(super) fn room() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(STREAMS))
}

/// Whether a request asks for a stream: by `follow` in its query, or by its `Accept` header.
pub(super) fn is_wanted(headers: &HeaderMap, follow: Option<&str>) -> Result<bool, ApiError> {
    match follow {
        Some("" | "true" | "1") => Ok(true),
        Some("false" | "0") => Ok(false),
        Some(other) => Err(ApiError::new(400, format!("`follow` is `true` or `false`, and not `{other}`"))),
        None => {
            let accepts = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
            Ok(accepts.is_some_and(|kinds| kinds.contains("text/event-stream")))
        }
    }
}

/// The `id` of the client's last message, if given.
pub(super) fn last_id(headers: &HeaderMap) -> Result<Option<&str>, ApiError> {
    let last = headers.get("last-event-id").map(|value| value.to_str()).transpose();
    // A client without earlier messages sends an empty one.
    last.map(|last| last.filter(|last| !last.is_empty())).map_err(|_| not_an_id("letters that are no text"))
}

/// The last `id`, if it is a number.
pub(super) fn last_number(headers: &HeaderMap) -> Result<Option<u64>, ApiError> {
    let last = last_id(headers)?;
    last.map(|last| last.trim().parse().map_err(|_| not_an_id(last))).transpose()
}

/// An `id` that no message of this stream had.
pub(super) fn not_an_id(last: &str) -> ApiError {
    ApiError::new(400, format!("`Last-Event-ID`: no message of this stream had the id `{last}`"))
        .hint("send the id of the last message that arrived, or leave the header out")
}

/// A message of a stream: its kind, the position after it, and its data.
pub(super) struct Message {
    /// Its kind.
    pub kind: &'static str,
    /// Sent back as `Last-Event-ID`.
    pub id: String,
    /// Its data.
    pub data: Value,
}

/// What a stream follows to its end.
pub(super) trait Followed: Clone + Serialize + Send + 'static {
    /// What it is called in the message `end`.
    const NOUN: &'static str;

    /// Its state, once no further events will come; `None` before.
    fn ended(&self, reader: &StateReader) -> Result<Option<String>, Error>;
}

impl Followed for RunId {
    const NOUN: &'static str = "run";

    fn ended(&self, reader: &StateReader) -> Result<Option<String>, Error> {
        reader.billed(self)
    }
}

impl Followed for SweepId {
    const NOUN: &'static str = "sweep";

    fn ended(&self, reader: &StateReader) -> Result<Option<String>, Error> {
        reader.ended_sweep(self)
    }
}

/// Reads the next messages of a stream from a position, and returns the new position. The flag says whether what is followed
/// had already ended, so that no further messages will come.
pub(super) type Read<S, P> = fn(&Api, &S, P, bool) -> Result<(Vec<Message>, P), ApiError>;

/// Streams messages from a position on.
pub(super) fn stream<S: Followed, P: Send + 'static>(
    api: Api,
    subject: S,
    place: P,
    read: Read<S, P>,
) -> Result<Response, ApiError> {
    let permit = api.streams.clone().try_acquire_owned().map_err(|_| {
        ApiError::new(503, format!("{STREAMS} streams are open, which is as many as there may be"))
            .hint("close another one, or ask again without `follow`")
    })?;
    let following = Following { api, subject, place, read, ready: VecDeque::new(), _permit: permit };
    let messages = unfold(Some(following), |following| async move { following?.next().await });
    Ok(Sse::new(messages).keep_alive(KeepAlive::new().interval(KEEP_ALIVE)).into_response())
}

struct Following<S, P> {
    api: Api,
    subject: S,
    place: P,
    read: Read<S, P>,
    ready: VecDeque<Message>,
    _permit: OwnedSemaphorePermit,
}

impl<S: Followed, P: Send + 'static> Following<S, P> {
    /// The next message, and the remaining stream; `None` at the end.
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Option<Following<S, P>>)> {
        loop {
            if let Some(message) = self.ready.pop_front() {
                let event = Event::default().event(message.kind).id(message.id).data(message.data.to_string());
                return Some((Ok(event), Some(self)));
            }
            let Following { api, subject, place, read, ready: _, _permit } = self;
            let (asked, of) = (api.clone(), subject.clone());
            let looked = blocking(move || {
                // Checked first: what is read afterwards is then complete.
                let ended = of.ended(&asked.reader).map_err(ApiError::inside)?;
                let (messages, place) = read(&asked, &of, place, ended.is_some())?;
                Ok((messages, place, ended))
            });
            match looked.await {
                Ok((messages, _, Some(state))) if messages.is_empty() => {
                    let data = json!({ (S::NOUN): subject, "state": state });
                    return Some((Ok(Event::default().event("end").data(data.to_string())), None));
                }
                Ok((messages, place, _)) => {
                    let is_idle = messages.is_empty();
                    self = Following { api, subject, place, read, ready: messages.into(), _permit };
                    if is_idle {
                        tokio::time::sleep(LOOK).await;
                    }
                }
                Err(failure) => {
                    let data = json!({ "message": failure.message, "hint": failure.hint });
                    return Some((Ok(Event::default().event("error").data(data.to_string())), None));
                }
            }
        }
    }
}
