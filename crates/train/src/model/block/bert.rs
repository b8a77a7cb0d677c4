//! A layer of BERT (Devlin et al. 2018).

use tch::Tensor;

use crate::model::nn::attention::{AttentionMask, attention};
use crate::model::nn::layer::{LayerNorm, Linear};
use crate::model::nn::{Pass, Weights};
use crate::torch::Result;

/// Dropout probability of hidden states and of attention alike.
pub(in crate::model) const DROPOUT: f64 = 0.1;
/// Added to the variance of every layer normalisation.
pub(in crate::model) const EPS: f64 = 1e-12;
/// Standard deviation of initial weights.
pub(in crate::model) const DEVIATION: f64 = 0.02;

/// One layer: attention and two linear layers, each added to its input and then normalised.
#[derive(Debug)]
pub struct BertLayer {
    query: Linear,
    key: Linear,
    value: Linear,
    output: Linear,
    output_norm: LayerNorm,
    first: Linear,
    second: Linear,
    norm: LayerNorm,
    head_width: i64,
}

impl BertLayer {
    pub(in crate::model) fn new(weights: &mut Weights, name: &str, width: i64, heads: i64) -> Result<BertLayer> {
        let square = [width, width];
        Ok(BertLayer {
            query: linear(weights, &format!("{name}.attention.self.query"), square)?,
            key: linear(weights, &format!("{name}.attention.self.key"), square)?,
            value: linear(weights, &format!("{name}.attention.self.value"), square)?,
            output: linear(weights, &format!("{name}.attention.output.dense"), square)?,
            output_norm: LayerNorm::new(weights, &format!("{name}.attention.output.LayerNorm"), width, EPS)?,
            first: linear(weights, &format!("{name}.intermediate.dense"), [width, 4 * width])?,
            second: linear(weights, &format!("{name}.output.dense"), [4 * width, width])?,
            norm: LayerNorm::new(weights, &format!("{name}.output.LayerNorm"), width, EPS)?,
            head_width: width / heads,
        })
    }

    pub(in crate::model) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let inner = pass.fork(x)?;
        let [query, key, value] = Linear::three([&self.query, &self.key, &self.value], &inner)?;
        let mask = pass.mask.as_ref().map(|mask| mask.f_unsqueeze(1)?.f_unsqueeze(1)).transpose()?;
        let mask = mask.as_ref().map_or(AttentionMask::Full, AttentionMask::Boolean);
        let dropout = pass.dropout(DROPOUT);
        let attention = || attention([&query, &key, &value], self.head_width, mask, dropout);
        let attended = pass.with_rank_dropout(dropout, x, attention)?;
        let attended = pass.apply_dropout(&self.output.join(&attended, pass)?, DROPOUT)?;
        let x = self.output_norm.forward(&attended.f_add(x)?)?;
        let hidden = self.first.forward(&pass.fork(&x)?)?.f_gelu("none")?;
        let hidden = pass.apply_dropout(&self.second.join(&hidden, pass)?, DROPOUT)?;
        self.norm.forward(&hidden.f_add(&x)?)
    }
}

/// A linear layer as BERT draws it.
pub(in crate::model) fn linear(weights: &mut Weights, name: &str, channels: [i64; 2]) -> Result<Linear> {
    Linear::normal(weights, name, channels, DEVIATION)
}
