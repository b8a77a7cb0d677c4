//! Four frames in one: each fills a quarter around a point that is drawn, so that objects are seen smaller, cut and in
//! other company (Bochkovskiy et al. 2020, section 3.3).

use super::GroundTruthBox;
use super::frame::{Frame, GREY, is_seen};
use crate::decode::rgb::Rgb;
use crate::sampling::random::Draws;
use crate::transform::resize::resize;

/// An object of which less than this fraction remains is not trained on.
const LEAST_SHARE: f32 = 0.2;

/// Combines four frames of one size.
pub(super) fn mosaic(frames: [&Frame; 4], draws: &mut Draws) -> Frame {
    let size = frames[0].size;
    // From a quarter to three quarters of each side.
    let middle = |draws: &mut Draws| size / 4 + draws.below((size / 2) as u64 + 1) as usize;
    let (x, y) = (middle(draws), middle(draws));
    let quarters = [[0, 0, x, y], [x, 0, size, y], [0, y, x, size], [x, y, size, size]];
    let mut mosaic = Frame { size, pixels: vec![GREY; 3 * size * size], objects: Vec::new(), original: None };
    for (frame, [left, top, right, bottom]) in frames.into_iter().zip(quarters) {
        let (width, height) = (right - left, bottom - top);
        // As large as the quarter's longer side; which part of the rest is shown is drawn.
        let side = width.max(height);
        let shrunk = shrink(frame, side);
        let (dx, dy) =
            (draws.below((side - width) as u64 + 1) as usize, draws.below((side - height) as u64 + 1) as usize);
        for channel in 0..3 {
            for row in 0..height {
                let from = (channel * side + dy + row) * side + dx;
                let to = (channel * size + top + row) * size + left;
                mosaic.pixels[to..to + width].copy_from_slice(&shrunk[from..from + width]);
            }
        }
        let scale = side as f32 / size as f32;
        for object in &frame.objects {
            let full = object.edges.map(|edge| edge * scale);
            let cut = |edge: f32, skipped: usize, start: usize, length: usize| {
                (edge - skipped as f32).clamp(0.0, length as f32) + start as f32
            };
            let edges = [
                cut(full[0], dx, left, width),
                cut(full[1], dy, top, height),
                cut(full[2], dx, left, width),
                cut(full[3], dy, top, height),
            ];
            let seen = GroundTruthBox { class: object.class, edges };
            if is_seen(&seen) && area(edges) >= LEAST_SHARE * area(full) {
                mosaic.objects.push(seen);
            }
        }
    }
    mosaic
}

fn area([left, top, right, bottom]: [f32; 4]) -> f32 {
    (right - left) * (bottom - top)
}

fn shrink(frame: &Frame, side: usize) -> Vec<u8> {
    let (size, plane) = (frame.size, frame.size * frame.size);
    let pixels = (0..plane).flat_map(|at| [0, 1, 2].map(|channel| frame.pixels[channel * plane + at])).collect();
    let mut planes = vec![0; 3 * side * side];
    resize(&Rgb { height: size, width: size, pixels }, side, side, &mut planes);
    planes
}
