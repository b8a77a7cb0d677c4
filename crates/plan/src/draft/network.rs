//! What a network takes, counted operator by operator as the trainer builds it: weights, multiply-adds, and the
//! values that the forward pass keeps for the backward pass.
//!
//! Transformers are counted by the graph that estimates for GPUs rest on ([`transformer`]), the others here. Kept are
//! the input of each convolution and linear layer and the input of each normalisation. A ReLU works in place
//! on what is kept anyway, and so does the sum of a residual block, so neither adds anything.

use domain::architecture::{Architecture, ResidualBlock};
use domain::rank::Sample;
use domain::train::{Model, Precision, Recompute, Train};

use crate::estimate::memory::part::{Part, Way, part};
use crate::model::ours;

/// Hidden units of the two small networks.
const HIDDEN: u64 = 128;
/// Height and width from which residual networks have the usual stem.
const LARGE: u64 = 64;

/// What one network takes for samples of one shape.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Network {
    /// Trained values.
    pub parameters: u64,
    /// Values that are kept but not trained (running means and variances).
    pub buffers: u64,
    /// Multiply-adds of one sample, forwards.
    pub multiply_adds: u64,
    /// How it was counted, and what a sample takes by that.
    pub counted: Counted,
    /// Trained values of the largest of the blocks that repeat.
    pub block: u64,
    /// Trained values of all blocks; the rest stands around them.
    pub blocks: u64,
}

/// How a network was counted.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Counted {
    /// Operator by operator; ranks cannot divide its layers.
    Operators {
        /// Values kept for the backward pass, of one sample.
        kept: u64,
        /// Values of the largest layer's output, of one sample.
        largest: u64,
    },
    /// By its graph: what one rank has of it, where ranks may divide the layers.
    Graph(Part),
}

impl Network {
    /// Trained values of one rank, where ranks may divide the layers.
    pub fn here(&self) -> u64 {
        match self.counted {
            Counted::Operators { .. } => self.parameters,
            Counted::Graph(part) => part.parameters.ceil() as u64,
        }
    }

    /// Bytes that one sample takes on its way there and back.
    pub fn sample_bytes(&self, precision: Precision) -> u64 {
        // Autocast keeps the inputs of the operators in half as many bytes.
        let width = match precision {
            Precision::Bf16 | Precision::Fp16 => 2,
            Precision::Auto | Precision::Fp32 | Precision::Tf32 => 4,
        };
        match self.counted {
            Counted::Operators { kept, largest } => width * kept + 4 * 2 * largest,
            Counted::Graph(part) => part.activations.ceil() as u64,
        }
    }

    /// Counts `model` for pictures of `[channels, height, width]` and so many classes; none for what is not counted yet.
    pub fn count(model: Model, picture: [u32; 3], classes: u32) -> Option<Network> {
        let mut count = Count::new(picture.map(u64::from));
        match Architecture::of(model) {
            Architecture::Mlp => {
                count.linear(HIDDEN);
                count.linear(HIDDEN);
            }
            Architecture::Cnn => {
                count.convolution(32, 3, 1, Bias::Yes);
                count.convolution(64, 3, 1, Bias::Yes);
                count.pool(2, 2, 0);
                count.linear(HIDDEN);
                // The mask of the dropout and what it leaves.
                count.keep(2 * HIDDEN);
            }
            Architecture::SmallResnet { blocks } => {
                count.normal_convolution(16, 3, 1);
                for outputs in [16, 32, 64] {
                    for _ in 0..blocks {
                        count.basic(outputs, Shortcut::Padded);
                    }
                }
                count.average();
            }
            Architecture::Resnet { block, blocks, width } => {
                let width = width as u64;
                if count.shape[1].min(count.shape[2]) >= LARGE {
                    count.normal_convolution(width, 7, 2);
                    count.pool(3, 2, 1);
                } else {
                    count.normal_convolution(width, 3, 1);
                }
                for ((stage, width), blocks) in
                    [1, 2, 4, 8].map(|times| times * width).into_iter().enumerate().zip(blocks)
                {
                    for place in 0..blocks {
                        match block {
                            ResidualBlock::Basic => count.basic(width, Shortcut::Convolved),
                            ResidualBlock::Bottleneck => {
                                count.bottleneck(width, if stage > 0 && place == 0 { 2 } else { 1 });
                            }
                        }
                    }
                }
                count.average();
            }
            Architecture::MobilenetV2 | Architecture::MobilenetV3 { .. } | Architecture::Vit { .. } => return None,
            Architecture::Yolo { .. } | Architecture::Bert { .. } | Architecture::Gpt { .. } => return None,
        }
        count.linear(u64::from(classes));
        Some(count.network())
    }
}

/// Counts a transformer for one sample and so many classes, 0 where it says words; none for other networks.
pub(super) fn transformer(train: &Train, sample: Sample, classes: u32) -> Option<Network> {
    let architecture = train.model.architecture().filter(|architecture| architecture.heads().is_some())?;
    let graph = ours::graph(architecture, sample, u64::from(classes))?;
    let way = Way {
        half: matches!(train.precision, Precision::Bf16 | Precision::Fp16),
        dropout: architecture.has_dropout() && train.dropout != Some(0.0),
        tensor: train.parallel.tensor.max(1),
        recomputed: match train.recompute {
            Recompute::None => 0.0,
            Recompute::Blocks => 1.0,
            Recompute::Every(some) => 1.0 / f64::from(some.max(1)),
        },
    };
    let part = part(&graph, way);
    Some(Network {
        parameters: graph.parameters(),
        buffers: graph.buffers(),
        multiply_adds: graph.multiply_adds(),
        counted: Counted::Graph(part),
        block: part.block.ceil() as u64,
        blocks: part.blocks.ceil() as u64,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Bias {
    Yes,
    No,
}

/// How a residual block's input reaches its end where the picture shrinks.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shortcut {
    /// Every second pixel, new channels zero.
    Padded,
    /// A 1×1 convolution with normalisation.
    Convolved,
}

/// What was counted up to some operator.
#[derive(Default)]
struct Count {
    /// Channels, height and width of the current output.
    shape: [u64; 3],
    parameters: u64,
    buffers: u64,
    multiply_adds: u64,
    kept: u64,
    largest: u64,
    block: u64,
    blocks: u64,
}

impl Count {
    fn new(shape: [u64; 3]) -> Count {
        let mut count = Count { shape, ..Count::default() };
        count.keep(shape.iter().product());
        count
    }

    fn network(self) -> Network {
        let Count { shape: _, parameters, buffers, multiply_adds, kept, largest, block, blocks } = self;
        Network { parameters, buffers, multiply_adds, counted: Counted::Operators { kept, largest }, block, blocks }
    }

    fn keep(&mut self, values: u64) {
        self.kept += values;
        self.largest = self.largest.max(values);
    }

    fn output(&mut self, shape: [u64; 3]) {
        self.shape = shape;
        self.keep(shape.iter().product());
    }

    fn convolution(&mut self, outputs: u64, kernel: u64, stride: u64, bias: Bias) {
        let [inputs, height, width] = self.shape;
        let [height, width] = [height, width].map(|side| side.div_ceil(stride));
        let weights = inputs * outputs * kernel * kernel;
        self.parameters += weights + if bias == Bias::Yes { outputs } else { 0 };
        self.multiply_adds += weights * height * width;
        self.output([outputs, height, width]);
    }

    fn normal_convolution(&mut self, outputs: u64, kernel: u64, stride: u64) {
        self.convolution(outputs, kernel, stride, Bias::No);
        self.parameters += 2 * outputs;
        self.buffers += 2 * outputs;
        self.output(self.shape);
    }

    /// The way around is convolved where the channels change.
    fn bottleneck(&mut self, width: u64, stride: u64) {
        let (before, outputs, parameters) = (self.shape, 4 * width, self.parameters);
        self.normal_convolution(width, 1, 1);
        self.normal_convolution(width, 3, stride);
        self.normal_convolution(outputs, 1, 1);
        if before[0] != outputs {
            self.shape = before;
            self.normal_convolution(outputs, 1, stride);
        }
        self.block(parameters);
    }

    /// A block ends here, before which there were so many parameters.
    fn block(&mut self, before: u64) {
        let parameters = self.parameters - before;
        self.block = self.block.max(parameters);
        self.blocks += parameters;
    }

    fn basic(&mut self, outputs: u64, shortcut: Shortcut) {
        let (before, parameters) = (self.shape, self.parameters);
        let stride = if before[0] == outputs { 1 } else { 2 };
        self.normal_convolution(outputs, 3, stride);
        self.normal_convolution(outputs, 3, 1);
        if stride > 1 && shortcut == Shortcut::Convolved {
            self.shape = before;
            self.normal_convolution(outputs, 1, stride);
        }
        self.block(parameters);
    }

    /// The largest of each window; the place where it stood, of twice the width of a value, is kept as well.
    fn pool(&mut self, kernel: u64, stride: u64, padding: u64) {
        let [channels, height, width] = self.shape;
        let [height, width] = [height, width].map(|side| (side + 2 * padding).saturating_sub(kernel) / stride + 1);
        self.output([channels, height, width]);
        self.keep(2 * channels * height * width);
    }

    fn average(&mut self) {
        self.output([self.shape[0], 1, 1]);
    }

    fn linear(&mut self, outputs: u64) {
        let inputs: u64 = self.shape.iter().product();
        self.parameters += inputs * outputs + outputs;
        self.multiply_adds += inputs * outputs;
        self.output([outputs, 1, 1]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parameters and millions of multiply-adds, as torchvision and the papers state them.
    fn check(model: Model, picture: [u32; 3], classes: u32, parameters: u64, mega_multiply_adds: u64) {
        let network = Network::count(model, picture, classes).unwrap();
        let found = (network.parameters, network.multiply_adds / 1_000_000);
        assert_eq!(found, (parameters, mega_multiply_adds), "{model:?} {picture:?}");
    }

    #[test]
    fn networks_are_counted_as_published() {
        // torchvision: 11,689,512 parameters, 1.814 GFLOPS at 224×224.
        check(Model::Resnet18, [3, 224, 224], 1000, 11_689_512, 1_814);
        check(Model::Resnet18, [3, 32, 32], 10, 11_173_962, 555);
        // torchvision states 21,797,672 and 3.664 GFLOPS, 25,557,032 and 4.089, 44,549,160 and 7.801, 60,192,808 and 11.514.
        check(Model::Resnet34, [3, 224, 224], 1000, 21_797_672, 3_663);
        check(Model::Resnet50, [3, 224, 224], 1000, 25_557_032, 4_089);
        check(Model::Resnet101, [3, 224, 224], 1000, 44_549_160, 7_801);
        check(Model::Resnet152, [3, 224, 224], 1000, 60_192_808, 11_513);
        // He et al. 2015, table 6: 0.27 M and 0.85 M parameters; 41 M and 126 M multiply-adds.
        check(Model::Resnet56, [3, 32, 32], 10, 853_018, 125);
        check(Model::Resnet20, [3, 32, 32], 10, 269_722, 40);
        check(Model::Cnn, [1, 8, 8], 10, 151_306, 1);
        assert_eq!(Network::count(Model::MobilenetV2, [3, 224, 224], 1000), None);
        check(Model::Mlp, [1, 8, 8], 10, 64 * 128 + 128 + 128 * 128 + 128 + 1290, 0);
    }

    #[test]
    fn kept_values_grow_with_the_picture_only_where_they_should() {
        let kept = |model, side| match Network::count(model, [3, side, side], 10).unwrap().counted {
            Counted::Operators { kept, .. } => kept,
            Counted::Graph(part) => panic!("{part:?}"),
        };
        assert_eq!(kept(Model::Mlp, 8), 3 * 64 + 128 + 128 + 10);
        assert!(kept(Model::Resnet20, 64) > 3 * kept(Model::Resnet20, 32));
        assert!(kept(Model::Resnet18, 64) < kept(Model::Resnet18, 63), "the usual stem shrinks large pictures");
    }
}
