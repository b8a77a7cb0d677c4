//! ViT and ResNet by their tensors, as `transformers`, torchvision and timm call them.

use super::super::SampleShape;
use super::header::Header;
use super::sequences::heads;
use crate::model::Graph;
use crate::model::families::block::{Feed, TransformerBlock};
use crate::model::families::vision::resnet::{self, Stem};
use crate::model::families::{Resnet, Vit};

/// No image has a longer side.
const LONGEST: u64 = 1 << 16;
/// No residual network has more channels at first, stages or blocks.
const MOST_CHANNELS: u64 = 1 << 14;
const MOST_STAGES: usize = 8;

fn is_image(image: &[u64; 3]) -> bool {
    image.iter().all(|side| (1..=LONGEST).contains(side))
}

fn classes(shape: &SampleShape, stored: Option<u64>) -> u64 {
    stored.map_or(0, |stored| shape.classes.unwrap_or(stored).clamp(1, 1 << 24))
}

pub(super) fn vit(header: &Header, shape: &SampleShape) -> Option<Graph> {
    let own = header.shape("embeddings.patch_embeddings.projection.weight");
    let [hidden, channels, patch, _] = *own.or_else(|| header.shape("patch_embed.proj.weight"))? else { return None };
    let positions = header.shape("embeddings.position_embeddings").or_else(|| header.shape("pos_embed"))?;
    let [1, positions, _] = *positions else { return None };
    let is_own = own.is_some();
    let (layers, feed_forward) = match is_own {
        true => header.layers("encoder.layer", "intermediate.dense.weight")?,
        false => header.layers("blocks", "mlp.fc1.weight")?,
    };
    let attention = match is_own {
        true => header.layers("encoder.layer", "attention.attention.query.weight")?,
        false => header.layers("blocks", "attn.qkv.weight")?,
    };
    let (&[feed_forward, _], (_, &[columns, _])) = (feed_forward, attention) else { return None };
    let joined = columns == 3 * hidden;
    if !joined && columns != hidden {
        return None;
    }
    let (tokens, image) = seen(header, shape, positions, [channels, patch])?;
    let bias = match (is_own, joined) {
        (true, _) => header.layers("encoder.layer", "attention.attention.query.bias").is_some(),
        (false, _) => header.layers("blocks", "attn.qkv.bias").is_some(),
    };
    let stored = header.shape("classifier.weight").or_else(|| header.shape("head.weight"));
    let (heads, note) = heads(hidden, 64);
    let network = Vit {
        distances: false,
        hides: false,
        means: false,
        image,
        patch,
        layers,
        block: TransformerBlock {
            joined,
            query_bias: bias,
            feed: Feed::plain(feed_forward),
            ..TransformerBlock::pre_norm(hidden, heads)
        },
        tokens,
        positions: true,
        scaled: false,
        last_norm: true,
        finds: None,
        classes: classes(shape, stored.and_then(|shape| shape.first().copied())),
    };
    let mut graph = network.graph();
    graph.unknown.push(note);
    graph.unknown.push("GELU without dropout, taken from ViT ×1".to_owned());
    Some(graph)
}

/// Tokens beside the patches, and the image that the positions of the patches fill as a square.
fn seen(header: &Header, shape: &SampleShape, positions: u64, [channels, patch]: [u64; 2]) -> Option<(u64, [u64; 3])> {
    let teacher = header.has("embeddings.distillation_token") || header.has("dist_token");
    let class = header.has("embeddings.cls_token") || header.has("cls_token");
    let tokens = u64::from(class) + u64::from(teacher);
    // Positions fill a square.
    let patches = positions.checked_sub(tokens)?;
    let side = patches.isqrt();
    if side * side != patches || side * patch > LONGEST || patches == 0 {
        return None;
    }
    let image = shape.image.unwrap_or([channels, side * patch, side * patch]);
    if !is_image(&image) || image[1] < patch || image[2] < patch {
        return None;
    }
    Some((tokens, image))
}

pub(super) fn resnet(header: &Header, shape: &SampleShape) -> Option<Graph> {
    let own = header.shape("embedder.embedder.convolution.weight");
    let [channels, colours, kernel, _] = *own.or_else(|| header.shape("conv1.weight"))? else { return None };
    let names = if own.is_some() { Names::Transformers } else { Names::Torchvision };
    let mut stages = Vec::new();
    for stage in 0..MOST_STAGES {
        let Some(blocks) = names.blocks(header, stage, 1) else { break };
        stages.push(blocks);
    }
    let bottleneck = names.shape(header, 0, 0, 3).is_some();
    // Its grouped convolution in a bottleneck.
    let &[thin, inner, ..] = names.shape(header, 0, 0, if bottleneck { 2 } else { 1 })? else { return None };
    let groups = match bottleneck {
        true => thin.checked_div(inner).filter(|groups| *groups > 0)?,
        false => 1,
    };
    let block = match (bottleneck, stages.len() > 1 && names.shape(header, 1, 0, 0).is_none()) {
        (true, _) => resnet::ResnetBlock::Bottleneck,
        (false, true) => resnet::ResnetBlock::Padded,
        (false, false) => resnet::ResnetBlock::Basic,
    };
    let scores = ["classifier.1.weight", "fc.weight", "linear.weight"].iter().find_map(|name| header.shape(name));
    let stem = if kernel >= 7 { Stem::Large } else { Stem::Small };
    let usual = if kernel >= 7 { 224 } else { 32 };
    let image = shape.image.unwrap_or([colours, usual, usual]);
    let group_width = if bottleneck { (thin * 64).checked_div(channels * groups)? } else { 64 };
    if channels > MOST_CHANNELS || thin > MOST_CHANNELS || !is_image(&image) || stages.is_empty() {
        return None;
    }
    let classes = classes(shape, scores.and_then(|shape| shape.first().copied())).max(1);
    let network =
        Resnet { image, classes, stem, block, stages, channels, groups, group_width, variation: Default::default() };
    let mut graph = network.graph();
    if shape.image.is_none() {
        graph.unknown.push(format!("size of the images, taken to be {usual} pixels a side ×1"));
    }
    Some(graph)
}

/// How the convolutions of a residual network are called.
#[derive(Clone, Copy)]
enum Names {
    Transformers,
    Torchvision,
}

impl Names {
    /// List of a stage's blocks, and name of a block's convolution counted from 1; 0 is the one beside the sum.
    fn of(self, stage: usize, convolution: usize) -> (String, String) {
        match (self, convolution) {
            (Names::Transformers, 0) => (format!("stages.{stage}.layers"), "shortcut.convolution.weight".to_owned()),
            (Names::Transformers, at) => {
                (format!("stages.{stage}.layers"), format!("layer.{}.convolution.weight", at - 1))
            }
            (Names::Torchvision, 0) => (format!("layer{}", stage + 1), "downsample.0.weight".to_owned()),
            (Names::Torchvision, at) => (format!("layer{}", stage + 1), format!("conv{at}.weight")),
        }
    }

    fn shape(self, header: &Header, stage: usize, block: u64, convolution: usize) -> Option<&[u64]> {
        let (list, part) = self.of(stage, convolution);
        header.shape(&format!("{list}.{block}.{part}"))
    }

    /// Blocks of a stage; the first may have other dimensions than the rest.
    fn blocks(self, header: &Header, stage: usize, convolution: usize) -> Option<u64> {
        let (list, part) = self.of(stage, convolution);
        let count = (0..4096).take_while(|block| header.has(&format!("{list}.{block}.{part}"))).count() as u64;
        (count > 0).then_some(count)
    }
}
