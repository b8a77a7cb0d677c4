//! The `train.data` section: where the samples are, and how they become batches.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Augment;
use crate::units::Bytes;

/// Where the samples are, how they are split and how they become batches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Data {
    /// A folder, tar or zip of `…/<class>/<file>.jpg|png`, WebDataset tars (`train-{000..146}.tar`), TFRecords, Parquet, Arrow or Feather files with an image and a label, a folder of any of these or of gradus shards, a COCO `.json`, a folder of images with a `metadata.csv|jsonl`, a `.csv` of paths and classes, CIFAR's binary or MNIST's idx files, a `.npz` of images and labels, or a CSV of pixels and a label (`.csv`, `.csv.gz`); `docs/data.md` lists all. For text: `.csv`, `.jsonl` or `.txt`, each also with `.gz`, token shards, or raw token ids (`.u16`, `.u32`). For detection: a COCO `.json` or a folder with one, or a YOLO folder with `images` and `labels`. Relative to the job file, or an address such as `s3://bucket/images`, which is downloaded first.
    pub path: String,
    /// Fractions of training, validation and test samples, drawn by seed without regard to classes; or `folders` if the data has `train`, `val` and `test` folders; without `val`, a tenth of `train` drawn by seed.
    #[serde(default)]
    pub split: Split,
    /// Expected number of classes; another number is an error before the first step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 1_000_000))]
    pub classes: Option<u32>,
    /// What the label of a sample is: `class`, `multi_label` (any number of classes, trained with binary cross-entropy) or `number` (regression, trained with the mean squared error).
    #[serde(default, skip_serializing_if = "super::is_usual")]
    pub labels: Labels,
    /// For text models: which columns of a `.csv` or keys of a `.jsonl` hold the text, and how it is tokenised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Text>,
    /// In which order training samples are drawn.
    #[serde(default, skip_serializing_if = "super::is_usual")]
    pub sampling: Sampling,
    /// Augmentations of training images, applied in this order.
    #[serde(default)]
    pub augment: Vec<Augment>,
    /// Mean and standard deviation per channel, for values in 0–1. Default: measured on the training split.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub normalize: Option<Normalize>,
    /// Height and width to resize images to. Default: the size of the first image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 8, max = 1024))]
    pub size: Option<u32>,
    /// What to do with an image that cannot be read.
    #[serde(default)]
    pub corrupt: Corrupt,
    /// Decoding threads per rank.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 256))]
    pub workers: u32,
    /// Read remote data (`s3://…`) by range requests while training, with a cache on this machine's disk. Without it, all data is downloaded first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
    /// Read all image files into memory before the first step, up to this size, such as `64 GiB`; for slow disks and networks. Every rank has its own copy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preload: Option<Bytes>,
    /// The samples of an earlier run, as its `checkpoints/data-….json` lists them: training samples among them are left out, and those of validation and test stay so. Relative to the job file. `schedule: {new_data: true}` sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trained_on: Option<String>,
}

/// Cache of remote data on this machine's disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Cache {
    /// Maximum size of the cache, such as `10 GiB`; the range that is needed last is evicted first.
    pub budget: Bytes,
}

/// Where the texts of a file are, and how they become token sequences.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Text {
    /// Columns or keys that hold the text, joined by a space; in a CSV without a header, column numbers from 1, such as `"2"`. Not for `.txt`.
    #[serde(default = "text_columns")]
    pub columns: Vec<String>,
    /// Column or key of the class. Without it, BERT is trained on masked tokens; GPT is always trained on the next token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// Column or key of a second text, such as `hypothesis`: both are encoded as a pair with segments (`token_type_ids`), as the `tokenizers` library does. For classification by BERT.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pair: Option<String>,
    /// Sequence length in tokens. Longer texts are truncated or, for next-token training, split.
    #[serde(default = "text_length")]
    #[schemars(range(min = 8, max = 1024))]
    pub length: u32,
    /// A `tokenizer.json` of the `tokenizers` library, relative to the job file. Default: trained on the training texts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokenizer: Option<String>,
    /// Maximum vocabulary size of a tokenizer that is trained here.
    #[serde(default = "text_vocabulary")]
    #[schemars(range(min = 300, max = 262_144))]
    pub vocabulary: u32,
    /// Whether tokens attend to other documents in their sequence, for next-token training on packed documents.
    #[serde(default, skip_serializing_if = "super::is_usual")]
    pub documents: Documents,
}

/// What tokens of a sequence with several documents attend to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Documents {
    /// All earlier tokens of the sequence, of any document, as GPT-2 and GPT-3 were trained; only a document's first token is not predicted from another document.
    #[default]
    Together,
    /// Earlier tokens of their own document only, with positions counted from its start, as if each document had its own sequence.
    Apart,
}

/// How samples are divided into training, validation and test.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Split {
    /// Fractions of training, validation and test; they add up to 1.
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

/// What the label of a sample is, and with it what a classifier is trained to predict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Labels {
    /// One class, trained with cross-entropy.
    #[default]
    Class,
    /// Any number of classes, written `cat|dog` or in JSON as a list, and `|` for none; trained with binary cross-entropy, as `BCEWithLogitsLoss`.
    MultiLabel,
    /// A number; trained with the mean squared error, as `MSELoss`.
    Number,
}

/// In which order the training samples of an epoch are drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Sampling {
    /// Each sample once, in an order drawn by seed.
    #[default]
    Shuffle,
    /// With replacement, every class with equal probability, as `WeightedRandomSampler` with the reciprocal class sizes; as many draws per epoch as there are training samples. For images or texts with one class each.
    Balanced,
}

/// Mean and standard deviation of each channel.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Normalize {
    /// One mean per channel.
    pub mean: Vec<f32>,
    /// One standard deviation per channel.
    pub std: Vec<f32>,
}

/// What to do with an image that cannot be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Corrupt {
    /// End the run and name the file.
    #[default]
    Fail,
    /// Skip it when the data is opened, and report how many were skipped.
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
fn text_columns() -> Vec<String> {
    vec!["text".to_owned()]
}
fn text_length() -> u32 {
    128
}
fn text_vocabulary() -> u32 {
    8_000
}
