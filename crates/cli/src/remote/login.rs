//! What `gradus login` stores in the home: the server that commands talk to from then on. Only its owner can read it.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use node::durable;
use serde::{Deserialize, Serialize};

use crate::error::{Error, exit};

/// A server with its credentials.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    /// Its address.
    pub url: String,
    /// The token that it wants.
    pub token: String,
    /// Trusted certificates in PEM; those of the system if there are none.
    #[serde(default)]
    pub authorities: Option<String>,
}

fn path(home: &Path) -> PathBuf {
    home.join("login.json")
}

/// The stored login, if there is one.
///
/// # Errors
/// [`Error::File`] or [`Error::Usage`] when it cannot be read.
pub fn read(home: &Path) -> Result<Option<Login>, Error> {
    let path = path(home);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(None),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(not_ours(home)),
        Err(error) => return Err(Error::file("read", &path)(error)),
    };
    serde_json::from_slice(&text).map(Some).map_err(|error| Error::Usage {
        message: format!("`{}` cannot be read: {error}", path.display()),
        hint: "log in again with `gradus login URL`, or out with `gradus logout`".to_owned(),
    })
}

/// The error for a home folder that belongs to somebody else.
fn not_ours(home: &Path) -> Error {
    let message = format!("the home `{}` cannot be read: it belongs to another user", home.display());
    let hint = "use a folder of your own, with `--home FOLDER` or `GRADUS_HOME`".to_owned();
    Error::Code { message, hint: Some(hint), code: exit::WORLD }
}

/// Stores a login, replacing another.
///
/// # Errors
/// [`Error::File`] if it cannot be written.
pub fn write(home: &Path, login: &Login) -> Result<(), Error> {
    let path = path(home);
    let text = serde_json::to_vec(login).map_err(|error| Error::file("write", &path)(error.into()))?;
    durable::replace(&path, &text).map_err(Error::file("write", &path))
}

/// Forgets it; whether there was one.
///
/// # Errors
/// [`Error::File`] when it cannot be deleted.
pub fn forget(home: &Path) -> Result<bool, Error> {
    let path = path(home);
    match fs::remove_file(&path) {
        Ok(()) => Ok(true),
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(Error::file("delete", &path)(error)),
    }
}
