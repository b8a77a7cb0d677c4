//! Converts failures of requests to errors: the operation, its target, the reason, and what to type.

use object_store::Error as StoreError;

use super::Remote;
use super::failure::{
    NO_LIST, NO_RANGES, RECEIVED_OTHER, chain, is_in_the_way, is_no_path, is_of_disk, is_too_long, names_bucket,
    names_metadata, status, without_secrets,
};
use crate::Error;
use crate::location::Location;

impl Remote {
    /// Converts a service's error.
    pub(crate) fn told(&self, doing: &'static str, name: &str, error: &StoreError) -> Error {
        let location = self.address(name);
        let why = without_secrets(&chain(error));
        let bucket = match self.location() {
            Location::Object { bucket, .. } => bucket.clone(),
            Location::Local(_) | Location::Web { .. } => String::new(),
        };
        if names_metadata(&why) {
            let hint = super::dialect::credentials_hint(self.location()).to_owned();
            return Error::NoCredentials { location, hint };
        }
        if names_bucket(&why) {
            return Error::NoBucket { bucket, location };
        }
        match error {
            StoreError::NotFound { .. } => {
                Error::Missing { location, hint: "check the path; `gradus data push` puts data there".into() }
            }
            StoreError::PermissionDenied { .. } | StoreError::Unauthenticated { .. } => {
                Error::Refused { location, why }
            }
            StoreError::Precondition { .. } | StoreError::AlreadyExists { .. } => Error::Raced { location },
            StoreError::NotSupported { .. } if why.contains(NO_RANGES) => Error::NoRanges { location },
            // A web server that lists a folder as a page sends no length.
            _ if why.contains("Missing content size") => Error::Missing { location, hint: NO_LIST.into() },
            _ => {
                let named_by = self.endpoint.as_ref().and_then(|endpoint| endpoint.named_by);
                let hint = unanswered_hint(&why, named_by);
                let host = self.endpoint.as_ref().map(|endpoint| format!(" at `{endpoint}`")).unwrap_or_default();
                Error::Network { doing, location, host, why, hint }
            }
        }
    }
}

/// The hint for a service that was not reached, or whose answer has no other meaning.
fn unanswered_hint(why: &str, named_by: Option<&'static str>) -> String {
    match (status(why), named_by) {
        (_, _) if why.contains(RECEIVED_OTHER) => {
            "something on the way changes what is sent: try without a proxy, or by `https://`; then run the same command"
                .to_owned()
        }
        (Some(405 | 501), Some(variable)) => {
            format!("what answers there is no object store: correct `{variable}`")
        }
        (Some(300..=399), _) => "check the region of the bucket, and the variable that names it".to_owned(),
        (Some(400..=499), _) => "check the address, the region and the keys".to_owned(),
        (_, _) if is_of_disk(why) => {
            "make room or ask who may write there (`df -h` and `ls -ld` tell), or name a folder elsewhere; \
             then run the same command: it goes on where it was"
                .to_owned()
        }
        (_, _) if is_too_long(why) => {
            "name a folder elsewhere whose path is shorter, or give the file a shorter name".to_owned()
        }
        (_, _) if is_no_path(why) => {
            "rename or delete that object: no file can have a key with an empty part (`//`), `.` or `..`".to_owned()
        }
        (_, _) if is_in_the_way(why) => {
            "move away what stands there, or name a folder elsewhere; then run the same command: it goes on \
             where it was"
                .to_owned()
        }
        (_, _) if why.contains("InvalidContentType") => {
            "what answers there speaks no TLS: write `http://` where its address is named".to_owned()
        }
        (_, _) => "check the network and the endpoint, then run the same command: it goes on where it was".to_owned(),
    }
}
