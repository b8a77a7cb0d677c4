//! TFRecord files of `tf.train.Example`, as TensorFlow's scripts write ImageNet and the like.
//!
//! A record is a length, its checksum, the bytes, and theirs (tensorflow/core/lib/io/record_writer.h). When the data is
//! opened only the lengths and the few bytes that are not the image are read; a record's own checksum is checked when
//! its image is read.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::example::{self, Found};
use crate::Error;
use crate::error::layout;
use crate::files::handles::{Handles, Opened, Window};
use crate::formats::class_names::{Named, numbered};
use crate::formats::encoded::Encoded;
use crate::formats::encoded::spans::{Names, Span, Spans, Wrapping, masked};
use crate::formats::index::{Content, Home, Index, Reading, Skipped};
use crate::formats::labels::homes_of;

/// Before a record: its length and the checksum of that.
const HEAD: u64 = 12;
const TAIL: u64 = 4;

/// Whether a file begins like a TFRecord, with a length whose checksum matches.
pub(in crate::formats) fn is_one(path: &Path) -> bool {
    let Ok(file) = Opened::open(path) else { return false };
    let Ok(mut window) = Window::new(&file) else { return false };
    matches!(window.array::<12>(0), Ok(Some(head)) if length(&head).is_some())
}

fn length(head: &[u8; 12]) -> Option<u64> {
    let (length, stored) = head.split_at(8);
    let sound = masked(length).to_le_bytes() == *stored;
    sound.then(|| length.try_into().map(u64::from_le_bytes).ok()).flatten()
}

/// The samples of some files, in the order of files and records; `homes` are the parts that the file names imply.
pub(in crate::formats) fn index(
    root: &Path,
    files: Vec<PathBuf>,
    homes: &[Home],
    reading: &Reading,
) -> Result<Index, Error> {
    let mut lists = Lists::default();
    for (path, number) in files.iter().zip(0_u32..) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let refused = |source| Error::Read { name: path.display().to_string(), source };
        let file = Opened::open(path).map_err(refused)?;
        let mut window = Window::new(&file).map_err(refused)?;
        let (mut at, mut record) = (0, 0);
        while at < window.length() {
            record += 1;
            let head = window.array::<12>(at).map_err(refused)?;
            let end = head.as_ref().and_then(length).and_then(|length| {
                let end = at.checked_add(HEAD)?.checked_add(length)?;
                (end.checked_add(TAIL)? <= window.length()).then_some(end)
            });
            let Some(end) = end else {
                // Where the next record begins is not known any more.
                let why = match head {
                    None => "it ends inside a record".to_owned(),
                    Some(head) if length(&head).is_none() => {
                        format!("the checksum of the length of record {record} is wrong")
                    }
                    Some(_) => format!("it ends inside record {record}"),
                };
                if !reading.skip {
                    return Err(layout(path, format!("the TFRecord is damaged: {why}"), "get the file again"));
                }
                lists.skipped.push(Skipped { name: name.clone(), why: format!("the rest is damaged: {why}") });
                break;
            };
            let start = at + HEAD;
            let found = example::find(&mut window, start, end).map_err(refused)?;
            at = end + TAIL;
            match lists.add(found, number, record, start, end) {
                Ok(()) => {}
                Err(why) if reading.skip => {
                    lists.skipped.push(Skipped { name: format!("{name}, record {record}"), why });
                }
                Err(why) => return Err(Error::Image { name: format!("{name}, record {record}"), why }),
            }
        }
    }
    lists.finish(root, files, homes, reading)
}

#[derive(Default)]
struct Lists {
    spans: Vec<Span>,
    numbers: Vec<u64>,
    named: Vec<Named>,
    /// The data's name for each class number.
    words: BTreeMap<i64, String>,
    skipped: Vec<Skipped>,
}

impl Lists {
    fn add(
        &mut self,
        found: Result<Found, String>,
        file: u32,
        number: u64,
        start: u64,
        end: u64,
    ) -> Result<(), String> {
        let Found { image, label, word } = found?;
        let (offset, bytes) = image.ok_or("it has no feature `image/encoded`")?;
        let named = label.map(Named::Number).or_else(|| word.as_deref().and_then(Named::parse));
        let named = named.ok_or("it has no feature `image/class/label`")?;
        let narrow = |number: u64| u32::try_from(number).map_err(|_| "it is larger than 4 GiB".to_owned());
        let wrapping = Wrapping::Record { before: narrow(offset - start)?, bytes: narrow(end - start)? };
        if let (Some(label), Some(word)) = (label, word) {
            self.words.entry(label).or_insert(word);
        }
        self.spans.push(Span { file, bytes: narrow(bytes)?, offset, wrapping });
        self.numbers.push(number);
        self.named.push(named);
        Ok(())
    }

    fn finish(self, root: &Path, files: Vec<PathBuf>, homes: &[Home], reading: &Reading) -> Result<Index, Error> {
        let Lists { spans, numbers, named, words, skipped } = self;
        if spans.is_empty() {
            return Err(layout(root, "its TFRecords hold no image with a class", "see `gradus data inspect`"));
        }
        let (mut classes, labels) = numbered(named, None);
        let by_number: Option<Vec<String>> =
            classes.iter().map(|class| words.get(&class.parse().ok()?).cloned()).collect();
        // If two numbers have one name, the numbers are the names.
        if let Some(names) =
            by_number.filter(|names| names.iter().collect::<std::collections::BTreeSet<_>>().len() == names.len())
        {
            classes = names;
        }
        let places: Vec<Home> = spans.iter().map(|span| homes.get(span.file as usize).copied().flatten()).collect();
        let homes = homes_of(root, &places, &classes, &labels, reading)?;
        let names = Names::Numbered { word: "record", numbers };
        let content =
            Content::Encoded(Encoded::Spans(Spans { files: Handles::new(files), spans, names, beside: Vec::new() }));
        Ok(Index { skipped, ..Index::whole(classes, labels, homes, content) })
    }
}
