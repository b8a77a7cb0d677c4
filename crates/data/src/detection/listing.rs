//! The contents of a data set for detection: images, and the boxes in its label files.

use std::path::PathBuf;

use crate::Part;

/// Every sample in the order of its name, and the classes.
#[derive(Debug, Default)]
pub(super) struct Listing {
    pub classes: Vec<String>,
    pub samples: Vec<LabelledImage>,
    pub notes: Vec<String>,
}

/// One image that has not been read yet.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct LabelledImage {
    pub file: PathBuf,
    /// The part that the layout of the data names for it.
    pub home: Option<Part>,
    /// Width and height in pixels that its boxes are for, where the labels say so. No part of the identity of the data.
    pub extent: Option<[f64; 2]>,
    pub boxes: Vec<LabelledBox>,
    /// Boxes that only an evaluation looks at: regions of many objects (true), and boxes without area. They are not trained
    /// on, so they are no part of the identity of the data.
    pub aside: Vec<(LabelledBox, bool)>,
}

/// A box as its file has it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LabelledBox {
    pub class: u32,
    pub edges: Edges,
}

/// Left, top, right and bottom edge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Edges {
    /// In pixels of the image.
    Pixels([f64; 4]),
    /// In shares of its width and height.
    Shares([f64; 4]),
}

/// The part that a name implies, as in `train2017` or `valid`.
pub(super) fn part_named(name: &str) -> Option<Part> {
    let name = name.to_lowercase();
    let parts = [("train", Part::Train), ("val", Part::Validation), ("test", Part::Test)];
    parts.into_iter().find(|(word, _)| name.contains(word)).map(|(_, part)| part)
}
