//! The wire protocol of AWS, as values: requests, their signature, answers, and errors.
//!
//! This module opens no connections. A client for HTTP is passed in as a [`HttpTransport`]; so a first build has none,
//! and every request and answer is tested as text.

pub mod answers;
pub mod failure;
pub mod networks;
pub mod query;
pub mod reservations;
pub mod resources;
#[cfg(test)]
pub mod scripted;
pub mod signature;
pub mod times;

/// A request over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// Such as `GET`.
    pub method: &'static str,
    /// The URL, with its query.
    pub url: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// The reply to a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HttpReply {
    pub status: u16,
    /// Names in lower case; empty where a client keeps none.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

impl HttpReply {
    /// The body as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    /// The first header of this name, which is in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }
}

/// A client for HTTP.
pub trait HttpTransport: Send + Sync {
    /// Sends a request and waits for the reply.
    ///
    /// # Errors
    /// Why there is none. The request may have arrived.
    fn send(&self, request: &HttpRequest) -> Result<HttpReply, String>;
}
