//! Checkpoints that are kept in an object store: contents as objects of their own, and an index of them for each change.
//! [`super::index`] says which counts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use domain::files::{BroughtPart, FileInfo, FileListing, FilePart, KeepRequest, Received};
use domain::{Cause, Fence, Finding, RunId};
use store::{Error, Remote};

use super::CheckpointDestination;
use super::index::{CheckpointIndex, IndexedFile, garbage, replaced_by};
use super::reading::{create_index, newest_index, opened, read_index, written};
use super::sending::{SendError, Sending};
use crate::travel::loop_files::TravelError;

/// For a request of an attempt that waits for its checkpoints.
const PATIENT: Duration = Duration::from_secs(300);

/// What to do about credentials that the store refuses.
const DENIED: &str = "renew the machine's credentials if they have expired (`~/.aws/credentials` is read again), and let \
                      them list, read, write and delete in the bucket; then resume the run";

/// So many requests for a file may fail before it is sent from its start.
const FAILURES: u32 = 5;

/// The folder of checkpoints of a run in an object store, for one attempt.
#[derive(Debug)]
pub struct BucketDestination {
    checkpoint_store: String,
    access: store::Access,
    attempt: AttemptOfRun,
    /// Whether a request was refused since the credentials were read.
    is_denied: bool,
    open: Option<OpenBucket>,
}

/// The attempt that reads and writes.
#[derive(Debug, Clone)]
pub struct AttemptOfRun {
    /// Its run.
    pub run: RunId,
    /// The tag of the home that the run is of.
    pub owner: String,
    /// Its number.
    pub fence: Fence,
}

/// A store in which the attempt has begun.
#[derive(Debug)]
struct OpenBucket {
    remote: Remote,
    /// The files as this attempt has sent them; its number is that of the newest index that was written.
    index: CheckpointIndex,
    /// Whether they differ from that index, or it is not known that it was seen.
    is_changed: bool,
    sending: Option<Sending>,
}

impl BucketDestination {
    /// That of an attempt. Nothing is requested yet.
    pub fn new(checkpoint_store: &str, access: &store::Access, attempt: AttemptOfRun) -> BucketDestination {
        let (checkpoint_store, access) = (checkpoint_store.to_owned(), access.renewed());
        BucketDestination { checkpoint_store, access, attempt, is_denied: false, open: None }
    }

    /// The store, in which the attempt has begun: from then on, what older ones write does not count.
    fn open(&mut self, within: Duration) -> Result<&mut OpenBucket, TravelError> {
        if std::mem::take(&mut self.is_denied) {
            self.renew()?;
        }
        let open = match self.open.take() {
            Some(open) => open,
            None => {
                let remote = opened(&self.checkpoint_store, &self.attempt.run, &self.access).map_err(told)?;
                let index = begin(&remote, &self.attempt, within)?;
                OpenBucket { remote, index, is_changed: false, sending: None }
            }
        };
        Ok(self.open.insert(open))
    }

    /// Signs the next requests with the credentials of now. What was sent and is not listed yet is not forgotten.
    fn renew(&mut self) -> Result<(), TravelError> {
        self.access = self.access.renewed();
        if let Some(open) = &mut self.open {
            open.remote = opened(&self.checkpoint_store, &self.attempt.run, &self.access).map_err(told)?;
        }
        Ok(())
    }

    /// Notes a refusal: credentials of a session expire while an attempt runs.
    fn noted<T>(&mut self, result: Result<T, TravelError>) -> Result<T, TravelError> {
        // What succeeds after it may have asked for nothing.
        self.is_denied |= matches!(result, Err(TravelError::Denied(_)));
        result
    }

    fn listing(&mut self, within: Duration) -> Result<FileListing, TravelError> {
        let files = &self.open(within)?.index.files;
        let info = |(path, file): (&String, &IndexedFile)| FileInfo {
            path: path.clone(),
            bytes: file.bytes,
            modified: file.modified,
            is_executable: false,
            is_private: false,
        };
        Ok(FileListing { is_file: false, files: files.iter().map(info).collect() })
    }

    /// The files without their object, each with its name.
    fn without_object(&mut self) -> Result<BTreeMap<String, String>, TravelError> {
        let OpenBucket { remote, index, .. } = self.open(PATIENT)?;
        let names: BTreeSet<String> = remote.object_names(PATIENT).map_err(told)?.into_iter().collect();
        let gone = index.files.iter().filter(|(_, file)| !names.contains(&file.object));
        let named =
            |(path, file): (&String, &IndexedFile)| (path.clone(), format!("{}/{}", remote.location(), file.object));
        Ok(gone.map(named).collect())
    }

    fn read(&mut self, parts: Vec<FilePart>) -> Result<Vec<u8>, TravelError> {
        let OpenBucket { remote, index, .. } = self.open(PATIENT)?;
        let mut contents = Vec::new();
        for FilePart { path, offset, bytes } in parts {
            let lost = || Error::Missing { location: format!("{}/{path}", remote.location()), hint: String::new() };
            let file = index.files.get(&path).ok_or_else(|| told(lost()))?;
            contents.extend(remote.read_range(&file.object, offset..offset + bytes, PATIENT).map_err(told)?);
        }
        Ok(contents)
    }

    fn publish_changes(&mut self, within: Duration) -> Result<(), TravelError> {
        if self.open.as_ref().is_none_or(|open| !open.is_changed) {
            return Ok(());
        }
        self.open(within)?.publish(within)
    }
}

/// Begins an attempt, which accepts what the one before has listed last. Done again, by another machine of the attempt or
/// another thread, it finds the same.
fn begin(remote: &Remote, attempt: &AttemptOfRun, within: Duration) -> Result<CheckpointIndex, TravelError> {
    let AttemptOfRun { run, owner, fence } = attempt;
    let foreign = || refused(Cause::Job, format!("`{}` has checkpoints of another home", remote.location()));
    let (_, before) = newest_index(remote, within).map_err(told)?;
    if before.is_some_and(|index| index.owner != *owner || index.run != *run) {
        return Err(foreign());
    }
    let begun = CheckpointIndex::begun(run.clone(), owner.clone(), *fence);
    if !create_index(remote, &begun, within).map_err(told)? {
        return Err(foreign());
    }
    let bytes = written(&begun).map_err(told)?;
    remote.require_conditions(&begun.name(), bytes, within).map_err(told)?;
    let (names, newest) = newest_index(remote, within).map_err(told)?;
    refuse_replaced(&names, *fence)?;
    let accepted = match newest {
        Some(index) if index.fence == *fence => return Ok(index),
        Some(older) => CheckpointIndex { files: older.files, ..begun.next() },
        None => begun.next(),
    };
    if create_index(remote, &accepted, within).map_err(told)? {
        return Ok(accepted);
    }
    // Another machine of the attempt was faster.
    let first = read_index(remote, (*fence, accepted.number), within).map_err(told)?;
    first.ok_or_else(|| told(Error::Raced { location: remote.location().to_string() }))
}

impl OpenBucket {
    fn publish(&mut self, within: Duration) -> Result<(), TravelError> {
        let begun = Instant::now();
        self.index = self.index.next();
        if !create_index(&self.remote, &self.index, within).map_err(told)? {
            // An earlier try has written it, and its answer was lost: the next try has the next number.
            return Err(told(Error::Raced { location: format!("{}/{}", self.remote.location(), self.index.name()) }));
        }
        let names = self.remote.object_names(within).map_err(told)?;
        refuse_replaced(&names, self.index.fence)?;
        self.is_changed = false;
        // A request whose answer was lost may have stored what is tried again under the same name: a deletion that was late
        // would delete it once it is listed.
        let on_its_way = self.sending.as_ref().map(|sending| sending.object.as_str());
        for name in garbage(&names, &self.index).into_iter().filter(|name| Some(*name) != on_its_way) {
            // What is left is deleted the next time.
            if begun.elapsed() > within || self.remote.remove_object(name, within).is_err() {
                break;
            }
        }
        Ok(())
    }

    /// Sends a part of a file that is not there.
    fn send(
        &mut self,
        (sha256, total): (&str, u64),
        part: &BroughtPart,
        sent: (Vec<u8>, Duration),
    ) -> Result<Option<String>, TravelError> {
        let is_other = |sending: &mut Sending| sending.sha256 != sha256 || sending.total != total;
        if let Some(other) = self.sending.take_if(is_other) {
            other.abandon(&self.remote);
        }
        let object = self.index.object(sha256);
        let sending = self.sending.get_or_insert_with(|| Sending::new(sha256, total, object));
        match sending.take(&self.remote, part, sent) {
            Ok(true) => Ok(self.sending.take().map(|sending| sending.object)),
            Ok(false) => Ok(None),
            Err(error) => {
                sending.failures += 1;
                let may_pass = matches!(&error, SendError::Store(error) if may_pass(error));
                if !may_pass || sending.failures > FAILURES {
                    self.abandon();
                }
                Err(match error {
                    SendError::Changed => TravelError::Changing,
                    SendError::Store(error) => told(error),
                })
            }
        }
    }

    /// Takes a part of a file, and lists the file once it is whole.
    fn bring(&mut self, path: &str, part: &BroughtPart, sent: (Vec<u8>, Duration)) -> Result<Received, TravelError> {
        // Files of checkpoints are sent as whole ones.
        let (Some(total), Some(sha256)) = (part.total, part.sha256.as_deref()) else {
            return Err(TravelError::Changing);
        };
        let object = match self.index.holding(sha256, total).map(|file| file.object.clone()) {
            Some(object) => object,
            None => match self.send((sha256, total), part, sent)? {
                Some(object) => object,
                None => {
                    let bytes = self.sending.as_ref().map_or(0, Sending::taken);
                    return Ok(Received { bytes, is_whole: false });
                }
            },
        };
        let modified = part.modified.unwrap_or_default();
        let file = IndexedFile { bytes: total, modified, sha256: sha256.to_owned(), object };
        self.is_changed |= self.index.add(path, file);
        Ok(Received { bytes: total, is_whole: true })
    }

    fn abandon(&mut self) {
        if let Some(sending) = self.sending.take() {
            sending.abandon(&self.remote);
        }
    }
}

impl Drop for OpenBucket {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl CheckpointDestination for BucketDestination {
    fn list(&mut self, within: Option<Duration>) -> Result<FileListing, TravelError> {
        let listing = self.listing(within.unwrap_or(PATIENT));
        self.noted(listing)
    }

    fn gone(&mut self) -> Result<BTreeMap<String, String>, TravelError> {
        let gone = self.without_object();
        self.noted(gone)
    }

    fn parts(&mut self, parts: Vec<FilePart>) -> Result<Vec<u8>, TravelError> {
        let contents = self.read(parts);
        self.noted(contents)
    }

    fn bring(&mut self, path: &str, part: &BroughtPart, sent: (Vec<u8>, Duration)) -> Result<Received, TravelError> {
        let received = self.open(sent.1).and_then(|open| open.bring(path, part, sent));
        self.noted(received)
    }

    fn keep(&mut self, request: &KeepRequest, within: Duration) -> Result<(), TravelError> {
        let kept = self.open(within).map(|open| open.is_changed |= open.index.keep(request));
        self.noted(kept)
    }

    fn publish(&mut self, within: Duration) -> Result<(), TravelError> {
        let published = self.publish_changes(within);
        self.noted(published)
    }
}

/// Refuses an attempt after which another one has begun.
fn refuse_replaced(names: &[String], fence: Fence) -> Result<(), TravelError> {
    let Some(newer) = replaced_by(names, fence) else { return Ok(()) };
    Err(refused(Cause::Fenced, format!("attempt {} was replaced by attempt {}", fence.0, newer.0)))
}

fn refused(cause: Cause, message: String) -> TravelError {
    let hint = match cause {
        Cause::Job => "name another prefix in `checkpoint_store`",
        _ => "see `gradus events`",
    };
    TravelError::Store(Box::new(Finding::new(cause, message).hint(hint)))
}

/// Whether the same request may succeed later, maybe with renewed credentials.
fn may_pass(error: &Error) -> bool {
    matches!(error, Error::Network { .. } | Error::Unreachable { .. } | Error::Refused { .. })
}

/// An error of the store: after one that may pass, another attempt is worthwhile.
pub(super) fn told(error: Error) -> TravelError {
    let finding = error.finding();
    let finding = match error {
        Error::Refused { .. } => return TravelError::Denied(Box::new(finding.hint(DENIED))),
        Error::NoCredentials { .. } => return TravelError::Denied(Box::new(finding)),
        Error::Missing { .. } => Finding { cause: Cause::Unreadable, ..finding }
            .hint("let nothing but gradus delete objects of a `checkpoint_store`"),
        Error::Network { .. } | Error::Unreachable { .. } | Error::Raced { .. } | Error::Damaged { .. } => {
            Finding { cause: Cause::Unreadable, ..finding }
        }
        _ => finding,
    };
    TravelError::Store(Box::new(finding))
}
