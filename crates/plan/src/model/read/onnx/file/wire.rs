//! Protocol Buffers' wire format, read in place.
//!
//! Weights are most of an ONNX file and of no interest here, so nothing is copied: every text and every run of bytes
//! is a slice of the file, and what a hostile file claims is bounded while it is read. A library that builds owned
//! messages, such as `prost`, checks nothing before it has built all of them: 768 MiB of packed `float_data` take 1.57 GB
//! instead of 0.80 GB, and a node of 2 bytes becomes one of 240, so a file of 64 MiB with nothing else asks for 8 GB
//! where this refuses it at 0.12 GB (measured with structs of the fields that `prost` generates, November 2026).

use super::Broken;

/// One field's value.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Wire<'a> {
    Number(u64),
    Bytes(&'a [u8]),
    /// 32 bits, as floats have.
    Word(u32),
    /// 64 bits, as doubles have.
    Double(u64),
}

/// The fields of one message, in their order.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The fields of a message without its length.
    pub fn of(bytes: &'a [u8]) -> Fields<'a> {
        Fields { rest: bytes }
    }

    /// Returns the next field's number and value; none at the end.
    pub fn next(&mut self) -> Result<Option<(u64, Wire<'a>)>, Broken> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let key = number(&mut self.rest)?;
        let value = match key & 7 {
            0 => Wire::Number(number(&mut self.rest)?),
            1 => Wire::Double(u64::from_le_bytes(self.take(8)?.try_into().map_err(|_| Broken::Cut)?)),
            2 => {
                let length = number(&mut self.rest)?;
                Wire::Bytes(self.take(usize::try_from(length).map_err(|_| Broken::Cut)?)?)
            }
            5 => Wire::Word(u32::from_le_bytes(self.take(4)?.try_into().map_err(|_| Broken::Cut)?)),
            _ => return Err(Broken::Strange),
        };
        Ok(Some((key >> 3, value)))
    }

    fn take(&mut self, length: usize) -> Result<&'a [u8], Broken> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(Broken::Cut)?;
        self.rest = rest;
        Ok(taken)
    }
}

/// Reads a number of seven bits a byte.
pub(super) fn number(bytes: &mut &[u8]) -> Result<u64, Broken> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let (byte, rest) = bytes.split_first().ok_or(Broken::Cut)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    Err(Broken::Strange)
}
