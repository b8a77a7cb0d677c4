//! Converts numbers to compressed byte planes and back, a megabyte at a time.
//!
//! Each block is its stored length (u32), then zstd level 1 of the first byte of every number, then of the second, and
//! so on. Level 3 is larger on such planes, and slower. Trailing bytes that do not fill a number are stored unchanged.
//! on. Level 3 is larger on such planes, and slower. What does not fill a number at the end is stored as it is.

use super::{DeltaError, Width};

/// Bytes of numbers in a block: small enough for the cache, large enough for zstd.
const BLOCK: usize = 1 << 20;

const LEVEL: i32 = 1;

/// Appends the planes of `state`, or of its difference to `before`, which is as long.
pub(super) fn pack(before: Option<&[u8]>, state: &[u8], width: Width, out: &mut Vec<u8>) {
    let mut planes = vec![0; BLOCK];
    for (number, block) in state.chunks(BLOCK).enumerate() {
        let base = before.map(|before| &before[number * BLOCK..][..block.len()]);
        let planes = &mut planes[..block.len()];
        match width {
            Width::One => spread::<1>(base, block, planes),
            Width::Two => spread::<2>(base, block, planes),
            Width::Four => spread::<4>(base, block, planes),
            Width::Eight => spread::<8>(base, block, planes),
        }
        // A block that does not compress is stored raw, which its length shows.
        let stored = zstd::bulk::compress(planes, LEVEL).ok().filter(|stored| stored.len() < planes.len());
        let stored = stored.as_deref().unwrap_or(planes);
        out.extend((stored.len() as u32).to_le_bytes());
        out.extend_from_slice(stored);
    }
}

/// The numbers of which `packed` holds the planes.
pub(super) fn unpack(
    mut packed: &[u8],
    before: Option<&[u8]>,
    length: usize,
    width: Width,
) -> Result<Vec<u8>, DeltaError> {
    let cut = || DeltaError::Damaged("it is cut short");
    // Nothing is allocated for a length that the bytes cannot expand to: a block of zeros takes 20 bytes.
    if length > packed.len().saturating_mul(BLOCK / 8) {
        return Err(DeltaError::Damaged("it states a length that it does not have"));
    }
    let mut state = vec![0; length];
    for (number, block) in state.chunks_mut(BLOCK).enumerate() {
        let (stored, rest) = packed.split_first_chunk::<4>().ok_or_else(cut)?;
        let (stored, rest) = rest.split_at_checked(u32::from_le_bytes(*stored) as usize).ok_or_else(cut)?;
        packed = rest;
        let unpacked;
        let planes = match stored.len() == block.len() {
            true => stored,
            false => {
                unpacked = zstd::bulk::decompress(stored, block.len())
                    .map_err(|_| DeltaError::Damaged("a block is not zstd"))?;
                &unpacked
            }
        };
        if planes.len() != block.len() {
            return Err(DeltaError::Damaged("a block has another length"));
        }
        let base = before.map(|before| &before[number * BLOCK..][..block.len()]);
        match width {
            Width::One => gather::<1>(base, planes, block),
            Width::Two => gather::<2>(base, planes, block),
            Width::Four => gather::<4>(base, planes, block),
            Width::Eight => gather::<8>(base, planes, block),
        }
    }
    match packed.is_empty() {
        true => Ok(state),
        false => Err(DeltaError::Damaged("it is longer than its header says")),
    }
}

/// An integer of `W` bytes, in the low end of a `u64`.
fn load<const W: usize>(bytes: &[u8; W]) -> u64 {
    let mut wide = [0; 8];
    wide[..W].copy_from_slice(bytes);
    u64::from_le_bytes(wide)
}

/// Spreads the sign of an integer of `W` bytes over all 64 bits.
fn signed<const W: usize>(value: u64) -> i64 {
    let unused = 64 - 8 * W as u32;
    ((value << unused) as i64) >> unused
}

fn spread<const W: usize>(base: Option<&[u8]>, block: &[u8], planes: &mut [u8]) {
    let (numbers, tail) = block.as_chunks::<W>();
    let count = numbers.len();
    let mut write = |at: usize, folded: u64| {
        for (plane, byte) in folded.to_le_bytes()[..W].iter().enumerate() {
            planes[plane * count + at] = *byte;
        }
    };
    match base.map(|base| base.as_chunks::<W>().0) {
        None => numbers.iter().enumerate().for_each(|(at, number)| write(at, load(number))),
        Some(before) => {
            for (at, (number, before)) in numbers.iter().zip(before).enumerate() {
                let difference = signed::<W>(load(number).wrapping_sub(load(before)));
                write(at, ((difference << 1) ^ (difference >> 63)) as u64);
            }
        }
    }
    planes[count * W..].copy_from_slice(tail);
}

fn gather<const W: usize>(base: Option<&[u8]>, planes: &[u8], block: &mut [u8]) {
    let (numbers, tail) = block.as_chunks_mut::<W>();
    let count = numbers.len();
    tail.copy_from_slice(&planes[count * W..]);
    let read = |at: usize| {
        let mut wide = [0; 8];
        for (plane, byte) in wide[..W].iter_mut().enumerate() {
            *byte = planes[plane * count + at];
        }
        u64::from_le_bytes(wide)
    };
    let write = |number: &mut [u8; W], value: u64| number.copy_from_slice(&value.to_le_bytes()[..W]);
    match base.map(|base| base.as_chunks::<W>().0) {
        None => numbers.iter_mut().enumerate().for_each(|(at, number)| write(number, read(at))),
        Some(before) => {
            for (at, (number, before)) in numbers.iter_mut().zip(before).enumerate() {
                let folded = read(at);
                let difference = (folded >> 1) ^ (folded & 1).wrapping_neg();
                write(number, load(before).wrapping_add(difference));
            }
        }
    }
}
