//! GPT-2: a decoder that predicts the next token from those before it (Radford et al. 2019). Tensor for tensor the
//! `transformers` library's `GPT2LMHeadModel`, whose layers keep their weights as inputs × outputs.

use std::rc::Rc;
use std::sync::Arc;

use tch::Tensor;

use crate::model::block::ModelBlock;
use crate::model::block::gpt::{DEVIATION, DROPOUT, EPS, GptBlock, places};
use crate::model::nn::layer::LayerNorm;
use crate::model::nn::{Pass, Weights};
use crate::model::shape::TextShape;
use crate::torch::Result;

/// Configuration of a GPT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::model) struct Size {
    pub layers: i64,
    pub width: i64,
    pub heads: i64,
    /// Position embeddings, so the length of the longest row in tokens.
    pub positions: i64,
}

pub(in crate::model) struct Gpt {
    tokens: Tensor,
    vocabulary: i64,
    positions: Tensor,
    pub(in crate::model) blocks: Vec<Arc<ModelBlock>>,
    pub(in crate::model) head: Rc<TokenHead>,
}

/// What makes logits of the next token from the last block's output: each position by itself.
#[derive(Debug)]
pub struct TokenHead {
    norm: LayerNorm,
    /// The token embeddings, which are tied.
    tokens: Tensor,
    vocabulary: i64,
}

impl TokenHead {
    /// Logits, `… × vocabulary`, of `… × width`.
    ///
    /// # Errors
    /// When libtorch, or an exchange between ranks that divide the layers, fails.
    pub fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        pass.logits(&self.norm.forward(x)?, &self.tokens, None, self.vocabulary)
    }

    /// What it uses that is trained.
    pub fn parameters(&self) -> Vec<Tensor> {
        let all = [&self.tokens, self.norm.weight(), self.norm.bias()];
        all.into_iter().filter(|tensor| tensor.requires_grad()).map(Tensor::shallow_clone).collect()
    }
}

impl Gpt {
    pub(in crate::model) fn new(weights: &mut Weights, size: Size, text: TextShape) -> Result<Gpt> {
        let Size { layers, width, heads, positions: longest } = size;
        let tokens = weights.normal("transformer.wte.weight".into(), &[text.vocabulary, width], DEVIATION)?;
        let positions = weights.normal("transformer.wpe.weight".into(), &[longest, width], DEVIATION)?;
        let mut blocks = Vec::new();
        for layer in 0..layers {
            let name = format!("transformer.h.{layer}");
            blocks.push(
                weights.block(|weights| Ok(ModelBlock::Gpt(GptBlock::new(weights, &name, layers, width, heads)?)))?,
            );
        }
        let norm = LayerNorm::new(weights, "transformer.ln_f", width, EPS)?;
        let vocabulary = text.vocabulary;
        let head = Rc::new(TokenHead { norm, tokens: tokens.shallow_clone(), vocabulary });
        Ok(Gpt { tokens, vocabulary, positions, blocks, head })
    }

    /// `tokens` is `samples × length`, int64.
    pub(in crate::model) fn stem(&self, tokens: &Tensor, pass: &Pass) -> Result<Tensor> {
        let (_, length) = tokens.size2()?;
        let x = pass.look_up(&self.tokens, tokens, self.vocabulary, -1)?;
        let positions = match places(pass) {
            Some(places) => Tensor::f_embedding(&self.positions, places, -1, false, false)?,
            None => self.positions.f_narrow(0, 0, length)?,
        };
        pass.apply_dropout(&x.f_add(&positions)?, DROPOUT)
    }
}
