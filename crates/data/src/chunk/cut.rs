//! Divides a file into chunks.
//!
//! A sample that moved is found again only if the boundaries move with it. In a tar the headers of each member are a
//! chunk and its bytes and padding are another, so that a tar that is rewritten with other times is sent as its headers
//! only; in a TFRecord file each record is a chunk; samples above 1 MiB and files of unknown formats have
//! content-defined boundaries (FastCDC, Xia et al. 2016 and 2020). Bytes between samples are a chunk, or several if
//! they are long, so no file is refused; `samples` finds where samples end.

use std::fs::File;
use std::io::{self, Read};
use std::num::NonZero;
use std::os::unix::fs::FileExt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use fastcdc::v2020::StreamCDC;

use super::ContentHash;
use super::samples::{self, End};

/// A chunk of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk {
    /// Its name.
    pub id: ContentHash,
    /// Where it begins in the file.
    pub offset: u64,
    /// Its length, at most [`LARGEST`].
    pub bytes: u32,
}

/// Samples up to this length are one chunk, or headers and content.
const WHOLE: u64 = 1 << 20;

/// Shorter contents are not a chunk of their own.
const CONTENT: u64 = 2 << 10;

/// Files above this are cut four times more coarsely, so that their manifests stay small: 48 bytes a chunk.
const HUGE: u64 = 4 << 30;

/// Mean length of a chunk that is cut by content, in files up to [`HUGE`] and above. The least is a quarter, the most
/// four times as long.
const MEAN: (usize, usize) = (16 << 10, 64 << 10);

/// Spans that a thread takes at a time are about this long.
const TAKEN: u64 = 8 << 20;

/// Divides a file into chunks on up to `threads` threads, and hashes each. The chunks cover the file in order.
///
/// Earlier versions put headers and contents of a tar into one chunk; such a chunk is preserved if `is_known` holds for
/// it, so that it need not be sent.
///
/// # Errors
/// I/O errors; [`io::ErrorKind::UnexpectedEof`] if the file was truncated meanwhile.
pub fn scan(
    file: &File,
    threads: NonZero<usize>,
    is_known: impl Fn(ContentHash) -> bool + Sync,
) -> io::Result<Vec<Chunk>> {
    let length = file.metadata()?.len();
    let spans = spans(&samples::ends(file, length)?, length);
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
            let outcome = group.iter().try_for_each(|span| cut(file, *span, mean, &is_known, &mut buffer, &mut chunks));
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

/// The range between two ends: its start, the start of its content, and its end.
type Span = (u64, u64, u64);

/// The spans between the ends, and the remainder after the last.
fn spans(ends: &[End], length: u64) -> Vec<Span> {
    let mut spans = Vec::with_capacity(ends.len() + 1);
    let mut begin = 0;
    for &End { content, end } in ends.iter().chain([&End { content: 0, end: length }]) {
        if end > begin && end <= length {
            let is_apart = content > begin && content <= end && end - content >= CONTENT && end - begin <= WHOLE;
            spans.push((begin, if is_apart { content } else { begin }, end));
            begin = end;
        }
    }
    spans
}

/// Groups neighbouring spans to about [`TAKEN`] bytes.
fn groups(spans: &[Span]) -> Vec<&[Span]> {
    let (mut groups, mut first, mut bytes) = (Vec::new(), 0, 0);
    for (index, (begin, _, end)) in spans.iter().enumerate() {
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
    (begin, content, end): Span,
    mean: usize,
    is_known: &(impl Fn(ContentHash) -> bool + Sync),
    buffer: &mut Vec<u8>,
    chunks: &mut Vec<Chunk>,
) -> io::Result<()> {
    let is_opaque = end - begin > WHOLE;
    if !is_opaque {
        buffer.resize((end - begin) as usize, 0);
        file.read_exact_at(buffer, begin)?;
        let (headers, rest) = buffer.split_at((content - begin) as usize);
        let mut add = |bytes: &[u8], offset| {
            chunks.push(Chunk { id: ContentHash::of(bytes), offset, bytes: bytes.len() as u32 });
        };
        if headers.is_empty() || is_known(ContentHash::of(buffer)) {
            add(buffer, begin);
        } else {
            add(headers, begin);
            add(rest, content);
        }
        return Ok(());
    }
    let mut offset = begin;
    for chunk in StreamCDC::new(At { file, offset: begin, end }, mean / 4, mean, mean * 4) {
        let chunk = chunk.map_err(io::Error::from)?;
        chunks.push(Chunk { id: ContentHash::of(&chunk.data), offset, bytes: chunk.data.len() as u32 });
        offset += chunk.data.len() as u64;
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
