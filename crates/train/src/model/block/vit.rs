//! A layer of the vision transformer (Dosovitskiy et al. 2020).

use tch::Tensor;

use crate::model::nn::attention::{AttentionMask, attention};
use crate::model::nn::layer::{LayerNorm, Linear};
use crate::model::nn::{Pass, Weights};
use crate::torch::{Error, Result};

/// Added to the variance of every layer normalisation.
pub(in crate::model) const EPS: f64 = 1e-6;

/// One layer: attention, then two linear layers, each after a normalisation and added to its input.
#[derive(Debug)]
pub struct VitBlock {
    ln_1: LayerNorm,
    in_proj_weight: Tensor,
    in_proj_bias: Tensor,
    out_proj: Linear,
    ln_2: LayerNorm,
    first: Linear,
    second: Linear,
    head_width: i64,
}

impl VitBlock {
    pub(in crate::model) fn new(weights: &mut Weights, name: &str, width: i64, heads: i64) -> Result<VitBlock> {
        let attention = format!("{name}.self_attention");
        weights.mark_cast(format!("{attention}.out_proj.weight"));
        Ok(VitBlock {
            ln_1: LayerNorm::new(weights, &format!("{name}.ln_1"), width, EPS)?,
            in_proj_weight: xavier(weights, format!("{attention}.in_proj_weight"), [width, 3 * width])?,
            in_proj_bias: weights.zeros(format!("{attention}.in_proj_bias"), &[3 * width])?,
            out_proj: Linear::of(
                // `nn.MultiheadAttention` draws it as `nn.Linear` does and sets only the bias.
                weights.uniform(
                    format!("{attention}.out_proj.weight"),
                    &[width, width],
                    1.0 / (width as f64).sqrt(),
                )?,
                weights.zeros(format!("{attention}.out_proj.bias"), &[width])?,
            ),
            ln_2: LayerNorm::new(weights, &format!("{name}.ln_2"), width, EPS)?,
            first: mlp(weights, &format!("{name}.mlp.0"), [width, 4 * width])?,
            second: mlp(weights, &format!("{name}.mlp.3"), [4 * width, width])?,
            head_width: width / heads,
        })
    }

    pub(in crate::model) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let normal = pass.fork(&self.ln_1.forward(x)?)?;
        let all = normal.f_linear(&self.in_proj_weight, Some(&self.in_proj_bias))?.f_chunk(3, -1)?;
        let [queries, keys, values] = &all[..] else { return Err(Error::new("attention needs three parts")) };
        let attended = attention([queries, keys, values], self.head_width, AttentionMask::Full, 0.0)?;
        let x = self.out_proj.join(&attended, pass)?.f_add(x)?;
        let hidden = self.first.forward(&pass.fork(&self.ln_2.forward(&x)?)?)?.f_gelu("none")?;
        Ok(self.second.join(&hidden, pass)?.f_add(&x)?)
    }
}

/// A linear layer drawn uniformly by fan-in and fan-out (Glorot and Bengio 2010), its bias close to zero.
fn mlp(weights: &mut Weights, name: &str, channels: [i64; 2]) -> Result<Linear> {
    let weight = xavier(weights, format!("{name}.weight"), channels)?;
    Ok(Linear::of(weight, weights.normal(format!("{name}.bias"), &[channels[1]], 1e-6)?))
}

fn xavier(weights: &mut Weights, name: String, [inputs, outputs]: [i64; 2]) -> Result<Tensor> {
    weights.mark_cast(name.clone());
    weights.uniform(name, &[outputs, inputs], (6.0 / (inputs + outputs) as f64).sqrt())
}
