//! Huffman decoding by table lookup: one access yields a complete coefficient with run and value, and often the next
//! coefficient too.
//!
//! At high quality a coefficient takes about five bits, code and value together, so [`LOOK`] bits mostly hold two.

use super::fault::JpegError;
use super::markers::HuffmanSpec;

/// Bits per lookup: tables of 16 KiB, so that those of luma and chroma stay in the L1 cache.
pub(super) const LOOK: u32 = 11;
/// An advance that ends the block.
pub(super) const END: u8 = 128;

/// A lookup table, and the specification that it was built from.
#[derive(Debug)]
pub(super) struct Table {
    spec: HuffmanSpec,
    /// Codes by their first bits.
    pub look: Box<[Entry; 1 << LOOK]>,
    /// The largest code of each length, left-aligned in 16 bits, plus one; and what to add to a code to find its value.
    limit: [u32; 17],
    offset: [i32; 17],
}

/// The contents of the next bits. From the lowest bit: 8 for the total length of both coefficients (0: see `symbol`), 8
/// for that of the first, 8 for the first's advance, 8 for the second's, 16 for each value.
///
/// If the total is 0, the second byte has the length of the code (0: longer than [`LOOK`]) and the third its symbol.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Entry(u64);

impl Entry {
    fn single(bits: u32, advance: u8, value: i16) -> Entry {
        let value = u64::from(value as u16);
        // A single coefficient is stored twice, at the same position.
        Entry(u64::from(bits) | u64::from(bits) << 8 | u64::from(advance) << 16 | value << 32 | value << 48)
    }

    fn with(self, next: Entry) -> Entry {
        let (bits, advance, value) = (next.0 & 0xFF, next.0 >> 16 & 0xFF, next.0 >> 32 & 0xFFFF);
        Entry(((self.0 & 0x0000_FFFF_00FF_FFFF) + bits) | (advance << 24) | (value << 48))
    }

    fn code(length: u32, symbol: u8) -> Entry {
        Entry(u64::from(length) << 8 | u64::from(symbol) << 16)
    }

    /// Total length of the entry; 0 if the code must be looked up by [`Table::symbol`].
    #[inline(always)]
    pub fn bits(self) -> u32 {
        self.0 as u32 & 0xFF
    }

    /// The bits of its first coefficient alone.
    #[inline(always)]
    pub fn first_bits(self) -> u32 {
        (self.0 >> 8) as u32 & 0xFF
    }

    /// How far its first and its second coefficient move on in the block.
    #[inline(always)]
    pub fn advances(self) -> (usize, usize) {
        ((self.0 >> 16) as usize & 0xFF, (self.0 >> 24) as usize & 0xFF)
    }

    /// The values of its first and its second coefficient.
    #[inline(always)]
    pub fn values(self) -> (i16, i16) {
        ((self.0 >> 32) as i16, (self.0 >> 48) as i16)
    }
}

/// The kinds of coefficients, whose symbols have different meanings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The symbol is the length of a difference.
    Dc,
    /// Four bits of run, four of length.
    Ac,
    /// As `Ac`, and only symbols are looked up: scans of progressive files.
    Symbols,
}

impl Table {
    /// Builds the lookup table of a specification.
    ///
    /// # Errors
    /// [`JpegError::Damaged`] if there are more codes of a length than its bits can distinguish.
    pub fn new(spec: &HuffmanSpec, kind: Kind) -> Result<Table, JpegError> {
        let mut look: Box<[Entry; 1 << LOOK]> = match vec![Entry::default(); 1 << LOOK].into_boxed_slice().try_into() {
            Ok(look) => look,
            Err(_) => return Err(JpegError::Damaged("a Huffman table out of range")),
        };
        let (mut limit, mut offset) = ([0; 17], [0; 17]);
        let (mut code, mut at) = (0_u32, 0_usize);
        for length in 1..=16_u32 {
            offset[length as usize] = at as i32 - code as i32;
            for _ in 0..spec.counts[length as usize - 1] {
                if code >> length != 0 {
                    return Err(JpegError::Damaged("a Huffman table with too many codes"));
                }
                if length <= LOOK {
                    let first = (code << (LOOK - length)) as usize;
                    let entries = &mut look[first..first + (1 << (LOOK - length))];
                    for (rest, entry) in entries.iter_mut().enumerate() {
                        *entry = single(kind, length, spec.values[at & 255], rest as u32);
                    }
                }
                code += 1;
                at += 1;
            }
            limit[length as usize] = code << (16 - length);
            code <<= 1;
        }
        if kind == Kind::Ac {
            pair(&mut look);
        }
        Ok(Table { spec: *spec, look, limit, offset })
    }

    /// Whether it was made from this.
    pub fn is(&self, spec: &HuffmanSpec) -> bool {
        self.spec == *spec
    }

    /// Length and symbol of the code at the head of `buffer`, of any length.
    #[inline(always)]
    pub fn symbol(&self, buffer: u64) -> Result<(u32, u8), JpegError> {
        let entry = self.look[(buffer >> (64 - LOOK)) as usize];
        if entry.bits() == 0 && entry.first_bits() != 0 {
            return Ok((entry.first_bits(), (entry.0 >> 16) as u8));
        }
        self.long(buffer)
    }

    #[cold]
    #[inline(never)]
    fn long(&self, buffer: u64) -> Result<(u32, u8), JpegError> {
        let head = (buffer >> 48) as u32;
        for length in 1..=16_u32 {
            if head < self.limit[length as usize] {
                let index = (head >> (16 - length)) as i32 + self.offset[length as usize];
                return Ok((length, self.spec.values[index as usize & 255]));
            }
        }
        Err(JpegError::Damaged("a code that no table has"))
    }
}

/// What `LOOK` bits hold that begin with a code of `length` bits, followed by `rest`.
fn single(kind: Kind, length: u32, symbol: u8, rest: u32) -> Entry {
    let (run, size) = (symbol >> 4, u32::from(symbol & 15));
    let left = LOOK - length;
    match kind {
        Kind::Symbols => Entry::code(length, symbol),
        Kind::Dc if symbol > 15 || size > left => Entry::code(length, symbol),
        Kind::Dc => Entry::single(length + size, 0, extend(rest >> (left - size), size)),
        Kind::Ac if size > left => Entry::code(length, symbol),
        Kind::Ac if size > 0 => Entry::single(length + size, run + 1, extend(rest >> (left - size), size)),
        // Sixteen zeros.
        Kind::Ac if run == 15 => Entry::single(length, 16, 0),
        Kind::Ac => Entry::single(length, END, 0),
    }
}

/// Adds the following coefficient to each entry, if the bits hold all of it.
fn pair(look: &mut [Entry; 1 << LOOK]) {
    let singles = *look;
    for (bits, entry) in look.iter_mut().enumerate() {
        let used = entry.bits();
        if used == 0 || used >= LOOK || entry.advances().0 == usize::from(END) {
            continue;
        }
        let next = singles[(bits << used) & ((1 << LOOK) - 1)];
        if next.bits() != 0 && used + next.bits() <= LOOK {
            *entry = entry.with(next);
        }
    }
}

/// The value encoded by `size` bits (T.81, F.2.2.1: EXTEND).
#[inline(always)]
pub(super) fn extend(bits: u32, size: u32) -> i16 {
    if size == 0 {
        return 0;
    }
    let negative = bits >> (size - 1) == 0;
    (bits as i32 + if negative { (-1 << size) + 1 } else { 0 }) as i16
}
