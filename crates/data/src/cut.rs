//! A part of a picture that is shown as it is, without resizing: bytes are moved, and at most normalised.

use domain::train::MemoryFormat;

use crate::kernels::{Kernels, Work};
use crate::picture::Pixels;
use crate::prepare::{Output, to_bf16};
use crate::resample::Span;
use crate::slots::Values;

/// A part of a picture, and where it is written. Neither direction of the spans resizes.
pub(crate) struct Cut<'a> {
    pub picture: Pixels<'a>,
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
        let Cut { picture, spans: [columns, rows], line, output } = self;
        let (pixels, _) = picture.pixels.as_chunks::<3>();
        let Output { mut values, layout, scaling, size } = output;
        line.resize(3 * size, 0);
        for (y, row) in rows.shown().enumerate() {
            let shown = &pixels[row * picture.width..][columns.shown()];
            match layout {
                MemoryFormat::Contiguous => apart(kernels, shown, columns.mirrored, line, (&mut values, y), scaling),
                MemoryFormat::ChannelsLast => {
                    together(shown, columns.mirrored, line, (&mut values, y), scaling);
                }
            }
        }
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
    scaling: &[(f32, f32)],
) {
    let size = pixels.len();
    if let Values::U8(values) = values {
        kernels.apart(pixels, mirrored, rows_of(values, size * size).map(|plane| &mut plane[y * size..][..size]));
        return;
    }
    kernels.apart(pixels, mirrored, rows_of(line, size));
    for (channel, bytes) in line.chunks_exact(size).enumerate() {
        let (factor, offset) = scaling[channel];
        let at = (channel * size + y) * size;
        match values {
            Values::F32(values) => {
                for (value, byte) in values[at..][..size].iter_mut().zip(bytes) {
                    *value = f32::from(*byte) * factor + offset;
                }
            }
            Values::Bf16(values) => {
                for (value, byte) in values[at..][..size].iter_mut().zip(bytes) {
                    *value = to_bf16(f32::from(*byte) * factor + offset);
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

/// Numbers that a pattern of three channels and vectors of eight both divide.
const PERIOD: usize = 24;

/// Row `y` of pixels.
#[inline(always)]
fn together(
    pixels: &[[u8; 3]],
    mirrored: bool,
    line: &mut [u8],
    (values, y): (&mut Values<'_>, usize),
    scaling: &[(f32, f32)],
) {
    if !mirrored {
        return normalised(pixels.as_flattened(), scaling, y, values);
    }
    for (found, pixel) in line.as_chunks_mut::<3>().0.iter_mut().zip(pixels.iter().rev()) {
        *found = *pixel;
    }
    normalised(line, scaling, y, values);
}

/// Row `y` of values, from the bytes of pixels of three channels.
#[inline(always)]
pub(crate) fn normalised(bytes: &[u8], scaling: &[(f32, f32)], y: usize, values: &mut Values<'_>) {
    let (at, length) = (y * bytes.len(), bytes.len());
    let number = |place: usize| scaling[place % 3];
    match values {
        Values::U8(values) => values[at..][..length].copy_from_slice(bytes),
        Values::F32(values) => repeat(bytes, &mut values[at..][..length], number, |value| value),
        Values::Bf16(values) => repeat(bytes, &mut values[at..][..length], number, to_bf16),
    }
}

#[inline(always)]
fn repeat<T>(bytes: &[u8], values: &mut [T], number: impl Fn(usize) -> (f32, f32), kind: impl Fn(f32) -> T) {
    let factors: [f32; PERIOD] = std::array::from_fn(|place| number(place).0);
    let offsets: [f32; PERIOD] = std::array::from_fn(|place| number(place).1);
    let whole = bytes.len() / PERIOD * PERIOD;
    for (bytes, values) in bytes.as_chunks::<PERIOD>().0.iter().zip(values.as_chunks_mut::<PERIOD>().0) {
        // A loop, for what `from_fn` is given is not compiled for the processor at hand.
        for (((value, byte), factor), offset) in values.iter_mut().zip(bytes).zip(&factors).zip(&offsets) {
            *value = kind(f32::from(*byte) * factor + offset);
        }
    }
    for (place, (byte, value)) in bytes[whole..].iter().zip(&mut values[whole..]).enumerate() {
        *value = kind(f32::from(*byte) * factors[place] + offsets[place]);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernels::run;
    use crate::prepare::FromPixels;
    use crate::resample::Resize;
    use crate::slots::Numbers;

    /// What is written, as bytes; resized by nothing, or cut.
    fn written(picture: Pixels<'_>, spans: &[Span; 2], numbers: Numbers, layout: MemoryFormat, cut: bool) -> Vec<u8> {
        let size = spans[0].wanted.len();
        let (mut f32s, mut u16s, mut u8s) =
            (vec![0.0; 3 * size * size], vec![0; 3 * size * size], vec![0; 3 * size * size]);
        let values = match numbers {
            Numbers::F32 => Values::F32(&mut f32s),
            Numbers::Bf16 => Values::Bf16(&mut u16s),
            Numbers::U8 => Values::U8(&mut u8s),
        };
        let output = Output { values, layout, scaling: &[(0.1, -3.0), (0.2, 5.0), (0.017, -2.1)], size };
        if cut {
            run(Cut { picture, spans: spans.clone(), line: &mut Vec::new(), output });
        } else {
            let mut resize = Resize::default();
            resize.set(spans);
            run(FromPixels { picture, resize: &mut resize, output });
        }
        match numbers {
            Numbers::F32 => f32s.iter().flat_map(|value| value.to_bits().to_le_bytes()).collect(),
            Numbers::Bf16 => u16s.iter().flat_map(|value| value.to_le_bytes()).collect(),
            Numbers::U8 => u8s,
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
            let picture = Pixels { height, width, pixels: &pixels };
            let span = |length: usize, start: prop::sample::Index, mirrored| {
                let start = start.index(length - size + 1);
                Span { from: 0..length, to: length, wanted: start..start + size, mirrored }
            };
            let spans = [span(width, right, mirrored), span(height, down, false)];
            for numbers in [Numbers::F32, Numbers::Bf16, Numbers::U8] {
                for layout in [MemoryFormat::Contiguous, MemoryFormat::ChannelsLast] {
                    let [cut, resized] = [true, false].map(|cut| written(picture, &spans, numbers, layout, cut));
                    prop_assert!(cut == resized, "{:?} {:?}", numbers, layout);
                }
            }
        }
    }
}
