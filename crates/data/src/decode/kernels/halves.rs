//! Bytes that become bfloat16: a byte can only become one of 256.

use super::PERIOD;

/// The nearest bfloat16 to each byte times a factor plus an offset, both finite.
pub(crate) struct Halves {
    /// Factor and offset.
    pub scale: (f32, f32),
    /// Of each byte's number, the lower byte, and the upper one.
    pub bytes: [[u8; 256]; 2],
}

impl Halves {
    /// Computes the table of all 256 bytes under a scale and an offset.
    #[inline(always)]
    pub fn of(scale: (f32, f32)) -> Halves {
        let mut all = [0; 256];
        for (place, byte) in all.iter_mut().enumerate() {
            *byte = place as u8;
        }
        let (mut numbers, mut bytes) = ([0; 256], [[0; 256]; 2]);
        computed(scale, &all, &mut numbers);
        let [low, high] = &mut bytes;
        for ((number, low), high) in numbers.iter().zip(low).zip(high) {
            [*low, *high] = number.to_le_bytes();
        }
        Halves { scale, bytes }
    }

    /// What a byte of zero becomes.
    pub fn of_zero(&self) -> u16 {
        u16::from_le_bytes([self.bytes[0][0], self.bytes[1][0]])
    }

    /// What each byte becomes, computed.
    #[inline(always)]
    pub fn computed(&self, bytes: &[u8], output: &mut [u16]) {
        computed(self.scale, bytes, output);
    }

    /// The same of bytes whose scales come in turn.
    #[inline(always)]
    pub fn computed_in_turn(tables: &[Halves; 3], bytes: &[u8], output: &mut [u16]) {
        in_turn(|place| tables[place % 3].scale, bytes, output, to_bf16);
    }
}

#[inline(always)]
fn computed((factor, offset): (f32, f32), bytes: &[u8], output: &mut [u16]) {
    for (value, byte) in output.iter_mut().zip(bytes) {
        *value = to_bf16(f32::from(*byte) * factor + offset);
    }
}

/// Numbers of bytes, each times the factor of its place plus the offset; those of three channels come in turn.
#[inline(always)]
pub(crate) fn in_turn<T>(scale: impl Fn(usize) -> (f32, f32), bytes: &[u8], values: &mut [T], kind: impl Fn(f32) -> T) {
    let factors: [f32; PERIOD] = std::array::from_fn(|place| scale(place).0);
    let offsets: [f32; PERIOD] = std::array::from_fn(|place| scale(place).1);
    let whole = bytes.len() / PERIOD * PERIOD;
    for (bytes, values) in bytes.as_chunks::<PERIOD>().0.iter().zip(values.as_chunks_mut::<PERIOD>().0) {
        // A loop, for what `from_fn` is given is not compiled for the processor at hand.
        for (((value, byte), factor), offset) in values.iter_mut().zip(bytes).zip(&factors).zip(&offsets) {
            *value = kind(f32::from(*byte) * factor + offset);
        }
    }
    for (place, (byte, value)) in bytes[whole..].iter().zip(&mut values[whole..]).enumerate() {
        *value = kind(f32::from(*byte) * factors[place] + offsets[place]);
    }
}

/// The nearest bfloat16, ties to even, of a finite number.
#[inline(always)]
pub(crate) fn to_bf16(value: f32) -> u16 {
    let bits = value.to_bits();
    (bits.wrapping_add(0x7FFF + (bits >> 16 & 1)) >> 16) as u16
}
