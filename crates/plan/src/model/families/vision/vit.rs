//! Vision transformers: an image cut into patches, each a token (Dosovitskiy et al. 2020).

use super::super::block::TransformerBlock;
use crate::model::builder::{Builder, Convolution, Owned, Rows};
use crate::model::graph::{Function, Graph, OpKind, WeightSplit};

/// A vision transformer.
#[derive(Debug, Clone, PartialEq)]
pub struct Vit {
    /// Channels, height and width of an image.
    pub image: [u64; 3],
    /// Side of a patch.
    pub patch: u64,
    pub layers: u64,
    pub block: TransformerBlock,
    /// Tokens beside the patches: one for the class, in DeiT one for the teacher.
    pub tokens: u64,
    /// One more token is learned, which stands for patches that training hides.
    pub hides: bool,
    /// The classifier uses the first token concatenated with the mean of the patches, instead of the first token alone.
    pub means: bool,
    /// Positions are trained.
    pub positions: bool,
    /// Scores of each block depend on how far patches are from each other, by a table of its own.
    pub distances: bool,
    /// Each residual branch is scaled by a learned value a channel.
    pub scaled: bool,
    /// The last block's output is normalised.
    pub last_norm: bool,
    /// Classes of the last layer; 0 without one.
    pub classes: u64,
    /// It finds objects, as YOLOS does: so many of its tokens are one each.
    pub finds: Option<Finds>,
}

/// How a vision transformer finds objects (Fang et al. 2021).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Finds {
    /// Tokens that each become an object.
    pub objects: u64,
    /// Blocks after the first add positions of their own.
    pub places_again: bool,
    /// Detection: predicts classes and boxes.
    pub tells: bool,
}

impl Vit {
    /// Builds the graph of one image, channels × height × width, up to the loss of its head.
    pub fn graph(&self) -> Graph {
        let mut builder = Builder::new();
        let [channels, height, width] = self.image;
        let hidden = self.block.hidden;
        let image = builder.image(channels, height, width);
        let cut = Convolution::new(hidden, self.patch, self.patch).padding(0).biased();
        let patches = builder.convolution("patches", image, cut);
        let rows = patches.height * patches.width + self.tokens;
        let elements = rows * hidden;
        let owned = Owned::parameters((self.tokens + u64::from(self.hides)) * hidden);
        let joined = builder.add("tokens", OpKind::Copy { elements }, &[patches.tensor], elements, owned);
        let mut at = Rows { tensor: joined, rows, width: hidden };
        if self.positions {
            let kind = OpKind::Elementwise { elements, inputs: 1, product: false };
            at.tensor = builder.add("positions", kind, &[at.tensor], elements, Owned::parameters(elements));
        }
        let steps = (2 * patches.height - 1).saturating_mul(2 * patches.width - 1);
        for layer in 0..self.layers {
            at = self.block.add(&mut builder, at);
            if self.distances {
                // Three more for distances to and from the first token.
                let values = steps.saturating_add(3).saturating_mul(self.block.heads);
                builder.embed("distances", 1, values, 1, WeightSplit::Whole);
            }
            if self.finds.is_some_and(|finds| finds.places_again) && layer + 1 < self.layers {
                let kind = OpKind::Elementwise { elements, inputs: 1, product: false };
                at.tensor = builder.add("positions", kind, &[at.tensor], elements, Owned::parameters(elements));
            }
            if self.scaled {
                for part in ["scale1", "scale2"] {
                    let kind = OpKind::Elementwise { elements, inputs: 1, product: true };
                    at.tensor = builder.add(part, kind, &[at.tensor], elements, Owned::parameters(hidden));
                }
            }
        }
        builder.end_blocks();
        if self.last_norm {
            at = builder.norm("norm", at, self.block.norm, self.block.norm_bias);
        }
        if let Some(finds) = self.finds.filter(|finds| finds.tells) {
            // One class more for nothing, and the edges of a box.
            let objects = Rows { rows: finds.objects, ..at };
            for (name, width) in [("class", self.classes + 1), ("box", 4)] {
                let mut inner = objects;
                for layer in 0..2 {
                    inner = builder.linear(format!("{name}.{layer}"), inner, hidden, true, WeightSplit::Whole);
                    inner = builder.apply(format!("{name}.{layer}.relu"), inner, Function::Relu);
                }
                let scores = builder.linear(format!("{name}.2"), inner, width, true, WeightSplit::Whole);
                builder.loss(scores.tensor, finds.objects, width);
            }
        } else if self.classes > 0 {
            let first = Rows { rows: 1, width: if self.means { 2 * hidden } else { hidden }, ..at };
            let scores = builder.linear("classifier", first, self.classes, true, WeightSplit::Whole);
            builder.loss(scores.tensor, 1, self.classes);
        }
        builder.finish()
    }
}
