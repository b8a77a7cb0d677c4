//! Single HTTP requests, for clients of an API rather than an object store.

use std::io::Read;
use std::time::Duration;

use domain::joining::ServerTrust;

use super::tls::{install_tls, pinned};
use crate::Error;
use crate::failure::chain;

/// Timeout of a request: the control loop abandons a call after a minute.
const PATIENCE: Duration = Duration::from_secs(45);

/// How long a connection may take: what answers is near or well connected.
const CONNECT: Duration = Duration::from_secs(5);

/// A client that sends one request at a time, without redirects or retries.
#[derive(Debug, Clone)]
pub struct WebClient(reqwest::blocking::Client);

impl WebClient {
    /// A client. Not to be made or dropped within an async runtime.
    ///
    /// # Errors
    /// [`Error::Internal`] when there is none.
    pub fn new() -> Result<WebClient, Error> {
        install_tls();
        let client = reqwest::blocking::Client::builder()
            .timeout(PATIENCE)
            .connect_timeout(CONNECT)
            .redirect(reqwest::redirect::Policy::none())
            .build();
        client.map(WebClient).map_err(|error| Error::Internal(chain(&error)))
    }

    /// A client for one server. With `authorities`, PEM certificates, only certificates signed by one of them are
    /// trusted; with `near`, for a server on this machine, no proxy is used.
    ///
    /// # Errors
    /// [`Error::Usage`] if `authorities` are not certificates, [`Error::Internal`] if there is no client.
    pub fn of_server(authorities: Option<&str>, near: bool) -> Result<WebClient, Error> {
        install_tls();
        let mut client = reqwest::blocking::Client::builder()
            .timeout(PATIENCE)
            .connect_timeout(CONNECT)
            .redirect(reqwest::redirect::Policy::none());
        if near {
            client = client.no_proxy();
        }
        if let Some(text) = authorities {
            let certificates = reqwest::Certificate::from_pem_bundle(text.as_bytes()).unwrap_or_default();
            if certificates.is_empty() {
                let message = "there is no certificate in what is to be trusted".to_owned();
                return Err(Error::Usage { message, hint: "give a file in the format PEM".to_owned() });
            }
            client = client.tls_certs_only(certificates);
        }
        client.build().map(WebClient).map_err(|error| Error::Internal(chain(&error)))
    }

    /// A client for one server that is recognised by `trust`; with `near`, for a server on this machine, no proxy is used.
    ///
    /// # Errors
    /// As [`WebClient::of_server`].
    pub fn of_trusted(trust: &ServerTrust, near: bool) -> Result<WebClient, Error> {
        let fingerprint = match trust {
            ServerTrust::System => return WebClient::of_server(None, near),
            ServerTrust::Authorities(text) => return WebClient::of_server(Some(text), near),
            ServerTrust::Fingerprint(fingerprint) => fingerprint,
        };
        install_tls();
        let tls = pinned(fingerprint).map_err(|error| Error::Internal(error.to_string()))?;
        let mut client = reqwest::blocking::Client::builder()
            .timeout(PATIENCE)
            .connect_timeout(CONNECT)
            .redirect(reqwest::redirect::Policy::none())
            .tls_backend_preconfigured(tls);
        if near {
            client = client.no_proxy();
        }
        client.build().map(WebClient).map_err(|error| Error::Internal(chain(&error)))
    }

    /// Sends a request that may take so long; the status and the body of the reply.
    ///
    /// # Errors
    /// Why there is no reply. The request may have arrived.
    pub fn send_within(
        &self,
        (method, url): (&str, &str),
        headers: &[(String, String)],
        body: Vec<u8>,
        within: Duration,
    ) -> Result<(u16, Vec<u8>), String> {
        let method: reqwest::Method = method.parse().map_err(|_| format!("`{method}` is no method"))?;
        let mut request = self.0.request(method, url).body(body).timeout(within);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let reply = request.send().map_err(|error| chain(&error))?;
        let status = reply.status().as_u16();
        let body = reply.bytes().map_err(|error| chain(&error))?;
        Ok((status, body.to_vec()))
    }

    /// Sends a request; the status and the body of the reply, which is read as it comes. A read that waits for longer
    /// than a request may take is an error.
    ///
    /// # Errors
    /// Why there is no reply. The request may have arrived.
    pub fn open(
        &self,
        method: &str,
        url: &str,
        headers: &[(String, String)],
        body: Vec<u8>,
    ) -> Result<(u16, Box<dyn Read + Send>), String> {
        let reply = self.reply(method, url, headers, body)?;
        Ok((reply.status().as_u16(), Box::new(reply)))
    }

    /// Sends a request; the status, the header `Retry-After` or an empty text, and the body of the reply, which is read as
    /// it comes.
    ///
    /// # Errors
    /// As [`WebClient::open`].
    pub fn open_paced(
        &self,
        method: &str,
        url: &str,
        headers: &[(String, String)],
        body: Vec<u8>,
    ) -> Result<(u16, String, Box<dyn Read + Send>), String> {
        let reply = self.reply(method, url, headers, body)?;
        let after = reply.headers().get("retry-after").and_then(|value| value.to_str().ok());
        let after = after.unwrap_or_default().to_owned();
        Ok((reply.status().as_u16(), after, Box::new(reply)))
    }

    /// Sends a request; the status and the body of the reply.
    ///
    /// # Errors
    /// Why there is no reply. The request may have arrived.
    pub fn send(
        &self,
        method: &str,
        url: &str,
        headers: &[(String, String)],
        body: Vec<u8>,
    ) -> Result<(u16, Vec<u8>), String> {
        let reply = self.reply(method, url, headers, body)?;
        let status = reply.status().as_u16();
        let body = reply.bytes().map_err(|error| chain(&error))?;
        Ok((status, body.to_vec()))
    }

    /// Sends a request; the status, the headers and the body of the reply. Names of headers are in lower case, and those
    /// whose values are no text are left out.
    ///
    /// # Errors
    /// Why there is no reply. The request may have arrived.
    pub fn send_whole(
        &self,
        method: &str,
        url: &str,
        headers: &[(String, String)],
        body: Vec<u8>,
    ) -> Result<crate::WholeReply, String> {
        let reply = self.reply(method, url, headers, body)?;
        let status = reply.status().as_u16();
        let text = |value: &reqwest::header::HeaderValue| value.to_str().ok().map(str::to_owned);
        let told = reply.headers().iter().filter_map(|(name, value)| Some((name.as_str().to_owned(), text(value)?)));
        let told: Vec<(String, String)> = told.collect();
        let body = reply.bytes().map_err(|error| chain(&error))?;
        Ok((status, told, body.to_vec()))
    }

    fn reply(
        &self,
        method: &str,
        url: &str,
        headers: &[(String, String)],
        body: Vec<u8>,
    ) -> Result<reqwest::blocking::Response, String> {
        let method: reqwest::Method = method.parse().map_err(|_| format!("`{method}` is no method"))?;
        let mut request = self.0.request(method, url).body(body);
        // The host is taken from the address.
        for (name, value) in headers.iter().filter(|(name, _)| name != "host") {
            request = request.header(name, value);
        }
        request.send().map_err(|error| chain(&error))
    }
}
