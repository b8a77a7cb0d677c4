//! Progress of a push, used to resume after a kill.
//!
//! One JSON line per event, appended. A truncated last line is ignored; lost lines only cause work to be repeated, so
//! nothing is synced. The file is locked while a push runs.

use std::collections::{BTreeMap, HashSet};
use std::fs::{self, File};
use std::io::{Read, Seek, Write};
use std::path::{Path, PathBuf};

use data::chunk::ContentHash;
use serde::{Deserialize, Serialize};

use super::Built;
use crate::Error;
use crate::lock::draw_id;

/// One push's journal.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    /// `None` in a dry run.
    file: Option<File>,
    finished: Vec<Built>,
    forgotten: HashSet<ContentHash>,
    uploads: BTreeMap<String, Upload>,
    lock: Option<ContentHash>,
}

/// An upload in parts that is not finished.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Upload {
    /// The service's name of it.
    pub id: String,
    /// The service's names of the parts that are there, by number.
    pub parts: BTreeMap<usize, String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    /// An upload of an object was begun.
    Begun { object: String, upload: String },
    /// A part of it is there.
    Part { object: String, number: usize, etag: String },
    /// A bundle is there.
    Finished(Built),
    /// The name of the push's lock.
    Lock { id: String },
}

impl Journal {
    /// Opens the journal of pushes from `source` to `target`.
    pub fn open(folder: &Path, source: &Path, target: &str, is_dry: bool) -> Result<Journal, Error> {
        let source = fs::canonicalize(source).map_err(Error::file("open", source))?;
        let name = ContentHash::of(format!("{}\n{target}", source.display()).as_bytes()).to_string();
        let path = folder.join(format!("push-{}.jsonl", &name[..16]));
        fs::create_dir_all(folder).map_err(Error::file("make", folder))?;
        let opened = File::options().read(true).append(true).create(true).open(&path);
        let mut file = opened.map_err(Error::file("open", &path))?;
        if file.try_lock().is_err() {
            let message = format!("another push from `{}` to `{target}` is under way", source.display());
            return Err(Error::Usage { message, hint: "wait for it, or stop it".into() });
        }
        let mut bytes = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).map_err(Error::file("read", &path))?;
        // A truncated line must not swallow the next one.
        if !bytes.is_empty() && !bytes.ends_with(b"\n") {
            file.write_all(b"\n").map_err(Error::file("write", &path))?;
        }
        let mut journal = Journal {
            path,
            file: (!is_dry).then_some(file),
            finished: Vec::new(),
            forgotten: HashSet::new(),
            uploads: BTreeMap::new(),
            lock: None,
        };
        for line in bytes.split(|byte| *byte == b'\n') {
            if let Ok(line) = serde_json::from_slice(line) {
                journal.take_in(line);
            }
        }
        Ok(journal)
    }

    fn take_in(&mut self, line: Line) {
        match line {
            Line::Begun { object, upload } => {
                self.uploads.insert(object, Upload { id: upload, parts: BTreeMap::new() });
            }
            Line::Part { object, number, etag } => {
                if let Some(upload) = self.uploads.get_mut(&object) {
                    upload.parts.insert(number, etag);
                }
            }
            Line::Finished(built) => {
                self.uploads.remove(&crate::head::bundle_name(built.id));
                self.finished.push(built);
            }
            Line::Lock { id } => self.lock = ContentHash::parse(&id),
        }
    }

    fn write(&mut self, line: &Line) -> Result<(), Error> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut text = serde_json::to_vec(line).map_err(|error| Error::Internal(error.to_string()))?;
        text.push(b'\n');
        file.write_all(&text).map_err(Error::file("write", &self.path))
    }

    /// The name of the push's lock, the same after a kill.
    pub fn lock_id(&mut self) -> Result<ContentHash, Error> {
        if let Some(id) = self.lock {
            return Ok(id);
        }
        let id = draw_id();
        self.write(&Line::Lock { id: id.to_string() })?;
        self.lock = Some(id);
        Ok(id)
    }

    /// The bundles that are there, as far as is known.
    pub fn finished(&self) -> impl Iterator<Item = &Built> {
        self.finished.iter().filter(|built| !self.forgotten.contains(&built.id))
    }

    /// A bundle is not there after all, or is in a manifest by now.
    pub fn forget(&mut self, id: ContentHash) {
        self.forgotten.insert(id);
    }

    /// The unfinished upload of an object.
    pub fn upload(&self, object: &str) -> Option<Upload> {
        self.uploads.get(object).cloned()
    }

    /// The unfinished uploads of all other objects than these.
    pub fn stale(&self, objects: &HashSet<String>) -> Vec<(String, String)> {
        let stale = self.uploads.iter().filter(|(object, _)| !objects.contains(*object));
        stale.map(|(object, upload)| (object.clone(), upload.id.clone())).collect()
    }

    /// Notes that an upload was begun.
    pub fn begun(&mut self, object: &str, upload: &str) -> Result<(), Error> {
        self.write(&Line::Begun { object: object.to_owned(), upload: upload.to_owned() })?;
        self.uploads.insert(object.to_owned(), Upload { id: upload.to_owned(), parts: BTreeMap::new() });
        Ok(())
    }

    /// Notes that a part is there.
    pub fn part(&mut self, object: &str, number: usize, etag: &str) -> Result<(), Error> {
        self.write(&Line::Part { object: object.to_owned(), number, etag: etag.to_owned() })
    }

    /// Notes that a bundle is there.
    pub fn built(&mut self, built: &Built) -> Result<(), Error> {
        self.uploads.remove(&crate::head::bundle_name(built.id));
        self.write(&Line::Finished(built.clone()))
    }

    /// The push is committed, and the journal is no longer needed.
    pub fn finish(self) {
        let _ = fs::remove_file(&self.path);
    }
}
