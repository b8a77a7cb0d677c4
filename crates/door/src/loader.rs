//! The loader's Python class: opens data, returns the next batch, and seeks to a cursor.

use std::collections::HashMap;
use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use data::recipe::{NAMES, TransformPreset};
use data::{BatchDtype, Cursor, DataIdentity, Dataset, Loader, LoaderOptions, Part, Provenance, RankShare};
use domain::train::{Augment, Corrupt, Data, MemoryFormat, Normalize, Split};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use store::{Access, Limits, Meter};

use crate::augment::augmentations;
use crate::dlpack::{BatchTensor, Place};

/// A stream of batches that can seek.
#[pyclass(name = "Loader", frozen)]
pub struct PyLoader {
    dataset: Arc<Dataset>,
    part: Part,
    train: bool,
    options: LoaderOptions,
    running: Mutex<Loader>,
    /// The samples and their split, without the contents of files.
    identity: DataIdentity,
    /// Its digest, computed once, on demand.
    digest: OnceLock<String>,
}

/// A batch as Python gets it: values, labels, and the cursor after it.
type Next = (BatchTensor, BatchTensor, u64, u64);

/// The environment variables that hold credentials and endpoints.
#[pyfunction]
pub fn variables() -> Vec<&'static str> {
    store::VARIABLES.to_vec()
}

#[pymethods]
impl PyLoader {
    /// Opens the data; one at an address is fetched into `cache` first.
    #[new]
    #[pyo3(signature = (uri, recipe, batch, *, rank, world, pad, seed, workers, size, numbers, channels_last, part, split,
        mean, std, skip_corrupt, augment, cache, environment))]
    #[allow(clippy::too_many_arguments)] // They are the keywords of a Python call.
    fn new(
        py: Python<'_>,
        uri: String,
        recipe: &str,
        batch: usize,
        rank: u32,
        world: u32,
        pad: bool,
        seed: u64,
        workers: usize,
        size: Option<u32>,
        numbers: &str,
        channels_last: bool,
        part: &str,
        split: Option<[f64; 3]>,
        mean: Option<Vec<f32>>,
        std: Option<Vec<f32>>,
        skip_corrupt: bool,
        augment: Option<&str>,
        cache: PathBuf,
        environment: HashMap<String, String>,
    ) -> PyResult<PyLoader> {
        let mut preset = TransformPreset::named(recipe, size).ok_or_else(|| unknown("recipe", recipe, &NAMES))?;
        if let Some(augment) = augment {
            preset.augment = augmented(recipe, &preset, augment)?;
        }
        let part = part_named(part)?;
        let share = share_of(rank, world, batch)?;
        let share = if pad { share.padded() } else { share };
        let options = LoaderOptions {
            batch,
            share,
            seed,
            workers,
            layout: if channels_last { MemoryFormat::ChannelsLast } else { MemoryFormat::Contiguous },
            numbers: dtype_named(numbers)?,
            augment: preset.augment.clone(),
            sampling: domain::train::Sampling::Shuffle,
        };
        let spec = Data {
            augment: preset.augment,
            normalize: Some(normalize(mean, std)?),
            size: Some(preset.size),
            corrupt: if skip_corrupt { Corrupt::Skip } else { Corrupt::Fail },
            ..plain_spec(&uri, split)
        };
        let access = Access::gather(|name| environment.get(name).cloned());
        let opened = interruptible(py, move || open(&uri, &spec, seed, &cache, &access))?;
        let (dataset, identity) = opened.map_err(PyRuntimeError::new_err)?;
        let train = part == Part::Train && !preset.evaluation;
        let dataset = Arc::new(dataset);
        let running = Mutex::new(start(&dataset, part, train, &options, Cursor::START));
        Ok(PyLoader { dataset, part, train, options, running, identity, digest: OnceLock::new() })
    }

    /// The next batch of this rank, or `None` after the last one. Ctrl-C ends the wait; progress on the batch is
    /// retained.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Next>> {
        let next = loop {
            let next = py.detach(|| {
                let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
                running.next_by(Instant::now() + UNTIL_SIGNALS)
            });
            match next {
                Poll::Ready(next) => break next,
                Poll::Pending => py.check_signals()?,
            }
        };
        let Some(batch) = next.transpose().map_err(|error| PyRuntimeError::new_err(of_images(&error)))? else {
            return Ok(None);
        };
        let (after, len) = (batch.cursor_after(), batch.len());
        let [channels, height, width] = [self.dataset.channels(), self.dataset.height(), self.dataset.width()];
        let shape = match self.options.layout {
            MemoryFormat::Contiguous => vec![len, channels, height, width],
            MemoryFormat::ChannelsLast => vec![len, height, width, channels],
        };
        let batch = Arc::new(batch);
        let images = BatchTensor::new(Arc::clone(&batch), Place::Images, shape);
        Ok(Some((images, BatchTensor::new(batch, Place::Labels, vec![len]), after.epoch, after.pos)))
    }

    /// Discards prepared batches and seeks to a cursor.
    fn go_to(&self, py: Python<'_>, epoch: u64, pos: u64) -> PyResult<()> {
        if pos > 0 && pos >= self.samples() {
            let samples = self.samples();
            return Err(PyValueError::new_err(format!("sample {pos} is not among the {samples} of this data set")));
        }
        py.detach(|| {
            let from = Cursor { epoch, pos };
            let fresh = start(&self.dataset, self.part, self.train, &self.options, from);
            // The threads of the one before end here, without Python's lock.
            drop(std::mem::replace(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner), fresh));
        });
        Ok(())
    }

    /// Samples of this part, of all ranks.
    #[getter]
    fn samples(&self) -> u64 {
        self.dataset.count(self.part)
    }

    /// The digest of the data's identity, as in a checkpoint of a run on the same data and split.
    #[getter]
    fn identity(&self) -> String {
        self.digest.get_or_init(|| self.identity.digest()).clone()
    }

    /// Names of the classes, in label order.
    #[getter]
    fn classes(&self) -> Vec<String> {
        self.dataset.classes().to_vec()
    }

    /// Whether the images of its batches are mixed with each other.
    #[getter]
    fn mixes(&self) -> bool {
        self.running.lock().unwrap_or_else(PoisonError::into_inner).mixes()
    }

    /// What messages call the sample at a position of an epoch: its path, or its number.
    fn name(&self, epoch: u64, pos: u64) -> String {
        let place = match self.train && pos < self.samples() {
            true => self.dataset.order(self.part, self.options.sampling, self.options.seed).at(epoch, pos),
            false => pos,
        };
        let sample = usize::try_from(place).ok().and_then(|place| self.dataset.part(self.part).get(place));
        sample.map_or_else(|| format!("at position {pos}"), |sample| self.dataset.name(*sample))
    }

    /// Whether batches are shuffled, augmented and never end.
    #[getter]
    fn trains(&self) -> bool {
        self.train
    }

    /// Totals: samples made, seconds of all threads, bytes read, batches that are ready.
    #[getter]
    fn measured(&self) -> (u64, f64, u64, usize) {
        let measured = self.running.lock().unwrap_or_else(PoisonError::into_inner).measured();
        (measured.samples, measured.busy.as_secs_f64(), measured.read, measured.ready)
    }
}

/// What is read of data, but for the form of its samples.
pub(crate) fn plain_spec(uri: &str, split: Option<[f64; 3]>) -> Data {
    Data {
        path: uri.to_owned(),
        split: split.map_or(Split::Folders(domain::train::Folders::Folders), Split::Shares),
        classes: None,
        labels: domain::train::Labels::Class,
        text: None,
        sampling: domain::train::Sampling::Shuffle,
        augment: Vec::new(),
        normalize: None,
        size: None,
        corrupt: Corrupt::Fail,
        workers: 1,
        cache: None,
        preload: None,
        trained_on: None,
    }
}

/// A rank's share of batches of so many samples.
pub(crate) fn share_of(rank: u32, world: u32, batch: usize) -> PyResult<RankShare> {
    let share = RankShare::new(rank, world);
    let share = share
        .ok_or_else(|| PyValueError::new_err(format!("there is no rank {rank} of {world}; ranks count from 0")))?;
    check_batch(batch, world)?;
    Ok(share)
}

/// The augmentations that take the place of a recipe's.
fn augmented(recipe: &str, preset: &TransformPreset, augment: &str) -> PyResult<Vec<Augment>> {
    let augment = augmentations(augment)?;
    if preset.evaluation {
        let why = format!("`{recipe}` is for evaluation, which augments nothing; leave `augment` out, or name another");
        return Err(PyValueError::new_err(why));
    }
    match augment.contains(&Augment::Mosaic) {
        true => Err(PyValueError::new_err("`mosaic` is for detection: gradus.DetectionLoader")),
        false => Ok(augment),
    }
}

/// How long Python's signal handlers wait at most, such as the one of Ctrl-C.
const UNTIL_SIGNALS: Duration = Duration::from_millis(100);

/// Runs slow work on a separate thread, so that Ctrl-C ends the wait for it; the thread is then detached.
pub(crate) fn interruptible<T: Send + 'static>(
    py: Python<'_>,
    work: impl FnOnce() -> T + Send + 'static,
) -> PyResult<T> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || sender.send(work()));
    // A receiver is not `Sync`, and the closure runs without the GIL.
    let receiver = Mutex::new(receiver);
    loop {
        let waited = py.detach(|| receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(UNTIL_SIGNALS));
        match waited {
            Ok(done) => return Ok(done),
            Err(RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(RecvTimeoutError::Disconnected) => {
                return Err(PyRuntimeError::new_err("a panic while the data was opened"));
            }
        }
    }
}

/// Opens the data, and lists its samples without reading them.
fn open(uri: &str, spec: &Data, seed: u64, cache: &Path, access: &Access) -> Result<(Dataset, DataIdentity), String> {
    let staged = store::stage(uri, cache, access, Limits::attended(), &Meter::default());
    let staged = staged.map_err(|error| with_hint(&error, error.hint()))?;
    let mut provenance = Provenance::of_run(None, false, false);
    let dataset = Dataset::open_known(spec, &staged.path, seed, &mut provenance);
    let dataset = dataset.map_err(|error| of_images(&error))?;
    let identity = provenance.found().cloned().ok_or("the data was opened without listing its samples")?;
    Ok((dataset, identity))
}

/// A batch is of all ranks together: one that is smaller than their number would leave some without a sample in every step.
fn check_batch(batch: usize, world: u32) -> PyResult<()> {
    if batch == 0 {
        return Err(PyValueError::new_err("a batch has at least one sample"));
    }
    if batch < world as usize {
        let why = format!(
            "a batch of {batch} cannot be shared by {world} ranks\nhint: `batch` counts the samples of all ranks together; of \
             PyTorch's `batch_size`, which counts those of one, it is `world` times as many"
        );
        return Err(PyValueError::new_err(why));
    }
    Ok(())
}

fn dtype_named(name: &str) -> PyResult<BatchDtype> {
    match name {
        "f32" => Ok(BatchDtype::F32),
        "bf16" => Ok(BatchDtype::Bf16),
        "u8" => Ok(BatchDtype::U8),
        other => Err(unknown("dtype", other, &["f32", "bf16", "u8"])),
    }
}

pub(crate) fn part_named(name: &str) -> PyResult<Part> {
    match name {
        "train" => Ok(Part::Train),
        "val" => Ok(Part::Validation),
        "test" => Ok(Part::Test),
        other => Err(unknown("part", other, &["train", "val", "test"])),
    }
}

/// The given mean and standard deviation, or those of ImageNet.
pub(crate) fn normalize(mean: Option<Vec<f32>>, std: Option<Vec<f32>>) -> PyResult<Normalize> {
    match (mean, std) {
        (None, None) => Ok(Normalize { mean: vec![0.485, 0.456, 0.406], std: vec![0.229, 0.224, 0.225] }),
        (Some(mean), Some(std)) if mean.len() == std.len() && std.iter().all(|std| *std > 0.0) => {
            Ok(Normalize { mean, std })
        }
        _ => {
            let why = "give `mean` and `std` together, one number per channel, `std` above 0";
            Err(PyValueError::new_err(why))
        }
    }
}

fn start(dataset: &Arc<Dataset>, part: Part, train: bool, options: &LoaderOptions, from: Cursor) -> Loader {
    match train {
        true => Loader::train(Arc::clone(dataset), options.clone(), from, u64::MAX),
        // Evaluation is one pass; every epoch of it is the same.
        false => Loader::evaluate_from(Arc::clone(dataset), part, options.clone(), from.pos),
    }
}

/// An error and its hint, as one text.
pub(crate) fn with_hint(error: &dyn Display, hint: Option<String>) -> String {
    match hint {
        Some(hint) => format!("{error}\nhint: {hint}"),
        None => error.to_string(),
    }
}

/// An error of a loader of images and its hint, in the words of its keywords.
pub(crate) fn of_images(error: &data::Error) -> String {
    let hint = match error {
        data::Error::Image { .. } => {
            Some("replace the file, or leave such images out with `skip_corrupt=True`".to_owned())
        }
        data::Error::Line { .. } => {
            Some("correct the line, or leave such lines out with `skip_corrupt=True`".to_owned())
        }
        other => other.hint(),
    };
    with_hint(error, hint)
}

pub(crate) fn unknown(what: &str, found: &str, known: &[&str]) -> PyErr {
    PyValueError::new_err(format!("the {what} `{found}` is not known; write one of {}", known.join(", ")))
}
