//! Layers over images: channels × height × width.

use super::super::graph::{Function, Input, Norm, OpKind, TensorId, WeightSplit};
use super::{Builder, Owned, Rows};

/// A tensor with the shape of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeatureMap {
    pub tensor: TensorId,
    pub channels: u64,
    pub height: u64,
    pub width: u64,
}

impl FeatureMap {
    /// Values of one sample: channels × height × width.
    pub fn elements(&self) -> u64 {
        self.channels.saturating_mul(self.height).saturating_mul(self.width)
    }
}

/// A convolution with a square kernel, padded so that stride 1 keeps the size, as in most networks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Convolution {
    pub channels: u64,
    pub kernel: u64,
    pub stride: u64,
    /// None: `dilation · (kernel - 1) / 2`.
    pub padding: Option<u64>,
    pub dilation: u64,
    pub groups: u64,
    pub bias: bool,
    /// One pixel less is padded before the image than after it, as TensorFlow's networks are carried over.
    pub uneven: bool,
}

impl Convolution {
    /// A convolution without bias, as before a batch normalisation.
    pub fn new(channels: u64, kernel: u64, stride: u64) -> Convolution {
        Convolution { channels, kernel, stride, padding: None, dilation: 1, groups: 1, bias: false, uneven: false }
    }

    /// Sets the number of groups of channels.
    pub fn groups(self, groups: u64) -> Convolution {
        Convolution { groups, ..self }
    }

    /// Adds a bias per output channel.
    pub fn biased(self) -> Convolution {
        Convolution { bias: true, ..self }
    }

    /// Sets the padding on each side, in pixels.
    pub fn padding(self, padding: u64) -> Convolution {
        Convolution { padding: Some(padding), ..self }
    }

    /// Sets the dilation of its kernel.
    pub fn dilation(self, dilation: u64) -> Convolution {
        Convolution { dilation, ..self }
    }

    /// The same, padded by one pixel less before the image than after it.
    pub fn uneven(self, uneven: bool) -> Convolution {
        Convolution { uneven, ..self }
    }

    fn side(&self, side: u64) -> u64 {
        let padding = self.padding.unwrap_or(self.dilation * (self.kernel - 1) / 2);
        let padded = side + 2 * padding - u64::from(self.uneven && padding > 0);
        sliding(padded, self.dilation * (self.kernel - 1) + 1, self.stride, 0)
    }
}

/// The number of positions of a window of `kernel` on a padded side.
fn sliding(side: u64, kernel: u64, stride: u64, padding: u64) -> u64 {
    (side + 2 * padding).saturating_sub(kernel) / stride + 1
}

impl Builder {
    /// Adds an input image of one sample: channels × height × width.
    pub fn image(&mut self, channels: u64, height: u64, width: u64) -> FeatureMap {
        let tensor = self.input(channels * height * width);
        self.reads(Input::Image([channels, height, width]));
        FeatureMap { tensor, channels, height, width }
    }

    /// Adds a convolution; its output has `with.channels` and the sides that stride and padding leave.
    pub fn convolution(&mut self, name: &str, from: FeatureMap, with: Convolution) -> FeatureMap {
        let (height, width) = (with.side(from.height), with.side(from.width));
        let inner = with.kernel * with.kernel * from.channels / with.groups;
        let columns = with.channels / with.groups;
        let kind = OpKind::Convolution {
            positions: height * width,
            inner,
            columns,
            groups: with.groups,
            kernel: with.kernel as u32,
        };
        let owned = Owned::parameters(inner * with.channels + if with.bias { with.channels } else { 0 });
        let tensor = self.add(name, kind, &[from.tensor], with.channels * height * width, owned);
        FeatureMap { tensor, channels: with.channels, height, width }
    }

    /// Batch normalisation with weight, bias, running mean, running variance and a count of batches.
    pub fn batch_norm(&mut self, name: &str, from: FeatureMap) -> FeatureMap {
        let kind = OpKind::Norm { norm: Norm::Batch, elements: from.elements(), groups: from.channels };
        let owned = Owned { parameters: 2 * from.channels, buffers: 2 * from.channels + 1 };
        FeatureMap { tensor: self.add(name, kind, &[from.tensor], from.elements(), owned), ..from }
    }

    /// Layer normalisation of each pixel's channels.
    pub fn norm_pixels(&mut self, name: &str, from: FeatureMap) -> FeatureMap {
        let pixels = Rows { tensor: from.tensor, rows: from.height * from.width, width: from.channels };
        FeatureMap { tensor: self.norm(name, pixels, Norm::Layer, true).tensor, ..from }
    }

    /// An activation over an image; ReLU and its like overwrite their input in most implementations.
    pub fn activate(&mut self, name: &str, from: FeatureMap, function: Function, in_place: bool) -> FeatureMap {
        let kind = OpKind::Activation { function, elements: from.elements(), in_place };
        FeatureMap { tensor: self.add(name, kind, &[from.tensor], from.elements(), Owned::NOTHING), ..from }
    }

    /// The sum of two images of one shape.
    pub fn sum(&mut self, name: &str, left: FeatureMap, right: FeatureMap) -> FeatureMap {
        let kind = OpKind::Elementwise { elements: left.elements(), inputs: 2, product: false };
        FeatureMap {
            tensor: self.add(name, kind, &[left.tensor, right.tensor], left.elements(), Owned::NOTHING),
            ..left
        }
    }

    /// Adds a pooling layer, padded by half its kernel: the maximum or the mean of each `kernel` × `kernel` window.
    pub fn pool(&mut self, name: &str, from: FeatureMap, kernel: u64, stride: u64, maximum: bool) -> FeatureMap {
        let padding = (kernel - 1) / 2;
        let [height, width] = [from.height, from.width].map(|side| sliding(side, kernel, stride, padding));
        let outputs = from.channels * height * width;
        let kind = OpKind::Pool { maximum, inputs: from.elements(), outputs };
        let tensor = self.add(name, kind, &[from.tensor], outputs, Owned::NOTHING);
        FeatureMap { tensor, height, width, ..from }
    }

    /// The mean of each channel.
    pub fn mean(&mut self, name: &str, from: FeatureMap) -> FeatureMap {
        let kind = OpKind::Pool { maximum: false, inputs: from.elements(), outputs: from.channels };
        let tensor = self.add(name, kind, &[from.tensor], from.channels, Owned::NOTHING);
        FeatureMap { tensor, height: 1, width: 1, ..from }
    }

    /// Images of one height and width, one after the other.
    pub fn concatenate(&mut self, name: &str, images: &[FeatureMap]) -> FeatureMap {
        let channels = images.iter().map(|image| image.channels).sum();
        let first = images[0];
        let elements = channels * first.height * first.width;
        let inputs: Vec<TensorId> = images.iter().map(|image| image.tensor).collect();
        let tensor = self.add(name, OpKind::Copy { elements }, &inputs, elements, Owned::NOTHING);
        FeatureMap { tensor, channels, ..first }
    }

    /// Each pixel `factor` × `factor` times.
    pub fn enlarge(&mut self, name: &str, from: FeatureMap, factor: u64) -> FeatureMap {
        let (height, width) = (from.height * factor, from.width * factor);
        let elements = from.channels * height * width;
        let tensor = self.add(name, OpKind::Resize { elements }, &[from.tensor], elements, Owned::NOTHING);
        FeatureMap { tensor, height, width, ..from }
    }

    /// A linear layer over the values of one image, and the loss among `classes`.
    pub fn classify(&mut self, name: &str, from: FeatureMap, classes: u64) {
        let inner = from.elements();
        let kind = OpKind::Linear { rows: 1, inner, columns: classes, split: WeightSplit::Whole };
        let owned = Owned::parameters((inner + 1) * classes);
        let scores = self.add(name, kind, &[from.tensor], classes, owned);
        self.loss(scores, 1, classes);
    }
}
