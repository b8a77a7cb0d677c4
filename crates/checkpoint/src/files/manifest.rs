//! The manifest, a stable on-disk format of schema [`SCHEMA`].
//!
//! Pretty-printed JSON whose last member, `sha256`, is the hash of all bytes before its line, so that any change of the
//! file is noticed. Readers ignore unknown members; a change that old readers must not ignore raises the schema.

use domain::id::{AttemptId, Fence, RunId};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::disk::hexadecimal;

/// The version written if no file builds on another.
pub const SCHEMA: u32 = 1;

/// The version if files build on others. A program that supports only the first version leaves such a checkpoint
/// unchanged.
pub const CHAIN_SCHEMA: u32 = 2;

/// The version where each of several ranks has written its part of every tensor. Earlier programs leave it alone.
pub const PARTS_SCHEMA: u32 = 3;

/// The state that is durable after one step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CheckpointManifest {
    /// Version of this file.
    pub schema: u32,
    /// The run.
    pub run: RunId,
    /// The attempt that wrote it.
    pub attempt: AttemptId,
    /// Number of that attempt.
    pub fence: Fence,
    /// SHA-256 of what defines the result.
    pub job_hash: String,
    /// The step of the state.
    pub step: u64,
    /// State of the trainer that is not tensors.
    pub state: Value,
    /// Which checkpoint of its run it is, from 1, where every so many of them stay; else 0.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub number: u64,
    /// The best weights, one of `files`.
    pub best: Option<BestEntry>,
    /// Every file that belongs to this state: model, training, and best if there is one; of each its parts, where ranks
    /// have written them.
    pub files: Vec<FileEntry>,
    /// The checkpoints that this one builds on, the full one first; empty for a full checkpoint.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub chain: Vec<ChainEntry>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// A checkpoint that later ones build on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainEntry {
    /// Its step.
    pub step: u64,
    /// Its model and its training state.
    pub files: Vec<FileEntry>,
}

/// Where the best weights are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BestEntry {
    /// The step after which they were measured.
    pub step: u64,
    /// Name of their file, or of the folder of their parts.
    pub name: String,
}

/// A file as it was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Path below the folder of checkpoints, with `/`.
    pub name: String,
    /// Size.
    pub bytes: u64,
    /// SHA-256, in hexadecimal.
    pub sha256: String,
}

/// Why a manifest cannot be used, as part of a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Flaw {
    /// It is damaged.
    #[error("{0}")]
    Damaged(String),
    /// It was written by a later version of this program. All versions seal their manifests in the same way.
    #[error("it is of schema {0}, and this program reads up to {PARTS_SCHEMA}")]
    Later(u64),
}

const MODEL: &str = "model.safetensors";
const TRAINING: &str = "training.safetensors";
const MODEL_LINKS: &str = "model.delta";
const TRAINING_LINKS: &str = "training.delta";

impl CheckpointManifest {
    /// The text of the file.
    pub(crate) fn to_text(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("plain values are always JSON");
        text.truncate(text.len() - "\n}".len());
        text.push_str(",\n");
        let seal = seal(text.as_bytes());
        text + &seal
    }

    /// Reads a manifest. Any bytes may be given.
    pub(crate) fn read(bytes: &[u8]) -> Result<CheckpointManifest, Flaw> {
        let value: Value = serde_json::from_slice(bytes).map_err(|error| damaged(format!("it is no JSON: {error}")))?;
        let sealed = bytes.len().checked_sub(seal(b"").len()).map(|end| bytes.split_at(end));
        if sealed.is_none_or(|(text, end)| seal(text).as_bytes() != end) {
            return Err(damaged("it does not match its own checksum"));
        }
        match value.get("schema").and_then(Value::as_u64) {
            Some(schema) if (SCHEMA.into()..=PARTS_SCHEMA.into()).contains(&schema) => {}
            Some(schema) if schema > u64::from(PARTS_SCHEMA) => return Err(Flaw::Later(schema)),
            Some(_) | None => return Err(damaged("it has no known `schema`")),
        }
        let manifest: CheckpointManifest =
            serde_json::from_value(value).map_err(|error| damaged(format!("it is not valid: {error}")))?;
        manifest.check_names().map_err(damaged)?;
        Ok(manifest)
    }

    /// The files of all checkpoints that it takes to have this one, the full one first.
    pub(crate) fn layers(&self) -> impl Iterator<Item = &[FileEntry]> {
        self.chain.iter().map(|link| link.files.as_slice()).chain([self.files.as_slice()])
    }

    /// The files of the best weights: one, or its parts.
    pub fn best_files(&self) -> &[FileEntry] {
        let is_best = |file: &FileEntry| self.best.as_ref().is_some_and(|best| folder(&file.name) == best.name);
        let start = self.files.iter().position(is_best).unwrap_or(self.files.len());
        &self.files[start..]
    }

    /// The files of one kind of state, in the order of the ranks that wrote them; a single one for an undivided state.
    /// Empty for a delta.
    pub fn files_of(&self, kind: StateKind) -> Vec<&FileEntry> {
        let whole = [MODEL, TRAINING][kind as usize];
        let is_it = |file: &&FileEntry| {
            let inner = file.name.split_once('/').map(|(_, inner)| inner);
            let is_part = inner.and_then(PartName::parse).is_some_and(|part| part.kind == kind);
            is_part || inner == Some(whole)
        };
        self.files[..self.files.len() - self.best_files().len()].iter().filter(is_it).collect()
    }

    /// Whether several ranks have written parts of the state; its best weights may be of another time.
    pub fn is_divided(&self) -> bool {
        let part = |file: &FileEntry| PartName::parse(file.name.split_once('/')?.1);
        let state = &self.files[..self.files.len() - self.best_files().len()];
        state.iter().any(|file| part(file).is_some())
    }

    /// Whether files hold differences to those of earlier steps.
    pub fn is_chained(&self) -> bool {
        self.files.iter().any(is_links)
    }

    /// Names no best weights any more.
    pub fn forget_best(&mut self) {
        self.files.truncate(self.files.len() - self.best_files().len());
        self.best = None;
    }

    /// Checks that no file is outside the folder, listed twice or missing.
    fn check_names(&self) -> Result<(), String> {
        let has_parts = self.schema == PARTS_SCHEMA;
        let mut names: Vec<&str> = self.layers().flatten().map(|file| file.name.as_str()).collect();
        if let Some(name) = names.iter().find(|name| !is_known(name, has_parts)) {
            return Err(format!("it names `{}`, which is no file of a checkpoint", name.escape_debug()));
        }
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        let best = self.best_files();
        let is_best_whole = match (&self.best, best) {
            (None, []) => true,
            (Some(_), [file]) if !file.name.contains('/') => true,
            (Some(_), parts) => are_all(parts.iter(), StateKind::Model),
            (None, _) => false,
        };
        let state = &self.files[..self.files.len() - best.len()];
        let is_complete = match self.is_divided() {
            true => {
                let (model, training) = (self.files_of(StateKind::Model), self.files_of(StateKind::Training));
                let counts = (model.len() + training.len(), model.len(), self.chain.len());
                counts == (state.len(), training.len(), 0)
                    && are_all(model.into_iter(), StateKind::Model)
                    && are_all(training.into_iter(), StateKind::Training)
            }
            false => {
                let layers = self.chain.iter().map(|link| link.files.as_slice()).chain([state]);
                layers.into_iter().all(|files| files.len() == 2 && model(files).is_some() && training(files).is_some())
            }
        };
        if count != names.len() || !is_best_whole || !is_complete {
            return Err("it does not name the files of a checkpoint".into());
        }
        Ok(())
    }
}

/// The first part of a path below the folder of checkpoints.
fn folder(name: &str) -> &str {
    name.split_once('/').map_or(name, |(folder, _)| folder)
}

/// Whether a checkpoint can have a file of this name.
fn is_known(name: &str, has_parts: bool) -> bool {
    let Some(data) = Data::parse(folder(name)) else { return false };
    let inner = name.split_once('/').map(|(_, inner)| inner);
    let part = inner.and_then(PartName::parse).filter(|_| has_parts);
    match (data, inner) {
        (Data::Best { .. }, None) => true,
        (Data::Step { .. }, Some(inner)) => {
            part.is_some() || [MODEL, TRAINING, MODEL_LINKS, TRAINING_LINKS].contains(&inner)
        }
        (Data::BestParts { .. }, Some(_)) => part.is_some_and(|part| part.kind == StateKind::Model),
        (Data::Best { .. }, Some(_)) | (Data::Step { .. } | Data::BestParts { .. }, None) => false,
    }
}

/// Whether these are the parts of all ranks, in their order, in one folder.
fn are_all<'a>(files: impl Iterator<Item = &'a FileEntry>, kind: StateKind) -> bool {
    let parts: Option<Vec<(&str, PartName)>> =
        files.map(|file| file.name.split_once('/').and_then(|(at, name)| Some((at, PartName::parse(name)?)))).collect();
    let Some(parts) = parts else { return false };
    let of = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    of > 0 && (0..of).zip(&parts).all(|(rank, part)| *part == (parts[0].0, PartName { kind, rank, of }))
}

/// The kinds of state that files hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StateKind {
    /// Weights and buffers.
    Model,
    /// All else that has the form of a tensor.
    Training,
}

/// The name of one rank's part of the weights, or of the rest of the state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PartName {
    pub kind: StateKind,
    pub rank: u32,
    pub of: u32,
}

impl PartName {
    /// Such as `model-00001-of-00004.safetensors`.
    pub(crate) fn name(self) -> String {
        let kind = ["model", "training"][self.kind as usize];
        format!("{kind}-{:05}-of-{:05}.safetensors", self.rank, self.of)
    }

    fn parse(name: &str) -> Option<PartName> {
        let (kind, rest) = name.strip_suffix(".safetensors")?.split_once('-')?;
        let (rank, of) = rest.split_once("-of-")?;
        let kind = match kind {
            "model" => StateKind::Model,
            "training" => StateKind::Training,
            _ => return None,
        };
        let part = PartName { kind, rank: rank.parse().ok()?, of: of.parse().ok()? };
        // Only the exact spelling that this program writes.
        (part.name() == name && part.rank < part.of).then_some(part)
    }
}

/// The weights among the files of a checkpoint.
pub(crate) fn model(files: &[FileEntry]) -> Option<&FileEntry> {
    one_of(files, [MODEL, MODEL_LINKS])
}

/// The state of the training among the files of a checkpoint.
pub(crate) fn training(files: &[FileEntry]) -> Option<&FileEntry> {
    one_of(files, [TRAINING, TRAINING_LINKS])
}

fn one_of<'a>(files: &'a [FileEntry], names: [&str; 2]) -> Option<&'a FileEntry> {
    files.iter().find(|file| file.name.rsplit_once('/').is_some_and(|(_, name)| names.contains(&name)))
}

/// Whether a file holds links and not tensors.
pub(crate) fn is_links(file: &FileEntry) -> bool {
    file.name.ends_with(".delta")
}

fn damaged(flaw: impl Into<String>) -> Flaw {
    Flaw::Damaged(flaw.into())
}

/// The last line and bracket: the hash of everything before them.
fn seal(text: &[u8]) -> String {
    format!("  \"sha256\": \"{}\"\n}}\n", hexadecimal(&Sha256::digest(text)))
}

/// The name of a step's manifest.
pub(crate) fn manifest_name(step: u64) -> String {
    format!("manifest-{step:08}.json")
}

/// The step in the name of a manifest; `None` for the name of anything else.
pub(crate) fn manifest_step(name: &str) -> Option<u64> {
    let step = name.strip_prefix("manifest-")?.strip_suffix(".json")?.parse().ok()?;
    (manifest_name(step) == name).then_some(step)
}

/// The name of a folder or file of data, which no two attempts share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    /// `step-00000120-a3`, or `step-00000120-a3-2` when attempt 3 saves step 120 again.
    Step { step: u64, fence: Fence, again: u64 },
    /// `best-00000100-a2.safetensors`, or `best-00000100-a2-2.safetensors`.
    Best { step: u64, fence: Fence, again: u64 },
    /// `best-00000100-a2`: the folder of their parts.
    BestParts { step: u64, fence: Fence, again: u64 },
}

impl Data {
    pub(crate) fn name(self) -> String {
        let (kind, step, fence, again, end) = match self {
            Data::Step { step, fence, again } => ("step", step, fence, again, ""),
            Data::Best { step, fence, again } => ("best", step, fence, again, ".safetensors"),
            Data::BestParts { step, fence, again } => ("best", step, fence, again, ""),
        };
        let again = if again == 0 { String::new() } else { format!("-{again}") };
        format!("{kind}-{step:08}-a{}{again}{end}", fence.0)
    }

    pub(crate) fn parse(name: &str) -> Option<Data> {
        let (kind, rest) = name.split_once('-')?;
        let mut parts = rest.trim_end_matches(".safetensors").split('-');
        let step = parts.next()?.parse().ok()?;
        let fence = Fence(parts.next()?.strip_prefix('a')?.parse().ok()?);
        let again = parts.next().map_or(Some(0), |again| again.parse().ok())?;
        let data = match kind {
            "step" => Data::Step { step, fence, again },
            "best" if name.ends_with(".safetensors") => Data::Best { step, fence, again },
            "best" => Data::BestParts { step, fence, again },
            _ => return None,
        };
        // Only the exact spelling that this program writes.
        (data.name() == name).then_some(data)
    }

    /// The names of the files in the folder of a step.
    pub(crate) const FILES: [&str; 2] = [MODEL, TRAINING];

    /// Their names if they hold links.
    pub(crate) const LINKS: [&str; 2] = [MODEL_LINKS, TRAINING_LINKS];
}
