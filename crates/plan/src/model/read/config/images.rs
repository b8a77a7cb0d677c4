//! Networks over images.

use domain::problem::Problem;

use super::fields::ConfigFields;
use crate::model::families::block::{Feed, TransformerBlock};
use crate::model::families::clip::{Clip, Sees, TextTower};
use crate::model::families::vision::resnet::{self, Stem, Variation};
use crate::model::families::vision::vit::Finds;
use crate::model::families::{Convnext, Mobilenet, Resnet, Vit, Yolo};
use crate::model::{Function, Graph};

pub(super) fn vit(figures: &ConfigFields, kind: &str) -> Result<Graph, Problem> {
    let hidden = figures.number(&["hidden_size"])?;
    let heads = figures.heads(&["num_attention_heads"], hidden)?;
    let beit = matches!(kind, "beit" | "data2vec-vision");
    let dino = kind == "dinov2";
    let finds = match kind {
        "yolos" => Some(Finds {
            objects: figures.small(&["num_detection_tokens"], 100)?,
            places_again: figures.flag("use_mid_position_embeddings", true),
            tells: !figures.is_bare(),
        }),
        _ => None,
    };
    let dropout = figures.rate("hidden_dropout_prob", false);
    let width = match dino {
        true => {
            let width = hidden * figures.small(&["mlp_ratio"], 4)?.min(64);
            // Two products enter a gated part, of two thirds of the width each, in multiples of eight.
            if figures.flag("use_swiglu_ffn", false) { (width * 2 / 3).div_ceil(8) * 8 } else { width }
        }
        false => figures.or(&["intermediate_size"], 4 * hidden)?,
    };
    let image = figures.image()?;
    let network = Vit {
        image,
        patch: patch(figures, image, 16)?,
        layers: figures.layers(&["num_hidden_layers"])?,
        block: TransformerBlock {
            query_bias: figures.flag("qkv_bias", true),
            key_bias: !beit,
            attention_dropout: figures.rate("attention_probs_dropout_prob", false),
            dropout,
            feed: Feed {
                function: figures.function(&["hidden_act"], Function::Gelu),
                gated: figures.flag("use_swiglu_ffn", false),
                ..Feed::plain(width)
            },
            ..TransformerBlock::pre_norm(hidden, heads)
        },
        tokens: 1 + u64::from(kind == "deit") + finds.map_or(0, |finds| finds.objects),
        finds,
        positions: !beit || figures.flag("use_absolute_position_embeddings", false),
        hides: dino && figures.flag("use_mask_token", true),
        means: dino,
        distances: beit && figures.flag("use_relative_position_bias", false),
        scaled: dino || beit,
        last_norm: true,
        // A bare model keeps one square product over the first token, where its type has one.
        classes: match (figures.is_bare(), kind) {
            (true, "vit" | "deit" | "yolos") => hidden,
            (true, _) => 0,
            (false, "yolos") => figures.classes(91)?,
            (false, "deit") if figures.architecture().ends_with("WithTeacher") => 2 * figures.labels()?,
            (false, _) => figures.labels()?,
        },
    };
    Ok(network.graph())
}

/// Height and width of a patch of the image, a patch a token.
fn patch(figures: &ConfigFields, [_, height, width]: [u64; 3], usual: u64) -> Result<u64, Problem> {
    let patch = figures.small(&["patch_size"], usual)?;
    if patch > height.min(width) {
        return Err(Problem::at("patch_size", format!("a patch of {patch} pixels is larger than the image"))
            .hint("give the size of the images"));
    }
    Ok(patch)
}

pub(super) fn resnet(figures: &ConfigFields) -> Result<Graph, Problem> {
    let network = residual(figures)?;
    Ok(Resnet { image: figures.image()?, classes: figures.labels()?, ..network }.graph())
}

/// A residual network, but for the images and the classes that are asked for.
pub(super) fn residual(figures: &ConfigFields) -> Result<Resnet, Problem> {
    let basic = figures.text("layer_type") == Some("basic");
    let stages = figures.list("depths")?.unwrap_or(vec![3, 4, 6, 3]);
    if stages.len() > 8 || stages.iter().sum::<u64>() > 4096 {
        return Err(
            Problem::at("depths", format!("`{stages:?}` is deeper than any network")).hint("such as `[3, 4, 6, 3]`")
        );
    }
    let block = if basic { resnet::ResnetBlock::Basic } else { resnet::ResnetBlock::Bottleneck };
    let widths = figures.list("hidden_sizes")?.unwrap_or_default();
    if !widths.is_empty() && widths.len() != stages.len() {
        let message = "`depths` and `hidden_sizes` do not belong together";
        return Err(Problem::at("hidden_sizes", message).hint("one of each a stage"));
    }
    Ok(Resnet {
        image: [3, 224, 224],
        classes: 0,
        stem: Stem::Large,
        block,
        stages,
        channels: figures.or(&["embedding_size"], 64)?.min(1 << 14),
        groups: 1,
        group_width: 64,
        variation: Variation {
            widths: widths.into_iter().map(|width| width.min(1 << 16)).collect(),
            first_halves: figures.flag("downsample_in_first_stage", false),
            early: figures.flag("downsample_in_bottleneck", false),
            frozen: false,
        },
    })
}

/// Channels of an inner layer: a multiple of `divisor`, no more than a tenth below what was asked for.
pub(super) fn rounded(channels: f64, divisor: u64, least: u64) -> u64 {
    let divisor = divisor.clamp(1, 1024);
    let nearest = ((channels + divisor as f64 / 2.0) as u64 / divisor * divisor).max(least);
    if (nearest as f64) < 0.9 * channels { nearest + divisor } else { nearest }
}

pub(super) fn mobilenet_first(figures: &ConfigFields) -> Result<Graph, Problem> {
    let (multiplier, least) = (figures.ratio("depth_multiplier", 1.0)?, figures.small(&["min_depth"], 8)?);
    let widths = |channels: u64| ((channels as f64 * multiplier) as u64).max(least);
    Ok(Mobilenet::first(figures.image()?, figures.labels()?, widths).clipped().graph())
}

pub(super) fn mobilenet_second(figures: &ConfigFields) -> Result<Graph, Problem> {
    let multiplier = figures.ratio("depth_multiplier", 1.0)?;
    let (divisor, least) = (figures.small(&["depth_divisible_by"], 8)?, figures.small(&["min_depth"], 8)?);
    let expand = figures.ratio("expand_ratio", 6.0)?;
    let network = Mobilenet::second(
        figures.image()?,
        figures.labels()?,
        |channels| rounded((channels as f64 * multiplier).round_ties_even(), divisor, least),
        |channels| rounded((channels as f64 * expand).round_ties_even(), divisor, least),
    );
    let head = if figures.flag("finegrained_output", true) && multiplier < 1.0 { 1280 } else { network.last };
    Ok(Mobilenet { last: head, ..network }.clipped().graph())
}

/// A type of ours: `transformers` has none. `size` is `large` or `small`.
pub(super) fn mobilenet_third(figures: &ConfigFields) -> Result<Graph, Problem> {
    let multiplier = figures.ratio("depth_multiplier", 1.0)?;
    let large = match figures.text("size").unwrap_or("large") {
        "large" => true,
        "small" => false,
        other => {
            return Err(Problem::at("size", format!("`{other}` is no size of MobileNetV3")).hint("`large` or `small`"));
        }
    };
    let wide = |channels: u64| rounded(channels as f64 * multiplier, 8, 8);
    Ok(Mobilenet::third(figures.image()?, figures.classes(1000)?, large, wide).graph())
}

/// A type of ours, with the keys of Ultralytics' files.
pub(super) fn yolo(figures: &ConfigFields) -> Result<Graph, Problem> {
    let image = match (figures.shape.image, figures.has("image_size")) {
        (None, false) => [3, 640, 640],
        (Some(_), _) | (None, true) => figures.image()?,
    };
    if image[1] % 32 != 0 || image[2] % 32 != 0 {
        return Err(Problem::at(
            "image_size",
            "its features are those of every 32nd pixel, and a side is no multiple of 32",
        )
        .hint("such as 640"));
    }
    let network = Yolo {
        image,
        classes: figures.classes(80)?.min(1 << 16),
        depth: figures.ratio("depth_multiple", 1.0)?,
        width: figures.ratio("width_multiple", 1.0)?,
        most: figures.or(&["max_channels"], 1024)?.min(1 << 16),
    };
    Ok(network.graph())
}

pub(super) fn convnext(figures: &ConfigFields, second: bool) -> Result<Graph, Problem> {
    let depths = figures.list("depths")?.unwrap_or(vec![3, 3, 9, 3]);
    let widths = figures.list("hidden_sizes")?.unwrap_or(vec![96, 192, 384, 768]);
    if depths.len() != widths.len() || depths.iter().sum::<u64>() > 4096 {
        return Err(
            Problem::at("depths", "`depths` and `hidden_sizes` do not belong together").hint("one of each a stage")
        );
    }
    let network = Convnext {
        image: figures.image()?,
        patch: figures.small(&["patch_size"], 4)?,
        depths,
        widths,
        scaled: !second && figures.rate("layer_scale_init_value", true),
        second,
        classes: figures.labels()?,
    };
    Ok(network.graph())
}

/// CLIP, or SigLIP, which has no token for the image as a whole but looks at the patches once more at the end.
pub(super) fn clip(figures: &ConfigFields, sigmoid: bool) -> Result<Graph, Problem> {
    let classifies = figures.architecture().ends_with("ForImageClassification");
    let [sight, text] = match sigmoid {
        true => ["siglip_vision_model", "siglip_text_model"],
        false => ["clip_vision_model", "clip_text_model"],
    };
    let network = Clip {
        sees: Some(sees(&figures.part_or_usual("vision_config", sight), sigmoid, !classifies)?),
        reads: match classifies {
            true => None,
            false => Some(reads(&figures.part_or_usual("text_config", text), sigmoid)?),
        },
        projection: if classifies || sigmoid { 0 } else { figures.or(&["projection_dim"], 512)?.min(1 << 16) },
        // By how much likeness is sharpened, and in SigLIP how likely it is beforehand.
        sharpened: if sigmoid { 2 } else { 1 },
        classes: if classifies { figures.classes(2)? } else { 0 },
    };
    Ok(network.graph())
}

/// A file of one half alone.
pub(super) fn clip_half(figures: &ConfigFields, kind: &str, image: bool) -> Result<Graph, Problem> {
    let projects = figures.architecture().ends_with("WithProjection");
    let sigmoid = kind.starts_with("siglip");
    let network = Clip {
        sees: if image { Some(sees(figures, sigmoid, true)?) } else { None },
        reads: if image { None } else { Some(reads(figures, sigmoid)?) },
        projection: if projects { figures.or(&["projection_dim"], 512)?.min(1 << 16) } else { 0 },
        sharpened: 0,
        classes: 0,
    };
    Ok(network.graph())
}

fn sees(figures: &ConfigFields, sigmoid: bool, pools: bool) -> Result<Sees, Problem> {
    let image = figures.image()?;
    Ok(Sees {
        image,
        patch: patch(figures, image, if sigmoid { 16 } else { 32 })?,
        layers: figures.layers_or("num_hidden_layers", 12)?,
        block: tower(figures, [768, 12, 3072], sigmoid, false)?,
        token: !sigmoid,
        pools: sigmoid && pools && figures.flag("vision_use_head", true),
    })
}

fn reads(figures: &ConfigFields, sigmoid: bool) -> Result<TextTower, Problem> {
    let positions = figures.or(&["max_position_embeddings"], 77)?;
    let block = tower(figures, [512, 8, 2048], sigmoid, !sigmoid)?;
    Ok(TextTower {
        vocabulary: figures.or(&["vocab_size"], 49408)?,
        positions,
        sequence: figures.shape.sequence.map_or(Ok(positions), |_| figures.sequence_within(positions))?,
        layers: figures.layers_or("num_hidden_layers", 12)?,
        projection: if sigmoid { figures.or(&["projection_size"], block.hidden)? } else { 0 },
        block,
    })
}

/// A block of either half; `usual` are its width, heads and width of the feed-forward part.
fn tower(figures: &ConfigFields, usual: [u64; 3], sigmoid: bool, causal: bool) -> Result<TransformerBlock, Problem> {
    let function = if sigmoid { Function::Gelu } else { Function::QuickGelu };
    let hidden = figures.or(&["hidden_size"], usual[0])?;
    let heads = figures.or(&["num_attention_heads"], usual[1])?;
    figures.divides("num_attention_heads", heads, hidden)?;
    Ok(TransformerBlock {
        causal,
        attention_dropout: figures.rate("attention_dropout", false),
        feed: Feed {
            function: figures.function(&["hidden_act"], function),
            ..Feed::plain(figures.or(&["intermediate_size"], usual[2])?)
        },
        ..TransformerBlock::pre_norm(hidden, heads)
    })
}
