//! The loader of texts for Python: rows of token ids, packed documents for the next token, or a text per row.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use data::{Cursor, DataIdentity, Part, Provenance, RankShare, TextBatch, TextDataset, TextLoader, TextObjective};
use domain::train::{Data, Documents, Text};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::prelude::*;
use store::{Access, Limits, Meter};

use crate::dlpack::BatchTensor;
use crate::loader::{interruptible, part_named, plain_spec, share_of, unknown, with_hint};

/// A stream of batches of token ids that can seek.
#[pyclass(name = "TextLoader", frozen)]
pub struct PyTextLoader {
    texts: Arc<TextDataset>,
    part: Part,
    batch: usize,
    share: RankShare,
    seed: u64,
    running: Mutex<TextLoader>,
    identity: DataIdentity,
    digest: OnceLock<String>,
}

/// Tensors by name, and the cursor after the batch.
type NextText = (Vec<(&'static str, BatchTensor)>, u64, u64);

/// What is to be opened.
struct Opening {
    uri: String,
    spec: Data,
    keys: Text,
    goal: TextObjective,
    seed: u64,
    cache: PathBuf,
    access: Access,
}

#[pymethods]
impl PyTextLoader {
    /// Opens the texts and tokenizes them; data at an address is fetched into `cache` first.
    #[new]
    #[pyo3(signature = (uri, batch, *, rank, world, seed, goal, columns, label, pair, length, tokenizer, vocabulary,
        documents, part, split, cache, environment))]
    #[allow(clippy::too_many_arguments)] // They are the keywords of a Python call.
    fn new(
        py: Python<'_>,
        uri: String,
        batch: usize,
        rank: u32,
        world: u32,
        seed: u64,
        goal: &str,
        columns: Vec<String>,
        label: Option<String>,
        pair: Option<String>,
        length: u32,
        tokenizer: Option<String>,
        vocabulary: u32,
        documents: &str,
        part: &str,
        split: Option<[f64; 3]>,
        cache: PathBuf,
        environment: HashMap<String, String>,
    ) -> PyResult<PyTextLoader> {
        let (goal, part, share) =
            (goal_named(goal, label.is_some())?, part_named(part)?, share_of(rank, world, batch)?);
        if length < 2 {
            return Err(PyValueError::new_err("`length` is at least 2 tokens"));
        }
        let documents = match documents {
            "together" => Documents::Together,
            "apart" => Documents::Apart,
            other => return Err(unknown("value of `documents`", other, &["together", "apart"])),
        };
        let keys = Text { columns, label, pair, length, tokenizer, vocabulary, documents };
        let access = Access::gather(|name| environment.get(name).cloned());
        let spec = plain_spec(&uri, split);
        let opening = Opening { uri, spec, keys, goal, seed, cache, access };
        let (texts, identity) = interruptible(py, move || open(&opening))?.map_err(PyRuntimeError::new_err)?;
        let texts = Arc::new(texts);
        let running = Mutex::new(start(&texts, part, batch, seed, share, Cursor::START));
        Ok(PyTextLoader { texts, part, batch, share, seed, running, identity, digest: OnceLock::new() })
    }

    /// The next batch of this rank, or `None` after the last one.
    fn next(&self, py: Python<'_>) -> PyResult<Option<NextText>> {
        let next = py.detach(|| self.running.lock().unwrap_or_else(PoisonError::into_inner).next());
        let next = next.transpose().map_err(|error| PyRuntimeError::new_err(with_hint(&error, error.hint())))?;
        let Some(batch) = next else { return Ok(None) };
        let TextBatch { tokens, mask, places, labels, rows, length, cursor_after, .. } = batch;
        let shape = || vec![rows, length];
        let of_labels = if self.texts.goal() == TextObjective::Class { vec![rows] } else { shape() };
        let mut tensors = vec![
            ("input_ids", BatchTensor::integers(tokens, shape())),
            ("targets", BatchTensor::integers(labels, of_labels)),
        ];
        if let Some(mask) = mask {
            let mask = mask.into_iter().map(i64::from).collect();
            tensors.push(("attention_mask", BatchTensor::integers(mask, shape())));
        }
        if let Some(places) = places {
            tensors.push(("position_ids", BatchTensor::integers(places, shape())));
        }
        Ok(Some((tensors, cursor_after.epoch, cursor_after.pos)))
    }

    /// Seeks to a cursor.
    fn go_to(&self, py: Python<'_>, epoch: u64, pos: u64) -> PyResult<()> {
        if pos > 0 && pos >= self.samples() {
            let samples = self.samples();
            return Err(PyValueError::new_err(format!("row {pos} is not among the {samples} of this data set")));
        }
        py.detach(|| {
            let fresh = start(&self.texts, self.part, self.batch, self.seed, self.share, Cursor { epoch, pos });
            *self.running.lock().unwrap_or_else(PoisonError::into_inner) = fresh;
        });
        Ok(())
    }

    /// Rows of this part, of all ranks.
    #[getter]
    fn samples(&self) -> u64 {
        self.texts.counts()[self.part as usize]
    }

    /// The digest of the data's identity, as in a checkpoint of a run on the same data and split.
    #[getter]
    fn identity(&self) -> String {
        self.digest.get_or_init(|| self.identity.digest()).clone()
    }

    /// Names of the classes, in label order; none unless the goal is the class.
    #[getter]
    fn classes(&self) -> Vec<String> {
        self.texts.classes().to_vec()
    }

    /// Whether rows are shuffled and never end.
    #[getter]
    fn trains(&self) -> bool {
        self.part == Part::Train
    }

    /// The size of the vocabulary; every token id is less than it.
    #[getter]
    fn vocabulary(&self) -> usize {
        self.texts.vocabulary()
    }

    /// The tokenizer as a `tokenizer.json`.
    #[getter]
    fn tokenizer(&self) -> String {
        self.texts.tokenizer().to_owned()
    }
}

fn open(opening: &Opening) -> Result<(TextDataset, DataIdentity), String> {
    let Opening { uri, spec, keys, goal, seed, cache, access } = opening;
    let staged = store::stage(uri, cache, access, Limits::attended(), &Meter::default());
    let staged = staged.map_err(|error| with_hint(&error, error.hint()))?;
    let tokens: &Path = &cache.join("tokens");
    let mut provenance = Provenance::of_run(None, false, false);
    let texts = TextDataset::open_known(spec, keys, *goal, &staged.path, *seed, Some(tokens), &mut provenance);
    let texts = texts.map_err(|error| with_hint(&error, error.hint()))?;
    let identity = provenance.found().cloned().ok_or("the data was opened without listing its samples")?;
    Ok((texts, identity))
}

fn start(texts: &Arc<TextDataset>, part: Part, batch: usize, seed: u64, share: RankShare, from: Cursor) -> TextLoader {
    let texts = Arc::clone(texts);
    match part {
        Part::Train => TextLoader::train(texts, batch, seed, from, u64::MAX).shared(share),
        // Evaluation is one pass; every epoch of it is the same.
        Part::Validation | Part::Test => TextLoader::evaluate_from(texts, part, batch, seed, from.pos).shared(share),
    }
}

fn goal_named(name: &str, has_label: bool) -> PyResult<TextObjective> {
    match (name, has_label) {
        ("next", _) => Ok(TextObjective::Next),
        ("masked", _) => Ok(TextObjective::Masked),
        ("class", true) => Ok(TextObjective::Class),
        ("class", false) => Err(PyValueError::new_err("for the goal `class`, `label` names the column of the class")),
        (other, _) => Err(unknown("goal", other, &["next", "masked", "class"])),
    }
}
