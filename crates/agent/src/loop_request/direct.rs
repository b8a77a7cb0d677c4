//! A loop that is reached directly, over TLS: the agent joins once, and is recognised by a secret of its own afterwards.
//!
//! The secret is on disk before it is sent. So a join whose answer was lost is repeated with the same secret, which the
//! server knows by then, and so is every request after a restart of either side. No error here has a secret in it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use domain::InstanceId;
use domain::joining::{AccessSecret, AgentServer, JOIN_SCHEMA, JoinRequest};
use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use node::{Folder, read_secret, write_secret};
use store::WebClient;

use super::{LoopAnswer, LoopRequest};

/// The server of one instance.
#[derive(Debug)]
pub struct DirectLoop {
    url: String,
    client: WebClient,
    folder: Folder,
    instance: InstanceId,
    secret: AccessSecret,
    /// The join token, until it was used.
    token: Mutex<Option<AccessSecret>>,
}

impl DirectLoop {
    /// Draws the secret of an instance, unless it has one; does not connect yet.
    ///
    /// # Errors
    /// If its folder holds neither a join token nor a secret, or cannot be written, or this executable has no TLS.
    pub fn open(server: &AgentServer, folder: &Folder, instance: &InstanceId) -> io::Result<DirectLoop> {
        if !server.url.starts_with("https://") {
            return Err(io::Error::other(format!("`{}` is no address with `https://`", server.url)));
        }
        let client = WebClient::of_trusted(&server.trust, is_near(&server.url)).map_err(io::Error::other)?;
        let token = read_secret(&folder.join_token())?;
        let secret = match (read_secret(&folder.session_secret())?, &token) {
            (Some(secret), _) => secret,
            (None, Some(_)) => {
                let secret = draw()?;
                write_secret(&folder.session_secret(), &secret)?;
                secret
            }
            (None, None) => {
                let missing = folder.join_token();
                return Err(io::Error::new(io::ErrorKind::NotFound, format!("there is no `{}`", missing.display())));
            }
        };
        let (url, folder, instance) = (server.url.clone(), folder.clone(), instance.clone());
        Ok(DirectLoop { url, client, folder, instance, secret, token: Mutex::new(token) })
    }

    /// Makes a heartbeat or the like: `body` is JSON, sent to an address below that of agents, once the agent has joined.
    ///
    /// # Errors
    /// What failed, and why: also that the server does not let the agent join, and why not.
    pub fn post(&self, address: &str, body: Vec<u8>, deadline: Duration) -> Result<(u16, Vec<u8>), String> {
        let request = LoopRequest { content_type: Some(JSON), ..LoopRequest::new(Method::POST, address, body) };
        let answer = self.send(&request, deadline)?;
        Ok((answer.status.as_u16(), answer.body.into()))
    }

    /// Sends a request once the agent has joined.
    pub(super) fn send(&self, request: &LoopRequest, deadline: Duration) -> Result<LoopAnswer, String> {
        let begun = Instant::now();
        self.join(deadline)?;
        let left = deadline.saturating_sub(begun.elapsed());
        let mut headers = vec![("authorization".to_owned(), format!("Bearer {}", self.secret.0))];
        headers.extend(request.content_type.map(|kind| ("content-type".to_owned(), kind.to_owned())));
        let url = format!("{}/v1/agent/{}", self.url, request.address);
        let asked = (request.method.as_str(), url.as_str());
        answer(self.client.send_within(asked, &headers, request.body.to_vec(), left)?)
    }

    /// Joins, unless that was done. Requests that are made meanwhile do the same, each within its own time: with the same
    /// secret, so that the server lets the agent in once.
    fn join(&self, deadline: Duration) -> Result<(), String> {
        let Some(token) = self.token().clone() else { return Ok(()) };
        let (instance, secret) = (self.instance.clone(), self.secret.clone());
        let request = JoinRequest { schema: JOIN_SCHEMA, instance, token, secret };
        let body = serde_json::to_vec(&request).map_err(|error| error.to_string())?;
        let headers = [("content-type".to_owned(), JSON.to_owned())];
        let url = format!("{}/v1/agent/join", self.url);
        let joined = self.client.send_within(("POST", &url), &headers, body, deadline).and_then(answer);
        self.joined(joined.and_then(|answer| match answer.status.is_success() {
            true => Ok(()),
            false => Err(answer.refusal()),
        }))
    }

    /// Takes note of the outcome of a join. One that has failed does no harm where another one has succeeded meanwhile.
    fn joined(&self, joined: Result<(), String>) -> Result<(), String> {
        let mut token = self.token();
        match joined {
            _ if token.is_none() => Ok(()),
            Ok(()) => {
                // It is of no use to anybody any more.
                let _ = fs::remove_file(self.folder.join_token());
                let _ = fs::remove_file(self.folder.join_log());
                *token = None;
                Ok(())
            }
            Err(why) => {
                let why = format!("cannot join the server at `{}`: {why}", self.url);
                // For who looks here; that it cannot be written is the smaller trouble.
                let _ = fs::write(self.folder.join_log(), format!("{why}\n"));
                Err(why)
            }
        }
    }

    /// Held for moments only, and never while a request is under way.
    fn token(&self) -> MutexGuard<'_, Option<AccessSecret>> {
        self.token.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const JSON: &str = "application/json";

fn answer((status, body): (u16, Vec<u8>)) -> Result<LoopAnswer, String> {
    let status = StatusCode::from_u16(status).map_err(|error| error.to_string())?;
    Ok(LoopAnswer { status, body: Bytes::from(body) })
}

/// 256 random bits in hexadecimal digits.
fn draw() -> io::Result<AccessSecret> {
    let mut bytes = [0_u8; 32];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(AccessSecret(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
}

/// Whether a server is on this machine, to which no proxy leads.
fn is_near(url: &str) -> bool {
    ["https://127.", "https://localhost", "https://[::1]"].iter().any(|near| url.starts_with(near))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use domain::joining::ServerTrust;

    use super::*;

    fn open(folder: &Folder, url: &str) -> io::Result<DirectLoop> {
        let server = AgentServer { url: url.to_owned(), trust: ServerTrust::Fingerprint("ab".repeat(32)) };
        DirectLoop::open(&server, folder, &InstanceId::new("digits-1-i1"))
    }

    #[test]
    fn a_secret_is_drawn_once_and_kept_over_restarts() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::new(temporary.path());
        let url = "https://127.0.0.1:1";
        let error = open(&folder, url).unwrap_err();
        assert!(error.kind() == io::ErrorKind::NotFound && error.to_string().contains("join.token"), "{error}");
        write_secret(&folder.join_token(), &AccessSecret("token-7f3a".into())).unwrap();
        let first = open(&folder, url).unwrap();
        assert_eq!((first.secret.0.len(), &first.secret), (64, &open(&folder, url).unwrap().secret));
        let mode = fs::metadata(folder.session_secret()).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        // Nobody answers there: what is said and written has no secret in it, and the token is kept for the next try.
        let why = first.post("tick", b"{}".to_vec(), Duration::from_secs(5)).unwrap_err();
        let log = fs::read_to_string(folder.join_log()).unwrap();
        for text in [&why, &log, &format!("{first:?}")] {
            assert!(!text.contains("token-7f3a") && !text.contains(&first.secret.0), "{text}");
        }
        assert!(why.contains("cannot join the server at `https://127.0.0.1:1`"), "{why}");
        assert!(folder.join_token().exists());
        assert!(open(&folder, "http://127.0.0.1:1").is_err(), "without TLS nothing is sent");
    }

    /// A server that takes a connection and says nothing, as one does that is overloaded.
    #[test]
    fn a_request_does_not_wait_for_the_join_of_another_one() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::new(temporary.path());
        write_secret(&folder.join_token(), &AccessSecret("token-7f3a".into())).unwrap();
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let direct = open(&folder, &format!("https://{}", silent.local_addr().unwrap())).unwrap();
        std::thread::scope(|scope| {
            let patient = scope.spawn(|| direct.post("tick", b"{}".to_vec(), Duration::from_secs(3600)));
            // The other one has connected, and is waiting for its answer.
            let connection = silent.accept().unwrap();
            let why = direct.post("tick", b"{}".to_vec(), Duration::from_millis(200)).unwrap_err();
            assert!(why.contains("cannot join the server"), "{why}");
            assert!(!patient.is_finished());
            // What it waits for hangs up.
            drop((connection, silent));
            assert!(patient.join().unwrap().is_err());
        });
    }

    #[test]
    fn a_join_that_fails_after_another_has_succeeded_is_no_error() {
        let temporary = tempfile::tempdir().unwrap();
        let folder = Folder::new(temporary.path());
        write_secret(&folder.join_token(), &AccessSecret("token-7f3a".into())).unwrap();
        let direct = open(&folder, "https://127.0.0.1:1").unwrap();
        assert!(direct.joined(Err("late".to_owned())).is_err() && folder.join_log().exists());
        direct.joined(Ok(())).unwrap();
        direct.joined(Err("late".to_owned())).unwrap();
        assert!(!folder.join_log().exists() && !folder.join_token().exists());
    }
}
