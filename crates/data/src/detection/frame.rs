//! Letterboxing: resizes an image until its longer side fits a square, centred on grey.

use std::sync::Arc;

use super::GroundTruthBox;
use super::listing::{Edges, LabelledBox, LabelledImage};
use crate::decode::rgb::Rgb;
use crate::transform::resize::resize;

/// The grey around an image, as detectors are usually trained with.
pub(super) const GREY: u8 = 114;
/// Boxes thinner than this many pixels of the frame cannot be seen.
const THINNEST: f32 = 1.0;

/// A square of pixels with its objects.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Frame {
    pub size: usize,
    /// 3 × size × size.
    pub pixels: Vec<u8>,
    pub objects: Vec<GroundTruthBox>,
    /// The image that it shows; `None` for a mosaic or a mirrored image.
    pub original: Option<Arc<OriginalImage>>,
}

/// The original size of an image, and its position in its frame.
#[derive(Debug, Clone, PartialEq)]
pub struct OriginalImage {
    /// Every annotation, also those that are not trained on.
    pub annotations: Vec<AnnotatedBox>,
    /// Width and height in pixels.
    pub extent: [f64; 2],
    /// Pixels of the frame for each pixel across and down.
    pub stretch: [f64; 2],
    /// Left and top edge in the frame, in pixels.
    pub offset: [f64; 2],
}

/// An annotation in pixels of its image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AnnotatedBox {
    /// Index of its class in [`super::DetectionDataset::classes`].
    pub class: u32,
    /// Left, top, width and height.
    pub bbox: [f64; 4],
    /// Whether it is a region of many objects (`iscrowd`).
    pub is_crowd: bool,
}

impl OriginalImage {
    fn of(image: &Rgb, sample: &LabelledImage, stretch: [f64; 2], [left, top]: [usize; 2]) -> OriginalImage {
        let single = sample.boxes.iter().map(|marked| (marked, false));
        let all = single.chain(sample.aside.iter().map(|(marked, is_crowd)| (marked, *is_crowd)));
        let annotated = |(marked, is_crowd): (&LabelledBox, bool)| {
            let [left, top, right, bottom] = in_pixels(marked.edges, image, sample);
            AnnotatedBox { class: marked.class, bbox: [left, top, right - left, bottom - top], is_crowd }
        };
        OriginalImage {
            annotations: all.map(annotated).collect(),
            extent: [image.width as f64, image.height as f64],
            stretch,
            offset: [left as f64, top as f64],
        }
    }
}

/// Edges in pixels of the image, which may have been resized since it was annotated.
fn in_pixels(edges: Edges, image: &Rgb, sample: &LabelledImage) -> [f64; 4] {
    let (width, height) = (image.width as f64, image.height as f64);
    let (edges, [across, down]) = match (edges, sample.extent) {
        (Edges::Pixels(edges), None) => return edges,
        (Edges::Pixels(edges), Some(extent)) if !is_resized(image, extent) => return edges,
        (Edges::Pixels(edges), Some([wide, high])) => (edges, [width / wide, height / high]),
        (Edges::Shares(edges), _) => (edges, [width, height]),
    };
    [edges[0] * across, edges[1] * down, edges[2] * across, edges[3] * down]
}

/// Whether an image has another size than it is annotated with, and the same proportions.
fn is_resized(image: &Rgb, extent: [f64; 2]) -> bool {
    let [wide, high] = extent;
    let (width, height) = (image.width as f64, image.height as f64);
    let is_same = (width - wide).abs() <= 1.0 && (height - high).abs() <= 1.0;
    !is_same && is_alike(image, extent)
}

/// Whether an image has the proportions that it is annotated with. The sides of a resized image are whole pixels.
fn is_alike(image: &Rgb, [wide, high]: [f64; 2]) -> bool {
    (image.width as f64 * high - image.height as f64 * wide).abs() <= wide.max(high)
}

/// Refuses boxes that are for an image of other proportions. What is said of an image may be wrong while its boxes are right:
/// those that lie in it are taken.
pub(super) fn check_extent(image: &Rgb, sample: &LabelledImage) -> Result<(), String> {
    let has_boxes = !sample.boxes.is_empty() || !sample.aside.is_empty();
    let Some([wide, high]) = sample.extent.filter(|_| has_boxes) else { return Ok(()) };
    let (width, height) = (image.width as f64, image.height as f64);
    let lies_in = |marked: &LabelledBox| match marked.edges {
        Edges::Pixels([_, _, right, bottom]) => right <= width + 1.0 && bottom <= height + 1.0,
        Edges::Shares(_) => true,
    };
    let mut all = sample.boxes.iter().chain(sample.aside.iter().map(|(marked, _)| marked));
    if is_alike(image, [wide, high]) || all.all(lies_in) {
        return Ok(());
    }
    let is_turned = (width * wide - height * high).abs() <= wide.max(high);
    let why = if is_turned { ": rotated by EXIF? Annotate it as it is decoded" } else { "" };
    Err(format!("it is annotated as {wide}×{high}, and decoded as {width}×{height}{why}"))
}

impl Frame {
    /// Letterboxes an image and its boxes into a square of `size`.
    pub fn of(image: &Rgb, sample: &LabelledImage, size: usize) -> Frame {
        let longer = image.height.max(image.width);
        let fitted = |side: usize| ((side * size * 2 + longer) / (2 * longer)).clamp(1, size);
        let (height, width) = (fitted(image.height), fitted(image.width));
        let (top, left) = ((size - height) / 2, (size - width) / 2);
        let mut planes = vec![0; 3 * height * width];
        if (height, width) == (image.height, image.width) {
            for (at, pixel) in image.pixels.chunks_exact(3).enumerate() {
                for (channel, value) in pixel.iter().enumerate() {
                    planes[channel * height * width + at] = *value;
                }
            }
        } else {
            resize(image, height, width, &mut planes);
        }
        let mut pixels = vec![GREY; 3 * size * size];
        for channel in 0..3 {
            for row in 0..height {
                let from = (channel * height + row) * width;
                let to = (channel * size + top + row) * size + left;
                pixels[to..to + width].copy_from_slice(&planes[from..from + width]);
            }
        }
        let stretch = [width as f64 / image.width as f64, height as f64 / image.height as f64];
        let place = |marked: &LabelledBox| {
            let edges = in_pixels(marked.edges, image, sample);
            let along = |edge: f64, axis: usize, start: usize, length: usize| {
                (edge * stretch[axis]).clamp(0.0, length as f64) as f32 + start as f32
            };
            let edges = [
                along(edges[0], 0, left, width),
                along(edges[1], 1, top, height),
                along(edges[2], 0, left, width),
                along(edges[3], 1, top, height),
            ];
            GroundTruthBox { class: marked.class, edges }
        };
        let objects = sample.boxes.iter().map(place).filter(is_seen).collect();
        let original = Some(Arc::new(OriginalImage::of(image, sample, stretch, [left, top])));
        Frame { size, pixels, objects, original }
    }

    /// The frame mirrored left to right.
    pub fn mirrored(&self) -> Frame {
        let mut mirrored = Frame { original: None, ..self.clone() };
        for row in mirrored.pixels.chunks_exact_mut(self.size) {
            row.reverse();
        }
        let width = self.size as f32;
        for GroundTruthBox { edges, .. } in &mut mirrored.objects {
            (edges[0], edges[2]) = (width - edges[2], width - edges[0]);
        }
        mirrored
    }
}

/// Whether an object is large enough to be seen.
pub(super) fn is_seen(object: &GroundTruthBox) -> bool {
    let [left, top, right, bottom] = object.edges;
    right - left >= THINNEST && bottom - top >= THINNEST
}
