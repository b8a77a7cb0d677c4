//! A request to the loop: HTTP over its Unix socket, on a new connection, so that a replaced loop is found by the next
//! request; or over TLS ([`direct`]).

pub mod direct;

use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use tokio::net::UnixStream;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use direct::DirectLoop;

/// Where the loop is.
#[derive(Debug, Clone)]
pub enum LoopPlace {
    /// At a Unix socket, which need not exist yet, and may disappear and reappear.
    Socket(PathBuf),
    /// At an address that is reached over TLS.
    Direct(Arc<DirectLoop>),
}

/// A request.
#[derive(Debug, Clone)]
pub struct LoopRequest {
    method: Method,
    address: String,
    content_type: Option<&'static str>,
    body: Bytes,
}

/// The loop's answer.
#[derive(Debug)]
pub struct LoopAnswer {
    pub status: StatusCode,
    pub body: Bytes,
}

impl LoopRequest {
    /// A request with these bytes, at an address below `/v1/`.
    pub fn new(method: Method, address: &str, body: Vec<u8>) -> LoopRequest {
        LoopRequest { method, address: address.to_owned(), content_type: None, body: body.into() }
    }

    /// A request with a JSON value.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn json(method: Method, address: &str, value: &impl Serialize) -> serde_json::Result<LoopRequest> {
        let request = LoopRequest::new(method, address, serde_json::to_vec(value)?);
        Ok(LoopRequest { content_type: Some("application/json"), ..request })
    }

    /// Sends the request to the loop, and reads the complete answer.
    ///
    /// # Errors
    /// What failed, and why, or that there was no answer within `deadline`.
    pub fn send(&self, place: &LoopPlace, deadline: Duration) -> Result<LoopAnswer, String> {
        LoopCaller::new(place.clone()).send(self, deadline)
    }

    async fn exchange(&self, socket: &Path) -> Result<LoopAnswer, String> {
        let stream = UnixStream::connect(socket).await.map_err(|error| format!("cannot connect: {error}"))?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(failed)?;
        let mut asked = pin!(self.ask(sender));
        // The connection is closed when this returns.
        tokio::select! {
            answer = &mut asked => answer,
            // What has arrived before its end is still read.
            _ = connection => asked.await,
        }
    }

    async fn ask(&self, mut sender: http1::SendRequest<Full<Bytes>>) -> Result<LoopAnswer, String> {
        // The host name is not resolved; the socket is used instead.
        let mut request =
            Request::builder().method(self.method.clone()).uri(format!("/v1/{}", self.address)).header(HOST, "loop");
        if let Some(content_type) = self.content_type {
            request = request.header(CONTENT_TYPE, content_type);
        }
        let request = request.body(Full::new(self.body.clone()));
        let request = request.map_err(|error| format!("cannot ask for `{}`: {error}", self.address))?;
        let response = sender.send_request(request).await.map_err(failed)?;
        let status = response.status();
        let body = response.into_body().collect().await.map_err(failed)?.to_bytes();
        Ok(LoopAnswer { status, body })
    }
}

/// Sends one request after the other. What all of them need is prepared once.
pub struct LoopCaller {
    place: LoopPlace,
    runtime: Option<Runtime>,
}

impl LoopCaller {
    /// For a loop at this place; does not connect yet.
    pub fn new(place: LoopPlace) -> LoopCaller {
        LoopCaller { place, runtime: None }
    }

    /// Sends a request to the loop, and reads the complete answer.
    ///
    /// # Errors
    /// As [`LoopRequest::send`].
    pub fn send(&mut self, request: &LoopRequest, deadline: Duration) -> Result<LoopAnswer, String> {
        let socket = match &self.place {
            LoopPlace::Direct(server) => return server.send(request, deadline),
            LoopPlace::Socket(socket) => socket,
        };
        let runtime = match self.runtime.take() {
            Some(runtime) => runtime,
            None => prepared().map_err(|error| format!("cannot prepare a request: {error}"))?,
        };
        let runtime = self.runtime.insert(runtime);
        let answer = runtime.block_on(async { timeout(deadline, request.exchange(socket)).await });
        answer.unwrap_or_else(|_| Err(format!("no answer within {} s", deadline.as_secs_f64())))
    }
}

fn prepared() -> std::io::Result<Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}

impl LoopAnswer {
    /// Why it was refused: the text of the answer, or else its status.
    pub fn refusal(&self) -> String {
        match std::str::from_utf8(&self.body) {
            Ok(text) if !text.is_empty() => text.to_owned(),
            Ok(_) | Err(_) => self.status.to_string(),
        }
    }
}

/// An error with its causes.
fn failed(error: hyper::Error) -> String {
    let mut message = error.to_string();
    let mut source = std::error::Error::source(&error);
    while let Some(inner) = source {
        message = format!("{message}: {inner}");
        source = inner.source();
    }
    message
}
