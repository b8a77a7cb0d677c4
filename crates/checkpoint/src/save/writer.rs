//! The thread that commits in the background.
//!
//! The training thread copies its state into a [`Snapshot`], passes it on with [`CheckpointWriter::save`] and takes the
//! next step; the thread here hashes, writes and syncs. One snapshot is in flight at a time.
//! [`CheckpointWriter::keep_up`] bounds how far training may run ahead of it, and with that the work that a kill can
//! cost.
//!
//! ```text
//! loop {
//!     report(writer.keep_up(next_step, pace.lag())?);      // waits only when the disk is too slow
//!     train(next_step);
//!     if pace.due(next_step, …) {
//!         let spare = writer.spare();                       // memory of an earlier snapshot, to copy into
//!         report(writer.save(snapshot(spare))?);            // waits only for an unfinished earlier one
//!     }
//! }
//! report(writer.wait()?);
//! ```

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use domain::id::Fence;
use domain::rank::Checkpointed;
use domain::train::{Checkpoint, Codec};

use crate::commit::{Committer, new_folder};
use crate::disk::Disk;
use crate::fence;
use crate::manifest::Data;
use crate::{CheckpointManifest, Error, Snapshot, WriterIdentity, part};

/// Which checkpoints stay, beside those whose best weights a later one names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// So many of the newest, at least one.
    pub newest: u32,
    /// Of all that a run has saved, every so many.
    pub every: Option<u32>,
}

impl Retention {
    /// As a job says.
    pub fn of(checkpoint: &Checkpoint) -> Retention {
        Retention { newest: checkpoint.keep, every: checkpoint.keep_every }
    }
}

/// Saves snapshots in the background, one at a time. Dropping it waits for the one under way.
#[derive(Debug)]
pub struct CheckpointWriter {
    /// `None` only while dropping.
    snapshots: Option<Sender<Snapshot>>,
    outcomes: Receiver<Outcome>,
    thread: Option<JoinHandle<()>>,
    under_way: Option<UnderWay>,
    spare: Option<Snapshot>,
    /// The last snapshot, where it could not be saved and is no part.
    failed: Option<Snapshot>,
    folder: PathBuf,
    fence: Fence,
    /// The step of the best weights that were passed last.
    best: Option<u64>,
    /// Tells the thread to stop waiting for the parts of other ranks.
    ending: Arc<AtomicBool>,
    /// Lock held while this process may write parts of checkpoints.
    alive: Option<File>,
}

/// Where the parts of several ranks go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartFolders {
    /// The folder of the step, below that of all checkpoints.
    pub step: String,
    /// The folder for the best weights, if they are new.
    pub best: Option<String>,
}

#[derive(Debug)]
struct Outcome {
    bytes: Result<u64, Error>,
    ended: Instant,
    snapshot: Snapshot,
}

#[derive(Debug)]
struct UnderWay {
    step: u64,
    began: Instant,
    stall: Duration,
}

impl CheckpointWriter {
    /// Claims the folder for this identity, and starts the thread.
    ///
    /// `keep` is the number of newest checkpoints to retain; `resumed` is the manifest that training resumes from, so
    /// that its best weights need not be written again. `codec` is the format; deltas need the memory of one more
    /// state.
    ///
    /// # Errors
    /// If a later attempt has claimed the folder, or it cannot be written.
    pub fn open(
        folder: &Path,
        identity: WriterIdentity,
        keep: u32,
        codec: Codec,
        resumed: Option<&CheckpointManifest>,
    ) -> Result<CheckpointWriter, Error> {
        CheckpointWriter::open_keeping(folder, identity, Retention { newest: keep, every: None }, codec, resumed)
    }

    /// Like [`CheckpointWriter::open`], with what stays of a longer history.
    ///
    /// # Errors
    /// As there.
    pub fn open_keeping(
        folder: &Path,
        identity: WriterIdentity,
        kept: Retention,
        codec: Codec,
        resumed: Option<&CheckpointManifest>,
    ) -> Result<CheckpointWriter, Error> {
        fence::claim(folder, identity.fence)?;
        let committer = Committer::new(folder, identity, kept.newest, resumed).coded(codec).keeping_every(kept.every);
        committer.tidy()?;
        Ok(CheckpointWriter::start(committer))
    }

    /// For a rank that is not the first and writes its part of each checkpoint into a folder that the first one has
    /// claimed.
    pub fn open_part(
        folder: &Path,
        rank: u32,
        identity: WriterIdentity,
        resumed: Option<&CheckpointManifest>,
    ) -> CheckpointWriter {
        let alive = part::hold(folder, rank, identity.fence);
        let mut writer = CheckpointWriter::start(Committer::new(folder, identity, 1, resumed));
        writer.alive = alive;
        writer
    }

    /// On the first rank: waits for the checkpoint in flight, and then creates the folders for the parts of the one
    /// after `step`, with best weights of the step `best`. No rank may write to them before this returns, because each
    /// commit removes files that no manifest lists.
    ///
    /// # Errors
    /// The error of the earlier checkpoint, or why a folder cannot be created.
    pub fn begin_parts(&mut self, step: u64, best: Option<u64>) -> Result<(PartFolders, Option<Checkpointed>), Error> {
        let earlier = self.wait()?;
        let (disk, fence) = (Disk::default(), self.fence);
        fence::check(&self.folder, fence)?;
        let new_best = best.filter(|best| Some(*best) != self.best);
        let new = |name: &dyn Fn(u64) -> Data| new_folder(&disk, &self.folder, name);
        let best = new_best.map(|step| new(&|again| Data::BestParts { step, fence, again })).transpose()?;
        Ok((PartFolders { step: new(&|again| Data::Step { step, fence, again })?, best }, earlier))
    }

    /// Like [`CheckpointWriter::open`], with a deliberate bug.
    #[cfg(feature = "mutants")]
    pub fn open_mutant(
        folder: &Path,
        identity: WriterIdentity,
        kept: Retention,
        codec: Codec,
        resumed: Option<&CheckpointManifest>,
        mutant: Option<crate::Mutant>,
    ) -> Result<CheckpointWriter, Error> {
        fence::claim(folder, identity.fence)?;
        let committer = Committer::new(folder, identity, kept.newest, resumed).coded(codec).keeping_every(kept.every);
        let committer = Committer { mutant, ..committer };
        committer.tidy()?;
        Ok(CheckpointWriter::start(committer))
    }

    fn start(mut committer: Committer) -> CheckpointWriter {
        let (snapshots, inbox) = channel::<Snapshot>();
        let (outbox, outcomes) = channel();
        let (folder, fence, ending) =
            (committer.folder.clone(), committer.identity.fence, Arc::clone(&committer.ending));
        let best = committer.best.as_ref().map(|(best, _)| best.step);
        let thread = std::thread::spawn(move || {
            for mut snapshot in inbox {
                let bytes = committer.commit(&snapshot);
                committer.retain(&mut snapshot);
                let outcome = Outcome { bytes, ended: Instant::now(), snapshot };
                if outbox.send(outcome).is_err() {
                    return;
                }
            }
        });
        let (snapshots, thread) = (Some(snapshots), Some(thread));
        CheckpointWriter {
            snapshots,
            outcomes,
            thread,
            under_way: None,
            spare: None,
            failed: None,
            folder,
            fence,
            best,
            ending,
            alive: None,
        }
    }

    /// Starts to save a snapshot in the background. Waits first if an earlier one is still in flight, and returns its
    /// result.
    ///
    /// # Errors
    /// The error of the earlier one; this one is then not saved.
    pub fn save(&mut self, snapshot: Snapshot) -> Result<Option<Checkpointed>, Error> {
        chaos::point("snapshot");
        let earlier = self.wait()?;
        self.failed = None;
        let (step, began) = (snapshot.step, snapshot.began);
        self.best = snapshot.best.as_ref().map_or(self.best, |best| Some(best.step));
        let sender = self.snapshots.as_ref().ok_or(Error::WriterGone)?;
        sender.send(snapshot).map_err(|_| Error::WriterGone)?;
        self.under_way = Some(UnderWay { step, began, stall: began.elapsed() });
        Ok(earlier)
    }

    /// Whether the newest snapshot could not be saved and is still there for [`CheckpointWriter::save_again`].
    pub fn can_save_again(&self) -> bool {
        self.failed.is_some()
    }

    /// Starts to save the newest snapshot again if it could not be saved, such as on a disk that was full; returns whether
    /// there is one. There is none once [`CheckpointWriter::spare`] has handed it out, nor on a rank that saves a part.
    ///
    /// # Errors
    /// As [`CheckpointWriter::save`].
    pub fn save_again(&mut self) -> Result<bool, Error> {
        let Some(snapshot) = self.failed.take() else { return Ok(false) };
        self.save(Snapshot { began: Instant::now(), ..snapshot })?;
        Ok(true)
    }

    /// The result of the snapshot in flight if it is finished, without waiting.
    ///
    /// # Errors
    /// Why it is not durable; earlier checkpoints remain durable.
    pub fn poll(&mut self) -> Result<Option<Checkpointed>, Error> {
        self.receive(Duration::ZERO)
    }

    /// Waits for the snapshot in flight and returns its result; `None` if there is none.
    ///
    /// # Errors
    /// Why it is not durable; earlier checkpoints remain durable.
    pub fn wait(&mut self) -> Result<Option<Checkpointed>, Error> {
        self.receive(Duration::MAX)
    }

    /// To be called before step `next`: waits while the snapshot in flight is more than `lag` steps behind it.
    ///
    /// # Errors
    /// Why a snapshot is not durable; earlier checkpoints remain durable.
    pub fn keep_up(&mut self, next: u64, lag: u64) -> Result<Option<Checkpointed>, Error> {
        let behind = self.under_way.as_ref().is_some_and(|under_way| next > under_way.step.saturating_add(lag));
        if !behind {
            return self.poll();
        }
        let began = Instant::now();
        let result = self.wait();
        result.map(|done| done.map(|done| Checkpointed { stall_us: done.stall_us + micros(began.elapsed()), ..done }))
    }

    /// The step of the snapshot under way.
    pub fn under_way(&self) -> Option<u64> {
        self.under_way.as_ref().map(|under_way| under_way.step)
    }

    /// The last finished snapshot, whose memory can be reused: allocating takes about as long as the copy itself.
    /// `None` if there is none; its contents are unspecified.
    pub fn spare(&mut self) -> Option<Snapshot> {
        self.spare.take().or_else(|| self.failed.take())
    }

    fn receive(&mut self, patience: Duration) -> Result<Option<Checkpointed>, Error> {
        if self.under_way.is_none() {
            return Ok(None);
        }
        let outcome = match self.outcomes.recv_timeout(patience) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Timeout) => return Ok(None),
            Err(RecvTimeoutError::Disconnected) => {
                self.under_way = None;
                return Err(Error::WriterGone);
            }
        };
        // A part cannot be saved again without those of the other ranks.
        match outcome.bytes.is_err() && outcome.snapshot.part.is_none() {
            true => self.failed = Some(outcome.snapshot),
            false => self.spare = Some(outcome.snapshot),
        }
        let Some(UnderWay { step, began, stall }) = self.under_way.take() else { return Ok(None) };
        let commit_us = micros(outcome.ended.saturating_duration_since(began));
        Ok(Some(Checkpointed { step, bytes: outcome.bytes?, stall_us: micros(stall), commit_us }))
    }
}

impl Drop for CheckpointWriter {
    fn drop(&mut self) {
        self.snapshots = None;
        self.ending.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A panic there has printed its own message.
            let _ = thread.join();
        }
        // All writes are finished or abandoned.
        self.alive = None;
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
