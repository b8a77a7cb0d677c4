//! EfficientNet-B0: inverted blocks whose channels are weighed by their means (Tan and Le 2019).

use super::mobilenet::{Inverted, Mobilenet};
use crate::model::graph::{Function, Graph};

/// EfficientNet-B0 as torchvision builds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Efficientnet {
    /// Channels, height and width of an image.
    pub image: [u64; 3],
    /// Classes of the last layer; 0 without one.
    pub classes: u64,
}

/// Expansion, kernel, first stride, channels and blocks: table 1 of Tan and Le.
const STAGES: [[u64; 5]; 7] = [
    [1, 3, 1, 16, 1],
    [6, 3, 2, 24, 2],
    [6, 5, 2, 40, 2],
    [6, 3, 2, 80, 3],
    [6, 5, 1, 112, 3],
    [6, 5, 2, 192, 4],
    [6, 3, 1, 320, 1],
];

impl Efficientnet {
    /// Builds the graph of one image, channels × height × width, up to the loss of its head.
    pub fn graph(&self) -> Graph {
        let (stem, function) = (32, Function::Silu);
        let (mut blocks, mut from) = (Vec::new(), stem);
        for [expansion, kernel, stride, channels, count] in STAGES {
            for index in 0..count {
                blocks.push(Inverted {
                    kernel,
                    stride: if index == 0 { stride } else { 1 },
                    expanded: (expansion > 1).then_some(expansion * from),
                    channels,
                    squeeze: from / 4,
                    function,
                    plain: false,
                    uneven: false,
                });
                from = channels;
            }
        }
        let Efficientnet { image, classes } = *self;
        Mobilenet { image, classes, stem, stem_function: function, blocks, last: 1280, hidden: 0 }.graph()
    }
}
