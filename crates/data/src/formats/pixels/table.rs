//! A CSV of 8×8 images: 64 pixels from 0 to 16, then the label, all integers; plain or compressed with gzip.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::Error;
use crate::error::layout;
use crate::files::plain_file;
use crate::formats::index::{ByFolders, Content, Decoded, Index, Skipped};

const PIXELS: usize = 64;
const FULL: u8 = 16;
/// Longer lines, and more of them, are no such table; a few compressed bytes may claim to hold very many.
const LONGEST_LINE: u64 = 4096;
const MOST_LINES: usize = 10_000_000;

/// All lines of the file.
pub(in crate::formats) fn index(path: &Path, by_folders: ByFolders, skip: bool) -> Result<Index, Error> {
    if by_folders == ByFolders::Yes {
        return Err(layout(path, "a CSV has no folders", "leave out `split: folders` to have the split drawn"));
    }
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let refused = |source| Error::Read { name: path.display().to_string(), source };
    let plain = BufReader::new(plain_file::open(path).map_err(refused)?);
    let mut reader: Box<dyn BufRead> = match file.to_lowercase().ends_with(".gz") {
        true => Box::new(BufReader::new(MultiGzDecoder::new(plain))),
        false => Box::new(plain),
    };
    let (mut numbers, mut pixels, mut skipped) = (Vec::new(), Vec::new(), Vec::new());
    let mut line = Vec::new();
    for number in 1_usize.. {
        line.clear();
        let read = reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line);
        match read.map_err(|error| unreadable(path, number, error))? {
            0 => break,
            _ if line.trim_ascii().is_empty() => continue,
            _ if number > MOST_LINES => {
                return Err(layout(path, format!("it has more than {MOST_LINES} lines"), "give a smaller table"));
            }
            _ => {}
        }
        match parse(&line) {
            Ok((image, label)) => {
                pixels.extend_from_slice(&image);
                numbers.push(label);
            }
            Err(why) if skip => skipped.push(Skipped { name: format!("{file}, line {number}"), why }),
            Err(why) => return Err(Error::Image { name: format!("{file}, line {number}"), why }),
        }
    }
    if numbers.is_empty() {
        return Err(layout(
            path,
            "it has no line of 64 pixels and a label",
            "see `examples/digits.csv.gz` for the form",
        ));
    }
    let mut classes: BTreeMap<u32, u32> = numbers.iter().map(|&number| (number, 0)).collect();
    for (label, index) in classes.values_mut().zip(0..) {
        *label = index;
    }
    let labels = numbers.iter().map(|number| classes[number]).collect();
    let classes = classes.keys().map(u32::to_string).collect();
    let content = Content::Decoded(Decoded { channels: 1, height: 8, width: 8, full: FULL, pixels });
    Ok(Index { classes, labels, homes: None, content, skipped, replaced: Vec::new(), unread: Vec::new() })
}

fn parse(line: &[u8]) -> Result<([u8; PIXELS], u32), String> {
    let text = std::str::from_utf8(line).map_err(|_| "it is not text".to_owned())?;
    let mut image = [0; PIXELS];
    let mut fields = text.trim().split(',').map(str::trim);
    for (pixel, number) in image.iter_mut().zip(1..) {
        let field = fields.next().ok_or_else(|| format!("it has {} of {} fields", number - 1, PIXELS + 1))?;
        *pixel = match field.parse() {
            Ok(value) if value <= FULL => value,
            _ => return Err(format!("pixel {number} is `{}`, not an integer from 0 to {FULL}", start_of(field))),
        };
    }
    let label = fields.next().ok_or_else(|| format!("it has {PIXELS} of {} fields", PIXELS + 1))?;
    let number = label.parse().map_err(|_| format!("the label is `{}`, not an integer", start_of(label)))?;
    match fields.next() {
        None => Ok((image, number)),
        Some(_) => Err(format!("it has more than {} fields", PIXELS + 1)),
    }
}

/// The start of a field, short enough for a message.
fn start_of(field: &str) -> String {
    field.chars().take(20).collect()
}

fn unreadable(path: &Path, number: usize, error: io::Error) -> Error {
    layout(path, format!("line {number} cannot be read: {error}"), "get the file again, or check it with `gzip -t`")
}
