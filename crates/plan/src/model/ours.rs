//! Graphs of the built-in networks, for one sample of their data.

use domain::architecture::{Architecture, ResidualBlock};
use domain::rank::Sample;

use super::builder::{Builder, Convolution, Rows};
use super::families::block::{Order, TransformerBlock};
use super::families::language::bert::Head;
use super::families::vision::resnet::{self, Stem, Variation};
use super::families::{Bert, Convnext, Efficientnet, Gpt, Mobilenet, Resnet, Vit, Yolo};
use super::graph::{Function, Graph, Input, WeightSplit};

/// Hidden units of the two small networks.
const HIDDEN: u64 = 128;
/// Height and width from which residual networks have the usual stem.
const LARGE: u64 = 64;
/// Height and width that are one pixel after the last stage of a ConvNeXt.
const SMALLEST_CONVNEXT: u64 = 32;

/// The network for one sample and number of classes, 0 for a language model; `None` if it does not accept such samples.
pub fn graph(architecture: Architecture, sample: Sample, classes: u64) -> Option<Graph> {
    match sample {
        Sample::Image { channels, height, width } => of_images(architecture, [channels, height, width], classes),
        Sample::Text { vocabulary, length } => of_tokens(architecture, [vocabulary, length].map(u64::from), classes),
    }
}

fn of_images(architecture: Architecture, image: [u32; 3], classes: u64) -> Option<Graph> {
    let image = image.map(u64::from);
    Some(match architecture {
        Architecture::Mlp => mlp(image, classes),
        Architecture::Cnn => cnn(image, classes),
        Architecture::SmallResnet { blocks } => {
            let depth = 6 * blocks as u64 + 2;
            Resnet { image, classes, ..Resnet::thin(depth)? }.graph()
        }
        Architecture::Resnet { block, blocks, width } => {
            let is_large = image[1].min(image[2]) >= LARGE;
            let network = Resnet {
                image,
                classes,
                stem: if is_large { Stem::Large } else { Stem::Small },
                block: match block {
                    ResidualBlock::Basic => resnet::ResnetBlock::Basic,
                    ResidualBlock::Bottleneck => resnet::ResnetBlock::Bottleneck,
                },
                stages: blocks.map(|blocks| blocks as u64).to_vec(),
                channels: width as u64,
                groups: 1,
                group_width: 64,
                variation: Variation::default(),
            };
            network.graph()
        }
        Architecture::MobilenetV2 => {
            Mobilenet::second(image, classes, |channels| channels, |channels| 6 * channels).graph()
        }
        Architecture::MobilenetV3 { large } => Mobilenet::third(image, classes, large, |channels| channels).graph(),
        Architecture::Vit { patch, layers, width, heads } => vit([patch, layers, width, heads], image, classes)?,
        Architecture::Convnext { depths, widths, .. } => {
            if image[1].min(image[2]) < SMALLEST_CONVNEXT {
                return None;
            }
            let (depths, widths) = (depths.map(|depth| depth as u64), widths.map(i64::unsigned_abs));
            let (depths, widths) = (depths.to_vec(), widths.to_vec());
            Convnext { image, patch: 4, depths, widths, scaled: true, second: false, classes }.graph()
        }
        Architecture::EfficientnetB0 => Efficientnet { image, classes }.graph(),
        Architecture::Yolo { width, .. } => {
            let size = if width <= 16 { "n" } else { "s" };
            Yolo { image, classes, ..Yolo::sized(size)? }.graph()
        }
        Architecture::Bert { .. } | Architecture::Gpt { .. } => return None,
    })
}

fn mlp(image: [u64; 3], classes: u64) -> Graph {
    let mut builder = Builder::new();
    let width = image.iter().product();
    let tensor = builder.input(width);
    builder.reads(Input::Image(image));
    perceive(&mut builder, Rows { tensor, rows: 1, width }, &[HIDDEN, HIDDEN], classes);
    builder.finish()
}

fn cnn(image: [u64; 3], classes: u64) -> Graph {
    let mut builder = Builder::new();
    let [channels, height, width] = image;
    let mut at = builder.image(channels, height, width);
    for (name, channels) in [("conv1", 32), ("conv2", 64)] {
        at = builder.convolution(name, at, Convolution::new(channels, 3, 1).biased());
        at = builder.activate(&format!("{name}.relu"), at, Function::Relu, true);
    }
    // Without padding, as the trainer pools.
    let elements = at.channels * (at.height / 2) * (at.width / 2);
    let kind = super::OpKind::Pool { maximum: true, inputs: at.elements(), outputs: elements };
    let tensor = builder.add("pool", kind, &[at.tensor], elements, super::builder::Owned::NOTHING);
    perceive(&mut builder, Rows { tensor, rows: 1, width: elements }, &[HIDDEN], classes);
    builder.finish()
}

/// A vision transformer of so large patches, so many layers, so wide, with so many heads.
fn vit(sizes: [i64; 4], image: [u64; 3], classes: u64) -> Option<Graph> {
    let [patch, layers, hidden, heads] = sizes.map(i64::unsigned_abs);
    if patch == 0 || patch > image[1].min(image[2]) {
        return None;
    }
    let block = transformer(hidden, heads, Order::Before, false);
    let (positions, scaled, last_norm) = (true, false, true);
    Some(
        Vit {
            image,
            patch,
            layers,
            block,
            tokens: 1,
            positions,
            hides: false,
            means: false,
            distances: false,
            scaled,
            last_norm,
            classes,
            finds: None,
        }
        .graph(),
    )
}

fn of_tokens(architecture: Architecture, [vocabulary, sequence]: [u64; 2], classes: u64) -> Option<Graph> {
    match architecture {
        Architecture::Bert { layers, width, heads } => {
            let [layers, hidden, heads] = [layers, width, heads].map(i64::unsigned_abs);
            let head = if classes == 0 { Head::MaskedLanguage } else { Head::Sequence { classes } };
            let feed_forward = 4 * hidden;
            let network = Bert { layers, hidden, heads, feed_forward, vocabulary, ..Bert::base(sequence, head) };
            Some(network.graph())
        }
        Architecture::Gpt { layers, width, heads, positions } => {
            let [layers, hidden, heads, positions] = [layers, width, heads, positions].map(i64::unsigned_abs);
            Some(Gpt { positions, ..Gpt::megatron(hidden, layers, heads, vocabulary, sequence) }.graph())
        }
        Architecture::Mlp | Architecture::Cnn | Architecture::SmallResnet { .. } => None,
        Architecture::Resnet { .. } | Architecture::MobilenetV2 | Architecture::MobilenetV3 { .. } => None,
        Architecture::Vit { .. } | Architecture::Convnext { .. } | Architecture::EfficientnetB0 => None,
        Architecture::Yolo { .. } => None,
    }
}

/// Hidden layers with ReLU, and the classes.
fn perceive(builder: &mut Builder, mut at: Rows, hidden: &[u64], classes: u64) {
    for (place, units) in hidden.iter().enumerate() {
        at = builder.linear(format!("hidden{place}"), at, *units, true, WeightSplit::Whole);
        at = builder.apply(format!("hidden{place}.relu"), at, Function::Relu);
    }
    let scores = builder.linear("classifier", at, classes, true, WeightSplit::Whole);
    builder.loss(scores.tensor, 1, classes);
}

fn transformer(hidden: u64, heads: u64, order: Order, dropout: bool) -> TransformerBlock {
    TransformerBlock {
        order,
        joined: true,
        attention_dropout: dropout,
        dropout,
        ..TransformerBlock::pre_norm(hidden, heads)
    }
}

#[cfg(test)]
mod tests {
    use domain::train::Model;

    use super::*;

    /// Parameters as the trainer's own tests have them, and millions of multiply-adds.
    fn check(model: Model, sample: Sample, classes: u64, parameters: u64, mega: u64) {
        let graph = graph(Architecture::of(model), sample, classes).unwrap();
        assert_eq!(graph.parameters(), parameters, "{model:?}");
        let counted = graph.multiply_adds() as f64 / 1e6;
        assert!((counted - mega as f64).abs() <= 0.01 * mega as f64 + 1.0, "{model:?}: {counted} million, not {mega}");
    }

    #[test]
    fn networks_are_those_that_are_built() {
        let image = |side| Sample::Image { channels: 3, height: side, width: side };
        check(Model::Mlp, image(8), 10, 3 * 64 * 128 + 128 + 128 * 128 + 128 + 128 * 10 + 10, 0);
        let cnn = 27 * 32 + 32 + 32 * 9 * 64 + 64 + 64 * 16 * 128 + 128 + 128 * 10 + 10;
        check(Model::Cnn, image(8), 10, cnn, 1);
        check(Model::Resnet20, image(32), 10, 269_722, 40);
        check(Model::Resnet18, image(32), 10, 11_173_962, 555);
        check(Model::Resnet50, image(224), 1000, 25_557_032, 4_089);
        check(Model::MobilenetV2, image(224), 1000, 3_504_872, 300);
        check(Model::MobilenetV3Small, image(224), 1000, 2_542_856, 56);
        check(Model::MobilenetV3Large, image(224), 1000, 5_483_032, 216);
        check(Model::VitS16, image(224), 1000, 22_050_664, 4_598);
        // torchvision's figures: parameters, and GFLOPs of multiply-adds.
        check(Model::VitB16, image(224), 1000, 86_567_656, 17_564);
        check(Model::ConvnextTiny, image(224), 1000, 28_589_128, 4_456);
        check(Model::EfficientnetB0, image(224), 1000, 5_288_548, 386);
        // The YOLOv8 paper's table: 3.2 million parameters and 8.7 GFLOPs at 640 × 640, 80 classes.
        check(Model::YoloN, image(640), 80, 3_157_184, 4_371);
        let text = |length| Sample::Text { vocabulary: 30_522, length };
        // Turc et al. 2019 state 11.2 million for BERT mini.
        check(Model::BertMini, text(128), 3, 11_171_331, 436);
        check(Model::BertBase, text(128), 0, 109_514_298, 14_249);
        let text = |length| Sample::Text { vocabulary: 50_257, length };
        check(Model::Gpt2, text(1024), 0, 124_439_808, 145_824);
    }

    #[test]
    fn what_a_network_does_not_take_has_no_graph() {
        let (image, text) =
            (Sample::Image { channels: 3, height: 8, width: 8 }, Sample::Text { vocabulary: 100, length: 8 });
        assert_eq!(graph(Architecture::of(Model::Resnet18), text, 10), None);
        assert_eq!(graph(Architecture::of(Model::Gpt2), image, 0), None);
        assert_eq!(graph(Architecture::of(Model::VitS16), image, 10), None);
    }
}
