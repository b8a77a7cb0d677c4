//! Damage, drawn from a seed: what a disk, a network or an attacker does to a file.

/// The numbers that parsers trip over.
const EXTREMES: [u64; 12] =
    [0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF, i64::MAX as u64, u64::MAX];

/// The next number of a sequence (SplitMix64).
pub fn draw(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let mut z = *state;
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Changes a file at one to four places.
pub fn mutate(bytes: &mut Vec<u8>, state: &mut u64) {
    for _ in 0..1 + draw(state) % 4 {
        if bytes.is_empty() {
            return;
        }
        let length = bytes.len() as u64;
        // Most of what matters stands at the ends of a file.
        let at = match draw(state) % 4 {
            0 => draw(state) % length.min(600),
            1 => length - 1 - draw(state) % length.min(600),
            _ => draw(state) % length,
        } as usize;
        let many = 1 + (draw(state) % 64) as usize;
        let end = (at + many).min(bytes.len());
        match draw(state) % 8 {
            0 => bytes[at] ^= 1 << (draw(state) % 8),
            1 => bytes[at] = draw(state) as u8,
            2 | 3 => {
                let number = EXTREMES[(draw(state) % 12) as usize];
                let number = if draw(state).is_multiple_of(2) { number.to_le_bytes() } else { number.to_be_bytes() };
                let width = [1, 2, 4, 8][(draw(state) % 4) as usize].min(bytes.len() - at);
                let from = if draw(state).is_multiple_of(2) { 0 } else { 8 - width };
                bytes[at..at + width].copy_from_slice(&number[from..from + width]);
            }
            4 => bytes.truncate(at),
            5 => drop(bytes.drain(at..end)),
            6 => {
                let copy = bytes[at..end].to_vec();
                let to = (draw(state) % (length + 1)) as usize;
                bytes.splice(to..to, copy);
            }
            _ => bytes[at..end].fill(0),
        }
    }
}
