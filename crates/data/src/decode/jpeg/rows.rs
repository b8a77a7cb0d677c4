//! From samples to pixels, a row at a time: components are enlarged to the size of the image, then become colours.
//!
//! Enlarging is libjpeg's "fancy upsampling": a triangle filter with its order of roundings, so that results are equal
//! to the bit. Components at other ratios than 2:1 are repeated, as there.

use super::markers::{Colour, Component, FrameHeader};
use super::planes::{Plane, Planes};
use super::region::PixelRegion;
use crate::decode::kernels::Kernels;

/// Reads the rows of a region.
pub(crate) struct Rows<'a> {
    frame: &'a FrameHeader,
    planes: &'a Planes,
    region: PixelRegion,
    /// One row of each component, enlarged.
    lines: &'a mut Lines,
}

/// Memory of [`Rows`], used again for the next image.
#[derive(Debug, Default)]
pub(crate) struct Lines {
    full: [Vec<u8>; 4],
    sums: Vec<u16>,
}

impl<'a> Rows<'a> {
    /// Rows of `region`, whose samples are in `planes`.
    pub(super) fn new(
        frame: &'a FrameHeader,
        planes: &'a Planes,
        region: PixelRegion,
        lines: &'a mut Lines,
    ) -> Rows<'a> {
        Rows { frame, planes, region, lines }
    }

    /// Pixels of row `y` of the image, red, green, blue and 255; `pixels` is as long as the region is wide.
    #[inline(always)]
    pub fn read(&mut self, kernels: impl Kernels, y: usize, pixels: &mut [[u8; 4]]) {
        let PixelRegion { x, width, .. } = self.region;
        let samples = &self.planes.samples;
        let mut rows: [&[u8]; 4] = [&[]; 4];
        let components = self.frame.components.iter().zip(&self.planes.planes).zip(&mut self.lines.full);
        for (((component, plane), full), row) in components.zip(&mut rows) {
            let (h, v) = (self.frame.h / component.h, self.frame.v / component.v);
            if (h, v) == (1, 1) {
                *row = &line(samples, plane, y)[x - plane.columns.start * 8..][..width];
                continue;
            }
            let smooth = match (h, v) {
                (2, 1 | 2) => component.width > 2,
                (1, 2) => true,
                _ => false,
            };
            full.resize(width + 64, 0);
            let skipped = if smooth {
                enlarge(samples, plane, component, (h, v), y, x..x + width, &mut self.lines.sums, full)
            } else {
                repeat(line(samples, plane, y / v), plane, h, x..x + width, full)
            };
            *row = &full[skipped..][..width];
        }
        match self.frame.colour {
            Colour::YCbCr => kernels.colour(rows[0], rows[1], rows[2], pixels),
            Colour::Grey => pixels.iter_mut().zip(rows[0]).for_each(|(pixel, y)| *pixel = [*y, *y, *y, 255]),
            Colour::Rgb => {
                for (((pixel, r), g), b) in pixels.iter_mut().zip(rows[0]).zip(rows[1]).zip(rows[2]) {
                    *pixel = [*r, *g, *b, 255];
                }
            }
            Colour::Cmyk => {
                let inks = rows[0].iter().zip(rows[1]).zip(rows[2]);
                for ((pixel, ((c, m), y)), k) in pixels.iter_mut().zip(inks).zip(rows[3]) {
                    *pixel = from_inks([*c, *m, *y], *k);
                }
            }
            Colour::Ycck => {
                kernels.colour(rows[0], rows[1], rows[2], pixels);
                for (pixel, k) in pixels.iter_mut().zip(rows[3]) {
                    *pixel = from_inks([255 - pixel[0], 255 - pixel[1], 255 - pixel[2]], *k);
                }
            }
        }
    }
}

/// As Pillow converts inks, which it takes to be stored inverted: light × light / 255.
fn from_inks(inks: [u8; 3], black: u8) -> [u8; 4] {
    let light = i32::from(black);
    let [r, g, b] = inks.map(|ink| {
        // `MULDIV255` of Pillow.
        let product = (255 - i32::from(ink)) * light + 128;
        (light - ((product + (product >> 8)) >> 8)).clamp(0, 255) as u8
    });
    [r, g, b, 255]
}

/// A row of samples, by its number in the component.
fn line<'a>(samples: &'a [u8], plane: &Plane, row: usize) -> &'a [u8] {
    &samples[plane.at + (row - plane.rows.start * 8) * plane.stride..][..plane.stride]
}

/// Each sample `factor` times; returns how far into `full` the pixels begin.
fn repeat(line: &[u8], plane: &Plane, factor: usize, pixels: std::ops::Range<usize>, full: &mut [u8]) -> usize {
    for (value, x) in full.iter_mut().zip(pixels) {
        *value = line[x / factor - plane.columns.start * 8];
    }
    0
}

/// The triangle filter of `jdsample.c`; returns how far into `full` the pixels begin.
#[inline(always)]
#[allow(clippy::too_many_arguments)]
fn enlarge(
    samples: &[u8],
    plane: &Plane,
    component: &Component,
    (h, v): (usize, usize),
    y: usize,
    pixels: std::ops::Range<usize>,
    sums: &mut Vec<u16>,
    full: &mut [u8],
) -> usize {
    let (first, last) = (pixels.start / h, pixels.end.div_ceil(h));
    let origin = plane.columns.start * 8;
    let row = y / v;
    let near = &line(samples, plane, row)[first - origin..last - origin];
    if v == 1 {
        sums.clear();
        sums.push(u16::from(line(samples, plane, row)[first.saturating_sub(1).max(origin) - origin]));
        sums.extend(near.iter().map(|value| u16::from(*value)));
        sums.push(u16::from(line(samples, plane, row)[last.min(component.width - 1) - origin]));
        spread::<1, 2, 2>(sums, full);
        return pixels.start - first * h;
    }
    let upper = y.is_multiple_of(2);
    let other = if upper { row.saturating_sub(1) } else { (row + 1).min(component.height - 1) };
    let far = &line(samples, plane, other)[first - origin..last - origin];
    if h == 1 {
        let bias = if upper { 1 } else { 2 };
        for ((value, near), far) in full.iter_mut().zip(near).zip(far) {
            *value = ((3 * u16::from(*near) + u16::from(*far) + bias) >> 2) as u8;
        }
        return 0;
    }
    let sum = |at: usize| {
        3 * u16::from(line(samples, plane, row)[at - origin]) + u16::from(line(samples, plane, other)[at - origin])
    };
    sums.clear();
    sums.push(sum(first.saturating_sub(1)));
    sums.extend(near.iter().zip(far).map(|(near, far)| 3 * u16::from(*near) + u16::from(*far)));
    sums.push(sum(last.min(component.width - 1)));
    spread::<8, 7, 4>(sums, full);
    pixels.start - first * h
}

/// Two values from each sum and its neighbours; `sums` has one more at each end.
#[inline(always)]
fn spread<const LEFT: u16, const RIGHT: u16, const SHIFT: u32>(sums: &[u16], full: &mut [u8]) {
    let count = sums.len() - 2;
    let (before, here, after) = (&sums[..count], &sums[1..][..count], &sums[2..][..count]);
    let pairs = full[..2 * count].as_chunks_mut::<2>().0;
    for (((pair, before), here), after) in pairs.iter_mut().zip(before).zip(here).zip(after) {
        let even = (3 * here + before + LEFT) >> SHIFT;
        let odd = (3 * here + after + RIGHT) >> SHIFT;
        *pair = (even | odd << 8).to_le_bytes();
    }
}
