//! Compressed columns of Arrow batches: each buffer is its length, 64 bits, and a frame of LZ4 or zstd; a length of -1
//! marks uncompressed bytes.
//!
//! The unpacked size of a buffer is bounded by its declared length, and that of a file by a limit.

use std::io::{self, Read};
use std::ops::Range;

use arrow_ipc::{CompressionType, RecordBatch};
use plugin::{ReadAt, TableError};

/// The unpacked buffers of one batch.
pub(crate) struct Unpacking {
    codec: Codec,
    room: u64,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone, Copy)]
enum Codec {
    Lz4,
    Zstd,
}

fn broken(why: &str) -> TableError {
    TableError::Broken(why.into())
}

impl Unpacking {
    /// Unpacks the buffers of a batch to at most `room` bytes; `None` if they are not compressed.
    pub fn of(batch: &RecordBatch<'_>, room: u64) -> Result<Option<Unpacking>, TableError> {
        let Some(compression) = batch.compression() else { return Ok(None) };
        let codec = match compression.codec() {
            CompressionType::LZ4_FRAME => Codec::Lz4,
            CompressionType::ZSTD => Codec::Zstd,
            other => return Err(broken(&format!("its columns are compressed by {other:?}, which is not read"))),
        };
        Ok(Some(Unpacking { codec, room, bytes: Vec::new() }))
    }

    /// Unpacks one buffer, and returns its position in `bytes`.
    pub fn add(&mut self, stored: &[u8]) -> Result<Range<u64>, TableError> {
        const PLAIN: i64 = -1;
        let start = self.bytes.len() as u64;
        if stored.is_empty() {
            return Ok(start..start);
        }
        let (length, packed) = stored.split_first_chunk().ok_or_else(|| broken("a compressed column is too short"))?;
        let length = match i64::from_le_bytes(*length) {
            PLAIN => packed.len() as u64,
            length => u64::try_from(length).map_err(|_| broken("a compressed column has no length"))?,
        };
        if length > self.room.saturating_sub(start) {
            return Err(TableError::TooLarge);
        }
        let is_plain = stored.starts_with(&PLAIN.to_le_bytes());
        let stream: io::Result<Box<dyn Read + '_>> = match self.codec {
            _ if is_plain => Ok(Box::new(packed)),
            Codec::Lz4 => Ok(Box::new(lz4_flex::frame::FrameDecoder::new(packed))),
            Codec::Zstd => {
                zstd::stream::read::Decoder::new(packed).map(|stream| Box::new(stream) as Box<dyn Read + '_>)
            }
        };
        // One more byte shows a column that is longer than it claims.
        let unpacked = stream.and_then(|stream| stream.take(length + 1).read_to_end(&mut self.bytes));
        match unpacked {
            Ok(bytes) if bytes as u64 == length => Ok(start..start + length),
            Ok(_) => Err(broken("a compressed column is not as long as it claims")),
            Err(error) => Err(broken(&format!("a compressed column is damaged: {error}"))),
        }
    }
}

/// Unpacked bytes, read as a file is.
#[derive(Debug)]
pub(crate) struct Memory(pub Vec<u8>);

impl ReadAt for Memory {
    fn length(&self) -> io::Result<u64> {
        Ok(self.0.len() as u64)
    }

    fn read_exact_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        match self.read_at(bytes, offset)? == bytes.len() {
            true => Ok(()),
            false => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn read_once(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_exact_at(bytes, offset)
    }

    fn read_at(&self, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
        let rest = usize::try_from(offset).ok().and_then(|offset| self.0.get(offset..)).unwrap_or_default();
        let count = rest.len().min(bytes.len());
        bytes[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn window(&self) -> u64 {
        // Reads from memory need no large buffer.
        4 << 10
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_unpacks_to_what_it_claims_and_to_no_more_than_there_is_room_for() {
        let raw = vec![7_u8; 100_000];
        let packed = zstd::encode_all(&raw[..], 3).unwrap();
        let check = |claimed: i64, packed: &[u8], room: u64, expected: Result<u64, &str>| {
            let mut unpacking = Unpacking { codec: Codec::Zstd, room, bytes: Vec::new() };
            let stored = [&claimed.to_le_bytes(), packed].concat();
            let found = unpacking.add(&stored);
            let found = found.map(|place| place.end).map_err(|error| format!("{error:?}"));
            match expected {
                Ok(length) => assert_eq!((found, unpacking.bytes.len() as u64), (Ok(length), length)),
                Err(why) => assert!(found.as_ref().is_err_and(|found| found.contains(why)), "{found:?}: {why}"),
            }
            assert!(unpacking.bytes.len() <= 100_001);
        };
        check(100_000, &packed, 100_000, Ok(100_000));
        check(100_000, &packed, 99_999, Err("TooLarge"));
        check(i64::MAX, &packed, 1 << 30, Err("TooLarge"));
        check(10, &packed, 100_000, Err("not as long as it claims"));
        check(200_000, &packed, 300_000, Err("not as long as it claims"));
        check(-2, &packed, 100_000, Err("has no length"));
        check(100_000, &packed[..packed.len() - 3], 100_000, Err("is damaged"));
        check(-1, b"plain", 100, Ok(5));
    }
}
