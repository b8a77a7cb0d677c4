//! Modifies a location: puts or removes objects, and uploads in parts that can outlive a process.

use std::time::Duration;

use object_store::multipart::{MultipartStore, PartId};
use object_store::{Error as StoreError, ObjectStoreExt, PutMode, PutPayload};

use tokio::time::timeout;

use super::Remote;
use super::failure::{RECEIVED_OTHER, generic};
use crate::Error;
use crate::location::Location;

/// Timeout of a request that should not delay the caller.
const SHORTLY: Duration = Duration::from_secs(3);

impl Remote {
    /// Stores an object in one request, and returns its version. The upload is verified: stores report a checksum
    /// (`received`), a disk is read back.
    pub(crate) async fn put(&self, name: &str, bytes: Vec<u8>, mode: PutMode) -> Result<Option<String>, Error> {
        let path = self.path(name)?;
        let bytes = bytes::Bytes::from(bytes);
        let put = self.patiently("write", name, || async {
            let payload = PutPayload::from_bytes(bytes.clone());
            let etag = self.store.put_opts(&path, payload, mode.clone().into()).await?.e_tag;
            if matches!(self.location(), Location::Local(_)) && self.store.get(&path).await?.bytes().await? != bytes {
                return Err(generic(RECEIVED_OTHER.to_owned()));
            }
            Ok(etag)
        });
        put.await
    }

    /// Removes an object; a missing one is not an error.
    pub(crate) async fn remove(&self, name: &str) -> Result<(), Error> {
        let path = self.path(name)?;
        self.patiently("remove", name, || async {
            match self.store.delete(&path).await {
                Ok(()) | Err(StoreError::NotFound { .. }) => Ok(()),
                Err(error) => Err(error),
            }
        })
        .await
    }

    /// Tries once to remove an object, for a moment.
    pub(crate) async fn remove_once(&self, name: &str) {
        if let Ok(path) = self.path(name) {
            let _ = timeout(SHORTLY, self.store.delete(&path)).await;
        }
    }

    /// Begins an upload in parts.
    pub(crate) async fn begin(&self, multipart: &dyn MultipartStore, name: &str) -> Result<String, Error> {
        let path = self.path(name)?;
        self.patiently("write", name, || multipart.create_multipart(&path)).await
    }

    /// Sends one part.
    pub(crate) async fn part(
        &self,
        multipart: &dyn MultipartStore,
        (name, upload): (&str, &String),
        number: usize,
        bytes: PutPayload,
    ) -> Result<PartId, Error> {
        let path = self.path(name)?;
        self.patiently("write", name, || multipart.put_part(&path, upload, number, bytes.clone())).await
    }

    /// Makes the object of its parts.
    pub(crate) async fn finish(
        &self,
        multipart: &dyn MultipartStore,
        (name, upload): (&str, &String),
        parts: Vec<PartId>,
    ) -> Result<Option<String>, Error> {
        let path = self.path(name)?;
        let finish = self.patiently("write", name, || async {
            Ok(multipart.complete_multipart(&path, upload, parts.clone()).await?.e_tag)
        });
        finish.await
    }

    /// Aborts an upload, so that its parts are not billed. An upload that is gone already is not an error.
    pub(crate) async fn abandon(&self, multipart: &dyn MultipartStore, name: &str, upload: &String) {
        if let Ok(path) = self.path(name) {
            // What cannot be removed now is removed by the bucket's own rules, or costs a little.
            let _ = multipart.abort_multipart(&path, upload).await;
        }
    }
}
