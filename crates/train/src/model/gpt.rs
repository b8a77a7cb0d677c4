//! GPT-2: a decoder that says the next word from those before it (Radford et al. 2019). Tensor for tensor the
//! `transformers` library's `GPT2LMHeadModel`, whose layers keep their weights as inputs × outputs.

use std::sync::Arc;

use tch::{Kind, Tensor};

use super::attention::{Sight, attend};
use super::layer::LayerNorm;
use super::{Block, Pass, TextShape, Weights};
use crate::torch::{Error, Result};

/// Share of values that a training step leaves out: of the embeddings, the attention and each layer's output.
pub(super) const DROPOUT: f64 = 0.1;
pub(super) const EPS: f64 = 1e-5;
/// Standard deviation of fresh weights.
pub(super) const DEVIATION: f64 = 0.02;

/// What sets one GPT apart from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub layers: i64,
    pub width: i64,
    pub heads: i64,
    /// Positions, so the longest row.
    pub positions: i64,
}

pub(super) struct Gpt {
    words: Tensor,
    vocabulary: i64,
    positions: Tensor,
    pub(super) blocks: Vec<Arc<Block>>,
    norm: LayerNorm,
}

/// One layer: attention to what came before and two linear layers, each after a normalisation and added to what came
/// in.
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

impl Gpt {
    pub(super) fn new(weights: &mut Weights, size: Size, text: TextShape) -> Result<Gpt> {
        let Size { layers, width, positions: longest, .. } = size;
        let words = weights.normal("transformer.wte.weight".into(), &[text.vocabulary, width], DEVIATION)?;
        let positions = weights.normal("transformer.wpe.weight".into(), &[longest, width], DEVIATION)?;
        let mut blocks = Vec::new();
        for layer in 0..layers {
            let name = format!("transformer.h.{layer}");
            blocks.push(weights.block(|weights| Ok(Block::Gpt(GptBlock::new(weights, &name, size)?)))?);
        }
        let norm = LayerNorm::new(weights, "transformer.ln_f", width, EPS)?;
        Ok(Gpt { words, vocabulary: text.vocabulary, positions, blocks, norm })
    }

    /// `tokens` is `samples × length`, int64.
    pub(super) fn stem(&self, tokens: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (_, length) = tokens.size2()?;
        let words = pass.look_up(&self.words, tokens, self.vocabulary, -1)?;
        let positions = match places(pass) {
            Some(places) => Tensor::f_embedding(&self.positions, places, -1, false, false)?,
            None => self.positions.f_narrow(0, 0, length)?,
        };
        pass.apply_dropout(&words.f_add(&positions)?, DROPOUT)
    }

    /// Back to words, by the same vectors that words came in by.
    pub(super) fn head(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        pass.scores(&self.norm.forward(x)?, &self.words, None, self.vocabulary)
    }
}

impl GptBlock {
    fn new(weights: &mut Weights, name: &str, size: Size) -> Result<GptBlock> {
        let Size { layers, width, heads, .. } = size;
        // Scaled by the number of sums on the way through, so that their variance does not grow with the depth.
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

    pub(super) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let all = self.attention.forward(&pass.fork(&self.ln_1.forward(x)?)?)?.f_chunk(3, -1)?;
        let [queries, keys, values] = &all[..] else { return Err(Error::new("attention needs three parts")) };
        let dropout = pass.dropout(DROPOUT);
        // Rows are filled up at their end, and what comes later is not seen, so that one document needs no mask.
        let mask = places(pass).map(own_document).transpose()?;
        let sight = mask.as_ref().map_or(Sight::Before, Sight::Masked);
        let attend = || attend([queries, keys, values], self.head_width, sight, dropout);
        let seen = pass.with_rank_dropout(dropout, x, attend)?;
        let x = pass.apply_dropout(&self.attention_out.join(&seen, pass)?, DROPOUT)?.f_add(x)?;
        let hidden = self.first.forward(&pass.fork(&self.ln_2.forward(&x)?)?)?.f_gelu("tanh")?;
        Ok(pass.apply_dropout(&self.second.join(&hidden, pass)?, DROPOUT)?.f_add(&x)?)
    }
}

/// How far each word is from the beginning of its document, where documents are kept apart.
fn places(pass: &Pass) -> Option<&Tensor> {
    pass.mask.as_ref().filter(|mask| mask.kind() == Kind::Int64)
}

/// What each word sees: itself and those before it, as far as they are of its document; `samples × 1 × length × length`.
fn own_document(places: &Tensor) -> Result<Tensor> {
    let documents = places.f_eq(0)?.f_cumsum(1, Kind::Int64)?;
    let same = documents.f_unsqueeze(2)?.f_eq_tensor(&documents.f_unsqueeze(1)?)?;
    Ok(same.f_tril(0)?.f_unsqueeze(1)?)
}

impl Affine {
    fn new(weights: &mut Weights, name: &str, channels: [i64; 2], deviation: f64) -> Result<Affine> {
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

    /// The same of an `x` whose width may be divided among ranks.
    fn join(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        pass.join(|| self.forward(x), || Ok(x.f_matmul(&self.weight)?), &self.bias)
    }
}
