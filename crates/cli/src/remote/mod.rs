//! A client of a server that commands use in place of this machine's home: its API over HTTP, with a token.
//!
//! A command calls [`chosen`] first. Its output is the same either way: facts about runs are read from the home's
//! databases or from here, and printed by the same functions.

mod address;
mod download;
mod failure;
pub mod login;
mod pipelines;
mod retry;
mod runs;
mod stream;
mod sweeps;

use std::io::Read;

use serde_json::Value;
use store::WebClient;

use crate::error::Error;
use crate::settings::GlobalSettings;
use address::Address;

pub use runs::{KnownRun, point};
pub use stream::StreamMessage;
pub use sweeps::KnownSweep;

/// What `--server` is given to use this machine's home in spite of `gradus login`.
pub const HERE: &str = "local";

/// A server and the client for it.
#[derive(Debug, Clone)]
pub struct Server {
    client: WebClient,
    address: Address,
    token: Option<String>,
}

/// The server that commands talk to: that of `--server` or `GRADUS_SERVER`, else that of `gradus login`; none where it is
/// this machine's home.
///
/// # Errors
/// [`Error::Usage`] for an invalid address, [`Error::File`] if the stored login cannot be read.
pub fn chosen(settings: &GlobalSettings) -> Result<Option<Server>, Error> {
    let stored = || login::read(&settings.home);
    let (url, login) = match &settings.server {
        Some(server) if server == HERE => return Ok(None),
        Some(url) => {
            let address = Address::parse(url)?;
            let login = stored()?.filter(|login| login.url == address.url);
            (address.url, login)
        }
        None => match stored()? {
            Some(login) => (login.url.clone(), Some(login)),
            None => return Ok(None),
        },
    };
    let authorities = login.as_ref().and_then(|login| login.authorities.clone());
    let token = settings.token.clone().or_else(|| login.map(|login| login.token));
    Server::new(&url, token, authorities.as_deref()).map(Some)
}

/// Refuses a command that works on a home and not over the API.
pub fn only_here(what: &str, server: &Server) -> Error {
    let message =
        format!("{what} works only with the home of this machine, and not with the server at `{}`", server.url());
    let hint = "run it on the server's machine; `--server local` uses the home of this one".to_owned();
    Error::Usage { message, hint }
}

/// An `Idempotency-Key` for one request, and for the same one sent again.
pub fn idempotency_key() -> String {
    format!("{}-{}", server::clock::now().0, std::process::id())
}

impl Server {
    /// A server at an address.
    ///
    /// # Errors
    /// [`Error::Usage`] for an invalid address, or invalid certificates.
    pub fn new(url: &str, token: Option<String>, authorities: Option<&str>) -> Result<Server, Error> {
        let address = Address::parse(url)?;
        let client = WebClient::of_server(authorities, address.is_near)?;
        Ok(Server { client, address, token })
    }

    /// Its address.
    pub fn url(&self) -> &str {
        &self.address.url
    }

    /// Sends a GET request.
    ///
    /// # Errors
    /// [`Error::Code`] if it cannot be reached, or refuses.
    pub fn get(&self, path: &str) -> Result<Value, Error> {
        self.ask("GET", path, &[], Vec::new())
    }

    /// Sends a POST request. With a `key`, it is idempotent.
    ///
    /// # Errors
    /// As [`Server::get`].
    pub fn post(&self, path: &str, body: Option<&Value>, key: Option<&str>) -> Result<Value, Error> {
        let mut headers = Vec::new();
        headers.extend(body.map(|_| ("content-type".to_owned(), "application/json".to_owned())));
        headers.extend(key.map(|key| ("idempotency-key".to_owned(), key.to_owned())));
        self.ask("POST", path, &headers, body.map_or_else(Vec::new, |body| body.to_string().into_bytes()))
    }

    fn ask(&self, method: &str, path: &str, headers: &[(String, String)], body: Vec<u8>) -> Result<Value, Error> {
        let sent = self.client.send(method, &self.at(path), &self.with_token(headers), body);
        let (status, body) = sent.map_err(|why| failure::unreached(self.url(), &why))?;
        failure::answer(self.url(), status, &body)
    }

    /// A streamed answer, or the error.
    fn open(&self, path: &str, headers: &[(String, String)]) -> Result<Opened, Error> {
        let opened = self.client.open("GET", &self.at(path), &self.with_token(headers), Vec::new());
        let (status, mut body) = opened.map_err(|why| failure::unreached(self.url(), &why))?;
        if status == 200 {
            return Ok(body);
        }
        let mut bytes = Vec::new();
        let _ = body.read_to_end(&mut bytes);
        Err(failure::answer(self.url(), status, &bytes).err().unwrap_or_else(|| failure::stranger(self.url(), status)))
    }

    fn at(&self, path: &str) -> String {
        format!("{}{path}", self.address.url)
    }

    fn with_token(&self, headers: &[(String, String)]) -> Vec<(String, String)> {
        let token = self.token.iter().map(|token| ("authorization".to_owned(), format!("Bearer {token}")));
        headers.iter().cloned().chain(token).collect()
    }
}

/// The body of an answer.
type Opened = Box<dyn Read + Send>;
