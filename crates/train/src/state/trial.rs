//! A first pass of a network that nobody here has built, before anything depends on it: whether it takes the data, says
//! as many scores as there are classes, and can be trained by its loss.
//!
//! What the pass changes is put back, so that a run is the same with and without it.

use domain::finding::{Cause, Finding};
use domain::train::Train;
use tch::{Device, Kind, Tensor};

use crate::error::Error;
use crate::model::{ImageShape, InputShape, ModelShape, Network, OutputShape, Pass, TextShape};
use crate::step::{BatchShare, BatchTensors, StepConfig, loss};
use crate::torch;

/// Samples of the pass: enough for a normalisation over the batch.
const SAMPLES: i64 = 2;

/// Sends samples of zeros through `network` there and back.
///
/// # Errors
/// What does not fit, and what would.
pub fn trial_step(network: &Network, train: &Train, shape: ModelShape, device: Device) -> Result<(), Error> {
    let name = train.model.name();
    let recipe = StepConfig::of(train, device);
    let batch = samples(shape, device)?;
    let wrong = |message: String, hint: String| Error::from(Finding::new(Cause::Job, message).hint(hint));
    let refused = |error: torch::Error| {
        let message = format!("`{name}` does not take {}: {error}", told(shape.input));
        let hint = match shape.input {
            InputShape::Image(_) => "set `data.size` to what it was made for, or mend its `forward`",
            InputShape::Text(_) => {
                "set `data.text.length` and `tokenizer` to what it was made for, or mend its `forward`"
            }
        };
        wrong(message, hint.into())
    };
    let forward = |train: bool| {
        let pass = Pass { mask: batch.mask.as_ref().map(Tensor::shallow_clone), ..Pass::whole(train) };
        recipe.format.forward(device, || network.forward(&batch.values, &pass))
    };
    let logits = tch::no_grad(|| forward(false)).map_err(refused)?;
    if !fits(shape, &logits.size()) {
        let message =
            format!("`{name}` says {:?} of {SAMPLES} samples, and {} is wanted", logits.size(), wanted(shape));
        let hint = match shape.output {
            OutputShape::Classes(classes) => format!("give its last layer {classes} outputs, or check `data`"),
            OutputShape::Tokens | OutputShape::Boxes(_) => {
                "give its last layer an output for each word of the vocabulary; name its tokeniser with `data.text.tokenizer`".into()
            }
        };
        return Err(wrong(message, hint));
    }
    if train.average.is_some() && network.weights().buffers().iter().any(|named| named.tensor.is_floating_point()) {
        let message =
            format!("`average` measures the statistics of normalisations anew, and those of `{name}` are its own");
        return Err(wrong(message, "leave `average` out".into()));
    }
    let numbers = torch::random_state(device)?;
    let before = network.weights().buffers().iter().map(|named| torch::copied(&named.tensor));
    let before = before.collect::<torch::Result<Vec<Tensor>>>()?;
    let back = forward(true).map_err(refused).and_then(|logits| {
        if !logits.requires_grad() {
            let message = format!("what `{name}` says does not depend on a parameter that is trained");
            return Err(wrong(message, "save it without `torch.no_grad()` around its `forward`".into()));
        }
        Ok(loss(&logits, &batch, 0.0)?.f_backward().map_err(torch::Error::from)?)
    });
    for (named, copy) in network.weights().buffers().iter().zip(before) {
        named.tensor.shallow_clone().f_copy_(&copy).map_err(torch::Error::from)?;
    }
    torch::set_random_state(device, &numbers)?;
    back?;
    let trained: Vec<_> = network.weights().parameters().iter().filter(|named| named.tensor.requires_grad()).collect();
    let unused: Vec<String> =
        trained.iter().filter(|named| !named.tensor.grad().defined()).map(|named| named.name.clone()).collect();
    torch::drop_gradients(&trained.iter().map(|named| named.tensor.shallow_clone()).collect::<Vec<_>>())?;
    if unused.is_empty() {
        return Ok(());
    }
    let names: Vec<String> = unused.iter().take(3).map(|name| format!("`{name}`")).collect();
    let message = format!(
        "{} of {} parameters of `{name}` have no part in its loss: {}",
        unused.len(),
        trained.len(),
        names.join(", ")
    );
    Err(wrong(message, format!("write `parameters: {{freeze: [{}]}}`", unused.join(", "))))
}

/// Zeros of the form that the data has, all of the first class or word.
fn samples(shape: ModelShape, device: Device) -> torch::Result<BatchTensors> {
    let (values, row) = match shape.input {
        InputShape::Image(ImageShape { channels, height, width }) => {
            (Tensor::f_zeros([SAMPLES, channels, height, width], (Kind::Float, device))?, 1)
        }
        InputShape::Text(TextShape { length, .. }) => {
            (Tensor::f_zeros([SAMPLES, length], (Kind::Int64, device))?, length)
        }
    };
    let labels = match shape.output {
        OutputShape::Classes(_) | OutputShape::Boxes(_) => Tensor::f_zeros([SAMPLES], (Kind::Int64, device))?,
        OutputShape::Tokens => Tensor::f_zeros([SAMPLES, row], (Kind::Int64, device))?,
    };
    Ok(BatchTensors { values, mask: None, labels, share: BatchShare::all(SAMPLES as usize) })
}

/// Whether scores of this size are what the data asks for. There may be more words than the vocabulary has, for tables
/// are often filled up to a round number.
fn fits(shape: ModelShape, logits: &[i64]) -> bool {
    match (shape.output, shape.input, logits) {
        (OutputShape::Classes(classes), _, logits) => logits == [SAMPLES, classes],
        (OutputShape::Tokens, InputShape::Text(TextShape { vocabulary, length }), [SAMPLES, row, words]) => {
            *row == length && *words >= vocabulary
        }
        (OutputShape::Tokens | OutputShape::Boxes(_), _, _) => false,
    }
}

fn wanted(shape: ModelShape) -> String {
    match (shape.output, shape.input) {
        (OutputShape::Tokens, InputShape::Text(TextShape { vocabulary, length })) => {
            format!("[{SAMPLES}, {length}, {vocabulary}], a score of each word at each place,")
        }
        (OutputShape::Classes(classes) | OutputShape::Boxes(classes), _) => {
            format!("[{SAMPLES}, {classes}], a score of each class,")
        }
        (OutputShape::Tokens, InputShape::Image(_)) => "a score of each word".into(),
    }
}

fn told(input: InputShape) -> String {
    match input {
        InputShape::Image(ImageShape { channels, height, width }) => {
            format!("pictures, float32 [samples, {channels}, {height}, {width}]")
        }
        InputShape::Text(TextShape { vocabulary, length }) => {
            format!("rows of words, int64 [samples, {length}] below {vocabulary}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_fit_or_do_not() {
        let pictures = ModelShape::images([3, 32, 32], 7);
        let words = ModelShape {
            input: InputShape::Text(TextShape { vocabulary: 100, length: 16 }),
            output: OutputShape::Tokens,
        };
        for (shape, logits, expected) in [
            (pictures, vec![2, 7], true),
            (pictures, vec![2, 10], false),
            (pictures, vec![7], false),
            (pictures, vec![2, 7, 1], false),
            (words, vec![2, 16, 100], true),
            (words, vec![2, 16, 128], true),
            (words, vec![2, 16, 99], false),
            (words, vec![2, 15, 100], false),
            (words, vec![2, 100], false),
        ] {
            assert_eq!(fits(shape, &logits), expected, "{logits:?} of {shape:?}");
        }
    }
}
