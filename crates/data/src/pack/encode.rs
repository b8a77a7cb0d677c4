//! What becomes of one sample: its bytes as they were, shrunk, its coefficients packed anew, or its plain pixels.

use std::path::Path;

use image::ExtendedColorType;
use image::codecs::jpeg::JpegEncoder;

use super::PackOptions;
use super::contents::{Contents, Matter};
use crate::Error;
use crate::jpeg::{self, Colour, Decoder, Fault, Packed, Picture};
use crate::picture::{Rgb, decode_once, guarded, plain};
use crate::resize::resize;
use crate::shard::{Codec, Sample};
use crate::source::{Content, Decoded, LARGEST_FILE};
use crate::tokens::{self, Tokens};

/// The quality of pictures that are shrunk, on the scale of JPEG encoders.
const QUALITY: u8 = 90;
/// Packed coefficients that take more hundredths of the file than these are not wanted, whatever others save.
const MOST_PERCENT: usize = 110;
/// So many hundredths of their files the samples of a shard may take.
const SHARD_PERCENT: u64 = 102;

/// Reads and encodes samples; shared by all threads.
pub(super) struct Encoder<'a> {
    contents: &'a Contents,
    text: Option<tokens::Encoder>,
    codec: Codec,
    shrink: Option<u32>,
}

/// A sample as it may be written.
pub(super) struct Prepared {
    pub sample: Sample,
    /// Bytes that the sample had.
    pub source: u64,
    /// The same sample as a file, where it was packed into more room than that.
    file: Option<Vec<u8>>,
}

impl Prepared {
    /// Bytes that it takes in memory.
    pub fn weight(&self) -> usize {
        self.sample.bytes.len() + self.file.as_ref().map_or(0, Vec::len)
    }

    /// What is written into a shard that holds `bytes`, where its samples as files would have `plain`; and the bytes of
    /// the one that is written as a file. Coefficients may take more room than their file as long as the shard takes at
    /// most [`SHARD_PERCENT`] of its files.
    pub fn settled(self, bytes: u64, plain: u64) -> (Sample, u64) {
        let Prepared { sample, file, .. } = self;
        let packed = sample.bytes.len() as u64;
        let Some(file) = file else { return (sample, packed) };
        let length = file.len() as u64;
        match (bytes + packed) * 100 <= (plain + length) * SHARD_PERCENT {
            true => (sample, length),
            false => (Sample { codec: Codec::Original, bytes: file, ..sample }, length),
        }
    }
}

/// Bytes of a sample, how they are to be read, and those of its file where that is smaller.
type Converted = (Codec, Vec<u8>, Option<Vec<u8>>);

impl<'a> Encoder<'a> {
    /// Makes ready to encode what was listed. A tokenizer is left in the folder `out`.
    pub fn new(contents: &'a Contents, options: &PackOptions, out: &Path) -> Result<Encoder<'a>, Error> {
        let text = match (&contents.matter, &options.text) {
            (Matter::Texts(documents), Some(text)) => {
                let learnt_from: Vec<u32> = contents.learnt_from().collect();
                Some(text.vocabulary.encoder(documents, learnt_from.into_iter(), out)?)
            }
            (Matter::Texts(_) | Matter::Pictures(_), _) => None,
        };
        Ok(Encoder { contents, text, codec: options.codec, shrink: options.shrink })
    }

    /// How text becomes tokens, if it does.
    pub fn tokens(&self) -> Option<Tokens> {
        self.text.as_ref().map(|text| text.tokens.clone())
    }

    /// One sample as it may be written.
    pub fn encode(&self, sample: u32) -> Result<Prepared, Error> {
        let place = sample as usize;
        let (name, source, (codec, bytes, file), note) = match &self.contents.matter {
            Matter::Pictures(Content::Encoded(encoded)) => {
                let mut bytes = Vec::new();
                encoded.read(place, &mut bytes)?;
                let name = encoded.name(place);
                let (known, source) = (encoded.codec(place), bytes.len());
                let converted = self.convert(known, bytes).map_err(|why| Error::Picture { name: name.clone(), why })?;
                (name, source, converted, encoded.note(place)?)
            }
            Matter::Pictures(Content::Decoded(decoded)) => {
                let picture = interleaved(decoded, place)
                    .ok_or_else(|| Error::Internal("pixels that are no colours were listed for packing".into()))?;
                let source = picture.pixels.len();
                (format!("{place:08}"), source, (Codec::Pixels, plain(&self.shrunk(picture).0), None), Vec::new())
            }
            Matter::Texts(documents) => {
                let (name, text) = (format!("text {}", place + 1), documents.text(place)?);
                let encoder = self.text.as_ref().ok_or_else(|| Error::Internal("text without a tokenizer".into()))?;
                let bytes = encoder.encode(&text).map_err(|why| Error::Picture { name: name.clone(), why })?;
                (name, text.len(), (Codec::Tokens, bytes, None), Vec::new())
            }
        };
        let label = self.contents.labels[place];
        let sample = Sample { id: place as u64, label, codec, name, bytes, note };
        Ok(Prepared { sample, source: source as u64, file })
    }

    fn convert(&self, known: Codec, bytes: Vec<u8>) -> Result<Converted, String> {
        match (self.codec, self.shrink) {
            (Codec::Original, None) => {
                // What is kept as it is can be read all the same, or is told by its name.
                if known == Codec::Original {
                    decode_once(&bytes)?;
                }
                return Ok((known, bytes, None));
            }
            (Codec::Coefficients, None) => return packed(known, bytes),
            (Codec::Original | Codec::Coefficients | Codec::Pixels | Codec::Tokens, _) => {}
        }
        let picture = decode_once(&bytes)?;
        let (picture, changed) = self.shrunk(picture);
        match self.codec {
            Codec::Pixels => match plain(&picture) {
                pixels if pixels.len() as u64 > LARGEST_FILE => Err("its pixels are larger than 256 MiB".into()),
                pixels => Ok((Codec::Pixels, pixels, None)),
            },
            Codec::Coefficients if !changed => packed(known, bytes),
            Codec::Original | Codec::Tokens if !changed => Ok((known, bytes, None)),
            Codec::Original | Codec::Coefficients | Codec::Tokens => {
                let mut file = Vec::new();
                let (width, height) = (picture.width as u32, picture.height as u32);
                JpegEncoder::new_with_quality(&mut file, QUALITY)
                    .encode(&picture.pixels, width, height, ExtendedColorType::Rgb8)
                    .map_err(|error| error.to_string())?;
                match self.codec {
                    Codec::Coefficients => packed(Codec::Original, file),
                    Codec::Original | Codec::Pixels | Codec::Tokens => Ok((Codec::Original, file, None)),
                }
            }
        }
    }

    /// The picture with the short side asked for, and whether it had to be changed; it is never enlarged.
    fn shrunk(&self, picture: Rgb) -> (Rgb, bool) {
        let Some(side) = self.shrink.map(|side| side as usize) else {
            return (picture, false);
        };
        let short = picture.height.min(picture.width);
        if short <= side {
            return (picture, false);
        }
        // The long side is rounded down, as torchvision does.
        let scaled = |length: usize| (length * side / short).max(1);
        let (height, width) = (scaled(picture.height), scaled(picture.width));
        let mut planes = vec![0; 3 * height * width];
        resize(&picture, height, width, &mut planes);
        let size = height * width;
        let pixels = (0..size).flat_map(|at| [planes[at], planes[size + at], planes[2 * size + at]]).collect();
        (Rgb { height, width, pixels }, true)
    }
}

/// The coefficients of a JPEG file, packed, or packed anew if an earlier version did; other files stay as they are, and so
/// do JPEGs that are progressive, of four colours, of a kind that is not decoded, or whose coefficients would take more
/// room than [`MOST_PERCENT`]. Where they take more than the file, that comes along.
fn packed(known: Codec, bytes: Vec<u8>) -> Result<Converted, String> {
    if known == Codec::Coefficients && Packed::is_of_old(&bytes) {
        let coefficients = Packed::open(&bytes).and_then(|packed| packed.coefficients());
        let anew = jpeg::encode_strips(&coefficients.map_err(|fault| fault.to_string())?);
        return Ok((known, if anew.len() < bytes.len() { anew } else { bytes }, None));
    }
    if known != Codec::Original || !bytes.starts_with(&[0xFF, 0xD8]) {
        return Ok((known, bytes, None));
    }
    let coefficients = || {
        let mut picture = Picture::open(&bytes)?;
        let four = matches!(picture.frame().colour, Colour::Cmyk | Colour::Ycck);
        if picture.frame().is_progressive() || four {
            return Ok(None);
        }
        let packed = jpeg::encode_strips(&picture.coefficients(&mut Decoder::default())?);
        Ok((packed.len() * 100 <= bytes.len() * MOST_PERCENT).then_some(packed))
    };
    match guarded(|| Ok::<_, String>(coefficients()))? {
        Ok(Some(packed)) if packed.len() <= bytes.len() => Ok((Codec::Coefficients, packed, None)),
        Ok(Some(packed)) => Ok((Codec::Coefficients, packed, Some(bytes))),
        Ok(None) | Err(Fault::Unsupported(_)) => Ok((known, bytes, None)),
        Err(fault @ (Fault::Truncated | Fault::Damaged(_) | Fault::Size { .. })) => Err(fault.to_string()),
    }
}

/// One picture of plain pixels; `None` unless they are 8-bit colours.
fn interleaved(decoded: &Decoded, place: usize) -> Option<Rgb> {
    let &Decoded { channels, height, width, full, ref pixels } = decoded;
    if (channels, full) != (3, 255) {
        return None;
    }
    let size = height * width;
    let planes = &pixels[place * 3 * size..][..3 * size];
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
                sample: of(Codec::Coefficients, packed),
                source: 0,
                file: file.map(|length| vec![0; length]),
            };
            let (sample, length) = prepared.settled(bytes, plain);
            (sample.codec, sample.bytes.len(), length)
        };
        // What takes less room than its file is always written as coefficients.
        assert_eq!(settled(90, None, 500, 100), (Codec::Coefficients, 90, 90));
        // What takes more is, as long as the whole shard stays within 102 hundredths of its files.
        assert_eq!(settled(106, Some(100), 96, 100), (Codec::Coefficients, 106, 100));
        assert_eq!(settled(110, Some(100), 96, 100), (Codec::Original, 100, 100));
        assert_eq!(settled(103, Some(100), 0, 0), (Codec::Original, 100, 100));
    }

    #[test]
    fn what_an_earlier_version_packed_is_packed_anew() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/tests/pictures");
        let old = std::fs::read(folder.join("gjc1/420-40x25.gjc1")).unwrap();
        let jpeg = std::fs::read(folder.join("420-40x25.jpg")).unwrap();
        let (codec, anew, file) = packed(Codec::Coefficients, old.clone()).unwrap();
        assert!(codec == Codec::Coefficients && anew.len() < old.len() && file.is_none());
        assert!(decode_once(&anew).unwrap().pixels == decode_once(&jpeg).unwrap().pixels);
        let (codec, same, _) = packed(Codec::Coefficients, anew.clone()).unwrap();
        assert!(codec == Codec::Coefficients && same == anew);
    }
}
