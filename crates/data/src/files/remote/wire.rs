//! What is said about bytes that are remote: requests of a fixed length, and answers with their bytes.

use std::io::{self, Read, Write};

/// Bytes of one file of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ByteRange {
    /// Place of the file in the listing.
    pub file: u32,
    /// Where they begin.
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
    /// Bytes that may be needed again, nobody knows when: they are kept for as long as there is room.
    pub const SOME_TIME: AccessTime = AccessTime { now: 0, next: crate::files::cache::NEVER - 1 };

    /// Access to bytes that are read only once.
    pub const ONCE: AccessTime = AccessTime { now: 0, next: crate::files::cache::NEVER };
}

/// What is asked of whoever serves the bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeRequest {
    /// To answer with these bytes.
    Read(ByteRange, AccessTime),
    /// To have these bytes at hand soon; nothing is answered.
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
/// When the other side is gone.
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

/// The next request; none when the other side has ended.
///
/// # Errors
/// When it is no request, or is cut short.
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
/// When the other side is gone.
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

/// The answer to a request for as many bytes as `into` has: they are written there. Returns whether they were kept, or
/// why there are none.
///
/// # Errors
/// When the other side is gone or says something else.
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
