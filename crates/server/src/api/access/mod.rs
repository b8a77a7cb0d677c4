//! Access to the API over TCP: clients need a token of the home, either the owner's in `api.token`, which only the
//! owner can read, or a named one.

pub(super) mod agents;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
mod tls_left_out;
pub mod tokens;
mod visitor;
#[cfg(feature = "tls")]
mod watched;

#[cfg(feature = "tls")]
pub use tls::{TlsIdentity, TlsListener};
#[cfg(not(feature = "tls"))]
pub use tls_left_out::{NoTlsIdentity as TlsIdentity, NoTlsListener as TlsListener};
pub use visitor::Visitor;

use std::fs;
use std::io::ErrorKind;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderMap;
use axum::http::header::AUTHORIZATION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use domain::Timestamp;
use node::durable;

use super::failure::ApiError;
use super::reading::blocking;
use crate::clock;
use crate::error::Error;
use crate::home::Home;
use tokens::{NamedToken, random, sha256, tokens};

/// Creates the token of a home's owner if there is none: `api.token`.
///
/// # Errors
/// [`Error::File`] if it cannot be read or written.
pub fn make_token(home: &Home) -> Result<(), Error> {
    let path = home.root().join("api.token");
    match fs::read_to_string(&path) {
        Ok(text) if !text.trim().is_empty() => return Ok(()),
        // A server that was killed before it had written the token has left an empty file, with which nobody enters.
        Ok(_) => {}
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => return Err(Error::file("read", &path)(error)),
    }
    let text = random(&path)?;
    durable::replace(&path, format!("{text}\n").as_bytes()).map_err(Error::file("write", &path))
}

/// Who asks, where a request came with a token that has a name.
#[derive(Debug, Clone)]
pub(super) struct NamedClient(pub(super) String);

/// Lets a request pass that carries a token; a probe of health needs none.
pub(super) async fn require(State(home): State<Arc<Home>>, mut request: Request, next: Next) -> Response {
    let carried = bearer(request.headers()).map(str::to_owned);
    if request.uri().path() == "/v1/health" {
        return next.run(request).await;
    }
    let Some(carried) = carried else { return refusal("this address needs a token").into_response() };
    let allowed = blocking(move || {
        let owner = fs::read_to_string(home.root().join("api.token")).ok();
        let known = tokens(&home).map_err(ApiError::inside)?;
        allowed(&carried, owner.as_deref(), &known, clock::now()).map_err(|why| refusal(&why))
    });
    match allowed.await {
        Ok(name) => {
            visitor::trust(&request);
            if let Some(name) = name {
                request.extensions_mut().insert(NamedClient(name));
            }
            next.run(request).await
        }
        Err(failure) => failure.into_response(),
    }
}

/// The token of `Authorization: Bearer TOKEN`; the name of a scheme has no case (RFC 9110).
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whether a token may enter, or why not; its name, where it has one.
fn allowed(carried: &str, owner: Option<&str>, known: &[NamedToken], now: Timestamp) -> Result<Option<String>, String> {
    let hash = sha256(carried);
    if owner.map(str::trim).is_some_and(|owner| !owner.is_empty() && sha256(owner) == hash) {
        return Ok(None);
    }
    match known.iter().find(|token| token.sha256 == hash) {
        None => Err("the token is not known here, or was removed".to_owned()),
        Some(NamedToken { name, expires: Some(expires), .. }) if *expires <= now => {
            let expired = jiff::Timestamp::from_microsecond(expires.0).unwrap_or_default();
            Err(format!("the token `{name}` has expired at {expired:.0}"))
        }
        Some(token) => Ok(Some(token.name.clone())),
    }
}

fn refusal(why: &str) -> ApiError {
    let hint = "send `Authorization: Bearer TOKEN`; `gradus token create NAME` on the server's machine makes a token";
    ApiError::new(401, why).hint(hint)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn the_owner_has_a_token_also_where_a_server_was_killed_while_it_made_one() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        let path = home.root().join("api.token");
        fs::write(&path, "").unwrap();
        make_token(&home).unwrap();
        let token = fs::read_to_string(&path).unwrap();
        assert_eq!(token.trim().len(), 64);
        make_token(&home).unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), token, "it stays");
    }

    #[test]
    fn the_scheme_of_a_token_has_no_case() {
        let check = |value: &str, expected: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
            assert_eq!(bearer(&headers), expected, "{value}");
        };
        for value in ["Bearer a", "bearer a", "BEARER  a"] {
            check(value, Some("a"));
        }
        for value in ["a", "Bearer", "Bearera", "Basic a"] {
            check(value, None);
        }
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn a_token_enters_until_it_expires() {
        let token = |name: &str, text: &str, expires| {
            let (name, sha256) = (name.to_owned(), sha256(text));
            NamedToken { name, sha256, created: Timestamp(0), expires }
        };
        let known = [token("ann", "a", Some(Timestamp(10_000_000))), token("ben", "b", None)];
        let check = |carried: &str, owner: Option<&str>, now: i64, expected: Result<Option<&str>, &str>| {
            let found = allowed(carried, owner, &known, Timestamp(now));
            let expected = expected.map(|name| name.map(str::to_owned)).map_err(str::to_owned);
            assert_eq!(found, expected, "{carried}");
        };
        let unknown = Err("the token is not known here, or was removed");
        check("a", None, 9_999_999, Ok(Some("ann")));
        check("a", None, 10_000_000, Err("the token `ann` has expired at 1970-01-01T00:00:10Z"));
        check("b", None, i64::MAX, Ok(Some("ben")));
        check("c", Some("c\n"), 0, Ok(None));
        check("c", None, 0, unknown);
        check("", Some("\n"), 0, unknown);
        check(&sha256("a"), None, 0, unknown);
    }
}
