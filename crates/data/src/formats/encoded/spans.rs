//! Samples that lie in one piece inside larger files: members of a tar, records of a TFRecord, cells of an Arrow file.
//!
//! A sample is read with one positioned read. Names lie in one text, as there may be a hundred million of them.

use std::io;

use crate::Error;
use crate::files::handles::{Handles, LARGEST_FILE};
use crate::files::remote::AccessTime;

/// Where each sample lies.
#[derive(Debug)]
pub(crate) struct Spans {
    pub files: Handles,
    pub spans: Vec<Span>,
    pub names: Names,
    /// What lies beside each sample; none, or one each.
    pub beside: Vec<Beside>,
}

/// Pieces that say more about a sample: a JSON, and a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Beside {
    pub json: Option<Span>,
    pub text: Option<Span>,
}

/// One piece of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// Number of the file.
    pub file: u32,
    /// Bytes of the sample.
    pub bytes: u32,
    /// Where it begins.
    pub offset: u64,
    /// The checked record that the sample is a part of: how far before the sample it begins, and its bytes.
    pub record: Option<(u32, u32)>,
}

/// What each sample is called in messages.
#[derive(Debug)]
pub(crate) enum Names {
    /// Each has a name of its own.
    Each { text: String, ends: Vec<u64> },
    /// `<file>, <word> <number>`: the number of each sample in its file, from 1.
    Numbered { word: &'static str, numbers: Vec<u64> },
}

impl Names {
    /// Names that are kept one by one.
    pub fn each<'a>(names: impl Iterator<Item = &'a str>) -> Names {
        let (mut text, mut ends) = (String::new(), Vec::new());
        for name in names {
            text.push_str(name);
            ends.push(text.len() as u64);
        }
        Names::Each { text, ends }
    }

    fn retain(&mut self, keep: &[bool]) {
        match self {
            Names::Numbered { numbers, .. } => {
                let mut flags = keep.iter();
                numbers.retain(|_| flags.next() == Some(&true));
            }
            Names::Each { text, ends } => {
                let kept =
                    keep.iter().enumerate().filter(|(_, keep)| **keep).map(|(sample, _)| part(text, ends, sample));
                *self = Names::each(kept.collect::<Vec<_>>().into_iter());
            }
        }
    }
}

fn part<'a>(text: &'a str, ends: &[u64], sample: usize) -> &'a str {
    let start = if sample == 0 { 0 } else { ends[sample - 1] };
    &text[start as usize..ends[sample] as usize]
}

impl Spans {
    /// What an image is called in messages.
    pub fn name(&self, sample: usize) -> String {
        match &self.names {
            Names::Each { text, ends } => part(text, ends, sample).to_owned(),
            Names::Numbered { word, numbers } => {
                let path = self.files.path(self.spans[sample].file);
                let file = path.file_name().unwrap_or_default().to_string_lossy();
                format!("{file}, {word} {}", numbers[sample])
            }
        }
    }

    /// Reads one sample into `bytes`; the checksum of its record is checked if it has one.
    pub fn read(&self, sample: usize, bytes: &mut Vec<u8>, when: AccessTime) -> Result<(), Error> {
        let span = self.spans[sample];
        let (before, length) = span.record.unwrap_or((0, span.bytes));
        let refused = |source: io::Error| Error::Read { name: self.name(sample), source };
        let broken = |why: &str| Error::Image { name: self.name(sample), why: why.into() };
        if u64::from(length) > LARGEST_FILE {
            return Err(broken("it is larger than 256 MiB"));
        }
        let (file, start, all) = self.place(sample);
        bytes.clear();
        bytes.resize(all as usize, 0);
        self.files.read_due(file, bytes, start, when).map_err(refused)?;
        if span.record.is_none() {
            return Ok(());
        }
        let (record, stored) = bytes.split_at(length as usize);
        if masked(record).to_le_bytes() != *stored {
            return Err(broken("its checksum is wrong"));
        }
        let (from, to) = (before as usize, before as usize + span.bytes as usize);
        bytes.copy_within(from..to, 0);
        bytes.truncate(span.bytes as usize);
        Ok(())
    }

    /// File, place and number of the bytes that [`Spans::read`] reads.
    pub fn place(&self, sample: usize) -> (u32, u64, u32) {
        let span = self.spans[sample];
        let (before, length) = span.record.unwrap_or((0, span.bytes));
        // Behind a record lies its checksum.
        let checksum = if span.record.is_some() { 4 } else { 0 };
        (span.file, span.offset - u64::from(before), length + checksum)
    }

    /// What lies beside one sample, as one JSON object: its JSON, and its text under `text`. What is neither is left out.
    pub fn note(&self, sample: usize) -> Result<Vec<u8>, Error> {
        let Some(Beside { json, text }) = self.beside.get(sample).copied() else {
            return Ok(Vec::new());
        };
        let read = |span: Span| {
            let mut bytes = vec![0; span.bytes as usize];
            let read = self.files.read_exact_at(span.file, &mut bytes, span.offset);
            read.map(|()| bytes).map_err(|source| Error::Read { name: self.name(sample), source })
        };
        let json = json.map(read).transpose()?.unwrap_or_default();
        let Some(text) = text.map(read).transpose()?.and_then(|bytes| String::from_utf8(bytes).ok()) else {
            let object: Option<serde_json::Map<String, serde_json::Value>> = serde_json::from_slice(&json).ok();
            return Ok(if object.is_some() { json } else { Vec::new() });
        };
        let mut object: serde_json::Map<String, serde_json::Value> = serde_json::from_slice(&json).unwrap_or_default();
        object.entry("text").or_insert_with(|| text.trim_end().into());
        Ok(serde_json::to_vec(&object).unwrap_or_default())
    }

    /// Drops the images whose flag is not set.
    pub fn retain(&mut self, keep: &[bool]) {
        let mut flags = keep.iter();
        self.spans.retain(|_| flags.next() == Some(&true));
        let mut flags = keep.iter();
        self.beside.retain(|_| flags.next() == Some(&true));
        self.names.retain(keep);
    }
}

/// The checksum of TFRecord: CRC-32C, turned and shifted, so that a checksum of checksums is no trap.
pub(in crate::formats) fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8)
}
