//! Coefficients as a shard keeps them: in frequency planes, compressed strip by strip, so that a region can be read alone
//! and reading costs a fraction of Huffman decoding. `packed` reads what is written here.
//!
//! A strip is some rows of MCUs. In it, for each component, DC values are differences from the block before (starting
//! at 0 in each row of blocks); signs are folded into the lowest bit; and the first coefficients of all blocks stand
//! together, then the second ones, in zigzag order. Coefficients of alike frequency are compressed apart from others,
//! for each such band has a Huffman table of its own; short matches are not looked for, as they cost time and space. A
//! value of 255 or more is written as 255, and once more in full in a list. Pixels are those of the JPEG to the bit,
//! for they are made of the same coefficients.
//!
//! ```text
//! magic `GJC1` | u8 components, u8 colour, u16 width, u16 height, u16 rows of MCUs in a strip | per component: u8 h, u8 v,
//! u16 steps[64] row by row | u32 end of each strip, counted from the end of this list | strips
//! strip: u32 bytes when decompressed | zstd frames: the list; for each band the first component, then the others
//! list: u32 values in it, each u32 place (counted from the end of the list), i16 value
//! ```

use std::ops::Range;

use zstd::bulk::Compressor;
use zstd::zstd_safe::CParameter;

use super::Fault;
use super::coefficients::Coefficients;
use super::markers::{Colour, Frame, ZIGZAG};

pub(super) const MAGIC: &[u8; 4] = b"GJC1";
/// Rows of blocks of the finest component in a strip: enough for the compressor, and few to read too many.
const STRIP: usize = 16;
/// Where bands of frequencies begin and end, in zigzag order: as few tables as give nearly the size of many.
const BANDS: [usize; 6] = [0, 3, 10, 21, 36, 64];
/// The shortest match that the compressor looks for.
const MATCH: u32 = 7;
/// Written for values that do not fit in a byte.
const ESCAPE: u16 = 255;
const UNABLE: Fault = Fault::Unsupported("its coefficients cannot be compressed");

/// Packs coefficients; `level` is zstd's.
///
/// # Errors
/// [`Fault`], if the compressor fails.
pub fn encode_strips(coefficients: &Coefficients, level: i32) -> Result<Vec<u8>, Fault> {
    let frame = &coefficients.frame;
    let height = strip_height(frame);
    let mut packed = MAGIC.to_vec();
    let colour = match frame.colour {
        Colour::Grey => 0,
        Colour::YCbCr => 1,
        Colour::Rgb => 2,
        Colour::Cmyk => 3,
        Colour::Ycck => 4,
    };
    packed.extend([frame.components.len() as u8, colour]);
    for number in [frame.width, frame.height, height] {
        packed.extend((number as u16).to_le_bytes());
    }
    for (component, part) in frame.components.iter().zip(&coefficients.parts) {
        packed.extend([component.h as u8, component.v as u8]);
        packed.extend(part.steps.iter().flat_map(|step| step.to_le_bytes()));
    }
    let mut strips = Vec::new();
    let mut compressor = Compressor::new(level).map_err(|_| UNABLE)?;
    for flag in [CParameter::ContentSizeFlag(false), CParameter::MinMatch(MATCH)] {
        compressor.set_parameter(flag).map_err(|_| UNABLE)?;
    }
    for first in (0..frame.down).step_by(height) {
        let rows = first..frame.down.min(first + height);
        compress(coefficients, rows, &mut compressor, &mut strips).map_err(|_| UNABLE)?;
        packed.extend((strips.len() as u32).to_le_bytes());
    }
    packed.extend(strips);
    Ok(packed)
}

fn strip_height(frame: &Frame) -> usize {
    (STRIP / frame.v).max(1)
}

/// Where the planes of a strip lie.
#[derive(Debug, Default)]
pub(super) struct Places {
    /// For each component the place of the plane of each coefficient, row by row.
    pub offsets: Vec<[u32; 64]>,
    /// Where each part that is compressed by itself ends.
    ends: Vec<usize>,
}

impl Places {
    /// Those of a strip of so many rows of MCUs.
    pub fn set(&mut self, frame: &Frame, rows: usize) {
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

    /// Bytes of all planes.
    pub fn total(&self) -> usize {
        self.ends.last().copied().unwrap_or(0)
    }
}

/// Adds one strip to `strips`.
fn compress(
    coefficients: &Coefficients,
    rows: Range<usize>,
    compressor: &mut Compressor<'_>,
    strips: &mut Vec<u8>,
) -> std::io::Result<()> {
    let mut places = Places::default();
    places.set(&coefficients.frame, rows.len());
    let (mut bytes, mut list) = (vec![0; places.total()], Vec::new());
    let parts = coefficients.frame.components.iter().zip(&coefficients.parts).zip(&places.offsets);
    for ((component, part), offsets) in parts {
        let (blocks, _) = part.values.as_chunks::<64>();
        let blocks = &blocks[rows.start * component.v * component.across..rows.end * component.v * component.across];
        for (at, block) in blocks.iter().enumerate() {
            let before = if at % component.across == 0 { 0 } else { blocks[at - 1][0] };
            for (k, value) in block.iter().enumerate() {
                let value = if k == 0 { value.wrapping_sub(before) } else { *value };
                let folded = fold(value);
                let place = offsets[k] as usize + at;
                bytes[place] = folded.min(ESCAPE) as u8;
                if folded >= ESCAPE {
                    list.push((place as u32, value));
                }
            }
        }
    }
    let mut listed = (list.len() as u32).to_le_bytes().to_vec();
    for (place, value) in list {
        listed.extend(place.to_le_bytes());
        listed.extend(value.to_le_bytes());
    }
    strips.extend(((listed.len() + bytes.len()) as u32).to_le_bytes());
    strips.extend(compressor.compress(&listed)?);
    let mut start = 0;
    for end in places.ends {
        strips.extend(compressor.compress(&bytes[start..end])?);
        start = end;
    }
    Ok(())
}

/// The sign in the lowest bit: 0, -1, 1, -2, … become 0, 1, 2, 3, …
fn fold(value: i16) -> u16 {
    ((value << 1) ^ (value >> 15)) as u16
}
