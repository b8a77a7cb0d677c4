//! Fetches objects as files.
//!
//! Objects of others carry no hash that can be relied on: a range must have its length and come from the version that
//! was listed, and the connection's own sums do the rest. Chunks are verified by their hashes instead.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::FileExt;

use data::chunk::{ContentHash, check_name};
use futures::{StreamExt, TryStreamExt, stream};

use super::receipt::{Done, Receipts, UnderWay};
use super::{changed, objects};
use crate::folder::Folder;
use crate::pull::{is_right, part_name, place};
use crate::remote::{Object, Remote};
use crate::source::OWN;
use crate::streams::Streams;
use crate::{Error, Meter, Options, Pulled};

/// Downloads the objects for which the folder has no receipt of an earlier pull. Also returns the names of all files.
pub(crate) fn pull(
    remote: &Remote,
    folder: &Folder,
    options: &Options,
    meter: &Meter,
) -> Result<(Pulled, HashSet<String>), Error> {
    let objects = remote.wait(objects(remote))?;
    let mut names = HashSet::with_capacity(objects.len());
    for object in &objects {
        check_name(&object.name)
            .map_err(|why| remote.damaged(&object.name, format!("its key cannot be used as a file name: {why}")))?;
        names.insert(object.name.clone());
    }
    let list = format!("{OWN}/pulled.jsonl");
    let opened = folder.append(&list).and_then(|file| Receipts::read(file, options.dry_run));
    let receipts = opened.map_err(Error::file("open", folder.path().join(&list)))?;
    let wanted = wanted(folder, &objects, &receipts)?;
    let new_bytes: u64 = wanted.iter().map(|object| object.bytes).sum();
    meter.expect(new_bytes);
    let mut pulled = Pulled {
        files: objects.len() as u64,
        bytes: objects.iter().map(|object| object.bytes).sum(),
        new_bytes,
        to_receive: new_bytes,
        unreadable: remote.unreadable(),
        ..Pulled::default()
    };
    if let [object] = &objects[..] {
        pulled.single = Some(object.name.clone());
    }
    if options.dry_run {
        return Ok((pulled, names));
    }
    let free = folder.free().map_err(Error::file("look at", folder.path()))?;
    if new_bytes > free {
        return Err(Error::NoSpace { path: folder.path().to_owned(), needed: new_bytes, free });
    }
    let is_single = remote.location().name() == pulled.single.as_deref().unwrap_or("/");
    let fetching = Fetching {
        remote,
        folder,
        receipts: RefCell::new(receipts),
        streams: Streams::new(remote.limits.streams),
        meter,
        // The location itself is the object, unless it is a folder that holds one of the same name.
        is_itself: is_single && remote.wait(remote.look(""))?.is_some(),
    };
    remote.wait(async {
        stream::iter(&wanted)
            .map(|object| fetching.object(object))
            .buffer_unordered(remote.limits.streams)
            .try_collect::<()>()
            .await
    })?;
    folder.sync().map_err(Error::file("sync", folder.path()))?;
    place_all(folder, &wanted, fetching.receipts.into_inner())?;
    Ok((pulled, names))
}

/// The objects to fetch: those without a receipt, or whose file or object changed since.
fn wanted(folder: &Folder, objects: &[Object], receipts: &Receipts) -> Result<Vec<Object>, Error> {
    let mut wanted = Vec::new();
    for object in objects {
        let placed = folder.read(&object.name).map_err(Error::file("read", folder.path().join(&object.name)))?;
        let metadata = placed.and_then(|file| file.metadata().ok());
        let holds = metadata.zip(receipts.of(&object.name)).is_some_and(|(metadata, done)| {
            (metadata.len(), changed(&metadata)) == (done.bytes, done.changed)
                && (done.bytes, &done.etag) == (object.bytes, &object.etag)
        });
        if !holds {
            wanted.push(object.clone());
        }
    }
    Ok(wanted)
}

/// Renames fetched files into place, and writes their receipts.
fn place_all(folder: &Folder, fetched: &[Object], mut receipts: Receipts) -> Result<(), Error> {
    for object in fetched {
        place(folder, &object.name)?;
        let path = || folder.path().join(&object.name);
        let placed = folder.read(&object.name).and_then(|file| file.map(|file| file.metadata()).transpose());
        if let Some(metadata) = placed.map_err(Error::file("read", path()))? {
            let done = Done { bytes: object.bytes, changed: changed(&metadata), etag: object.etag.clone() };
            receipts.done(&object.name, done).map_err(Error::file("write", path()))?;
        }
    }
    Ok(())
}

/// A part of an object, and the unfinished file that it belongs into.
struct Part<'a> {
    object: &'a Object,
    key: &'a str,
    path: &'a str,
    number: usize,
    range: Range<u64>,
}

struct Fetching<'a> {
    remote: &'a Remote,
    folder: &'a Folder,
    receipts: RefCell<Receipts>,
    streams: Streams,
    meter: &'a Meter,
    is_itself: bool,
}

impl Fetching<'_> {
    async fn object(&self, object: &Object) -> Result<(), Error> {
        let part = part_name(&object.name);
        let refused = || Error::file("write", self.folder.path().join(&part));
        let opened = self.folder.write(&part).and_then(|file| file.set_len(object.bytes).map(|()| file));
        let file = &opened.map_err(refused())?;
        let version = format!("{}-{}", object.bytes, object.etag.as_deref().unwrap_or_default());
        let earlier = self.receipts.borrow().under_way(&object.name).cloned().unwrap_or_default();
        // Without a version, parts of two attempts may not belong together.
        let there = match earlier.version == version && object.etag.is_some() {
            true => earlier,
            false => {
                self.receipts.borrow_mut().begun(&object.name, &version).map_err(refused())?;
                UnderWay::default()
            }
        };
        let key = if self.is_itself { "" } else { &object.name };
        match self.parts(object, key, file, &there, &part).await {
            Err(Error::NoRanges { .. }) => self.whole(object, key, file, &part).await,
            other => other,
        }
    }

    /// Fetches the missing parts of an object.
    async fn parts(&self, object: &Object, key: &str, file: &File, there: &UnderWay, path: &str) -> Result<(), Error> {
        let length = self.remote.limits.part;
        stream::iter(0..object.bytes.div_ceil(length))
            .map(|number| async move {
                let begin = number * length;
                let range = begin..object.bytes.min(begin + length);
                let number = number as usize;
                let known = there.parts.get(&number).and_then(|known| ContentHash::parse(known));
                let size = (range.end - begin) as u32;
                if known.is_some_and(|id| is_right(file, begin, id, &mut Vec::new(), size)) {
                    self.meter.moved(u64::from(size));
                    return Ok::<(), Error>(());
                }
                let begun = there.begun.get(&number).filter(|(bytes, _)| *bytes <= u64::from(size));
                self.part(Part { object, key, path, number, range }, file, begun).await
            })
            .buffer_unordered(self.remote.limits.streams)
            .try_collect::<()>()
            .await
    }

    /// Fetches what is missing of a part behind its beginning. Bytes are written, and their hash noted, as they come, so
    /// that a kill loses less than [`GRAIN`](crate::remote::GRAIN) of them.
    async fn part(&self, part: Part<'_>, file: &File, begun: Option<&(u64, String)>) -> Result<(), Error> {
        let Part { object, key, path, number, range } = part;
        let _stream = self.streams.take().await?;
        let refused = || Error::file("write", self.folder.path().join(path));
        let (mut hash, mut at) = (blake3::Hasher::new(), range.start);
        if let Some((bytes, known)) = begun {
            let mut buffer = Vec::new();
            let id = ContentHash::parse(known);
            if id.is_some_and(|id| is_right(file, range.start, id, &mut buffer, *bytes as u32)) {
                hash.update(&buffer);
                at += bytes;
                self.meter.moved(*bytes);
            }
        }
        if at < range.end {
            let state = RefCell::new((&mut hash, at));
            let poured = self.remote.pour(key, at..range.end, object.etag.as_deref(), |bytes| {
                let (hash, at) = &mut *state.borrow_mut();
                let written = file.write_all_at(&bytes, *at).and_then(|()| {
                    hash.update(&bytes);
                    *at += bytes.len() as u64;
                    let known = ContentHash(*hash.finalize().as_bytes()).to_string();
                    let length = *at - range.start;
                    match *at < range.end {
                        true => self.receipts.borrow_mut().some(&object.name, number, length, &known),
                        false => Ok(()),
                    }
                });
                self.meter.received(bytes.len() as u64);
                self.meter.moved(bytes.len() as u64);
                std::future::ready(written.map_err(refused()))
            });
            poured.await?;
        }
        let id = ContentHash(*hash.finalize().as_bytes()).to_string();
        self.receipts.borrow_mut().part(&object.name, number, &id).map_err(refused())?;
        self.streams.widen();
        Ok(())
    }

    /// Fetches an object from a server that does not support range requests.
    async fn whole(&self, object: &Object, key: &str, file: &File, part: &str) -> Result<(), Error> {
        let _stream = self.streams.take().await?;
        let refused = || Error::file("write", self.folder.path().join(part));
        let mut told = 0;
        let fetch = self.remote.whole(key, object.bytes, |at, bytes| {
            file.write_all_at(bytes, at).map_err(refused())?;
            let length = bytes.len() as u64;
            self.meter.received(length);
            // Bytes received a second time are not progress.
            let new = (at + length).saturating_sub(told);
            told += new;
            self.meter.moved(new);
            Ok(())
        });
        fetch.await.inspect(|()| self.streams.widen())
    }
}
