//! Decodes one image file: JPEG, PNG, WebP, BMP, GIF or TIFF.
//!
//! The content decides the format, not the name. JPEG has its own decoder ([`crate::decode::jpeg`]); the others use the
//! `image` crate. Every image becomes 8-bit RGB: grayscale values are repeated, an alpha channel is dropped, an
//! animation yields its first frame, and EXIF orientation is not applied, all as in torchvision's `ImageFolder`. Sizes
//! are checked before memory is allocated, and a panic of a decoder is an ordinary error.

use std::io::Cursor;

use image::codecs::png::PngDecoder;
use image::{DynamicImage, ImageDecoder, ImageError, ImageFormat, ImageReader, Limits};
use plugin::caught::caught;

use super::jpeg::{self, Decoder, PackedJpeg};

/// Pixels row by row, three bytes each.
#[derive(Debug)]
pub(crate) struct Rgb {
    pub height: usize,
    pub width: usize,
    pub pixels: Vec<u8>,
}

/// The same, somewhere else.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Pixels<'a> {
    pub height: usize,
    pub width: usize,
    pub pixels: &'a [u8],
}

impl Rgb {
    /// The image, borrowed.
    pub fn view(&self) -> Pixels<'_> {
        Pixels { height: self.height, width: self.width, pixels: &self.pixels }
    }
}

/// A file claiming more is refused: it is 300 MB decoded, and no training image.
const MOST_PIXELS: u64 = jpeg::MOST_PIXELS as u64;
const MOST_MEMORY: u64 = 1 << 30;

/// Decodes a file. The error is a short reason.
pub(crate) fn decode(bytes: &[u8], decoder: &mut Decoder) -> Result<Rgb, String> {
    guarded(|| decode_any(bytes, decoder))
}

/// Decodes a single file with a temporary decoder.
pub(crate) fn decode_once(bytes: &[u8]) -> Result<Rgb, String> {
    decode(bytes, &mut Decoder::default())
}

/// A panic of a decoder is an error like any other.
pub(crate) fn guarded<T>(work: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    caught(work).unwrap_or_else(|| Err("the decoder gave up on it".into()))
}

fn decode_any(bytes: &[u8], decoder: &mut Decoder) -> Result<Rgb, String> {
    if !bytes.starts_with(&[0xFF, 0xD8]) && !PackedJpeg::is(bytes) {
        return decode_other(bytes);
    }
    let (width, height, pixels) = jpeg::rgb(bytes, decoder).map_err(|fault| fault.to_string())?;
    Ok(Rgb { height, width, pixels })
}

/// The supported formats, as named in messages.
const KINDS: &str = "JPEG, PNG, WebP, BMP, GIF and TIFF";

/// Memory limits of a decoder.
fn limits() -> Limits {
    let mut limits = Limits::no_limits();
    limits.max_alloc = Some(MOST_MEMORY);
    limits
}

/// Decodes any format but JPEG.
pub(crate) fn decode_other(bytes: &[u8]) -> Result<Rgb, String> {
    if let Some(image) = Pixels::plain(bytes) {
        return image.map(|Pixels { height, width, pixels }| Rgb { height, width, pixels: pixels.to_vec() });
    }
    match image::guess_format(bytes) {
        Ok(ImageFormat::Png) => {
            finish(PngDecoder::with_limits(Cursor::new(bytes), limits()).map_err(|error| plainly(&error))?)
        }
        Ok(format @ (ImageFormat::WebP | ImageFormat::Bmp | ImageFormat::Gif | ImageFormat::Tiff)) => {
            let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
            reader.limits(limits());
            finish(reader.into_decoder().map_err(|error| plainly(&error))?)
        }
        Ok(other) => Err(format!("it is {other:?}, and only {KINDS} are read")),
        Err(_) => Err(format!("it is none of {KINDS}")),
    }
}

/// The first bytes of an image of plain pixels, as `data pack --codec pixels` writes it; height, width and the
/// pixels of [`Rgb`] follow.
const PLAIN: &[u8] = b"gradusP1";

impl Pixels<'_> {
    /// The image in a file of raw pixels; `None` for other files.
    pub fn plain(bytes: &[u8]) -> Option<Result<Pixels<'_>, String>> {
        let rest = bytes.strip_prefix(PLAIN)?;
        let Some((&[h0, h1, h2, h3, w0, w1, w2, w3], pixels)) = rest.split_first_chunk::<8>() else {
            return Some(Err("the file ends before the image does".into()));
        };
        let (height, width) = (u32::from_le_bytes([h0, h1, h2, h3]), u32::from_le_bytes([w0, w1, w2, w3]));
        if u64::from(height) * u64::from(width) * 3 != pixels.len() as u64 || pixels.is_empty() {
            return Some(Err(format!("it claims to be {width}×{height} pixels, and has {} bytes", pixels.len())));
        }
        Some(Ok(Pixels { height: height as usize, width: width as usize, pixels }))
    }
}

/// An image of plain pixels as [`decode`] reads it.
pub(crate) fn plain(image: &Rgb) -> Vec<u8> {
    let size = [image.height, image.width].map(|length| (length as u32).to_le_bytes()).concat();
    [PLAIN, &size, &image.pixels].concat()
}

fn finish(decoder: impl ImageDecoder) -> Result<Rgb, String> {
    let (width, height) = decoder.dimensions();
    let pixels = u64::from(width) * u64::from(height);
    if pixels == 0 {
        return Err(format!("it claims to be {width}×{height} pixels, which is no image"));
    }
    if pixels > MOST_PIXELS {
        return Err(format!("it claims to be {width}×{height} pixels; the limit is {MOST_PIXELS} pixels"));
    }
    let image = DynamicImage::from_decoder(decoder).map_err(|error| plainly(&error))?;
    Ok(Rgb { height: height as usize, width: width as usize, pixels: image.into_rgb8().into_raw() })
}

/// The innermost sentence of a decoder's error.
fn plainly(error: &ImageError) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}

#[cfg(test)]
mod tests {
    use image::codecs::jpeg::JpegEncoder;
    use image::{DynamicImage, GrayImage, RgbImage, RgbaImage};
    use proptest::prelude::*;

    use super::*;

    fn encoded(image: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
        let mut bytes = Cursor::new(Vec::new());
        image.into().write_to(&mut bytes, format).unwrap();
        bytes.into_inner()
    }

    fn read(bytes: &[u8]) -> Result<Rgb, String> {
        decode_once(bytes)
    }

    fn noise(width: u32, height: u32) -> RgbImage {
        RgbImage::from_fn(width, height, |x, y| [(x * 37 + y) as u8, (x * y) as u8, (y * 91) as u8].into())
    }

    #[test]
    fn kinds_of_pixels_become_rgb() {
        let rgb = noise(5, 4);
        let found = read(&encoded(rgb.clone(), ImageFormat::Png)).unwrap();
        assert_eq!((found.height, found.width, found.pixels), (4, 5, rgb.into_raw()));
        let grey = GrayImage::from_pixel(3, 2, [77].into());
        for format in [ImageFormat::Png, ImageFormat::Jpeg] {
            assert_eq!(read(&encoded(grey.clone(), format)).unwrap().pixels, [77; 18]);
        }
        let clear = RgbaImage::from_pixel(1, 1, [1, 2, 3, 0].into());
        assert_eq!(read(&encoded(clear, ImageFormat::Png)).unwrap().pixels, [1, 2, 3]);
        let flat = RgbImage::from_pixel(16, 16, [200, 100, 50].into());
        let found = read(&encoded(flat, ImageFormat::Jpeg)).unwrap().pixels;
        assert!(found.chunks(3).all(|p| p[0].abs_diff(200) < 3 && p[1].abs_diff(100) < 3 && p[2].abs_diff(50) < 3));
    }

    #[test]
    fn other_kinds_of_files_are_read() {
        let rgb = noise(7, 5);
        for format in [ImageFormat::WebP, ImageFormat::Bmp, ImageFormat::Tiff] {
            let found = read(&encoded(rgb.clone(), format)).unwrap();
            assert_eq!((found.height, found.width, &found.pixels), (5, 7, rgb.as_raw()), "{format:?}");
        }
        // Of 256 colours.
        let flat = RgbImage::from_pixel(6, 3, [200, 100, 50].into());
        let found = read(&encoded(flat.clone(), ImageFormat::Gif)).unwrap();
        assert_eq!((found.height, found.width, found.pixels), (3, 6, flat.into_raw()));
    }

    #[test]
    fn every_truncation_is_refused() {
        for format in [
            ImageFormat::Png,
            ImageFormat::Jpeg,
            ImageFormat::WebP,
            ImageFormat::Bmp,
            ImageFormat::Gif,
            ImageFormat::Tiff,
        ] {
            let complete = encoded(noise(24, 24), format);
            for length in 0..complete.len() - 20 {
                assert!(read(&complete[..length]).is_err(), "{format:?} of {length} of {} bytes", complete.len());
            }
            let mut padded = complete.clone();
            padded.extend([0; 100]);
            assert_eq!(read(&padded).unwrap().pixels, read(&complete).unwrap().pixels, "{format:?}");
        }
    }

    #[test]
    fn claims_are_checked_before_memory_is_taken() {
        let check = |bytes: &[u8], message: &str| {
            let why = read(bytes).unwrap_err();
            assert!(why.contains(message), "{why}");
        };
        let mut png = encoded(noise(2, 2), ImageFormat::Png);
        png[16..20].copy_from_slice(&50_000_u32.to_be_bytes());
        png[20..24].copy_from_slice(&50_000_u32.to_be_bytes());
        let checksum = {
            let mut crc = flate2::Crc::new();
            crc.update(&png[12..29]);
            crc.sum()
        };
        png[29..33].copy_from_slice(&checksum.to_be_bytes());
        check(&png, "50000×50000");
        let mut jpeg = Vec::new();
        JpegEncoder::new(&mut jpeg).encode_image(&noise(8, 8)).unwrap();
        let frame = jpeg.windows(2).position(|pair| pair == [0xFF, 0xC0]).unwrap();
        jpeg[frame + 5..frame + 9].copy_from_slice(&[0xFF, 0xF0, 0xFF, 0xF0]);
        check(&jpeg, "65520×65520");
        check(b"\0\0\0\x1cftypavif, or so it says", "it is Avif, and only JPEG, PNG, WebP, BMP, GIF and TIFF are read");
        check(b"hello", "it is none of JPEG, PNG, WebP, BMP, GIF and TIFF");
        let mut bmp = encoded(noise(2, 2), ImageFormat::Bmp);
        bmp[18..22].copy_from_slice(&0_u32.to_le_bytes());
        assert!(!read(&bmp).unwrap_err().contains("limit"));
    }

    proptest! {
        #[test]
        fn damage_never_panics(flips in prop::collection::vec((0_usize..2000, any::<u8>()), 1..20), kind in 0_usize..6) {
            use ImageFormat::*;
            let format = [Jpeg, Png, WebP, Bmp, Gif, Tiff][kind];
            let mut bytes = encoded(noise(16, 16), format);
            let length = bytes.len();
            for (at, value) in flips {
                bytes[at % length] = value;
            }
            if let Ok(image) = read(&bytes) {
                prop_assert_eq!(image.pixels.len(), image.height * image.width * 3);
            }
        }
    }
}
