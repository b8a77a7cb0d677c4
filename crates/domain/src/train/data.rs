//! The `train.data` section: where the samples are, and how they become batches.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// Where the samples are and how they become batches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// A folder or tar of `…/<class>/<file>.jpg|png`, WebDataset tars (`train-{000..146}.tar`), TFRecords, Parquet or Arrow files with an image and a label, a folder of any of these or of gradus shards, a COCO `.json`, a folder of pictures with a `metadata.csv|jsonl`, a CIFAR-10 binary folder, or a CSV of 64 pixels and a label (`.csv`, `.csv.gz`); for text a `.csv`, `.jsonl` or `.txt`, each also with `.gz`, shards of tokens, or plain tokens (`.u16`, `.u32`); for detection a COCO `.json` or a folder with one, or a folder with `images` and `labels` in the form of YOLO. Relative to the job file, or an address such as `s3://bucket/pictures`, which is fetched first.
    pub path: String,
    /// Shares of training, validation and test samples, drawn by seed; or `folders`, when the data has `train`, `val` and `test` folders of its own.
    #[serde(default)]
    pub split: Split,
    /// Number of classes the data must have; another number is an error before the first step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 1_000_000))]
    pub classes: Option<u32>,
    /// Which columns of a `.csv` or keys of a `.jsonl` hold the text, and how it becomes numbers; for models that read text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Text>,
    /// What is done to a training picture, in this order.
    #[serde(default)]
    pub augment: Vec<Augment>,
    /// Mean and standard deviation of each channel, of values in 0–1. Default: measured on the training split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalize: Option<Normalize>,
    /// Height and width that pictures of another size are resized to. Default: the size of the first picture.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 8, max = 1024))]
    pub size: Option<u32>,
    /// What to do with a picture that cannot be read.
    #[serde(default)]
    pub corrupt: Corrupt,
    /// Threads that decode.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 256))]
    pub workers: u32,
    /// Read an address such as `s3://…` piece by piece while training, and keep pieces on this machine's disk. Without it all of the data is fetched first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
    /// Read the files of all pictures into memory before the first step, if they take at most so much, such as `64 GiB`: for disks and networks that are slow. Each process has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preload: Option<Bytes>,
}

/// Pieces of data that lies elsewhere, kept on this machine's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// The most that the pieces may take, such as `10 GiB`; what is needed last gives way.
    pub budget: Bytes,
}

/// Where the texts of a file stand, and how they become rows of numbers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// Columns or keys that hold the text, joined by a space; in a CSV without a header the numbers of the columns from 1, such as `"2"`. A `.txt` has none.
    #[serde(default = "text_columns")]
    pub columns: Vec<String>,
    /// Column or key of the class. Without it BERT learns to fill in masked words; GPT always learns the next word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Words of the longest row; longer texts are cut, or divided where the next word is learnt.
    #[serde(default = "text_length")]
    #[schemars(range(min = 8, max = 1024))]
    pub length: u32,
    /// A `tokenizer.json` of the `tokenizers` library, relative to the job file. Default: learnt from the training texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<String>,
    /// Words of the vocabulary that is learnt, at most.
    #[serde(default = "text_vocabulary")]
    #[schemars(range(min = 300, max = 262_144))]
    pub vocabulary: u32,
    /// Whether words see other documents of their row, where the next word is learnt from documents that were packed.
    #[serde(default, skip_serializing_if = "super::is_usual")]
    pub documents: Documents,
}

/// What words of a row that several documents share see of each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Documents {
    /// All words before them, of whatever document, as GPT-2 and GPT-3 were trained; only a document's first word is not guessed from another.
    #[default]
    Together,
    /// Those of their own document only, whose positions count from its beginning: each document as if it had its row alone.
    Apart,
}

/// How samples are divided into training, validation and test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Split {
    /// Shares of training, validation and test; they add up to 1.
    Shares([f64; 3]),
    /// `folders`: by the folders `train`, `val` and `test`; without `val`, a tenth of `train` drawn by seed.
    Folders(Folders),
}

/// The word `folders`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Folders {
    /// By folders.
    Folders,
}

/// One change to a training picture or batch, drawn by (seed, epoch, sample).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Augment {
    /// Show a random part of the picture, 8 to 100 % of its area, resized to `size`; evaluation shows the middle.
    RandomResizedCrop,
    /// Resize until the short side has this many pixels, then cut out a part of `size` at a random place; evaluation shows the middle.
    ResizeCrop(u32),
    /// Mirror left to right with probability one half.
    Flip,
    /// Pad by this many zero pixels on each side and cut a picture of the first size at a random place.
    PadCrop(u32),
    /// Put four pictures together into one; for detection.
    Mosaic,
    /// Change colours and place by a few operations at random, as torchvision's `RandAugment`.
    RandAugment(RandAugment),
    /// Mix each picture of a batch with the one before it, and their classes in the same shares; the number is the alpha of the Beta distribution that the share is drawn from, 0.2 for ImageNet. With `cutmix` besides, each batch has one of the two by chance.
    Mixup(f64),
    /// Put a rectangle of the picture before it into each picture of a batch, and mix their classes by area; the number is the alpha of the Beta distribution that the area is drawn from, 1 is usual.
    Cutmix(f64),
}

/// Operations at random, as torchvision's `RandAugment` (Cubuk et al. 2020): of identity, shear and shift along x and y, rotation, brightness, colour, contrast, sharpness, posterize, solarize, autocontrast and equalize.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RandAugment {
    /// Operations that are applied one after another.
    #[serde(default = "two")]
    #[schemars(range(min = 1, max = 14))]
    pub num_ops: u32,
    /// How strong they are, of 31 steps from 0 on.
    #[serde(default = "nine")]
    #[schemars(range(max = 30))]
    pub magnitude: u32,
}

/// Mean and standard deviation of each channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Normalize {
    /// One mean a channel.
    pub mean: Vec<f32>,
    /// One standard deviation a channel.
    pub std: Vec<f32>,
}

/// What to do with a picture that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Corrupt {
    /// End the run and name the file.
    #[default]
    Fail,
    /// Leave it out when the data is opened and say how many were left out.
    Skip,
}

impl Default for Split {
    fn default() -> Split {
        Split::Shares([0.7, 0.2, 0.1])
    }
}

fn one() -> u32 {
    1
}
fn two() -> u32 {
    2
}
fn nine() -> u32 {
    9
}
fn text_columns() -> Vec<String> {
    vec!["text".to_owned()]
}
fn text_length() -> u32 {
    128
}
fn text_vocabulary() -> u32 {
    8_000
}
