//! Data sets for object detection: images annotated with boxes.
//!
//! One idea: every format of boxes is converted to four edges in the pixels of the square that the network sees, as
//! soon as its image is read; batches and evaluation use nothing else. Read on in `listing` (the contents of a folder),
//! `coco` and `yolo` (the two label formats), `frame` (letterboxing) and `batch` (batches of a training step).

mod batch;
mod coco;
mod frame;
mod labels;
mod listing;
mod mosaic;
pub mod shapes;
#[cfg(test)]
mod tests;
mod yolo;

use std::path::Path;
use std::sync::Arc;
use std::thread;

use domain::train::{Corrupt, Data, Split};

use crate::decode::rgb::decode_once;
use crate::files::handles::{LARGEST_FILE, Whole, check_length};
use crate::files::remote::AccessTime;
use crate::identity::preparation::Preparation;
use crate::identity::{Provenance, Reads, Rule, SampleList, hash};
use crate::loader::dataset::places_of;
use crate::sampling::split::{self, Parts};
use crate::{Error, Part, Skipped};

pub use batch::{DetectionBatch, DetectionLoader};
pub use frame::{AnnotatedBox, OriginalImage};
use frame::{Frame, check_extent};
use listing::{LabelledImage, Listing};

/// The largest default frame, as is usual for detection.
const USUAL_SIZE: usize = 640;
/// Stride of the coarsest grid; the size of a frame is a multiple of it.
pub const CELL: usize = 32;
/// Frames up to this size together stay in memory.
const KEPT: usize = 512 << 20;

/// One object: its class and the edges of its box, in pixels of the frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct GroundTruthBox {
    /// Index of its class in [`DetectionDataset::classes`].
    pub class: u32,
    /// Left, top, right and bottom edge.
    pub edges: [f32; 4],
}

/// All samples of a data set, divided into training, validation and test. Immutable and shared.
#[derive(Debug)]
pub struct DetectionDataset {
    classes: Vec<String>,
    samples: Vec<LabelledImage>,
    files: Whole,
    parts: Parts,
    size: usize,
    mean: [f32; 3],
    std: [f32; 3],
    /// Every frame; `None` if they are too many to hold in memory.
    kept: Option<Vec<Arc<Frame>>>,
    skipped: Vec<Skipped>,
    notes: Vec<String>,
    /// Threads that make a batch together.
    workers: usize,
}

/// The classes and sizes of a data set, found by decoding at most one image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetectionOutline {
    /// Names of the classes, in label order.
    pub classes: Vec<String>,
    /// Height and width of every frame.
    pub size: usize,
    /// DetectionDataset of training, validation and test.
    pub counts: [u64; 3],
}

impl DetectionOutline {
    /// Lists the data at `path` as [`DetectionDataset::open`] does.
    pub fn of(spec: &Data, path: &Path, seed: u64) -> Result<DetectionOutline, Error> {
        let listing = labels::read(path)?;
        check_classes(spec, &listing)?;
        let counts = divide(spec, path, &listing.samples, seed)?.each_ref().map(|part| part.len() as u64);
        Ok(DetectionOutline {
            size: size(spec, &Whole::below(path), &listing.samples)?,
            classes: listing.classes,
            counts,
        })
    }
}

impl DetectionDataset {
    /// Opens the samples at `path`: a COCO JSON file or a folder that holds one, or a folder with `images` and `labels`
    /// in YOLO format.
    ///
    /// # Errors
    /// If the labels are malformed, or an image cannot be read and `corrupt: skip` is not set.
    pub fn open(spec: &Data, path: &Path, seed: u64) -> Result<DetectionDataset, Error> {
        DetectionDataset::open_known(spec, path, seed, &mut Provenance::unknown())
    }

    /// Opens the data of a run and compares it with the data that the run was trained on.
    ///
    /// # Errors
    /// Also [`Error::Changed`] if the data differs and the change is not accepted.
    pub fn open_known(
        spec: &Data,
        path: &Path,
        seed: u64,
        provenance: &mut Provenance,
    ) -> Result<DetectionDataset, Error> {
        DetectionDataset::of(labels::read(path)?, spec, path, seed, provenance)
    }

    /// Opens data to evaluate a model with these classes on: all of it is [`Part::Train`], and its classes are indices
    /// into `classes`.
    ///
    /// # Errors
    /// [`Error::UnknownClasses`], and those of [`DetectionDataset::open`].
    pub fn open_for_model(spec: &Data, path: &Path, classes: &[String]) -> Result<DetectionDataset, Error> {
        let all = Data { split: Split::Shares([1.0, 0.0, 0.0]), ..spec.clone() };
        let mut listing = labels::read(path)?;
        let indices = places_of(&listing.classes, classes)?;
        for sample in &mut listing.samples {
            let boxes = sample.boxes.iter_mut().chain(sample.aside.iter_mut().map(|(marked, _)| marked));
            boxes.for_each(|marked| marked.class = indices[marked.class as usize]);
        }
        listing.classes = classes.to_vec();
        DetectionDataset::of(listing, &all, path, 0, &mut Provenance::unknown())
    }

    fn of(
        listing: Listing,
        spec: &Data,
        path: &Path,
        seed: u64,
        provenance: &mut Provenance,
    ) -> Result<DetectionDataset, Error> {
        check_classes(spec, &listing)?;
        let Listing { classes, mut samples, notes } = listing;
        let files = Whole::below(path);
        let size = size(spec, &files, &samples)?;
        let (mut kept, mut skipped) = (None, Vec::new());
        let fits = samples.len().checked_mul(3 * size * size).is_some_and(|bytes| bytes <= KEPT);
        if fits || spec.corrupt == Corrupt::Skip {
            let mut frames = Vec::new();
            let mut readable = Vec::new();
            let read = survey(&files, &samples, size, fits, &provenance.preparation());
            for (sample, result) in samples.into_iter().zip(read) {
                match result {
                    Ok(frame) => {
                        frames.extend(frame);
                        readable.push(sample);
                    }
                    Err(Error::Image { name, why }) if spec.corrupt == Corrupt::Skip => {
                        skipped.push(Skipped { name, why });
                    }
                    Err(error) => return Err(error),
                }
            }
            samples = readable;
            kept = fits.then_some(frames);
        }
        let rule = match spec.split {
            Split::Shares(shares) => Rule::Shares(shares),
            Split::Folders(_) => Rule::AsDrawn,
        };
        let list = |reads: Reads<'_>| list(&files, path, &samples, reads);
        let parts = provenance.divide(&classes, divide(spec, path, &samples, seed)?, rule, seed, list)?;
        let (mean, std) = normalize(spec)?;
        let workers = (spec.workers as usize).max(1);
        Ok(DetectionDataset { classes, samples, files, parts, size, mean, std, kept, skipped, notes, workers })
    }

    /// Names of the classes, in label order: by the number that the file gives them.
    pub fn classes(&self) -> &[String] {
        &self.classes
    }

    /// DetectionDataset of training, validation and test.
    pub fn counts(&self) -> [u64; 3] {
        self.parts.each_ref().map(|part| part.len() as u64)
    }

    /// Height and width of every frame in pixels.
    pub fn size(&self) -> usize {
        self.size
    }

    /// What values in 0–1 are shifted by, for each channel.
    pub fn mean(&self) -> &[f32] {
        &self.mean
    }

    /// Divisor of the values after the mean is subtracted.
    pub fn std(&self) -> &[f32] {
        &self.std
    }

    /// Images that `corrupt: skip` skipped.
    pub fn skipped(&self) -> &[Skipped] {
        &self.skipped
    }

    /// Remarks about the labels, a sentence each.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The file of the image at a position in a part.
    pub fn file(&self, part: Part, position: u64) -> Option<&Path> {
        let sample = *self.part(part).get(usize::try_from(position).ok()?)?;
        Some(&self.samples[sample as usize].file)
    }

    fn part(&self, part: Part) -> &[u32] {
        &self.parts[part as usize]
    }

    fn frame(&self, sample: u32) -> Result<Arc<Frame>, Error> {
        match &self.kept {
            Some(frames) => Ok(Arc::clone(&frames[sample as usize])),
            None => Ok(Arc::new(read(&self.files, &self.samples[sample as usize], self.size)?)),
        }
    }
}

/// Reads one image and letterboxes it and its boxes into a frame.
fn read(files: &Whole, sample: &LabelledImage, size: usize) -> Result<Frame, Error> {
    let refused = |why| Error::Image { name: sample.file.display().to_string(), why };
    let bytes = bytes_of(files, &sample.file)?;
    let image = decode_once(&bytes).map_err(refused)?;
    check_extent(&image, sample).map_err(refused)?;
    Ok(Frame::of(&image, sample, size))
}

fn bytes_of(files: &Whole, file: &Path) -> Result<Vec<u8>, Error> {
    let mut bytes = Vec::new();
    let name = || file.display().to_string();
    let read = files.read(file, LARGEST_FILE + 1, AccessTime::SOME_TIME, &mut bytes);
    read.map_err(|source| Error::Read { name: name(), source })?;
    check_length(bytes.len()).map_err(|why| Error::Image { name: name(), why: why.into() })?;
    Ok(bytes)
}

/// Reads every image on all cores, in order; also the frames, if they are held in memory.
fn survey(
    files: &Whole,
    samples: &[LabelledImage],
    size: usize,
    keep: bool,
    preparation: &Preparation,
) -> Vec<Result<Option<Arc<Frame>>, Error>> {
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let share = samples.len().div_ceil(threads).max(1);
    thread::scope(|scope| {
        let work = |samples: &[LabelledImage]| -> Vec<_> {
            let frame = |sample: &LabelledImage| {
                preparation.advance(1);
                read(files, sample, size).map(|frame| keep.then(|| Arc::new(frame)))
            };
            samples.iter().map(frame).collect()
        };
        let running: Vec<_> = samples.chunks(share).map(|samples| scope.spawn(move || work(samples))).collect();
        let failed = || vec![Err(Error::Internal("a thread that reads images ended".into()))];
        running.into_iter().flat_map(|thread| thread.join().unwrap_or_else(|_| failed())).collect()
    })
}

/// The samples by name, with their boxes; their contents where `reads` allows it and they are here.
fn list(files: &Whole, root: &Path, samples: &[LabelledImage], reads: Reads<'_>) -> Result<SampleList, Error> {
    let root = if root.is_dir() { root } else { root.parent().unwrap_or(root) };
    let name = |sample: &LabelledImage| sample.file.strip_prefix(root).unwrap_or(&sample.file).display().to_string();
    let boxes = |sample: &LabelledImage| hash(format!("{:?} {:?}", sample.home, sample.boxes).as_bytes());
    let names = samples.iter().map(name).collect();
    let targets = samples.iter().map(boxes).collect();
    SampleList::of_files(names, targets, files.client(), reads, |sample| &samples[sample].file)
}

fn check_classes(spec: &Data, listing: &Listing) -> Result<(), Error> {
    let found = listing.classes.len();
    match spec.classes {
        Some(expected) if expected as usize != found => {
            Err(Error::Classes { found, wanted: expected, names: listing.classes.clone() })
        }
        Some(_) | None => Ok(()),
    }
}

/// The given size, or that of the first image's longer side, up to the default, rounded to [`CELL`].
fn size(spec: &Data, files: &Whole, samples: &[LabelledImage]) -> Result<usize, Error> {
    if let Some(size) = spec.size {
        return Ok(size as usize);
    }
    let Some(first) = samples.first() else { return Ok(USUAL_SIZE) };
    let name = first.file.display().to_string();
    match decode_once(&bytes_of(files, &first.file)?) {
        Ok(image) => Ok(image.height.max(image.width).next_multiple_of(CELL).min(USUAL_SIZE)),
        Err(_) if spec.corrupt == Corrupt::Skip => Ok(USUAL_SIZE),
        Err(why) => Err(Error::Image { name, why }),
    }
}

fn divide(spec: &Data, path: &Path, samples: &[LabelledImage], seed: u64) -> Result<Parts, Error> {
    match spec.split {
        Split::Shares(shares) => split::by_shares(samples.len(), shares, seed),
        Split::Folders(_) => {
            let homes: Option<Vec<Part>> = samples.iter().map(|sample| sample.home).collect();
            let homes = homes.ok_or_else(|| {
                let why = format!("the labels in `{}` do not say which images are for what", path.display());
                let hint = "name label files or folders `train`, `val` and `test`, or leave `split: folders` out";
                Error::Split { why, hint: hint.into() }
            })?;
            split::by_homes(&homes, seed)
        }
    }
}

/// Values of 0–1 are not normalized by default, as is usual for detectors.
fn normalize(spec: &Data) -> Result<([f32; 3], [f32; 3]), Error> {
    let Some(given) = &spec.normalize else { return Ok(([0.0; 3], [1.0; 3])) };
    let three = |values: &[f32]| <[f32; 3]>::try_from(values).ok();
    match (three(&given.mean), three(&given.std)) {
        (Some(mean), Some(std)) if std.iter().all(|value| *value > 0.0) => Ok((mean, std)),
        (_, _) => Err(Error::Normalize { why: "images have three channels, and each `std` is above 0".into() }),
    }
}
