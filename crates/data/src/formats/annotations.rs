//! Objects in an image: which class, and where.
//!
//! Lists that mark objects (COCO's JSON, HuggingFace's `objects`) are read into these, and a pack keeps them in the note
//! beside each image, as `{"objects": [{"class": 3, "bbox": [x, y, width, height], …}]}`. Classes are labels of the
//! data set, whatever numbers the list gave them.

use serde::{Deserialize, Serialize};

/// One object in an image.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Annotation {
    /// Its class: a label of the data set.
    pub class: u32,
    /// Left edge, upper edge, width and height, in pixels of the image as its file holds it.
    pub bbox: [f64; 4],
    /// Pixels that it covers; of its box where the list does not say.
    pub area: f64,
    /// Whether it stands for many that are not marked one by one.
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

/// The marks of a note, whose classes are below `classes`; none of a note that holds other things.
///
/// # Errors
/// In words, which of them makes no sense.
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

/// The class whose marks have the largest area; of two the first.
pub(crate) fn covering(marks: &[Annotation]) -> Option<u32> {
    let mut areas = std::collections::BTreeMap::<u32, f64>::new();
    for mark in marks {
        *areas.entry(mark.class).or_default() += mark.area;
    }
    let most = areas.values().copied().fold(f64::NEG_INFINITY, f64::max);
    areas.into_iter().find(|(_, area)| *area >= most).map(|(class, _)| class)
}
