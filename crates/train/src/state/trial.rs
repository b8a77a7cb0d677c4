//! A trial step of a TorchScript module before the run: checks that it accepts the data, returns logits of the right
//! shape, and can be trained by its loss.
//!
//! Buffers and random numbers are restored afterwards, so that a run is the same with and without it.

use domain::finding::{Cause, Finding};
use domain::train::Train;
use tch::{Device, Kind, Tensor};

use crate::error::Error;
use crate::model::{ImageShape, InputShape, ModelShape, Network, OutputShape, Pass, TextShape};
use crate::step::{BatchShare, BatchTensors, StepConfig, loss};
use crate::torch;

/// Samples of the pass: enough for a normalisation over the batch.
const SAMPLES: i64 = 2;

/// Makes a forward and a backward pass of zeros through `network`.
///
/// # Errors
/// If the network does not accept the data, returns another shape, or cannot be trained; with what would fit.
pub fn trial_step(network: &Network, train: &Train, shape: ModelShape, device: Device) -> Result<(), Error> {
    let batch = samples(shape, device)?;
    let trial = Trial { network, train, shape, device, config: StepConfig::of(train, device), batch };
    trial.check_output()?;
    trial.check_average()?;
    trial.backward()?;
    trial.check_gradients()
}

/// A network that is tried out.
struct Trial<'a> {
    network: &'a Network,
    train: &'a Train,
    shape: ModelShape,
    device: Device,
    config: StepConfig,
    batch: BatchTensors,
}

impl Trial<'_> {
    fn name(&self) -> &str {
        self.train.model.name()
    }

    /// The network's output for the batch.
    fn forward(&self, train: bool) -> Result<Tensor, Error> {
        let pass = Pass { mask: self.batch.mask.as_ref().map(Tensor::shallow_clone), ..Pass::whole(train) };
        let forward = || self.network.forward(&self.batch.values, &pass);
        self.config.format.forward(self.device, forward).map_err(|error| {
            let message = format!("`{}` does not take {}: {error}", self.name(), described(self.shape.input));
            wrong(
                message,
                match self.shape.input {
                    InputShape::Image(_) => "set `data.size` to what it was made for, or mend its `forward`",
                    InputShape::Text(_) => {
                        "set `data.text.length` and `tokenizer` to what it was made for, or mend its `forward`"
                    }
                },
            )
        })
    }

    /// Refuses an output of another shape than the data needs.
    fn check_output(&self) -> Result<(), Error> {
        let logits = tch::no_grad(|| self.forward(false))?;
        if fits(self.shape, &logits.size()) {
            return Ok(());
        }
        let (size, expected) = (logits.size(), expected(self.shape));
        let message = format!("`{}` returns {size:?} for {SAMPLES} samples instead of {expected}", self.name());
        let hint = match self.shape.output {
            OutputShape::Classes(units) | OutputShape::Labels(units) => {
                format!("give its last layer {units} outputs, or check `data`")
            }
            OutputShape::Number => "give its last layer one output, or check `data`".into(),
            OutputShape::Tokens | OutputShape::Boxes(_) => {
                "give its last layer an output for each token of the vocabulary; name its tokeniser with `data.text.tokenizer`".into()
            }
        };
        Err(wrong(message, hint))
    }

    /// Refuses averaged weights if running statistics would have to be recomputed for them.
    fn check_average(&self) -> Result<(), Error> {
        let mut buffers = self.network.weights().buffers().iter();
        if self.train.average.is_none() || !buffers.any(|named| named.tensor.is_floating_point()) {
            return Ok(());
        }
        let name = self.name();
        let message = format!(
            "`average` recomputes the statistics of batch normalisation, and those of the module `{name}` are not known here"
        );
        Err(wrong(message, "leave `average` out"))
    }

    /// Makes the backward pass, which leaves gradients, and restores buffers and random numbers.
    fn backward(&self) -> Result<(), Error> {
        let numbers = torch::random_state(self.device)?;
        let buffers = self.network.weights().buffers();
        let before =
            buffers.iter().map(|named| torch::copied(&named.tensor)).collect::<torch::Result<Vec<Tensor>>>()?;
        let result = self.forward(true).and_then(|logits| {
            if !logits.requires_grad() {
                let message = format!("the output of `{}` does not depend on a parameter that is trained", self.name());
                return Err(wrong(message, "save it without `torch.no_grad()` around its `forward`"));
            }
            Ok(loss(&logits, &self.batch, 0.0)?.f_backward().map_err(torch::Error::from)?)
        });
        for (named, copy) in buffers.iter().zip(before) {
            named.tensor.shallow_clone().f_copy_(&copy).map_err(torch::Error::from)?;
        }
        torch::set_random_state(self.device, &numbers)?;
        result
    }

    /// Refuses trained parameters that got no gradient, and drops the gradients.
    fn check_gradients(&self) -> Result<(), Error> {
        let parameters = self.network.weights().parameters().iter();
        let trained: Vec<_> = parameters.filter(|named| named.tensor.requires_grad()).collect();
        let without = trained.iter().filter(|named| !named.tensor.grad().defined());
        let unused: Vec<String> = without.map(|named| named.name.clone()).collect();
        torch::drop_gradients(&trained.iter().map(|named| named.tensor.shallow_clone()).collect::<Vec<_>>())?;
        if unused.is_empty() {
            return Ok(());
        }
        let names: Vec<String> = unused.iter().take(3).map(|name| format!("`{name}`")).collect();
        let message = format!(
            "{} of {} parameters of `{}` have no part in its loss: {}",
            unused.len(),
            trained.len(),
            self.name(),
            names.join(", ")
        );
        Err(wrong(message, format!("write `parameters: {{freeze: [{}]}}`", unused.join(", "))))
    }
}

fn wrong(message: String, hint: impl Into<String>) -> Error {
    Finding::new(Cause::Job, message).hint(hint).into()
}

/// A batch of zeros of the shape of the data, all of the first class or token.
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
        OutputShape::Labels(labels) => Tensor::f_zeros([SAMPLES, labels], (Kind::Bool, device))?,
        OutputShape::Number => Tensor::f_zeros([SAMPLES], (Kind::Float, device))?,
        OutputShape::Tokens => Tensor::f_zeros([SAMPLES, row], (Kind::Int64, device))?,
    };
    let share = BatchShare::all(SAMPLES as usize);
    Ok(BatchTensors { values, mask: None, labels, share, class_weights: None })
}

/// Whether logits of this size fit the data. There may be more than the vocabulary has tokens: embeddings are often padded
/// to a round number.
fn fits(shape: ModelShape, logits: &[i64]) -> bool {
    match (shape.output, shape.input, logits) {
        (OutputShape::Classes(units) | OutputShape::Labels(units), _, logits) => logits == [SAMPLES, units],
        (OutputShape::Number, _, logits) => logits == [SAMPLES, 1],
        (OutputShape::Tokens, InputShape::Text(TextShape { vocabulary, length, .. }), [SAMPLES, row, tokens]) => {
            *row == length && *tokens >= vocabulary
        }
        (OutputShape::Tokens | OutputShape::Boxes(_), _, _) => false,
    }
}

fn expected(shape: ModelShape) -> String {
    match (shape.output, shape.input) {
        (OutputShape::Tokens, InputShape::Text(TextShape { vocabulary, length, .. })) => {
            format!("[{SAMPLES}, {length}, {vocabulary}], one logit per token at each position")
        }
        (OutputShape::Classes(classes) | OutputShape::Boxes(classes), _) => {
            format!("[{SAMPLES}, {classes}], one logit per class")
        }
        (OutputShape::Labels(labels), _) => format!("[{SAMPLES}, {labels}], one logit per label"),
        (OutputShape::Number, _) => format!("[{SAMPLES}, 1], a number per sample"),
        (OutputShape::Tokens, InputShape::Image(_)) => "one logit per token".into(),
    }
}

fn described(input: InputShape) -> String {
    match input {
        InputShape::Image(ImageShape { channels, height, width }) => {
            format!("images, float32 [samples, {channels}, {height}, {width}]")
        }
        InputShape::Text(TextShape { vocabulary, length, .. }) => {
            format!("token ids, int64 [samples, {length}] below {vocabulary}")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_fit_or_do_not() {
        let images = ModelShape::images([3, 32, 32], 7);
        let texts = ModelShape {
            input: InputShape::Text(TextShape { vocabulary: 100, length: 16, separator: None }),
            output: OutputShape::Tokens,
        };
        for (shape, logits, expected) in [
            (images, vec![2, 7], true),
            (images, vec![2, 10], false),
            (images, vec![7], false),
            (images, vec![2, 7, 1], false),
            (texts, vec![2, 16, 100], true),
            (texts, vec![2, 16, 128], true),
            (texts, vec![2, 16, 99], false),
            (texts, vec![2, 15, 100], false),
            (texts, vec![2, 100], false),
        ] {
            assert_eq!(fits(shape, &logits), expected, "{logits:?} of {shape:?}");
        }
    }
}
