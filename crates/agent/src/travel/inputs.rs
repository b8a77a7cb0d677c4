//! Inputs of an attempt: a copy on this machine of a file or folder of the loop's, cached for the next attempt.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};

use domain::files::FileListing;

use super::loop_files::{LoopFiles, TravelError, disk, fetch};

/// Brings what the loop has at `address`, a copy of `source` there, up to date in `cache`; returns its path.
pub fn bring(files: &LoopFiles, address: &str, source: &str, cache: &Path) -> Result<PathBuf, TravelError> {
    let listing = files.list(address)?;
    let folder = cache.join(folder_name(source));
    fs::create_dir_all(&folder).map_err(disk("make", &folder))?;
    // First, for what was a file may have become a folder.
    let keep: BTreeSet<&str> = listing.files.iter().map(|file| file.path.as_str()).collect();
    remove_others(&folder, "", &keep)?;
    fetch(&mut |parts| files.parts(address, parts), &listing.files, &folder)?;
    Ok(path_of(&listing, &folder))
}

/// The file, or the folder of all files.
fn path_of(listing: &FileListing, folder: &Path) -> PathBuf {
    match (&listing.files[..], listing.is_file) {
        ([file], true) => folder.join(&file.path),
        (_, _) => folder.to_owned(),
    }
}

/// A folder for the copy of `source`: its last component, for people, and a hash of the full path.
fn folder_name(source: &str) -> String {
    let mut hash = DefaultHasher::new();
    source.hash(&mut hash);
    let name = source.rsplit('/').find(|name| !name.is_empty()).unwrap_or("root");
    let name: String =
        name.chars().filter(|letter| letter.is_alphanumeric() || "-_".contains(*letter)).take(40).collect();
    format!("{name}-{:016x}", hash.finish())
}

/// Deletes files that the loop's folder no longer has.
fn remove_others(folder: &Path, prefix: &str, keep: &BTreeSet<&str>) -> Result<(), TravelError> {
    for entry in fs::read_dir(folder).map_err(disk("read", folder))? {
        let entry = entry.map_err(disk("read", folder))?;
        let name = format!("{prefix}{}", entry.file_name().to_string_lossy());
        let path = entry.path();
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_folder {
            remove_others(&path, &format!("{name}/"), keep)?;
            // Fails if it is not empty.
            let _ = fs::remove_dir(&path);
        } else if !keep.contains(name.as_str()) {
            fs::remove_file(&path).map_err(disk("delete", &path))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_longer_listed_is_deleted() {
        let folder = tempfile::tempdir().unwrap();
        for path in ["a/x", "a/y", "b/z", "w"] {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "").unwrap();
        }
        remove_others(folder.path(), "", &BTreeSet::from(["a/x", "w"])).unwrap();
        let is_there = |path: &str| folder.path().join(path).exists();
        assert_eq!(["a/x", "a/y", "b", "w"].map(is_there), [true, false, false, true]);
    }

    #[test]
    fn each_source_has_a_folder_of_its_own() {
        assert_ne!(folder_name("/a/data"), folder_name("/b/data"));
        assert!(folder_name("/home/x/my data/").starts_with("mydata-"), "{}", folder_name("/home/x/my data/"));
        assert!(folder_name("/").starts_with("root-"));
    }
}
