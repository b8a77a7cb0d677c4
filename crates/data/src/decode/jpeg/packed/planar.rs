//! Reads a strip of the first form, which is no longer written (`GJC1`).
//!
//! In a strip, for each component, DC values are differences from the block before (starting at 0 in each row of
//! blocks); signs are folded into the lowest bit; and the first coefficients of all blocks stand together, then the
//! second ones, in zigzag order. Coefficients of alike frequency are compressed apart from others. A value of 255 or
//! more is written as 255, and once more in full in a list.
//!
//! ```text
//! magic `GJC1` | u8 components, u8 colour, u16 width, u16 height, u16 rows of MCUs in a strip | per component: u8 h, u8 v,
//! u16 steps[64] row by row | u32 end of each strip, counted from the end of this list | strips
//! strip: u32 bytes when decompressed | zstd frames: the list; for each band the first component, then the others
//! list: u32 values in it, each u32 place (counted from the end of the list), i16 value
//! ```

use std::ops::Range;

use zstd::zstd_safe::DCtx;

use super::head::Start;
use super::{BROKEN, LANES, Take, unfold};
use crate::decode::jpeg::fault::JpegError;
use crate::decode::jpeg::markers::{Component, FrameHeader, ZIGZAG};
use crate::decode::jpeg::planes::Planes;
use crate::decode::kernels::{Kernels, Work};

pub(super) const MAGIC: &[u8; 4] = b"GJC1";
/// Where bands of frequencies begin and end, in zigzag order.
const BANDS: [usize; 6] = [0, 3, 10, 21, 36, 64];

/// Reads the components of an image, and their quantisation steps.
pub(super) fn components(start: &Start, take: &mut Take<'_>) -> Result<(FrameHeader, Vec<[u16; 64]>), JpegError> {
    let (mut components, mut steps) = (Vec::new(), Vec::new());
    for _ in 0..start.count {
        let [h, v] = take.array()?;
        components.push(Component { h: usize::from(h), v: usize::from(v), ..Component::default() });
        steps.push(take.steps()?);
    }
    Ok((FrameHeader::new(start.width, start.height, start.colour, components)?, steps))
}

/// Where the planes of a strip lie.
#[derive(Debug, Default)]
struct Places {
    /// For each component the place of the plane of each coefficient, row by row.
    offsets: Vec<[u32; 64]>,
    /// Where each part that is compressed by itself ends.
    ends: Vec<usize>,
}

impl Places {
    /// Those of a strip of so many rows of MCUs.
    fn set(&mut self, frame: &FrameHeader, rows: usize) {
        self.offsets.clear();
        self.offsets.resize(frame.components.len(), [0; 64]);
        self.ends.clear();
        let mut at = 0;
        for band in BANDS.windows(2) {
            for (number, (component, offsets)) in frame.components.iter().zip(&mut self.offsets).enumerate() {
                let count = rows * component.v * component.across;
                for place in &ZIGZAG[band[0]..band[1]] {
                    offsets[usize::from(*place)] = at as u32;
                    at += count;
                }
                // The first is brightness; those of colour are alike.
                if number == 0 || number + 1 == frame.components.len() {
                    self.ends.push(at);
                }
            }
        }
        self.ends.dedup();
    }

    /// What a place in a strip of so many rows of MCUs is.
    fn escape(&self, frame: &FrameHeader, rows: usize, place: u32, value: i16) -> Option<Escape> {
        for (number, (component, offsets)) in frame.components.iter().zip(&self.offsets).enumerate() {
            let count = (rows * component.v * component.across) as u32;
            let found = offsets.iter().position(|offset| (*offset..*offset + count).contains(&place));
            if let Some(k) = found {
                return Some(Escape { component: number, block: (place - offsets[k]) as usize, k, value });
            }
        }
        None
    }

    /// Bytes of all planes.
    fn total(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }
}

/// A value that does not fit in a byte.
#[derive(Debug, Clone, Copy)]
struct Escape {
    component: usize,
    /// Number of the block among those of its component in the strip.
    block: usize,
    /// Place in the block.
    k: usize,
    value: i16,
}

/// One strip, decompressed; memory that is used again.
#[derive(Default)]
pub(super) struct Strip {
    bytes: Vec<u8>,
    /// Where the planes begin.
    from: usize,
    list: Vec<Escape>,
    places: Places,
    context: Option<DCtx<'static>>,
}

impl std::fmt::Debug for Strip {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Strip").field("bytes", &self.bytes.len()).finish_non_exhaustive()
    }
}

impl Strip {
    /// Decompresses a strip of so many rows of MCUs.
    pub fn unpack(&mut self, frame: &FrameHeader, rows: usize, strip: &[u8]) -> Result<(), JpegError> {
        let Strip { bytes, context, list, from, places } = self;
        places.set(frame, rows);
        let mut take = Take(strip);
        let size = u32::from_le_bytes(take.array()?) as usize;
        // Every value may be in the list.
        if size < 4 + places.total() || size > 4 + places.total() * 7 {
            return Err(BROKEN);
        }
        bytes.clear();
        bytes.reserve(size + LANES);
        let found = context.get_or_insert_with(DCtx::create).decompress(bytes, take.0);
        if found != Ok(size) || bytes.len() != size {
            return Err(BROKEN);
        }
        let mut take = Take(bytes);
        let escaped = u32::from_le_bytes(take.array()?) as usize;
        list.clear();
        for entry in take.bytes(escaped.checked_mul(6).ok_or(BROKEN)?)?.as_chunks::<6>().0 {
            let place = u32::from_le_bytes([entry[0], entry[1], entry[2], entry[3]]);
            let value = i16::from_le_bytes([entry[4], entry[5]]);
            list.push(places.escape(frame, rows, place, value).ok_or(BROKEN)?);
        }
        list.sort_unstable_by_key(|escape| (escape.component, escape.block));
        *from = bytes.len() - take.0.len();
        if take.0.len() != places.total() {
            return Err(BROKEN);
        }
        bytes.extend([0; LANES]);
        Ok(())
    }

    /// Puts each coefficient of the strip in its place; told are component, column, row of the strip and the block.
    pub fn blocks(&self, frame: &FrameHeader, rows: usize, mut tell: impl FnMut((usize, usize, usize), [i16; 64])) {
        for (place, component) in frame.components.iter().enumerate() {
            let offsets = &self.places.offsets[place];
            let mut predicted = 0_i16;
            for at in 0..rows * component.v * component.across {
                let mut block = offsets.map(|offset| unfold(self.bytes[self.from + offset as usize + at]));
                let escapes = self.list.partition_point(|escape| (escape.component, escape.block) < (place, at));
                let of_block = |escape: &&Escape| (escape.component, escape.block) == (place, at);
                for escape in self.list[escapes..].iter().take_while(of_block) {
                    block[escape.k] = escape.value;
                }
                predicted = if at % component.across == 0 { block[0] } else { predicted.wrapping_add(block[0]) };
                block[0] = predicted;
                tell((place, at % component.across, at / component.across), block);
            }
        }
    }
}

/// From one strip to samples.
pub(super) struct Samples<'a> {
    pub frame: &'a FrameHeader,
    /// Rows of MCUs of the strip.
    pub rows: Range<usize>,
    pub strip: &'a Strip,
    pub planes: &'a mut Planes,
}

impl Work for Samples<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self, kernels: impl Kernels) {
        let Samples { frame, rows, strip, planes } = self;
        let bytes = &strip.bytes[strip.from..];
        let mut list = strip.list.as_slice();
        let mut first_values: Vec<i16> = Vec::new();
        let mut eight = [[0_i16; 128]; LANES];
        for (place, component) in frame.components.iter().enumerate() {
            let across = component.across;
            let (top, bottom) = (rows.start * component.v, rows.end * component.v);
            let offsets = &strip.places.offsets[place];
            let first = offsets[0] as usize;
            let mine = list.iter().take_while(|escape| escape.component == place).count();
            let (mut escapes, rest) = list.split_at(mine);
            list = rest;
            let (columns, wanted) = (planes.planes[place].columns.clone(), planes.planes[place].rows.clone());
            for row in wanted.start.max(top)..wanted.end.min(bottom) {
                let line = (row - top) * across;
                // Escapes of this row: earlier rows are not wanted or are done.
                let passed = escapes.partition_point(|escape| escape.block < line);
                let here = escapes[passed..].partition_point(|escape| escape.block < line + across);
                let in_row = &escapes[passed..passed + here];
                escapes = &escapes[passed + here..];
                first_values.clear();
                first_values.extend(bytes[first + line..][..across].iter().map(|byte| unfold(*byte)));
                for escape in in_row.iter().filter(|escape| escape.k == 0) {
                    first_values[escape.block - line] = escape.value;
                }
                let mut sum = 0_i16;
                for value in &mut first_values {
                    sum = sum.wrapping_add(*value);
                    *value = sum;
                }
                for group in columns.clone().step_by(LANES) {
                    kernels.gather(bytes, offsets, line + group, 4, &mut eight);
                    for escape in in_row {
                        if let Some(block) = (escape.block - line).checked_sub(group).and_then(|at| eight.get_mut(at)) {
                            block[escape.k] = escape.value;
                        }
                    }
                    for (column, block) in (group..columns.end).zip(&eight) {
                        let flat = block[1..64].iter().fold(0, |all, value| all | value) == 0;
                        let into = planes.block();
                        *into = *block;
                        into[0] = first_values[column];
                        planes.put(kernels, place, column, row, flat);
                    }
                }
            }
        }
        planes.flush(kernels);
    }
}
