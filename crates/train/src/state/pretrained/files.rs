//! The files of pretrained weights: one `.safetensors` file, one of `torch.save`, or a folder as written by
//! `save_pretrained` of the `transformers` library, with a `config.json` and possibly several files of weights.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use checkpoint::{Tensor, TensorSource};
use domain::finding::{Cause, Finding};
use serde_json::Value;

use super::pickled::{EXTENSIONS, PickledTensors};
use crate::error::Error;

/// Tensors, of which only names and shapes were read, and their configuration.
#[derive(Debug)]
pub(super) struct Saved {
    pub source: WeightSource,
    /// The accompanying `config.json`; `None` if there is none.
    pub config: Option<Value>,
}

impl Saved {
    /// Opens everything at `path`.
    pub fn open(path: &Path) -> Result<Saved, Error> {
        let source = WeightSource::open(path)?;
        let folder = if path.is_dir() { Some(path) } else { path.parent() };
        let config = folder.map(|folder| folder.join("config.json")).filter(|file| file.is_file());
        Ok(Saved { source, config: config.map(|file| json(&file)).transpose()? })
    }
}

/// Where the tensors are.
#[derive(Debug)]
pub(super) enum WeightSource {
    /// In `.safetensors` files.
    Safetensors(TensorSource),
    /// In a file of `torch.save`.
    Pickled(PickledTensors),
}

impl WeightSource {
    fn open(path: &Path) -> Result<WeightSource, Error> {
        let extension = path.extension().and_then(|extension| extension.to_str()).unwrap_or_default();
        if path.is_file() && EXTENSIONS.contains(&extension) {
            return PickledTensors::open(path).map(WeightSource::Pickled);
        }
        let source = TensorSource::of_files(files(path)?).map_err(|error| {
            let finding = error.finding();
            let usual = || "check `train.weights`; it is relative to the job file".to_owned();
            Finding::new(Cause::Job, finding.message).hint(finding.hint.unwrap_or_else(usual))
        })?;
        Ok(WeightSource::Safetensors(source))
    }

    /// Names of the tensors.
    pub fn names(&self) -> Vec<&str> {
        match self {
            WeightSource::Safetensors(source) => source.names().collect(),
            WeightSource::Pickled(source) => source.names().collect(),
        }
    }

    /// The length of each dimension of a tensor.
    pub fn shape(&self, name: &str) -> Option<Vec<u64>> {
        match self {
            WeightSource::Safetensors(source) => source.shape(name).map(|shape| shape.to_vec()),
            WeightSource::Pickled(source) => source.shape(name),
        }
    }

    /// A tensor, whole.
    pub fn whole(&self, name: &str) -> Result<Option<Tensor>, Error> {
        match self {
            WeightSource::Safetensors(source) => Ok(source.whole(name)?),
            WeightSource::Pickled(source) => source.whole(name),
        }
    }
}

/// The files that hold the tensors.
fn files(path: &Path) -> Result<Vec<PathBuf>, Error> {
    if path.is_dir() {
        let (whole, index) = (path.join("model.safetensors"), path.join("model.safetensors.index.json"));
        if whole.is_file() || !index.is_file() {
            return Ok(vec![whole]);
        }
        let map = &json(&index)?["weight_map"];
        let names: BTreeSet<&str> =
            map.as_object().into_iter().flat_map(|map| map.values()).filter_map(Value::as_str).collect();
        if names.is_empty() {
            let message = format!("`{}` names no file of weights", index.display());
            return Err(Finding::new(Cause::Job, message).hint("save the model again with `save_pretrained`").into());
        }
        return Ok(names.into_iter().map(|name| path.join(name)).collect());
    }
    if path.extension().is_none_or(|extension| extension != "safetensors") {
        let message = format!(
            "`weights: {}` is no `.safetensors` file, no file of `torch.save` and no folder with either",
            path.display()
        );
        let hint = "name a `.safetensors`, `.pth`, `.pt` or `.bin` file, or a folder of `save_pretrained`";
        return Err(Finding::new(Cause::Job, message).hint(hint).into());
    }
    Ok(vec![path.to_owned()])
}

fn json(file: &Path) -> Result<Value, Error> {
    let text = std::fs::read_to_string(file).map_err(|error| error.to_string());
    let value = text.and_then(|text| serde_json::from_str(&text).map_err(|error| error.to_string()));
    value.map_err(|why| {
        let message = format!("`{}` beside the weights cannot be read: {why}", file.display());
        Finding::new(Cause::Job, message).hint("save the model again, or move the file away").into()
    })
}
