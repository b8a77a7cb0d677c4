//! A part of an image that is shown as it is, without resizing: bytes are moved, and at most normalised.

use domain::train::MemoryFormat;

use super::prepare::Output;
use super::resample::Span;
use super::slots::Values;
use crate::decode::kernels::to_bf16;
use crate::decode::kernels::{Halves, Kernels, Work, in_turn};
use crate::decode::rgb::Pixels;

/// A crop of an image, and where it is written. Neither span resizes.
pub(crate) struct Cut<'a> {
    pub image: Pixels<'a>,
    /// Along columns, and along rows.
    pub spans: [Span; 2],
    /// Memory for one row.
    pub line: &'a mut Vec<u8>,
    pub output: Output<'a>,
}

impl Work for Cut<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, kernels: impl Kernels) {
        let Cut { image, spans: [columns, rows], line, output } = self;
        let (pixels, _) = image.pixels.as_chunks::<3>();
        let Output { mut values, layout, scaling, size } = output;
        let scale = Scale::new(scaling, &values);
        line.resize(3 * size, 0);
        let row = |row: usize| &pixels[row * image.width..][columns.shown()];
        let ahead = (AHEAD / (3 * image.width)).max(1);
        let shown = rows.shown();
        for first in shown.clone().take(ahead) {
            kernels.soon(row(first).as_flattened());
        }
        for (y, at) in shown.clone().enumerate() {
            if at + ahead < shown.end {
                kernels.soon(row(at + ahead).as_flattened());
            }
            match layout {
                MemoryFormat::Contiguous => apart(kernels, row(at), columns.mirrored, line, (&mut values, y), &scale),
                MemoryFormat::ChannelsLast => {
                    together(kernels, row(at), columns.mirrored, line, (&mut values, y), &scale);
                }
            }
        }
    }
}

/// Bytes of rows that are fetched from memory before they are used. The processor fetches ahead by itself only within a
/// page.
pub(crate) const AHEAD: usize = 6 << 10;

/// How a byte of each channel becomes a number.
pub(crate) struct Scale<'a> {
    scaling: &'a [(f32, f32)],
    /// Of three channels, where the numbers are bfloat16 and so many that looking them up pays.
    halves: Option<[Halves; 3]>,
}

/// Numbers of an image from which on tables of three times 256 are made for it.
const LOOKED_UP: usize = 1 << 12;

impl<'a> Scale<'a> {
    /// Factor and offset of each channel, for such values.
    #[inline(always)]
    pub fn new(scaling: &'a [(f32, f32)], values: &Values<'_>) -> Scale<'a> {
        let halves = match (values, scaling) {
            (Values::Bf16(values), [a, b, c]) if values.len() >= LOOKED_UP => {
                Some([Halves::of(*a), Halves::of(*b), Halves::of(*c)])
            }
            (Values::Bf16(_) | Values::F32(_) | Values::U8(_), _) => None,
        };
        Scale { scaling, halves }
    }
}

/// Row `y` of each channel.
#[inline(always)]
fn apart(
    kernels: impl Kernels,
    pixels: &[[u8; 3]],
    mirrored: bool,
    line: &mut [u8],
    (values, y): (&mut Values<'_>, usize),
    scale: &Scale<'_>,
) {
    let size = pixels.len();
    if let Values::U8(values) = values {
        kernels.apart(pixels, mirrored, rows_of(values, size * size).map(|plane| &mut plane[y * size..][..size]));
        return;
    }
    kernels.apart(pixels, mirrored, rows_of(line, size));
    for (channel, bytes) in line.chunks_exact(size).enumerate() {
        let at = (channel * size + y) * size;
        match values {
            Values::F32(values) => {
                let (factor, offset) = scale.scaling[channel];
                for (value, byte) in values[at..][..size].iter_mut().zip(bytes) {
                    *value = f32::from(*byte) * factor + offset;
                }
            }
            Values::Bf16(values) => {
                let values = &mut values[at..][..size];
                match &scale.halves {
                    Some(tables) => kernels.halves(&tables[channel], bytes, values),
                    None => in_turn(|_| scale.scaling[channel], bytes, values, to_bf16),
                }
            }
            Values::U8(_) => {}
        }
    }
}

/// The first three pieces of `size` bytes each.
#[inline(always)]
fn rows_of(bytes: &mut [u8], size: usize) -> [&mut [u8]; 3] {
    let (first, rest) = bytes.split_at_mut(size);
    let (second, third) = rest.split_at_mut(size);
    [first, second, &mut third[..size]]
}

/// Row `y` of pixels.
#[inline(always)]
fn together(
    kernels: impl Kernels,
    pixels: &[[u8; 3]],
    mirrored: bool,
    line: &mut [u8],
    (values, y): (&mut Values<'_>, usize),
    scale: &Scale<'_>,
) {
    if !mirrored {
        return normalised(kernels, pixels.as_flattened(), scale, y, values);
    }
    if let Values::U8(values) = values {
        let row = &mut values[y * 3 * pixels.len()..][..3 * pixels.len()];
        return kernels.turned(pixels, row.as_chunks_mut().0);
    }
    kernels.turned(pixels, line.as_chunks_mut().0);
    normalised(kernels, line, scale, y, values);
}

/// Row `y` of values, from the bytes of pixels of three channels.
#[inline(always)]
pub(crate) fn normalised(kernels: impl Kernels, bytes: &[u8], scale: &Scale<'_>, y: usize, values: &mut Values<'_>) {
    let (at, length) = (y * bytes.len(), bytes.len());
    match values {
        Values::U8(values) => values[at..][..length].copy_from_slice(bytes),
        Values::F32(values) => {
            in_turn(|place| scale.scaling[place % 3], bytes, &mut values[at..][..length], |value| value);
        }
        Values::Bf16(values) => {
            let values = &mut values[at..][..length];
            match &scale.halves {
                Some(tables) => kernels.halves_in_turn(tables, bytes, values),
                None => in_turn(|place| scale.scaling[place % 3], bytes, values, to_bf16),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decode::kernels::run;
    use crate::transform::prepare::FromPixels;
    use crate::transform::resample::Resize;
    use crate::transform::slots::BatchDtype;

    /// The output bytes of an image, resized or cropped.
    fn written(image: Pixels<'_>, spans: &[Span; 2], numbers: BatchDtype, layout: MemoryFormat, cut: bool) -> Vec<u8> {
        let size = spans[0].wanted.len();
        let (mut f32s, mut u16s, mut u8s) =
            (vec![0.0; 3 * size * size], vec![0; 3 * size * size], vec![0; 3 * size * size]);
        let values = match numbers {
            BatchDtype::F32 => Values::F32(&mut f32s),
            BatchDtype::Bf16 => Values::Bf16(&mut u16s),
            BatchDtype::U8 => Values::U8(&mut u8s),
        };
        let output = Output { values, layout, scaling: &[(0.1, -3.0), (0.2, 5.0), (0.017, -2.1)], size };
        if cut {
            run(Cut { image, spans: spans.clone(), line: &mut Vec::new(), output });
        } else {
            let mut resize = Resize::default();
            resize.set(spans);
            run(FromPixels { image, resize: &mut resize, output });
        }
        match numbers {
            BatchDtype::F32 => f32s.iter().flat_map(|value| value.to_bits().to_le_bytes()).collect(),
            BatchDtype::Bf16 => u16s.iter().flat_map(|value| value.to_le_bytes()).collect(),
            BatchDtype::U8 => u8s,
        }
    }

    proptest! {
        #[test]
        fn a_cut_is_a_resize_to_the_same_size(
            (height, width, size) in (1_usize..90, 1_usize..90).prop_flat_map(|(h, w)| (Just(h), Just(w), 1..=h.min(w))),
            [down, right] in any::<[prop::sample::Index; 2]>(),
            mirrored: bool,
            bytes in prop::collection::vec(any::<u8>(), 97),
        ) {
            let pixels: Vec<u8> = (0..height * width * 3).map(|at| bytes[at % 97] ^ (at >> 5) as u8).collect();
            let image = Pixels { height, width, pixels: &pixels };
            let span = |length: usize, start: prop::sample::Index, mirrored| {
                let start = start.index(length - size + 1);
                Span { from: 0..length, to: length, wanted: start..start + size, mirrored }
            };
            let spans = [span(width, right, mirrored), span(height, down, false)];
            for numbers in [BatchDtype::F32, BatchDtype::Bf16, BatchDtype::U8] {
                for layout in [MemoryFormat::Contiguous, MemoryFormat::ChannelsLast] {
                    let [cut, resized] = [true, false].map(|cut| written(image, &spans, numbers, layout, cut));
                    prop_assert!(cut == resized, "{:?} {:?}", numbers, layout);
                }
            }
        }
    }
}
