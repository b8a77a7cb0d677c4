//! Annotated objects in an image: class and bounding box.
//!
//! Annotation lists (COCO's JSON, HuggingFace's `objects`) are read into these, and a pack stores them in the metadata
//! of each image, as `{"objects": [{"class": 3, "bbox": [x, y, width, height], …}]}`. Classes are labels of the data
//! set, whatever ids the list uses.

use serde::{Deserialize, Serialize};

/// One object in an image.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Annotation {
    /// Its class: a label of the data set.
    pub class: u32,
    /// Left edge, top edge, width and height, in pixels of the stored image.
    pub bbox: [f64; 4],
    /// Pixels that it covers; of its box where the list does not say.
    pub area: f64,
    /// Whether the box covers a crowd whose members are not annotated individually.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub crowd: bool,
}

#[derive(Serialize, Deserialize)]
struct Objects {
    objects: Vec<Annotation>,
}

/// The note that holds some marks.
pub(crate) fn note(marks: Vec<Annotation>) -> Box<[u8]> {
    // Plain numbers are always written.
    serde_json::to_vec(&Objects { objects: marks }).unwrap_or_default().into()
}

/// The annotations in the metadata of a sample, whose classes are below `classes`; empty for other metadata.
///
/// # Errors
/// A message that says which of them is malformed.
pub(crate) fn of_note(note: &[u8], classes: usize) -> Result<Vec<Annotation>, String> {
    let Ok(Objects { objects }) = serde_json::from_slice(note) else {
        return Ok(Vec::new());
    };
    match objects.iter().find(|mark| mark.class as usize >= classes || !mark.is_sound()) {
        Some(mark) => Err(format!("its mark {:?} of class {} makes no sense", mark.bbox, mark.class)),
        None => Ok(objects),
    }
}

impl Annotation {
    /// Whether its numbers can be worked with.
    pub(crate) fn is_sound(&self) -> bool {
        let [_, _, width, height] = self.bbox;
        self.bbox.iter().chain([&self.area]).all(|number| number.abs() <= 1e9) && width >= 0.0 && height >= 0.0
    }
}

/// The class whose annotations cover the largest area; the first one on a tie.
pub(crate) fn covering(marks: &[Annotation]) -> Option<u32> {
    let mut areas = std::collections::BTreeMap::<u32, f64>::new();
    for mark in marks {
        *areas.entry(mark.class).or_default() += mark.area;
    }
    let most = areas.values().copied().fold(f64::NEG_INFINITY, f64::max);
    areas.into_iter().find(|(_, area)| *area >= most).map(|(class, _)| class)
}
