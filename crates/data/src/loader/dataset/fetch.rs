//! Reads one encoded image of a data set, decodes it and resizes it to the common size.

use domain::train::MemoryFormat;

use crate::Error;
use crate::decode::rgb::{Rgb, decode, guarded};
use crate::files::remote::AccessTime;
use crate::formats::Encoded;
use crate::sampling::random::Draws;
use crate::transform::prepare::{Output, Tools, prepare};
use crate::transform::recipe::ImageTransform;
use crate::transform::resize::resize;
use crate::transform::slots::Values;

/// Height and width that every image of a data set has.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Geometry {
    pub height: usize,
    pub width: usize,
    /// Whether images of another size are resized; otherwise they are an error.
    pub resize: bool,
    /// The deterministic crop of an image, if images are cropped.
    pub recipe: Option<ImageTransform>,
}

/// Scratch buffers with which one thread reads and decodes images.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// Memory for a file that is not in memory already.
    pub file: Vec<u8>,
    /// When the file that is read next is needed.
    pub when: AccessTime,
    pub tools: Tools,
}

/// Reads and decodes one image into `planes`: 3 × height × width bytes, channel by channel.
pub(crate) fn fetch(
    encoded: &Encoded,
    sample: usize,
    geometry: Geometry,
    reading: &mut Reading,
    planes: &mut [u8],
) -> Result<(), Error> {
    let Reading { file, when, tools } = reading;
    let file = encoded.file(sample, file, *when)?;
    if let Some(recipe) = geometry.recipe {
        let output =
            Output { values: Values::U8(planes), layout: MemoryFormat::Contiguous, scaling: &[], size: recipe.size };
        return guarded(|| prepare(file, tools, &recipe, Draws::new(0), output))
            .map_err(|why| Error::Image { name: encoded.name(sample), why });
    }
    let image = decode(file, &mut tools.decoder).map_err(|why| Error::Image { name: encoded.name(sample), why })?;
    if (image.height, image.width) == (geometry.height, geometry.width) {
        separate(&image, planes);
        return Ok(());
    }
    if !geometry.resize {
        return Err(Error::Size {
            name: encoded.name(sample),
            found: (image.height as u32, image.width as u32),
            wanted: (geometry.height as u32, geometry.width as u32),
        });
    }
    resize(&image, geometry.height, geometry.width, planes);
    Ok(())
}

/// From three bytes a pixel to three planes.
fn separate(image: &Rgb, planes: &mut [u8]) {
    let (red, rest) = planes.split_at_mut(image.height * image.width);
    let (green, blue) = rest.split_at_mut(image.height * image.width);
    for (((pixel, red), green), blue) in image.pixels.chunks_exact(3).zip(red).zip(green).zip(blue) {
        (*red, *green, *blue) = (pixel[0], pixel[1], pixel[2]);
    }
}
