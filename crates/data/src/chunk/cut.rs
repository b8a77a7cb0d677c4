//! Where a file is cut into chunks.
//!
//! A sample that moved is found again only if the cuts move with it. In a tar each member (its headers, its bytes and
//! its padding) is a chunk, in a TFRecord file each record; samples above 1 MiB and files of unknown form are cut where
//! their content says so (FastCDC, Xia et al. 2016 and 2020). A file that is not what it seems is cut by content, so no
//! file is refused.

use std::fs::File;
use std::io::{self, Read};
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use fastcdc::v2020::StreamCDC;

use super::Id;

/// A piece of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Its name.
    pub id: Id,
    /// Where it begins in the file.
    pub offset: u64,
    /// Its length, at most [`LARGEST`].
    pub bytes: u32,
}

/// Samples up to this length are one chunk.
const WHOLE: u64 = 1 << 20;

/// Files above this are cut four times more coarsely, so that their manifests stay small: 48 bytes a chunk.
const HUGE: u64 = 4 << 30;

/// Mean length of a chunk that is cut by content, in files up to [`HUGE`] and above. The least is a quarter, the most
/// four times as long.
const MEAN: (usize, usize) = (16 << 10, 64 << 10);

/// Spans that a thread takes at a time are about this long.
const TAKEN: u64 = 8 << 20;

/// Cuts a file with up to `threads` threads and names every chunk. The chunks cover the file in order.
///
/// # Errors
/// What reading it gives; [`io::ErrorKind::UnexpectedEof`] when it became shorter meanwhile.
pub fn scan(file: &File, threads: NonZero<usize>) -> io::Result<Vec<Chunk>> {
    let length = file.metadata()?.len();
    let ends = match tar_ends(file, length)? {
        Some(ends) => ends,
        None => record_ends(file, length)?.unwrap_or_default(),
    };
    let spans = spans(&ends, length);
    let mean = if length > HUGE { MEAN.1 } else { MEAN.0 };
    let groups = groups(&spans);
    let results: Vec<Mutex<io::Result<Vec<Chunk>>>> = groups.iter().map(|_| Mutex::new(Ok(Vec::new()))).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut buffer = Vec::new();
        while let Some((group, result)) = {
            let taken = next.fetch_add(1, Ordering::Relaxed);
            groups.get(taken).zip(results.get(taken))
        } {
            let mut chunks = Vec::new();
            let outcome = group.iter().try_for_each(|span| cut(file, *span, mean, &mut buffer, &mut chunks));
            if let Ok(mut result) = result.lock() {
                *result = outcome.map(|()| chunks);
            }
        }
    };
    thread::scope(|scope| {
        for _ in 1..threads.get().min(groups.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut chunks = Vec::new();
    for result in results {
        chunks.extend(result.into_inner().map_err(|_| io::Error::other("a thread that cuts has failed"))??);
    }
    Ok(chunks)
}

/// The spans between the ends, and what is left after the last.
fn spans(ends: &[u64], length: u64) -> Vec<(u64, u64)> {
    let mut spans = Vec::with_capacity(ends.len() + 1);
    let mut begin = 0;
    for &end in ends.iter().chain([&length]) {
        if end > begin && end <= length {
            spans.push((begin, end));
            begin = end;
        }
    }
    spans
}

/// Neighbouring spans of about [`TAKEN`] bytes together.
fn groups(spans: &[(u64, u64)]) -> Vec<&[(u64, u64)]> {
    let (mut groups, mut first, mut bytes) = (Vec::new(), 0, 0);
    for (index, (begin, end)) in spans.iter().enumerate() {
        bytes += end - begin;
        if bytes >= TAKEN || index + 1 == spans.len() {
            groups.push(&spans[first..=index]);
            (first, bytes) = (index + 1, 0);
        }
    }
    groups
}

fn cut(
    file: &File,
    (begin, end): (u64, u64),
    mean: usize,
    buffer: &mut Vec<u8>,
    chunks: &mut Vec<Chunk>,
) -> io::Result<()> {
    let is_opaque = end - begin > WHOLE;
    if !is_opaque {
        buffer.resize((end - begin) as usize, 0);
        file.read_exact_at(buffer, begin)?;
        chunks.push(Chunk { id: Id::of(buffer), offset: begin, bytes: buffer.len() as u32 });
        return Ok(());
    }
    let mut offset = begin;
    for piece in StreamCDC::new(At { file, offset: begin, end }, mean / 4, mean, mean * 4) {
        let piece = piece.map_err(io::Error::from)?;
        chunks.push(Chunk { id: Id::of(&piece.data), offset, bytes: piece.data.len() as u32 });
        offset += piece.data.len() as u64;
    }
    if offset != end {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file became shorter while it was read"));
    }
    Ok(())
}

/// Reads a part of a file without moving its position.
struct At<'a> {
    file: &'a File,
    offset: u64,
    end: u64,
}

impl Read for At<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min((self.end - self.offset).try_into().unwrap_or(usize::MAX));
        let read = self.file.read_at(&mut buffer[..most], self.offset)?;
        self.offset += read as u64;
        Ok(read)
    }
}

const BLOCK: u64 = 512;

/// Where the members of a tar end, padding included; none when it is no tar. Read up to the first thing that is not
/// understood: what follows is cut by content.
fn tar_ends(file: &File, length: u64) -> io::Result<Option<Vec<u64>>> {
    let mut header = [0; BLOCK as usize];
    let (mut at, mut ends) = (0, Vec::new());
    while length - at >= BLOCK {
        file.read_exact_at(&mut header, at)?;
        let Some((bytes, kind)) = tar_header(&header) else { break };
        let Some(end) = bytes.checked_add(at + BLOCK).and_then(|end| end.checked_next_multiple_of(BLOCK)) else {
            break;
        };
        if end > length {
            break;
        }
        at = end;
        // Long names and attributes (`L`, `K`, `x`) stand before the member that they belong to; a folder has no bytes
        // and is not worth a chunk.
        if !matches!(kind, b'L' | b'K' | b'x' | b'5') {
            ends.push(end);
        }
    }
    Ok((!ends.is_empty()).then_some(ends))
}

/// The size and kind that a header states, if its sum is right.
fn tar_header(header: &[u8; BLOCK as usize]) -> Option<(u64, u8)> {
    let stated = octal(&header[148..156])?;
    let sum: u64 =
        header.iter().enumerate().map(|(at, byte)| if (148..156).contains(&at) { 32 } else { *byte as u64 }).sum();
    if sum != stated {
        return None;
    }
    let size = &header[124..136];
    // Sizes of 8 GiB and more are written in base 256, marked by the first bit.
    let bytes = match size[0] & 0x80 {
        0 => octal(size)?,
        _ => u64::from_be_bytes(size[4..12].try_into().ok()?),
    };
    // An old sparse member (`S`) may have more header blocks than one.
    (header[156] != b'S').then_some((bytes, header[156]))
}

fn octal(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?.trim_matches(['\0', ' ']);
    u64::from_str_radix(text, 8).ok()
}

/// Where the records of a TFRecord file end; none when it is none, or when its records are so small that naming each
/// would cost more than it saves.
fn record_ends(file: &File, length: u64) -> io::Result<Option<Vec<u64>>> {
    const SMALLEST_MEAN: u64 = 1 << 10;
    let (mut header, mut at, mut ends) = ([0; 12], 0, Vec::new());
    while length - at >= 16 {
        file.read_exact_at(&mut header, at)?;
        let (size, sum) = header.split_at(8);
        let (Ok(size_bytes), Ok(sum)) = (<[u8; 8]>::try_from(size), <[u8; 4]>::try_from(sum)) else { break };
        // The format masks its sums; see tensorflow's `tsl/lib/hash/crc32c.h`.
        let masked = crc32c::crc32c(size).rotate_right(15).wrapping_add(0xA282_EAD8);
        let end = u64::from_le_bytes(size_bytes).checked_add(at + 16);
        let Some(end) = end.filter(|end| masked == u32::from_le_bytes(sum) && *end <= length) else { break };
        at = end;
        ends.push(end);
    }
    let is_worth_it = ends.len() as u64 * SMALLEST_MEAN <= at;
    Ok((!ends.is_empty() && is_worth_it).then_some(ends))
}
