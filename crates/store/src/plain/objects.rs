//! Single objects, for callers that are not async and have a layout of their own. Each call ends within a time.

use std::future::Future;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use object_store::multipart::{MultipartStore, PartId};
use object_store::{PutMode, PutPayload};
use tokio::time::timeout;

use crate::failure::status;
use crate::remote::Remote;
use crate::{Error, PartedUpload};

impl Remote {
    /// Stores an object only if none has its name (`If-None-Match: *`); `false` if another one has.
    ///
    /// # Errors
    /// [`Error::NoConditions`] if the store refuses such a request, and those of the network.
    pub fn create_object(&self, name: &str, bytes: Vec<u8>, within: Duration) -> Result<bool, Error> {
        let length = bytes.len() as u64;
        match self.bounded("write", name, within, self.put(name, bytes.clone(), PutMode::Create)) {
            Ok(_) => Ok(true),
            // The answer to our own first try may have been lost.
            Err(Error::Raced { .. }) => match self.bounded("read", name, within, self.get(name, length)) {
                Ok(now) => Ok(now.is_some_and(|(now, _)| now == bytes)),
                // It is longer than ours.
                Err(Error::Damaged { .. }) => Ok(false),
                Err(error) => Err(error),
            },
            Err(Error::Network { why, .. }) if lacks_conditions(&why) => Err(self.no_conditions(name)),
            Err(error) => Err(error),
        }
    }

    /// Requires that the store heeds the condition of [`Remote::create_object`]: an object that is there with these bytes is
    /// not stored a second time.
    ///
    /// # Errors
    /// [`Error::NoConditions`] if it is, and those of the network.
    pub fn require_conditions(&self, name: &str, bytes: Vec<u8>, within: Duration) -> Result<(), Error> {
        match self.bounded("write", name, within, self.put(name, bytes, PutMode::Create)) {
            Ok(_) => Err(self.no_conditions(name)),
            Err(Error::Raced { .. }) => Ok(()),
            Err(Error::Network { why, .. }) if lacks_conditions(&why) => Err(self.no_conditions(name)),
            Err(error) => Err(error),
        }
    }

    /// Stores an object in one request, in place of one that has its name.
    ///
    /// # Errors
    /// [`Error`].
    pub fn put_object(&self, name: &str, bytes: Vec<u8>, within: Duration) -> Result<(), Error> {
        self.bounded("write", name, within, self.put(name, bytes, PutMode::Overwrite)).map(drop)
    }

    /// Reads an object of at most `most` bytes; `None` if there is none.
    ///
    /// # Errors
    /// [`Error::Damaged`] if it is longer, and those of the network.
    pub fn read_object(&self, name: &str, most: u64, within: Duration) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.bounded("read", name, within, self.get(name, most))?.map(|(bytes, _)| bytes))
    }

    /// Reads exactly these bytes of an object; none are no request.
    ///
    /// # Errors
    /// [`Error::Missing`] if there is none, [`Error::Damaged`] if it is shorter, and those of the network.
    pub fn read_range(&self, name: &str, range: Range<u64>, within: Duration) -> Result<Vec<u8>, Error> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        self.bounded("read", name, within, self.range(name, range, None))
    }

    /// The names of all objects below the location, sorted.
    ///
    /// # Errors
    /// [`Error`].
    pub fn object_names(&self, within: Duration) -> Result<Vec<String>, Error> {
        let objects = self.bounded("list", "", within, self.list())?;
        Ok(objects.into_iter().map(|object| object.name).collect())
    }

    /// Removes an object; a missing one is not an error.
    ///
    /// # Errors
    /// [`Error`].
    pub fn remove_object(&self, name: &str, within: Duration) -> Result<(), Error> {
        self.bounded("remove", name, within, self.remove(name))
    }

    /// Whether objects can be sent in parts.
    pub fn takes_parts(&self) -> bool {
        self.multipart.is_some()
    }

    /// Begins to send an object in parts, each of 5 MiB or more but for the last.
    ///
    /// # Errors
    /// [`Error::Internal`] where [`Remote::takes_parts`] is false, and those of the network.
    pub fn begin_parts(&self, name: &str, within: Duration) -> Result<PartedUpload, Error> {
        let multipart = self.in_parts()?;
        let id = self.bounded("write", name, within, self.begin(multipart.as_ref(), name))?;
        Ok(PartedUpload { name: name.to_owned(), id, parts: Vec::new() })
    }

    /// Sends the next part.
    ///
    /// # Errors
    /// [`Error::Missing`] if the store has forgotten the upload, and those of the network; the part may be sent again.
    pub fn send_part(&self, upload: &mut PartedUpload, bytes: Vec<u8>, within: Duration) -> Result<(), Error> {
        let multipart = self.in_parts()?;
        let part =
            self.part(multipart.as_ref(), (&upload.name, &upload.id), upload.parts.len(), PutPayload::from(bytes));
        let sent = self.bounded("write", &upload.name, within, part)?;
        upload.parts.push(sent.content_id);
        Ok(())
    }

    /// Makes the object of its parts.
    ///
    /// # Errors
    /// As [`Remote::send_part`].
    pub fn finish_parts(&self, upload: &PartedUpload, within: Duration) -> Result<(), Error> {
        let multipart = self.in_parts()?;
        let parts = upload.parts.iter().map(|content_id| PartId { content_id: content_id.clone() }).collect();
        let finish = self.finish(multipart.as_ref(), (&upload.name, &upload.id), parts);
        self.bounded("write", &upload.name, within, finish).map(drop)
    }

    /// Abandons an upload, so that its parts are not billed, if the store answers within the time.
    pub fn abandon_parts(&self, upload: &PartedUpload, within: Duration) {
        let Some(multipart) = self.multipart.clone() else { return };
        let abandoned = self.abandon(multipart.as_ref(), &upload.name, &upload.id);
        let _ = self.wait(async { timeout(within, abandoned).await });
    }

    fn in_parts(&self) -> Result<Arc<dyn MultipartStore>, Error> {
        self.multipart.clone().ok_or_else(|| Error::Internal(format!("`{}` takes no parts", self.location())))
    }

    fn no_conditions(&self, name: &str) -> Error {
        Error::NoConditions { location: self.address(name) }
    }

    fn bounded<T>(
        &self,
        doing: &'static str,
        name: &str,
        within: Duration,
        request: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        self.wait(async {
            timeout(within, request).await.unwrap_or_else(|_| {
                let host = self.host().map(|host| format!(" at `{host}`")).unwrap_or_default();
                let why = format!("it was not done within {} s", within.as_secs());
                let hint = "check the network and the endpoint".to_owned();
                Err(Error::Network { doing, location: self.address(name), host, why, hint })
            })
        })
    }
}

/// Whether an error says that the store has no conditional writes.
fn lacks_conditions(why: &str) -> bool {
    let is_named = ["NotImplemented", "not implemented", "not supported", "not yet implemented"];
    status(why) == Some(501) || is_named.iter().any(|words| why.contains(words))
}

#[cfg(test)]
mod tests {
    use object_store::memory::InMemory;
    use object_store::path::Path;

    use super::*;
    use crate::tests::limits;

    const WITHIN: Duration = Duration::from_secs(20);

    fn remote() -> Remote {
        let store = Arc::new(InMemory::new());
        let location = "s3://bucket/below".parse().unwrap();
        Remote::new(location, store.clone(), Some(store), Path::from("below"), limits()).unwrap()
    }

    #[test]
    fn an_object_is_created_once() {
        let remote = remote();
        let create = |bytes: &[u8]| remote.create_object("a", bytes.to_vec(), WITHIN).unwrap();
        // Repeated with the same bytes, it may be an answer that was lost.
        assert_eq!([create(b"one"), create(b"two"), create(b"longer"), create(b"one")], [true, false, false, true]);
        remote.require_conditions("a", b"one".to_vec(), WITHIN).unwrap();
        assert_eq!(remote.read_object("a", 3, WITHIN).unwrap().unwrap(), b"one");
        // A store that stores it a second time does not heed the condition.
        let error = remote.require_conditions("b", b"one".to_vec(), WITHIN).unwrap_err();
        assert!(matches!(error, Error::NoConditions { .. }), "{error}");
        assert!(error.to_string().contains("`s3://bucket/below/b` has no conditional writes"), "{error}");
    }

    #[test]
    fn an_answer_that_names_no_condition_is_another_error() {
        for (why, expected) in [
            ("Server returned non-2xx status code: 501 Not Implemented", true),
            ("Operation not supported: put with conditions", true),
            ("Server returned non-2xx status code: 503 Slow Down", false),
        ] {
            assert_eq!(lacks_conditions(why), expected, "{why}");
        }
    }

    #[test]
    fn an_object_of_parts_is_there_once_it_is_finished() {
        let remote = remote();
        let mut upload = remote.begin_parts("c/large", WITHIN).unwrap();
        for part in [&b"0123"[..], b"45"] {
            remote.send_part(&mut upload, part.to_vec(), WITHIN).unwrap();
        }
        assert_eq!(remote.object_names(WITHIN).unwrap(), Vec::<String>::new());
        remote.finish_parts(&upload, WITHIN).unwrap();
        assert_eq!(remote.object_names(WITHIN).unwrap(), ["c/large"]);
        assert_eq!(remote.read_range("c/large", 3..6, WITHIN).unwrap(), b"345");
        assert_eq!(remote.read_range("c/large", 3..3, WITHIN).unwrap(), b"");
        remote.remove_object("c/large", WITHIN).unwrap();
        remote.remove_object("c/large", WITHIN).unwrap();
        assert_eq!(remote.read_object("c/large", 9, WITHIN).unwrap(), None);
    }
}
