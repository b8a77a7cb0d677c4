//! Where the samples of a file end: members of a tar, records of a TFRecord file.
//!
//! A damaged or overwritten header hides one sample, not those after it: the following bytes are searched for the next
//! valid header, so that later boundaries are the same as before. A header is recognized by its checksum: 17 bits or
//! more in a tar, and 32 in a record, whose length must also fit the file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

/// A file without a header in its first bytes (the second number) has no known samples. A file of at most the first
/// number is one chunk if it does not begin with a header.
const SEARCHED: (u64, u64) = (1 << 20, 4 << 20);

/// Bytes that are read at a time while a header is searched.
const WINDOW: usize = 256 << 10;

/// Where a sample of a file ends, and where its content begins: behind headers that change though it does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct End {
    pub content: u64,
    pub end: u64,
}

/// The ends of the samples of a file of `length` bytes, in order, and where bytes between samples end; empty if the
/// format is unknown. Headers are separated from contents in a tar only.
///
/// # Errors
/// I/O errors.
pub(super) fn ends(file: &File, length: u64) -> io::Result<Vec<End>> {
    let members = walk::<Tar>(file, length)?;
    if !members.is_empty() {
        return Ok(members);
    }
    // Records so small that naming each would cost more than it saves are cut by content.
    const SMALLEST_MEAN: u64 = 1 << 10;
    let records = walk::<Records>(file, length)?;
    let is_worth_it = records.last().is_some_and(|last| records.len() as u64 * SMALLEST_MEAN <= last.end);
    Ok(if is_worth_it { records } else { Vec::new() })
}

/// A file format in which each sample follows a header with its length.
trait Form {
    /// Bytes of a header.
    const HEADER: usize;
    /// Headers begin at multiples of this.
    const STEP: usize;
    /// Whether a header holds a time, so that it changes when the same content is written again.
    const HAS_TIMES: bool;

    /// Parses a header, if its checksum is right; `header` has [`Self::HEADER`] bytes.
    fn read(header: &[u8]) -> Option<Head>;
}

/// The contents of a header.
struct Head {
    /// From the header's first byte to the next header.
    bytes: u64,
    /// Whether a sample ends there; else more of it follows.
    is_end: bool,
}

/// Walks from header to header, searching for the next one after damage.
fn walk<F: Form>(file: &File, length: u64) -> io::Result<Vec<End>> {
    let mut header = vec![0; F::HEADER];
    let (mut at, mut ends, mut is_known) = (0, Vec::new(), false);
    while at + F::HEADER as u64 <= length {
        file.read_exact_at(&mut header, at)?;
        if let Some((end, is_end)) = fitting::<F>(&header, at, length) {
            is_known = true;
            if is_end {
                ends.push(End { content: if F::HAS_TIMES { at + F::HEADER as u64 } else { 0 }, end });
            }
            at = end;
            continue;
        }
        let until = match is_known {
            true => length,
            false if length <= SEARCHED.0 => break,
            false => SEARCHED.1,
        };
        let Some(next) = search::<F>(file, at + F::STEP as u64, until, length)? else { break };
        at = next;
        ends.push(End { content: 0, end: next });
    }
    Ok(if is_known { ends } else { Vec::new() })
}

/// The end of the sample of a valid header, if it is within the file.
fn fitting<F: Form>(header: &[u8], at: u64, length: u64) -> Option<(u64, bool)> {
    let head = F::read(header)?;
    let end = at.checked_add(head.bytes)?;
    (end <= length).then_some((end, head.is_end))
}

/// The first sound header from `from` on that begins before `until`.
fn search<F: Form>(file: &File, from: u64, until: u64, length: u64) -> io::Result<Option<u64>> {
    let (mut window, mut at) = (vec![0; WINDOW], from);
    while at < until && at + F::HEADER as u64 <= length {
        let many = (length - at).min(WINDOW as u64) as usize;
        let window = &mut window[..many];
        file.read_exact_at(window, at)?;
        for start in (0..=many - F::HEADER).step_by(F::STEP) {
            let position = at + start as u64;
            if position >= until {
                return Ok(None);
            }
            if fitting::<F>(&window[start..start + F::HEADER], position, length).is_some() {
                return Ok(Some(position));
            }
        }
        at += ((many - F::HEADER) / F::STEP * F::STEP + F::STEP) as u64;
    }
    Ok(None)
}

/// Members of a tar, padding included.
struct Tar;

const BLOCK: usize = 512;

impl Form for Tar {
    const HEADER: usize = BLOCK;
    const STEP: usize = BLOCK;
    const HAS_TIMES: bool = true;

    fn read(header: &[u8]) -> Option<Head> {
        let stated = octal(&header[148..156])?;
        // The checksum's own field counts as spaces.
        let sum = |bytes: &[u8]| bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
        if sum(&header[..148]) + 8 * 32 + sum(&header[156..]) != stated {
            return None;
        }
        let size = &header[124..136];
        // Sizes of 8 GiB and more are written in base 256, marked by the first bit.
        let bytes = match size[0] & 0x80 {
            0 => octal(size)?,
            _ => u64::from_be_bytes(size[4..12].try_into().ok()?),
        };
        // An old sparse member (`S`) may have more header blocks than one.
        let kind = Some(header[156]).filter(|kind| *kind != b'S')?;
        let bytes = bytes.checked_add(BLOCK as u64)?.checked_next_multiple_of(BLOCK as u64)?;
        // Long names and attributes (`L`, `K`, `x`) precede their member; a folder has no bytes and is not worth a
        // chunk.
        Some(Head { bytes, is_end: !matches!(kind, b'L' | b'K' | b'x' | b'5') })
    }
}

fn octal(digits: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(digits).ok()?.trim_matches(['\0', ' ']);
    u64::from_str_radix(text, 8).ok()
}

/// Records of a TFRecord file: length, its sum, bytes, their sum.
struct Records;

impl Form for Records {
    const HEADER: usize = 12;
    const STEP: usize = 1;
    const HAS_TIMES: bool = false;

    fn read(header: &[u8]) -> Option<Head> {
        let (size, sum) = header.split_at(8);
        let bytes = u64::from_le_bytes(size.try_into().ok()?);
        // No record is that long; this skips most positions of a search before their checksum is computed.
        if bytes >> 48 != 0 {
            return None;
        }
        // The format masks its sums; see tensorflow's `tsl/lib/hash/crc32c.h`.
        let masked = crc32c::crc32c(size).rotate_right(15).wrapping_add(0xA282_EAD8);
        let is_sound = sum == masked.to_le_bytes();
        is_sound.then_some(Head { bytes: bytes + 16, is_end: true })
    }
}
