//! One commit: data, then the manifest that names it, then the removal of what is no longer needed.
//!
//! Each file is staged (temporary name, hash, sync), then renamed. The folders are synced before the manifest is
//! staged, so nothing it names can be missing after a loss of power. The manifest is renamed under the folder's lock,
//! after a look at the fence. See the crate's page for the names.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use domain::id::Fence;

use crate::disk::{Disk, Staged};
use crate::manifest::{BestEntry, Data, FileEntry, Manifest, SCHEMA, manifest_name};
use crate::snapshot::{Best, Identity, Snapshot};
use crate::tensor::{Tensor, write_to};
use crate::{Error, fence, sweep};

/// What it takes to commit snapshots into one folder.
#[derive(Debug)]
pub(crate) struct Committer {
    pub(crate) disk: Disk,
    pub(crate) folder: PathBuf,
    pub(crate) identity: Identity,
    /// How many of the newest checkpoints stay.
    pub(crate) keep: usize,
    /// The best weights that the newest manifest names.
    pub(crate) best: Option<(BestEntry, FileEntry)>,
    #[cfg(feature = "mutants")]
    pub(crate) mutant: Option<crate::Mutant>,
}

impl Committer {
    /// For a folder that this identity has claimed.
    pub(crate) fn new(folder: &Path, identity: Identity, keep: u32, resumed: Option<&Manifest>) -> Committer {
        Committer {
            disk: Disk::default(),
            folder: folder.to_owned(),
            identity,
            keep: keep as usize,
            best: resumed.and_then(|manifest| Some((manifest.best.clone()?, manifest.best_file()?.clone()))),
            #[cfg(feature = "mutants")]
            mutant: None,
        }
    }

    /// Makes `snapshot` durable and returns the size of all its files. When it fails, what was durable before still is.
    pub(crate) fn commit(&mut self, snapshot: &Snapshot) -> Result<u64, Error> {
        // Said again under the lock; here it only saves the work.
        fence::check(&self.folder, self.identity.fence)?;
        let written = self.write(snapshot);
        if written.is_err() {
            // A later attempt sweeps what an earlier one is still writing; then that is the reason, not a lost file.
            self.tidy()?;
        }
        written
    }

    /// Removes what no manifest names: the remains of dead attempts, and of a commit that failed.
    ///
    /// # Errors
    /// Only [`Error::Fenced`]. What cannot be removed now will be after a later commit.
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

    fn write(&mut self, snapshot: &Snapshot) -> Result<u64, Error> {
        let step_folder = self.step_folder(snapshot.step)?;
        let path = self.folder.join(&step_folder);
        let mut staged = Vec::new();
        for (file, tensors) in Data::FILES.into_iter().zip([&snapshot.model, &snapshot.training]) {
            staged.push(self.stage_tensors(&path.join(file), format!("{step_folder}/{file}"), tensors)?);
        }
        let new_best = snapshot.best.as_deref().filter(|best| Some(best.step) != self.best_step());
        if let Some(best) = new_best {
            let name = self.best_name(best);
            staged.push(self.stage_tensors(&self.folder.join(&name), name, &best.model)?);
        }

        let mut files: Vec<FileEntry> = staged.iter().map(|staged| staged.entry.clone()).collect();
        let best = match new_best {
            Some(best) => {
                files.last().map(|file| (BestEntry { step: best.step, name: file.name.clone() }, file.clone()))
            }
            None => {
                files.extend(self.best.iter().map(|(_, file)| file.clone()));
                self.best.clone()
            }
        };
        let bytes = files.iter().map(|file| file.bytes).sum();
        let manifest = self.manifest(snapshot, best.as_ref().map(|(entry, _)| entry.clone()), files);

        let late = if self.manifest_first() { std::mem::take(&mut staged) } else { Vec::new() };
        self.publish_data(staged, &path)?;
        let manifest_path = self.folder.join(manifest_name(snapshot.step));
        let manifest_text = manifest.to_text();
        let staged_manifest = self
            .disk
            .stage(&manifest_path, String::new(), &self.mark(), |sink| sink.write(manifest_text.as_bytes()))?;
        {
            let _lock = fence::lock(&self.folder)?;
            fence::check(&self.folder, self.identity.fence)?;
            chaos::point("manifest.before");
            self.disk.publish_synced(staged_manifest)?;
            chaos::point("manifest.after");
            if !late.is_empty() {
                self.publish_data(late, &path)?;
            }
            self.best = best;
            // The state is durable, so trouble with removing is no failure: a later commit tries again.
            let _ = sweep::old(&self.disk, &self.folder, &manifest, self.keep);
        }
        Ok(bytes)
    }

    /// Renames data into place and makes that durable.
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

    /// Makes a folder that no manifest names yet, even when this attempt saves the same step again.
    fn step_folder(&self, step: u64) -> Result<String, Error> {
        let mut again = 0;
        loop {
            let name = Data::Step { step, fence: self.fence(), again }.name();
            let path = self.folder.join(&name);
            match self.disk.create_folder(&path) {
                Ok(()) => return Ok(name),
                Err(error) if error.kind() == ErrorKind::AlreadyExists && path.is_dir() => again += 1,
                Err(error) => return Err(Error::writing("create", &path, error)),
            }
        }
    }

    fn best_name(&self, best: &Best) -> String {
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

    fn manifest(&self, snapshot: &Snapshot, best: Option<BestEntry>, files: Vec<FileEntry>) -> Manifest {
        Manifest {
            schema: SCHEMA,
            run: self.identity.run.clone(),
            attempt: self.identity.attempt.clone(),
            fence: self.fence(),
            job_hash: self.identity.job_hash.clone(),
            step: snapshot.step,
            state: snapshot.state.clone(),
            best,
            files,
        }
    }

    fn fence(&self) -> Fence {
        self.identity.fence
    }

    /// What tells this attempt's temporary files from another's.
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
