//! The result: `model.safetensors` for machines, `model.json` for whoever wants to use it.

use std::fs;
use std::path::Path;

use checkpoint::Best;
use data::Dataset;
use domain::finding::{Cause, Finding};
use domain::rank::{Exported, Spec};
use serde::Serialize;

use crate::error::Error;
use crate::evaluate::Score;
use crate::precision::Format;
use crate::state::{BestScore, Progress};

/// Version of `model.json`.
const SCHEMA: u32 = 1;

/// `model.json`: what it takes to use the weights, and how good they are.
#[derive(Debug, Serialize)]
struct Card<'a> {
    schema: u32,
    /// File beside this one, and its SHA-256.
    weights: &'static str,
    weights_sha256: &'a str,
    /// Name of the architecture in a job file.
    architecture: domain::train::Model,
    /// Names of the classes, in the order of the scores.
    classes: &'a [String],
    /// What goes in: values in 0–1 less the mean, over the standard deviation.
    input: Input<'a>,
    /// Format of the matrix products in training.
    precision: &'static str,
    parameters: u64,
    /// Step whose weights these are, and steps of the run.
    step: u64,
    steps: u64,
    validation_loss: f64,
    validation_accuracy: f64,
    test_loss: f64,
    test_accuracy: f64,
    seed: u64,
    threads: u32,
    libtorch: &'static str,
}

#[derive(Debug, Serialize)]
struct Input<'a> {
    channels: usize,
    height: usize,
    width: usize,
    mean: &'a [f32],
    std: &'a [f32],
}

/// What is known about the best weights.
pub struct Verdict {
    /// Their scores on the validation split.
    pub validation: BestScore,
    /// Their scores on the test split.
    pub test: Score,
    /// Trained values.
    pub parameters: u64,
    /// The format they were trained in.
    pub format: Format,
}

/// Writes both files into the export folder, each whole or not at all, and says where they are.
///
/// The bytes of the weights depend on the weights alone.
pub fn export(
    spec: &Spec,
    dataset: &Dataset,
    best: &Best,
    progress: &Progress,
    verdict: &Verdict,
) -> Result<Exported, Error> {
    let folder = Path::new(&spec.export);
    fs::create_dir_all(folder).map_err(|error| {
        Finding::new(Cause::ReadOnly, format!("the folder `{}` cannot be made: {error}", spec.export))
            .hint("make the folder above it writable, or choose another with `--home`")
    })?;
    chaos::point("export");
    let model = folder.join("model.safetensors");
    let entry = checkpoint::write_tensors(&model, &best.model, &[("format", "pt")])?;

    let card = Card {
        schema: SCHEMA,
        weights: "model.safetensors",
        weights_sha256: &entry.sha256,
        architecture: spec.train.model,
        classes: dataset.classes(),
        input: Input {
            channels: dataset.channels(),
            height: dataset.height(),
            width: dataset.width(),
            mean: dataset.mean(),
            std: dataset.std(),
        },
        precision: verdict.format.name(),
        parameters: verdict.parameters,
        step: best.step,
        steps: progress.step,
        validation_loss: verdict.validation.loss,
        validation_accuracy: verdict.validation.accuracy,
        test_loss: verdict.test.loss,
        test_accuracy: verdict.test.accuracy,
        seed: spec.train.seed,
        threads: progress.threads,
        libtorch: domain::torch::VERSION,
    };
    let mut text = serde_json::to_string_pretty(&card)
        .map_err(|error| Finding::new(Cause::Internal, format!("`model.json` cannot be written: {error}")))?;
    text.push('\n');
    chaos::point("export");
    checkpoint::write_file(&folder.join("model.json"), text.as_bytes())?;

    Ok(Exported {
        model: model.to_string_lossy().into_owned(),
        model_sha256: entry.sha256,
        bytes: entry.bytes,
        step: best.step,
        validation_accuracy: verdict.validation.accuracy,
        test_accuracy: verdict.test.accuracy,
        steps: progress.step,
    })
}
