//! The networks that gradus trains, as graphs: what a job's `train.model` stands for.

use domain::architecture::{Architecture, ResidualBlock};
use domain::train::{Model, Task};

use super::builder::{Builder, Convolution, Rows};
use super::families::bert::Head;
use super::families::block::{Block, Feed, Order};
use super::families::resnet::{self, Stem, Variation};
use super::families::{Bert, Gpt, Mobilenet, Resnet, Vit, Yolo};
use super::graph::{Function, Graph, Norm, Split};

/// What of a network its data decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sample {
    /// Channels, height and width of a picture.
    pub picture: [u64; 3],
    /// Words of a row of text.
    pub length: u64,
    /// Different words.
    pub vocabulary: u64,
    pub classes: u64,
}

/// Hidden units of the two small networks.
const HIDDEN: u64 = 128;
/// Height and width from which residual networks have the usual stem.
const LARGE: u64 = 64;

/// The network that `model` is for such samples.
pub fn graph(model: Model, task: Task, sample: &Sample) -> Graph {
    let Sample { picture, classes, .. } = *sample;
    let whole = |number: i64| u64::try_from(number).unwrap_or(1).max(1);
    match Architecture::of(model) {
        Architecture::Mlp => layers(picture, classes),
        Architecture::Cnn => convolutions(picture, classes),
        Architecture::SmallResnet { blocks } => Resnet {
            picture,
            classes,
            stem: Stem::Small,
            block: resnet::Block::Padded,
            stages: vec![blocks as u64; 3],
            channels: 16,
            groups: 1,
            group_width: 64,
            variation: Variation::default(),
        }
        .graph(),
        Architecture::Resnet { block, blocks } => Resnet {
            picture,
            classes,
            stem: if picture[1].min(picture[2]) >= LARGE { Stem::Large } else { Stem::Small },
            block: match block {
                ResidualBlock::Basic => resnet::Block::Basic,
                ResidualBlock::Bottleneck => resnet::Block::Bottleneck,
            },
            stages: blocks.iter().map(|blocks| *blocks as u64).collect(),
            channels: 64,
            groups: 1,
            group_width: 64,
            variation: Variation::default(),
        }
        .graph(),
        Architecture::MobilenetV2 => Mobilenet::second(picture, classes, |wide| wide, |from| 6 * from).graph(),
        Architecture::MobilenetV3 { large } => Mobilenet::third(picture, classes, large, |wide| wide).graph(),
        Architecture::Vit { patch, layers, width, heads } => {
            let (hidden, heads, patch) = (whole(width), whole(heads), whole(patch));
            Vit {
                picture: [picture[0], picture[1].max(patch), picture[2].max(patch)],
                patch,
                layers: whole(layers),
                block: transformer(hidden, heads),
                tokens: 1,
                positions: true,
                scaled: false,
                last_norm: true,
                classes,
                finds: None,
            }
            .graph()
        }
        Architecture::Yolo { width, repeats } => Yolo {
            // Other sides are filled up to a multiple of 32.
            picture: [picture[0], picture[1].next_multiple_of(32), picture[2].next_multiple_of(32)],
            classes,
            depth: repeats[0] as f64 / 3.0,
            width: width as f64 / 64.0,
            most: 1024,
        }
        .graph(),
        Architecture::Bert { layers, width, heads } => Bert {
            layers: whole(layers),
            hidden: whole(width),
            heads: whole(heads),
            feed_forward: 4 * whole(width),
            vocabulary: sample.vocabulary,
            ..Bert::base(
                sample.length,
                match task {
                    Task::MaskedWords => Head::Words,
                    Task::Pictures | Task::Boxes | Task::Texts | Task::NextWord => Head::Sequence { classes },
                },
            )
        }
        .graph(),
        Architecture::Gpt { layers, width, heads, positions } => Gpt {
            hidden: whole(width),
            layers: whole(layers),
            heads: whole(heads),
            feed_forward: 4 * whole(width),
            vocabulary: sample.vocabulary,
            positions: whole(positions),
            dropout: true,
            sequence: sample.length,
        }
        .graph(),
    }
}

/// A block of a vision transformer.
fn transformer(hidden: u64, heads: u64) -> Block {
    Block {
        hidden,
        heads,
        key_heads: heads,
        head_width: hidden / heads,
        order: Order::Before,
        norm: Norm::Layer,
        norm_bias: true,
        head_norm: false,
        joined: true,
        query_bias: true,
        key_bias: true,
        output_bias: true,
        rotary: false,
        causal: false,
        window: None,
        attention_dropout: false,
        dropout: false,
        feed: Feed { width: 4 * hidden, function: Function::Gelu, gated: false, bias: true, experts: None },
    }
}

/// Two hidden layers over all pixels.
fn layers(picture: [u64; 3], classes: u64) -> Graph {
    let mut builder = Builder::new();
    let pixels = picture.iter().product();
    let mut at = Rows { tensor: builder.input(pixels), rows: 1, width: pixels };
    for name in ["fc1", "fc2"] {
        at = builder.linear(name, at, HIDDEN, true, Split::Whole);
        at = builder.apply(format!("{name}.relu"), at, Function::Relu);
    }
    let scores = builder.linear("fc3", at, classes, true, Split::Whole);
    builder.loss(scores.tensor, 1, classes);
    builder.finish()
}

/// Two convolutions and a hidden layer.
fn convolutions(picture: [u64; 3], classes: u64) -> Graph {
    let mut builder = Builder::new();
    let [channels, height, width] = picture;
    let mut at = builder.picture(channels, height, width);
    for (name, outputs) in [("conv1", 32), ("conv2", 64)] {
        at = builder.convolution(name, at, Convolution::new(outputs, 3, 1).biased());
        at = builder.activate(&format!("{name}.relu"), at, Function::Relu, true);
    }
    let pooled = builder.pool("pool", at, 2, 2, true);
    let values = Rows { tensor: pooled.tensor, rows: 1, width: pooled.elements() };
    let hidden = builder.linear("fc1", values, HIDDEN, true, Split::Whole);
    let hidden = builder.apply("fc1.relu", hidden, Function::Relu);
    let hidden = builder.dropout("dropout", hidden);
    let scores = builder.linear("fc2", hidden, classes, true, Split::Whole);
    builder.loss(scores.tensor, 1, classes);
    builder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(model: Model, task: Task, sample: Sample, parameters: u64) {
        assert_eq!(graph(model, task, &sample).parameters(), parameters, "{model:?}");
    }

    #[test]
    fn networks_have_the_weights_that_they_are_trained_with() {
        let small = Sample { picture: [3, 32, 32], length: 128, vocabulary: 30522, classes: 10 };
        let large = Sample { picture: [3, 224, 224], classes: 1000, ..small };
        check(Model::Mlp, Task::Pictures, Sample { picture: [1, 8, 8], ..small }, 64 * 128 + 128 + 16512 + 1290);
        check(Model::Resnet20, Task::Pictures, small, 269_722);
        check(Model::Resnet18, Task::Pictures, small, 11_173_962);
        check(Model::Resnet50, Task::Pictures, large, 25_557_032);
        check(Model::MobilenetV2, Task::Pictures, large, 3_504_872);
        check(Model::MobilenetV3Large, Task::Pictures, large, 5_483_032);
        check(Model::VitS16, Task::Pictures, large, 22_050_664);
        let scenes = Sample { picture: [3, 640, 640], classes: 80, ..small };
        check(Model::YoloN, Task::Boxes, scenes, 3_157_184);
        check(Model::YoloS, Task::Boxes, scenes, 11_166_544);
        let text = Sample { classes: 2, ..small };
        check(Model::BertBase, Task::MaskedWords, text, 109_514_298);
        let words = Sample { vocabulary: 50257, ..small };
        check(Model::Gpt2, Task::NextWord, words, 124_439_808);
    }
}
