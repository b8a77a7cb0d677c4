//! Tokens of a home with a name each, some of which expire: `tokens.json` holds their hashes, for its owner alone.
//!
//! The file is read for each request, so that a token that was removed is refused from then on.

use std::fs::{self, File, OpenOptions};
use std::io::ErrorKind;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use domain::{Duration, Timestamp};
use node::durable;
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::error::Error;
use crate::home::Home;

/// Prefix of a token, so that leaked ones are recognized.
const PREFIX: &str = "gradus_";

/// Letters of a name, at most.
const NAME_MAX: usize = 64;

/// A named token; only its hash is stored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedToken {
    /// Its name, by which it is listed and removed.
    pub name: String,
    /// SHA-256 of it, in hexadecimal digits.
    pub sha256: String,
    /// When it was made.
    pub created: Timestamp,
    /// When it expires; `None` for never.
    #[serde(default)]
    pub expires: Option<Timestamp>,
}

/// Why no token was made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenRefusal {
    /// It cannot be called so.
    Name,
    /// One is called so.
    Taken,
}

fn path(home: &Home) -> PathBuf {
    home.root().join("tokens.json")
}

/// The tokens of a home, the oldest first.
///
/// # Errors
/// [`Error::File`] when they cannot be read.
pub fn tokens(home: &Home) -> Result<Vec<NamedToken>, Error> {
    let path = path(home);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(Error::file("read", &path)(error)),
    };
    serde_json::from_slice(&text).map_err(|error| Error::file("read", &path)(error.into()))
}

/// Creates a token, which is shown only once.
///
/// # Errors
/// [`Error::File`] if it cannot be stored; [`TokenRefusal`] within.
pub fn create_token(
    home: &Home,
    name: &str,
    now: Timestamp,
    lasts: Option<Duration>,
) -> Result<Result<String, TokenRefusal>, Error> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.@".contains(&byte);
    if name.is_empty() || name.len() > NAME_MAX || !name.bytes().all(is_plain) {
        return Ok(Err(TokenRefusal::Name));
    }
    let _lock = lock(home)?;
    let mut all = tokens(home)?;
    if all.iter().any(|token| token.name == name) {
        return Ok(Err(TokenRefusal::Taken));
    }
    let text = format!("{PREFIX}{}", random(&path(home))?);
    let expires = lasts.map(|lasts| Timestamp(now.0.saturating_add_unsigned(lasts.micros())));
    all.push(NamedToken { name: name.to_owned(), sha256: sha256(&text), created: now, expires });
    write(home, &all)?;
    Ok(Ok(text))
}

/// Removes a token; returns whether there was one of this name.
///
/// # Errors
/// [`Error::File`] if the change cannot be stored.
pub fn remove_token(home: &Home, name: &str) -> Result<bool, Error> {
    let _lock = lock(home)?;
    let mut all = tokens(home)?;
    let before = all.len();
    all.retain(|token| token.name != name);
    if all.len() < before {
        write(home, &all)?;
    }
    Ok(all.len() < before)
}

/// 256 random bits in hexadecimal digits.
pub(super) fn random(path: &Path) -> Result<String, Error> {
    let mut bytes = [0; 32];
    let drawn = getrandom::fill(&mut bytes).map_err(std::io::Error::other);
    drawn.map_err(Error::file("draw the token", path))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The hash of a token.
pub(super) fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One change at a time.
fn lock(home: &Home) -> Result<File, Error> {
    let path = home.root().join("tokens.lock");
    let file = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let file = file.map_err(Error::file("open", &path))?;
    flock(&file, FlockOperation::LockExclusive).map_err(|errno| Error::file("lock", &path)(errno.into()))?;
    Ok(file)
}

fn write(home: &Home, all: &[NamedToken]) -> Result<(), Error> {
    let path = path(home);
    let text = serde_json::to_vec_pretty(all).map_err(|error| Error::file("write", &path)(error.into()))?;
    durable::replace(&path, &text).map_err(Error::file("write", &path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_kept_as_its_hash_until_it_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        let now = Timestamp(1_000_000);
        let create = |name: &str, lasts| create_token(&home, name, now, lasts).unwrap();
        let text = create("ann@laptop", Some(Duration::from_secs(60))).unwrap();
        assert_eq!((text.len(), text.starts_with(PREFIX)), (71, true));
        assert!(!fs::read_to_string(path(&home)).unwrap().contains(&text[7..]), "the token itself is nowhere");
        assert_eq!(create("ann@laptop", None), Err(TokenRefusal::Taken));
        for name in ["", "a b", &"x".repeat(65)] {
            assert_eq!(create(name, None), Err(TokenRefusal::Name));
        }
        create("ben", None).unwrap();
        let all = tokens(&home).unwrap();
        assert_eq!(all[0].expires, Some(Timestamp(61_000_000)));
        assert_eq!((all[0].sha256.as_str(), &all[1].expires), (sha256(&text).as_str(), &None));
        assert!(remove_token(&home, "ann@laptop").unwrap());
        assert!(!remove_token(&home, "ann@laptop").unwrap());
        assert_eq!(tokens(&home).unwrap().len(), 1);
    }
}
