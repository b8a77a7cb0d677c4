//! Whether a file is as long as its own directory says, without reading its contents.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

use serde_json::Value;

/// A longer header belongs to no safetensors file.
const LONGEST_HEADER: u64 = 100_000_000;

/// The end record of a zip archive and its parts: fixed sizes, and the longest comment behind it.
const END: usize = 22;
const COMMENT: u64 = 65_535;
const LOCATOR: usize = 20;
const END_64: u64 = 56;

/// A file of weights or other state: of safetensors, or of `torch.save`.
pub(super) fn file(path: &Path) -> Result<(), String> {
    if path.extension().is_some_and(|extension| extension == "safetensors") { tensors(path) } else { archive(path) }
}

/// A safetensors file: its header says where the last tensor ends.
fn tensors(path: &Path) -> Result<(), String> {
    let mut file = File::open(path).map_err(|error| missing(path, &error))?;
    let length = file.metadata().map_err(|error| missing(path, &error))?.len();
    let mut size = [0; 8];
    let header = file.read_exact(&mut size).ok().and_then(|()| {
        let size = u64::from_le_bytes(size);
        let mut header = Vec::new();
        file.take(size.min(LONGEST_HEADER)).read_to_end(&mut header).ok()?;
        let header: serde_json::Map<String, Value> = serde_json::from_slice(&header).ok()?;
        let ends = header.values().filter_map(|tensor| tensor["data_offsets"][1].as_u64());
        Some(8 + size + ends.max().unwrap_or(0))
    });
    if header == Some(length) { Ok(()) } else { Err(cut(path)) }
}

/// A file of `torch.save`: a zip archive, whose directory stands at its end. One of the form before PyTorch 1.6 has none,
/// and is only looked at for being there.
pub(super) fn archive(path: &Path) -> Result<(), String> {
    let mut file = File::open(path).map_err(|error| missing(path, &error))?;
    let length = file.metadata().map_err(|error| missing(path, &error))?.len();
    let mut start = [0; 4];
    let is_old = file.read_exact(&mut start).is_ok() && start[0] == 0x80;
    if is_old || start == *b"PK\x03\x04" && is_archive(&mut file, length).unwrap_or(false) {
        return Ok(());
    }
    Err(cut(path))
}

/// Whether the directory of an archive ends where its end record begins.
fn is_archive(file: &mut File, length: u64) -> std::io::Result<bool> {
    let from = length.saturating_sub(COMMENT + END as u64);
    let mut tail = Vec::new();
    file.seek(SeekFrom::Start(from))?;
    file.read_to_end(&mut tail)?;
    let is_end = |at: &usize| {
        let comment = tail.get(at + 20..at + END).map(|two| usize::from(two[0]) | usize::from(two[1]) << 8);
        tail[*at..].starts_with(b"PK\x05\x06") && comment.is_some_and(|comment| at + END + comment == tail.len())
    };
    let Some(at) = (0..tail.len().saturating_sub(END - 1)).rev().find(is_end) else { return Ok(false) };
    let end = from + at as u64;
    let (size, offset) = (u64::from(four(&tail[at + 12..])), u64::from(four(&tail[at + 16..])));
    if offset != u64::from(u32::MAX) && size != u64::from(u32::MAX) {
        return Ok(offset + size == end || is_64(file, end, Some((size, offset)))?);
    }
    is_64(file, end, None)
}

/// The same with 64-bit numbers, of files of 4 GB or more; PyTorch writes these records for smaller ones, too.
fn is_64(file: &mut File, end: u64, known: Option<(u64, u64)>) -> std::io::Result<bool> {
    let Some(from) = end.checked_sub(LOCATOR as u64 + END_64) else { return Ok(false) };
    let mut bytes = [0; END_64 as usize + LOCATOR];
    file.seek(SeekFrom::Start(from))?;
    file.read_exact(&mut bytes)?;
    let (record, locator) = bytes.split_at(END_64 as usize);
    if !record.starts_with(b"PK\x06\x06") || !locator.starts_with(b"PK\x06\x07") {
        return Ok(false);
    }
    let (size, offset) = (eight(&record[40..]), eight(&record[48..]));
    Ok(offset.checked_add(size) == Some(from) && known.is_none_or(|known| known == (size, offset)))
}

fn four(bytes: &[u8]) -> u32 {
    bytes.first_chunk().map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

fn eight(bytes: &[u8]) -> u64 {
    bytes.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn name(path: &Path) -> String {
    path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

fn missing(path: &Path, error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => format!("`{}` is missing", name(path)),
        _ => format!("`{}` cannot be read: {error}", name(path)),
    }
}

fn cut(path: &Path) -> String {
    format!("`{}` is cut short", name(path))
}
