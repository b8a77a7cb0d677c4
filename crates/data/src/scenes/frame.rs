//! A picture in a square: shrunk or grown until its longer side fits, in the middle, on grey.

use super::Object;
use super::listing::{Edges, Marked};
use crate::picture::Rgb;
use crate::resize::resize;

/// The grey around a picture, as detectors are usually trained with.
pub(super) const GREY: u8 = 114;
/// Boxes thinner than this many pixels of the frame cannot be seen.
const THINNEST: f32 = 1.0;

/// A square of pixels, and what is to be seen in it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Frame {
    pub size: usize,
    /// 3 × size × size.
    pub pixels: Vec<u8>,
    pub objects: Vec<Object>,
}

impl Frame {
    /// Puts a picture and its boxes into a square of `size`.
    pub fn of(picture: &Rgb, boxes: &[Marked], size: usize) -> Frame {
        let longer = picture.height.max(picture.width);
        let fitted = |side: usize| ((side * size * 2 + longer) / (2 * longer)).clamp(1, size);
        let (height, width) = (fitted(picture.height), fitted(picture.width));
        let (top, left) = ((size - height) / 2, (size - width) / 2);
        let mut planes = vec![0; 3 * height * width];
        if (height, width) == (picture.height, picture.width) {
            for (at, pixel) in picture.pixels.chunks_exact(3).enumerate() {
                for (channel, value) in pixel.iter().enumerate() {
                    planes[channel * height * width + at] = *value;
                }
            }
        } else {
            resize(picture, height, width, &mut planes);
        }
        let mut pixels = vec![GREY; 3 * size * size];
        for channel in 0..3 {
            for row in 0..height {
                let from = (channel * height + row) * width;
                let to = (channel * size + top + row) * size + left;
                pixels[to..to + width].copy_from_slice(&planes[from..from + width]);
            }
        }
        let stretch = [width as f64 / picture.width as f64, height as f64 / picture.height as f64];
        let place = |marked: &Marked| {
            let edges = match marked.edges {
                Edges::Pixels(edges) => edges,
                Edges::Shares(edges) => {
                    let (width, height) = (picture.width as f64, picture.height as f64);
                    [edges[0] * width, edges[1] * height, edges[2] * width, edges[3] * height]
                }
            };
            let along = |edge: f64, axis: usize, start: usize, length: usize| {
                (edge * stretch[axis]).clamp(0.0, length as f64) as f32 + start as f32
            };
            let edges = [
                along(edges[0], 0, left, width),
                along(edges[1], 1, top, height),
                along(edges[2], 0, left, width),
                along(edges[3], 1, top, height),
            ];
            Object { class: marked.class, edges }
        };
        let objects = boxes.iter().map(place).filter(is_seen).collect();
        Frame { size, pixels, objects }
    }

    /// The same, left to right.
    pub fn mirrored(&self) -> Frame {
        let mut mirrored = self.clone();
        for row in mirrored.pixels.chunks_exact_mut(self.size) {
            row.reverse();
        }
        let width = self.size as f32;
        for Object { edges, .. } in &mut mirrored.objects {
            (edges[0], edges[2]) = (width - edges[2], width - edges[0]);
        }
        mirrored
    }
}

/// Whether an object is large enough to be seen.
pub(super) fn is_seen(object: &Object) -> bool {
    let [left, top, right, bottom] = object.edges;
    right - left >= THINNEST && bottom - top >= THINNEST
}
