//! BERT: an encoder that sees a text both ways (Devlin et al. 2018), with a head that says its class or one that fills
//! in masked words. Tensor for tensor the `transformers` library's `BertForSequenceClassification` and
//! `BertForMaskedLM`.

use std::sync::Arc;

use tch::Tensor;

use super::attention::{Sight, attend};
use super::layer::{LayerNorm, Linear};
use super::{Block, OutputShape, Pass, TextShape, Weights};
use crate::torch::{Error, Result};

/// Share of values that a training step leaves out, of the hidden ones and of the attention alike.
pub(super) const DROPOUT: f64 = 0.1;
pub(super) const EPS: f64 = 1e-12;
/// Standard deviation of fresh weights.
pub(super) const DEVIATION: f64 = 0.02;
/// The token that fills rows; its word vector stays zero.
pub(super) const PAD: i64 = 0;

/// What sets one BERT apart from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub layers: i64,
    pub width: i64,
    pub heads: i64,
    /// Positions, so the longest row, however short the rows are.
    pub positions: i64,
}

pub(super) struct Bert {
    words: Tensor,
    vocabulary: i64,
    positions: Tensor,
    segments: Tensor,
    norm: LayerNorm,
    pub(super) blocks: Vec<Arc<Block>>,
    head: Head,
}

enum Head {
    /// The first token's vector through two layers.
    Class { pooler: Linear, classifier: Linear },
    /// Each token's vector through a layer and back to words, by the same vectors that words came in by.
    Words { dense: Linear, norm: LayerNorm, bias: Tensor },
}

/// One layer: attention and two linear layers, each added to what came in and then normalised.
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

impl Bert {
    pub(super) fn new(weights: &mut Weights, size: Size, text: TextShape, output: OutputShape) -> Result<Bert> {
        let Size { layers, width, positions: longest, .. } = size;
        let name = |part: &str| format!("bert.embeddings.{part}");
        let words = weights.draw_normal(&[text.vocabulary, width], DEVIATION)?;
        let _ = words.f_select(0, PAD)?.f_zero_()?;
        let words = weights.parameter(name("word_embeddings.weight"), words)?;
        let positions = weights.normal(name("position_embeddings.weight"), &[longest, width], DEVIATION)?;
        let segments = weights.normal(name("token_type_embeddings.weight"), &[2, width], DEVIATION)?;
        let norm = LayerNorm::new(weights, &name("LayerNorm"), width, EPS)?;
        let mut blocks = Vec::new();
        for layer in 0..layers {
            let name = format!("bert.encoder.layer.{layer}");
            blocks.push(weights.block(|weights| Ok(Block::Bert(BertLayer::new(weights, &name, size)?)))?);
        }
        let head = match output {
            OutputShape::Classes(classes) => Head::Class {
                pooler: linear(weights, "bert.pooler.dense", [width, width])?,
                classifier: linear(weights, "classifier", [width, classes])?,
            },
            OutputShape::Boxes(_) => return Err(Error::new("this model reads text")),
            OutputShape::Tokens => Head::Words {
                dense: linear(weights, "cls.predictions.transform.dense", [width, width])?,
                norm: LayerNorm::new(weights, "cls.predictions.transform.LayerNorm", width, EPS)?,
                bias: weights.zeros("cls.predictions.bias".into(), &[text.vocabulary])?,
            },
        };
        Ok(Bert { words, vocabulary: text.vocabulary, positions, segments, norm, blocks, head })
    }

    /// `tokens` is `samples × length`, int64; all are of the first segment.
    pub(super) fn stem(&self, tokens: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (_, length) = tokens.size2()?;
        let words = pass.look_up(&self.words, tokens, self.vocabulary, PAD)?;
        let x = words.f_add(&self.segments.f_select(0, 0)?)?;
        let x = x.f_add(&self.positions.f_narrow(0, 0, length)?)?;
        pass.apply_dropout(&self.norm.forward(&x)?, DROPOUT)
    }

    pub(super) fn head(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        match &self.head {
            Head::Class { pooler, classifier } => {
                let pooled = pooler.forward(&x.f_select(1, 0)?)?.f_tanh()?;
                classifier.forward(&pass.apply_dropout(&pooled, DROPOUT)?)
            }
            Head::Words { dense, norm, bias } => {
                let x = norm.forward(&dense.forward(x)?.f_gelu("none")?)?;
                pass.scores(&x, &self.words, Some(bias), self.vocabulary)
            }
        }
    }
}

impl BertLayer {
    fn new(weights: &mut Weights, name: &str, Size { width, heads, .. }: Size) -> Result<BertLayer> {
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

    pub(super) fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        let inner = pass.fork(x)?;
        let (query, key, value) = (self.query.forward(&inner)?, self.key.forward(&inner)?, self.value.forward(&inner)?);
        let mask = pass.mask.as_ref().map(|mask| mask.f_unsqueeze(1)?.f_unsqueeze(1)).transpose()?;
        let sight = mask.as_ref().map_or(Sight::All, Sight::Masked);
        let dropout = pass.dropout(DROPOUT);
        let seen =
            pass.with_rank_dropout(dropout, x, || attend([&query, &key, &value], self.head_width, sight, dropout))?;
        let seen = pass.apply_dropout(&self.output.join(&seen, pass)?, DROPOUT)?;
        let x = self.output_norm.forward(&seen.f_add(x)?)?;
        let hidden = self.first.forward(&pass.fork(&x)?)?.f_gelu("none")?;
        let hidden = pass.apply_dropout(&self.second.join(&hidden, pass)?, DROPOUT)?;
        self.norm.forward(&hidden.f_add(&x)?)
    }
}

fn linear(weights: &mut Weights, name: &str, channels: [i64; 2]) -> Result<Linear> {
    Linear::normal(weights, name, channels, DEVIATION)
}
