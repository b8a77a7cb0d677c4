//! Folds batch normalizations into the preceding convolutions, for inference: the same logits with half the layers.
//!
//! With γ, β, the running mean μ and variance σ², a normalization multiplies by γ/√(σ²+ε) and adds β − μγ/√(σ²+ε)
//! (Jacob et al. 2017, section 3.2), and a convolution can do both. The result has a bias in each convolution and no
//! normalizations, like that of `torch.nn.utils.fusion.fuse_conv_bn_eval`. It is written only if its logits for random
//! images are unchanged.

pub mod torchscript;

use std::path::Path;

use domain::architecture::{Architecture, Reads};
use domain::finding::{Cause, Finding};
use domain::train::{MemoryFormat, Model};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tch::{Device, Kind, Tensor};

use crate::error::Error;
use crate::model::{ConvNormPair, ModelShape, Named, Network, OutputShape, Pass};
use crate::state::{self, pretrained};
use crate::torch::{self, Result};

/// The result of folding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Folded {
    /// Number of folded normalizations.
    pub folded: usize,
    /// Largest difference of a logit over the largest logit, for images of noise.
    pub difference: f64,
}

/// The part of `model.json` that is needed here.
#[derive(Debug, Deserialize)]
struct Card {
    architecture: Model,
    classes: Vec<Value>,
    input: Input,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Input {
    #[serde(default)]
    channels: i64,
    #[serde(default)]
    height: i64,
    #[serde(default)]
    width: i64,
}

/// Scores may differ by rounding alone.
const MOST: f64 = 1e-4;

/// Folds the exported model of `from` and writes it to `to`, with its card.
pub fn fold(from: &Path, to: &Path) -> std::result::Result<Folded, Error> {
    let (text, card) = card(&from.join("model.json"))?;
    let Input { channels, height, width } = card.input;
    let nothing = || {
        let message = format!("`{}` has no batch normalisations that could be folded", card.architecture.name());
        Finding::new(Cause::Job, message).hint("export it without `--fold`")
    };
    if channels == 0 {
        return Err(nothing().into());
    }
    let network = Network::new(card.architecture, shape_of(&card), 0, Device::Cpu, MemoryFormat::Contiguous)?;
    let pairs = network.weights().pairs();
    if pairs.is_empty() {
        return Err(nothing().into());
    }
    pretrained::load(&network, &card.architecture.into(), &from.join("model.safetensors"))?;
    torch::seed(0)?;
    let noise =
        Tensor::f_randn([8, channels, height, width], (Kind::Float, Device::Cpu)).map_err(torch::Error::from)?;
    let scores = || tch::no_grad(|| network.forward(&noise, &Pass::whole(false)));
    let before = scores()?;
    let biases = tch::no_grad(|| pairs.iter().map(|pair| fold_one(&network, pair)).collect::<Result<Vec<Named>>>())?;
    let difference = relative(&before, &scores()?)?;
    if difference > MOST {
        let message =
            format!("folded, the model's scores differ by {difference:.1e} of the largest, more than {MOST:.0e}");
        return Err(Finding::new(Cause::Internal, message).hint("export it without `--fold`, and report this").into());
    }
    let is_gone = |name: &str| pairs.iter().any(|pair| name.starts_with(&format!("{}.", pair.normalisation)));
    let mut tensors: Vec<&Named> =
        network.weights().all().filter(|named| !is_gone(&named.name)).chain(&biases).collect();
    tensors.sort_by(|left, right| left.name.cmp(&right.name));
    let tensors = state::copy(tensors)?;
    let entry =
        checkpoint::write_tensors(&to.join("model.safetensors"), &tensors, &[("format", "pt"), ("folded", "true")])?;
    let mut changed = text;
    changed["weights_sha256"] = entry.sha256.into();
    changed["folded"] = true.into();
    checkpoint::write_file(&to.join("model.json"), format!("{changed:#}\n").as_bytes())?;
    Ok(Folded { folded: pairs.len(), difference })
}

/// What a network of images takes and returns.
fn shape_of(card: &Card) -> ModelShape {
    let Input { channels, height, width } = card.input;
    let classes = card.classes.len() as i64;
    let shape = ModelShape::images([channels, height, width], classes);
    match Architecture::of(card.architecture).reads() {
        Reads::DetectionImages => ModelShape { output: OutputShape::Boxes(classes), ..shape },
        Reads::Images | Reads::Tokens | Reads::CausalTokens => shape,
    }
}

fn card(path: &Path) -> std::result::Result<(Value, Card), Error> {
    let wrong = |why: String| {
        let message = format!("the model's card `{}` cannot be used: {why}", path.display());
        Finding::new(Cause::Job, message).hint("name the folder that a run exported")
    };
    let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
    let value: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let card = Card::deserialize(&value).map_err(|error| wrong(error.to_string()))?;
    Ok((value, card))
}

/// Scales the convolution's weights by the normalization's scale, and returns the convolution's bias; the normalization
/// then only adds.
fn fold_one(network: &Network, pair: &ConvNormPair) -> Result<Named> {
    let find = |name: String| -> Result<Tensor> {
        let named = network.weights().all().find(|named| named.name == name);
        Ok(named.ok_or_else(|| torch::Error::new(format!("`{name}` is missing")))?.tensor.f_detach()?)
    };
    let mut weight = find(format!("{}.weight", pair.convolution))?;
    let of_norm = |part: &str| find(format!("{}.{part}", pair.normalisation));
    let (mut scale, mut bias) = (of_norm("weight")?, of_norm("bias")?);
    let (mut mean, mut variance) = (of_norm("running_mean")?, of_norm("running_var")?);
    // In 64 bits, so that only the result is rounded.
    let double = |tensor: &Tensor| tensor.f_to_kind(Kind::Double);
    let factor = double(&scale)?.f_div(&double(&variance)?.f_add_scalar(pair.eps)?.f_sqrt()?)?;
    let shift = double(&bias)?.f_sub(&double(&mean)?.f_mul(&factor)?)?;
    let folded = double(&weight)?.f_mul(&factor.f_view([-1, 1, 1, 1])?)?;
    weight.f_copy_(&folded)?;
    bias.f_copy_(&shift)?;
    let _ = (scale.f_fill_(1.0)?, mean.f_zero_()?, variance.f_fill_(1.0 - pair.eps)?);
    Ok(Named { name: format!("{}.bias", pair.convolution), tensor: torch::copied(&bias)? })
}

fn relative(one: &Tensor, other: &Tensor) -> Result<f64> {
    let largest = |tensor: &Tensor| -> Result<f64> { Ok(tensor.f_abs()?.f_max()?.f_double_value(&[])?) };
    Ok(largest(&one.f_sub(other)?)? / largest(one)?.max(f64::MIN_POSITIVE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folded_networks_score_as_before() {
        let _turn = torch::turn();
        let found = [
            (Model::Resnet20, 19, 32),
            (Model::Resnet50, 53, 64),
            (Model::MobilenetV2, 52, 32),
            (Model::MobilenetV3Small, 34, 32),
        ];
        for (model, count, size) in found {
            let network =
                Network::new(model, ModelShape::images([3, size, size], 5), 1, Device::Cpu, MemoryFormat::Contiguous)
                    .unwrap();
            let noise = Tensor::randn([8, 3, size, size], (Kind::Float, Device::Cpu));
            // Statistics and scales other than their initial values.
            tch::no_grad(|| {
                for named in network.weights().all().filter(|named| named.tensor.dim() == 1) {
                    named.tensor.detach().copy_(&(&named.tensor + Tensor::rand_like(&named.tensor) * 0.2));
                }
                for _ in 0..3 {
                    let _ = network.forward(&noise, &Pass::whole(true)).unwrap();
                }
            });
            let scores = || tch::no_grad(|| network.forward(&noise, &Pass::whole(false))).unwrap();
            let before = scores();
            let pairs = network.weights().pairs();
            assert_eq!(pairs.len(), count, "{model:?}");
            for pair in pairs {
                let bias = tch::no_grad(|| fold_one(&network, pair)).unwrap();
                assert!(bias.name.ends_with(".bias"));
            }
            let difference = relative(&before, &scores()).unwrap();
            assert!(difference < 1e-5, "{model:?}: {difference:e}");
        }
    }
}
