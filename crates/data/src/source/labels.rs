//! From paths to classes: a picture's class is the folder it lies in.
//!
//! Only paths are looked at, so a folder and a tar of the same folder are the same data set, sample for sample.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::{Content, Encoded, Index, layout};
use crate::error::shorten;
use crate::{Error, Part};

/// Classes and parts of a list of pictures.
pub(super) struct Labels {
    classes: Vec<String>,
    labels: Vec<u32>,
    homes: Option<Vec<Part>>,
}

const TREE: &str = "lay the pictures out as `…/<class>/<file>.jpg|png`";

impl Labels {
    pub fn into_index(self, encoded: Encoded) -> Index {
        let Labels { classes, labels, homes } = self;
        Index { classes, labels, homes, content: Content::Encoded(encoded), skipped: Vec::new() }
    }
}

/// Whether a file's name says that it is a picture.
pub(super) fn is_picture(path: &Path) -> bool {
    let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
    ["jpg", "jpeg", "png"].iter().any(|known| extension.eq_ignore_ascii_case(known))
}

/// Whether a file or folder of this name is passed over, as `.DS_Store` is.
pub(super) fn is_hidden(name: &str) -> bool {
    name.starts_with('.') || name == "__MACOSX"
}

/// The classes of `paths`, which are relative to `root` and sorted.
pub(super) fn from_paths(root: &Path, paths: &[PathBuf], by_folders: bool) -> Result<Labels, Error> {
    if paths.is_empty() {
        return Err(layout(root, "no file in it ends in `.jpg`, `.jpeg` or `.png`", TREE));
    }
    let mut names = Vec::with_capacity(paths.len());
    let mut homes = Vec::with_capacity(paths.len());
    for path in paths {
        let folders: Vec<String> =
            path.parent().into_iter().flatten().map(|part| part.to_string_lossy().into_owned()).collect();
        let Some((class, above)) = folders.split_last() else {
            return Err(layout(root, format!("`{}` lies in no class folder", path.display()), TREE));
        };
        if by_folders {
            homes.push(above.iter().find_map(|folder| home(folder)).ok_or_else(|| {
                let why = format!("`{}` lies in none of the folders `train`, `val` and `test`", path.display());
                layout(root, why, "move it, or leave out `split: folders` to have the split drawn")
            })?);
        }
        names.push(class.clone());
    }
    let mut classes: BTreeMap<String, u32> = names.iter().map(|name| (name.clone(), 0)).collect();
    for (label, number) in classes.values_mut().zip(0..) {
        *label = number;
    }
    let labels: Vec<u32> = names.iter().map(|name| classes[name]).collect();
    let classes: Vec<String> = classes.into_keys().collect();
    if by_folders {
        check_homes(root, &classes, &labels, &homes)?;
    }
    Ok(Labels { classes, labels, homes: by_folders.then_some(homes) })
}

fn home(folder: &str) -> Option<Part> {
    match folder.to_lowercase().as_str() {
        "train" => Some(Part::Train),
        "val" | "valid" | "validation" => Some(Part::Validation),
        "test" => Some(Part::Test),
        _ => None,
    }
}

/// A class that is never trained would be counted as wrong in every evaluation.
fn check_homes(root: &Path, classes: &[String], labels: &[u32], homes: &[Part]) -> Result<(), Error> {
    let mut trained = vec![false; classes.len()];
    for (&label, _) in labels.iter().zip(homes).filter(|(_, home)| **home == Part::Train) {
        trained[label as usize] = true;
    }
    if !trained.contains(&true) {
        return Err(layout(root, "there is no `train` folder", "name it so, or leave out `split: folders`"));
    }
    let missing: Vec<String> =
        classes.iter().zip(&trained).filter(|(_, trained)| !**trained).map(|(class, _)| class.clone()).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let why = format!("the folder `train` has no pictures of {}", shorten(&missing));
    Err(layout(root, why, "give every class pictures to train on, or remove it from the other folders"))
}
