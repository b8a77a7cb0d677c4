//! Files that clients have uploaded, by the SHA-256 of their contents, so that a job submitted over the API can name them.
//!
//! `blobs/SHA256/NAME` is a whole file, and `blobs/SHA256/.partial` one that is still arriving: each part is appended, and
//! after a broken connection the next one begins where it ended. The same contents under another name are a link to them.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use axum::http::StatusCode;
use domain::Bytes;
use domain::files::is_safe;
use serde::{Deserialize, Serialize};

use super::limit::StorageLimit;
use super::{Refused, failed, note};
use crate::home::{DiskSpace, StoredKind, Transfers};

/// One that is not whole yet.
const PARTIAL: &str = ".partial";

/// Where a part of a blob belongs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BlobPart {
    /// Bytes of the file before it.
    pub offset: u64,
    /// Bytes of the whole file; without it, this part is the last one.
    pub total: Option<u64>,
    /// The name that it gets, by whose ending programs know what it is; `file` without it.
    pub name: Option<String>,
}

/// What is there of a blob.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BlobState {
    /// SHA-256 of the whole file, in hexadecimal digits.
    pub sha256: String,
    /// Bytes that have arrived.
    pub bytes: u64,
    /// Whether that is all of it.
    pub is_whole: bool,
    /// Where it is, under each of its names; nothing before it is whole.
    pub paths: Vec<String>,
}

/// The uploaded files of a home.
#[derive(Debug)]
pub struct BlobStore {
    folder: PathBuf,
    limit: StorageLimit,
    transfers: Arc<Transfers>,
    space: Arc<DiskSpace>,
}

impl BlobStore {
    /// That beside the folder of all runs, which takes no more space with them than `quota`, where there is one.
    /// What is refused for want of space is known to `space`.
    pub(crate) fn new(
        runs: &Path,
        quota: Option<Bytes>,
        (space, transfers): (Arc<DiskSpace>, Arc<Transfers>),
    ) -> BlobStore {
        let limit = StorageLimit::new(runs, quota, transfers.clone());
        BlobStore { folder: folder(runs), limit, transfers, space }
    }

    /// Stores a part; says also whether the blob has become whole by it. A part at another offset than that at which the
    /// next one is due has no effect, and the answer has that offset.
    pub(crate) fn put(&self, sha256: &str, part: &BlobPart, bytes: &[u8]) -> Result<(BlobState, bool), Refused> {
        let stored = self.store(sha256, part, bytes);
        note(&self.space, &StoredKind::Uploads, sha256, stored.as_ref().map(|(state, _)| state.is_whole));
        stored
    }

    fn store(&self, sha256: &str, part: &BlobPart, bytes: &[u8]) -> Result<(BlobState, bool), Refused> {
        let (folder, name) = (self.place(sha256)?, part.name.as_deref().unwrap_or("file"));
        let end = part.offset.saturating_add(bytes.len() as u64);
        let total = part.total.unwrap_or(end);
        if !is_name(name) {
            return Err((StatusCode::BAD_REQUEST, format!("`{name}` is no name of a file")));
        }
        if end > total {
            let why = format!("the part ends at byte {end}, and the file at byte {total}");
            return Err((StatusCode::BAD_REQUEST, why));
        }
        let locks = self.transfers.of(sha256);
        let _one = locks.part();
        let state = state(sha256, &folder);
        if state.is_whole {
            // A job that names it is about to come, and `gradus gc` looks at its age.
            let _ = File::open(&folder).and_then(|folder| folder.set_modified(SystemTime::now()));
            return Ok((linked(&folder, name, state)?, false));
        }
        if part.offset != state.bytes {
            return Ok((state, false));
        }
        self.limit.require(bytes.len() as u64)?;
        fs::create_dir_all(&folder).map_err(failed("make", &folder))?;
        let partial = folder.join(PARTIAL);
        let file = OpenOptions::new().create(true).append(true).open(&partial);
        let written = file.and_then(|mut file| file.write_all(bytes).map(|()| file));
        let file = written.map_err(failed("write", &partial))?;
        if end < total {
            return Ok((BlobState { bytes: end, ..state }, false));
        }
        self.finish(sha256, &folder, name, &file).map(|state| (state, true))
    }

    /// Names a file whose last part has arrived, if it is what it is said to be.
    fn finish(&self, sha256: &str, folder: &Path, name: &str, file: &File) -> Result<BlobState, Refused> {
        let partial = folder.join(PARTIAL);
        let found = File::open(&partial).and_then(node::sha256).map_err(failed("read", &partial))?;
        if found != sha256 {
            fs::remove_file(&partial).map_err(failed("delete", &partial))?;
            let _ = fs::remove_dir(folder);
            let why = format!("its SHA-256 is `{found}`; it is to be sent again, from its start");
            return Err((StatusCode::UNPROCESSABLE_ENTITY, why));
        }
        let place = folder.join(name);
        let named = file.sync_all().and_then(|()| fs::rename(&partial, &place));
        named.and_then(|()| File::open(folder)?.sync_all()).map_err(failed("write", &place))?;
        Ok(state(sha256, folder))
    }

    /// What is there of a blob; none of one of which nothing has arrived.
    pub(crate) fn find(&self, sha256: &str) -> Option<BlobState> {
        let folder = self.place(sha256).ok()?;
        folder.is_dir().then(|| state(sha256, &folder))
    }

    /// All blobs, in the order of their hashes.
    pub(crate) fn list(&self) -> Vec<BlobState> {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let mut names: Vec<String> = entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names.iter().filter_map(|name| self.find(name)).collect()
    }

    /// Deletes a blob; whether it was there.
    pub(crate) fn remove(&self, sha256: &str) -> Result<bool, Refused> {
        let folder = self.place(sha256)?;
        let locks = self.transfers.of(sha256);
        let _one = locks.part();
        match fs::remove_dir_all(&folder) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(failed("delete", &folder)(error)),
        }
    }

    fn place(&self, sha256: &str) -> Result<PathBuf, Refused> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        match sha256.len() == 64 && sha256.bytes().all(is_digit) {
            true => Ok(self.folder.join(sha256)),
            false => {
                let why = format!("`{sha256}` is no SHA-256: 64 hexadecimal digits in lower case");
                Err((StatusCode::BAD_REQUEST, why))
            }
        }
    }
}

/// The folder of all blobs, beside that of all runs.
pub(super) fn folder(runs: &Path) -> PathBuf {
    runs.with_file_name("blobs")
}

/// Whether a file may be called so. What begins with a dot is not whole.
fn is_name(name: &str) -> bool {
    is_safe(name) && !name.contains('/') && !name.starts_with('.') && name.len() <= 200
}

fn state(sha256: &str, folder: &Path) -> BlobState {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_named = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).is_some_and(is_name);
    let mut paths: Vec<PathBuf> = entries.filter(is_named).collect();
    paths.sort();
    let file = paths.first().cloned().unwrap_or_else(|| folder.join(PARTIAL));
    BlobState {
        sha256: sha256.to_owned(),
        bytes: fs::metadata(file).map_or(0, |about| about.len()),
        is_whole: !paths.is_empty(),
        paths: paths.iter().map(|path| path.to_string_lossy().into_owned()).collect(),
    }
}

/// A whole blob under one more name.
fn linked(folder: &Path, name: &str, known: BlobState) -> Result<BlobState, Refused> {
    let place = folder.join(name);
    let Some(one) = known.paths.first().filter(|_| !place.exists()) else { return Ok(known) };
    fs::hard_link(one, &place).map_err(failed("make", &place))?;
    Ok(state(&known.sha256, folder))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Of `0123456789`.
    const DIGITS: &str = "84d89877f0d4041efb6bf91a16f0248f2fd573e6af05c19f96bedb9f882f7882";

    fn part(offset: u64, total: u64, name: &str) -> BlobPart {
        BlobPart { offset, total: Some(total), name: Some(name.to_owned()) }
    }

    #[test]
    fn a_blob_is_resumed_and_named_once_it_is_what_its_hash_says() {
        let home = tempfile::tempdir().unwrap();
        let store = BlobStore::new(&home.path().join("runs"), None, Default::default());
        fs::create_dir_all(home.path().join("runs")).unwrap();
        let put = |offset, bytes: &[u8]| store.put(DIGITS, &part(offset, 10, "a.csv"), bytes).unwrap();
        assert_eq!(store.find(DIGITS), None);
        let (state, is_new) = put(0, b"0123");
        assert_eq!((state.bytes, state.is_whole, state.paths.len(), is_new), (4, false, 0, false));
        // Sent again, and from behind a gap: neither has an effect.
        assert_eq!((put(0, b"0123").0.bytes, put(8, b"89").0.bytes), (4, 4));
        let (state, is_new) = put(4, b"456789");
        let path = home.path().join("blobs").join(DIGITS).join("a.csv");
        assert_eq!((state.bytes, state.is_whole, is_new), (10, true, true));
        assert_eq!(state.paths, [path.to_str().unwrap()]);
        assert_eq!(fs::read_to_string(&path).unwrap(), "0123456789");
        // The same contents again are not stored again, under no name, and are as new as if they were.
        let folder = fs::File::open(path.parent().unwrap()).unwrap();
        folder.set_modified(SystemTime::UNIX_EPOCH).unwrap();
        assert!(put(0, b"0123456789").0.is_whole);
        assert!(folder.metadata().unwrap().modified().unwrap() > SystemTime::UNIX_EPOCH);
        let (state, is_new) = store.put(DIGITS, &part(0, 10, "b.csv"), b"0123456789").unwrap();
        assert_eq!((state.paths.len(), is_new), (2, false));
        use std::os::unix::fs::MetadataExt;
        assert_eq!(fs::metadata(&path).unwrap().nlink(), 2);
        assert_eq!(store.list(), [state]);
        assert_eq!((store.remove(DIGITS), store.remove(DIGITS)), (Ok(true), Ok(false)));
    }

    #[test]
    fn what_is_no_blob_is_refused_and_leaves_nothing() {
        let home = tempfile::tempdir().unwrap();
        let store = BlobStore::new(&home.path().join("runs"), None, Default::default());
        fs::create_dir_all(home.path().join("runs")).unwrap();
        let check = |sha256: &str, part: BlobPart, status: u16| {
            let refused = store.put(sha256, &part, b"012345678X").unwrap_err();
            assert_eq!(refused.0.as_u16(), status, "{refused:?}");
        };
        check(DIGITS, part(0, 10, "a.csv"), 422);
        check(DIGITS, part(0, 9, "a.csv"), 400);
        for name in ["..", ".partial", "a/b", "", "/etc/passwd", "a\0b"] {
            check(DIGITS, part(0, 10, name), 400);
        }
        for sha256 in ["..", "", &DIGITS[1..], &DIGITS.to_uppercase(), "../../../../../../../../../../../../etc/passwd"]
        {
            check(sha256, part(0, 10, "a.csv"), 400);
        }
        assert_eq!(store.list(), []);
        assert!(!home.path().join("blobs").join(DIGITS).exists());
    }
}
