//! Scans a `tf.train.Example` in place: reads the few bytes that are needed and skips the image.
//!
//! The message is `Example { Features features = 1 }`, `Features { map<string, Feature> feature = 1 }`, `Feature {
//! oneof { BytesList = 1, FloatList = 2, Int64List = 3 } }` and lists `{ repeated … value = 1 }`
//! (tensorflow/core/example/feature.proto), in the encoding of protocol buffers: a key and a length before each field.
//! All lengths are checked against the enclosing message, and there is no recursion.
//!
//! It is written by hand because a generated message (`prost`) is decoded from all of its bytes, nearly all of which
//! are the image: of 4,000 records of 110 kB, listing reads 60 of 440 MB, and the rest when the images are needed.

use std::io;
use std::ops::Range;

use crate::files::handles::Window;

/// The fields found in a sample.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    /// Offset and bytes of the encoded image.
    pub image: Option<(u64, u64)>,
    pub label: Option<i64>,
    /// The name of the class.
    pub word: Option<String>,
}

const IMAGES: [&str; 5] = ["image/encoded", "image_raw", "image", "encoded", "jpg"];
const LABELS: [&str; 5] = ["image/class/label", "label", "image/label", "class", "cls"];
const WORDS: [&str; 3] = ["image/class/text", "image/class/synset", "class_name"];

/// Longer names of features or classes are not looked at.
const LONGEST_NAME: u64 = 256;
/// More fields in one message are no example; they would take long to go through.
const MOST_FIELDS: u32 = 100_000;

/// Scans the bytes from `start` to `end` of a file. The inner error describes the damage.
pub(super) fn find(window: &mut Window, start: u64, end: u64) -> io::Result<Result<Found, String>> {
    let mut reader = Reader { window, fields: 0, refused: None };
    let found = reader.example(start..end);
    match reader.refused {
        Some(error) => Err(error),
        None => Ok(found.map_err(|Broken| "it is no `tf.train.Example`".to_owned())),
    }
}

/// The bytes are not the message that they should be.
struct Broken;

enum Value {
    Number(u64),
    Bytes(Range<u64>),
    /// Four or eight bytes that have no meaning here.
    Fixed,
}

struct Reader<'a, 'b> {
    window: &'a mut Window<'b>,
    fields: u32,
    refused: Option<io::Error>,
}

impl Reader<'_, '_> {
    fn example(&mut self, message: Range<u64>) -> Result<Found, Broken> {
        let mut found = Found::default();
        // The rank of a feature's name, where an example has several that would do.
        let (mut image_rank, mut label_rank, mut word_rank) = (usize::MAX, usize::MAX, usize::MAX);
        let mut at = message.start;
        while at < message.end {
            let (1, Value::Bytes(features)) = self.field(&mut at, message.end)? else { continue };
            let mut at = features.start;
            while at < features.end {
                let (1, Value::Bytes(entry)) = self.field(&mut at, features.end)? else { continue };
                let Some((name, feature)) = self.entry(entry)? else { continue };
                let rank = |names: &[&str]| names.iter().position(|known| *known == name);
                if let Some(rank) = rank(&IMAGES).filter(|rank| *rank < image_rank)
                    && let Some(range) = self.bytes(feature.clone())?
                {
                    (found.image, image_rank) = (Some((range.start, range.end - range.start)), rank);
                }
                if let Some(rank) = rank(&LABELS).filter(|rank| *rank < label_rank)
                    && let Some(label) = self.number(feature.clone())?
                {
                    (found.label, label_rank) = (Some(label), rank);
                }
                if let Some(rank) = rank(&WORDS).filter(|rank| *rank < word_rank)
                    && let Some(range) = self.bytes(feature)?
                {
                    (found.word, word_rank) = (self.text(range)?, rank);
                }
            }
        }
        Ok(found)
    }

    /// Name and value of one entry of the map.
    fn entry(&mut self, entry: Range<u64>) -> Result<Option<(String, Range<u64>)>, Broken> {
        let (mut name, mut feature) = (None, None);
        let mut at = entry.start;
        while at < entry.end {
            match self.field(&mut at, entry.end)? {
                (1, Value::Bytes(range)) => name = self.text(range)?,
                (2, Value::Bytes(range)) => feature = Some(range),
                _ => {}
            }
        }
        Ok(name.zip(feature))
    }

    /// The first value of a list of bytes.
    fn bytes(&mut self, feature: Range<u64>) -> Result<Option<Range<u64>>, Broken> {
        self.list(feature, 1)?.map_or(Ok(None), |list| match self.field(&mut list.start.clone(), list.end)? {
            (1, Value::Bytes(range)) => Ok(Some(range)),
            _ => Ok(None),
        })
    }

    /// The first value of a list of integers, packed or not.
    fn number(&mut self, feature: Range<u64>) -> Result<Option<i64>, Broken> {
        self.list(feature, 3)?.map_or(Ok(None), |list| match self.field(&mut list.start.clone(), list.end)? {
            (1, Value::Number(number)) => Ok(Some(number.cast_signed())),
            (1, Value::Bytes(packed)) if !packed.is_empty() => {
                Ok(Some(self.varint(&mut packed.start.clone(), packed.end)?.cast_signed()))
            }
            _ => Ok(None),
        })
    }

    /// The list of one kind in a feature, if it has values.
    fn list(&mut self, feature: Range<u64>, kind: u64) -> Result<Option<Range<u64>>, Broken> {
        let mut at = feature.start;
        while at < feature.end {
            if let (number, Value::Bytes(list)) = self.field(&mut at, feature.end)?
                && number == kind
                && !list.is_empty()
            {
                return Ok(Some(list));
            }
        }
        Ok(None)
    }

    fn text(&mut self, range: Range<u64>) -> Result<Option<String>, Broken> {
        if range.end - range.start > LONGEST_NAME {
            return Ok(None);
        }
        let bytes = self.read(range.start, range.end - range.start)?;
        Ok(String::from_utf8(bytes.to_vec()).ok())
    }

    /// The field at `at`, which is moved behind it; it must end by `end`.
    fn field(&mut self, at: &mut u64, end: u64) -> Result<(u64, Value), Broken> {
        self.fields += 1;
        if self.fields > MOST_FIELDS {
            return Err(Broken);
        }
        let key = self.varint(at, end)?;
        let value = match key & 7 {
            0 => Value::Number(self.varint(at, end)?),
            2 => {
                let length = self.varint(at, end)?;
                let start = *at;
                *at = start.checked_add(length).filter(|to| *to <= end).ok_or(Broken)?;
                Value::Bytes(start..*at)
            }
            wire @ (1 | 5) => {
                *at += if wire == 1 { 8 } else { 4 };
                if *at > end {
                    return Err(Broken);
                }
                Value::Fixed
            }
            _ => return Err(Broken),
        };
        Ok((key >> 3, value))
    }

    fn varint(&mut self, at: &mut u64, end: u64) -> Result<u64, Broken> {
        let bytes = self.read(*at, (end - *at).min(10))?;
        let mut number = 0_u64;
        for (index, byte) in bytes.iter().enumerate() {
            number |= u64::from(byte & 0x7F).checked_shl(7 * index as u32).unwrap_or(0);
            if byte & 0x80 == 0 {
                *at += index as u64 + 1;
                return Ok(number);
            }
        }
        Err(Broken)
    }

    fn read(&mut self, at: u64, bytes: u64) -> Result<&[u8], Broken> {
        match self.window.up_to(at, bytes) {
            Ok(read) => Ok(read),
            Err(error) => {
                self.refused = Some(error);
                Err(Broken)
            }
        }
    }
}
