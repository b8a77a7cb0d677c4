//! The identity of the data of checkpoints: each checkpoint names the data that it was trained on by a hash, and the
//! list of samples with that hash is a separate file, which all checkpoints of a run share.
//!
//! The first rank compares its data with that of the checkpoint before the first step; the others compare theirs with
//! the first one's.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use checkpoint::CheckpointManifest;
use data::{DataChange, DataIdentity, Preparation, Provenance};
use domain::finding::{Cause, Finding};
use domain::rank::{Report, Spec};
use serde::{Deserialize, Serialize};

use crate::channel::Channel;
use crate::error::Error;
use crate::ranks::Ranks;
use crate::state::TrainProgress;

/// Data sets with more samples are not listed: their names would take more space than most checkpoints.
const LISTED: usize = 8 << 20;

/// Interval of progress reports during preparation; the agent waits many times as long before it ends the rank.
const PULSE: Duration = Duration::from_secs(5);

/// The data identity that a checkpoint records.
#[derive(Debug)]
pub enum Recorded {
    /// There is no checkpoint. The run may have been started before, and have listed and measured its data.
    Nothing { prepared: Option<DataIdentity> },
    /// It is from a version that did not record it.
    Unknown,
    /// The digest, and the list of samples if it is there.
    Data { digest: String, identity: Option<DataIdentity>, is_listed: bool },
}

impl Recorded {
    /// The record in the checkpoint that is resumed, if there is one.
    pub fn by(manifest: Option<&CheckpointManifest>, folder: &Path, job_hash: &str) -> Recorded {
        let Some(manifest) = manifest else { return Recorded::Nothing { prepared: prepared_before(folder, job_hash) } };
        let progress = serde_json::from_value::<TrainProgress>(manifest.state.clone()).ok();
        let Some(digest) = progress.and_then(|progress| progress.data) else { return Recorded::Unknown };
        let identity = List::read(&file(folder, &digest)).map(|list| list.identity);
        let identity = identity.filter(|identity| identity.digest() == digest);
        Recorded::Data { is_listed: identity.is_some(), identity, digest }
    }

    /// The provenance with which every rank opens its data: that of the first rank.
    pub fn provenance(&mut self, spec: &Spec, ranks: &Ranks) -> Result<Provenance, Error> {
        let (identity, is_new) = match self {
            Recorded::Data { identity, .. } => (identity.take(), false),
            Recorded::Unknown => (None, false),
            Recorded::Nothing { prepared } => (prepared.take(), true),
        };
        let [is_new] = ranks.broadcast_flags([is_new])?;
        let text = match (ranks.size(), &identity) {
            (1, _) | (_, None) => String::new(),
            (_, Some(identity)) => identity.to_text(),
        };
        let text = ranks.broadcast_text(0, &text)?;
        let identity = if ranks.is_first() { identity } else { DataIdentity::from_text(&text) };
        let trained_on = trained_on(spec)?;
        // New samples are known and divided by their contents, which every rank needs then.
        let divides_new = spec.accept_data_change || (is_new && trained_on.is_some());
        let reads_contents = ranks.is_first() || divides_new;
        let provenance = match is_new {
            true => Provenance::of_new_run(identity, reads_contents),
            false => Provenance::of_run(identity, spec.accept_data_change, reads_contents),
        };
        Ok(provenance.leaving_out(trained_on))
    }

    /// Compares the data with the recorded identity, and with that of the first rank; returns the digest that
    /// checkpoints carry from now on. Its list is durable then.
    pub fn check(
        &self,
        provenance: &Provenance,
        spec: &Spec,
        channel: &Channel,
        ranks: &Ranks,
    ) -> Result<Option<String>, Error> {
        let found = provenance.found().ok_or_else(|| Finding::new(Cause::Internal, "the data was not listed"))?;
        let outline = found.outline_digest();
        let first = ranks.broadcast_text(0, &outline)?;
        if first != outline {
            let message = format!("rank {} sees other data at `{}` than rank 0", spec.rank, spec.data);
            let hint = "give all ranks the same files; compare them with `gradus data inspect`";
            return Err(Finding::new(Cause::Data, message).hint(hint).into());
        }
        if !ranks.is_first() {
            return Ok(None);
        }
        let digest = found.digest();
        match (self, provenance.change()) {
            (Recorded::Unknown, _) => {
                let text = "the checkpoint was written by a version that did not record its data, so whether the data \
                            has changed since cannot be checked";
                channel.send(Report::Note { text: text.into() });
            }
            (_, Some(change)) => {
                let text = format!(
                    "the data has changed since the checkpoint, which was accepted: {change}; samples that were known \
                     stay in their split"
                );
                channel.send(Report::Note { text });
            }
            (Recorded::Data { digest: recorded, .. }, None) if *recorded != digest => {
                return Err(data::Error::Changed(Box::new(DataChange::unlisted())).into());
            }
            (Recorded::Data { .. } | Recorded::Nothing { .. }, None) => {}
        }
        let is_there = matches!(self, Recorded::Data { digest: recorded, is_listed: true, .. } if *recorded == digest);
        if found.len() <= LISTED && !is_there {
            let path = file(Path::new(&spec.checkpoints), &digest);
            List { job_hash: spec.job_hash.clone(), identity: found.clone() }.write(&path)?;
        }
        Ok(Some(digest))
    }
}

/// The file with the samples of a digest.
#[derive(Debug, Serialize, Deserialize)]
struct List {
    /// The job whose statistics and tokenizer it contains.
    job_hash: String,
    identity: DataIdentity,
}

impl List {
    /// `None` if it is missing or damaged: the digest in the checkpoint is what decides.
    fn read(path: &Path) -> Option<List> {
        let list: List = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        list.identity.is_valid().then_some(list)
    }

    fn write(&self, path: &Path) -> Result<(), Error> {
        let text = serde_json::to_vec(self).map_err(|error| Finding::new(Cause::Internal, error.to_string()))?;
        checkpoint::write_file(path, &text)?;
        Ok(())
    }
}

/// The identity found by an earlier start of this job that reached no checkpoint.
fn prepared_before(folder: &Path, job_hash: &str) -> Option<DataIdentity> {
    let entries = fs::read_dir(folder).ok()?.filter_map(|entry| entry.ok().map(|entry| entry.path()));
    let is_list = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        name.starts_with("data-") && name.ends_with(".json")
    };
    let mut lists: Vec<PathBuf> = entries.filter(is_list).collect();
    lists.sort();
    lists.iter().filter_map(|path| List::read(path)).find(|list| list.job_hash == job_hash).map(|list| list.identity)
}

/// The samples of the run that this one goes on from, if it names one.
fn trained_on(spec: &Spec) -> Result<Option<DataIdentity>, Error> {
    let Some(path) = &spec.train.data.trained_on else { return Ok(None) };
    let list = List::read(Path::new(path)).ok_or_else(|| {
        let hint = "name a file `checkpoints/data-….json` in the folder of a run";
        Finding::new(Cause::Data, format!("`{path}` does not list the samples of a run")).hint(hint)
    })?;
    Ok(Some(list.identity))
}

/// Opens the data, and reports every [`PULSE`] that more of it is prepared.
pub fn prepared<T>(channel: &Channel, preparation: &Preparation, open: impl FnOnce() -> T) -> T {
    let (ended, waits) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut before = preparation.done();
            while waits.recv_timeout(PULSE) == Err(RecvTimeoutError::Timeout) {
                let done = preparation.done();
                if done > before {
                    channel.send(Report::Preparing { done });
                }
                before = done;
            }
        });
        let opened = open();
        drop(ended);
        opened
    })
}

/// Where the list of the samples with this digest is.
fn file(folder: &Path, digest: &str) -> PathBuf {
    folder.join(format!("data-{}.json", digest.get(..16).unwrap_or(digest)))
}

/// Adds the command for this run to the hint of an error.
pub fn named(error: Error, spec: &Spec) -> Error {
    match error {
        Error::Data(data::Error::Changed(change)) if change.can_be_accepted() => {
            let typed = match spec.socket.is_empty() {
                true => "add `--accept-data-change`".to_owned(),
                false => format!("type `gradus resume {} --accept-data-change`", spec.run),
            };
            let error = data::Error::Changed(change);
            let hint = format!("put the data back, or {typed}: samples that the run knows then stay in their split");
            Error::Finding(error.finding().hint(hint))
        }
        other => other,
    }
}
