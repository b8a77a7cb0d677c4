//! Uploads whose progress is seen inside of a request, which may take minutes on a slow network: a body is passed on in
//! slices, and each counts as moved once the network asks for the next one.
//!
//! The client of the store repeats requests by itself, so an upload reaches it beside its interface, as a value of the task.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures::stream;
use object_store::client::{HttpError, HttpErrorKind, HttpRequest, HttpResponse};
use reqwest::header::CONTENT_LENGTH;

use crate::{Error, Meter};

/// Bytes of a body that are passed on at a time.
const SLICE: usize = 64 << 10;

tokio::task_local! {
    /// The upload that the task is about.
    static CURRENT: Upload;
}

/// An upload of so many bytes.
#[derive(Debug, Clone)]
pub(crate) struct Upload {
    meter: Meter,
    bytes: u64,
    /// Bytes of data that they hold.
    raw: u64,
    /// Of these, counted as moved.
    told: Arc<AtomicU64>,
}

impl Upload {
    /// One whose bytes hold `raw` bytes of data.
    pub fn new(meter: &Meter, bytes: u64, raw: u64) -> Upload {
        Upload { meter: meter.clone(), bytes, raw, told: Arc::default() }
    }

    /// Sends it, and counts its bytes while they go.
    ///
    /// # Errors
    /// That of `sending`; nothing of it counts as moved then.
    pub async fn during<T>(self, sending: impl Future<Output = Result<T, Error>>) -> Result<T, Error> {
        let sent = CURRENT.scope(self.clone(), sending).await;
        match &sent {
            Ok(_) => {
                self.taken(self.bytes);
                self.meter.sent(self.bytes);
            }
            Err(_) => self.meter.moves_again(self.told.load(Ordering::Relaxed)),
        }
        sent
    }

    /// That of this task, if it has one.
    pub(super) fn current() -> Option<Upload> {
        CURRENT.try_with(Upload::clone).ok()
    }

    /// Its first `bytes` are taken. Bytes that are sent a second time are not progress.
    fn taken(&self, bytes: u64) {
        let now = (u128::from(self.raw) * u128::from(bytes) / u128::from(self.bytes.max(1))) as u64;
        let before = self.told.fetch_max(now, Ordering::Relaxed);
        self.meter.moved(now.saturating_sub(before));
    }

    /// Carries out one request of it.
    pub(super) async fn send(
        self,
        client: &reqwest::Client,
        request: HttpRequest,
        body: Bytes,
    ) -> Result<HttpResponse, HttpError> {
        let length = body.len();
        let slices = stream::unfold((self, body), move |(upload, mut rest)| async move {
            upload.taken((length - rest.len()) as u64);
            let slice = rest.split_to(rest.len().min(SLICE));
            (!slice.is_empty()).then_some((Ok::<Bytes, Infallible>(slice), (upload, rest)))
        });
        let (parts, _) = request.into_parts();
        let url = parts.uri.to_string().parse().map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))?;
        let mut sending = reqwest::Request::new(parts.method, url);
        *sending.headers_mut() = parts.headers;
        // The slices alone would not tell how many bytes they are.
        sending.headers_mut().entry(CONTENT_LENGTH).or_insert(length.into());
        *sending.body_mut() = Some(reqwest::Body::wrap_stream(slices));
        let response = client.execute(sending).await.map_err(told)?;
        let (status, headers) = (response.status(), response.headers().clone());
        let mut answer = HttpResponse::new(response.bytes().await.map_err(told)?.into());
        (*answer.status_mut(), *answer.headers_mut()) = (status, headers);
        Ok(answer)
    }
}

/// An error of the network, without the address, which may hold a signature.
fn told(error: reqwest::Error) -> HttpError {
    let kind = match () {
        () if error.is_timeout() => HttpErrorKind::Timeout,
        () if error.is_connect() => HttpErrorKind::Connect,
        () if error.is_decode() => HttpErrorKind::Decode,
        () if error.is_builder() => HttpErrorKind::Unknown,
        () => HttpErrorKind::Interrupted,
    };
    HttpError::new(kind, error.without_url())
}
