//! The protocol of remote data: requests of a fixed length, and answers with their bytes.

use std::io::{self, Read, Write};

/// Bytes of one file of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// Index of the file in the listing.
    pub file: u32,
    /// Offset of the first byte.
    pub offset: u64,
    /// How many there are.
    pub bytes: u32,
}

/// When bytes are needed, in samples of all epochs counted from the first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessTime {
    /// Now, as far as it is known.
    pub now: u64,
    /// The next time.
    pub next: u64,
}

/// Some time.
impl Default for AccessTime {
    fn default() -> AccessTime {
        AccessTime::SOME_TIME
    }
}

impl AccessTime {
    /// For bytes that may be needed again at an unknown time: cached while there is space.
    pub const SOME_TIME: AccessTime = AccessTime { now: 0, next: crate::files::cache::NEVER - 1 };

    /// Access to bytes that are read only once.
    pub const ONCE: AccessTime = AccessTime { now: 0, next: crate::files::cache::NEVER };
}

/// A request to the server of remote data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeRequest {
    /// To answer with these bytes.
    Read(ByteRange, AccessTime),
    /// Announces that the bytes are needed soon; there is no answer.
    Expect(ByteRange, AccessTime),
}

const LENGTH: usize = 1 + 4 + 8 + 4 + 8 + 8;
const READ: u8 = 1;
const EXPECT: u8 = 2;
const KEPT: u8 = 1;
const FETCHED: u8 = 2;
const REFUSED: u8 = 3;
/// A reason is a sentence or two.
const LONGEST_REASON: u32 = 64 << 10;

/// Sends a request.
///
/// # Errors
/// If the connection is closed.
pub fn write_request(out: &mut impl Write, request: &RangeRequest) -> io::Result<()> {
    let (kind, span, when) = match request {
        RangeRequest::Read(span, when) => (READ, span, when),
        RangeRequest::Expect(span, when) => (EXPECT, span, when),
    };
    let mut bytes = Vec::with_capacity(LENGTH);
    bytes.push(kind);
    bytes.extend(span.file.to_le_bytes());
    bytes.extend(span.offset.to_le_bytes());
    bytes.extend(span.bytes.to_le_bytes());
    bytes.extend(when.now.to_le_bytes());
    bytes.extend(when.next.to_le_bytes());
    out.write_all(&bytes)
}

/// Reads the next request; `None` at end of file.
///
/// # Errors
/// If it is malformed, or truncated.
pub fn read_request(from: &mut impl Read) -> io::Result<Option<RangeRequest>> {
    let mut kind = [0];
    if from.read(&mut kind)? == 0 {
        return Ok(None);
    }
    let mut bytes = [0; LENGTH - 1];
    from.read_exact(&mut bytes)?;
    let short = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    let long = |at: usize| u64::from(short(at)) | u64::from(short(at + 4)) << 32;
    let span = ByteRange { file: short(0), offset: long(4), bytes: short(12) };
    let when = AccessTime { now: long(16), next: long(24) };
    match kind[0] {
        READ => Ok(Some(RangeRequest::Read(span, when))),
        EXPECT => Ok(Some(RangeRequest::Expect(span, when))),
        other => Err(io::Error::new(io::ErrorKind::InvalidData, format!("there is no request {other}"))),
    }
}

/// Answers a request to read.
///
/// # Errors
/// If the connection is closed.
pub fn write_answer(out: &mut impl Write, answer: Result<(bool, &[u8]), &str>) -> io::Result<()> {
    let (kind, bytes) = match answer {
        Ok((true, bytes)) => (KEPT, bytes),
        Ok((false, bytes)) => (FETCHED, bytes),
        Err(why) => (REFUSED, &why.as_bytes()[..why.len().min(LONGEST_REASON as usize)]),
    };
    let mut head = [kind, 0, 0, 0, 0];
    head[1..].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.write_all(&head)?;
    out.write_all(bytes)
}

/// Reads the answer to a request for `into.len()` bytes into `into`. Returns whether they came from the cache, or why
/// the request failed.
///
/// # Errors
/// If the connection is closed or the answer is malformed.
pub fn read_answer(from: &mut impl Read, into: &mut [u8]) -> io::Result<Result<bool, String>> {
    let mut head = [0; 5];
    from.read_exact(&mut head)?;
    let length = u32::from_le_bytes([head[1], head[2], head[3], head[4]]);
    match head[0] {
        kind @ (KEPT | FETCHED) if length as usize == into.len() => {
            from.read_exact(into)?;
            Ok(Ok(kind == KEPT))
        }
        REFUSED if length <= LONGEST_REASON => {
            let mut why = vec![0; length as usize];
            from.read_exact(&mut why)?;
            Ok(Err(String::from_utf8_lossy(&why).into_owned()))
        }
        other => Err(io::Error::new(io::ErrorKind::InvalidData, format!("answer {other} of {length} bytes"))),
    }
}
