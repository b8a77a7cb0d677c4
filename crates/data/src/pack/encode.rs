//! Converts one sample: its original bytes, a smaller image, repacked JPEG coefficients, or raw pixels.

use std::path::Path;

use image::ExtendedColorType;
use image::codecs::jpeg::JpegEncoder;

use super::PackOptions;
use super::contents::{Contents, Matter};
use crate::Error;
use crate::decode::jpeg::{self, Colour, Decoder, JpegError, JpegFile, PackedJpeg};
use crate::decode::rgb::{Rgb, decode_once, guarded, plain};
use crate::files::handles::LARGEST_FILE;
use crate::formats::{Content, Decoded};
use crate::shard::manifest::TokenFormat;
use crate::shard::{Sample, SampleCodec};
use crate::texts::vocabulary;
use crate::transform::resize::resize;

/// The quality of images that are shrunk, on the scale of JPEG encoders.
const QUALITY: u8 = 90;
/// Largest size of packed coefficients, in percent of the file; larger results are discarded.
const MOST_PERCENT: usize = 110;
/// So many hundredths of their files the samples of a shard may take.
const SHARD_PERCENT: u64 = 102;

/// Reads and encodes samples; shared by all threads.
pub(super) struct Encoder<'a> {
    contents: &'a Contents,
    text: Option<vocabulary::Encoder>,
    codec: SampleCodec,
    shrink: Option<u32>,
}

/// A sample ready to be written: encoded with the codec, and as a file in case that is smaller.
pub(super) struct Prepared {
    pub sample: Sample,
    /// Bytes that the sample had.
    pub source: u64,
    /// The same sample as a file, if packing made it larger.
    file: Option<Vec<u8>>,
}

impl Prepared {
    /// Bytes that it takes in memory.
    pub fn weight(&self) -> usize {
        self.sample.bytes.len() + self.file.as_ref().map_or(0, Vec::len)
    }

    /// Chooses the form of a sample for a shard that holds `bytes`, whose samples as files would take `plain`; returns
    /// it with its size as a file. Coefficients may be larger than their file as long as the shard takes at most
    /// [`SHARD_PERCENT`] of its files.
    pub fn settled(self, bytes: u64, plain: u64) -> (Sample, u64) {
        let Prepared { sample, file, .. } = self;
        let packed = sample.bytes.len() as u64;
        let Some(file) = file else { return (sample, packed) };
        let length = file.len() as u64;
        match (bytes + packed) * 100 <= (plain + length) * SHARD_PERCENT {
            true => (sample, length),
            false => (Sample { codec: SampleCodec::Original, bytes: file, ..sample }, length),
        }
    }
}

/// Codec and bytes of a sample, and its file if that is smaller.
type Converted = (SampleCodec, Vec<u8>, Option<Vec<u8>>);

impl<'a> Encoder<'a> {
    /// Prepares the encoding of the listed data. A tokenizer is saved in the folder `out`.
    pub fn new(contents: &'a Contents, options: &PackOptions, out: &Path) -> Result<Encoder<'a>, Error> {
        let text = match (&contents.matter, &options.text) {
            (Matter::Texts(documents), Some(text)) => {
                let trained_on: Vec<u32> = contents.trained_on().collect();
                Some(text.vocabulary.encoder(documents, trained_on.into_iter(), out)?)
            }
            (Matter::Texts(_) | Matter::Images(_), _) => None,
        };
        Ok(Encoder { contents, text, codec: options.codec, shrink: options.shrink })
    }

    /// How text becomes tokens, if it does.
    pub fn tokens(&self) -> Option<TokenFormat> {
        self.text.as_ref().map(|text| text.tokens.clone())
    }

    /// One sample as it may be written.
    pub fn encode(&self, sample: u32) -> Result<Prepared, Error> {
        let index = sample as usize;
        let (name, source, (codec, bytes, file), note) = match &self.contents.matter {
            Matter::Images(Content::Encoded(encoded)) => {
                let mut bytes = Vec::new();
                encoded.read(index, &mut bytes)?;
                let name = encoded.name(index);
                let (known, source) = (encoded.codec(index), bytes.len());
                let converted = self.convert(known, bytes).map_err(|why| Error::Image { name: name.clone(), why })?;
                (name, source, converted, encoded.note(index)?)
            }
            Matter::Images(Content::Decoded(decoded)) => {
                let image = interleaved(decoded, index)
                    .ok_or_else(|| Error::Internal("pixels that are no colours were listed for packing".into()))?;
                let source = image.pixels.len();
                (format!("{index:08}"), source, (SampleCodec::Pixels, plain(&self.shrunk(image).0), None), Vec::new())
            }
            Matter::Texts(documents) => {
                let (name, text) = (format!("text {}", index + 1), documents.text(index)?);
                let encoder = self.text.as_ref().ok_or_else(|| Error::Internal("text without a tokenizer".into()))?;
                let bytes = encoder.encode(&text).map_err(|why| Error::Image { name: name.clone(), why })?;
                (name, text.len(), (SampleCodec::Tokens, bytes, None), Vec::new())
            }
        };
        let label = self.contents.labels[index];
        let sample = Sample { id: index as u64, label, codec, name, bytes, note };
        Ok(Prepared { sample, source: source as u64, file })
    }

    fn convert(&self, known: SampleCodec, bytes: Vec<u8>) -> Result<Converted, String> {
        match (self.codec, self.shrink) {
            (SampleCodec::Original, None) => {
                // Bytes that are stored unchanged must still be readable, or are reported by name.
                if known == SampleCodec::Original {
                    decode_once(&bytes)?;
                }
                return Ok((known, bytes, None));
            }
            (SampleCodec::Coefficients, None) => return packed(known, bytes),
            (SampleCodec::Original | SampleCodec::Coefficients | SampleCodec::Pixels | SampleCodec::Tokens, _) => {}
        }
        let image = decode_once(&bytes)?;
        let (image, changed) = self.shrunk(image);
        match self.codec {
            SampleCodec::Pixels => match plain(&image) {
                pixels if pixels.len() as u64 > LARGEST_FILE => Err("its pixels are larger than 256 MiB".into()),
                pixels => Ok((SampleCodec::Pixels, pixels, None)),
            },
            SampleCodec::Coefficients if !changed => packed(known, bytes),
            SampleCodec::Original | SampleCodec::Tokens if !changed => Ok((known, bytes, None)),
            SampleCodec::Original | SampleCodec::Coefficients | SampleCodec::Tokens => {
                let mut file = Vec::new();
                let (width, height) = (image.width as u32, image.height as u32);
                JpegEncoder::new_with_quality(&mut file, QUALITY)
                    .encode(&image.pixels, width, height, ExtendedColorType::Rgb8)
                    .map_err(|error| error.to_string())?;
                match self.codec {
                    SampleCodec::Coefficients => packed(SampleCodec::Original, file),
                    SampleCodec::Original | SampleCodec::Pixels | SampleCodec::Tokens => {
                        Ok((SampleCodec::Original, file, None))
                    }
                }
            }
        }
    }

    /// Shrinks an image to the requested short side, and returns whether it changed; images are never enlarged.
    fn shrunk(&self, image: Rgb) -> (Rgb, bool) {
        let Some(side) = self.shrink.map(|side| side as usize) else {
            return (image, false);
        };
        let short = image.height.min(image.width);
        if short <= side {
            return (image, false);
        }
        // The long side is rounded down, as torchvision does.
        let scaled = |length: usize| (length * side / short).max(1);
        let (height, width) = (scaled(image.height), scaled(image.width));
        let mut planes = vec![0; 3 * height * width];
        resize(&image, height, width, &mut planes);
        let size = height * width;
        let pixels = (0..size).flat_map(|at| [planes[at], planes[size + at], planes[2 * size + at]]).collect();
        (Rgb { height, width, pixels }, true)
    }
}

/// Packs the coefficients of a JPEG file, or repacks those of an earlier version. Other readable files are stored
/// unchanged, and so are JPEGs that are progressive, have four channels, are of an unsupported kind, or whose
/// coefficients would exceed [`MOST_PERCENT`]. If the coefficients are larger than the file, the file is returned too.
fn packed(known: SampleCodec, bytes: Vec<u8>) -> Result<Converted, String> {
    if known == SampleCodec::Coefficients && PackedJpeg::is_of_old(&bytes) {
        let coefficients = PackedJpeg::open(&bytes).and_then(|packed| packed.coefficients());
        let anew = jpeg::encode_strips(&coefficients.map_err(|fault| fault.to_string())?);
        return Ok((known, if anew.len() < bytes.len() { anew } else { bytes }, None));
    }
    if known != SampleCodec::Original {
        return Ok((known, bytes, None));
    }
    if !bytes.starts_with(&[0xFF, 0xD8]) {
        decode_once(&bytes)?;
        return Ok((known, bytes, None));
    }
    let coefficients = || {
        let mut image = JpegFile::open(&bytes)?;
        let four = matches!(image.frame().colour, Colour::Cmyk | Colour::Ycck);
        if image.frame().is_progressive() || four {
            return Ok(None);
        }
        let packed = jpeg::encode_strips(&image.coefficients(&mut Decoder::default())?);
        Ok((packed.len() * 100 <= bytes.len() * MOST_PERCENT).then_some(packed))
    };
    match guarded(|| Ok::<_, String>(coefficients()))? {
        Ok(Some(packed)) if packed.len() <= bytes.len() => Ok((SampleCodec::Coefficients, packed, None)),
        Ok(Some(packed)) => Ok((SampleCodec::Coefficients, packed, Some(bytes))),
        Ok(None) | Err(JpegError::Unsupported(_)) => {
            // Bytes that are stored unchanged must still be readable, or are reported by name.
            decode_once(&bytes)?;
            Ok((known, bytes, None))
        }
        Err(fault @ (JpegError::Truncated | JpegError::Damaged(_) | JpegError::Size { .. })) => Err(fault.to_string()),
    }
}

/// One image of plain pixels; `None` unless they are 8-bit colours.
fn interleaved(decoded: &Decoded, index: usize) -> Option<Rgb> {
    let &Decoded { channels, height, width, full, ref pixels } = decoded;
    if (channels, full) != (3, 255) {
        return None;
    }
    let size = height * width;
    let planes = &pixels[index * 3 * size..][..3 * size];
    let pixels = (0..size).flat_map(|at| [planes[at], planes[size + at], planes[2 * size + at]]).collect();
    Some(Rgb { height, width, pixels })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_is_held_to_its_budget() {
        let settled = |packed: usize, file: Option<usize>, bytes: u64, plain: u64| {
            let of = |codec, length| Sample {
                id: 0,
                label: 0,
                codec,
                name: "a".into(),
                bytes: vec![7; length],
                note: vec![],
            };
            let prepared = Prepared {
                sample: of(SampleCodec::Coefficients, packed),
                source: 0,
                file: file.map(|length| vec![0; length]),
            };
            let (sample, length) = prepared.settled(bytes, plain);
            (sample.codec, sample.bytes.len(), length)
        };
        // Coefficients smaller than their file are always used.
        assert_eq!(settled(90, None, 500, 100), (SampleCodec::Coefficients, 90, 90));
        // Larger ones are used as long as the shard stays within 102 % of its files.
        assert_eq!(settled(106, Some(100), 96, 100), (SampleCodec::Coefficients, 106, 100));
        assert_eq!(settled(110, Some(100), 96, 100), (SampleCodec::Original, 100, 100));
        assert_eq!(settled(103, Some(100), 0, 0), (SampleCodec::Original, 100, 100));
    }

    #[test]
    fn what_an_earlier_version_packed_is_packed_anew() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/images");
        let old = std::fs::read(folder.join("gjc1/420-40x25.gjc1")).unwrap();
        let jpeg = std::fs::read(folder.join("420-40x25.jpg")).unwrap();
        let (codec, anew, file) = packed(SampleCodec::Coefficients, old.clone()).unwrap();
        assert!(codec == SampleCodec::Coefficients && anew.len() < old.len() && file.is_none());
        assert!(decode_once(&anew).unwrap().pixels == decode_once(&jpeg).unwrap().pixels);
        let (codec, same, _) = packed(SampleCodec::Coefficients, anew.clone()).unwrap();
        assert!(codec == SampleCodec::Coefficients && same == anew);
    }
}
