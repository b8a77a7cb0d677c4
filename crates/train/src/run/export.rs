//! The exported model: `model.safetensors`, `model.json` (how to use the weights and how good they are), and for language
//! models the files that the `transformers` library needs.

use std::fs;
use std::path::Path;

use checkpoint::FileEntry;
use domain::architecture::Architecture;
use domain::finding::{Cause, Finding};
use domain::rank::{Exported, Spec, TaskMetrics};
use domain::train::{Labels, Model};
use serde::Serialize;

use crate::error::Error;
use crate::input::TrainingData;
use crate::model::{InputShape, Network, config};
use crate::ranks::Ranks;
use crate::run::evaluate::EvaluationScore;
use crate::state::{BestScore, TrainProgress, Trainer, WhichWeights};
use crate::step::precision::ComputeFormat;
use crate::torch;

/// With more classes the confusion matrix is not reported.
const MOST_TOLD: usize = 50;
/// Version of `model.json`.
const SCHEMA: u32 = 1;

/// `model.json`: how to use the weights, and how good they are.
#[derive(Debug, Serialize)]
struct Card<'a> {
    schema: u32,
    /// File name of the weights, and their SHA-256.
    weights: &'static str,
    weights_sha256: &'a str,
    /// Name of the architecture in a job file; `torchscript` for a module of the user's own.
    architecture: &'static str,
    /// The user's TorchScript module next to this file, with these weights.
    #[serde(skip_serializing_if = "Option::is_none")]
    module: Option<&'static str>,
    /// Names of the classes, in the order of the logits; or of the labels, or of the number.
    classes: Vec<String>,
    /// What the outputs are, where they are not logits of one class per sample.
    #[serde(skip_serializing_if = "is_class")]
    labels: Labels,
    /// The first layers of a residual network, which depend on the size of its images.
    #[serde(skip_serializing_if = "Option::is_none")]
    stem: Option<&'static str>,
    /// The input that the network takes.
    input: Input<'a>,
    /// Format of the matrix products in training.
    precision: &'static str,
    parameters: u64,
    /// Step of the weights, and steps of the run.
    step: u64,
    steps: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    validation_loss: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    validation_accuracy: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    test_loss: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    test_accuracy: Option<f64>,
    #[serde(skip_serializing_if = "TaskMetrics::is_empty")]
    test_figures: TaskMetrics,
    seed: u64,
    threads: u32,
    libtorch: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Input<'a> {
    /// Pixels in 0–1, less the mean, divided by the standard deviation, per channel.
    Image { channels: usize, height: usize, width: usize, mean: &'a [f32], std: &'a [f32] },
    /// Token ids of the tokenizer next to this file; `length` in tokens.
    Text { vocabulary: usize, length: u32, tokenizer: &'static str },
}

impl<'a> Card<'a> {
    /// The card of the weights of a step, whose file has this hash.
    fn of(
        spec: &'a Spec,
        data: &'a TrainingData,
        step: u64,
        progress: &TrainProgress,
        scores: &CardScores<'_>,
        weights_sha256: &'a str,
        module: Option<&'static str>,
    ) -> Card<'a> {
        Card {
            schema: SCHEMA,
            weights: "model.safetensors",
            weights_sha256,
            architecture: spec.train.model.named().map_or("torchscript", Model::name),
            module,
            classes: data.outputs(),
            labels: spec.train.data.labels,
            stem: stem(spec, data),
            input: input(spec, data),
            precision: scores.format.name(),
            parameters: scores.parameters,
            step,
            steps: progress.step,
            validation_loss: scores.validation.map(|score| score.loss),
            validation_accuracy: scores.validation.map(|score| score.accuracy),
            test_loss: scores.test.map(|score| score.loss),
            test_accuracy: scores.test.map(|score| score.accuracy),
            test_figures: scores.test.map_or_else(TaskMetrics::default, |score| score.figures),
            seed: spec.train.seed,
            threads: progress.threads,
            libtorch: domain::torch::VERSION,
        }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands over a reference")]
fn is_class(labels: &Labels) -> bool {
    *labels == Labels::Class
}

/// The stem of a residual network: torchvision's, or the one for small images.
fn stem(spec: &Spec, data: &TrainingData) -> Option<&'static str> {
    let Some(Architecture::Resnet { .. }) = spec.train.model.architecture() else { return None };
    match data.shape(&spec.train).input {
        InputShape::Image(image) if image.needs_small_stem() => Some("3x3, stride 1, no pooling"),
        InputShape::Image(_) => Some("7x7, stride 2, max pooling"),
        InputShape::Text(_) => None,
    }
}

/// The scores on a card.
struct CardScores<'a> {
    validation: Option<BestScore>,
    /// `None` for a run that was stopped before the test split was evaluated, or that has none.
    test: Option<&'a EvaluationScore>,
    parameters: u64,
    format: ComputeFormat,
}

fn input<'a>(spec: &Spec, data: &'a TrainingData) -> Input<'a> {
    match data {
        TrainingData::Images(dataset) => Input::Image {
            channels: dataset.channels(),
            height: dataset.height(),
            width: dataset.width(),
            mean: dataset.mean(),
            std: dataset.std(),
        },
        TrainingData::Detection(scenes) => Input::Image {
            channels: 3,
            height: scenes.size(),
            width: scenes.size(),
            mean: scenes.mean(),
            std: scenes.std(),
        },
        TrainingData::Text(texts) => Input::Text {
            vocabulary: texts.vocabulary(),
            length: spec.train.data.text.as_ref().map_or(0, |text| text.length),
            tokenizer: "tokenizer.json",
        },
    }
}

/// Writes the files that the `transformers` library needs in addition to the weights, if it has the model.
fn export_config(spec: &Spec, data: &TrainingData, folder: &Path) -> Result<(), Error> {
    let of = |architecture| config(architecture, data.shape(&spec.train), &data.outputs());
    if let Some(config) = spec.train.model.architecture().and_then(of) {
        let text = format!("{config:#}\n");
        checkpoint::write_file(&folder.join("config.json"), text.as_bytes())?;
    }
    if let TrainingData::Text(texts) = data {
        checkpoint::write_file(&folder.join("tokenizer.json"), texts.tokenizer().as_bytes())?;
    }
    Ok(())
}

/// Writes the user's TorchScript module atomically; returns false if there is none.
fn export_module(network: &Network, folder: &Path) -> Result<bool, Error> {
    let (path, unfinished) = (folder.join(MODULE), folder.join(format!(".{MODULE}.part")));
    if !network.save_module(&unfinished)? {
        return Ok(false);
    }
    let durable = || fs::File::open(&unfinished)?.sync_all().and_then(|()| fs::rename(&unfinished, &path));
    durable().map_err(|error| {
        let message = format!("the module `{}` cannot be written: {error}", path.display());
        Finding::new(Cause::DiskFull, message).hint("free some disk, then `gradus resume`")
    })?;
    Ok(true)
}

/// The user's TorchScript module in the export folder.
const MODULE: &str = "model.pt";

/// The best weights' scores, and the resources used by the run.
pub struct FinalScores<'a> {
    /// The network that holds them.
    pub network: &'a Network,
    /// Their scores on the validation split.
    pub validation: BestScore,
    /// Their scores on the test split.
    pub test: EvaluationScore,
    /// Number of trained values.
    pub parameters: u64,
    /// The format they were trained in.
    pub format: ComputeFormat,
    /// Peak memory of each of several ranks, in bytes.
    pub rank_memory: Vec<u64>,
    /// CPU time of all ranks, in microseconds.
    pub processor_us: u64,
}

/// Writes weights as `model.safetensors` into the export folder; returns the file entry on the first rank.
///
/// # Errors
/// If the file or the folder cannot be written, or a collective operation fails.
pub fn write_model(
    trainer: &Trainer,
    spec: &Spec,
    which: WhichWeights,
    ranks: &Ranks,
) -> Result<Option<FileEntry>, Error> {
    chaos::point("export");
    write(trainer, spec, which, "model.safetensors", ranks)
}

/// Writes the present weights as `last.safetensors` into the export folder.
///
/// # Errors
/// As [`write_model`].
pub fn write_last(trainer: &Trainer, spec: &Spec, ranks: &Ranks) -> Result<Option<FileEntry>, Error> {
    write(trainer, spec, WhichWeights::Present, "last.safetensors", ranks)
}

/// Writes the present weights as `step-STEP.safetensors` into the export folder.
///
/// # Errors
/// As [`write_model`].
pub fn write_step(trainer: &Trainer, spec: &Spec, step: u64, ranks: &Ranks) -> Result<Option<FileEntry>, Error> {
    write(trainer, spec, WhichWeights::Present, &format!("step-{step}.safetensors"), ranks)
}

fn write(
    trainer: &Trainer,
    spec: &Spec,
    which: WhichWeights,
    name: &str,
    ranks: &Ranks,
) -> Result<Option<FileEntry>, Error> {
    let made = if ranks.is_first() { folder(spec).map(drop) } else { Ok(()) };
    // All ranks take part even if the first one's disk fails.
    let written = trainer.write_weights(which, &Path::new(&spec.export).join(name), ranks);
    made.and(written)
}

/// Writes the files that accompany the weights of a step into the export folder atomically, and returns their paths.
///
/// # Errors
/// If a file or the folder cannot be written.
pub fn export(
    spec: &Spec,
    data: &TrainingData,
    (step, entry): (u64, &FileEntry),
    progress: &TrainProgress,
    scores: &FinalScores<'_>,
) -> Result<Exported, Error> {
    let folder = folder(spec)?;
    let model = folder.join("model.safetensors");
    export_config(spec, data, folder)?;
    let module = export_module(scores.network, folder)?.then_some(MODULE);
    let FinalScores { validation, ref test, parameters, format, .. } = *scores;
    // A part without samples has no score.
    let [_, is_validated, is_tested] = data.counts().map(|samples| samples > 0);
    let (validation, test) = (Some(validation).filter(|_| is_validated), Some(test).filter(|_| is_tested));
    let of_card = CardScores { validation, test, parameters, format };
    let card = Card::of(spec, data, step, progress, &of_card, &entry.sha256, module);
    chaos::point("export");
    write_card(folder, &card)?;

    Ok(Exported {
        model: model.to_string_lossy().into_owned(),
        model_sha256: entry.sha256.clone(),
        bytes: entry.bytes,
        step,
        validation_accuracy: scores.validation.accuracy,
        test_accuracy: scores.test.accuracy,
        steps: progress.step,
        peak_memory: torch::peak_memory()?.largest(),
        rank_memory: scores.rank_memory.clone(),
        processor_us: scores.processor_us,
        figures: Box::new(scores.test.figures),
        validation_loss: validation.map(|score| score.loss),
        validation_figures: Box::new(scores.validation.figures),
        confusion: scores.test.confusion.iter().filter(|row| row.len() <= MOST_TOLD).cloned().collect(),
    })
}

/// Writes the card of a stopped run next to the best weights, if these were written. A run that is resumed and
/// completed replaces it.
///
/// # Errors
/// If a file or the folder cannot be written.
pub fn export_stopped(
    spec: &Spec,
    data: &TrainingData,
    trainer: &Trainer,
    format: ComputeFormat,
    best: Option<&FileEntry>,
) -> Result<(), Error> {
    let folder = folder(spec)?;
    if let (Some(entry), Some(step)) = (best, trainer.best_step()) {
        export_config(spec, data, folder)?;
        let parameters = trainer.network.weights().count();
        let [_, is_validated, _] = data.counts().map(|samples| samples > 0);
        let validation = trainer.progress.best.filter(|_| is_validated);
        let scores = CardScores { validation, test: None, parameters, format };
        write_card(folder, &Card::of(spec, data, step, &trainer.progress, &scores, &entry.sha256, None))?;
    }
    Ok(())
}

/// The export folder, created if it is missing.
fn folder(spec: &Spec) -> Result<&Path, Error> {
    let folder = Path::new(&spec.export);
    fs::create_dir_all(folder).map_err(|error| {
        Finding::new(Cause::ReadOnly, format!("the folder `{}` cannot be made: {error}", spec.export))
            .hint("make the folder above it writable, or choose another with `--home`")
    })?;
    Ok(folder)
}

fn write_card(folder: &Path, card: &Card) -> Result<(), Error> {
    let mut text = serde_json::to_string_pretty(card)
        .map_err(|error| Finding::new(Cause::Internal, format!("`model.json` cannot be written: {error}")))?;
    text.push('\n');
    checkpoint::write_file(&folder.join("model.json"), text.as_bytes())?;
    Ok(())
}
