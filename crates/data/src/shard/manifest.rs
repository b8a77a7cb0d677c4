//! The manifest of a folder of shards: `manifest.json`, written when all shards are synced.
//!
//! It is a stable format: it carries a version, later versions read what earlier ones wrote, and a reader refuses
//! versions and values that it does not know. The names of shards are checked, so that a hostile manifest cannot point
//! outside its folder.

use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::SampleCodec;
use crate::files::replace::replace;
use crate::{Error, Part};

/// The name of the file.
pub const NAME: &str = "manifest.json";
/// The latest version: its shards may hold coefficients in the second form, which earlier programs do not know.
pub const SCHEMA: u32 = 2;
/// The version without, which earlier programs read as well.
const PLAIN: u32 = 1;
const FORMAT: &str = "gradus-shards";
/// Ten thousand shards take about a megabyte.
const LARGEST: u64 = 256 << 20;

/// A folder of shards.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShardManifest {
    /// `gradus-shards`.
    pub format: String,
    /// Version of this file.
    pub schema: u32,
    /// Names of the classes, in label order; empty for text without classes.
    pub classes: Vec<String>,
    /// How the shards were made.
    pub recipe: PackSettings,
    /// Samples in all shards.
    pub samples: u64,
    /// Samples that were skipped because they could not be read.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<SkippedSample>,
    /// The files, in order.
    pub shards: Vec<ShardFile>,
}

/// How shards were made: with the same recipe, the same data gives the same bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PackSettings {
    /// What becomes of an image.
    pub codec: SampleCodec,
    /// The short side that larger images were shrunk to, which loses detail.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shrink: Option<u32>,
    /// Seed of the order and the split.
    pub seed: u64,
    /// Shares of training, validation and test; absent if the data named the parts itself, or has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub split: Option<[f64; 3]>,
    /// Bytes that a shard was filled to.
    pub shard_bytes: u64,
    /// How text was tokenized.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<TokenFormat>,
}

/// How the documents of a pack were tokenized.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct TokenFormat {
    /// BLAKE3 of [`TOKENIZER`], in hexadecimal digits.
    pub blake3: String,
    /// Size of its vocabulary.
    pub vocabulary: u32,
    /// Bytes of a token in the shards: 2 or 4.
    pub width: u32,
}

/// A sample that was skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedSample {
    /// Its name.
    pub name: String,
    /// Why.
    pub why: String,
}

/// One file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShardFile {
    /// Its name in the folder.
    pub file: String,
    /// The part that all its samples belong to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
    /// Samples in it.
    pub count: u64,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes of its samples before conversion, if they were converted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_bytes: Option<u64>,
    /// BLAKE3 of the file, in hexadecimal digits.
    pub blake3: String,
}

impl ShardManifest {
    /// Creates a manifest of the earliest version that supports the contents of the shards, which may be packed
    /// coefficients.
    pub(crate) fn new(
        classes: Vec<String>,
        recipe: PackSettings,
        coefficients: bool,
        shards: Vec<ShardFile>,
        skipped: Vec<SkippedSample>,
    ) -> ShardManifest {
        let samples = shards.iter().map(|shard| shard.count).sum();
        let schema = if coefficients { SCHEMA } else { PLAIN };
        ShardManifest { format: FORMAT.into(), schema, classes, recipe, samples, skipped, shards }
    }

    /// Reads the manifest of a folder; `None` if it has none of this format.
    ///
    /// # Errors
    /// [`Error`] if it cannot be read, has a later version, or is malformed.
    pub fn read(folder: &Path) -> Result<Option<ShardManifest>, Error> {
        let path = folder.join(NAME);
        let refused = |source| Error::Read { name: path.display().to_string(), source };
        let file = match crate::files::plain_file::open(&path) {
            Ok(file) => file,
            // A single file of data has no manifest below it either.
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => {
                return Ok(None);
            }
            Err(source) => return Err(refused(source)),
        };
        let mut text = Vec::new();
        file.take(LARGEST + 1).read_to_end(&mut text).map_err(refused)?;
        // Other programs keep manifests too; theirs is no damage of ours.
        let Some(schema) = ShardManifest::schema(&text) else {
            return Ok(None);
        };
        let wrong = |why: String| Error::Layout { path: path.clone(), why, hint: "pack the data again".into() };
        if schema > u64::from(SCHEMA) {
            let why = format!("it is of version {schema}, this program reads up to {SCHEMA}");
            return Err(Error::Layout { path: path.clone(), why, hint: "install the newest gradus".into() });
        }
        if text.len() as u64 > LARGEST {
            return Err(wrong(format!("it is larger than {LARGEST} bytes")));
        }
        let manifest: ShardManifest =
            serde_json::from_slice(&text).map_err(|error| wrong(format!("the manifest is damaged: {error}")))?;
        manifest.check().map_err(|why| wrong(format!("the manifest is damaged: {why}")))?;
        Ok(Some(manifest))
    }

    /// The version in a manifest of ours, however damaged it is otherwise.
    fn schema(text: &[u8]) -> Option<u64> {
        #[derive(Deserialize)]
        struct Start {
            format: String,
            schema: u64,
        }
        let start: Option<Start> = serde_json::from_slice(text).ok();
        match start {
            Some(start) => (start.format == FORMAT).then_some(start.schema),
            // Truncated or damaged: it is ours if it names the format.
            None => text.windows(FORMAT.len()).take(4096).any(|part| part == FORMAT.as_bytes()).then_some(0),
        }
    }

    fn check(&self) -> Result<(), String> {
        let mut total = 0_u64;
        let mut names = std::collections::BTreeSet::new();
        for shard in &self.shards {
            let plain = shard.file.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
            if !plain || shard.file.is_empty() || shard.file.starts_with('.') {
                return Err(format!("`{}` is no name of a shard", shard.file.escape_debug()));
            }
            if !names.insert(&shard.file) {
                return Err(format!("`{}` is listed twice", shard.file));
            }
            total = total.checked_add(shard.count).ok_or("it lists too many samples")?;
        }
        if total != self.samples {
            return Err(format!("its shards hold {total} samples, but it says {}", self.samples));
        }
        Ok(())
    }

    /// Writes it into a folder, durably, in one step.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec_pretty(self)?;
        text.push(b'\n');
        replace(folder, NAME, &text)
    }
}
