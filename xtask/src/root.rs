//! The root of the checkout that a command works on, found at run time: a checkout that was copied together with its
//! `target/` has an executable that was compiled elsewhere.

use std::path::{Path, PathBuf};

/// The file by which a folder is known to be a checkout.
const MARK: &str = "xtask/Cargo.toml";

/// Returns the checkout that holds `manifest`, the folder of xtask's `Cargo.toml` as `cargo run` names it, else the one
/// that holds `folder`; none when neither lies in a checkout.
pub fn find(manifest: Option<&Path>, folder: &Path) -> Option<PathBuf> {
    let above = |start: &Path| start.ancestors().find(|root| root.join(MARK).is_file()).map(Path::to_owned);
    manifest.and_then(above).or_else(|| above(folder))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn checkout(folder: &Path) -> PathBuf {
        fs::create_dir_all(folder.join("xtask/src")).unwrap();
        fs::write(folder.join(MARK), "").unwrap();
        folder.to_owned()
    }

    #[test]
    fn a_copied_checkout_is_worked_on_itself() {
        let folder = tempfile::tempdir().unwrap();
        let [original, copy] = ["original", "copy"].map(|name| checkout(&folder.path().join(name)));
        // Cargo's answer takes precedence over the working directory.
        assert_eq!(find(Some(&copy.join("xtask")), &original), Some(copy.clone()));
        // Without cargo, the folders above count.
        assert_eq!(find(None, &copy.join("xtask/src")), Some(copy.clone()));
        // Another package's folder names no checkout.
        assert_eq!(find(Some(folder.path()), &copy), Some(copy));
        assert_eq!(find(None, folder.path()), None);
    }
}
