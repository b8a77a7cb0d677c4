//! Sends one file: a whole one, or what a log has grown by.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use domain::files::{BroughtPart, PARTS_MAX, Received};
use node::log::{data_end, next_data};

use super::file_state::{FileState, settled};
use super::{PassedOver, Upload};
use crate::travel::loop_files::{REQUEST, TravelError, disk, micros};

/// So many answers may say that nothing more of a file has arrived.
const STALLS: u32 = 3;

/// What the loop's machine hashes in a second, at least, as a power of two: a file is hashed before its last part is
/// answered, and one that is there before the first.
const HASHED_PER_SECOND: u32 = 27;

impl Upload {
    /// Sends a file that is complete according to its name. One that grows meanwhile is sent as it was.
    pub(super) fn whole(&mut self, path: &str) -> Result<(), TravelError> {
        let place = self.folder.join(path);
        let meta = match fs::metadata(&place) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            meta => meta.map_err(disk("read", &place))?,
        };
        if self.sent.get(path) == Some(&FileState::of(&meta)) {
            return Ok(());
        }
        let meta = match settled(&place, meta) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            meta => meta.map_err(disk("read", &place))?,
        };
        let state = FileState::of(&meta);
        if self.is_over() {
            return Err(TravelError::Late);
        }
        let mut file = match File::open(&place) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
            file => file.map_err(disk("read", &place))?,
        };
        let sha256 = self.hash(path, state, &file).map_err(disk("read", &place))?;
        self.moved(path, 0);
        let (total, mut offset, mut stalls) = (state.bytes, 0, 0);
        loop {
            if self.is_over() {
                return Err(TravelError::Late);
            }
            let bytes = part(&mut file, offset, total - offset).map_err(disk("read", &place))?;
            if bytes.is_empty() && offset < total || stalls > STALLS {
                return Err(TravelError::Changing);
            }
            let is_hashed = offset == 0 || offset + bytes.len() as u64 == total;
            let hashing = if is_hashed { total >> HASHED_PER_SECOND } else { 0 };
            let within = self.left(REQUEST + Duration::from_secs(hashing));
            let (sha256, modified) = (Some(sha256.clone()), Some(micros(&meta)));
            let part = BroughtPart { fence: self.fence.0, offset, total: Some(total), sha256, modified, hole: 0 };
            let Some(received) = self.bring(path, &part, (bytes, within))? else { return Ok(()) };
            if received.is_whole {
                break;
            }
            if received.bytes > total {
                return Err(TravelError::Changing);
            }
            stalls = if received.bytes > offset { 0 } else { stalls + 1 };
            offset = received.bytes;
            self.moved(path, offset);
        }
        self.moved(path, total);
        if path.starts_with("checkpoints/") {
            self.is_keep_due = true;
            self.unpublished.insert(path.to_owned());
        }
        self.sent.insert(path.to_owned(), state);
        Ok(())
    }

    /// Sends a part to where the file belongs; `None` where there is no such place. What was hashed before is hashed again
    /// where it is refused.
    fn bring(
        &mut self,
        path: &str,
        part: &BroughtPart,
        sent: (Vec<u8>, Duration),
    ) -> Result<Option<Received>, TravelError> {
        let received = match (path.strip_prefix("checkpoints/"), &self.files) {
            (Some(path), _) => self.destination.bring(path, part, sent),
            (None, Some(files)) => files.bring(&self.run, path, part, sent),
            (None, None) => return Ok(None),
        };
        if let Err(TravelError::Unprocessable(_)) = received {
            self.hashed = None;
        }
        received.map(Some)
    }

    /// The SHA-256 of a file as far as it is sent.
    fn hash(&mut self, path: &str, state: FileState, file: &File) -> std::io::Result<String> {
        if let Some((last, as_it_was, sha256)) = &self.hashed
            && last == path
            && *as_it_was == state
        {
            return Ok(sha256.clone());
        }
        let sha256 = node::sha256(file.take(state.bytes))?;
        self.hashed = Some((path.to_owned(), state, sha256.clone()));
        Ok(sha256)
    }

    /// Sends the new output of a log, and of what was dropped from it only the length. What is written meanwhile is of the
    /// next round.
    pub(super) fn log(&mut self, path: &str) -> Result<(), TravelError> {
        let place = self.folder.join(path);
        let mut file = File::open(&place).map_err(disk("read", &place))?;
        let length = file.metadata().map_err(disk("read", &place))?.len();
        let mut offset = self.grown.get(path).copied().unwrap_or(0);
        while offset < length || !self.grown.contains_key(path) {
            if self.is_over() {
                return Err(TravelError::Late);
            }
            let piece = next_piece(&file, offset, length, !self.has_older_loop).map_err(disk("read", &place))?;
            let (bytes, hole) = match piece {
                Piece::Hole(hole) => (Vec::new(), hole),
                Piece::Data(most) => (part(&mut file, offset, most).map_err(disk("read", &place))?, 0),
            };
            if bytes.is_empty() && hole == 0 && self.grown.contains_key(path) {
                break;
            }
            let end = offset + bytes.len() as u64 + hole;
            let part = BroughtPart { fence: self.fence.0, offset, total: None, sha256: None, modified: None, hole };
            let Some(files) = &self.files else { return Ok(()) };
            let received = files.bring(&self.run, path, &part, (bytes, self.left(REQUEST)))?;
            if hole > 0 && received.bytes == offset {
                // It is sent as the zeros that it reads as.
                self.has_older_loop = true;
                continue;
            }
            // The loop may have lost earlier parts.
            offset = received.bytes.min(end);
            self.grown.insert(path.to_owned(), offset);
            self.moved(path, offset);
        }
        Ok(())
    }
}

/// Every file below a folder of a run, each with its path from the run's folder, and the first error: what could not be
/// listed is not deleted.
pub(in crate::travel) fn below(root: &Path, folder: &str) -> (Vec<String>, Result<(), TravelError>) {
    let (mut paths, mut errors) = (Vec::new(), PassedOver::default());
    collect(root, folder, &mut paths, &mut errors);
    paths.sort();
    (paths, errors.result())
}

fn collect(root: &Path, folder: &str, paths: &mut Vec<String>, errors: &mut PassedOver) {
    let place = root.join(folder);
    let entries = match fs::read_dir(&place) {
        Ok(entries) => entries,
        Err(error) if error.kind() == ErrorKind::NotFound => return,
        Err(error) => return errors.add(disk("read", &place)(error)),
    };
    for entry in entries {
        let entry = match entry {
            Ok(entry) => entry,
            Err(error) => return errors.add(disk("read", &place)(error)),
        };
        let path = format!("{folder}/{}", entry.file_name().to_string_lossy());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => collect(root, &path, paths, errors),
            Ok(kind) if kind.is_file() && domain::files::is_safe(&path) => paths.push(path),
            _ => {}
        }
    }
}

/// What comes next of a log, and how long it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    /// It was dropped, see [`node::log`].
    Hole(u64),
    /// What was written, up to the next hole where those are of interest.
    Data(u64),
}

/// What a log of this length has from an offset on. With `takes_holes` unset, holes are data like any other.
fn next_piece(log: &File, offset: u64, length: u64, takes_holes: bool) -> std::io::Result<Piece> {
    let left = length.saturating_sub(offset);
    if left == 0 || !takes_holes {
        return Ok(Piece::Data(left));
    }
    let begin = next_data(log, offset)?.min(length);
    if begin > offset {
        return Ok(Piece::Hole(begin - offset));
    }
    // What was dropped in between is sent as zeros.
    let end = data_end(log, offset)?;
    Ok(Piece::Data(if end > offset { left.min(end - offset) } else { left }))
}

/// The next part to send, of the `most` bytes that are left.
fn part(file: &mut File, offset: u64, most: u64) -> std::io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(offset))?;
    let mut bytes = Vec::new();
    file.take(most.min(PARTS_MAX / 2)).read_to_end(&mut bytes)?;
    Ok(bytes)
}
