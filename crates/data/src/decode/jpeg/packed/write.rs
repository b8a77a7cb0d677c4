//! Packs the coefficients of an image; see the parent for the form.

use std::ops::Range;

use super::chances::{DIRECT, ProbabilityTable, SYMBOLS, symbol};
use super::classes::{CLASSES, CONTEXTS, FIRST, LAST, OF_CLASSES, Sorted, bands, blocks, class, expected, groups};
use super::head::{Contexts, Start};
use super::states::Writer;
use super::{MAGIC, MOST_BLOCKS_A_BYTE};
use crate::decode::jpeg::coefficients::Coefficients;
use crate::decode::jpeg::markers::ZIGZAG;

/// Rows of blocks of the finest component in a strip: enough that little is lost at its ends, and few to read too many.
const STRIP: usize = 32;

/// Packs coefficients.
pub fn encode_strips(coefficients: &Coefficients) -> Vec<u8> {
    let frame = &coefficients.frame;
    let height = (STRIP / frame.v).max(1);
    let strips = || (0..frame.down).step_by(height).map(|first| first..frame.down.min(first + height));
    let mut counted = vec![[[0_u32; SYMBOLS]; CONTEXTS]; 2];
    let mut present = Vec::new();
    for (group, counted) in groups(frame).zip(&mut counted) {
        for rows in strips() {
            sequences(coefficients, group.clone(), rows, &mut |context, values| {
                values.iter().for_each(|value| counted[context][usize::from(symbol(*value))] += 1);
            });
        }
        present.push(FIRST.map(|context| counted[context].iter().any(|count| *count > 0)));
    }
    let mut contexts = Contexts::default();
    for (contexts, counted) in contexts.0.iter_mut().zip(&counted) {
        for (context, counted) in contexts.iter_mut().zip(counted) {
            *context = choose(counted);
        }
    }
    let mut packed = MAGIC.to_vec();
    let steps: Vec<[u16; 64]> = coefficients.parts.iter().map(|part| part.steps).collect();
    Start::write(frame, height, &steps, &mut packed);
    contexts.write(&present, &mut packed);
    let mut bodies = Vec::new();
    for rows in strips() {
        let mut writer = Writer::default();
        for (group, contexts) in groups(frame).zip(&contexts.0) {
            sequences(coefficients, group, rows.clone(), &mut |context, values| {
                writer.sequence(&ProbabilityTable::family()[usize::from(contexts[context].0)], values);
            });
        }
        writer.finish(&mut bodies);
        packed.extend((bodies.len() as u32).to_le_bytes());
    }
    packed.extend(bodies);
    // A reader takes no more memory than a multiple of the bytes that it is given.
    let all: usize = groups(frame).map(|group| blocks(frame, group, frame.down)).sum();
    packed.resize(packed.len().max(all.div_ceil(MOST_BLOCKS_A_BYTE)), 0);
    packed
}

/// The chances with which so many values of each symbol take least room, and whether any of them has plain bits.
fn choose(counted: &[u32; SYMBOLS]) -> (u8, bool) {
    let cost = |chances: &ProbabilityTable| -> u64 {
        counted.iter().zip(&chances.costs).map(|(count, cost)| u64::from(*count) * u64::from(*cost)).sum()
    };
    let best = ProbabilityTable::family().iter().enumerate().min_by_key(|(_, chances)| cost(chances));
    let (place, chances) = best.unwrap_or((0, &ProbabilityTable::family()[0]));
    let escapes = |at: usize| at >= usize::from(DIRECT) || chances.counts[at] == 0;
    (place as u8, counted.iter().enumerate().any(|(at, count)| *count > 0 && escapes(at)))
}

/// The sign in the lowest bit: 0, -1, 1, -2, … become 0, 1, 2, 3, …
fn fold(value: i16) -> u16 {
    ((value << 1) ^ (value >> 15)) as u16
}

/// Tells the values of a group in a strip of rows of MCUs, folded, in the order in which they are written, each with
/// their context.
fn sequences(
    coefficients: &Coefficients,
    group: Range<usize>,
    rows: Range<usize>,
    tell: &mut impl FnMut(usize, &[u16]),
) {
    const { assert!(LAST[CLASSES - 1] == 63, "every coefficient has a class") };
    let frame = &coefficients.frame;
    let (mut classes, mut differences, mut values) = (Vec::new(), Vec::new(), Vec::new());
    let mut all: Vec<&[i16; 64]> = Vec::new();
    for number in group.clone() {
        let component = &frame.components[number];
        let across = component.across;
        let first = classes.len();
        let (blocks, _) = coefficients.parts[number].values.as_chunks::<64>();
        let blocks = &blocks[rows.start * component.v * across..rows.end * component.v * across];
        for (at, block) in blocks.iter().enumerate() {
            let last = (1..64).rev().find(|k| block[usize::from(ZIGZAG[*k])] != 0).unwrap_or(0);
            let here = class(last);
            let left = (at % across > 0).then(|| classes[first + at - 1]);
            let above = (at >= across).then(|| classes[first + at - across]);
            values.push(fold(i16::from(here) - i16::from(expected(left, above))));
            classes.push(here);
            differences.push(block[0].wrapping_sub(if at % across > 0 { blocks[at - 1][0] } else { 0 }));
        }
        all.extend(blocks);
    }
    tell(OF_CLASSES, &values);
    let mut sorted = Sorted::default();
    sorted.set(frame, group, rows, &classes);
    for (class, first) in FIRST.into_iter().enumerate() {
        let places = &sorted.places[sorted.of(class)];
        if places.is_empty() {
            continue;
        }
        values.clear();
        values.extend(places.iter().map(|place| fold(differences[place.block as usize])));
        tell(first, &values);
        for (context, band) in bands(class) {
            values.clear();
            for k in band {
                let k = usize::from(ZIGZAG[k]);
                values.extend(places.iter().map(|place| fold(all[place.block as usize][k])));
            }
            tell(context, &values);
        }
    }
}
