//! A sheet of images: some classes, one a row, to be looked at.

use std::path::Path;

use image::codecs::png::PngEncoder;
use image::{ExtendedColorType, ImageEncoder};

use crate::Error;
use crate::decode::rgb::{Rgb, decode_once};
use crate::files::replace::replace;
use crate::formats::{Content, Index};
use crate::transform::resize::resize;

/// Pixels of an image, and of the gap between two.
const SIDE: usize = 96;
const GAP: usize = 4;
const COLUMNS: usize = 10;
const MOST_ROWS: usize = 12;
/// The grey behind the images.
const GROUND: u8 = 40;

/// Writes the sheet, and returns the class of each row. The cell of an unreadable image stays empty.
pub(super) fn write(file: &Path, index: &Index) -> Result<Vec<String>, Error> {
    let classes = index.classes.len().max(1);
    let rows = classes.min(MOST_ROWS);
    let chosen: Vec<usize> = (0..rows).map(|row| row * classes / rows).collect();
    let [width, height] = [COLUMNS, rows].map(|count| count * (SIDE + GAP) + GAP);
    let mut pixels = vec![GROUND; 3 * width * height];
    for (row, class) in chosen.iter().enumerate() {
        let of_class: Vec<usize> = (0..index.labels.len()).filter(|at| index.labels[*at] as usize == *class).collect();
        let shown = of_class.len().min(COLUMNS);
        for column in 0..shown {
            let sample = of_class[column * of_class.len() / shown];
            let Some(small) = thumbnail(&index.content, sample) else { continue };
            let (left, top) = (GAP + column * (SIDE + GAP), GAP + row * (SIDE + GAP));
            for y in 0..SIDE {
                for x in 0..SIDE {
                    for channel in 0..3 {
                        let to = 3 * ((top + y) * width + left + x) + channel;
                        pixels[to] = small[channel * SIDE * SIDE + y * SIDE + x];
                    }
                }
            }
        }
    }
    let mut png = Vec::new();
    PngEncoder::new(&mut png)
        .write_image(&pixels, width as u32, height as u32, ExtendedColorType::Rgb8)
        .map_err(|error| Error::Internal(error.to_string()))?;
    let refused = |source| Error::Write { name: file.display().to_string(), source };
    let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    replace(folder, &name, &png).map_err(refused)?;
    Ok(chosen.into_iter().filter_map(|class| index.classes.get(class).cloned()).collect())
}

/// The middle square of an image, three planes of `SIDE` × `SIDE`.
fn thumbnail(content: &Content, sample: usize) -> Option<Vec<u8>> {
    let image = match content {
        Content::Encoded(encoded) => {
            let mut bytes = Vec::new();
            encoded.read(sample, &mut bytes).ok()?;
            decode_once(&bytes).ok()?
        }
        Content::Decoded(decoded) => {
            let (size, channels) = (decoded.height * decoded.width, decoded.channels);
            let planes = &decoded.pixels[sample * channels * size..][..channels * size];
            let value = |at: usize, channel: usize| {
                let value = u32::from(planes[channel.min(channels - 1) * size + at]);
                (value * 255 / u32::from(decoded.full.max(1))) as u8
            };
            let pixels = (0..size).flat_map(|at| [value(at, 0), value(at, 1), value(at, 2)]).collect();
            Rgb { height: decoded.height, width: decoded.width, pixels }
        }
    };
    let side = image.height.min(image.width);
    let (top, left) = ((image.height - side) / 2, (image.width - side) / 2);
    let rows = (top..top + side).flat_map(|y| &image.pixels[3 * (y * image.width + left)..][..3 * side]);
    let square = Rgb { height: side, width: side, pixels: rows.copied().collect() };
    let mut planes = vec![0; 3 * SIDE * SIDE];
    resize(&square, SIDE, SIDE, &mut planes);
    Some(planes)
}
