//! Sends files as objects.

use std::cell::RefCell;
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use data::chunk::ContentHash;
use futures::{StreamExt, TryStreamExt, stream};
use object_store::multipart::{MultipartStore, PartId};
use object_store::{PutMode, PutPayload};

use super::changed;
use super::receipt::{Done, Receipts};
use crate::remote::Remote;
use crate::remote::upload::Upload;
use crate::source::Local;
use crate::streams::Streams;
use crate::{Error, Meter, Options, Pushed};

/// Sends files without a valid receipt.
pub(crate) fn push(
    source: &Path,
    files: &[Local],
    remote: &Remote,
    options: &Options,
    meter: &Meter,
) -> Result<Pushed, Error> {
    let receipts = open(source, remote, options)?;
    let there: HashMap<String, Option<String>> =
        remote.wait(remote.list())?.into_iter().map(|object| (object.name, object.etag)).collect();
    let mut wanted = Vec::new();
    for file in files {
        let metadata = std::fs::metadata(&file.path).map_err(Error::file("open", &file.path))?;
        let receipt = Done { bytes: file.bytes, changed: changed(&metadata), etag: None };
        let holds = receipts.of(&file.name).is_some_and(|done| {
            (done.bytes, done.changed) == (receipt.bytes, receipt.changed) && there.get(&file.name) == Some(&done.etag)
        });
        if !holds {
            wanted.push((file, receipt));
        }
    }
    let new_bytes = wanted.iter().map(|(file, _)| file.bytes).sum();
    meter.expect(new_bytes);
    let bytes = files.iter().map(|file| file.bytes).sum();
    let mut pushed = Pushed { files: files.len() as u64, bytes, new_bytes, ..Pushed::default() };
    if options.dry_run {
        return Ok(pushed);
    }
    let sending =
        Sending { remote, receipts: RefCell::new(receipts), streams: Streams::new(remote.limits.streams), meter };
    pushed.objects = wanted.len() as u64;
    remote.wait(async {
        stream::iter(wanted)
            .map(|(file, receipt)| sending.file(file, receipt))
            .buffer_unordered(remote.limits.streams)
            .try_collect::<()>()
            .await
    })?;
    if options.delete {
        let names: std::collections::HashSet<&str> = files.iter().map(|file| file.name.as_str()).collect();
        for name in there.keys().filter(|name| !names.contains(name.as_str())) {
            remote.wait(remote.remove(name))?;
            pushed.removed += 1;
        }
    }
    pushed.sent = meter.read().sent;
    Ok(pushed)
}

fn open(source: &Path, remote: &Remote, options: &Options) -> Result<Receipts, Error> {
    let source = std::fs::canonicalize(source).map_err(Error::file("open", source))?;
    let name = ContentHash::of(format!("{}\n{}", source.display(), remote.location()).as_bytes()).to_string();
    let path = options.journals.join(format!("plain-{}.jsonl", &name[..16]));
    std::fs::create_dir_all(&options.journals).map_err(Error::file("make", &options.journals))?;
    let opened = File::options().read(true).append(true).create(true).open(&path);
    let file = opened.map_err(Error::file("open", &path))?;
    if file.try_lock().is_err() {
        let message = format!("another push from `{}` to `{}` is under way", source.display(), remote.location());
        return Err(Error::Usage { message, hint: "wait for it, or stop it".into() });
    }
    Receipts::read(file, options.dry_run).map_err(Error::file("read", &path))
}

struct Sending<'a> {
    remote: &'a Remote,
    receipts: RefCell<Receipts>,
    streams: Streams,
    meter: &'a Meter,
}

impl Sending<'_> {
    async fn file(&self, file: &Local, receipt: Done) -> Result<(), Error> {
        let part = self.remote.limits.part;
        let multipart = self.remote.multipart.clone().filter(|_| file.bytes > part);
        let etag = match multipart {
            None => {
                let _stream = self.streams.take().await?;
                let bytes = std::fs::read(&file.path).map_err(Error::file("read", &file.path))?;
                let length = bytes.len() as u64;
                if length != file.bytes {
                    return Err(Error::Changed { path: file.path.clone() });
                }
                let put = self.remote.put(&file.name, bytes, PutMode::Overwrite);
                let etag = Upload::new(self.meter, length, length).during(put).await?;
                self.streams.widen();
                etag
            }
            Some(multipart) => self.parts(multipart.as_ref(), file, &receipt).await?,
        };
        // The parts must have been read from one version of the file.
        let metadata = std::fs::metadata(&file.path).map_err(Error::file("open", &file.path))?;
        if (metadata.len(), changed(&metadata)) != (receipt.bytes, receipt.changed) {
            return Err(Error::Changed { path: file.path.clone() });
        }
        let done = self.receipts.borrow_mut().done(&file.name, Done { etag, ..receipt });
        done.map_err(Error::file("write", "the receipts"))
    }

    async fn parts(
        &self,
        multipart: &dyn MultipartStore,
        file: &Local,
        receipt: &Done,
    ) -> Result<Option<String>, Error> {
        let stamp = format!("{}-{}", receipt.bytes, receipt.changed);
        let earlier = self.receipts.borrow().under_way(&file.name).cloned();
        if let Some(earlier) = earlier {
            let (upload, of) = earlier.version.split_once('\n').unwrap_or((&earlier.version, ""));
            let upload = upload.to_owned();
            if of == stamp {
                match self.send(multipart, file, &upload, &earlier.parts).await {
                    Ok(etag) => return Ok(etag),
                    // Services forget uploads after a while.
                    Err(Error::Missing { .. } | Error::Network { .. }) => {}
                    Err(error) => return Err(error),
                }
            } else {
                self.remote.abandon(multipart, &file.name, &upload).await;
            }
        }
        let upload = self.remote.begin(multipart, &file.name).await?;
        let begun = self.receipts.borrow_mut().begun(&file.name, &format!("{upload}\n{stamp}"));
        begun.map_err(Error::file("write", "the receipts"))?;
        self.send(multipart, file, &upload, &Default::default()).await
    }

    async fn send(
        &self,
        multipart: &dyn MultipartStore,
        file: &Local,
        upload: &String,
        there: &std::collections::BTreeMap<usize, String>,
    ) -> Result<Option<String>, Error> {
        let opened = &File::open(&file.path).map_err(Error::file("open", &file.path))?;
        // A service takes ten thousand parts at most.
        let length = self.remote.limits.part.max(file.bytes.div_ceil(10_000).next_multiple_of(1 << 20));
        let parts: Vec<PartId> = stream::iter(0..file.bytes.div_ceil(length))
            .map(|number| async move {
                let begin = number * length;
                let size = length.min(file.bytes - begin);
                let number = number as usize;
                let content_id = match there.get(&number) {
                    Some(etag) => {
                        self.meter.moved(size);
                        etag.clone()
                    }
                    None => {
                        let _stream = self.streams.take().await?;
                        let mut bytes = vec![0; size as usize];
                        opened.read_exact_at(&mut bytes, begin).map_err(Error::read(&file.path))?;
                        let payload = PutPayload::from(bytes);
                        let part = self.remote.part(multipart, (&file.name, upload), number, payload);
                        let sent = Upload::new(self.meter, size, size).during(part).await?;
                        let noted = self.receipts.borrow_mut().part(&file.name, number, &sent.content_id);
                        noted.map_err(Error::file("write", "the receipts"))?;
                        sent.content_id
                    }
                };
                Ok::<PartId, Error>(PartId { content_id })
            })
            .buffered(self.remote.limits.streams)
            .try_collect()
            .await?;
        self.remote.finish(multipart, (&file.name, upload), parts).await
    }
}
