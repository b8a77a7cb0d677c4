//! BERT: a bidirectional encoder (Devlin et al. 2018), with a head that classifies the text or one that predicts masked
//! tokens. Tensor for tensor the `transformers` library's `BertForSequenceClassification` and
//! `BertForMaskedLM`.

use std::sync::Arc;

use tch::{Kind, Tensor};

use crate::model::block::ModelBlock;
use crate::model::block::bert::{BertLayer, DEVIATION, DROPOUT, EPS, linear};
use crate::model::nn::layer::{LayerNorm, Linear};
use crate::model::nn::{Pass, Weights};
use crate::model::shape::{OutputShape, TextShape};
use crate::torch::{Error, Result};

/// The padding token; its embedding stays zero.
pub(in crate::model) const PAD: i64 = 0;

/// Configuration of a BERT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) struct Size {
    pub layers: i64,
    pub width: i64,
    pub heads: i64,
    /// Position embeddings, so the length of the longest row in tokens.
    pub positions: i64,
}

pub(in crate::model) struct Bert {
    tokens: Tensor,
    vocabulary: i64,
    positions: Tensor,
    segments: Tensor,
    /// The token that separates the two texts of a pair.
    separator: Option<i64>,
    norm: LayerNorm,
    pub(in crate::model) blocks: Vec<Arc<ModelBlock>>,
    head: Head,
}

enum Head {
    /// The first token's hidden state through two layers.
    Class { pooler: Linear, classifier: Linear },
    /// Each token's hidden state through a layer, then logits by the token embeddings, which are tied.
    Tokens { dense: Linear, norm: LayerNorm, bias: Tensor },
}

impl Bert {
    pub(in crate::model) fn new(
        weights: &mut Weights,
        size: Size,
        text: TextShape,
        output: OutputShape,
    ) -> Result<Bert> {
        let Size { layers, width, heads, positions: longest } = size;
        let name = |part: &str| format!("bert.embeddings.{part}");
        let tokens = weights.draw_normal(&[text.vocabulary, width], DEVIATION)?;
        let _ = tokens.f_select(0, PAD)?.f_zero_()?;
        let tokens = weights.parameter(name("word_embeddings.weight"), tokens)?;
        let positions = weights.normal(name("position_embeddings.weight"), &[longest, width], DEVIATION)?;
        let segments = weights.normal(name("token_type_embeddings.weight"), &[2, width], DEVIATION)?;
        let norm = LayerNorm::new(weights, &name("LayerNorm"), width, EPS)?;
        let mut blocks = Vec::new();
        for layer in 0..layers {
            let name = format!("bert.encoder.layer.{layer}");
            blocks.push(weights.block(|weights| Ok(ModelBlock::Bert(BertLayer::new(weights, &name, width, heads)?)))?);
        }
        let head = match (output, output.units()) {
            (_, Some(units)) => Head::Class {
                pooler: linear(weights, "bert.pooler.dense", [width, width])?,
                classifier: linear(weights, "classifier", [width, units])?,
            },
            (OutputShape::Boxes(_), _) => return Err(Error::new("this model reads text")),
            (_, None) => Head::Tokens {
                dense: linear(weights, "cls.predictions.transform.dense", [width, width])?,
                norm: LayerNorm::new(weights, "cls.predictions.transform.LayerNorm", width, EPS)?,
                bias: weights.zeros("cls.predictions.bias".into(), &[text.vocabulary])?,
            },
        };
        let TextShape { vocabulary, separator, .. } = text;
        Ok(Bert { tokens, vocabulary, positions, segments, separator, norm, blocks, head })
    }

    /// `tokens` is `samples × length`, int64; all are of the first segment, but for the second text of a pair.
    pub(in crate::model) fn stem(&self, tokens: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (_, length) = tokens.size2()?;
        let x = pass.look_up(&self.tokens, tokens, self.vocabulary, PAD)?;
        let x = match self.separator {
            None => x.f_add(&self.segments.f_select(0, 0)?)?,
            Some(separator) => {
                let segments = second_segment(tokens, separator)?;
                x.f_add(&Tensor::f_embedding(&self.segments, &segments, -1, false, false)?)?
            }
        };
        let x = x.f_add(&self.positions.f_narrow(0, 0, length)?)?;
        pass.apply_dropout(&self.norm.forward(&x)?, DROPOUT)
    }

    pub(in crate::model) fn head(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        match &self.head {
            Head::Class { pooler, classifier } => {
                let pooled = pooler.forward(&x.f_select(1, 0)?)?.f_tanh()?;
                classifier.forward(&pass.apply_dropout(&pooled, DROPOUT)?)
            }
            Head::Tokens { dense, norm, bias } => {
                let x = norm.forward(&dense.forward(x)?.f_gelu("none")?)?;
                pass.logits(&x, &self.tokens, Some(bias), self.vocabulary)
            }
        }
    }
}

/// 1 behind the first separator of each row, else 0: the `token_type_ids` of `[CLS] first [SEP] second [SEP]`. Padding,
/// which nothing attends to, counts to the second text. Int64, `samples × length`.
fn second_segment(tokens: &Tensor, separator: i64) -> Result<Tensor> {
    let separators = tokens.f_eq(separator)?.f_to_kind(Kind::Int64)?;
    Ok(separators.f_cumsum(1, Kind::Int64)?.f_sub(&separators)?.f_clamp_max(1)?)
}
