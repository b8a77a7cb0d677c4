//! Reads a strip of the second form: its classes, its coefficients in frequency planes class by class, and its samples.

use std::ops::Range;

use super::chances::ProbabilityTable;
use super::classes::{CLASSES, CONTEXTS, FIRST, LAST, OF_CLASSES, Place, Sorted, bands, blocks, groups};
use super::head::Contexts;
use super::states::Reader;
use super::{BROKEN, LANES, unfold};
use crate::decode::jpeg::fault::JpegError;
use crate::decode::jpeg::markers::{FrameHeader, ZIGZAG};
use crate::decode::jpeg::planes::Planes;
use crate::decode::kernels::{Block, Kernels, Work};

/// One strip, read; memory that is used again.
#[derive(Debug, Default)]
pub(super) struct Strip {
    groups: [Group; 2],
}

/// The blocks of a group of components.
#[derive(Debug, Default)]
struct Group {
    /// Folded values as they are read, then classes.
    classes: Vec<u8>,
    sorted: Sorted,
    /// DC values in the order of blocks.
    first: Vec<i16>,
    /// A plane of zeros, then the planes of each class.
    bytes: Vec<u8>,
    /// For each class the place of the plane of each coefficient, row by row.
    offsets: Vec<[u32; 64]>,
    wide: Vec<Wide>,
}

/// A value that does not fit in a byte.
#[derive(Debug, Clone, Copy)]
struct Wide {
    /// Place of its block among the sorted ones.
    at: usize,
    /// Place in the block.
    k: usize,
    value: i16,
}

fn unfold_wide(folded: u16) -> i16 {
    (folded >> 1) as i16 ^ -((folded & 1) as i16)
}

/// What is read of a strip.
pub(super) struct Unpack<'a> {
    pub frame: &'a FrameHeader,
    pub contexts: &'a Contexts,
    /// Rows of MCUs of the strip.
    pub rows: Range<usize>,
    pub bytes: &'a [u8],
    pub strip: &'a mut Strip,
    /// Where samples go, if any are wanted.
    pub planes: Option<&'a mut Planes>,
}

impl Work for Unpack<'_> {
    type Output = Result<(), JpegError>;

    #[inline(always)]
    fn run(self, kernels: impl Kernels) -> Result<(), JpegError> {
        let Unpack { frame, contexts, rows, bytes, strip, planes } = self;
        let mut reader = Reader::open(bytes)?;
        for ((group, contexts), components) in strip.groups.iter_mut().zip(&contexts.0).zip(groups(frame)) {
            group.read(kernels, &mut reader, frame, contexts, components, rows.clone())?;
        }
        reader.end()?;
        if let Some(planes) = planes {
            for (group, _) in strip.groups.iter().zip(groups(frame)) {
                group.samples(kernels, planes);
            }
            planes.flush(kernels);
        }
        Ok(())
    }
}

impl Group {
    #[inline(always)]
    fn read(
        &mut self,
        kernels: impl Kernels,
        reader: &mut Reader<'_>,
        frame: &FrameHeader,
        contexts: &[(u8, bool); CONTEXTS],
        components: Range<usize>,
        rows: Range<usize>,
    ) -> Result<(), JpegError> {
        self.read_classes(kernels, reader, table(contexts, OF_CLASSES), frame, components.clone(), rows.clone())?;
        let mut at = self.clear();
        for class in 0..CLASSES {
            at = self.read_class(kernels, reader, contexts, class, at)?;
        }
        self.wide.sort_unstable_by_key(|wide| (wide.at, wide.k));
        self.add_differences(frame, components, rows.len());
        Ok(())
    }

    /// Reads the class of each block, and sorts the blocks by class.
    #[inline(always)]
    fn read_classes(
        &mut self,
        kernels: impl Kernels,
        reader: &mut Reader<'_>,
        table: (&ProbabilityTable, bool),
        frame: &FrameHeader,
        components: Range<usize>,
        rows: Range<usize>,
    ) -> Result<(), JpegError> {
        let classes = &mut self.classes;
        classes.resize(blocks(frame, components.clone(), rows.len()), 0);
        let mut strange = false;
        reader.sequence(kernels, table, classes, |_, _| strange = true)?;
        for number in components.clone() {
            let component = &frame.components[number];
            let start = blocks(frame, components.start..number, rows.len());
            let own = &mut classes[start..start + rows.len() * component.v * component.across];
            strange |= !add_expected(own, component.across);
        }
        if strange {
            return Err(BROKEN);
        }
        self.sorted.set(frame, components, rows, classes);
        Ok(())
    }

    /// Resizes the buffers for the coefficients of the sorted blocks. The buffer begins with a plane of zeros; returns
    /// the offset behind it, where the first plane of coefficients is written.
    #[inline(always)]
    fn clear(&mut self) -> usize {
        let Group { classes, sorted, first, bytes, offsets, wide } = self;
        let planes: usize = (0..CLASSES).map(|class| sorted.of(class).len() * LAST[class]).sum();
        // The first plane is never written to, but an earlier strip may have had a smaller one.
        let zeros = classes.len() + LANES;
        bytes.resize(zeros + planes + LANES, 0);
        bytes[..zeros].fill(0);
        first.resize(classes.len(), 0);
        offsets.clear();
        offsets.resize(CLASSES, [0; 64]);
        wide.clear();
        zeros
    }

    /// Reads the DC differences of a class and its planes, which begin at `at`; returns where they end.
    #[inline(always)]
    fn read_class(
        &mut self,
        kernels: impl Kernels,
        reader: &mut Reader<'_>,
        contexts: &[(u8, bool); CONTEXTS],
        class: usize,
        mut at: usize,
    ) -> Result<usize, JpegError> {
        let Group { classes, sorted, first, bytes, offsets, wide } = self;
        let places = sorted.of(class);
        let length = places.len();
        if length == 0 {
            return Ok(at);
        }
        // The classes are in `sorted` now, so their place is free for DC differences.
        let differences = &mut classes[..length];
        let mut wider = Vec::new();
        reader.sequence(kernels, table(contexts, FIRST[class]), differences, |at, value| wider.push((at, value)))?;
        for (place, byte) in sorted.places[places.clone()].iter().zip(&*differences) {
            first[place.block as usize] = unfold(*byte);
        }
        for (at, value) in wider {
            first[sorted.places[places.start + at].block as usize] = unfold_wide(value);
        }
        for (context, band) in bands(class) {
            let values = &mut bytes[at..at + band.len() * length];
            reader.sequence(kernels, table(contexts, context), values, |at, value| {
                let k = usize::from(ZIGZAG[band.start + at / length]);
                wide.push(Wide { at: places.start + at % length, k, value: unfold_wide(value) });
            })?;
            for k in band {
                offsets[class][usize::from(ZIGZAG[k])] = at as u32;
                at += length;
            }
        }
        Ok(at)
    }

    /// Turns DC differences into values, row by row.
    #[inline(always)]
    fn add_differences(&mut self, frame: &FrameHeader, components: Range<usize>, rows: usize) {
        let mut rest = self.first.as_mut_slice();
        for component in &frame.components[components] {
            let (own, others) = rest.split_at_mut(rows * component.v * component.across);
            for row in own.chunks_exact_mut(component.across) {
                let mut sum = 0_i16;
                for value in row {
                    sum = sum.wrapping_add(*value);
                    *value = sum;
                }
            }
            rest = others;
        }
    }

    /// Transforms the blocks that a region needs.
    #[inline(always)]
    fn samples(&self, kernels: impl Kernels, planes: &mut Planes) {
        let Group { sorted, first, bytes, offsets, wide, .. } = self;
        let wants = |planes: &Planes, place: &Place| {
            planes.wants(place.component.into(), place.column.into(), place.row.into())
        };
        for place in &sorted.places[sorted.of(0)] {
            if wants(planes, place) {
                planes.block()[0] = first[place.block as usize];
                planes.put(kernels, place.component.into(), place.column.into(), place.row.into(), true);
            }
        }
        let mut eight: [Block; LANES] = [[0; 128]; LANES];
        let mut wide = wide.as_slice();
        for (class, offsets) in offsets.iter().enumerate().skip(1) {
            let range = sorted.of(class);
            let pairs = row_pairs(class);
            for start in range.clone().step_by(LANES) {
                let places = &sorted.places[start..range.end.min(start + LANES)];
                let passed = wide.partition_point(|wide| wide.at < start + places.len());
                let here;
                (here, wide) = wide.split_at(passed);
                if !places.iter().any(|place| wants(planes, place)) {
                    continue;
                }
                kernels.gather(bytes, offsets, start - range.start, pairs, &mut eight);
                here.iter().for_each(|wide| eight[wide.at - start][wide.k] = wide.value);
                let mut waiting = None;
                for (place, block) in places.iter().zip(&mut eight) {
                    if !wants(planes, place) {
                        continue;
                    }
                    block[0] = first[place.block as usize];
                    waiting = match waiting {
                        None => Some((place, &*block)),
                        Some((other, earlier)) => {
                            planes.transform(kernels, [earlier, block], [other.at(), place.at()]);
                            None
                        }
                    };
                }
                if let Some((place, block)) = waiting {
                    planes.transform(kernels, [block, block], [place.at(), place.at()]);
                }
            }
        }
    }
}

/// The probabilities of a context, and whether any of its values has plain bits.
#[inline(always)]
fn table(contexts: &[(u8, bool); CONTEXTS], context: usize) -> (&'static ProbabilityTable, bool) {
    let (place, large) = contexts[context];
    (&ProbabilityTable::family()[usize::from(place)], large)
}

/// From folded differences to classes, in rows of so many; returns whether all are classes.
#[inline(always)]
fn add_expected(classes: &mut [u8], across: usize) -> bool {
    let mut most = 0;
    let mut settle = |value: &mut u8, expected: u8| {
        let class = unfold(*value).wrapping_add(expected.into()) as u16;
        // What is negative is a large number; it stays one that can be added to.
        most = most.max(class);
        *value = class.min(CLASSES as u16) as u8;
        *value
    };
    let (first, rest) = classes.split_at_mut(across.min(classes.len()));
    let mut left = 0;
    for value in first.iter_mut() {
        left = settle(value, left);
    }
    let mut above: &[u8] = first;
    for row in rest.chunks_exact_mut(across) {
        left = above[0];
        for (value, above) in row.iter_mut().zip(above) {
            left = settle(value, (left + above).div_ceil(2));
        }
        above = row;
    }
    usize::from(most) < CLASSES
}

/// Pairs of rows of a block that hold coefficients of a class.
fn row_pairs(class: usize) -> usize {
    let lowest = (1..=LAST[class]).map(|k| usize::from(ZIGZAG[k]) / 8).max().unwrap_or(0);
    lowest / 2 + 1
}

impl Strip {
    /// Puts each coefficient of the strip in its place; told are component, column, row and the block.
    pub fn blocks(&self, frame: &FrameHeader, mut tell: impl FnMut((usize, usize, usize), [i16; 64])) {
        for (Group { sorted, first, bytes, offsets, wide, .. }, _) in self.groups.iter().zip(groups(frame)) {
            for (class, offsets) in offsets.iter().enumerate() {
                let range = sorted.of(class);
                for (at, place) in range.clone().zip(&sorted.places[range.clone()]) {
                    let mut block = offsets.map(|offset| unfold(bytes[offset as usize + at - range.start]));
                    let from = wide.partition_point(|wide| wide.at < at);
                    for wide in wide[from..].iter().take_while(|wide| wide.at == at) {
                        block[wide.k] = wide.value;
                    }
                    block[0] = first[place.block as usize];
                    tell(place.at(), block);
                }
            }
        }
    }
}
