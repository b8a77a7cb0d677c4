//! DETR: a residual network whose last image an encoder reads, and a decoder that asks it for objects (Carion et al.
//! 2020).

use super::super::block::TransformerBlock;
use super::resnet::Resnet;
use crate::model::builder::{Builder, Convolution, Owned, Rows};
use crate::model::graph::{Function, Graph, Norm, OpKind, WeightSplit};

/// A DETR.
#[derive(Debug, Clone, PartialEq)]
pub struct Detr {
    /// The network that sees; its last layer is not used.
    pub sees: Resnet,
    pub encoder_layers: u64,
    pub decoder_layers: u64,
    pub encoder: TransformerBlock,
    pub decoder: TransformerBlock,
    /// Objects that are asked for.
    pub objects: u64,
    /// Entries of a table of places, one for rows and one for columns of half the width each; 0: they are computed.
    pub places: u64,
    /// Classes of an object; none for the bare network.
    pub classes: Option<u64>,
}

impl Detr {
    /// Builds the graph of one image with the losses over its queries.
    pub fn graph(&self) -> Graph {
        let mut builder = Builder::new();
        let hidden = self.encoder.hidden;
        let seen = self.sees.features(&mut builder);
        let seen = builder.convolution("narrow", seen, Convolution::new(hidden, 1, 1).biased());
        let mut encoded = Rows { tensor: seen.tensor, rows: seen.height * seen.width, width: hidden };
        if self.places > 0 {
            let owned = Owned::parameters(self.places * hidden);
            let kind = OpKind::Copy { elements: encoded.elements() };
            builder.add("places", kind, &[], encoded.elements(), owned);
        }
        if self.encoder.dropout {
            encoded = builder.dropout("dropout", encoded);
        }
        for _ in 0..self.encoder_layers {
            encoded = self.encoder.add(&mut builder, encoded);
        }
        // What is asked for begins as nothing but its places, which each block adds anew.
        let elements = self.objects * hidden;
        let owned = Owned::parameters(elements);
        let asked = builder.add("objects", OpKind::Copy { elements }, &[], elements, owned);
        let mut at = Rows { tensor: asked, rows: self.objects, width: hidden };
        for _ in 0..self.decoder_layers {
            at = self.decoder.add_across(&mut builder, at, encoded);
        }
        builder.end_blocks();
        at = builder.norm("norm", at, Norm::Layer, true);
        if let Some(classes) = self.classes {
            // One class more for nothing, and the edges of a box.
            let scores = builder.linear("class", at, classes + 1, true, WeightSplit::Whole);
            builder.loss(scores.tensor, self.objects, classes + 1);
            let mut inner = at;
            for layer in 0..2 {
                inner = builder.linear(format!("box.{layer}"), inner, hidden, true, WeightSplit::Whole);
                inner = builder.apply(format!("box.{layer}.relu"), inner, Function::Relu);
            }
            builder.linear("box.2", inner, 4, true, WeightSplit::Whole);
        }
        builder.finish()
    }
}
