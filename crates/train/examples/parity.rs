//! Our side of `cargo xtask bench parity --all` and of the suite for GPUs: logits, gradients and updates of one network
//! for one batch.
//!
//! `parity CASE OUT`, where `CASE` is JSON: a job's `train:` section with `weights`, the properties of its data, and
//! `batch`, a safetensors file with `values`, `labels` and, if rows are padded, `mask`. `OUT` becomes a safetensors
//! file: `logits` without dropout, the `losses` of `steps` updates, the first gradients as `grad.NAME`, the weights
//! afterwards as `after.NAME`. `benches/peers/parity.py` creates the case and compares the result with its own.

use std::error::Error;
use std::path::Path;

use domain::train::{Labels, MemoryFormat, Task, Train};
use serde::Deserialize;
use tch::{Device, Kind, Tensor};
use train::model::{ImageShape, InputShape, ModelShape, OutputShape, TextShape};
use train::ranks::Ranks;
use train::state::Trainer;
use train::state::pretrained;
use train::step::{BatchShare, BatchTensors, StepConfig, loss, step};
use train::torch;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    train: Train,
    batch: String,
    /// Height and width of pictures.
    size: Option<i64>,
    /// Words of the vocabulary, and of a row.
    text: Option<[i64; 2]>,
    /// `None` for a language model.
    classes: Option<i64>,
    steps: u64,
    /// Seed of the random numbers of each training pass.
    seed: u64,
    /// `cuda` for the first CUDA device; the CPU where nothing is said.
    device: Option<String>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [case, output] = arguments.as_slice() else { return Err("usage: parity CASE OUT".into()) };
    let case: Case = serde_json::from_str(case)?;
    let device = match case.device.as_deref() {
        None | Some("cpu") => Device::Cpu,
        Some("cuda") if torch::open_cuda() && tch::Cuda::is_available() => Device::Cuda(0),
        Some(other) => return Err(format!("there is no device `{other}` here").into()),
    };
    torch::set_threads(case.train.threads.unwrap_or(1));
    torch::set_deterministic(true)?;
    let recipe = StepConfig::of(&case.train, device);
    recipe.format.settle(device)?;
    let input = match (case.size, case.text) {
        (Some(size), None) => InputShape::Image(ImageShape { channels: 3, height: size, width: size }),
        (None, Some([vocabulary, length])) => InputShape::Text(TextShape { vocabulary, length, separator: None }),
        (_, _) => return Err("give `size` or `text`".into()),
    };
    let said = match (case.classes, case.train.task()) {
        (Some(classes), Task::ObjectDetection) => OutputShape::Boxes(classes),
        (Some(classes), _) if case.train.data.labels == Labels::MultiLabel => OutputShape::Labels(classes),
        (Some(_), _) if case.train.data.labels == Labels::Number => OutputShape::Number,
        (
            Some(classes),
            Task::ImageClassification | Task::TextClassification | Task::MaskedLanguageModel | Task::LanguageModel,
        ) => OutputShape::Classes(classes),
        (None, _) => OutputShape::Tokens,
    };
    let shape = ModelShape { input, output: said };
    let mut trainer = Trainer::fresh(&case.train, shape, device, case.train.threads.unwrap_or(1), &mut Ranks::alone())?;
    // A module has its own.
    if let Some(weights) = &case.train.weights {
        for note in pretrained::load(&trainer.network, &case.train.model, Path::new(weights))? {
            eprintln!("{note}");
        }
    }
    let batch = batch(&case, device)?;
    let mut answer: Vec<(String, Tensor)> = Vec::new();
    let forward = |is_training: bool| {
        recipe.format.forward(device, || trainer.network.forward(&batch.values, &batch.pass(is_training)))
    };
    let on_host = |tensor: &Tensor| tensor.f_detach()?.f_to_device(Device::Cpu)?.f_contiguous();

    let logits = tch::no_grad(|| forward(false))?;
    answer.push(("logits".into(), on_host(&logits)?));

    torch::seed(case.seed)?;
    let scores = forward(true)?;
    loss(&scores, &batch, 0.0)?.backward();
    for named in trainer.network.weights().parameters() {
        answer.push((format!("grad.{}", named.name), on_host(&named.tensor.grad())?.copy()));
    }
    // As if that pass had not been: the peer does the same.
    let parameters: Vec<Tensor> =
        trainer.network.weights().parameters().iter().map(|named| named.tensor.shallow_clone()).collect();
    torch::drop_gradients(&parameters)?;

    let lr = trainer.optimizer.base_rate();
    let mut losses = Vec::new();
    for number in 0..case.steps {
        torch::seed(case.seed + number)?;
        losses.push(step(&trainer.network, &mut trainer.optimizer, &recipe, &batch, lr, &Ranks::alone())?);
    }
    answer.push(("losses".into(), Tensor::from_slice(&losses)));
    for named in trainer.network.weights().all() {
        answer.push((format!("after.{}", named.name), on_host(&named.tensor)?));
    }
    Ok(Tensor::write_safetensors(&answer, output)?)
}

fn batch(case: &Case, device: Device) -> Result<BatchTensors, Box<dyn Error>> {
    let mut tensors = Tensor::read_safetensors(&case.batch)?;
    for (_, tensor) in &mut tensors {
        *tensor = tensor.f_to_device(device)?;
    }
    let mut take = |name: &str| {
        let place = tensors.iter().position(|(known, _)| known == name)?;
        Some(tensors.swap_remove(place).1)
    };
    let (mut values, labels) =
        (take("values").ok_or("`values` is missing")?, take("labels").ok_or("`labels` is missing")?);
    if case.train.memory_format == Some(MemoryFormat::ChannelsLast) {
        values = torch::channels_last(&values)?;
    }
    let mask = take("mask").map(|mask| mask.f_to_kind(Kind::Bool)).transpose()?;
    let share = BatchShare::all(labels.size().first().map_or(0, |count| *count as usize));
    Ok(BatchTensors { values, mask, labels, share, class_weights: None })
}
