//! A folder `checkpoint-STEP` of Hugging Face's trainer. The trainer writes the model first, then optimizer, scheduler and
//! generators, and `trainer_state.json` last.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{distributed, whole};

/// The step in a folder's name.
pub(super) fn step(name: &str) -> Option<u64> {
    name.strip_prefix("checkpoint-")?.parse().ok()
}

/// The file of the model, or the index of several.
const MODELS: [&str; 4] = ["model.safetensors", "pytorch_model.bin", "adapter_model.safetensors", "adapter_model.bin"];
const INDICES: [&str; 2] = ["model.safetensors.index.json", "pytorch_model.bin.index.json"];

/// Endings of files that have a rule of their own.
const STATES: [&str; 4] = ["safetensors", "bin", "pt", "pth"];

/// Whether the folder has all that its trainer needs.
pub(super) fn verify(folder: &Path, step: u64) -> Result<(), String> {
    let names: Vec<String> = fs::read_dir(folder)
        .map_err(|error| format!("it cannot be read: {error}"))?
        .flatten()
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    let state =
        fs::read(folder.join("trainer_state.json")).map_err(|_| "`trainer_state.json` is missing".to_owned())?;
    let state: Value = serde_json::from_slice(&state).map_err(|_| "`trainer_state.json` is cut short".to_owned())?;
    if state["global_step"].as_u64() != Some(step) {
        return Err(format!("`trainer_state.json` is of step {}", state["global_step"]));
    }
    let has = |name: &&str| names.iter().any(|found| found == name);
    let index = INDICES.iter().copied().find(has);
    if let Some(index) = index {
        for shard in shards(&folder.join(index))? {
            whole::file(&folder.join(shard))?;
        }
    }
    // FSDP's shards are of torch.distributed.checkpoint, each kind of state in a folder; DeepSpeed's have a file `latest`.
    let parts = names.iter().filter(|name| folder.join(name).join(".metadata").exists());
    let parts: Vec<&String> = parts.collect();
    for part in &parts {
        distributed::verify(&folder.join(part)).map_err(|why| format!("`{part}`: {why}"))?;
    }
    if index.is_none() && parts.is_empty() && !MODELS.iter().any(&has) && !has(&"latest") {
        return Err("there is no file of the model, such as `model.safetensors`".to_owned());
    }
    let is_state = |name: &&String| STATES.iter().any(|end| name.ends_with(&format!(".{end}")));
    for name in names.iter().filter(is_state).filter(|name| *name != "training_args.bin") {
        whole::file(&folder.join(name))?;
    }
    Ok(())
}

/// The files that an index names.
fn shards(index: &Path) -> Result<BTreeSet<String>, String> {
    let cut = || "the index of the model's files is cut short".to_owned();
    let index: Value = fs::read(index).ok().and_then(|bytes| serde_json::from_slice(&bytes).ok()).ok_or_else(cut)?;
    let map = index["weight_map"].as_object().ok_or_else(cut)?;
    Ok(map.values().filter_map(Value::as_str).map(str::to_owned).collect())
}
