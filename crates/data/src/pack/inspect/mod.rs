//! `data inspect`: the contents of a data set, whether it is intact, and how well it is shuffled.
//!
//! Counts come from the listing alone. Sizes and kinds are those of an evenly spread sample of images, of which the
//! first bytes are read; with `verify`, every sample is read and compared with its hash, or decoded if it has none.

mod sheet;

use std::collections::BTreeMap;
use std::io::Cursor;
use std::path::Path;

use image::{ImageFormat, ImageReader};
use serde::Serialize;

use super::flow::in_order;
use crate::decode::jpeg::PackedJpeg;
use crate::decode::rgb::decode_once;
use crate::formats::{self, ByFolders, Content, Encoded, Index, Reading};
use crate::formats::{Renamed, Skipped};
use crate::{Error, Part, SampleCodec, ShardManifest, shard};

/// Options of [`inspect`].
#[derive(Debug, Clone, Copy)]
pub struct InspectOptions<'a> {
    /// Whether every sample is read and checked.
    pub verify: bool,
    /// Where a sheet of images is written, as PNG.
    pub sheet: Option<&'a Path>,
    /// Threads that check.
    pub threads: usize,
}

/// Contents of a data set.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Inspection {
    /// Its format.
    pub form: &'static str,
    /// Samples of all parts.
    pub samples: u64,
    /// Name and samples of each class, in label order; empty for damaged shards that cannot be listed.
    pub classes: Vec<(String, u64)>,
    /// Number of training, validation and test samples, where folder or file names divide them.
    pub parts: Option<[u64; 3]>,
    /// How the samples are stored, or the kinds of the sampled files, with the count of each.
    pub kinds: BTreeMap<String, u64>,
    /// Sizes of the images that were looked at.
    pub sizes: Option<ImageSizes>,
    /// Tokens of all texts, for packed text.
    pub tokens: Option<u64>,
    /// How well sequential reads are shuffled.
    pub shuffle: ShuffleQuality,
    /// How the shards were made.
    pub manifest: Option<ShardManifest>,
    /// Classes of the rows of the sheet.
    pub sheet: Vec<String>,
    /// Damage found in the listing, among the sampled files, or by `verify`.
    pub damaged: Vec<Skipped>,
    /// Names of images that a later member of the same name, in the same tar, replaces.
    pub replaced: Vec<String>,
    /// Names of image files that are skipped because their format is not supported.
    pub unread: Vec<String>,
    /// Images whose names in an archive lead elsewhere, and are changed.
    pub renamed: Option<Renamed>,
    /// Samples that were read and checked.
    pub verified: u64,
}

/// Sizes of images, in pixels, and of their files, in bytes: smallest, median and largest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ImageSizes {
    /// Images that were looked at.
    pub of: u64,
    /// Widths.
    pub width: [u64; 3],
    /// Heights.
    pub height: [u64; 3],
    /// Bytes of the encoded image.
    pub bytes: [u64; 3],
}

/// Distinct classes in a batch of samples that lie one behind another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct ShuffleQuality {
    /// Samples in a batch; 0 if there are none to look at.
    pub batch: u64,
    /// Distinct classes in it, on average.
    pub distinct: f64,
    /// The same, were the samples drawn at random.
    pub ideal: f64,
}

/// Images whose first bytes are read.
const LOOKED_AT: usize = 1000;
/// The batch size for which shuffling is measured.
const BATCH: usize = 256;

/// Inspects the data at `path`.
///
/// # Errors
/// [`Error`] if it cannot be listed or read, or the sheet cannot be written. Damage is reported in the result.
pub fn inspect(path: &Path, options: &InspectOptions) -> Result<Inspection, Error> {
    let manifest = ShardManifest::read(path)?;
    let listed =
        |by_folders| formats::list(path, &Reading { by_folders, skip: true, labels: domain::train::Labels::Class });
    // First, because damage may be why the data cannot be listed.
    let wrong = match &manifest {
        Some(manifest) if options.verify => Some(verify_shards(path, manifest, options.threads)?),
        Some(_) | None => None,
    };
    let index = match (listed(ByFolders::IfAny).or_else(|_| listed(ByFolders::No)), &wrong) {
        (Ok(index), _) => index,
        (Err(_), Some(wrong)) if !wrong.is_empty() => return Ok(unlisted(manifest, wrong.clone())),
        (Err(error), _) => return Err(error),
    };
    let Index { classes, labels, homes, content, skipped, replaced, unread, renamed } = &index;
    let mut counts = vec![0; classes.len()];
    labels.iter().for_each(|label| counts[*label as usize] += 1);
    let mut damaged = skipped.clone();
    let (kinds, sizes) = look(content, labels.len(), &mut damaged);
    let mut verified = 0;
    if let (Some(wrong), Some(manifest)) = (wrong, &manifest) {
        damaged = wrong;
        verified = manifest.samples;
    } else if options.verify {
        damaged.clone_from(skipped);
        verified = verify(content, options.threads, &mut damaged)?;
    }
    let tokens = tokens(content, manifest.as_ref());
    let sheet = match options.sheet {
        Some(_) if tokens.is_some() => {
            let why = "it holds text, and a sheet shows images".to_owned();
            return Err(Error::Layout { path: path.into(), why, hint: "leave out `--sheet`".into() });
        }
        Some(file) => sheet::write(file, &index)?,
        None => Vec::new(),
    };
    let parts = homes.as_ref().map(|homes| {
        let count = |part| homes.iter().filter(|home| **home == part).count() as u64;
        [Part::Train, Part::Validation, Part::Test].map(count)
    });
    Ok(Inspection {
        form: form(content),
        samples: labels.len() as u64,
        classes: classes.iter().cloned().zip(counts.iter().copied()).collect(),
        parts,
        kinds,
        sizes,
        tokens,
        shuffle: shuffle(&as_stored(content, labels), &counts),
        manifest,
        sheet,
        damaged,
        replaced: replaced.clone(),
        unread: unread.clone(),
        renamed: renamed.clone(),
        verified,
    })
}

/// What is known about shards that cannot be listed.
fn unlisted(manifest: Option<ShardManifest>, damaged: Vec<Skipped>) -> Inspection {
    let samples = manifest.as_ref().map_or(0, |manifest| manifest.samples);
    Inspection {
        form: SHARDS,
        samples,
        classes: Vec::new(),
        parts: None,
        kinds: BTreeMap::new(),
        sizes: None,
        tokens: None,
        shuffle: ShuffleQuality { batch: 0, distinct: 0.0, ideal: 0.0 },
        manifest,
        sheet: Vec::new(),
        damaged,
        replaced: Vec::new(),
        unread: Vec::new(),
        renamed: None,
        verified: samples,
    }
}

/// Tokens of all texts of a pack.
fn tokens(content: &Content, manifest: Option<&ShardManifest>) -> Option<u64> {
    let width = u64::from(manifest?.recipe.tokens.as_ref()?.width).max(1);
    let Content::Encoded(Encoded::Shards(shards)) = content else { return None };
    Some(shards.places().iter().map(|entry| u64::from(entry.bytes) / width).sum())
}

const SHARDS: &str = "gradus shards";

fn form(content: &Content) -> &'static str {
    match content {
        Content::Decoded(_) => "a table of pixels",
        Content::Encoded(Encoded::Files { .. }) => "a folder of images",
        Content::Encoded(Encoded::Spans(_)) => "tars, zips, TFRecords or Arrow files",
        Content::Encoded(Encoded::Rows(_)) => "Parquet files",
        Content::Encoded(Encoded::Shards(_)) => SHARDS,
        Content::Encoded(Encoded::Loaded(_)) => "images in memory",
    }
}

/// The labels in the order in which the samples lie in their files.
fn as_stored(content: &Content, labels: &[u32]) -> Vec<u32> {
    let mut order: Vec<usize> = (0..labels.len()).collect();
    match content {
        Content::Encoded(Encoded::Spans(spans)) => {
            order.sort_by_key(|sample| (spans.spans[*sample].file, spans.spans[*sample].offset));
        }
        Content::Encoded(Encoded::Shards(shards)) => {
            order.sort_by_key(|sample| (shards.places()[*sample].shard, shards.places()[*sample].slot));
        }
        Content::Decoded(_) | Content::Encoded(Encoded::Files { .. } | Encoded::Rows(_) | Encoded::Loaded(_)) => {}
    }
    order.into_iter().map(|sample| labels[sample]).collect()
}

/// How many classes a batch contains if samples are read sequentially.
fn shuffle(stored: &[u32], counts: &[u64]) -> ShuffleQuality {
    let batch = BATCH.min(stored.len()).max(1);
    let mut distinct = 0;
    for batch in stored.chunks_exact(batch) {
        let mut labels = batch.to_vec();
        labels.sort_unstable();
        labels.dedup();
        distinct += labels.len();
    }
    let batches = (stored.len() / batch).max(1);
    // Without replacement it is a little more; with hundreds of samples the difference is below a hundredth.
    let missed = |count: &u64| (1.0 - *count as f64 / stored.len().max(1) as f64).powi(batch as i32);
    let ideal = counts.iter().map(|count| 1.0 - missed(count)).sum();
    ShuffleQuality { batch: batch as u64, distinct: distinct as f64 / batches as f64, ideal }
}

/// Kinds and sizes of some images, spread evenly.
fn look(content: &Content, samples: usize, damaged: &mut Vec<Skipped>) -> (BTreeMap<String, u64>, Option<ImageSizes>) {
    let mut kinds = BTreeMap::new();
    let encoded = match content {
        Content::Decoded(decoded) => {
            let (height, width) = (decoded.height as u64, decoded.width as u64);
            let bytes = decoded.channels as u64 * height * width;
            kinds.insert("plain pixels".to_owned(), samples as u64);
            let sizes = ImageSizes { of: samples as u64, width: [width; 3], height: [height; 3], bytes: [bytes; 3] };
            return (kinds, Some(sizes));
        }
        Content::Encoded(encoded) => encoded,
    };
    let looked = samples.min(LOOKED_AT);
    let (mut widths, mut heights, mut lengths) = (Vec::new(), Vec::new(), Vec::new());
    let mut bytes = Vec::new();
    for number in 0..looked {
        let sample = number * samples / looked;
        if encoded.codec(sample) == SampleCodec::Tokens {
            *kinds.entry(SampleCodec::Tokens.word().to_owned()).or_insert(0) += 1;
            continue;
        }
        match encoded.read(sample, &mut bytes).map_err(|error| error.to_string()).and_then(|()| header(&bytes)) {
            Ok((kind, width, height)) => {
                *kinds.entry(kind).or_insert(0) += 1;
                widths.push(width);
                heights.push(height);
                lengths.push(bytes.len() as u64);
            }
            Err(why) => damaged.push(Skipped { name: encoded.name(sample), why }),
        }
    }
    let sizes = (!widths.is_empty()).then(|| ImageSizes {
        of: widths.len() as u64,
        width: spread(widths),
        height: spread(heights),
        bytes: spread(lengths),
    });
    (kinds, sizes)
}

/// Kind, width and height, as the first bytes say.
fn header(bytes: &[u8]) -> Result<(String, u64, u64), String> {
    if PackedJpeg::is(bytes) {
        let packed = PackedJpeg::open(bytes).map_err(|fault| fault.to_string())?;
        let frame = packed.frame();
        return Ok(("coefficients".to_owned(), frame.width as u64, frame.height as u64));
    }
    let kind = match image::guess_format(bytes) {
        Ok(ImageFormat::Jpeg) => "jpeg",
        Ok(ImageFormat::Png) => "png",
        Ok(ImageFormat::WebP) => "webp",
        Ok(ImageFormat::Bmp) => "bmp",
        Ok(ImageFormat::Gif) => "gif",
        Ok(ImageFormat::Tiff) => "tiff",
        Ok(_) | Err(_) => {
            let image = decode_once(bytes)?;
            return Ok(("pixels".to_owned(), image.width as u64, image.height as u64));
        }
    };
    let reader = ImageReader::new(Cursor::new(bytes)).with_guessed_format().map_err(|error| error.to_string())?;
    let (width, height) = reader.into_dimensions().map_err(|error| error.to_string())?;
    Ok((kind.to_owned(), u64::from(width), u64::from(height)))
}

fn spread(mut values: Vec<u64>) -> [u64; 3] {
    values.sort_unstable();
    [values[0], values[values.len() / 2], values[values.len() - 1]]
}

/// Reads all shards completely; returns the damage found.
fn verify_shards(path: &Path, manifest: &ShardManifest, threads: usize) -> Result<Vec<Skipped>, Error> {
    let shards = &manifest.shards;
    let mut damaged = Vec::new();
    let work = |number: u64| shard::verify(path, &shards[number as usize], manifest.classes.len());
    in_order(
        0..shards.len() as u64,
        threads,
        work,
        |_| 0,
        |number, wrong| {
            let unread = |error: Error| vec![format!("{}: {error}", shards[number as usize].file)];
            for line in wrong.unwrap_or_else(unread) {
                let (name, why) = line.split_once(": ").unwrap_or((&line, ""));
                damaged.push(Skipped { name: name.to_owned(), why: why.to_owned() });
            }
            Ok::<(), Error>(())
        },
    )?;
    Ok(damaged)
}

/// Reads every sample that has no hash; returns how many.
fn verify(content: &Content, threads: usize, damaged: &mut Vec<Skipped>) -> Result<u64, Error> {
    let encoded = match content {
        Content::Decoded(_) => return Ok(0), // Listing has read them completely.
        Content::Encoded(encoded) => encoded,
    };
    let work = |number: u64| {
        let (sample, mut bytes) = (number as usize, Vec::new());
        let read = encoded.read(sample, &mut bytes).map_err(|error| match error {
            Error::Image { why, .. } => why,
            other => other.to_string(),
        });
        read.and_then(|()| decode_once(&bytes).map(|_| ()))
    };
    in_order(
        0..encoded.len() as u64,
        threads,
        work,
        |_| 0,
        |number, checked| {
            if let Err(why) = checked {
                damaged.push(Skipped { name: encoded.name(number as usize), why });
            }
            Ok::<(), Error>(())
        },
    )?;
    Ok(encoded.len() as u64)
}
