//! Resizing with a triangle filter that widens when the image shrinks, as Pillow and torchvision (antialias) do it.
//!
//! Weights follow `precompute_coeffs` of Pillow's `Resample.c`. Sums are kept in 32-bit floats and rounded to a byte
//! once, where Pillow rounds after each direction, so results differ from it by at most one level.

use crate::decode::rgb::Rgb;

/// The inputs of one output along an axis, and their weights.
struct Taps {
    first: usize,
    weights: Vec<f32>,
}

/// Resizes `image` into `planes`: 3 × height × width bytes, channel by channel.
pub(crate) fn resize(image: &Rgb, height: usize, width: usize, planes: &mut [u8]) {
    let columns = taps(image.width, width);
    let mut line = vec![0.0_f32; image.width * 3];
    for (y, row) in taps(image.height, height).iter().enumerate() {
        line.fill(0.0);
        let rows = image.pixels.chunks_exact(image.width * 3).skip(row.first);
        for (pixels, weight) in rows.zip(&row.weights) {
            for (sum, pixel) in line.iter_mut().zip(pixels) {
                *sum += weight * f32::from(*pixel);
            }
        }
        for (x, column) in columns.iter().enumerate() {
            let mut sums = [0.0_f32; 3];
            for (pixel, weight) in line[column.first * 3..].chunks_exact(3).zip(&column.weights) {
                for (sum, value) in sums.iter_mut().zip(pixel) {
                    *sum += weight * value;
                }
            }
            for (channel, sum) in sums.iter().enumerate() {
                // The conversion saturates at 0 and 255.
                planes[(channel * height + y) * width + x] = (sum + 0.5) as u8;
            }
        }
    }
}

fn taps(from: usize, to: usize) -> Vec<Taps> {
    let scale = from as f64 / to as f64;
    let support = scale.max(1.0);
    (0..to)
        .map(|output| {
            let centre = (output as f64 + 0.5) * scale;
            let first = (centre - support + 0.5).max(0.0) as usize;
            let last = ((centre + support + 0.5) as usize).min(from);
            let distance = |input: usize| ((input as f64 - centre + 0.5) / support).abs();
            let weights: Vec<f64> = (first..last).map(|input| (1.0 - distance(input)).max(0.0)).collect();
            let total: f64 = weights.iter().sum();
            Taps { first, weights: weights.iter().map(|weight| (weight / total) as f32).collect() }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// `expected` is the output of Pillow 13's `Image.resize((size, size), Image.BILINEAR)` for the same pattern.
    #[track_caller]
    fn check(height: usize, width: usize, size: usize, expected: &[u8]) {
        let pattern = |at: usize| {
            let (y, x) = (at / width, at % width);
            ((x * 37 + y * 59 + x * y * 11) % 256) as u8
        };
        let pixels = (0..height * width).flat_map(|at| [pattern(at), 255 - pattern(at), 9]).collect();
        let mut planes = vec![0; 3 * size * size];
        resize(&Rgb { height, width, pixels }, size, size, &mut planes);
        let (red, rest) = planes.split_at(size * size);
        let (green, blue) = rest.split_at(size * size);
        for (at, value) in expected.iter().enumerate() {
            assert!(red[at].abs_diff(*value) <= 1, "{} is not {value} at {at}", red[at]);
            assert!(green[at].abs_diff(255 - value) <= 1, "{} is not {} at {at}", green[at], 255 - value);
        }
        assert!(blue.iter().all(|value| *value == 9));
    }

    #[test]
    fn sizes_are_pillows() {
        check(
            9,
            13,
            5,
            &[
                78, 148, 129, 110, 125, 157, 131, 123, 129, 158, 145, 136, 126, 113, 125, 122, 156, 140, 89, 118, 128,
                153, 136, 111, 130,
            ],
        );
        check(
            4,
            3,
            7,
            &[
                0, 5, 21, 37, 53, 69, 74, 21, 27, 44, 62, 80, 97, 103, 55, 62, 81, 102, 123, 142, 149, 89, 96, 119,
                142, 165, 188, 196, 122, 130, 157, 182, 200, 218, 224, 156, 165, 194, 222, 180, 138, 124, 177, 187,
                217, 247, 167, 88, 61,
            ],
        );
        check(20, 10, 4, &[131, 138, 128, 116, 124, 138, 135, 117, 132, 109, 127, 130, 131, 126, 117, 123]);
    }

    proptest! {
        #[test]
        fn flat_images_stay_flat(height in 1_usize..40, width in 1_usize..40, to in 1_usize..40, value: u8) {
            let mut planes = vec![0; 3 * to * to];
            resize(&Rgb { height, width, pixels: vec![value; height * width * 3] }, to, to, &mut planes);
            prop_assert!(planes.iter().all(|found| *found == value));
        }
    }
}
