//! Fetches the checkpoints that an attempt resumes from, unless this machine has the same or newer ones.

use std::fs;
use std::path::Path;

use checkpoint::CheckpointManifest;
use domain::Work;
use domain::files::FileInfo;
use domain::wire::Start;

use super::loop_files::{LoopFiles, TravelError, disk, fetch};

/// Files in the folder of checkpoints that belong to a machine, and do not travel.
pub(super) fn is_own(path: &str) -> bool {
    matches!(path, "lock" | "fence") || path.rsplit('/').next().is_some_and(|name| name.starts_with('.'))
}

/// Brings the folder of checkpoints up to date.
pub fn bring(files: &LoopFiles, start: &Start) -> Result<(), TravelError> {
    let folder = Path::new(&start.folder).join("checkpoints");
    let address = format!("runs/{}/files", start.run);
    let listing = match files.list(&address) {
        // Nothing was uploaded there yet.
        Err(TravelError::Refused(_)) => return Ok(()),
        listing => listing?,
    };
    let mut wanted: Vec<FileInfo> = listing.files.into_iter().filter(|file| !is_own(&file.path)).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    if matches!(start.job.work, Work::Command(_)) {
        return fetch(files, &address, &wanted, &folder);
    }
    let (manifests, others): (Vec<FileInfo>, Vec<FileInfo>) =
        wanted.drain(..).partition(|file| is_manifest(&file.path));
    let beside = folder.join(".loop");
    let _ = fs::remove_dir_all(&beside);
    fetch(files, &address, &manifests, &beside)?;
    let (theirs, ours) = (newest(&beside), newest(&folder));
    // A local checkpoint that was not uploaded is newer, unless another attempt has resumed from there since.
    let is_ahead = match (ours, theirs) {
        (Some((fence, step)), Some((their_fence, their_step))) => fence >= their_fence && step >= their_step,
        (Some(_), None) => true,
        (None, _) => false,
    };
    if !is_ahead {
        for path in manifests_in(&folder) {
            fs::remove_file(&path).map_err(disk("delete", &path))?;
        }
        fetch(files, &address, &others, &folder)?;
        for manifest in &manifests {
            let path = folder.join(&manifest.path);
            fs::rename(beside.join(&manifest.path), &path).map_err(disk("write", &path))?;
        }
    }
    let _ = fs::remove_dir_all(&beside);
    Ok(())
}

pub(super) fn is_manifest(path: &str) -> bool {
    path.starts_with("manifest-") && path.ends_with(".json")
}

fn manifests_in(folder: &Path) -> Vec<std::path::PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let entries = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_manifest));
    entries.map(|entry| entry.path()).collect()
}

/// Number of the attempt and step of the newest manifest.
fn newest(folder: &Path) -> Option<(u64, u64)> {
    let read = |path: std::path::PathBuf| {
        let manifest: CheckpointManifest = serde_json::from_slice(&fs::read(path).ok()?).ok()?;
        Some((manifest.fence.0, manifest.step))
    };
    manifests_in(folder).into_iter().filter_map(read).max()
}
