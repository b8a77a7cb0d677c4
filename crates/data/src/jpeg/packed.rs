//! Reads what `strips` wrote: the strips that a region needs, from frequency planes to blocks to samples.

use std::ops::Range;

use zstd::zstd_safe::DCtx;

use super::coefficients::Coefficients;
use super::markers::{Colour, Component, Frame};
use super::planes::Planes;
use super::rows::Rows;
use super::strips::{MAGIC, Places};
use super::{Decoder, Fault, OUTSIDE, Region};
use crate::kernels::{Kernels, Work, run};

const BROKEN: Fault = Fault::Damaged("its packed coefficients are broken");

/// The value whose sign is in the lowest bit.
#[inline(always)]
fn unfold(folded: u8) -> i16 {
    i16::from(folded >> 1) ^ -i16::from(folded & 1)
}
/// A packed picture, read up to its strips.
#[derive(Debug)]
pub struct Packed<'a> {
    frame: Frame,
    steps: Vec<[u16; 64]>,
    /// Rows of MCUs in a strip.
    height: usize,
    strips: Vec<&'a [u8]>,
}

/// Takes numbers from the front of bytes.
struct Take<'a>(&'a [u8]);

impl<'a> Take<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], Fault> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(Fault::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        self.bytes(N)?.try_into().map_err(|_| Fault::Truncated)
    }

    fn u16(&mut self) -> Result<usize, Fault> {
        Ok(usize::from(u16::from_le_bytes(self.array()?)))
    }
}

impl<'a> Packed<'a> {
    /// Whether bytes begin as a packed picture does.
    pub fn is(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC)
    }

    /// Reads what stands before the strips.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn open(bytes: &'a [u8]) -> Result<Packed<'a>, Fault> {
        let mut take = Take(bytes);
        let [m0, m1, m2, m3, count, colour] = take.array()?;
        let (width, rows, height) = (take.u16()?, take.u16()?, take.u16()?);
        let colour = match (colour, count) {
            (0, 1) => Colour::Grey,
            (1, 3) => Colour::YCbCr,
            (2, 3) => Colour::Rgb,
            (3, 4) => Colour::Cmyk,
            (4, 4) => Colour::Ycck,
            _ => return Err(BROKEN),
        };
        if [m0, m1, m2, m3] != *MAGIC || height == 0 {
            return Err(BROKEN);
        }
        let (mut components, mut steps) = (Vec::new(), Vec::new());
        for _ in 0..count {
            let [h, v] = take.array()?;
            components.push(Component { h: usize::from(h), v: usize::from(v), ..Component::default() });
            let table = take.bytes(128)?.as_chunks::<2>().0;
            steps.push(std::array::from_fn(|at| u16::from_le_bytes(table[at])));
        }
        let frame = Frame::new(width, rows, colour, components)?;
        let count = frame.down.div_ceil(height);
        let ends = take.bytes(count * 4)?.as_chunks::<4>().0;
        let mut strips = Vec::with_capacity(count);
        let mut start = 0;
        for end in ends {
            let end = u32::from_le_bytes(*end) as usize;
            strips.push(take.0.get(start..end).ok_or(Fault::Truncated)?);
            start = end;
        }
        Ok(Packed { frame, steps, height, strips })
    }

    /// Size and kind of the picture.
    pub fn frame(&self) -> &Frame {
        &self.frame
    }

    /// Decodes a region of it, from the strips that it needs; its rows are read from what comes back.
    ///
    /// # Errors
    /// [`Fault`].
    pub(crate) fn decode<'d>(&'d self, decoder: &'d mut Decoder, region: Region) -> Result<Rows<'d>, Fault> {
        if !region.lies_in(&self.frame) {
            return Err(OUTSIDE);
        }
        let Decoder { planes, lines, strip, .. } = decoder;
        planes.lay_out(&self.frame, region);
        for (plane, steps) in planes.planes.iter_mut().zip(&self.steps) {
            plane.steps.0 = steps.map(|step| step as i16);
        }
        let needed = planes.rows.start / self.height..planes.rows.end.div_ceil(self.height);
        for number in needed {
            self.unpack(number, strip)?;
            run(Unpack { packed: self, number, strip, planes: &mut *planes })?;
        }
        Ok(Rows::new(&self.frame, planes, region, lines))
    }

    /// All coefficients.
    ///
    /// # Errors
    /// [`Fault`].
    pub fn coefficients(&self) -> Result<Coefficients, Fault> {
        let mut strip = Strip::default();
        let mut coefficients = Coefficients::new(&self.frame);
        for (part, steps) in coefficients.parts.iter_mut().zip(&self.steps) {
            part.steps = *steps;
        }
        for number in 0..self.strips.len() {
            self.unpack(number, &mut strip)?;
            let rows = self.rows(number);
            for (place, (part, component)) in coefficients.parts.iter_mut().zip(&self.frame.components).enumerate() {
                let first = rows.start * component.v * component.across;
                let count = rows.len() * component.v * component.across;
                let (blocks, _) = part.values.as_chunks_mut::<64>();
                let blocks = &mut blocks[first..first + count];
                for (k, offset) in strip.places.offsets[place].iter().enumerate() {
                    let bytes = &strip.bytes[strip.from + *offset as usize..][..count];
                    blocks.iter_mut().zip(bytes).for_each(|(block, byte)| block[k] = unfold(*byte));
                }
                for escape in strip.list.iter().filter(|escape| escape.component == place) {
                    blocks[escape.block][escape.k] = escape.value;
                }
                let mut predicted = 0_i16;
                for (at, block) in blocks.iter_mut().enumerate() {
                    predicted = if at % component.across == 0 { block[0] } else { predicted.wrapping_add(block[0]) };
                    block[0] = predicted;
                }
            }
        }
        Ok(coefficients)
    }

    /// Rows of MCUs of a strip.
    fn rows(&self, number: usize) -> Range<usize> {
        number * self.height..self.frame.down.min((number + 1) * self.height)
    }

    /// Decompresses one strip.
    fn unpack(&self, number: usize, strip: &mut Strip) -> Result<(), Fault> {
        let Strip { bytes, context, list, from, places } = strip;
        places.set(&self.frame, self.rows(number).len());
        let mut take = Take(self.strips[number]);
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
            list.push(self.escape(places, place, self.rows(number).len(), value).ok_or(BROKEN)?);
        }
        list.sort_unstable_by_key(|escape| (escape.component, escape.block));
        *from = bytes.len() - take.0.len();
        if take.0.len() != places.total() {
            return Err(BROKEN);
        }
        bytes.extend([0; LANES]);
        Ok(())
    }

    /// What a place in a strip of so many rows of MCUs is.
    fn escape(&self, places: &Places, place: u32, rows: usize, value: i16) -> Option<Escape> {
        for (number, (component, offsets)) in self.frame.components.iter().zip(&places.offsets).enumerate() {
            let count = (rows * component.v * component.across) as u32;
            let found = offsets.iter().position(|offset| (*offset..*offset + count).contains(&place));
            if let Some(k) = found {
                return Some(Escape { component: number, block: (place - offsets[k]) as usize, k, value });
            }
        }
        None
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

/// Blocks that are put together at a time.
pub(crate) const LANES: usize = 8;

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

/// From one strip to samples.
struct Unpack<'a> {
    packed: &'a Packed<'a>,
    number: usize,
    strip: &'a Strip,
    planes: &'a mut Planes,
}

impl Work for Unpack<'_> {
    type Output = Result<(), Fault>;

    #[inline(always)]
    fn run(self, kernels: impl Kernels) -> Result<(), Fault> {
        let Unpack { packed, number, strip, planes } = self;
        let rows = packed.rows(number);
        let bytes = &strip.bytes[strip.from..];
        let mut list = strip.list.as_slice();
        let mut first_values: Vec<i16> = Vec::new();
        let mut eight = [[0_i16; 64]; LANES];
        for (place, component) in packed.frame.components.iter().enumerate() {
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
                    kernels.gather(bytes, offsets, line + group, &mut eight);
                    for escape in in_row {
                        if let Some(block) = (escape.block - line).checked_sub(group).and_then(|at| eight.get_mut(at)) {
                            block[escape.k] = escape.value;
                        }
                    }
                    for (column, block) in (group..columns.end).zip(&eight) {
                        let flat = block[1..].iter().fold(0, |all, value| all | value) == 0;
                        let into = planes.block();
                        into[..64].copy_from_slice(block);
                        into[0] = first_values[column];
                        planes.put(kernels, place, column, row, flat);
                    }
                }
            }
        }
        planes.flush(kernels);
        Ok(())
    }
}
