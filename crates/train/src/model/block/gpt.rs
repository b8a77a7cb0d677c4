//! A layer of GPT-2 (Radford et al. 2019).

use tch::{Kind, Tensor};

use crate::model::nn::attention::{AttentionMask, attention};
use crate::model::nn::layer::LayerNorm;
use crate::model::nn::{Pass, Weights};
use crate::torch::{Error, Result};

/// Dropout probability of the embeddings, of attention and of each layer's output.
pub(in crate::model) const DROPOUT: f64 = 0.1;
/// Added to the variance of every layer normalisation.
pub(in crate::model) const EPS: f64 = 1e-5;
/// Standard deviation of initial weights.
pub(in crate::model) const DEVIATION: f64 = 0.02;

/// One layer: causal attention and two linear layers, each after a normalisation and added to its input.
#[derive(Debug)]
pub struct GptBlock {
    ln_1: LayerNorm,
    attention: Affine,
    attention_out: Affine,
    ln_2: LayerNorm,
    first: Affine,
    second: Affine,
    head_width: i64,
}

/// `x · weight + bias`, the weight as inputs × outputs.
#[derive(Debug)]
struct Affine {
    weight: Tensor,
    bias: Tensor,
}

impl GptBlock {
    /// One of `layers`.
    pub(in crate::model) fn new(
        weights: &mut Weights,
        name: &str,
        layers: i64,
        width: i64,
        heads: i64,
    ) -> Result<GptBlock> {
        // Scaled by the number of residual additions, so that their variance does not grow with the depth.
        let into_sum = DEVIATION / (2.0 * layers as f64).sqrt();
        Ok(GptBlock {
            ln_1: LayerNorm::new(weights, &format!("{name}.ln_1"), width, EPS)?,
            attention: Affine::new(weights, &format!("{name}.attn.c_attn"), [width, 3 * width], DEVIATION)?,
            attention_out: Affine::new(weights, &format!("{name}.attn.c_proj"), [width, width], into_sum)?,
            ln_2: LayerNorm::new(weights, &format!("{name}.ln_2"), width, EPS)?,
            first: Affine::new(weights, &format!("{name}.mlp.c_fc"), [width, 4 * width], DEVIATION)?,
            second: Affine::new(weights, &format!("{name}.mlp.c_proj"), [4 * width, width], into_sum)?,
            head_width: width / heads,
        })
    }

    pub(in crate::model) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let all = self.attention.forward(&pass.fork(&self.ln_1.forward(x)?)?)?.f_chunk(3, -1)?;
        let [queries, keys, values] = &all[..] else { return Err(Error::new("attention needs three parts")) };
        let dropout = pass.dropout(DROPOUT);
        // Rows are padded at their end and attention is causal, so that a single document needs no mask.
        let mask = places(pass).map(own_document).transpose()?;
        let mask = mask.as_ref().map_or(AttentionMask::Causal, AttentionMask::Boolean);
        let attention = || attention([queries, keys, values], self.head_width, mask, dropout);
        let attended = pass.with_rank_dropout(dropout, x, attention)?;
        let x = pass.apply_dropout(&self.attention_out.join(&attended, pass)?, DROPOUT)?.f_add(x)?;
        let hidden = self.first.forward(&pass.fork(&self.ln_2.forward(&x)?)?)?.f_gelu("tanh")?;
        Ok(pass.apply_dropout(&self.second.join(&hidden, pass)?, DROPOUT)?.f_add(&x)?)
    }
}

/// The position of each token within its document, where documents do not see each other.
pub(in crate::model) fn places(pass: &Pass) -> Option<&Tensor> {
    pass.mask.as_ref().filter(|mask| mask.kind() == Kind::Int64)
}

/// The attention mask of each token: itself and the tokens before it in the same document; boolean, `samples × 1 ×
/// length × length`.
fn own_document(places: &Tensor) -> Result<Tensor> {
    let documents = places.f_eq(0)?.f_cumsum(1, Kind::Int64)?;
    let same = documents.f_unsqueeze(2)?.f_eq_tensor(&documents.f_unsqueeze(1)?)?;
    Ok(same.f_tril(0)?.f_unsqueeze(1)?)
}

impl Affine {
    fn new(weights: &mut Weights, name: &str, channels: [i64; 2], deviation: f64) -> Result<Affine> {
        weights.mark_cast(format!("{name}.weight"));
        Ok(Affine {
            weight: weights.normal(format!("{name}.weight"), &channels, deviation)?,
            bias: weights.zeros(format!("{name}.bias"), &[channels[1]])?,
        })
    }

    fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let shape = x.size();
        let [rest @ .., width] = &shape[..] else { return Err(Error::new("a single number has no width")) };
        let rows = x.f_reshape([-1, *width])?;
        let out = self.bias.f_addmm(&rows, &self.weight)?;
        let shape: Vec<i64> = rest.iter().copied().chain([self.weight.size()[1]]).collect();
        Ok(out.f_view(&shape[..])?)
    }

    /// Like `forward`, for an `x` whose width may be divided among ranks.
    fn join(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        pass.join(|| self.forward(x), || Ok(x.f_matmul(&self.weight)?), &self.bias)
    }
}
