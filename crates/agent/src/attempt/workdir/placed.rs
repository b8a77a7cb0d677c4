//! What `file_mounts` has put on a machine outside of the attempt's folder, for as long as the attempt lives.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use super::placed_list::PlacedList;

/// Links that lead to an attempt's copies; they are gone with it.
#[derive(Debug, Default)]
pub struct Placed {
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    /// Folders that were made for them, outer ones first.
    pub(super) made: Vec<PathBuf>,
    /// Places where the user's own files are used as they are.
    pub(super) originals: Vec<PathBuf>,
    /// Says that they are in use.
    pub(super) lock: Option<File>,
    /// The list of both, for whoever comes after an agent that was killed.
    pub(super) list: Option<PlacedList>,
}

impl Placed {
    /// Each place outside of the attempt's folder, what is to be found there, and whether it may be written to.
    pub fn places(&self) -> impl Iterator<Item = (&Path, &Path, bool)> {
        let links = self.links.iter().map(|(place, copy)| (place.as_path(), copy.as_path(), true));
        links.chain(self.originals.iter().map(|place| (place.as_path(), place.as_path(), false)))
    }
}

impl Drop for Placed {
    fn drop(&mut self) {
        for (place, copy) in &self.links {
            if fs::read_link(place).is_ok_and(|aim| aim == *copy) {
                let _ = fs::remove_file(place);
            }
        }
        // Fails if something else is in it by now.
        self.made.iter().rev().for_each(|folder| _ = fs::remove_dir(folder));
        if let Some(list) = self.list.take() {
            list.close(&self.made);
        }
    }
}
