//! An exported model scored on data, as a run scores its test split: by the same loader, batches, network and sums.
//!
//! On the run's own data the samples are those of its test split, by the list that its checkpoints hold, so that the
//! figures are the run's own; data that has changed since is refused. Of other data every sample is scored.

mod predictions;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use data::{DataIdentity, Dataset, DetectionDataset, Part, Provenance, TextDataset};
use domain::finding::{Cause, Finding};
use domain::rank::{Spec, TaskMetrics};
use domain::train::{Normalize, Parallel, Split, Task};
use serde::{Deserialize, Serialize};
use tch::Device;

use self::predictions::Predictions;
use super::evaluate::{LabelScore, evaluate_watched};
use crate::error::Error;
use crate::input::provenance::Recorded;
use crate::input::{TrainingData, objective};
use crate::model::{ImageShape, InputShape, ModelShape};
use crate::ranks::Ranks;
use crate::state::{InitialState, pretrained};
use crate::step::StepConfig;
use crate::torch;

/// The request.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Request {
    /// The run: its training specification, and the paths of its data, checkpoints and export.
    pub spec: Spec,
    /// Other data than the run's own, absolute.
    pub data: Option<String>,
    /// Whether images of another size than the model's are resized.
    pub resize: bool,
    /// Where the prediction of each sample is written, absolute.
    pub predictions: Option<PathBuf>,
}

/// How good the model is on the data.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Samples that were scored: images, or rows of text.
    pub samples: u64,
    /// Mean loss, without label smoothing.
    pub loss: f64,
    /// Share that is right; of boxes the mean average precision over overlaps of 0.5 to 0.95.
    pub accuracy: f64,
    /// What else was measured.
    pub figures: TaskMetrics,
    /// Names of the model's classes, in the order of its logits.
    pub classes: Vec<String>,
    /// Confusion matrix, one row per true class; empty above 1,000 classes.
    pub confusion: Vec<Vec<u64>>,
    /// Of each label, where a sample has any number of them.
    #[serde(default)]
    pub labels: Vec<LabelScore>,
    /// Notes such as skipped samples, a sentence each.
    pub notes: Vec<String>,
    /// Predictions that were written.
    pub predictions: u64,
}

/// The part of `model.json` that is needed here.
#[derive(Debug, Deserialize)]
struct Card {
    classes: Vec<String>,
    input: Input,
    threads: u32,
}

#[derive(Debug, Deserialize)]
struct Input {
    channels: Option<i64>,
    height: Option<i64>,
    width: Option<i64>,
    mean: Option<Vec<f32>>,
    std: Option<Vec<f32>>,
}

/// Scores the exported model of a run.
///
/// # Errors
/// When the model or the data cannot be read, or do not fit each other.
pub fn evaluate(request: Request, device: Device) -> Result<Evaluation, Error> {
    let Request { mut spec, data, resize, predictions } = request;
    let card = card(&Path::new(&spec.export).join("model.json"))?;
    let train = &mut spec.train;
    train.memory_format = Some(train.memory_format_on(device.is_cuda()));
    (train.processes, train.parallel, train.data.cache, train.data.preload) = (1, Parallel::default(), None, None);
    if let (Some(mean), Some(std)) = (&card.input.mean, &card.input.std) {
        train.data.normalize = Some(Normalize { mean: mean.clone(), std: std.clone() });
    }
    if resize && train.data.size.is_none() {
        train.data.size = card.input.height.and_then(|side| u32::try_from(side).ok());
    }
    let mut ranks = Ranks::rendezvous(&spec)?;
    let (data, part, notes) = match data {
        None => (own(&spec, &ranks)?, Part::Test, Vec::new()),
        Some(path) => {
            let (data, notes) = other(&mut spec, Path::new(&path), &card)?;
            (data, Part::Train, notes)
        }
    };
    let samples = data.counts()[part as usize];
    if samples == 0 {
        let finding = Finding::new(Cause::Job, "the run has no test split to evaluate the model on");
        return Err(finding.hint("name other data with `--data PATH`").into());
    }
    let shape = data.shape(&spec.train);
    check_input(shape, &card.input)?;
    torch::set_threads(card.threads.max(1));
    torch::set_deterministic(spec.train.deterministic)?;
    let config = StepConfig::of(&spec.train, device);
    config.format.settle(device)?;
    let mut initial = InitialState::fresh(&spec.train, shape, device, card.threads, &mut ranks)?;
    let weights = Path::new(&spec.export).join("model.safetensors");
    let weights = pretrained::open(&initial.network, &spec.train.model, &weights)?;
    if let Some(note) = weights.notes.get(1) {
        let message = format!("the exported model does not fit the data: {note}");
        return Err(Finding::new(Cause::Job, message).hint("give data with the classes of the model").into());
    }
    initial.start_from(weights, &ranks)?;
    let mut writer = Predictions::new(&data, part, &card.classes);
    let mut loader = data.evaluate(&spec.train, part, ranks.share());
    let score = evaluate_watched(&initial.network, &config, &mut loader, &ranks, || true, &mut |logits, batch| {
        if predictions.is_some() { writer.add(logits, batch) } else { Ok(()) }
    })?;
    let score = score.ok_or_else(|| Finding::new(Cause::Internal, "the evaluation was stopped"))?;
    let written = predictions.map_or(Ok(0), |path| writer.write(&path))?;
    Ok(Evaluation {
        samples,
        loss: score.loss,
        accuracy: score.accuracy,
        figures: score.figures,
        classes: card.classes,
        confusion: score.confusion,
        labels: score.labels,
        notes,
        predictions: written,
    })
}

fn card(path: &Path) -> Result<Card, Error> {
    let wrong = |why: String| {
        let message = format!("the model's card `{}` cannot be used: {why}", path.display());
        Finding::new(Cause::Job, message).hint("list the runs that have a model with `gradus models`")
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    Ok(serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?)
}

/// The run's own data, divided as the run's checkpoints say.
fn own(spec: &Spec, ranks: &Ranks) -> Result<TrainingData, Error> {
    let checkpoints = Path::new(&spec.checkpoints);
    let (loaded, _) = checkpoint::newest_usable(checkpoints, &spec.job_hash, &|_| Ok(()))?;
    let manifest = loaded.map(|loaded| loaded.manifest);
    let mut recorded = Recorded::by(manifest.as_ref(), checkpoints, &spec.job_hash);
    let mut provenance = recorded.provenance(spec, ranks)?;
    let data = open(spec, &mut provenance)?;
    match (&recorded, provenance.found()) {
        (Recorded::Data { digest, .. }, Some(found))
            if provenance.change().is_none() && !is_recorded(found, digest) =>
        {
            Err(data::Error::Changed(Box::new(data::DataChange::unlisted())).into())
        }
        _ => Ok(data),
    }
}

/// Whether data has this digest. A run with `data.cache` records its samples without their contents, which are read here.
fn is_recorded(found: &DataIdentity, digest: &str) -> bool {
    found.digest() == digest || found.outline_digest() == digest
}

/// The data of a specification, of which nothing is reported.
pub(super) fn open(spec: &Spec, provenance: &mut Provenance) -> Result<TrainingData, Error> {
    let (train, path) = (&spec.train, Path::new(&spec.data));
    Ok(match train.task() {
        Task::ImageClassification => {
            TrainingData::Images(Arc::new(Dataset::open_named(&train.data, path, train.seed, provenance)?))
        }
        Task::ObjectDetection => {
            let scenes = DetectionDataset::open_known(&train.data, path, train.seed, provenance)?;
            TrainingData::Detection(Arc::new(scenes))
        }
        Task::TextClassification | Task::MaskedLanguageModel | Task::LanguageModel => {
            TrainingData::Text(Arc::new(open_text(spec, path, provenance)?))
        }
    })
}

fn open_text(spec: &Spec, path: &Path, provenance: &mut Provenance) -> Result<TextDataset, Error> {
    let (keys, goal) = objective(&spec.train)?;
    let tokens = match &spec.tokens[..] {
        "" => Path::new(&spec.checkpoints).with_file_name("tokens"),
        tokens => Path::new(tokens).to_owned(),
    };
    let (data, seed) = (&spec.train.data, spec.train.seed);
    Ok(TextDataset::open_known(data, keys, goal, path, seed, Some(&tokens), provenance)?)
}

/// All of another data set, with the classes and the tokenizer of the model; and notes about it.
fn other(spec: &mut Spec, path: &Path, card: &Card) -> Result<(TrainingData, Vec<String>), Error> {
    let mut notes = Vec::new();
    let skipped = |skipped: &[data::Skipped]| {
        let first = skipped.first()?;
        let count = skipped.len();
        Some(format!("{count} images cannot be read and are left out; the first is `{}`: {}", first.name, first.why))
    };
    let data = match spec.train.task() {
        Task::ImageClassification => {
            let dataset = Dataset::open_for_model(&spec.train.data, path, &card.classes)?;
            notes.extend(skipped(dataset.skipped()));
            notes.extend(dataset.left_out().map(str::to_owned));
            TrainingData::Images(Arc::new(dataset))
        }
        Task::ObjectDetection => {
            let scenes = DetectionDataset::open_for_model(&spec.train.data, path, &card.classes)?;
            notes.extend(skipped(scenes.skipped()));
            notes.extend(scenes.notes().iter().cloned());
            TrainingData::Detection(Arc::new(scenes))
        }
        Task::TextClassification | Task::MaskedLanguageModel | Task::LanguageModel => {
            spec.train.data.split = Split::Shares([1.0, 0.0, 0.0]);
            if let Some(keys) = &mut spec.train.data.text {
                let tokenizer = Path::new(&spec.export).join("tokenizer.json");
                keys.tokenizer = Some(tokenizer.to_string_lossy().into_owned());
            }
            let texts = open_text(spec, path, &mut Provenance::unknown())?;
            let texts = texts.for_model(&card.classes)?;
            if texts.targets().is_none() && texts.classes() != card.classes {
                let message = format!(
                    "the classes of the data are not those of the model: {} there, {} here",
                    texts.classes().join(", "),
                    card.classes.join(", ")
                );
                let hint = "give texts of the same classes, at least one of each";
                return Err(Finding::new(Cause::Job, message).hint(hint).into());
            }
            TrainingData::Text(Arc::new(texts))
        }
    };
    Ok((data, notes))
}

/// Refuses images that are not as the model takes them.
fn check_input(shape: ModelShape, input: &Input) -> Result<(), Error> {
    let InputShape::Image(ImageShape { channels, height, width }) = shape.input else { return Ok(()) };
    let (Some(of), Some(high), Some(wide)) = (input.channels, input.height, input.width) else { return Ok(()) };
    if (channels, height, width) == (of, high, wide) {
        return Ok(());
    }
    let message = format!(
        "the images are {width}×{height} pixels of {channels} channels, and the model takes {wide}×{high} of {of}"
    );
    let hint = match channels == of && high == wide {
        true => "add `--resize` to have them resized",
        false => "give images as those that the model was trained on",
    };
    Err(Finding::new(Cause::Job, message).hint(hint).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_of_a_run_that_read_no_contents_is_known_by_the_rest() {
        let identity = |contents: &str| {
            let samples = format!(r#"{{"names": ["x"], "bytes": [3], "contents": {contents}, "targets": [0]}}"#);
            let text = format!(r#"{{"schema": 1, "classes": ["a"], "samples": {samples}, "parts": "t"}}"#);
            DataIdentity::from_text(&text).unwrap()
        };
        let [cached, read, other] = ["[]", "[5]", "[6]"].map(identity);
        assert!(is_recorded(&read, &cached.digest()) && is_recorded(&read, &read.digest()));
        assert!(!is_recorded(&other, &read.digest()) && !is_recorded(&cached, &read.digest()));
    }

    #[test]
    fn images_of_another_size_are_refused_with_what_to_type() {
        let input = |size| Input { channels: Some(3), height: Some(size), width: Some(size), mean: None, std: None };
        let check = |sides: [i64; 3], expected: Option<&str>| {
            let found = check_input(ModelShape::images(sides, 2), &input(32)).map_err(|error| error.finding());
            let hint = found.err().map(|finding| finding.hint.unwrap_or_default());
            assert_eq!(hint.is_some(), expected.is_some(), "{sides:?}");
            assert!(hint.unwrap_or_default().contains(expected.unwrap_or_default()), "{sides:?}");
        };
        check([3, 32, 32], None);
        check([3, 64, 64], Some("--resize"));
        check([1, 32, 32], Some("as those that the model was trained on"));
    }
}
