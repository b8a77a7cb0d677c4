//! Classes of blocks: by where the last coefficient that is not zero stands in zigzag order.
//!
//! Blocks of one class have alike values, and none of the coefficients past its last place, so those are not written
//! at all. In a class, coefficients of alike frequency are one context, with chances of its own; so are its DC
//! differences. Brightness has contexts of its own, and all other components share theirs.

use std::ops::Range;

use crate::decode::jpeg::markers::FrameHeader;

pub(super) const CLASSES: usize = LAST.len();
/// The last place of each class, in zigzag order.
pub(super) const LAST: [usize; 10] = [0, 2, 5, 9, 14, 20, 27, 35, 46, 63];
/// Where bands of frequencies begin and end, in zigzag order.
const BANDS: [usize; 11] = [1, 2, 3, 6, 10, 15, 21, 28, 36, 45, 64];
/// Contexts of a group of components: one for the classes themselves, and those of each class.
pub(super) const CONTEXTS: usize = FIRST[CLASSES - 1] + 1 + band_count(CLASSES - 1);
/// The context of the classes themselves.
pub(super) const OF_CLASSES: usize = 0;
/// The context of the DC differences of each class; those of its bands follow.
pub(super) const FIRST: [usize; CLASSES] = {
    let (mut first, mut class) = ([1; CLASSES], 1);
    while class < CLASSES {
        first[class] = first[class - 1] + 1 + band_count(class - 1);
        class += 1;
    }
    first
};

/// The class of a block whose last coefficient that is not zero stands at each place.
const CLASS: [u8; 64] = {
    let (mut classes, mut class, mut at) = ([0; 64], 0, 0);
    while at < 64 {
        if at > LAST[class] {
            class += 1;
        }
        classes[at] = class as u8;
        at += 1;
    }
    classes
};

const fn band_count(class: usize) -> usize {
    let mut count = 0;
    while count + 1 < BANDS.len() && BANDS[count] <= LAST[class] {
        count += 1;
    }
    count
}

/// The class of a block by its last place.
pub(super) fn class(last: usize) -> u8 {
    CLASS[last]
}

/// The bands of a class, in zigzag order, each with its context.
pub(super) fn bands(class: usize) -> impl Iterator<Item = (usize, Range<usize>)> {
    let ends = BANDS.windows(2).take(band_count(class));
    ends.zip(FIRST[class] + 1..).map(move |(band, context)| (context, band[0]..band[1].min(LAST[class] + 1)))
}

/// The components whose blocks stand together: brightness, then all others.
pub(super) fn groups(frame: &FrameHeader) -> impl Iterator<Item = Range<usize>> {
    [0..1, 1..frame.components.len()].into_iter().filter(|group| !group.is_empty())
}

/// Where a block of a strip is.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    /// Its number among the blocks of its group in the strip: component by component, row by row.
    pub block: u32,
    pub component: u8,
    /// Column and row in the component.
    pub column: u16,
    pub row: u16,
}

impl Place {
    /// Component, column and row.
    #[inline(always)]
    pub fn at(&self) -> (usize, usize, usize) {
        (self.component.into(), self.column.into(), self.row.into())
    }
}

/// Blocks of a group, class by class.
#[derive(Debug, Default)]
pub(super) struct Sorted {
    pub places: Vec<Place>,
    /// Where each class begins, and where the last one ends.
    pub starts: [usize; CLASSES + 1],
}

impl Sorted {
    /// Sorts the blocks that a group has in a strip of rows of MCUs, by the class of each; there must be as many.
    pub fn set(&mut self, frame: &FrameHeader, group: Range<usize>, rows: Range<usize>, classes: &[u8]) {
        let mut next = [0; CLASSES];
        classes.iter().for_each(|class| next[usize::from(*class)] += 1);
        let mut at = 0;
        for (start, next) in self.starts.iter_mut().zip(&mut next) {
            *start = at;
            at += std::mem::replace(next, at);
        }
        self.starts[CLASSES] = at;
        self.places.resize(at, Place::default());
        let mut block = 0;
        for number in group {
            let component = &frame.components[number];
            for row in rows.start * component.v..rows.end * component.v {
                for (column, class) in classes[block..block + component.across].iter().enumerate() {
                    let at = &mut next[usize::from(*class)];
                    self.places[*at] = Place {
                        block: (block + column) as u32,
                        component: number as u8,
                        column: column as u16,
                        row: row as u16,
                    };
                    *at += 1;
                }
                block += component.across;
            }
        }
    }

    /// The places of a class.
    pub fn of(&self, class: usize) -> Range<usize> {
        self.starts[class]..self.starts[class + 1]
    }
}

/// How many blocks a group has in so many rows of MCUs.
pub(super) fn blocks(frame: &FrameHeader, group: Range<usize>, rows: usize) -> usize {
    frame.components[group].iter().map(|component| rows * component.v * component.across).sum()
}

/// What is expected of a class: the mean of the ones to the left of it and above it, or the one that there is.
pub(super) fn expected(left: Option<u8>, above: Option<u8>) -> u8 {
    match (left, above) {
        (Some(left), Some(above)) => (left + above).div_ceil(2),
        (Some(one), None) | (None, Some(one)) => one,
        (None, None) => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_hold_each_place_of_a_class_once() {
        for (number, last) in LAST.into_iter().enumerate() {
            let places: Vec<usize> = bands(number).flat_map(|(_, band)| band).collect();
            assert_eq!(places, (1..=last).collect::<Vec<_>>());
            assert_eq!(usize::from(class(last)), number);
        }
        let contexts: Vec<usize> = (0..CLASSES)
            .flat_map(|class| std::iter::once(FIRST[class]).chain(bands(class).map(|(at, _)| at)))
            .collect();
        assert_eq!(contexts, (1..CONTEXTS).collect::<Vec<_>>());
    }
}
