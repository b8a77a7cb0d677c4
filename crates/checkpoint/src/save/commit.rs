//! One commit: data, then the manifest that lists it, then the removal of what is no longer needed.
//!
//! Each file is staged (temporary name, hash, sync), then renamed. The folders are synced before the manifest is
//! staged, so nothing it lists can be missing after a power failure. The manifest is renamed under the folder's lock,
//! after the fence is checked. See the crate documentation for the names.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use domain::id::Fence;
use domain::train::Codec;

use crate::chain::{self, Base};
use crate::disk::{Disk, Staged};
use crate::manifest::{
    BestEntry, CHAIN_SCHEMA, ChainEntry, CheckpointManifest, Data, FileEntry, PARTS_SCHEMA, SCHEMA, manifest_name,
};
use crate::snapshot::{BestWeights, Snapshot, SnapshotPart, WriterIdentity};
use crate::tensor::{Tensor, write_to};
use crate::{Error, fence, part, sweep};

/// The beginnings of links, of the model's tensors and of the training state's.
type Heads = [Vec<Vec<u8>>; 2];

/// Commits snapshots into one folder.
#[derive(Debug)]
pub(crate) struct Committer {
    pub(crate) disk: Disk,
    pub(crate) folder: PathBuf,
    pub(crate) identity: WriterIdentity,
    /// How many of the newest checkpoints stay.
    pub(crate) keep: usize,
    /// Of all, every so many stay as well.
    pub(crate) keep_every: Option<u32>,
    /// The number of the newest checkpoint among those of its run, where they are counted.
    number: u64,
    /// The best weights that the newest manifest names.
    pub(crate) best: Option<(BestEntry, Vec<FileEntry>)>,
    /// Set to stop waiting for the parts of other ranks.
    pub(crate) ending: Arc<AtomicBool>,
    /// In which form tensors are written.
    pub(crate) codec: Codec,
    /// The base of the next checkpoint.
    pub(crate) base: Option<Base>,
    /// The base of the one after, once its tensors are retained.
    next: Option<(Vec<ChainEntry>, Heads)>,
    #[cfg(feature = "mutants")]
    pub(crate) mutant: Option<crate::Mutant>,
}

impl Committer {
    /// For a folder that this identity has claimed.
    pub(crate) fn new(
        folder: &Path,
        identity: WriterIdentity,
        keep: u32,
        resumed: Option<&CheckpointManifest>,
    ) -> Committer {
        Committer {
            disk: Disk::default(),
            folder: folder.to_owned(),
            identity,
            keep: keep as usize,
            keep_every: None,
            number: resumed.map_or(0, |manifest| manifest.number),
            best: resumed.and_then(|manifest| Some((manifest.best.clone()?, manifest.best_files().to_vec()))),
            ending: Arc::default(),
            codec: Codec::Full,
            base: None,
            next: None,
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }

    /// The same, in another form.
    pub(crate) fn coded(self, codec: Codec) -> Committer {
        Committer { codec, ..self }
    }

    /// The same, and of all checkpoints every so many stay.
    pub(crate) fn keeping_every(self, keep_every: Option<u32>) -> Committer {
        Committer { keep_every, ..self }
    }

    /// Retains the tensors of the last committed snapshot if the next one may build on them; the snapshot gets the
    /// previously retained ones in exchange, whose memory can be reused.
    pub(crate) fn retain(&mut self, snapshot: &mut Snapshot) {
        let Some((chain, [model, training])) = self.next.take() else { return };
        let base = self.base.get_or_insert_default();
        (base.chain, base.model.heads, base.training.heads) = (chain, model, training);
        std::mem::swap(&mut base.model.tensors, &mut snapshot.model);
        std::mem::swap(&mut base.training.tensors, &mut snapshot.training);
    }

    /// Commits `snapshot` and returns the size of all its files. On failure, earlier checkpoints remain durable.
    pub(crate) fn commit(&mut self, snapshot: &Snapshot) -> Result<u64, Error> {
        // Checked again under the lock; here it only avoids useless work.
        fence::check(&self.folder, self.identity.fence)?;
        let written = match &snapshot.part {
            Some(part) => self.write_part(snapshot, part),
            None => self.write(snapshot),
        };
        if snapshot.part.as_ref().is_some_and(|part| part.rank > 0) {
            return written;
        }
        if written.is_err() {
            // A later attempt may sweep the files of an earlier one; then that is the error to report, not a lost file.
            self.tidy()?;
        }
        written
    }

    /// Removes what no manifest lists: leftovers of dead attempts, and of a failed commit.
    ///
    /// # Errors
    /// Only [`Error::Fenced`]. Files that cannot be removed now are removed after a later commit.
    pub(crate) fn tidy(&self) -> Result<(), Error> {
        let tidied = fence::lock(&self.folder).and_then(|_lock| {
            fence::check(&self.folder, self.fence())?;
            sweep::unnamed(&self.disk, &self.folder)
        });
        match tidied {
            Err(error @ Error::Fenced { .. }) => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    /// Stages the data, publishes it, then publishes the manifest that names it.
    fn write(&mut self, snapshot: &Snapshot) -> Result<u64, Error> {
        let step_folder = self.step_folder(snapshot.step)?;
        let path = self.folder.join(&step_folder);
        let (mut staged, heads, chain) = self.stage_step(snapshot, &step_folder)?;
        let own: Vec<FileEntry> = staged.iter().map(|staged| staged.entry.clone()).collect();
        let new_best = snapshot.best.as_deref().filter(|best| Some(best.step) != self.best_step());
        if let Some(best) = new_best {
            let name = self.best_name(best);
            staged.push(self.stage_tensors(&self.folder.join(&name), name, &best.model)?);
        }

        let mut files: Vec<FileEntry> = staged.iter().map(|staged| staged.entry.clone()).collect();
        let best = match new_best {
            Some(best) => {
                files.last().map(|file| (BestEntry { step: best.step, name: file.name.clone() }, vec![file.clone()]))
            }
            None => {
                files.extend(self.best.iter().flat_map(|(_, files)| files.clone()));
                self.best.clone()
            }
        };
        let bytes = files.iter().map(|file| file.bytes).sum();
        let manifest = self.manifest(snapshot, best.as_ref().map(|(entry, _)| entry.clone()), files, chain);
        // Best weights that several ranks have written are known to readers of parts only.
        let schema =
            if best.as_ref().is_some_and(|(_, files)| files.len() > 1) { PARTS_SCHEMA } else { manifest.schema };
        let manifest = CheckpointManifest { schema, ..manifest };

        let late = if self.manifest_first() { std::mem::take(&mut staged) } else { Vec::new() };
        self.publish_data(staged, &path)?;
        let _lock = self.publish_manifest(&manifest)?;
        if !late.is_empty() {
            self.publish_data(late, &path)?;
        }
        (self.best, self.number) = (best, manifest.number);
        if self.codec == Codec::Delta {
            let own = ChainEntry { step: snapshot.step, files: own };
            self.next = Some((manifest.chain.iter().cloned().chain([own]).collect(), heads));
        }
        // The state is durable, so trouble with removing is no failure: a later commit tries again.
        let _ = sweep::old(&self.disk, &self.folder, &manifest, (self.keep, self.keep_every));
        Ok(bytes)
    }

    /// Writes this rank's part; on the first rank, waits for the others' and publishes the manifest that names all.
    fn write_part(&mut self, snapshot: &Snapshot, part: &SnapshotPart) -> Result<u64, Error> {
        let written = part::write(&self.disk, &self.folder, &self.mark(), snapshot, part);
        if part.rank > 0 {
            let report = part::tell(&self.disk, &self.folder, part, &written);
            return written.and_then(|files| report.map(|()| files.iter().map(|file| file.bytes).sum()));
        }
        let mut files = part::gather(&self.folder, part, self.fence(), written?, &self.ending)?;
        let best = match (&part.best_folder, &snapshot.best) {
            (Some(name), Some(best)) => {
                let parts = files[2 * part.of as usize..].to_vec();
                Some((BestEntry { step: best.step, name: name.clone() }, parts))
            }
            (_, _) => {
                files.extend(self.best.iter().flat_map(|(_, files)| files.clone()));
                self.best.clone()
            }
        };
        let bytes = files.iter().map(|file| file.bytes).sum();
        self.disk.sync_folder(&self.folder)?;
        let manifest = self.manifest(snapshot, best.as_ref().map(|(entry, _)| entry.clone()), files, Vec::new());
        let manifest = CheckpointManifest { schema: PARTS_SCHEMA, ..manifest };
        let _lock = self.publish_manifest(&manifest)?;
        (self.best, self.number) = (best, manifest.number);
        // The state is durable, so trouble with removing is no failure: a later commit tries again.
        let _ = sweep::old(&self.disk, &self.folder, &manifest, (self.keep, self.keep_every));
        Ok(bytes)
    }

    /// Stages the two files of a step, complete or as deltas to the previous checkpoint; also returns the heads of the
    /// links, and the chain that they build on.
    fn stage_step(
        &self,
        snapshot: &Snapshot,
        step_folder: &str,
    ) -> Result<(Vec<Staged>, Heads, Vec<ChainEntry>), Error> {
        let path = self.folder.join(step_folder);
        let base = self.base.as_ref().filter(|base| base.has_room());
        let (mut staged, mut heads) = (Vec::new(), [Vec::new(), Vec::new()]);
        let names = match self.codec {
            Codec::Full => Data::FILES,
            Codec::Delta => Data::LINKS,
        };
        for (number, tensors) in [&snapshot.model, &snapshot.training].into_iter().enumerate() {
            let (file, name) = (path.join(names[number]), format!("{step_folder}/{}", names[number]));
            staged.push(match self.codec {
                Codec::Full => self.stage_tensors(&file, name, tensors)?,
                Codec::Delta => {
                    let (links, found) = chain::pack(tensors, base.map(|base| base.layer(number)));
                    heads[number] = found;
                    self.disk.stage(&file, name, &self.mark(), |sink| write_to(sink, &links, &[]))?
                }
            });
        }
        Ok((staged, heads, base.map(|base| base.chain.clone()).unwrap_or_default()))
    }

    /// Renames the manifest into place under the folder's lock, after the fence is checked; returns the lock.
    fn publish_manifest(&self, manifest: &CheckpointManifest) -> Result<fence::Lock, Error> {
        let path = self.folder.join(manifest_name(manifest.step));
        let text = manifest.to_text();
        let staged = self.disk.stage(&path, String::new(), &self.mark(), |sink| sink.write(text.as_bytes()))?;
        let lock = fence::lock(&self.folder)?;
        fence::check(&self.folder, self.identity.fence)?;
        chaos::point("manifest.before");
        self.disk.publish_synced(staged)?;
        chaos::point("manifest.after");
        Ok(lock)
    }

    /// Renames data into place and syncs it.
    fn publish_data(&self, staged: Vec<Staged>, step_folder: &Path) -> Result<(), Error> {
        for staged in staged {
            chaos::point("rename.before");
            self.disk.publish(staged)?;
            chaos::point("rename.after");
        }
        self.disk.sync_folder(step_folder)?;
        self.disk.sync_folder(&self.folder)
    }

    fn stage_tensors(&self, path: &Path, name: String, tensors: &[Tensor]) -> Result<Staged, Error> {
        self.disk.stage(path, name, &self.mark(), |sink| write_to(sink, tensors, &[("format", "pt")]))
    }

    /// Makes the folder of a step.
    fn step_folder(&self, step: u64) -> Result<String, Error> {
        new_folder(&self.disk, &self.folder, |again| Data::Step { step, fence: self.fence(), again })
    }

    fn best_name(&self, best: &BestWeights) -> String {
        let mut again = 0;
        loop {
            let name = Data::Best { step: best.step, fence: self.fence(), again }.name();
            if !self.folder.join(&name).exists() {
                return name;
            }
            again += 1;
        }
    }

    fn best_step(&self) -> Option<u64> {
        self.best.as_ref().map(|(entry, _)| entry.step)
    }

    fn manifest(
        &self,
        snapshot: &Snapshot,
        best: Option<BestEntry>,
        files: Vec<FileEntry>,
        chain: Vec<ChainEntry>,
    ) -> CheckpointManifest {
        let schema = match self.codec {
            Codec::Full => SCHEMA,
            Codec::Delta => CHAIN_SCHEMA,
        };
        CheckpointManifest {
            schema,
            run: self.identity.run.clone(),
            attempt: self.identity.attempt.clone(),
            fence: self.fence(),
            job_hash: self.identity.job_hash.clone(),
            step: snapshot.step,
            state: snapshot.state.clone(),
            number: self.keep_every.map_or(0, |_| self.number + 1),
            best,
            files,
            chain,
        }
    }

    fn fence(&self) -> Fence {
        self.identity.fence
    }

    /// The mark of this attempt's temporary files.
    fn mark(&self) -> String {
        format!(".a{}", self.fence().0)
    }

    #[cfg(feature = "mutants")]
    fn manifest_first(&self) -> bool {
        self.mutant == Some(crate::Mutant::ManifestFirst)
    }

    #[cfg(not(feature = "mutants"))]
    fn manifest_first(&self) -> bool {
        false
    }
}

/// Makes a folder that no manifest names yet, even when this attempt saves the same step again.
pub(crate) fn new_folder(disk: &Disk, folder: &Path, name: impl Fn(u64) -> Data) -> Result<String, Error> {
    let mut again = 0;
    loop {
        let name = name(again).name();
        let path = folder.join(&name);
        match disk.create_folder(&path) {
            Ok(()) => return Ok(name),
            Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => again += 1,
            Err(error) => return Err(Error::writing("create", &path, error)),
        }
    }
}
