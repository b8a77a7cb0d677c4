//! What a folder of scenes holds: which pictures, and the boxes that its label files mark in them.

use std::path::{Path, PathBuf};

use super::{coco, yolo};
use crate::{Error, Part};

/// Every scene in the order of its name, and the classes.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub classes: Vec<String>,
    pub scenes: Vec<Scene>,
    pub notes: Vec<String>,
}

/// One picture that has not been read yet.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Scene {
    pub file: PathBuf,
    /// The part that the layout of the data names for it.
    pub home: Option<Part>,
    pub boxes: Vec<Marked>,
}

/// A box as its file has it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Marked {
    pub class: u32,
    pub edges: Edges,
}

/// Left, top, right and bottom edge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Edges {
    /// In pixels of the picture.
    Pixels([f64; 4]),
    /// In shares of its width and height.
    Shares([f64; 4]),
}

impl Listing {
    /// Reads every label file at `path`, whose form is told from its name.
    pub fn read(path: &Path) -> Result<Listing, Error> {
        if !path.exists() {
            return Err(Error::Missing { path: path.into() });
        }
        let files = coco::files(path)?;
        let mut listing = match files.is_empty() {
            false => coco::read(path, &files)?,
            true if path.join("labels").is_dir() && path.join("images").is_dir() => yolo::read(path)?,
            true => {
                let hint = "give a COCO JSON such as `annotations.json`, or folders `images` and `labels` (YOLO)";
                return Err(layout(path, "no boxes are found in it", hint));
            }
        };
        if listing.scenes.is_empty() {
            return Err(layout(path, "its labels name no picture", "give at least one picture for each part"));
        }
        if listing.scenes.iter().all(|scene| scene.boxes.is_empty()) {
            return Err(layout(path, "no picture has a box", "mark at least one object"));
        }
        listing.scenes.sort_by(|left, right| left.file.cmp(&right.file));
        Ok(listing)
    }
}

/// The part that a name stands for, as in `train2017` or `valid`.
pub(super) fn part_named(name: &str) -> Option<Part> {
    let name = name.to_lowercase();
    let parts = [("train", Part::Train), ("val", Part::Validation), ("test", Part::Test)];
    parts.into_iter().find(|(word, _)| name.contains(word)).map(|(_, part)| part)
}

pub(super) fn layout(path: &Path, why: &str, hint: &str) -> Error {
    Error::Layout { path: path.into(), why: why.into(), hint: hint.into() }
}
