//! Coefficients as a shard keeps them: smaller than the JPEG file, and read in a fraction of the time that Huffman decoding
//! takes; pixels are the same to the bit, for they are made of the same coefficients.
//!
//! A strip is some rows of MCUs, so that a region can be read alone. Its blocks are sorted by where their last coefficient
//! stands (`classes`), and in each class the first coefficients of all blocks stand together, then the second ones, in
//! zigzag order, as far as the class has any. DC values are differences from the block before (starting at 0 in each row of
//! blocks), signs are folded into the lowest bit. Each kind of value has chances of its own out of a fixed family
//! (`chances`), by which an entropy coder with many states writes it (`states`).
//!
//! ```text
//! magic `GJC2` | u8 components, u8 colour, u16 width, u16 height, u16 rows of MCUs in a strip | per component: u8 h << 4 | v
//! | per component: u8 kind of steps, steps | per group: u16 classes that it has, u8 chances of the classes, of each class:
//! u8 chances of the DC differences and of each band | u32 end of each strip, counted from the end of this list | strips
//! | zeros, so that there is a byte for every 32 blocks
//! chances: place in the family << 1 | whether plain bits follow some values
//! strip: u32 states[64] | u32 words, each u16 | plain bits, the lowest first
//! in a strip, per group: class of each block less the one expected | per class: DC differences, the planes of each band
//! ```
//!
//! Numbers are little-endian. `write` packs; `head`, `classed` and, for what earlier versions wrote, `planar` read.

mod chances;
mod classed;
mod classes;
mod head;
mod planar;
mod states;
mod write;

use std::ops::Range;

use self::classes::{blocks, groups};
use self::head::{Contexts, Start};
pub use self::write::encode_strips;
use super::coefficients::Coefficients;
use super::fault::JpegError;
use super::file::Decoder;
use super::markers::FrameHeader;
use super::region::{OUTSIDE, PixelRegion};
use super::rows::Rows;
use crate::decode::kernels::{LANES, SLOT_BITS, STATES, run};

const MAGIC: &[u8; 4] = b"GJC2";
const BROKEN: JpegError = JpegError::Damaged("its packed coefficients are broken");
/// An image that claims more blocks for each of its bytes is refused.
const MOST_BLOCKS_A_BYTE: usize = 32;

/// The value whose sign is in the lowest bit.
#[inline(always)]
fn unfold(folded: u8) -> i16 {
    i16::from(folded >> 1) ^ -i16::from(folded & 1)
}

/// A packed image, read up to its strips.
#[derive(Debug)]
pub struct PackedJpeg<'a> {
    frame: FrameHeader,
    steps: Vec<[u16; 64]>,
    /// Rows of MCUs in a strip.
    height: usize,
    strips: Vec<&'a [u8]>,
    form: Form,
}

#[derive(Debug)]
enum Form {
    /// `GJC1`.
    Planar,
    /// `GJC2`.
    Classed(Box<Contexts>),
}

/// One strip, read; memory that is used again.
#[derive(Debug, Default)]
pub(super) struct Strip {
    planar: planar::Strip,
    classed: classed::Strip,
}

/// Takes numbers from the front of bytes.
struct Take<'a>(&'a [u8]);

impl<'a> Take<'a> {
    fn bytes(&mut self, count: usize) -> Result<&'a [u8], JpegError> {
        let (taken, rest) = self.0.split_at_checked(count).ok_or(JpegError::Truncated)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], JpegError> {
        self.bytes(N)?.try_into().map_err(|_| JpegError::Truncated)
    }

    fn u16(&mut self) -> Result<usize, JpegError> {
        Ok(usize::from(u16::from_le_bytes(self.array()?)))
    }

    /// Quantisation steps of two bytes each.
    fn steps(&mut self) -> Result<[u16; 64], JpegError> {
        let table = self.bytes(128)?.as_chunks::<2>().0;
        Ok(std::array::from_fn(|at| u16::from_le_bytes(table[at])))
    }
}

impl<'a> PackedJpeg<'a> {
    /// Whether bytes begin as a packed image does.
    pub fn is(bytes: &[u8]) -> bool {
        bytes.starts_with(MAGIC) || PackedJpeg::is_of_old(bytes)
    }

    /// Whether bytes begin as an image does that an earlier version packed, in more room.
    pub fn is_of_old(bytes: &[u8]) -> bool {
        bytes.starts_with(planar::MAGIC)
    }

    /// Reads what stands before the strips.
    ///
    /// # Errors
    /// [`JpegError`].
    pub fn open(bytes: &'a [u8]) -> Result<PackedJpeg<'a>, JpegError> {
        let mut take = Take(bytes);
        let magic = take.array()?;
        let start = Start::read(&mut take)?;
        let (frame, steps, form) = match &magic {
            MAGIC => {
                let (frame, steps) = start.components(&mut take)?;
                // A small file does not claim much memory.
                let all: usize = groups(&frame).map(|group| blocks(&frame, group, frame.down)).sum();
                if all > bytes.len() * MOST_BLOCKS_A_BYTE {
                    return Err(JpegError::Truncated);
                }
                let contexts = Contexts::read(&mut take, &frame)?;
                (frame, steps, Form::Classed(Box::new(contexts)))
            }
            planar::MAGIC => {
                let (frame, steps) = planar::components(&start, &mut take)?;
                (frame, steps, Form::Planar)
            }
            _ => return Err(BROKEN),
        };
        let count = frame.down.div_ceil(start.strip);
        let ends = take.bytes(count * 4)?.as_chunks::<4>().0;
        let mut strips = Vec::with_capacity(count);
        let mut from = 0;
        for end in ends {
            let end = u32::from_le_bytes(*end) as usize;
            strips.push(take.0.get(from..end).ok_or(JpegError::Truncated)?);
            from = end;
        }
        Ok(PackedJpeg { frame, steps, height: start.strip, strips, form })
    }

    /// Size and kind of the image.
    pub fn frame(&self) -> &FrameHeader {
        &self.frame
    }

    /// Decodes a region of it, from the strips that it needs; its rows are read from what comes back.
    ///
    /// # Errors
    /// [`JpegError`].
    pub(crate) fn decode<'d>(&'d self, decoder: &'d mut Decoder, region: PixelRegion) -> Result<Rows<'d>, JpegError> {
        if !region.lies_in(&self.frame) {
            return Err(OUTSIDE);
        }
        let Decoder { planes, lines, strip, .. } = decoder;
        planes.lay_out(&self.frame, region);
        for (plane, steps) in planes.planes.iter_mut().zip(&self.steps) {
            plane.steps.0 = steps.map(|step| step as i16);
        }
        let frame = &self.frame;
        for number in planes.rows.start / self.height..planes.rows.end.div_ceil(self.height) {
            let (rows, bytes) = (self.rows(number), self.strips[number]);
            match &self.form {
                Form::Planar => {
                    strip.planar.unpack(frame, rows.len(), bytes)?;
                    run(planar::Samples { frame, rows, strip: &strip.planar, planes: &mut *planes });
                }
                Form::Classed(contexts) => {
                    let (strip, planes) = (&mut strip.classed, Some(&mut *planes));
                    run(classed::Unpack { frame, contexts, rows, bytes, strip, planes })?;
                }
            }
        }
        Ok(Rows::new(&self.frame, planes, region, lines))
    }

    /// All coefficients.
    ///
    /// # Errors
    /// [`JpegError`].
    pub fn coefficients(&self) -> Result<Coefficients, JpegError> {
        let mut strip = Strip::default();
        let frame = &self.frame;
        let mut coefficients = Coefficients::new(frame);
        for (part, steps) in coefficients.parts.iter_mut().zip(&self.steps) {
            part.steps = *steps;
        }
        for (number, bytes) in self.strips.iter().enumerate() {
            let rows = self.rows(number);
            match &self.form {
                Form::Planar => {
                    strip.planar.unpack(frame, rows.len(), bytes)?;
                    strip.planar.blocks(frame, rows.len(), |(component, column, row), block| {
                        let row = row + rows.start * frame.components[component].v;
                        *coefficients.block(component, column, row) = block;
                    });
                }
                Form::Classed(contexts) => {
                    let strip = &mut strip.classed;
                    run(classed::Unpack { frame, contexts, rows, bytes, strip: &mut *strip, planes: None })?;
                    strip.blocks(frame, |(component, column, row), block| {
                        *coefficients.block(component, column, row) = block;
                    });
                }
            }
        }
        Ok(coefficients)
    }

    /// Rows of MCUs of a strip.
    fn rows(&self, number: usize) -> Range<usize> {
        number * self.height..self.frame.down.min((number + 1) * self.height)
    }
}
