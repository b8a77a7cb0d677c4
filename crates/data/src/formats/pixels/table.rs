//! A CSV of images: a line holds the pixels of a square grey image and its label, all integers; plain or compressed with
//! gzip. 64 pixels go from 0 to 16, with the label last (the digits of scikit-learn); more go from 0 to 255 (MNIST and
//! its like). There, a header names the column of the label, or it is the first or last number, whichever varies as labels do.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;

use crate::Error;
use crate::error::layout;
use crate::files::plain_file;
use crate::formats::index::{ByFolders, Content, Decoded, Index, Skipped};

/// Pixels of the smallest images, and the largest value of theirs.
const SMALLEST: usize = 64;
const SIXTEEN: u8 = 16;
/// The longest side of an image.
const LONGEST_SIDE: usize = 256;
/// Longer lines, and more pixels, are no such table; a few compressed bytes may claim to hold very many.
const LONGEST_LINE: u64 = 1 << 20;
const MOST_PIXELS: usize = 1 << 30;
/// Names of the column of labels.
const LABELS: [&str; 5] = ["label", "class", "target", "digit", "y"];
const FORM: &str = "a line is the pixels of a square grey image and its label, such as 785 numbers for 28×28; see \
                    `examples/digits.csv.gz`, and docs/data.md for other forms";

/// All lines of the file.
pub(in crate::formats) fn index(path: &Path, by_folders: ByFolders, skip: bool) -> Result<Index, Error> {
    if by_folders == ByFolders::Yes {
        return Err(layout(path, "a CSV has no folders", "split at random: leave out `split: folders` in the job"));
    }
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let refused = |source| Error::Read { name: path.display().to_string(), source };
    let plain = BufReader::new(plain_file::open(path).map_err(refused)?);
    let mut reader: Box<dyn BufRead> = match file.to_lowercase().ends_with(".gz") {
        true => Box::new(BufReader::new(MultiGzDecoder::new(plain))),
        false => Box::new(plain),
    };
    let mut table = Table::default();
    let mut line = Vec::new();
    for number in 1_usize.. {
        line.clear();
        let read = reader.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line);
        match read.map_err(|error| unreadable(path, number, error))? {
            0 => break,
            _ if line.trim_ascii().is_empty() => continue,
            _ if table.pixels.len() > MOST_PIXELS => {
                return Err(layout(path, format!("it has more than {MOST_PIXELS} pixels"), "give a smaller table"));
            }
            _ => {}
        }
        match table.take(path, &line)? {
            Ok(()) => {}
            Err(why) if skip => table.skipped.push(Skipped { name: format!("{file}, line {number}"), why }),
            Err(why) => return Err(Error::Line { name: path.display().to_string(), line: number, why }),
        }
    }
    table.index(path)
}

/// What a line is made of.
#[derive(Debug, Clone, Copy)]
struct Geometry {
    side: usize,
    full: u8,
    /// Which number is the label, where it is known before all lines are read.
    label: Option<usize>,
}

impl Geometry {
    /// Numbers of a line.
    fn fields(self) -> usize {
        self.side * self.side + 1
    }
}

/// The lines so far.
#[derive(Debug, Default)]
struct Table {
    geometry: Option<Geometry>,
    /// Names of the columns, where the first line holds some.
    head: Option<Vec<String>>,
    /// The first and the last number of each line, or the label alone where its place is known.
    ends: Vec<[u32; 2]>,
    /// The pixels of each line; where the place of the label is not known, without both ends.
    pixels: Vec<u8>,
    skipped: Vec<Skipped>,
}

impl Table {
    /// Takes in a line; within, why it is no image, which may be left out.
    fn take(&mut self, path: &Path, line: &[u8]) -> Result<Result<(), String>, Error> {
        let Ok(text) = std::str::from_utf8(line) else { return Ok(Err("it is not text".to_owned())) };
        let fields: Vec<&str> = text.trim().trim_start_matches('\u{feff}').split(',').map(unquoted).collect();
        let is_head = |field: &&str| !field.is_empty() && field.parse::<f64>().is_err();
        if self.geometry.is_none() && self.head.is_none() && fields.first().is_some_and(is_head) {
            self.head = Some(fields.iter().map(|name| name.to_lowercase()).collect());
            return Ok(Ok(()));
        }
        let geometry = match self.geometry {
            Some(geometry) => geometry,
            None => *self.geometry.insert(geometry(path, &fields, self.head.as_deref())?),
        };
        Ok(self.parse(geometry, &fields))
    }

    fn parse(&mut self, geometry: Geometry, fields: &[&str]) -> Result<(), String> {
        let wanted = geometry.fields();
        if fields.len() > wanted {
            return Err(format!("it has more than {wanted} fields"));
        }
        if fields.len() < wanted {
            return Err(format!("it has {} of {wanted} fields", fields.len()));
        }
        let before = self.pixels.len();
        let mut ends = [0; 2];
        for (at, field) in fields.iter().enumerate() {
            let is_label = geometry.label.map_or(at == 0 || at + 1 == wanted, |label| at == label);
            let taken = match is_label {
                true => number(field, u32::MAX).map(|value| ends[usize::from(at > 0)] = value),
                false => number(field, u32::from(geometry.full)).map(|value| self.pixels.push(value as u8)),
            };
            if taken.is_none() {
                self.pixels.truncate(before);
                let field = start_of(field);
                return Err(match is_label && geometry.label.is_some() {
                    true => format!("the label is `{field}`, not an integer"),
                    false => {
                        format!("pixel {} is `{field}`, not an integer from 0 to {}", at + 1, geometry.full)
                    }
                });
            }
        }
        if let Some(label) = geometry.label {
            ends = [ends[usize::from(label > 0)]; 2];
        }
        self.ends.push(ends);
        Ok(())
    }

    /// Everything that was read.
    fn index(self, path: &Path) -> Result<Index, Error> {
        let Some(geometry) = self.geometry.filter(|_| !self.ends.is_empty()) else {
            return Err(layout(path, "it has no line of pixels and a label", FORM));
        };
        let Geometry { side, full, label } = geometry;
        let (numbers, pixels) = match label {
            Some(_) => (self.ends.iter().map(|ends| ends[0]).collect(), self.pixels),
            None => divided(path, &self.ends, &self.pixels, side * side)?,
        };
        let mut classes: BTreeMap<u32, u32> = numbers.iter().map(|&number: &u32| (number, 0)).collect();
        for (label, place) in classes.values_mut().zip(0..) {
            *label = place;
        }
        let labels = numbers.iter().map(|number| classes[number]).collect();
        let classes = classes.keys().map(u32::to_string).collect();
        let content = Content::Decoded(Decoded { channels: 1, height: side, width: side, full, pixels });
        Ok(Index { skipped: self.skipped, ..Index::whole(classes, labels, None, content) })
    }
}

/// The form of the lines, from the first one.
fn geometry(path: &Path, fields: &[&str], head: Option<&[String]>) -> Result<Geometry, Error> {
    let pixels = fields.len() - 1;
    let side = pixels.isqrt();
    let numbers = fields.iter().filter(|field| field.parse::<f64>().is_ok()).count();
    if pixels == SMALLEST || pixels < 3 && numbers == fields.len() {
        // What is too short for any image is a damaged line of the smallest, or no table at all.
        return Ok(Geometry { side: 8, full: SIXTEEN, label: Some(named(head).unwrap_or(SMALLEST)) });
    }
    if pixels.is_multiple_of(3) && (pixels / 3).isqrt().pow(2) * 3 == pixels && pixels > SMALLEST {
        let side = (pixels / 3).isqrt();
        let why = format!(
            "its lines have {pixels} numbers and a label, as of {side}×{side} images with colours, whose order a CSV does not say"
        );
        let hint = "write them as `numpy.savez_compressed(\"data.npz\", x_train=images, y_train=labels)`";
        return Err(layout(path, why, hint));
    }
    if side * side != pixels || !(8..=LONGEST_SIDE).contains(&side) {
        let why =
            format!("its lines have {} fields, which are not the pixels of a square image and a label", fields.len());
        let hint = match pixels < SMALLEST && (head.is_some() || numbers < fields.len()) {
            true if fields.len() == 1 && fields[0].contains([';', '\t']) => "separate the fields by commas",
            true => {
                "it seems to be a table of features or texts: the built-in trainer reads images and texts; train on \
                     other tables with a program of your own (`run:`)"
            }
            false => FORM,
        };
        return Err(layout(path, why, hint));
    }
    Ok(Geometry { side, full: 255, label: named(head) })
}

/// The column that a header says holds the label.
fn named(head: Option<&[String]>) -> Option<usize> {
    LABELS.iter().find_map(|label| head?.iter().position(|name| name == label))
}

/// Labels and pixels where no header says which end of a line is the label: the end whose values are few and dense.
fn divided(path: &Path, ends: &[[u32; 2]], pixels: &[u8], length: usize) -> Result<(Vec<u32>, Vec<u8>), Error> {
    let values = |end: usize| ends.iter().map(|ends| ends[end]).collect::<BTreeSet<u32>>();
    let (first, last) = (values(0), values(1));
    // A corner of an image is often the same in all; labels have no gaps, and there are more images than classes.
    let is_labels = |values: &BTreeSet<u32>| {
        let dense =
            values.last().zip(values.first()).is_some_and(|(last, first)| (last - first) as usize + 1 == values.len());
        values.len() > 1 && dense && values.len() * 2 <= ends.len()
    };
    let is_pixels = |values: &BTreeSet<u32>| values.last().is_some_and(|most| *most <= 255);
    let label = match (is_labels(&first), is_labels(&last)) {
        (true, false) if is_pixels(&last) => 0,
        (false, true) if is_pixels(&first) => 1,
        // One class only, which is said where classes are counted.
        (false, false) if first.len() == 1 && is_pixels(&last) => 0,
        _ => {
            let why = "the label may be the first or the last number of a line";
            return Err(layout(path, why, "add a header, in which the label's column is called `label`"));
        }
    };
    let mut whole = Vec::with_capacity(ends.len() * length);
    for (ends, inner) in ends.iter().zip(pixels.chunks_exact(length - 1)) {
        // The end that is no label is the first or the last pixel.
        match label {
            0 => whole.extend(inner.iter().copied().chain([ends[1] as u8])),
            _ => whole.extend([ends[0] as u8].into_iter().chain(inner.iter().copied())),
        }
    }
    Ok((ends.iter().map(|ends| ends[label]).collect(), whole))
}

/// An integer of at most `most`, also as `3.0`.
fn number(field: &str, most: u32) -> Option<u32> {
    let whole = field.trim_end_matches('0').strip_suffix('.').filter(|_| field.contains('.')).unwrap_or(field);
    whole.parse().ok().filter(|value| *value <= most)
}

fn unquoted(field: &str) -> &str {
    field.trim().trim_matches('"')
}

/// The start of a field, short enough for a message.
fn start_of(field: &str) -> String {
    field.chars().take(20).collect()
}

/// A line that the disk or the compression does not give.
fn unreadable(path: &Path, number: usize, error: io::Error) -> Error {
    Error::Damaged { path: path.to_owned(), why: format!("line {number} cannot be read: {error}") }
}
