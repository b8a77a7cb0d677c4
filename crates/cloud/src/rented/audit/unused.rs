//! Since when audits have found resources unused: `CLOUD/unused.json` in the home. Most clouds do not say since when nothing has
//! a disk or an address, and one that was detached a moment ago must not be ended.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use domain::Timestamp;

use crate::rented::rentals::replace;

const FILE: &str = "unused.json";

/// What audits of one cloud have noted.
#[derive(Debug, Clone)]
pub struct UnusedNotes {
    folder: PathBuf,
}

impl UnusedNotes {
    /// What the home at `home` has noted of a cloud.
    pub fn new(home: &Path, cloud: &str) -> UnusedNotes {
        UnusedNotes { folder: home.join(cloud) }
    }

    /// Since when each resource is unused, by its key. What cannot be read counts as not noted: then the time begins again, and
    /// nothing is ended too early.
    pub fn read(&self) -> BTreeMap<String, Timestamp> {
        let text = fs::read(self.folder.join(FILE)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }

    /// Replaces what was noted; writes nothing where that is the same.
    ///
    /// # Errors
    /// If it cannot be written: then the grace of what was found first does not begin.
    pub fn replace(&self, notes: &BTreeMap<String, Timestamp>) -> io::Result<()> {
        if self.read() == *notes {
            return Ok(());
        }
        replace(&self.folder, FILE, &serde_json::to_vec(notes)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_outlive_the_process_and_a_broken_file_only_delays() {
        let home = tempfile::tempdir().unwrap();
        let notes = || UnusedNotes::new(home.path(), "aws");
        notes().replace(&BTreeMap::new()).unwrap();
        assert!(!home.path().join("aws").exists(), "nothing was ever rented there");
        let some = BTreeMap::from([("disk/us-east-1/vol-1".to_owned(), Timestamp(7))]);
        notes().replace(&some).unwrap();
        assert_eq!(notes().read(), some);
        fs::write(home.path().join("aws/unused.json"), "{").unwrap();
        assert_eq!(notes().read(), BTreeMap::new());
        notes().replace(&some).unwrap();
        assert_eq!(notes().read(), some);
        notes().replace(&BTreeMap::new()).unwrap();
        assert_eq!(fs::read_to_string(home.path().join("aws/unused.json")).unwrap(), "{}");
    }
}
