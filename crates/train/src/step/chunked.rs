//! The loss of a language model without all of its logits: a chunk of the tokens at a time, whose logits are dropped and
//! computed again in the backward pass. Of a vocabulary of 50,257, the logits of a token and their gradients take 400 kB in
//! 32 bits, more than all that a small network saves for it.

use std::rc::Rc;

use tch::{Kind, Reduction, Tensor};

use super::StepConfig;
use super::batch::BatchTensors;
use super::recompute;
use super::weighted_cross_entropy;
use crate::model::{Network, Pass, TokenHead};
use crate::ranks::Ranks;
use crate::torch::{self, Result};

/// Chunks that the tokens are divided into, as in torchtune (`num_output_chunks`).
const CHUNKS: i64 = 8;

/// The mean loss over the tokens that have a target, up to rounding that of [`super::loss`].
pub(super) fn loss(
    network: &Network,
    head: &Rc<TokenHead>,
    part: &BatchTensors,
    config: &StepConfig,
    ranks: &Ranks,
) -> Result<Tensor> {
    let pass = part.pass(true);
    let blocks = || recompute::hidden(network, &part.values, &pass, config, ranks);
    let hidden = config.format.scope(config.device, blocks)?;
    let width = hidden.size().last().copied().unwrap_or(1);
    let (hidden, labels) = (hidden.f_reshape([-1, width])?, part.labels.f_reshape([-1])?);
    let length = ((labels.size1()? + CHUNKS - 1) / CHUNKS).max(1);
    let mut sum = Tensor::f_zeros([0i64; 0], (Kind::Float, config.device))?;
    for (x, labels) in hidden.f_split(length, 0)?.into_iter().zip(labels.f_split(length, 0)?) {
        sum = sum.f_add(&chunk(head, &x, labels, config)?)?;
    }
    Ok(sum.f_div(&part.target_count()?)?)
}

/// The sum of the losses of a chunk: `x` is `tokens × width`.
fn chunk(head: &Rc<TokenHead>, x: &Tensor, labels: Tensor, config: &StepConfig) -> Result<Tensor> {
    let (head_again, config) = (Rc::clone(head), *config);
    torch::recompute_with(x, &head.parameters(), move |x, _| {
        let logits = config.format.forward(config.device, || head_again.forward(x, &Pass::whole(true)))?;
        weighted_cross_entropy(&logits, &labels, None, config.label_smoothing, Reduction::Sum)
    })
}

#[cfg(test)]
mod tests {
    use domain::train::{MemoryFormat, Model, Recompute};
    use tch::Device;

    use super::*;
    use crate::model::{InputShape, ModelShape, OutputShape, TextShape};
    use crate::step::precision::ComputeFormat;
    use crate::step::{BatchShare, loss};

    /// The loss and the gradients of a batch of rows that are padded, or have no target at all.
    fn passes(config: &StepConfig, rows: i64) -> (f64, Vec<Tensor>) {
        let _turn = torch::turn();
        let text = TextShape { vocabulary: 50, length: 12, separator: None };
        let shape = ModelShape { input: InputShape::Text(text), output: OutputShape::Tokens };
        let network = Network::new(Model::GptTiny, shape, 3, Device::Cpu, MemoryFormat::Contiguous).unwrap();
        let values = (Tensor::arange(rows * 12, (Kind::Int64, Device::Cpu)) * 7).remainder(49).view([rows, 12]) + 1;
        let row = Tensor::arange(rows, (Kind::Int64, Device::Cpu)).unsqueeze(1);
        let has_target = Tensor::arange(12, (Kind::Int64, Device::Cpu)).unsqueeze(0).lt_tensor(&(row * 4));
        let labels = values.where_self(&has_target, &Tensor::from(-100i64));
        let share = BatchShare::all(rows as usize);
        let batch = BatchTensors { values, mask: None, labels, share, class_weights: None };
        torch::seed(5).unwrap();
        let mean = match (config.chunked_loss, network.token_head()) {
            (true, Some(head)) => super::loss(&network, head, &batch, config, &Ranks::alone()).unwrap(),
            _ => {
                let pass = batch.pass(true);
                let forward = || recompute::forward(&network, &batch.values, &pass, config, &Ranks::alone());
                loss(&config.format.forward(config.device, forward).unwrap(), &batch, config.label_smoothing).unwrap()
            }
        };
        mean.backward();
        let gradients = network.weights().parameters().iter().map(|named| named.tensor.grad().copy()).collect();
        (mean.double_value(&[]), gradients)
    }

    #[test]
    fn a_chunked_loss_has_the_value_and_the_gradients_of_the_whole() {
        for (format, bound) in [(ComputeFormat::Fp32, 2e-6), (ComputeFormat::Bf16, 0.02)] {
            // Fewer tokens than chunks would want, and a last chunk that is shorter.
            for (rows, recompute) in [(1, Recompute::None), (5, Recompute::Blocks)] {
                let (device, accumulate, clip_norm) = (Device::Cpu, 1, None);
                let label_smoothing = 0.1;
                let config = StepConfig {
                    device,
                    format,
                    accumulate,
                    label_smoothing,
                    clip_norm,
                    recompute,
                    chunked_loss: false,
                };
                let (whole, gradients) = passes(&config, rows + 1);
                let (chunked, found) = passes(&StepConfig { chunked_loss: true, ..config }, rows + 1);
                assert!((whole - chunked).abs() <= bound, "{format:?}: {chunked} for {whole}");
                for (whole, found) in gradients.iter().zip(&found) {
                    let largest = whole.abs().max().double_value(&[]).max(1e-3);
                    let apart = (whole - found).abs().max().double_value(&[]);
                    assert!(apart <= bound * largest, "{format:?}: {apart:e} of {largest:e}");
                }
            }
        }
    }
}
