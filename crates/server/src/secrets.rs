//! Values of a job's environment at rest: encrypted with a key of the home, decrypted only for their program.
//!
//! Each value is XChaCha20-Poly1305 ciphertext under a random nonce, bound to the name of its variable. The key is in
//! `secret.key` of the home with mode 0600. [`hide`] removes values from output.

use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use domain::{Job, Secret};
use node::durable;
use serde_json::Value;

use crate::error::Error;

/// Prefix of a sealed value; followed by hexadecimal digits of nonce and ciphertext.
const PREFIX: &str = "sealed:1:";

/// Bytes of a nonce.
const NONCE: usize = 24;

/// Replacement of a hidden value.
pub const HIDDEN: &str = "(hidden)";

/// The key of a home.
pub struct SecretKey {
    cipher: XChaCha20Poly1305,
    path: PathBuf,
}

impl std::fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SecretKey").field("path", &self.path).finish_non_exhaustive()
    }
}

impl SecretKey {
    /// Reads the key of a home, created on first use.
    ///
    /// # Errors
    /// [`Error::File`] when it cannot be read or created, or is not 32 bytes.
    pub fn open(home: &Path) -> Result<SecretKey, Error> {
        let path = home.join("secret.key");
        if !path.exists() {
            create(&path).map_err(Error::file("write the key", &path))?;
        }
        let bytes = fs::read(&path).map_err(Error::file("read the key", &path))?;
        let key: [u8; 32] = bytes.try_into().map_err(|_| {
            let source = std::io::Error::new(std::io::ErrorKind::InvalidData, "it is not 32 bytes long");
            Error::file("read the key", &path)(source)
        })?;
        Ok(SecretKey { cipher: XChaCha20Poly1305::new(&key.into()), path })
    }

    /// Seals the value of a variable. One that this key has sealed already stays as it is.
    ///
    /// # Errors
    /// [`Error::File`] when the system gives no random numbers.
    pub fn seal(&self, name: &str, value: &str) -> Result<String, Error> {
        if self.unseal(name, value).is_some() {
            return Ok(value.to_owned());
        }
        let mut nonce = [0; NONCE];
        let random = getrandom::fill(&mut nonce).map_err(std::io::Error::other);
        random.map_err(Error::file("draw a nonce for", &self.path))?;
        let payload = Payload { msg: value.as_bytes(), aad: name.as_bytes() };
        let sealed = self.cipher.encrypt(&XNonce::from(nonce), payload);
        let sealed =
            sealed.map_err(|_| Error::file("seal with", &self.path)(std::io::ErrorKind::InvalidInput.into()))?;
        Ok(format!("{PREFIX}{}{}", hex(&nonce), hex(&sealed)))
    }

    /// Decrypts the value of a variable that this key has sealed; `None` for any other text.
    pub fn unseal(&self, name: &str, text: &str) -> Option<String> {
        let bytes = from_hex(text.strip_prefix(PREFIX)?)?;
        let (nonce, sealed) = bytes.split_first_chunk::<NONCE>()?;
        let payload = Payload { msg: sealed, aad: name.as_bytes() };
        String::from_utf8(self.cipher.decrypt(&XNonce::from(*nonce), payload).ok()?).ok()
    }

    /// Seals all values of a job's `envs` and `secrets`.
    ///
    /// # Errors
    /// As [`SecretKey::seal`].
    pub fn seal_job(&self, job: &mut Job) -> Result<(), Error> {
        for (name, value) in &mut job.envs {
            *value = self.seal(name, value)?;
        }
        for (name, secret) in &mut job.secrets {
            if let Some(value) = &mut secret.0 {
                *value = self.seal(name, value)?;
            }
        }
        Ok(())
    }

    /// Decrypts all values of a job. One that was sealed with another key is removed, rather than passed to a program
    /// as ciphertext.
    pub fn unseal_job(&self, job: &mut Job) {
        let open = |name: &str, text: &str| match text.starts_with(PREFIX) {
            true => self.unseal(name, text),
            false => Some(text.to_owned()),
        };
        job.envs = job.envs.iter().filter_map(|(name, text)| Some((name.clone(), open(name, text)?))).collect();
        for (name, secret) in &mut job.secrets {
            *secret = Secret(secret.0.as_ref().and_then(|text| open(name, text)));
        }
    }

    /// Opens the values of every `envs` mapping in a JSON value, for `--show-values`.
    pub fn unseal_envs(&self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                for (key, field) in fields {
                    match field {
                        Value::Object(values) if key == "envs" => {
                            for (name, value) in values {
                                if let Some(open) = value.as_str().and_then(|text| self.unseal(name, text)) {
                                    *value = open.into();
                                }
                            }
                        }
                        other => self.unseal_envs(other),
                    }
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.unseal_envs(item)),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    /// Seals the values of the jobs in an event as it was written by an earlier version; whether there were any.
    ///
    /// # Errors
    /// As [`SecretKey::seal`].
    pub(crate) fn seal_event(&self, event: &mut Value) -> Result<bool, Error> {
        let mut has_changed = false;
        let Some(Value::Object(envs)) = event.get_mut("job").and_then(|job| job.get_mut("envs")) else {
            return Ok(false);
        };
        for (name, value) in envs {
            if let Value::String(text) = value
                && self.unseal(name, text).is_none()
            {
                *text = self.seal(name, text)?;
                has_changed = true;
            }
        }
        Ok(has_changed)
    }
}

/// Whether some value of a job was sealed by another key.
pub(crate) fn is_foreign(key: &SecretKey, job: &Job) -> bool {
    let secrets = job.secrets.iter().filter_map(|(name, secret)| Some((name, secret.0.as_ref()?)));
    let mut values = job.envs.iter().chain(secrets);
    values.any(|(name, text)| text.starts_with(PREFIX) && key.unseal(name, text).is_none())
}

/// Replaces the values of every `secrets` mapping in a JSON value by [`HIDDEN`], and unless `shows_envs` those of every
/// `envs`.
pub fn hide(value: &mut Value, shows_envs: bool) {
    match value {
        Value::Object(fields) => {
            for (key, field) in fields {
                match field {
                    Value::Object(values) if key == "secrets" || key == "envs" && !shows_envs => {
                        values.values_mut().filter(|value| value.is_string()).for_each(|value| *value = HIDDEN.into());
                    }
                    other => hide(other, shows_envs),
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| hide(item, shows_envs)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Writes a new key. Two processes that do so at the same time agree on one; it is on the disk before anything is sealed with it.
fn create(path: &Path) -> std::io::Result<()> {
    let mut key = [0; 32];
    getrandom::fill(&mut key).map_err(std::io::Error::other)?;
    durable::create(path, &key).map(drop)
}

/// Makes a file that only its owner can use, or takes the rights of all others on one that exists.
pub(crate) fn private(path: &Path) -> std::io::Result<()> {
    let file = OpenOptions::new().create(true).truncate(false).append(true).mode(0o600).open(path)?;
    File::set_permissions(&file, fs::Permissions::from_mode(0o600))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> = text.chars().map(|digit| Some(digit.to_digit(16)? as u8)).collect();
    let digits = digits.filter(|digits| digits.len().is_multiple_of(2))?;
    Some(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sealed_value_opens_only_under_its_name_and_key() {
        let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let key = SecretKey::open(one.path()).unwrap();
        let sealed = key.seal("TOKEN", "hunter2 \u{1f511}").unwrap();
        assert!(!sealed.contains("hunter2"));
        assert_ne!(key.seal("TOKEN", "hunter2 \u{1f511}").unwrap(), sealed, "each has a nonce of its own");
        assert_eq!(key.seal("TOKEN", &sealed).unwrap(), sealed, "nothing is sealed twice");
        let again = SecretKey::open(one.path()).unwrap();
        assert_eq!(again.unseal("TOKEN", &sealed).as_deref(), Some("hunter2 \u{1f511}"));
        assert_eq!(again.unseal("OTHER", &sealed), None);
        assert_eq!(SecretKey::open(two.path()).unwrap().unseal("TOKEN", &sealed), None);
        let flipped = sealed[..sealed.len() - 1].to_owned() + if sealed.ends_with('0') { "1" } else { "0" };
        assert_eq!(again.unseal("TOKEN", &flipped), None);
        let mode = fs::metadata(one.path().join("secret.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn hidden_values_leave_their_names() {
        let mut value = serde_json::json!({"body": {"job": {"envs": {"A": "x"}, "secrets": {"B": "y", "C": null}}}});
        hide(&mut value, false);
        let expected =
            serde_json::json!({"body": {"job": {"envs": {"A": HIDDEN}, "secrets": {"B": HIDDEN, "C": null}}}});
        assert_eq!(value, expected);
    }
}
