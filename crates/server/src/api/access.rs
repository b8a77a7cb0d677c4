//! Who may use the API over TCP: whoever has the token of the home, which lies in `api.token` for its owner alone.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;

use axum::extract::{Request, State};
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use sha2::{Digest, Sha256};

use super::failure::ApiError;
use crate::error::Error;
use crate::home::Home;

/// A bearer token; only its hash is kept in memory and compared.
#[derive(Clone, PartialEq, Eq)]
pub struct Token([u8; 32]);

impl std::fmt::Debug for Token {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("Token")
    }
}

impl Token {
    /// The token of this text.
    pub fn of(text: &str) -> Token {
        Token(Sha256::digest(text.as_bytes()).into())
    }
}

/// The token of a home, made on first use.
///
/// # Errors
/// [`Error::File`] when it cannot be read or written.
pub fn token(home: &Home) -> Result<Token, Error> {
    let path = home.root().join("api.token");
    if !path.exists() {
        let mut bytes = [0; 32];
        let random = getrandom::fill(&mut bytes).map_err(std::io::Error::other);
        random.map_err(Error::file("draw the token", &path))?;
        let text: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path);
        let written = file.and_then(|mut file| writeln!(file, "{text}"));
        written.map_err(Error::file("write", &path))?;
    }
    let text = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
    Ok(Token::of(text.trim()))
}

/// Lets a request pass that carries the token; a probe of health needs none.
pub(super) async fn require(State(token): State<Token>, request: Request, next: Next) -> Response {
    let carried = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let carried = carried.and_then(|value| value.strip_prefix("Bearer ")).map(|text| Token::of(text.trim()));
    if carried == Some(token) || request.uri().path() == "/v1/health" {
        return next.run(request).await;
    }
    ApiError::unauthorized().into_response()
}
