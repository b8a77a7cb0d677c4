//! What stands before the strips of a packed image, in either form.

use super::chances::FAMILY;
use super::classes::{CLASSES, CONTEXTS, FIRST, OF_CLASSES, bands, groups};
use super::{BROKEN, Take};
use crate::decode::jpeg::fault::JpegError;
use crate::decode::jpeg::markers::{Colour, Component, FrameHeader};

/// Quantisation steps of ITU-T T.81, annex K: for brightness and for colour, row by row.
const STANDARD: [[u8; 64]; 2] = [
    [
        16, 11, 10, 16, 24, 40, 51, 61, 12, 12, 14, 19, 26, 58, 60, 55, 14, 13, 16, 24, 40, 57, 69, 56, 14, 17, 22, 29,
        51, 87, 80, 62, 18, 22, 37, 56, 68, 109, 103, 77, 24, 35, 55, 64, 81, 104, 113, 92, 49, 64, 78, 87, 103, 121,
        120, 101, 72, 92, 95, 98, 112, 100, 103, 99,
    ],
    [
        17, 18, 24, 47, 99, 99, 99, 99, 18, 21, 26, 66, 99, 99, 99, 99, 24, 26, 56, 99, 99, 99, 99, 99, 47, 66, 99, 99,
        99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99, 99,
        99, 99, 99, 99, 99, 99, 99, 99,
    ],
];

/// How steps are reported: in bytes, by the quality of libjpeg's scale from 1 to 100 for [`STANDARD`], in words, or as
/// those of an earlier component.
const BYTES: u8 = 0;
const WORDS: u8 = 201;
const AS_BEFORE: u8 = 202;

/// [`STANDARD`] at a quality, as libjpeg scales it.
fn standard(table: usize, quality: u16) -> [u16; 64] {
    let scale = if quality < 50 { 5000 / u32::from(quality) } else { 200 - 2 * u32::from(quality) };
    STANDARD[table].map(|step| ((u32::from(step) * scale + 50) / 100).clamp(1, 255) as u16)
}

/// Writes the steps of the components one after another.
fn write_steps(steps: &[[u16; 64]], into: &mut Vec<u8>) {
    for (number, table) in steps.iter().enumerate() {
        let is_standard =
            |told: &u8| standard(usize::from((told - 1) / 100), u16::from((told - 1) % 100 + 1)) == *table;
        if let Some(earlier) = steps[..number].iter().position(|other| other == table) {
            into.push(AS_BEFORE + earlier as u8);
        } else if let Some(told) = (1..WORDS).find(is_standard) {
            into.push(told);
        } else if table.iter().all(|step| *step < 256) {
            into.push(BYTES);
            into.extend(table.map(|step| step as u8));
        } else {
            into.push(WORDS);
            into.extend(table.iter().flat_map(|step| step.to_le_bytes()));
        }
    }
}

fn read_steps(take: &mut Take<'_>, earlier: &[[u16; 64]]) -> Result<[u16; 64], JpegError> {
    let [told] = take.array()?;
    match told {
        BYTES => Ok(take.array::<64>()?.map(u16::from)),
        WORDS => take.steps(),
        AS_BEFORE.. => earlier.get(usize::from(told - AS_BEFORE)).copied().ok_or(BROKEN),
        _ => Ok(standard(usize::from((told - 1) / 100), u16::from((told - 1) % 100 + 1))),
    }
}

/// What both forms begin with, behind the magic: components and colour, size, rows of MCUs in a strip.
pub(super) struct Start {
    pub count: u8,
    pub colour: Colour,
    pub width: usize,
    pub height: usize,
    pub strip: usize,
}

impl Start {
    /// Reads what comes first: colours, size and the components.
    pub fn read(take: &mut Take<'_>) -> Result<Start, JpegError> {
        let [count, colour] = take.array()?;
        let colour = match (colour, count) {
            (0, 1) => Colour::Grey,
            (1, 3) => Colour::YCbCr,
            (2, 3) => Colour::Rgb,
            (3, 4) => Colour::Cmyk,
            (4, 4) => Colour::Ycck,
            _ => return Err(BROKEN),
        };
        let (width, height, strip) = (take.u16()?, take.u16()?, take.u16()?);
        if strip == 0 {
            return Err(BROKEN);
        }
        Ok(Start { count, colour, width, height, strip })
    }

    /// Writes that of a frame, with the sampling factors and the steps of its components.
    pub fn write(frame: &FrameHeader, strip: usize, steps: &[[u16; 64]], into: &mut Vec<u8>) {
        let colour = match frame.colour {
            Colour::Grey => 0,
            Colour::YCbCr => 1,
            Colour::Rgb => 2,
            Colour::Cmyk => 3,
            Colour::Ycck => 4,
        };
        into.extend([frame.components.len() as u8, colour]);
        for number in [frame.width, frame.height, strip] {
            into.extend((number as u16).to_le_bytes());
        }
        for component in &frame.components {
            into.push((component.h << 4 | component.v) as u8);
        }
        write_steps(steps, into);
    }

    /// Reads the components that [`Start::write`] wrote, and their steps.
    pub fn components(&self, take: &mut Take<'_>) -> Result<(FrameHeader, Vec<[u16; 64]>), JpegError> {
        let (mut components, mut steps) = (Vec::new(), Vec::new());
        for _ in 0..self.count {
            let [factors] = take.array()?;
            let (h, v) = (usize::from(factors >> 4), usize::from(factors & 15));
            components.push(Component { h, v, ..Component::default() });
        }
        for _ in 0..self.count {
            let table = read_steps(take, &steps)?;
            steps.push(table);
        }
        Ok((FrameHeader::new(self.width, self.height, self.colour, components)?, steps))
    }
}

/// For each context of each group its chances: their place in the family, and whether any value has plain bits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Contexts(pub [[(u8, bool); CONTEXTS]; 2]);

impl Default for Contexts {
    fn default() -> Contexts {
        Contexts([[(0, false); CONTEXTS]; 2])
    }
}

impl Contexts {
    /// Reads which classes each group of a frame has, and the contexts of those.
    pub fn read(take: &mut Take<'_>, frame: &FrameHeader) -> Result<Contexts, JpegError> {
        let mut contexts = Contexts::default();
        for (contexts, _) in contexts.0.iter_mut().zip(groups(frame)) {
            let present = take.u16()?;
            let mut read = |context: usize| {
                let [told] = take.array()?;
                contexts[context] = (told >> 1, told & 1 == 1);
                Ok::<(), JpegError>(())
            };
            read(OF_CLASSES)?;
            for class in (0..CLASSES).filter(|class| present >> class & 1 == 1) {
                read(FIRST[class])?;
                bands(class).try_for_each(|(context, _)| read(context))?;
            }
        }
        Ok(contexts)
    }

    /// Writes the same; for each group, whether it has each class.
    pub fn write(&self, present: &[[bool; CLASSES]], into: &mut Vec<u8>) {
        const { assert!(FAMILY <= 128, "a place in the family and a flag are one byte") };
        for (contexts, present) in self.0.iter().zip(present) {
            let mask = (0..CLASSES).fold(0_u16, |mask, class| mask | u16::from(present[class]) << class);
            into.extend(mask.to_le_bytes());
            let mut write = |context: usize| {
                let (place, large) = contexts[context];
                into.push(place << 1 | u8::from(large));
            };
            write(OF_CLASSES);
            for class in (0..CLASSES).filter(|class| present[*class]) {
                write(FIRST[class]);
                bands(class).for_each(|(context, _)| write(context));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_come_back_in_few_bytes() {
        let odd: [u16; 64] = std::array::from_fn(|at| 1 + at as u16);
        let wide = odd.map(|step| step * 300);
        for (tables, length) in [
            (vec![standard(0, 75), standard(1, 75), standard(1, 75)], 3),
            (vec![standard(0, 1), standard(1, 49), standard(0, 1)], 3),
            (vec![odd, wide, odd, wide], 65 + 129 + 2),
        ] {
            let mut bytes = Vec::new();
            write_steps(&tables, &mut bytes);
            assert_eq!(bytes.len(), length);
            let (mut take, mut found) = (Take(&bytes), Vec::new());
            for _ in &tables {
                found.push(read_steps(&mut take, &found).unwrap());
            }
            assert_eq!(found, tables);
        }
    }
}
