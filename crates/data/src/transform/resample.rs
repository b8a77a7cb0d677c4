//! Resizing that is bit-identical to torchvision, computing only the requested part of the result, directly from a
//! decoder's rows.
//!
//! The filter is a triangle that widens when the image shrinks ("antialias"). Weights are 16-bit integers, rows are
//! resized first and columns second, and bytes are rounded after each, like torchvision's kernel for bytes
//! (`UpSampleKernelAVXAntialias.h` of PyTorch). See `crate::decode::kernels` for the sums.

use std::ops::Range;

use crate::decode::kernels::{Kernels, Taps};

/// One direction of a resize: the inputs of each output, and their weights.
#[derive(Debug, Default)]
pub(crate) struct Axis {
    /// First input of each output, counted from the first input of all.
    first: Vec<u32>,
    weights: Vec<i16>,
    each: usize,
    precision: u32,
    /// The inputs that are needed, in the coordinates of the image.
    inputs: Range<usize>,
    exact: Vec<f64>,
}

/// A resize along one axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Span {
    /// The inputs: the part of the image that is resized. Not empty.
    pub from: Range<usize>,
    /// Outputs that they are resized to.
    pub to: usize,
    /// The requested outputs. Not empty.
    pub wanted: Range<usize>,
    /// Whether outputs come in the opposite order.
    pub mirrored: bool,
}

impl Span {
    /// Whether the axis is not resized, at most cropped or mirrored.
    pub fn is_as_is(&self) -> bool {
        self.from.len() == self.to
    }

    /// The requested inputs of an axis that is not resized.
    pub fn shown(&self) -> Range<usize> {
        self.from.start + self.wanted.start..self.from.start + self.wanted.end
    }
}

/// Bits of a weight, its sign included.
const WEIGHT_BITS: u32 = 15;

impl Axis {
    /// Computes the weights; memory is used again.
    pub fn set(&mut self, span: &Span) {
        let length = span.from.len();
        let scale = length as f64 / span.to as f64;
        let support = scale.max(1.0);
        let inverse = if scale >= 1.0 { 1.0 / scale } else { 1.0 };
        let window = |output: usize| {
            let centre = scale * (output as f64 + 0.5);
            let start = (centre - support + 0.5).max(0.0) as usize;
            let end = ((centre + support + 0.5) as usize).min(length);
            (centre, start, end.max(start + 1).min(length))
        };
        // The largest weight of all outputs sets the precision, including outputs that are not requested.
        let most = (support.ceil() as usize) * 2 + 1;
        let mut largest = 0.0_f64;
        self.exact.clear();
        self.exact.resize(most * span.wanted.len(), 0.0);
        let (mut lowest, mut highest) = (length, 0);
        for output in 0..span.to {
            let (centre, start, end) = window(output);
            let mut line = [0.0; 0].as_mut_slice();
            if span.wanted.contains(&output) {
                let index = output - span.wanted.start;
                line = &mut self.exact[index * most..][..most];
                (lowest, highest) = (lowest.min(start), highest.max(end));
            }
            let weight = |input: usize| (1.0 - ((input as f64 - centre + 0.5) * inverse).abs()).max(0.0);
            let total: f64 = (start..end).map(weight).sum();
            let scaled = 1.0 / total;
            for input in start..end {
                let value = weight(input) * scaled;
                largest = largest.max(value);
                if let Some(slot) = line.get_mut(input - start) {
                    *slot = value;
                }
            }
        }
        let fits = |bits: &u32| ((0.5 + largest * f64::from(1_u32 << (bits + 1))) as i64) < 1 << WEIGHT_BITS;
        self.precision = (0..22).find(|bits| !fits(bits)).unwrap_or(22);
        self.inputs = span.from.start + lowest..span.from.start + highest;
        let needed = span.wanted.clone().map(window).map(|(_, start, end)| end - start).max().unwrap_or(1);
        self.each = needed.next_multiple_of(4);
        self.first.clear();
        self.weights.clear();
        let one = f64::from(1_u32 << self.precision);
        for index in 0..span.wanted.len() {
            let index = if span.mirrored { span.wanted.len() - 1 - index } else { index };
            let (_, start, _) = window(span.wanted.start + index);
            self.first.push((start - lowest) as u32);
            let line = &self.exact[index * most..][..most];
            let weights = (0..self.each).map(|at| line.get(at).map_or(0, |weight| (0.5 + weight * one) as i16));
            self.weights.extend(weights);
        }
    }

    /// The inputs that are needed.
    pub fn inputs(&self) -> Range<usize> {
        self.inputs.clone()
    }

    /// Number of inputs that a row needs for `across`, from the first needed one; those after the last have zero
    /// weight.
    pub fn padded(&self) -> usize {
        self.inputs.len() + self.each
    }

    fn taps(&self) -> Taps<'_> {
        Taps { first: &self.first, weights: &self.weights, each: self.each, precision: self.precision }
    }
}

/// Memory of a resize, used again for the next.
#[derive(Debug, Default)]
pub(crate) struct Resize {
    pub columns: Axis,
    pub rows: Axis,
    /// One row of the image.
    line: Vec<[u8; 4]>,
    /// Rows resized along.
    between: Vec<[u8; 4]>,
    /// One row of the result.
    out: Vec<[u8; 4]>,
}

impl Resize {
    /// Prepares a resize along columns and rows.
    pub fn set(&mut self, [columns, rows]: &[Span; 2]) {
        self.columns.set(columns);
        self.rows.set(rows);
    }

    /// Resizes; `read` fills a row of the image, from column [`Axis::inputs`] on, `write` takes a row of the result.
    #[inline(always)]
    pub fn perform<K: Kernels>(
        &mut self,
        kernels: K,
        mut read: impl FnMut(usize, &mut [[u8; 4]]),
        mut write: impl FnMut(usize, &[[u8; 4]]),
    ) {
        let Resize { columns, rows, line, between, out } = self;
        let width = columns.first.len();
        let height = rows.inputs.len();
        line.resize(columns.padded(), [0; 4]);
        between.resize(width * (height + rows.each), [0; 4]);
        out.resize(width, [0; 4]);
        let taps = columns.taps();
        for (y, row) in rows.inputs.clone().zip(between.chunks_exact_mut(width)) {
            read(y, &mut line[..columns.inputs.len()]);
            kernels.across(&taps, line, row);
        }
        let mut inputs: Vec<&[[u8; 4]]> = Vec::with_capacity(rows.each);
        for (y, (first, weights)) in rows.first.iter().zip(rows.weights.chunks_exact(rows.each)).enumerate() {
            // Trailing zero weights are skipped, in pairs.
            let used = weights.iter().rposition(|weight| *weight != 0).map_or(2, |last| (last + 2) & !1);
            inputs.clear();
            inputs.extend(between.chunks_exact(width).skip(*first as usize).take(used));
            kernels.down(&inputs, &weights[..used], rows.precision, out);
            write(y, out);
        }
    }
}
