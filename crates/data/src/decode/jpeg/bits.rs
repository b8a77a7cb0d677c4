//! The bit stream of a scan: byte stuffing is removed first, then eight bytes are read at a time.
//!
//! One pass removes the zero byte that follows each 0xFF and records the positions of restart markers. The result is a
//! plain bit string, so the reader refills its 64-bit buffer without inspecting single bytes.

use super::fault::JpegError;

/// A scan without stuffing, followed by bytes that a reader may overrun into.
#[derive(Debug, Default)]
pub(super) struct Clean {
    bytes: Vec<u8>,
    /// Where the data after each restart marker begin; the first is 0.
    starts: Vec<usize>,
}

/// More than the bits of one MCU read past the end: an overrun is noticed at the end of each row or interval.
const PADDING: usize = 64;

impl Clean {
    /// Takes the scan at the start of `bytes`; returns how many bytes it had, up to the marker after it.
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, JpegError> {
        const CHUNK: usize = 32;
        self.bytes.clear();
        self.bytes.reserve(bytes.len() + PADDING);
        self.starts.clear();
        self.starts.push(0);
        let mut at = 0;
        loop {
            while let Some(chunk) = bytes.get(at..at + CHUNK) {
                if chunk.iter().fold(false, |found, byte| found | (*byte == 0xFF)) {
                    break;
                }
                self.bytes.extend_from_slice(chunk);
                at += CHUNK;
            }
            let rest = bytes.get(at..).unwrap_or_default();
            let plain = rest.iter().position(|byte| *byte == 0xFF).ok_or(JpegError::Truncated)?;
            self.bytes.extend_from_slice(&rest[..plain]);
            at += plain;
            match rest.get(plain + 1) {
                Some(0) => {
                    self.bytes.push(0xFF);
                    at += 2;
                }
                Some(0xFF) => at += 1, // A fill byte.
                Some(restart @ 0xD0..=0xD7) => {
                    if usize::from(restart & 7) != (self.starts.len() - 1) & 7 {
                        return Err(JpegError::Damaged("restart markers out of order"));
                    }
                    self.starts.push(self.bytes.len());
                    at += 2;
                }
                Some(_) => break,
                None => return Err(JpegError::Truncated),
            }
        }
        self.bytes.extend_from_slice(&[0; PADDING]);
        Ok(at)
    }

    /// The bits of restart interval number `segment`, from 0.
    pub fn segment(&self, segment: usize) -> Result<Bits<'_>, JpegError> {
        let start = *self.starts.get(segment).ok_or(JpegError::Truncated)?;
        let end = self.starts.get(segment + 1).copied().unwrap_or(self.bytes.len() - PADDING);
        Ok(Bits { bytes: &self.bytes, at: start, end, buffer: 0, count: 0 })
    }

    /// The number of restart intervals.
    pub fn segments(&self) -> usize {
        self.starts.len()
    }
}

/// A reader of bits, most significant first.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bits<'a> {
    bytes: &'a [u8],
    at: usize,
    end: usize,
    /// The next bits, from the highest; `count` of them are valid.
    pub buffer: u64,
    count: u32,
}

impl Bits<'_> {
    /// Makes at least 56 bits valid (Giesen, "Reading bits in far too many ways", variant 4).
    #[inline(always)]
    pub fn refill(&mut self) -> Result<(), JpegError> {
        let word: [u8; 8] =
            self.bytes.get(self.at..).and_then(|rest| rest.first_chunk()).copied().ok_or(JpegError::Truncated)?;
        self.buffer |= u64::from_be_bytes(word) >> self.count;
        self.at += ((63 - self.count) >> 3) as usize;
        self.count |= 56;
        Ok(())
    }

    /// Drops bits that were used; no more than are valid.
    #[inline(always)]
    pub fn drop(&mut self, bits: u32) {
        self.buffer <<= bits;
        self.count = self.count.wrapping_sub(bits);
    }

    /// Takes up to 16 bits that are valid.
    #[inline(always)]
    pub fn take(&mut self, bits: u32) -> u32 {
        let taken = (self.buffer >> 32 >> (32 - bits)) as u32;
        self.drop(bits);
        taken
    }

    /// Whether more bits were used than there are.
    #[inline(always)]
    pub fn check(&self) -> Result<(), JpegError> {
        if self.at * 8 - self.count as usize > self.end * 8 { Err(JpegError::Truncated) } else { Ok(()) }
    }
}
