//! How likely values are: a family of fixed distributions, from which an image names one for each kind of value.
//!
//! A value is folded, so that its sign is in the lowest bit. Small ones are a symbol each; from [`DIRECT`] on two
//! symbols share an octave, and the rest of the value follows as plain bits. Magnitudes are taken to be zero with one
//! chance, and else to fall geometrically: both numbers together are the place in the family, so an image stores a
//! byte instead of a table. Each distribution is rounded to whole slots of [`SLOTS`]; a symbol that would get less than
//! half a slot is written as [`ESCAPE`], with the value in full. All of it is whole numbers, and a promise: what was
//! packed is read with the very same slots.

use std::sync::LazyLock;

use crate::decode::kernels::{SLOT_BITS, SLOTS};

/// Values below this are a symbol each.
pub(super) const DIRECT: u8 = 1 << FIRST_OCTAVE;
const FIRST_OCTAVE: u8 = 6;
/// The symbol of any value, of which 16 plain bits follow.
pub(super) const ESCAPE: u8 = DIRECT + 2 * (16 - FIRST_OCTAVE);
/// Symbols without [`ESCAPE`].
pub(super) const SYMBOLS: usize = ESCAPE as usize;

/// Chances of zero, of 65,536: even steps of the log odds from -4 to 4.5.
const ZERO: [u64; 16] =
    [1179, 2049, 3528, 5972, 9841, 15562, 23222, 32222, 41305, 49169, 55124, 59192, 61779, 63350, 64278, 64816];
/// How much less likely each magnitude is than the one before, of 65,536: 1 - 2⁻ˣ, x in even steps from 0.2 to 5.5.
const FALL: [u64; 8] = [8484, 31780, 45564, 53719, 58544, 61399, 63088, 64088];
/// Distributions in the family.
pub(super) const FAMILY: usize = ZERO.len() * FALL.len();

/// The symbol of a value.
pub(super) fn symbol(value: u16) -> u8 {
    if value < u16::from(DIRECT) {
        return value as u8;
    }
    let octave = value.ilog2() as u8;
    DIRECT + 2 * (octave - FIRST_OCTAVE) + (value >> (octave - 1)) as u8 - 2
}

/// How many plain bits follow a symbol.
pub(super) const fn plain_bits(symbol: u8) -> u32 {
    match symbol {
        ..DIRECT => 0,
        ESCAPE.. => 16,
        _ => ((symbol - DIRECT) / 2 + FIRST_OCTAVE - 1) as u32,
    }
}

/// What is added to the plain bits of a symbol.
pub(super) const fn base(symbol: u8) -> u16 {
    match symbol {
        ..DIRECT => symbol as u16,
        ESCAPE.. => 0,
        _ => ((2 + (symbol & 1)) as u16) << plain_bits(symbol),
    }
}

/// One distribution.
#[derive(Debug)]
pub(super) struct ProbabilityTable {
    /// For each slot its symbol, the slots of that symbol (from bit 8) and its place among them (from bit 18).
    pub slots: [u32; SLOTS],
    /// Slots of each symbol, and the first of them.
    pub counts: [u16; SYMBOLS + 1],
    pub starts: [u16; SYMBOLS + 1],
    /// What a value of each symbol takes, in 256ths of a bit.
    pub costs: [u32; SYMBOLS],
}

static ALL: LazyLock<Vec<ProbabilityTable>> = LazyLock::new(|| (0..FAMILY).map(ProbabilityTable::new).collect());

impl ProbabilityTable {
    /// All distributions.
    pub fn family() -> &'static [ProbabilityTable] {
        &ALL
    }

    fn new(place: usize) -> ProbabilityTable {
        let counts = counts(weights(ZERO[place / FALL.len()], FALL[place % FALL.len()]));
        let (mut slots, mut starts, mut at) = ([0; SLOTS], [0; SYMBOLS + 1], 0);
        for (symbol, (count, start)) in counts.iter().zip(&mut starts).enumerate() {
            *start = at;
            for offset in 0..*count {
                slots[usize::from(at + offset)] =
                    symbol as u32 | u32::from(*count) << 8 | u32::from(offset) << (8 + SLOT_BITS);
            }
            at += count;
        }
        let bits = |symbol: usize| (SLOT_BITS << 8) - log2(counts[symbol].into()) + (plain_bits(symbol as u8) << 8);
        let costs = std::array::from_fn(|symbol| bits(if counts[symbol] > 0 { symbol } else { SYMBOLS }));
        ProbabilityTable { slots, counts, starts, costs }
    }

    /// The symbol that a value is written as.
    pub fn symbol(&self, value: u16) -> u8 {
        let symbol = symbol(value);
        if self.counts[usize::from(symbol)] > 0 { symbol } else { ESCAPE }
    }
}

/// The weight of each symbol, of 2⁴⁸.
fn weights(zero: u64, fall: u64) -> [u64; SYMBOLS] {
    let mut weights = [0; SYMBOLS];
    weights[0] = zero << 32;
    // Half of each magnitude's weight is that of either sign.
    let mut each = ((65_536 - zero) * (65_536 - fall)) << 15;
    for value in (1..u16::MAX).step_by(2) {
        weights[usize::from(symbol(value))] += each;
        weights[usize::from(symbol(value + 1))] += each;
        each = (each * fall) >> 16;
        if each == 0 {
            break;
        }
    }
    weights
}

/// Slots for weights of 2⁴⁸ together, and for [`ESCAPE`].
fn counts(weights: [u64; SYMBOLS]) -> [u16; SYMBOLS + 1] {
    const HALF: u64 = 1 << (47 - SLOT_BITS);
    let mut counts = [0; SYMBOLS + 1];
    let (mut kept, mut given) = (0, 0);
    for (weight, count) in weights.into_iter().zip(&mut counts).filter(|(weight, _)| *weight >= HALF) {
        *count = ((weight + HALF) >> (48 - SLOT_BITS)) as u16;
        (kept, given) = (kept + weight, given + *count);
    }
    counts[SYMBOLS] = (((1_u64 << 48).saturating_sub(kept) + HALF) >> (48 - SLOT_BITS)).max(1) as u16;
    given += counts[SYMBOLS];
    // The likeliest symbol bears what rounding left over or took too much.
    if let Some(most) = counts.iter_mut().max() {
        *most = *most + SLOTS as u16 - given;
    }
    counts
}

/// The logarithm of a number above 0, in 256ths; rounded down.
fn log2(number: u32) -> u32 {
    let mut log = number.max(1).ilog2();
    let mut rest = u64::from(number) << (31 - log);
    for _ in 0..8 {
        rest = (rest * rest) >> 31;
        let above = rest >> 32;
        rest >>= above;
        log = log << 1 | above as u32;
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_their_symbols_and_bits() {
        for value in 0..=u16::MAX {
            let symbol = symbol(value);
            let (bits, base) = (plain_bits(symbol), base(symbol));
            assert!(symbol < ESCAPE && base <= value && u32::from(value - base) < 1 << bits, "{value}: {symbol}");
        }
    }

    #[test]
    fn slots_are_those_of_every_version() {
        let mut sums = flate2::Crc::new();
        for chances in ProbabilityTable::family() {
            assert_eq!(chances.counts.iter().map(|count| usize::from(*count)).sum::<usize>(), SLOTS);
            assert!(chances.counts.iter().all(|count| usize::from(*count) < SLOTS) && chances.counts[SYMBOLS] > 0);
            chances.slots.iter().for_each(|slot| sums.update(&slot.to_le_bytes()));
        }
        assert_eq!(sums.sum(), 2_195_949_538, "what was packed cannot be read with other slots");
    }

    #[test]
    fn logarithms_are_near() {
        for number in 1..=SLOTS as u32 {
            let exact = f64::from(number).log2() * 256.0;
            assert!((f64::from(log2(number)) - exact).abs() <= 1.0, "{number}");
        }
    }
}
