//! Networks over pictures.

use domain::problem::Problem;

use super::figures::Figures;
use crate::model::families::block::{Block, Feed, Order};
use crate::model::families::resnet::{self, Stem};
use crate::model::families::{Convnext, Resnet, Vit};
use crate::model::{Function, Graph, Norm};

pub(super) fn vit(figures: &Figures, kind: &str) -> Result<Graph, Problem> {
    let hidden = figures.number(&["hidden_size"])?;
    let heads = figures.heads(&["num_attention_heads"], hidden)?;
    let beit = matches!(kind, "beit" | "data2vec-vision");
    let dino = kind == "dinov2";
    let dropout = figures.rate("hidden_dropout_prob", false);
    let width = match dino {
        true => hidden * figures.small(&["mlp_ratio"], 4)?.min(64),
        false => figures.or(&["intermediate_size"], 4 * hidden)?,
    };
    let [_, height, breadth] = figures.picture()?;
    let patch = figures.small(&["patch_size"], 16)?;
    if patch > height || patch > breadth {
        return Err(Problem::at("patch_size", format!("a patch of {patch} pixels is larger than the picture"))
            .hint("give the size of the pictures"));
    }
    let network = Vit {
        picture: figures.picture()?,
        patch,
        layers: figures.layers(&["num_hidden_layers"])?,
        block: Block {
            hidden,
            heads,
            key_heads: heads,
            head_width: hidden / heads,
            order: Order::Before,
            norm: Norm::Layer,
            norm_bias: true,
            head_norm: false,
            joined: false,
            query_bias: figures.flag("qkv_bias", true),
            key_bias: !beit,
            output_bias: true,
            rotary: false,
            causal: false,
            window: None,
            attention_dropout: figures.rate("attention_probs_dropout_prob", false),
            dropout,
            feed: Feed {
                width,
                function: figures.function(&["hidden_act"], Function::Gelu),
                gated: figures.flag("use_swiglu_ffn", false),
                bias: true,
                experts: None,
            },
        },
        tokens: 1 + u64::from(kind == "deit"),
        positions: !beit || figures.flag("use_absolute_position_embeddings", false),
        scaled: dino || beit,
        last_norm: true,
        classes: figures.classes(1000)?,
    };
    Ok(network.graph())
}

pub(super) fn resnet(figures: &Figures) -> Result<Graph, Problem> {
    let basic = figures.text("layer_type") == Some("basic");
    let stages = figures.list("depths")?.unwrap_or(vec![3, 4, 6, 3]);
    if stages.len() > 8 || stages.iter().sum::<u64>() > 4096 {
        return Err(
            Problem::at("depths", format!("`{stages:?}` is deeper than any network")).hint("such as `[3, 4, 6, 3]`")
        );
    }
    let network = Resnet {
        picture: figures.picture()?,
        classes: figures.classes(1000)?,
        stem: Stem::Large,
        block: if basic { resnet::Block::Basic } else { resnet::Block::Bottleneck },
        stages,
        channels: figures.or(&["embedding_size"], 64)?.min(1 << 14),
        groups: 1,
        group_width: 64,
    };
    Ok(network.graph())
}

pub(super) fn convnext(figures: &Figures) -> Result<Graph, Problem> {
    let depths = figures.list("depths")?.unwrap_or(vec![3, 3, 9, 3]);
    let widths = figures.list("hidden_sizes")?.unwrap_or(vec![96, 192, 384, 768]);
    if depths.len() != widths.len() || depths.iter().sum::<u64>() > 4096 {
        return Err(
            Problem::at("depths", "`depths` and `hidden_sizes` do not belong together").hint("one of each a stage")
        );
    }
    let network = Convnext {
        picture: figures.picture()?,
        patch: figures.small(&["patch_size"], 4)?,
        depths,
        widths,
        classes: figures.classes(1000)?,
    };
    Ok(network.graph())
}
