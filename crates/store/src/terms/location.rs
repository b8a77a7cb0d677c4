//! Where data can be: a path on this machine, or a URI.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::Error;

/// A location of data: a local file or folder, or a remote object or prefix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Location {
    /// On this machine, or on a file system that it has mounted.
    Local(PathBuf),
    /// On a web server: read-only, and without listing.
    Web {
        /// Scheme, host and port.
        origin: String,
        /// The path below it, without the first `/`.
        path: String,
    },
    /// In an object store.
    Object {
        /// The protocol.
        service: StorageService,
        /// The bucket or container.
        bucket: String,
        /// The prefix or key, without `/` at its ends; may be empty.
        path: String,
    },
}

/// Object stores, by the scheme of their URIs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StorageService {
    /// `s3://`: Amazon S3, or a compatible service at `AWS_ENDPOINT_URL`.
    S3,
    /// `gs://`: Google Cloud Storage.
    Gs,
    /// `az://`: Azure Blob Storage.
    Az,
    /// `oss://`: Alibaba Cloud, by its S3-compatible endpoint.
    Oss,
    /// `cos://`: Tencent Cloud, by its S3-compatible endpoint.
    Cos,
}

/// The accepted forms, for messages.
const ACCEPTED: &str = "a path, `file://`, `s3://BUCKET/PREFIX`, `gs://`, `az://CONTAINER/PREFIX`, `oss://`, `cos://`, \
                        `http://` or `https://`";

impl StorageService {
    /// The scheme of its URIs.
    pub fn scheme(self) -> &'static str {
        match self {
            StorageService::S3 => "s3",
            StorageService::Gs => "gs",
            StorageService::Az => "az",
            StorageService::Oss => "oss",
            StorageService::Cos => "cos",
        }
    }

    fn named(scheme: &str) -> Option<StorageService> {
        [StorageService::S3, StorageService::Gs, StorageService::Az, StorageService::Oss, StorageService::Cos]
            .into_iter()
            .find(|service| service.scheme() == scheme)
    }
}

impl Location {
    /// Whether bytes travel over a network to get there.
    pub fn is_remote(&self) -> bool {
        match self {
            Location::Local(_) => false,
            Location::Web { .. } | Location::Object { .. } => true,
        }
    }

    /// The path, when it is on this machine.
    pub fn local(&self) -> Option<&Path> {
        match self {
            Location::Local(path) => Some(path),
            Location::Web { .. } | Location::Object { .. } => None,
        }
    }

    /// The last component of its path; empty for a bucket.
    pub fn name(&self) -> &str {
        match self {
            Location::Local(path) => path.file_name().and_then(|name| name.to_str()).unwrap_or_default(),
            Location::Web { path, .. } | Location::Object { path, .. } => path.rsplit('/').next().unwrap_or_default(),
        }
    }
}

/// What an address may begin with.
const SCHEMES: [&str; 8] = ["s3", "gs", "az", "oss", "cos", "http", "https", "file"];

impl FromStr for Location {
    type Err = Error;

    fn from_str(text: &str) -> Result<Location, Error> {
        let wrong =
            |why: &str| Error::Location { text: redacted(text), why: why.to_owned(), hint: format!("give {ACCEPTED}") };
        if text.is_empty() {
            return Err(wrong("it is empty"));
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            let slip =
                text.split_once(":/").filter(|(scheme, _)| SCHEMES.contains(&scheme.to_ascii_lowercase().as_str()));
            return match slip {
                Some((scheme, _)) => Err(Error::Location {
                    text: format!("{scheme}:/…"),
                    why: "an address has two `/` behind its first word".to_owned(),
                    hint: format!("write `{scheme}://…`, or `./{scheme}:/…` for a folder of that name"),
                }),
                None => Ok(Location::Local(text.into())),
            };
        };
        let scheme = scheme.to_ascii_lowercase();
        let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
        match scheme.as_str() {
            "file" if host.is_empty() || host == "localhost" => {
                return Ok(Location::Local(Path::new("/").join(path)));
            }
            "file" => return Err(wrong("a `file://` address names no host; write `file:///PATH`")),
            "http" | "https" if host.contains('@') => {
                return Err(wrong("an address must not hold a password: it would be written down"));
            }
            "http" | "https" if host.is_empty() => return Err(wrong("it names no host")),
            "http" | "https" if path.contains(['?', '#']) => {
                return Err(wrong("addresses with `?` or `#` are not read: they often hold secrets"));
            }
            "http" | "https" => {
                let path = path.trim_matches('/').to_owned();
                return Ok(Location::Web { origin: format!("{scheme}://{host}"), path });
            }
            _ => {}
        }
        let service = StorageService::named(&scheme).ok_or_else(|| wrong(&format!("`{scheme}://` is not known")))?;
        if host.is_empty() {
            return Err(wrong("it names no bucket"));
        }
        let is_bucket = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
        if !host.chars().all(is_bucket) {
            return Err(wrong(&format!("`{host}` is no name of a bucket")));
        }
        let path = path.trim_matches('/');
        if path.split('/').any(|part| matches!(part, "." | "..")) || path.contains("//") {
            return Err(wrong("its path holds `.`, `..` or an empty part"));
        }
        Ok(Location::Object { service, bucket: host.to_owned(), path: path.to_owned() })
    }
}

/// An address without what precedes `@`, where people put passwords, or follows `?`, where signatures are.
fn redacted(text: &str) -> String {
    let text = if text.contains("://") { text.split(['?', '#']).next().unwrap_or_default() } else { text };
    match (text.split_once("://"), text.rsplit_once('@')) {
        (Some((scheme, _)), Some((_, rest))) => format!("{scheme}://…@{rest}"),
        (Some(_), None) | (None, _) => text.to_owned(),
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Location::Local(path) => write!(f, "{}", path.display()),
            Location::Web { origin, path } => write!(f, "{origin}/{path}"),
            Location::Object { service, bucket, path } if path.is_empty() => {
                write!(f, "{}://{bucket}", service.scheme())
            }
            Location::Object { service, bucket, path } => write!(f, "{}://{bucket}/{path}", service.scheme()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, &str>) {
        match (text.parse::<Location>(), expected) {
            (Ok(location), Ok(printed)) => assert_eq!(location.to_string(), printed, "{text}"),
            (Err(error), Err(part)) => {
                let told = format!("{error}; {}", error.hint().unwrap_or_default());
                let leaks = told.contains("user:") || told.contains("Signature=");
                assert!(told.contains(part) && !leaks, "{text}: {told}");
            }
            (found, expected) => panic!("{text}: expected {expected:?}, found {found:?}"),
        }
    }

    #[test]
    fn locations_read_and_print() {
        check("data/pictures", Ok("data/pictures"));
        check("/data/a b.tar", Ok("/data/a b.tar"));
        check("file:///data/x", Ok("/data/x"));
        check("file://localhost/data/x", Ok("/data/x"));
        check("s3://bucket", Ok("s3://bucket"));
        check("s3://bucket/a/b/", Ok("s3://bucket/a/b"));
        check("S3://bucket/a", Ok("s3://bucket/a"));
        check("gs://bucket/a.tar", Ok("gs://bucket/a.tar"));
        check("az://container/a", Ok("az://container/a"));
        check("oss://bucket/a", Ok("oss://bucket/a"));
        check("cos://bucket-125/a", Ok("cos://bucket-125/a"));
        check("https://host:8080/a/b.tar", Ok("https://host:8080/a/b.tar"));
    }

    #[test]
    fn wrong_locations_are_told_with_what_is_accepted() {
        check("", Err("it is empty"));
        check("ftp://host/a", Err("`ftp://` is not known; give a path, `file://`, `s3://BUCKET/PREFIX`"));
        check("s3:///a", Err("names no bucket"));
        check("s3:/bucket/a", Err("write `s3://…`, or `./s3:/…` for a folder of that name"));
        check("https:/user:secret@host/a", Err("two `/`"));
        check("./s3:/bucket/a", Ok("./s3:/bucket/a"));
        check("s3://buc ket/a", Err("`buc ket` is no name of a bucket"));
        check("s3://bucket/a/../b", Err("holds `.`, `..`"));
        check("file://host/a", Err("file:///PATH"));
        check("https://user:secret@host/a", Err("must not hold a password"));
        check("https://host/a?X-Amz-Signature=1", Err("often hold secrets"));
        check("http://", Err("names no host"));
    }

    #[test]
    fn names_are_last_parts() {
        let name = |text: &str| text.parse::<Location>().unwrap().name().to_owned();
        assert_eq!([name("s3://b/a/x.tar"), name("s3://b"), name("/data/y")], ["x.tar", "", "y"]);
    }
}
