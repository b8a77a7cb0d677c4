//! Damage drawn from a seed, as done to a file by a disk, a network or an attacker.

use domain::random::Draws;

/// The numbers that parsers trip over.
const EXTREMES: [u64; 12] =
    [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, i64::MAX as u64, u64::MAX];

/// Changes a file at one to four positions.
pub fn mutate(bytes: &mut Vec<u8>, draws: &mut Draws) {
    for _ in 0..1 + draws.below(4) {
        if bytes.is_empty() {
            return;
        }
        let length = bytes.len() as u64;
        // Most structure is at the ends of a file.
        let at = match draws.below(4) {
            0 => draws.below(length.min(600)),
            1 => length - 1 - draws.below(length.min(600)),
            _ => draws.below(length),
        } as usize;
        let many = 1 + draws.below(64) as usize;
        let end = (at + many).min(bytes.len());
        match draws.below(8) {
            0 => bytes[at] ^= 1 << draws.below(8),
            1 => bytes[at] = draws.bits() as u8,
            2 | 3 => {
                let number = EXTREMES[draws.below(12) as usize];
                let number = if draws.below(2) == 0 { number.to_le_bytes() } else { number.to_be_bytes() };
                let width = [1, 2, 4, 8][draws.below(4) as usize].min(bytes.len() - at);
                let from = if draws.below(2) == 0 { 0 } else { 8 - width };
                bytes[at..at + width].copy_from_slice(&number[from..from + width]);
            }
            4 => bytes.truncate(at),
            5 => drop(bytes.drain(at..end)),
            6 => {
                let copy = bytes[at..end].to_vec();
                let to = draws.below(length + 1) as usize;
                bytes.splice(to..to, copy);
            }
            _ => bytes[at..end].fill(0),
        }
    }
}
