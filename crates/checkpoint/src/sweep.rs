//! What may go after a commit: old checkpoints, data that no manifest names, temporary files of dead attempts.
//!
//! Runs under the folder's lock, after a look at the fence, so whatever is unfinished here belongs to nobody. Manifests
//! go before their data, durably, so that no moment shows a manifest without it.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

use crate::Error;
use crate::disk::{Disk, TEMPORARY};
use crate::manifest::{Data, Manifest, manifest_step};

/// Keeps the newest `keep` checkpoints of this job up to and with `newest`, and what is not ours; removes the rest.
///
/// Manifests of later steps go too: they did not verify, or their run was resumed from before them.
pub(crate) fn sweep(disk: &Disk, folder: &Path, newest: &Manifest, keep: usize) -> Result<(), Error> {
    let trouble = |source| Error::File { doing: "sweep", path: folder.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(trouble)? {
        if let Ok(name) = entry.map_err(trouble)?.file_name().into_string() {
            names.push(name);
        }
    }

    let mut manifests: Vec<(u64, &String)> =
        names.iter().filter_map(|name| Some((manifest_step(name)?, name))).collect();
    manifests.sort_unstable_by_key(|(step, _)| std::cmp::Reverse(*step));
    let mut needed = HashSet::new();
    let mut doomed = Vec::new();
    let mut kept = 0;
    for (step, name) in manifests {
        let manifest = fs::read(folder.join(name)).map_err(|error| error.to_string()).and_then(|bytes| Manifest::read(&bytes));
        match manifest {
            Ok(manifest) if manifest.job_hash != newest.job_hash => needed.extend(data_names(&manifest)),
            Ok(manifest) if step <= newest.step && kept < keep.max(1) => {
                kept += 1;
                needed.extend(data_names(&manifest));
            }
            Ok(_) | Err(_) => doomed.push(name),
        }
    }

    for name in &doomed {
        disk.remove_file(&folder.join(name)).map_err(trouble)?;
    }
    if !doomed.is_empty() {
        disk.sync_folder(folder)?;
    }
    for name in &names {
        let path = folder.join(name);
        match Data::parse(name) {
            Some(_) if needed.contains(name) => {}
            Some(Data::Step { .. }) => disk.remove_folder(&path).map_err(trouble)?,
            Some(Data::Best { .. }) => disk.remove_file(&path).map_err(trouble)?,
            None if name.ends_with(TEMPORARY) => disk.remove_file(&path).map_err(trouble)?,
            None => {}
        }
    }
    Ok(())
}

/// The entries of the folder that a manifest needs: the folder of its step, and the file of its best weights.
fn data_names(manifest: &Manifest) -> impl Iterator<Item = String> {
    manifest.files.iter().map(|file| file.name.split('/').next().unwrap_or_default().to_owned())
}
