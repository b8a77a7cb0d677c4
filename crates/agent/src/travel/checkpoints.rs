//! Fetches the checkpoints that an attempt resumes from, unless this machine has the same or newer ones.
//!
//! Those of our own trainer say which is newer. Of a program's files, a copy here that is newer by its time is kept if
//! the attempt before ran here too, with all that was kept elsewhere: then no other attempt has written there since.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use checkpoint::CheckpointManifest;
use domain::files::{FileInfo, KeepRequest};
use domain::wire::Start;
use domain::{Fence, Work};

use super::destination::CheckpointDestination;
use super::loop_files::{REQUEST, TravelError, disk, fetch, micros};
use super::lost::LostCheckpoints;

/// Manifests of the destination's, until all that they list is here.
const BESIDE: &str = ".loop";

/// Files in the folder of checkpoints that belong to a machine, and do not travel.
pub(super) fn is_own(path: &str) -> bool {
    let is_beside = path.strip_prefix(BESIDE).is_some_and(|rest| rest.starts_with('/'));
    is_beside || matches!(path, "lock" | "fence") || path.rsplit('/').next().is_some_and(|name| name.starts_with('.'))
}

/// Brings the folder of checkpoints up to date. Returns what of them is lost.
pub fn bring(destination: &mut dyn CheckpointDestination, start: &Start) -> Result<Vec<String>, TravelError> {
    let folder = Path::new(&start.folder).join("checkpoints");
    let listing = destination.list(None)?;
    let mut wanted: Vec<FileInfo> = listing.files.into_iter().filter(|file| !is_own(&file.path)).collect();
    if matches!(start.job.work, Work::Command(_)) {
        if had_all(start) {
            wanted.retain(|file| !is_newer_here(file, &folder));
        }
        fetch(&mut |parts| destination.parts(parts), &wanted, &folder)?;
        return set_mark(start).map(|()| Vec::new());
    }
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let gone = destination.gone()?;
    wanted.retain(|file| !gone.contains_key(&file.path));
    let (mut manifests, mut others): (Vec<FileInfo>, Vec<FileInfo>) =
        wanted.into_iter().partition(|file| is_manifest(&file.path));
    let beside = folder.join(BESIDE);
    let _ = fs::remove_dir_all(&beside);
    fetch(&mut |parts| destination.parts(parts), &manifests, &beside)?;
    let lost = LostCheckpoints::find(&read_manifests(&beside), &gone);
    manifests.retain(|manifest| !lost.useless.contains(&manifest.path));
    others.retain(|file| !lost.useless.contains(&file.path));
    for path in lost.useless.iter().filter(|path| is_manifest(path)) {
        let path = beside.join(path);
        fs::remove_file(&path).map_err(disk("delete", &path))?;
    }
    let (theirs, ours) = (newest(&beside), newest(&folder));
    if theirs.is_none() && ours.is_none() && !lost.checkpoints.is_empty() {
        return Err(lost.all());
    }
    if !gone.is_empty() {
        // The same contents would count as there, and not be sent again.
        let files = manifests.iter().chain(&others).map(|file| file.path.clone()).collect();
        let request = KeepRequest { fence: start.fence, files, removed: gone.into_keys().collect() };
        destination.keep(&request, REQUEST)?;
        destination.publish(REQUEST)?;
    }
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
        fetch(&mut |parts| destination.parts(parts), &others, &folder)?;
        for manifest in &manifests {
            let path = folder.join(&manifest.path);
            fs::rename(beside.join(&manifest.path), &path).map_err(disk("write", &path))?;
        }
    }
    let _ = fs::remove_dir_all(&beside);
    Ok(if is_ahead { Vec::new() } else { lost.checkpoints.into_iter().chain(lost.best).collect() })
}

/// Whether the attempt before ran on this machine, with all that the loop had. What a machine wrote before it lost power
/// may not be on its disk, so it is not newer.
fn had_all(start: &Start) -> bool {
    let Some(before) = start.fence.0.checked_sub(1) else { return false };
    let boot = boot();
    !boot.is_empty() && fs::read_to_string(mark(start, Fence(before))).is_ok_and(|then| then == boot)
}

/// What names the time since this machine was started; empty where that is not known.
pub(super) fn boot() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default()
}

/// Is written once this machine has all that the loop had before an attempt that saves here.
fn mark(start: &Start, fence: Fence) -> PathBuf {
    let attempts = Path::new(&start.folder).join("attempts");
    attempts.join(start.run.attempt(fence).as_str()).join("fetched")
}

fn set_mark(start: &Start) -> Result<(), TravelError> {
    // What the program saves on other machines does not travel, so it is not what the loop should have.
    if start.member.is_some_and(|place| place.rank > 0) {
        return Ok(());
    }
    let mark = mark(start, start.fence);
    if let Some(folder) = mark.parent() {
        fs::create_dir_all(folder).map_err(disk("make", folder))?;
    }
    fs::write(&mark, boot()).map_err(disk("write", &mark))
}

/// Whether a file is here as it was listed, or was written after that.
fn is_newer_here(file: &FileInfo, folder: &Path) -> bool {
    fs::metadata(folder.join(&file.path)).is_ok_and(|meta| meta.is_file() && micros(&meta) >= file.modified)
}

pub(super) fn is_manifest(path: &str) -> bool {
    path.starts_with("manifest-") && path.ends_with(".json")
}

fn manifests_in(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let entries = entries.flatten().filter(|entry| entry.file_name().to_str().is_some_and(is_manifest));
    entries.map(|entry| entry.path()).collect()
}

/// The manifests of a folder that can be read, by their paths.
fn read_manifests(folder: &Path) -> BTreeMap<String, CheckpointManifest> {
    let read = |path: PathBuf| {
        let manifest: CheckpointManifest = serde_json::from_slice(&fs::read(&path).ok()?).ok()?;
        Some((path.file_name()?.to_str()?.to_owned(), manifest))
    };
    manifests_in(folder).into_iter().filter_map(read).collect()
}

/// Number of the attempt and step of the newest manifest.
fn newest(folder: &Path) -> Option<(u64, u64)> {
    read_manifests(folder).values().map(|manifest| (manifest.fence.0, manifest.step)).max()
}
