//! Detects the format of the labels at a path.

use std::path::Path;

use super::listing::Listing;
use super::{coco, yolo};
use crate::Error;
use crate::error::layout;

/// Reads every label file at `path`, whose format is inferred from its name.
pub(super) fn read(path: &Path) -> Result<Listing, Error> {
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
    if listing.samples.is_empty() {
        return Err(layout(path, "its labels name no image", "give at least one image for each part"));
    }
    if listing.samples.iter().all(|sample| sample.boxes.is_empty()) {
        return Err(layout(path, "no image has a box", "mark at least one object"));
    }
    listing.samples.sort_by(|left, right| left.file.cmp(&right.file));
    Ok(listing)
}
