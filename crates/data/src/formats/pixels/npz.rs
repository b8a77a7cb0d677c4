//! NumPy archives of images and labels, as written by Keras (`x_train`, `y_train`, …), MedMNIST (`train_images`,
//! `train_labels`, …) and `numpy.savez(file, images=…, labels=…)`. They are read completely.
//!
//! An array's name says whether it holds images or labels, and of which part. Pixels are bytes; images are N×H×W,
//! N×H×W×C or N×C×H×W with one or three channels.

use std::path::Path;

use super::npy::Array;
use crate::Error;
use crate::error::layout;
use crate::files::handles::Opened;
use crate::formats::archives::zip::{self, Member};
use crate::formats::class_names::{Named, numbered};
use crate::formats::index::{Content, Decoded, Home, Index, Reading};
use crate::formats::labels::{home, homes_of};

/// All arrays together unpack to no more.
const MOST: u64 = 4 << 30;
const IMAGES: [&str; 8] = ["x", "image", "images", "img", "imgs", "data", "inputs", "pixels"];
const LABELS: [&str; 8] = ["y", "label", "labels", "target", "targets", "class", "classes", "fine"];
const SAVE: &str = "save it in Python with `numpy.savez_compressed(\"data.npz\", x_train=images, y_train=labels)`, images \
                    as bytes (`uint8`) of N×H×W or N×H×W×3, labels as N integers";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    Images,
    Labels,
}

/// Pixels of images, one behind another, channel by channel.
struct Images {
    channels: usize,
    height: usize,
    width: usize,
    pixels: Vec<u8>,
}

/// All images of an archive.
///
/// # Errors
/// [`Error::Layout`] with what is wrong, and [`Error::Read`].
pub(in crate::formats) fn index(path: &Path, reading: &Reading) -> Result<Index, Error> {
    let found = arrays(path)?;
    let mut parts: Vec<Home> = found.iter().map(|(_, home, _)| *home).collect();
    parts.sort_by_key(|part| part.map(|part| part as u8));
    parts.dedup();
    let (mut named, mut homes, mut all) = (Vec::new(), Vec::new(), None::<Images>);
    for part in parts {
        let of = |role: Role| {
            let mut fitting = found.iter().filter(|(its, home, _)| (*its, *home) == (role, part));
            match (fitting.next(), fitting.next()) {
                (Some((_, _, array)), None) => Ok(array),
                (first, _) => Err(unpaired(path, role, part, first.is_some())),
            }
        };
        let (images, labels) = (of(Role::Images)?, of(Role::Labels)?);
        let more = read_images(images).map_err(|why| layout(path, why, SAVE))?;
        let classes = read_labels(labels).map_err(|why| layout(path, why, SAVE))?;
        let count = more.pixels.len().checked_div(more.channels * more.height * more.width).unwrap_or(0);
        if classes.len() != count {
            let why =
                format!("its array `{}` holds {count} images, and `{}` {} labels", images.0, labels.0, classes.len());
            return Err(layout(path, why, SAVE));
        }
        named.extend(classes);
        homes.extend(std::iter::repeat_n(part, count));
        match &mut all {
            None => all = Some(more),
            Some(all) if (all.channels, all.height, all.width) == (more.channels, more.height, more.width) => {
                all.pixels.extend_from_slice(&more.pixels);
            }
            Some(_) => return Err(layout(path, "its arrays of images have different sizes", SAVE)),
        }
    }
    let Some(Images { channels, height, width, pixels }) = all.filter(|all| !all.pixels.is_empty()) else {
        return Err(layout(path, "its arrays hold no image", SAVE));
    };
    let (classes, labels) = numbered(named, None);
    let homes = homes_of(path, &homes, &classes, &labels, reading)?;
    let content = Content::Decoded(Decoded { channels, height, width, full: 255, pixels });
    Ok(Index::whole(classes, labels, homes, content))
}

fn unpaired(path: &Path, role: Role, part: Home, is_double: bool) -> Error {
    let what = if role == Role::Images { "images" } else { "labels" };
    let of = part.map(|part| format!(" of `{}`", part.word())).unwrap_or_default();
    let why = match is_double {
        true => format!("two of its arrays hold {what}{of}"),
        false => format!("none of its arrays holds {what}{of}"),
    };
    layout(path, why, SAVE)
}

/// A `.npy` member: its name without the ending, and its bytes.
type Stored = (String, Vec<u8>);

/// The arrays whose names imply images or labels.
fn arrays(path: &Path) -> Result<Vec<(Role, Home, Stored)>, Error> {
    let refused = |source| Error::Read { name: path.display().to_string(), source };
    let file = Opened::open(path).map_err(refused)?;
    let (mut members, mut others) = (Vec::new(), Vec::new());
    let listed = zip::members(&file, 0, |Member { name, piece }| {
        let name = String::from_utf8_lossy(&name).into_owned();
        let name = name.strip_suffix(".npy").unwrap_or(&name).to_owned();
        match role_of(&name) {
            Some((role, home)) => members.push((role, home, name, piece)),
            None => others.push(format!("`{name}`")),
        }
    });
    let damaged = |why: String| {
        layout(path, format!("the archive is damaged: {why}"), "get the file again, or check it with `unzip -t`")
    };
    zip::checked(listed, path, &damaged)?;
    if members.is_empty() {
        let why = format!("none of its arrays is named like images or labels: {}", others.join(", "));
        return Err(layout(path, why, SAVE));
    }
    let mut room = MOST;
    let mut found = Vec::new();
    for (role, home, name, piece) in members {
        let piece = piece.map_err(|why| damaged(format!("`{name}`: {why}")))?;
        let Some(left) = room.checked_sub(u64::from(piece.bytes)).filter(|_| piece.bytes < u32::MAX) else {
            let hint = "write its images as files, in Python with `PIL.Image.fromarray(pixels).save(f\"{label}/{number}.png\")`";
            return Err(layout(path, "its arrays unpack to more than 4 GiB of memory", hint));
        };
        room = left;
        let bytes = zip::whole(&file, &piece).map_err(|why| damaged(format!("`{name}`: {why}")))?;
        found.push((role, home, (name, bytes)));
    }
    Ok(found)
}

/// What an array's name implies: images or labels, and of which part.
fn role_of(name: &str) -> Option<(Role, Home)> {
    // Those that `numpy.savez(file, images, labels)` calls so.
    match name {
        "arr_0" => return Some((Role::Images, None)),
        "arr_1" => return Some((Role::Labels, None)),
        _ => {}
    }
    let lower = name.to_lowercase();
    let words: Vec<&str> = lower.split(|letter: char| !letter.is_ascii_alphanumeric()).collect();
    let has = |known: &[&str]| words.iter().any(|word| known.contains(word));
    let part = words.iter().find_map(|word| home(word));
    match (has(&LABELS), has(&IMAGES)) {
        (true, _) => Some((Role::Labels, part)),
        (false, true) => Some((Role::Images, part)),
        (false, false) => None,
    }
}

fn read_images((name, bytes): &Stored) -> Result<Images, String> {
    let array = Array::of(bytes).map_err(|why| format!("its array `{name}` is not read: {why}"))?;
    if array.kind != "|u1" {
        let kind = array.kind;
        return Err(format!("the pixels in its array `{name}` are of the type `{kind}`, and bytes (`uint8`) are read"));
    }
    let planes = |channels, height, width| Images { channels, height, width, pixels: array.values.to_vec() };
    match array.shape[..] {
        [_, height, width] => Ok(planes(1, height, width)),
        [_, height, width, channels @ (1 | 3)] => {
            let mut images = planes(channels, height, width);
            let size = height * width * channels;
            if channels > 1 && size > 0 {
                for image in images.pixels.chunks_exact_mut(size) {
                    let mixed = image.to_vec();
                    for (channel, plane) in image.chunks_exact_mut(height * width).enumerate() {
                        plane
                            .iter_mut()
                            .zip(mixed[channel..].iter().step_by(channels))
                            .for_each(|(to, from)| *to = *from);
                    }
                }
            }
            Ok(images)
        }
        [_, channels @ (1 | 3), height, width] => Ok(planes(channels, height, width)),
        _ => Err(format!("its array `{name}` has the shape {:?}, which is not that of images", array.shape)),
    }
}

fn read_labels((name, bytes): &Stored) -> Result<Vec<Named>, String> {
    let array = Array::of(bytes).map_err(|why| format!("its array `{name}` is not read: {why}"))?;
    match array.shape[..] {
        [_] | [_, 1] => array.classes().map_err(|why| format!("its array `{name}` is not read: {why}")),
        [_, classes] => Err(format!(
            "its array `{name}` has {classes} values for each image; `{name}.argmax(axis=1)` makes classes of scores"
        )),
        _ => Err(format!("its array `{name}` has the shape {:?}, which is not that of labels", array.shape)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Part;

    #[test]
    fn names_imply_the_contents_of_an_array() {
        let check = |name: &str, expected: Option<(Role, Home)>| assert_eq!(role_of(name), expected, "{name}");
        check("x_train", Some((Role::Images, Some(Part::Train))));
        check("y_test", Some((Role::Labels, Some(Part::Test))));
        check("train_images", Some((Role::Images, Some(Part::Train))));
        check("val_labels", Some((Role::Labels, Some(Part::Validation))));
        check("X", Some((Role::Images, None)));
        check("arr_1", Some((Role::Labels, None)));
        check("data", Some((Role::Images, None)));
        check("weights", None);
    }
}
