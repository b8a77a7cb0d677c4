//! The entropy coder: asymmetric numeral systems (Duda, arXiv 1311.2540; the form with ranges, after Giesen, arXiv
//! 1402.3392), 64 states in turn, so that vector instructions read eight symbols at a time.
//!
//! A state is a number of 2¹⁶ or more. To read a symbol its lowest bits name a slot, the slot names the symbol, and the
//! state becomes smaller; when it is below 2¹⁶, the next word comes in. Symbols of a sequence take the states in turn,
//! beginning with the first. Whoever writes does all of it backwards, from states of 2¹⁶, so a reader that ends elsewhere
//! has read what was not written.

use super::chances::{DIRECT, ProbabilityTable, base, plain_bits};
use super::{BROKEN, SLOT_BITS, STATES, Take};
use crate::decode::jpeg::fault::JpegError;
use crate::decode::kernels::Kernels;

/// Where states begin for a writer, and end for a reader.
const LOW: u32 = 1 << 16;
/// Values from this on are no bytes.
const WIDE: u16 = 255;

/// For each symbol what is added to its plain bits, and how many there are.
const FULL: [(u16, u32); 256] = {
    let (mut full, mut symbol) = ([(0, 0); 256], 0);
    while symbol < 256 {
        full[symbol] = (base(symbol as u8), plain_bits(symbol as u8));
        symbol += 1;
    }
    full
};

/// Collects sequences of values.
#[derive(Debug, Default)]
pub(super) struct Writer {
    symbols: Vec<Written>,
    bits: Vec<u8>,
    /// Bits that do not fill a byte yet.
    partial: u32,
    held: u32,
}

#[derive(Debug)]
struct Written {
    state: usize,
    count: u16,
    start: u16,
}

impl Writer {
    /// Adds a sequence of folded values.
    pub fn sequence(&mut self, chances: &ProbabilityTable, values: &[u16]) {
        for (at, value) in values.iter().enumerate() {
            let symbol = chances.symbol(*value);
            let (count, start) = (chances.counts[usize::from(symbol)], chances.starts[usize::from(symbol)]);
            self.symbols.push(Written { state: at % STATES, count, start });
            self.plain(value - base(symbol), plain_bits(symbol));
        }
    }

    fn plain(&mut self, value: u16, bits: u32) {
        self.partial |= u32::from(value) << self.held;
        self.held += bits;
        while self.held >= 8 {
            self.bits.push(self.partial as u8);
            self.partial >>= 8;
            self.held -= 8;
        }
    }

    /// Writes states, how many words there are, words and plain bits.
    pub fn finish(mut self, into: &mut Vec<u8>) {
        let mut states = [LOW; STATES];
        let mut words = Vec::new();
        for Written { state, count, start } in self.symbols.iter().rev() {
            let state = &mut states[*state];
            let count = u32::from(*count);
            if *state >= count << (32 - SLOT_BITS) {
                words.push(*state as u16);
                *state >>= 16;
            }
            *state = ((*state / count) << SLOT_BITS) + *state % count + u32::from(*start);
        }
        into.extend(states.iter().flat_map(|state| state.to_le_bytes()));
        into.extend((words.len() as u32).to_le_bytes());
        into.extend(words.iter().rev().flat_map(|word| word.to_le_bytes()));
        if self.held > 0 {
            self.bits.push(self.partial as u8);
        }
        into.extend(self.bits);
    }
}

/// Reads what a [`Writer`] wrote.
pub(super) struct Reader<'a> {
    states: [u32; STATES],
    words: &'a [u8],
    bits: &'a [u8],
    /// Plain bits that are read.
    passed: usize,
}

impl<'a> Reader<'a> {
    /// Reads the states at the head of a strip; the words follow them.
    pub fn open(bytes: &'a [u8]) -> Result<Reader<'a>, JpegError> {
        let mut take = Take(bytes);
        let mut states = [0; STATES];
        for state in &mut states {
            *state = u32::from_le_bytes(take.array()?);
        }
        let count = u32::from_le_bytes(take.array()?) as usize;
        let words = take.bytes(count.checked_mul(2).ok_or(BROKEN)?)?;
        Ok(Reader { states, words, bits: take.0, passed: 0 })
    }

    /// Reads as many folded values as `values` holds. Those that are no byte become 0, and are reported to `wide`; `large`
    /// says whether any has plain bits.
    #[inline(always)]
    pub fn sequence(
        &mut self,
        kernels: impl Kernels,
        (chances, large): (&ProbabilityTable, bool),
        values: &mut [u8],
        mut wide: impl FnMut(usize, u16),
    ) -> Result<(), JpegError> {
        if !kernels.symbols(&chances.slots, &mut self.states, &mut self.words, values) {
            return Err(BROKEN);
        }
        if !large {
            return Ok(());
        }
        let mut settle = |values: &mut [u8], at: usize| {
            let (base, bits) = FULL[usize::from(values[at])];
            let full = base | self.plain(bits);
            values[at] = if full < WIDE { full as u8 } else { 0 };
            if full >= WIDE {
                wide(at, full);
            }
        };
        let whole = values.len() / 8 * 8;
        for first in (0..whole).step_by(8) {
            let Some(eight) = values[first..].first_chunk() else { break };
            let mut large = u64::from_le_bytes(*eight) & u64::from_le_bytes([!(DIRECT - 1); 8]);
            while large != 0 {
                let at = large.trailing_zeros() as usize / 8;
                large &= u64::MAX.checked_shl(8 * at as u32 + 8).unwrap_or(0);
                settle(values, first + at);
            }
        }
        for at in whole..values.len() {
            if values[at] >= DIRECT {
                settle(values, at);
            }
        }
        Ok(())
    }

    /// So many plain bits; zeros past their end, which [`Reader::end`] finds.
    #[inline(always)]
    fn plain(&mut self, bits: u32) -> u16 {
        let rest = self.bits.get(self.passed / 8..).unwrap_or_default();
        let four = match rest.first_chunk() {
            Some(four) => u32::from_le_bytes(*four),
            None => last_bytes(rest),
        };
        let value = four >> (self.passed % 8) & ((1 << bits) - 1);
        self.passed += bits as usize;
        value as u16
    }

    /// Says whether all that was written was read, and nothing else.
    pub fn end(&self) -> Result<(), JpegError> {
        let ended = self.states == [LOW; STATES] && self.words.is_empty();
        if ended && self.passed.div_ceil(8) == self.bits.len() { Ok(()) } else { Err(BROKEN) }
    }
}

/// Fewer than four bytes as a number.
#[cold]
fn last_bytes(bytes: &[u8]) -> u32 {
    bytes.iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::decode::kernels::{Plain, Work, run};

    struct Read<'a>(&'a [u8], &'a [(usize, Vec<u16>)]);

    impl Work for Read<'_> {
        type Output = Result<Vec<Vec<u16>>, JpegError>;

        fn run(self, kernels: impl Kernels) -> Self::Output {
            let mut reader = Reader::open(self.0)?;
            let mut found = Vec::new();
            for (place, values) in self.1 {
                let (mut bytes, mut wide) = (vec![0; values.len()], Vec::new());
                let chances = (&ProbabilityTable::family()[*place], true);
                reader.sequence(kernels, chances, &mut bytes, |at, value| wide.push((at, value)))?;
                let mut all: Vec<u16> = bytes.into_iter().map(u16::from).collect();
                wide.into_iter().for_each(|(at, value)| all[at] = value);
                found.push(all);
            }
            reader.end()?;
            Ok(found)
        }
    }

    proptest! {
        #[test]
        fn sequences_come_back(
            sequences in prop::collection::vec(
                (0..128_usize, prop::collection::vec(prop_oneof![8 => 0..3_u16, 4 => 0..300_u16, 1 => any::<u16>()], 0..300)),
                0..6,
            ),
            flip in any::<(usize, u8)>(),
        ) {
            let mut writer = Writer::default();
            for (place, values) in &sequences {
                writer.sequence(&ProbabilityTable::family()[*place], values);
            }
            let mut bytes = Vec::new();
            writer.finish(&mut bytes);
            let wanted: Vec<Vec<u16>> = sequences.iter().map(|(_, values)| values.clone()).collect();
            prop_assert_eq!(run(Read(&bytes, &sequences)), Ok(wanted.clone()));
            prop_assert_eq!(Read(&bytes, &sequences).run(Plain), Ok(wanted));
            let length = bytes.len();
            prop_assert!(run(Read(&bytes[..length - 1], &sequences)).is_err());
            // Other values may come of it, for a stream has no checksum of its own; all kernels see the same.
            bytes[flip.0 % length] ^= flip.1;
            prop_assert_eq!(run(Read(&bytes, &sequences)), Read(&bytes, &sequences).run(Plain));
        }
    }
}
