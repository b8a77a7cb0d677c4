//! Sends bundles: a few are made at a time, and their parts share the streams.

use std::cell::RefCell;
use std::collections::HashSet;
use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::multipart::PartId;
use object_store::{PutMode, PutPayload};

use super::Bundled;
use super::build::{Built, build};
use super::journal::Journal;
use crate::head::bundle_name;
use crate::inventory::Inventory;
use crate::remote::Remote;
use crate::remote::upload::Upload;
use crate::source::Local;
use crate::streams::Streams;
use crate::{Error, Meter};

/// Bundles in memory at a time, 64 MiB each: one is made while another is sent.
const AHEAD: usize = 2;

/// Makes and sends the bundles; returns them in their order.
pub(super) async fn bundles(
    remote: &Remote,
    files: &[Local],
    bundles: Vec<Bundled>,
    inventory: &Inventory,
    journal: &mut Journal,
    meter: &Meter,
) -> Result<Vec<Built>, Error> {
    let files: Arc<[Local]> = files.into();
    let journal = RefCell::new(journal);
    let streams = Streams::new(remote.limits.streams);
    let begun = RefCell::new(HashSet::new());
    let sent = stream::iter(bundles)
        .map(|bundled| {
            let files = files.clone();
            let (journal, streams, begun) = (&journal, &streams, &begun);
            async move {
                let raw: u64 = bundled.iter().map(|wanted| u64::from(wanted.bytes)).sum();
                let making = tokio::task::spawn_blocking(move || build(&files, &bundled));
                let (built, bytes) = making.await.map_err(|error| Error::Internal(error.to_string()))??;
                let name = bundle_name(built.id);
                begun.borrow_mut().insert(name.clone());
                match inventory.has(&name, built.bytes) {
                    true => meter.moved(raw),
                    false => {
                        let object = Object { remote, name: &name, journal, streams, meter };
                        object.send(bytes.into(), raw).await?;
                    }
                }
                journal.borrow_mut().built(&built)?;
                Ok::<Built, Error>(built)
            }
        })
        .buffered(AHEAD)
        .try_collect()
        .await?;
    // An unfinished upload of other bytes is aborted, so that it is not billed.
    let stale = journal.borrow().stale(&begun.borrow());
    if let Some(multipart) = &remote.multipart {
        for (object, upload) in stale {
            remote.abandon(multipart.as_ref(), &object, &upload).await;
        }
    }
    Ok(sent)
}

struct Object<'a, 'j> {
    remote: &'a Remote,
    name: &'a str,
    journal: &'a RefCell<&'j mut Journal>,
    streams: &'a Streams,
    meter: &'a Meter,
}

impl Object<'_, '_> {
    /// Sends the object, which contains `raw` bytes of data.
    async fn send(&self, bytes: Bytes, raw: u64) -> Result<(), Error> {
        let part = self.remote.limits.part;
        let multipart = self.remote.multipart.clone().filter(|_| bytes.len() as u64 > part);
        let Some(multipart) = multipart else {
            let _stream = self.streams.take().await?;
            let length = bytes.len() as u64;
            let put = self.remote.put(self.name, bytes.into(), PutMode::Overwrite);
            Upload::new(self.meter, length, raw).during(put).await?;
            self.streams.widen();
            return Ok(());
        };
        let earlier = self.journal.borrow().upload(self.name);
        if let Some(upload) = earlier {
            // Services expire uploads, and finished ones: then it is started again.
            match self.parts(multipart.as_ref(), upload.id.clone(), upload.parts, &bytes, raw).await {
                Ok(()) => return Ok(()),
                Err(Error::Missing { .. } | Error::Network { .. }) => {
                    let there = self.remote.look(self.name).await?;
                    if there.is_some_and(|object| object.bytes == bytes.len() as u64) {
                        return Ok(());
                    }
                }
                Err(error) => return Err(error),
            }
        }
        let upload = self.remote.begin(multipart.as_ref(), self.name).await?;
        self.journal.borrow_mut().begun(self.name, &upload)?;
        self.parts(multipart.as_ref(), upload, Default::default(), &bytes, raw).await
    }

    async fn parts(
        &self,
        multipart: &dyn object_store::multipart::MultipartStore,
        upload: String,
        there: std::collections::BTreeMap<usize, String>,
        bytes: &Bytes,
        raw: u64,
    ) -> Result<(), Error> {
        let length = self.remote.limits.part as usize;
        let count = bytes.len().div_ceil(length);
        let share = |part: usize| (raw as u128 * part as u128 / bytes.len() as u128) as u64;
        let parts: Vec<PartId> = stream::iter(0..count)
            .map(|number| {
                let part = bytes.slice(number * length..bytes.len().min((number + 1) * length));
                let (there, upload) = (&there, &upload);
                async move {
                    let (size, data) = (part.len() as u64, share(part.len()));
                    let content_id = match there.get(&number) {
                        Some(etag) => {
                            self.meter.moved(data);
                            etag.clone()
                        }
                        None => {
                            let _stream = self.streams.take().await?;
                            let payload = PutPayload::from_bytes(part);
                            let part = self.remote.part(multipart, (self.name, upload), number, payload);
                            let sent = Upload::new(self.meter, size, data).during(part).await?;
                            self.journal.borrow_mut().part(self.name, number, &sent.content_id)?;
                            self.streams.widen();
                            sent.content_id
                        }
                    };
                    Ok::<PartId, Error>(PartId { content_id })
                }
            })
            .buffered(count.max(1))
            .try_collect()
            .await?;
        self.remote.finish(multipart, (self.name, &upload), parts).await?;
        let there = self.remote.look(self.name).await?;
        match there.is_some_and(|object| object.bytes == bytes.len() as u64) {
            true => Ok(()),
            false => Err(self.remote.damaged(self.name, "it is not as long as what was sent")),
        }
    }
}
