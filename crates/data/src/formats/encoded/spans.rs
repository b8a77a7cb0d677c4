//! Samples that are contiguous in larger files: members of a tar or zip, records of a TFRecord, cells of an Arrow file.
//!
//! A sample is read with one positioned read, and inflated if it is compressed on its own, as in a zip. Names are
//! stored in one string, because there may be a hundred million of them.

use std::io;

use flate2::{Crc, Decompress, FlushDecompress, Status};

use crate::Error;
use crate::files::handles::{Handles, LARGEST_FILE};
use crate::files::remote::AccessTime;

/// The position of each sample.
#[derive(Debug)]
pub(crate) struct Spans {
    pub files: Handles,
    pub spans: Vec<Span>,
    pub names: Names,
    /// Metadata spans of the samples; empty, or one entry per sample.
    pub beside: Vec<Beside>,
}

/// Spans of a sample's metadata: a JSON, and a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Beside {
    pub json: Option<Span>,
    pub text: Option<Span>,
}

/// A contiguous range of one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    /// Number of the file.
    pub file: u32,
    /// Bytes of the sample.
    pub bytes: u32,
    /// Where it begins.
    pub offset: u64,
    pub wrapping: Wrapping,
}

/// How the bytes of a sample are wrapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wrapping {
    Plain,
    /// A checked record: how far before the sample it begins, and its bytes.
    Record {
        before: u32,
        bytes: u32,
    },
    /// A member of a zip: the bytes that it takes there, whether these are deflated, and the CRC-32 of the sample.
    Zip {
        stored: u32,
        is_deflated: bool,
        crc: u32,
    },
}

/// Why a span cannot be read.
pub(in crate::formats) enum Unread {
    /// The system refused.
    Refused(io::Error),
    /// The damage.
    Broken(String),
}

impl Unread {
    /// The error of the sample of this name.
    pub fn of(self, name: String) -> Error {
        match self {
            Unread::Refused(source) => Error::Read { name, source },
            Unread::Broken(why) => Error::Image { name, why },
        }
    }
}

impl Span {
    /// Offset and number of the bytes to read.
    fn stored(&self) -> (u64, u32) {
        match self.wrapping {
            Wrapping::Plain => (self.offset, self.bytes),
            // A record is followed by its checksum.
            Wrapping::Record { before, bytes } => (self.offset - u64::from(before), bytes.saturating_add(4)),
            Wrapping::Zip { stored, .. } => (self.offset, stored),
        }
    }

    /// Reads the span into `bytes`, and verifies its checksum if it has one. Unpacks at most the size of the span.
    ///
    /// # Errors
    /// [`Unread`].
    pub(in crate::formats) fn read(
        &self,
        files: &Handles,
        bytes: &mut Vec<u8>,
        when: AccessTime,
    ) -> Result<(), Unread> {
        let broken = |why: &str| Unread::Broken(why.into());
        let (start, all) = self.stored();
        if u64::from(all) > LARGEST_FILE + 4 || u64::from(self.bytes) > LARGEST_FILE {
            return Err(broken("it is larger than 256 MiB"));
        }
        bytes.clear();
        bytes.resize(all as usize, 0);
        files.read_due(self.file, bytes, start, when).map_err(Unread::Refused)?;
        match self.wrapping {
            Wrapping::Plain => Ok(()),
            Wrapping::Record { before, bytes: length } => {
                let (record, stored) = bytes.split_at(length as usize);
                if masked(record).to_le_bytes() != *stored {
                    return Err(broken("its checksum is wrong"));
                }
                let (from, to) = (before as usize, before as usize + self.bytes as usize);
                bytes.copy_within(from..to, 0);
                bytes.truncate(self.bytes as usize);
                Ok(())
            }
            Wrapping::Zip { is_deflated, crc, .. } => {
                if is_deflated {
                    *bytes = inflated(bytes, self.bytes as usize)
                        .ok_or_else(|| broken("it is damaged: its unpacked size differs from the zip directory"))?;
                }
                let mut sum = Crc::new();
                sum.update(bytes);
                match sum.sum() == crc && bytes.len() == self.bytes as usize {
                    true => Ok(()),
                    false => Err(broken("its checksum is wrong")),
                }
            }
        }
    }
}

/// Inflates bytes; `None` if the result does not have the expected length.
fn inflated(deflated: &[u8], length: usize) -> Option<Vec<u8>> {
    // A little more, so that the end of the stream is reached and a longer one is noticed.
    let mut unpacked = Vec::with_capacity(length + 16);
    let ended = Decompress::new(false).decompress_vec(deflated, &mut unpacked, FlushDecompress::Finish).ok()?;
    (ended == Status::StreamEnd && unpacked.len() == length).then_some(unpacked)
}

/// The names of the samples in messages.
#[derive(Debug)]
pub(crate) enum Names {
    /// A name for each sample.
    Each { text: String, ends: Vec<u64> },
    /// `<file>, <word> <number>`: the number of each sample in its file, from 1.
    Numbered { word: &'static str, numbers: Vec<u64> },
}

impl Names {
    /// Stores a name for each sample.
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
                let names =
                    keep.iter().enumerate().filter(|(_, keep)| **keep).map(|(sample, _)| part(text, ends, sample));
                *self = Names::each(names.collect::<Vec<_>>().into_iter());
            }
        }
    }
}

fn part<'a>(text: &'a str, ends: &[u64], sample: usize) -> &'a str {
    let start = if sample == 0 { 0 } else { ends[sample - 1] };
    &text[start as usize..ends[sample] as usize]
}

impl Spans {
    /// The name of an image in messages.
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

    /// Reads one sample into `bytes`; its checksum is checked if it has one.
    pub fn read(&self, sample: usize, bytes: &mut Vec<u8>, when: AccessTime) -> Result<(), Error> {
        self.spans[sample].read(&self.files, bytes, when).map_err(|unread| unread.of(self.name(sample)))
    }

    /// File, offset and number of the bytes that [`Spans::read`] reads.
    pub fn place(&self, sample: usize) -> (u32, u64, u32) {
        let (offset, bytes) = self.spans[sample].stored();
        (self.spans[sample].file, offset, bytes)
    }

    /// The metadata of one sample, as one JSON object: its JSON, and its text under `text`. Invalid parts are skipped.
    pub fn note(&self, sample: usize) -> Result<Vec<u8>, Error> {
        let Some(Beside { json, text }) = self.beside.get(sample).copied() else {
            return Ok(Vec::new());
        };
        let read = |span: Span| {
            let mut bytes = Vec::new();
            let read = span.read(&self.files, &mut bytes, AccessTime::SOME_TIME);
            read.map(|()| bytes).map_err(|unread| unread.of(self.name(sample)))
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

/// The masked CRC-32C of TFRecord: rotated and offset, so that a checksum may itself be checksummed.
pub(in crate::formats) fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes).rotate_right(15).wrapping_add(0xA282_EAD8)
}
