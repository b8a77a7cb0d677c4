//! Copies what a release build has compiled of other people's libraries, so that a build elsewhere need not compile it
//! again.

use std::path::Path;
use std::{fs, io};

/// Copies the libraries in the target folder `from` to `to`, with their times, by which cargo knows that they are current.
/// A folder `to` that has a build already stays as it is.
pub(crate) fn seed(from: &Path, to: &Path) -> io::Result<()> {
    let (from, to) = (from.join("release"), to.join("release"));
    if to.exists() || !from.is_dir() {
        return Ok(());
    }
    // Renamed when it is complete: half of it would look like a build.
    let part = to.with_extension("part");
    if part.exists() {
        fs::remove_dir_all(&part)?;
    }
    for folder in ["deps", "build", ".fingerprint"] {
        let is_kept = |path: &Path| folder != "deps" || path.extension().is_some();
        if from.join(folder).is_dir() {
            copy(&from.join(folder), &part.join(folder), &is_kept)?;
        }
    }
    if part.exists() { fs::rename(part, to) } else { Ok(()) }
}

/// Copies a folder: of its files, those that are kept.
fn copy(from: &Path, to: &Path, is_kept: &dyn Fn(&Path) -> bool) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let (path, kind) = entry.and_then(|entry| Ok((entry.path(), entry.file_type()?)))?;
        let target = to.join(path.file_name().unwrap_or_default());
        if kind.is_dir() {
            copy(&path, &target, is_kept)?;
        } else if kind.is_file() && is_kept(&path) {
            fs::copy(&path, &target)?;
            fs::File::open(&target)?.set_modified(fs::metadata(&path)?.modified()?)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, SystemTime};

    use super::*;

    #[test]
    fn libraries_are_copied_once_with_their_times_and_executables_are_not() {
        let folder = tempfile::tempdir().unwrap();
        let [from, to] = ["target", "other"].map(|name| folder.path().join(name));
        seed(&from, &to).unwrap();
        assert!(!to.join("release").exists(), "there is nothing to copy");
        let library = from.join("release/deps/libzstd-1.rlib");
        let script = from.join("release/build/zstd-1/build-script-build");
        for file in [&library, &script, &from.join("release/deps/gradus-1"), &from.join("release/gradus")] {
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, "1").unwrap();
        }
        let time = SystemTime::now() - Duration::from_secs(1_000);
        fs::File::open(&library).unwrap().set_modified(time).unwrap();
        seed(&from, &to).unwrap();
        let copied = to.join("release/deps/libzstd-1.rlib");
        assert_eq!(fs::metadata(&copied).unwrap().modified().unwrap(), time);
        assert!(to.join("release/build/zstd-1/build-script-build").exists());
        assert!(!to.join("release/deps/gradus-1").exists() && !to.join("release/gradus").exists());
        // The build that is there now is its own.
        fs::write(&library, "2").unwrap();
        seed(&from, &to).unwrap();
        assert_eq!(fs::read(&copied).unwrap(), b"1");
    }
}
