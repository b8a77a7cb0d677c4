//! Where the files of a zip archive lie that PyTorch writes: all are stored as they are.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use super::Unreadable;

/// Where the bytes of a file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Extent {
    pub offset: u64,
    pub length: u64,
}

/// Bytes at the end in which the last record of an archive is.
const END: u64 = 22 + 65_535;
/// Longest list of files.
const LONGEST: u64 = 256 << 20;

/// The files of an archive, by their names without the folder that holds them all.
pub(super) fn files(file: &File) -> Result<BTreeMap<String, Extent>, Unreadable> {
    let size = file.metadata().map_err(|error| Unreadable(error.to_string()))?.len();
    let tail_at = size.saturating_sub(END);
    let tail = read(file, tail_at, size - tail_at)?;
    let end = (0..tail.len().saturating_sub(21)).rev().find(|at| tail[*at..].starts_with(b"PK\x05\x06"));
    let end = end.ok_or_else(|| Unreadable("its list of files is missing".into()))?;
    let (mut length, mut start) = (u64::from(u32_at(&tail, end + 12)?), u64::from(u32_at(&tail, end + 16)?));
    let locator = end.checked_sub(20).filter(|at| tail[*at..].starts_with(b"PK\x06\x07"));
    if let Some(locator) = locator {
        let record = read(file, u64_at(&tail, locator + 8)?, 56)?;
        (length, start) = (u64_at(&record, 40)?, u64_at(&record, 48)?);
    }
    if length > LONGEST {
        return Err(Unreadable("its list of files is too long".into()));
    }
    let list = read(file, start, length)?;
    let mut files = BTreeMap::new();
    let mut at = 0;
    while list[at..].starts_with(b"PK\x01\x02") {
        let (name, extent, next) = entry(file, &list, at)?;
        let name = name.split_once('/').map_or(name.clone(), |(_, rest)| rest.to_owned());
        files.insert(name, extent);
        at = next.min(list.len());
    }
    Ok(files)
}

/// The file whose record is here: its name, where it is, and where the next record is.
fn entry(file: &File, list: &[u8], at: usize) -> Result<(String, Extent, usize), Unreadable> {
    let (method, packed, plain) = (u16_at(list, at + 10)?, u32_at(list, at + 20)?, u32_at(list, at + 24)?);
    let [name, extra, comment] = [28, 30, 32].map(|field| u16_at(list, at + field).map(usize::from));
    let (name, extra, comment) = (name?, extra?, comment?);
    let mut wide = [u64::from(plain), u64::from(packed), u64::from(u32_at(list, at + 42)?)];
    let extra_at = at + 46 + name;
    let text = list.get(at + 46..extra_at).ok_or_else(|| Unreadable("its list of files is cut off".into()))?;
    let text = String::from_utf8_lossy(text).into_owned();
    // Numbers that do not fit stand in a field of their own, in this order.
    let mut field = extra_at;
    while field + 4 <= extra_at + extra {
        let (kind, length) = (u16_at(list, field)?, usize::from(u16_at(list, field + 2)?));
        let mut value = field + 4;
        for number in wide.iter_mut().filter(|number| kind == 1 && **number == u64::from(u32::MAX)) {
            *number = u64_at(list, value)?;
            value += 8;
        }
        field += 4 + length;
    }
    let [length, packed, header] = wide;
    if method != 0 || packed != length {
        return Err(Unreadable(format!("its file `{text}` is compressed, which PyTorch does not do")));
    }
    let local = read(file, header, 30)?;
    let before = 30 + u64::from(u16_at(&local, 26)?) + u64::from(u16_at(&local, 28)?);
    let offset = header.checked_add(before).ok_or_else(|| Unreadable("its list of files is damaged".into()))?;
    Ok((text, Extent { offset, length }, extra_at + extra + comment))
}

/// Bytes of a file.
pub(super) fn read(file: &File, offset: u64, length: u64) -> Result<Vec<u8>, Unreadable> {
    let size = file.metadata().map_err(|error| Unreadable(error.to_string()))?.len();
    if offset.checked_add(length).is_none_or(|end| end > size) {
        return Err(Unreadable("it is cut off".into()));
    }
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, offset).map_err(|error| Unreadable(error.to_string()))?;
    Ok(bytes)
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Unreadable> {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk::<N>());
    found.copied().ok_or_else(|| Unreadable("its list of files is cut off".into()))
}

fn u16_at(bytes: &[u8], at: usize) -> Result<u16, Unreadable> {
    field(bytes, at).map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Result<u32, Unreadable> {
    field(bytes, at).map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Result<u64, Unreadable> {
    field(bytes, at).map(u64::from_le_bytes)
}
