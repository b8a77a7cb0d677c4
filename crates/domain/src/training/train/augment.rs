//! The `augment:` key: what is done to training images and batches.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One augmentation of a training image or batch, drawn by (seed, epoch, sample).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Augment {
    /// Crop 8 to 100 % of the image's area at random and resize to `size`; centre crop in evaluation.
    RandomResizedCrop,
    /// Resize the short side to this many pixels, then crop `size` at random; centre crop in evaluation.
    ResizeCrop(u32),
    /// Flip horizontally with probability 0.5.
    Flip,
    /// Pad each side by this many zero pixels, then crop the original size at random.
    PadCrop(u32),
    /// Combine four images into one; for detection.
    Mosaic,
    /// Change brightness, contrast, saturation and hue at random, in random order, as torchvision's `ColorJitter`.
    ColorJitter(ColorJitter),
    /// Two operations of a policy that was found for a data set, as torchvision's `AutoAugment` (Cubuk et al. 2018).
    AutoAugment(AutoAugment),
    /// One operation at a random strength, as torchvision's `TrivialAugmentWide` (Müller and Hutter 2021).
    TrivialAugment,
    /// Set a random rectangle of the normalised image to zero, as torchvision's `RandomErasing` (Zhong et al. 2017).
    RandomErasing(RandomErasing),
    /// A few random colour and geometric operations, like torchvision's `RandAugment`.
    RandAugment(RandAugment),
    /// Mix each image of a batch with the previous one, and their labels in the same ratio. The number is the alpha of the Beta distribution, 0.2 for ImageNet. With `cutmix` as well, each batch uses one of the two at random.
    Mixup(f64),
    /// Paste a rectangle of the previous image into each image of a batch, and mix their labels by area. The number is the alpha of the Beta distribution, usually 1.
    Cutmix(f64),
}

/// Random operations like torchvision's `RandAugment` (Cubuk et al. 2020): identity, shear and translation along x and y, rotation, brightness, colour, contrast, sharpness, posterize, solarize, autocontrast and equalize.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandAugment {
    /// Number of operations applied in sequence.
    #[serde(default = "two")]
    #[schemars(range(min = 1, max = 14))]
    pub num_ops: u32,
    /// Strength, from 0 to 30.
    #[serde(default = "nine")]
    #[schemars(range(max = 30))]
    pub magnitude: u32,
}

/// Random changes of colour, as torchvision's `ColorJitter`. Each factor is drawn between 1 minus and 1 plus the value.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ColorJitter {
    /// Brightness.
    #[serde(default)]
    #[schemars(extend("minimum" = 0))]
    pub brightness: f64,
    /// Contrast.
    #[serde(default)]
    #[schemars(extend("minimum" = 0))]
    pub contrast: f64,
    /// Saturation.
    #[serde(default)]
    #[schemars(extend("minimum" = 0))]
    pub saturation: f64,
    /// Hue: the shift is drawn between minus and plus this part of the colour circle.
    #[serde(default)]
    #[schemars(extend("minimum" = 0, "maximum" = 0.5))]
    pub hue: f64,
}

/// The policy of AutoAugment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AutoAugment {
    /// The one that was found on ImageNet.
    Imagenet,
    /// The one that was found on CIFAR-10.
    Cifar10,
    /// The one that was found on SVHN.
    Svhn,
}

/// Random erasing, as torchvision's `RandomErasing` with a value of 0, which is the mean of a normalised image.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandomErasing {
    /// Probability that an image is changed.
    #[serde(default = "half")]
    #[schemars(extend("minimum" = 0, "maximum" = 1))]
    pub p: f64,
    /// Smallest and largest area of the rectangle, relative to the image.
    #[serde(default = "erased_area")]
    pub scale: [f64; 2],
    /// Smallest and largest ratio of height to width of the rectangle.
    #[serde(default = "erased_ratio")]
    pub ratio: [f64; 2],
}

fn two() -> u32 {
    2
}
fn nine() -> u32 {
    9
}
fn half() -> f64 {
    0.5
}
fn erased_area() -> [f64; 2] {
    [0.02, 0.33]
}
fn erased_ratio() -> [f64; 2] {
    [0.3, 3.3]
}
