//! The loader of images with boxes for Python.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use data::{Cursor, DataIdentity, DetectionBatch, DetectionDataset, DetectionLoader, Part, Provenance, RankShare};
use domain::train::{Augment, Corrupt, Data};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use store::{Access, Limits, Meter};

use crate::augment::augmentations;
use crate::dlpack::BatchTensor;
use crate::loader::{interruptible, normalize, of_images, part_named, plain_spec, share_of, with_hint};

/// A stream of batches of images with boxes that can seek.
#[pyclass(name = "DetectionLoader", frozen)]
pub struct PyDetectionLoader {
    dataset: Arc<DetectionDataset>,
    part: Part,
    batch: usize,
    share: RankShare,
    seed: u64,
    augment: Vec<Augment>,
    running: Mutex<DetectionLoader>,
    identity: DataIdentity,
    digest: OnceLock<String>,
}

/// Images; edges and classes of all boxes; how many boxes each image has; and the cursor after the batch.
type NextDetection = (BatchTensor, BatchTensor, BatchTensor, Vec<usize>, u64, u64);

#[pymethods]
impl PyDetectionLoader {
    /// Opens the data and reads its labels; data at an address is fetched into `cache` first.
    #[new]
    #[pyo3(signature = (uri, batch, *, rank, world, seed, workers, size, augment, part, split, mean, std, skip_corrupt,
        cache, environment))]
    #[allow(clippy::too_many_arguments)] // They are the keywords of a Python call.
    fn new(
        py: Python<'_>,
        uri: String,
        batch: usize,
        rank: u32,
        world: u32,
        seed: u64,
        workers: u32,
        size: Option<u32>,
        augment: &str,
        part: &str,
        split: Option<[f64; 3]>,
        mean: Option<Vec<f32>>,
        std: Option<Vec<f32>>,
        skip_corrupt: bool,
        cache: PathBuf,
        environment: HashMap<String, String>,
    ) -> PyResult<PyDetectionLoader> {
        let (part, share) = (part_named(part)?, share_of(rank, world, batch)?);
        let augment = augmentations(augment)?;
        if augment.iter().any(|augment| !matches!(augment, Augment::Flip | Augment::Mosaic)) {
            return Err(PyValueError::new_err("images with boxes are augmented by `flip` and `mosaic`"));
        }
        if size.is_some_and(|size| !(32..=4096).contains(&size)) {
            return Err(PyValueError::new_err("`size` is 32 to 4096 pixels"));
        }
        let normalize = if mean.is_some() || std.is_some() { Some(normalize(mean, std)?) } else { None };
        let corrupt = if skip_corrupt { Corrupt::Skip } else { Corrupt::Fail };
        let spec = Data { normalize, size, corrupt, workers, ..plain_spec(&uri, split) };
        let access = Access::gather(|name| environment.get(name).cloned());
        let opened = interruptible(py, move || open(&uri, &spec, seed, &cache, &access))?;
        let (dataset, identity) = opened.map_err(PyRuntimeError::new_err)?;
        let dataset = Arc::new(dataset);
        let running = Mutex::new(start(&dataset, part, batch, (seed, &augment[..]), share, Cursor::START));
        let digest = OnceLock::new();
        Ok(PyDetectionLoader { dataset, part, batch, share, seed, augment, running, identity, digest })
    }

    /// The next batch of this rank, or `None` after the last one.
    fn next(&self, py: Python<'_>) -> PyResult<Option<NextDetection>> {
        let next = py.detach(|| self.running.lock().unwrap_or_else(PoisonError::into_inner).next());
        let next = next.transpose().map_err(|error| PyRuntimeError::new_err(of_images(&error)))?;
        let Some(batch) = next else { return Ok(None) };
        let DetectionBatch { images, objects, size, cursor_after, .. } = batch;
        let counts: Vec<usize> = objects.iter().map(Vec::len).collect();
        let objects = objects.concat();
        let edges: Vec<f32> = objects.iter().flat_map(|object| object.edges).collect();
        let classes: Vec<i64> = objects.iter().map(|object| i64::from(object.class)).collect();
        let images = BatchTensor::floats(images, vec![counts.len(), 3, size, size]);
        let edges = BatchTensor::floats(edges, vec![objects.len(), 4]);
        let classes = BatchTensor::integers(classes, vec![objects.len()]);
        Ok(Some((images, edges, classes, counts, cursor_after.epoch, cursor_after.pos)))
    }

    /// Discards prepared batches and seeks to a cursor.
    fn go_to(&self, py: Python<'_>, epoch: u64, pos: u64) -> PyResult<()> {
        if pos > 0 && pos >= self.samples() {
            let samples = self.samples();
            return Err(PyValueError::new_err(format!("sample {pos} is not among the {samples} of this data set")));
        }
        py.detach(|| {
            let of = (self.seed, &self.augment[..]);
            let fresh = start(&self.dataset, self.part, self.batch, of, self.share, Cursor { epoch, pos });
            // The thread of the one before ends here, without Python's lock.
            drop(std::mem::replace(&mut *self.running.lock().unwrap_or_else(PoisonError::into_inner), fresh));
        });
        Ok(())
    }

    /// Samples of this part, of all ranks.
    #[getter]
    fn samples(&self) -> u64 {
        self.dataset.counts()[self.part as usize]
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

    /// Whether batches are shuffled, augmented and never end.
    #[getter]
    fn trains(&self) -> bool {
        self.part == Part::Train
    }

    /// Height and width of every image in a batch.
    #[getter]
    fn size(&self) -> usize {
        self.dataset.size()
    }
}

fn open(
    uri: &str,
    spec: &Data,
    seed: u64,
    cache: &std::path::Path,
    access: &Access,
) -> Result<(DetectionDataset, DataIdentity), String> {
    let staged = store::stage(uri, cache, access, Limits::attended(), &Meter::default());
    let staged = staged.map_err(|error| with_hint(&error, error.hint()))?;
    let mut provenance = Provenance::of_run(None, false, false);
    let dataset = DetectionDataset::open_known(spec, &staged.path, seed, &mut provenance);
    let dataset = dataset.map_err(|error| of_images(&error))?;
    let identity = provenance.found().cloned().ok_or("the data was opened without listing its samples")?;
    Ok((dataset, identity))
}

fn start(
    dataset: &Arc<DetectionDataset>,
    part: Part,
    batch: usize,
    (seed, augment): (u64, &[Augment]),
    share: RankShare,
    from: Cursor,
) -> DetectionLoader {
    let dataset = Arc::clone(dataset);
    match part {
        Part::Train => DetectionLoader::train(dataset, batch, seed, augment, from, u64::MAX, share),
        // Evaluation is one pass; every epoch of it is the same.
        Part::Validation | Part::Test => DetectionLoader::evaluate_from(dataset, part, batch, share, from.pos),
    }
}
