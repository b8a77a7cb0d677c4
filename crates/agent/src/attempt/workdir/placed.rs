//! What `file_mounts` has put on a machine outside of the attempt's folder, for as long as the attempt lives.

use std::fs::{self, File};
use std::path::PathBuf;

/// Links that lead to an attempt's copies; they are gone with it.
#[derive(Debug, Default)]
pub struct Placed {
    pub(super) links: Vec<(PathBuf, PathBuf)>,
    /// Folders that were made for them, outer ones first.
    pub(super) made: Vec<PathBuf>,
    /// Says that they are in use.
    pub(super) lock: Option<File>,
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
    }
}
