//! The members of an uncompressed tar, which is read in place.
//!
//! One pass over the headers records where each member's bytes begin; they are read by position afterwards. Paths
//! inside the tar are labels only and never touch the file system, so a hostile path is harmless. The dialects are
//! those of POSIX.1-2001 (ustar, pax) and GNU; sizes are checked against the file before anything is read or skipped.

use std::io;

use crate::files::handles::{Opened, Window};

const BLOCK: u64 = 512;
/// With more damage than this, a file is not a tar.
const MOST_DAMAGES: usize = 1000;
/// Longer names and records of names belong to no image.
const LONGEST_NAME: u64 = 1 << 20;

/// One member that is a file, or a second name of one.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub name: Vec<u8>,
    pub kind: Kind,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File {
        offset: u64,
        bytes: u64,
    },
    /// A hard link: the name of another member.
    Link(Vec<u8>),
    /// A sparse file, whose bytes are not contiguous.
    Sparse,
}

/// What stops the reading of a tar.
#[derive(Debug)]
pub(in crate::formats) enum Stop {
    /// The system refused.
    Read(io::Error),
    /// The tar is not one, or ends early.
    Damaged(String),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Read(error)
    }
}

/// What extended headers say about the member after them.
#[derive(Default)]
struct Extension {
    name: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    bytes: Option<u64>,
    sparse: bool,
}

/// A damaged range of a tar.
#[derive(Debug)]
pub(super) struct Damage {
    pub why: String,
    /// Bytes up to the next valid header; `None` if no other follows.
    pub passed: Option<u64>,
}

/// Calls `visit` with every file and hard link, in the order of the tar. Members visited before an error are valid.
/// With `salvage`, reading resumes at the next valid header after damage, and all damage is returned.
pub(super) fn entries(file: &Opened, salvage: bool, mut visit: impl FnMut(Entry)) -> Result<Vec<Damage>, Stop> {
    let mut window = Window::new(file)?;
    let mut extension = Extension::default();
    let mut damages = Vec::new();
    let mut at = 0;
    loop {
        match member(&mut window, at, &mut extension, &mut visit) {
            Ok(Some(next)) => at = next,
            Ok(None) => return Ok(damages),
            Err(Stop::Damaged(why)) if salvage && damages.len() < MOST_DAMAGES => {
                extension = Extension::default();
                let next = next_header(&mut window, at + BLOCK)?;
                if at == 0 && next.is_none() && !starts_well(&mut window)? {
                    return Err(Stop::Damaged("there is no header of a tar archive in it".into()));
                }
                damages.push(Damage { why, passed: next.map(|next| next - at) });
                let Some(next) = next else { return Ok(damages) };
                at = next;
            }
            Err(stop) => return Err(stop),
        }
    }
}

/// Whether the first block is the header of a member.
fn starts_well(window: &mut Window) -> io::Result<bool> {
    Ok(window.array::<512>(0)?.is_some_and(|header| sums_up(&header)))
}

/// Finds the next POSIX or GNU header with a valid checksum.
fn next_header(window: &mut Window, mut at: u64) -> io::Result<Option<u64>> {
    while let Some(header) = window.array::<512>(at)? {
        if &header[257..262] == b"ustar" && sums_up(&header) {
            return Ok(Some(at));
        }
        at += BLOCK;
    }
    Ok(None)
}

/// Reads the header at `at` and visits its member; returns the position of the next header, or `None` at the end.
fn member(
    window: &mut Window,
    at: u64,
    extension: &mut Extension,
    visit: &mut impl FnMut(Entry),
) -> Result<Option<u64>, Stop> {
    if at >= window.length() {
        return Ok(None);
    }
    let Some(header) = window.array::<512>(at)? else {
        return Err(Stop::Damaged("it ends inside a header".into()));
    };
    if header.iter().all(|byte| *byte == 0) {
        return Ok(None);
    }
    if !sums_up(&header) {
        return Err(Stop::Damaged(format!("there is no header at byte {at}")));
    }
    let size = number(&header[124..136]).ok_or_else(|| Stop::Damaged(format!("no size is given at byte {at}")))?;
    let kind = header[156];
    // The size that a pax record gives is that of the file, not of another extension between the two.
    let bytes = match kind {
        b'L' | b'K' | b'x' | b'g' => size,
        _ => extension.bytes.unwrap_or(size),
    };
    let offset = at + BLOCK;
    let end = offset.checked_add(bytes).filter(|end| *end <= window.length());
    let Some(end) = end else {
        let name = extension.name.take().unwrap_or_else(|| path(&header));
        return Err(Stop::Damaged(format!("it ends inside `{}`", String::from_utf8_lossy(&name))));
    };
    match kind {
        b'L' => extension.name = Some(until_zero(long(window, offset, bytes)?).to_vec()),
        b'K' => extension.link = Some(until_zero(long(window, offset, bytes)?).to_vec()),
        b'x' => extension.add(long(window, offset, bytes)?)?,
        b'g' => {} // Defaults for all members, which include neither name nor size.
        _ => {
            let Extension { name, link, sparse, .. } = std::mem::take(extension);
            let name = name.unwrap_or_else(|| path(&header));
            match kind {
                b'S' => visit(Entry { name, kind: Kind::Sparse }),
                b'0' | b'7' | 0 if sparse => visit(Entry { name, kind: Kind::Sparse }),
                b'0' | b'7' | 0 => visit(Entry { name, kind: Kind::File { offset, bytes } }),
                b'1' => {
                    let target = link.unwrap_or_else(|| until_zero(&header[157..257]).to_vec());
                    visit(Entry { name, kind: Kind::Link(target) });
                }
                _ => {} // Folders, symbolic links and devices hold no samples.
            }
        }
    }
    Ok(Some(end.div_ceil(BLOCK) * BLOCK))
}

impl Extension {
    /// Reads the records `<length> <key>=<value>\n` of a pax header.
    fn add(&mut self, mut records: &[u8]) -> Result<(), Stop> {
        let broken = || Stop::Damaged("a pax header is broken".into());
        while !until_zero(records).is_empty() {
            let space = records.iter().position(|byte| *byte == b' ').ok_or_else(broken)?;
            let length = std::str::from_utf8(&records[..space]).ok().and_then(|text| text.parse::<usize>().ok());
            let length = length.filter(|length| *length > space + 1 && *length <= records.len()).ok_or_else(broken)?;
            let record = &records[space + 1..length - 1];
            let equals = record.iter().position(|byte| *byte == b'=').ok_or_else(broken)?;
            let (key, value) = (&record[..equals], &record[equals + 1..]);
            match key {
                b"path" => self.name = Some(value.to_vec()),
                b"linkpath" => self.link = Some(value.to_vec()),
                b"size" => {
                    let text = std::str::from_utf8(value).ok();
                    self.bytes = Some(text.and_then(|text| text.parse().ok()).ok_or_else(broken)?);
                }
                _ if key.starts_with(b"GNU.sparse.") => self.sparse = true,
                _ => {}
            }
            records = &records[length..];
        }
        Ok(())
    }
}

fn long<'a>(window: &'a mut Window, offset: u64, bytes: u64) -> Result<&'a [u8], Stop> {
    if bytes > LONGEST_NAME {
        return Err(Stop::Damaged(format!(
            "a header declares a name of {bytes} bytes; at most {LONGEST_NAME} are supported"
        )));
    }
    Ok(window.up_to(offset, bytes)?)
}

/// The name in a header, with the prefix of ustar; GNU uses that field for other data.
fn path(header: &[u8; 512]) -> Vec<u8> {
    let name = until_zero(&header[..100]);
    let prefix = until_zero(&header[345..500]);
    if &header[257..263] == b"ustar\0" && !prefix.is_empty() {
        return [prefix, b"/", name].concat();
    }
    name.to_vec()
}

/// Whether the checksum is right: the sum of all bytes, its own counted as spaces; some tars sum signed bytes.
fn sums_up(header: &[u8; 512]) -> bool {
    let Some(expected) = number(&header[148..156]) else {
        return false;
    };
    let bytes = || header.iter().enumerate().map(|(at, byte)| if (148..156).contains(&at) { b' ' } else { *byte });
    let unsigned: u64 = bytes().map(u64::from).sum();
    let signed: i64 = bytes().map(|byte| i64::from(byte.cast_signed())).sum();
    expected == unsigned || i64::try_from(expected) == Ok(signed)
}

/// A number in octal digits, or in GNU's base 256, whose first bit is set.
fn number(field: &[u8]) -> Option<u64> {
    if field[0] & 0x80 != 0 {
        let (high, low) = field.split_at(field.len() - 8);
        let rest = high.iter().skip(1).all(|byte| *byte == 0) && field[0] == 0x80 || field.len() == 8;
        return rest.then(|| low.try_into().map(|low| u64::from_be_bytes(low) & (u64::MAX >> 1)).ok()).flatten();
    }
    let text = std::str::from_utf8(until_zero(field)).ok()?.trim();
    if text.is_empty() { Some(0) } else { u64::from_str_radix(text, 8).ok() }
}

fn until_zero(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len())]
}
