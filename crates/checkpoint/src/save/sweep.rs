//! Removes old checkpoints, data that no manifest lists, and temporary files of dead attempts.
//!
//! A checkpoint that did not verify is never removed by the attempt that found it: its manifest is moved into
//! `aside-aN`, where `N` is that attempt, and its data is retained as long. The first commit of a later attempt removes
//! both.
//!
//! Runs under the folder's lock, after the fence is checked, so no unfinished file here has a live writer. Manifests
//! are removed durably before their data, so that no manifest ever lists missing data. Files that cannot be read for a
//! possibly transient reason, or were written by a later version of this program, are left unchanged, together with
//! everything else.

use std::collections::HashSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use domain::id::Fence;

use crate::Error;
use crate::disk::{Disk, TEMPORARY, file_name};
use crate::manifest::{CheckpointManifest, Data, Flaw, manifest_step};

/// Prefix of folders of rejected manifests, before the number of the attempt.
const ASIDE: &str = "aside-a";

/// Retains the newest `keep` checkpoints of this job up to and including `newest`, of all of them each whose number
/// `keep_every` divides, and foreign files; removes the rest.
///
/// Manifests of later steps, which did not verify or whose run resumed from an earlier step, are moved aside.
pub(crate) fn old(
    disk: &Disk,
    folder: &Path,
    newest: &CheckpointManifest,
    (keep, keep_every): (usize, Option<u32>),
) -> Result<(), Error> {
    let is_one_of_many =
        |number: u64| number > 0 && keep_every.is_some_and(|every| number.is_multiple_of(every.into()));
    let mut manifests = manifests(folder)?;
    manifests.sort_unstable_by_key(|found| std::cmp::Reverse(found.step));
    let mut kept = 0;
    let mut changed = false;
    for Found { step, path, manifest } in manifests {
        match manifest {
            Some(manifest) if manifest.job_hash != newest.job_hash => {}
            Some(_) if step <= newest.step && kept < keep.max(1) => kept += 1,
            Some(manifest) if step < newest.step && is_one_of_many(manifest.number) => {}
            Some(_) if step < newest.step => {
                disk.remove_file(&path).map_err(|error| Error::writing("remove", &path, error))?;
                changed = true;
            }
            Some(_) | None => {
                set_aside(disk, folder, &path, newest.fence)?;
                changed = true;
            }
        }
    }
    for (path, fence) in asides(folder)? {
        if fence < newest.fence {
            disk.remove_folder(&path).map_err(|error| Error::writing("remove", &path, error))?;
            changed = true;
        }
    }
    if changed {
        disk.sync_folder(folder)?;
    }
    unnamed(disk, folder)
}

/// Moves a manifest aside, so that no attempt resumes from it.
fn set_aside(disk: &Disk, folder: &Path, manifest: &Path, fence: Fence) -> Result<(), Error> {
    let aside = folder.join(format!("{ASIDE}{}", fence.0));
    match disk.create_folder(&aside) {
        Ok(()) => {}
        Err(error) if error.kind() == ErrorKind::AlreadyExists && aside.is_dir() => {}
        Err(error) => return Err(Error::writing("create", &aside, error)),
    }
    let target = aside.join(file_name(manifest));
    disk.rename(manifest, &target).map_err(|error| Error::writing("rename", &target, error))?;
    disk.sync_folder(&aside)
}

/// The folders of manifests moved aside, each with the attempt that did it.
fn asides(folder: &Path) -> Result<Vec<(PathBuf, Fence)>, Error> {
    let fence = |name: &str| name.strip_prefix(ASIDE)?.parse().ok().map(Fence);
    let found = names(folder)?.into_iter().filter_map(|name| Some((folder.join(&name), fence(&name)?)));
    Ok(found.filter(|(path, _)| path.is_dir()).collect())
}

/// Removes data that no manifest names, and temporary files of our own.
pub(crate) fn unnamed(disk: &Disk, folder: &Path) -> Result<(), Error> {
    let (mut named, mut damaged) = (HashSet::new(), HashSet::new());
    let mut found = manifests(folder)?;
    for (aside, _) in asides(folder)? {
        found.extend(manifests(&aside)?);
    }
    for Found { step, manifest, .. } in found {
        match manifest {
            Some(manifest) => {
                // The folder of its step and of those it builds on, or the file of its best weights.
                let entries = manifest.layers().flatten().filter_map(|file| file.name.split('/').next());
                named.extend(entries.map(str::to_owned));
            }
            // The files it listed are unknown; the data of its step is retained with it.
            None => {
                damaged.insert(step);
            }
        }
    }
    for name in names(folder)? {
        let path = folder.join(&name);
        let removed = match Data::parse(&name) {
            Some(_) if named.contains(&name) => continue,
            Some(Data::Step { step, .. } | Data::Best { step, .. } | Data::BestParts { step, .. })
                if damaged.contains(&step) =>
            {
                continue;
            }
            Some(Data::Step { .. } | Data::BestParts { .. }) => disk.remove_folder(&path),
            Some(Data::Best { .. }) => disk.remove_file(&path),
            None if is_temporary(&name) => disk.remove_file(&path),
            None => continue,
        };
        removed.map_err(|error| Error::writing("remove", &path, error))?;
    }
    Ok(())
}

/// Whether a name is that of a temporary file of an attempt, such as `manifest-00000020.json.a3.tmp`. A folder may be shared
/// with programs whose files end in the same way.
fn is_temporary(name: &str) -> bool {
    let parts = name.strip_suffix(TEMPORARY).and_then(|name| name.rsplit_once(".a"));
    parts.is_some_and(|(target, attempt)| {
        let is_of_ours = target == "fence"
            || manifest_step(target).is_some()
            || matches!(Data::parse(target), Some(Data::Best { .. }));
        is_of_ours && attempt.parse::<u64>().is_ok()
    })
}

/// A file with the name of a manifest.
struct Found {
    step: u64,
    path: PathBuf,
    /// `None` when it is damaged.
    manifest: Option<CheckpointManifest>,
}

fn manifests(folder: &Path) -> Result<Vec<Found>, Error> {
    let mut manifests = Vec::new();
    for name in names(folder)? {
        let Some(step) = manifest_step(&name) else { continue };
        let path = folder.join(&name);
        let bytes = fs::read(&path).map_err(|source| Error::File { doing: "read", path: path.clone(), source })?;
        let manifest = match CheckpointManifest::read(&bytes) {
            Ok(manifest) => Some(manifest),
            Err(Flaw::Damaged(_)) => None,
            Err(flaw @ Flaw::Later(_)) => return Err(Error::Damaged { path, why: flaw.to_string() }),
        };
        manifests.push(Found { step, path, manifest });
    }
    Ok(manifests)
}

/// The names in the folder; those that are not text are not ours.
fn names(folder: &Path) -> Result<Vec<String>, Error> {
    let trouble = |source| Error::File { doing: "list", path: folder.to_owned(), source };
    let mut names = Vec::new();
    for entry in fs::read_dir(folder).map_err(trouble)? {
        names.extend(entry.map_err(trouble)?.file_name().into_string());
    }
    Ok(names)
}
