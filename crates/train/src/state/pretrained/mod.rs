//! Pretrained weights: a `model.safetensors` under the names of torchvision or of the `transformers` library.
//!
//! All of a file is used or the run does not start, with two exceptions, which are reported. The head, whose shapes
//! depend on the classes, keeps its initial values if the file's does not fit; and tensors of another head are skipped.
//! Decisions are made over names and shapes alone ([`WeightMatch::of`]), before anything is copied.

mod config;
mod files;
mod pickled;

use std::collections::BTreeMap;
use std::path::Path;

use domain::architecture::Architecture;
use domain::finding::{Cause, Finding};
use domain::train::{Model, ModelSource};

use serde_json::Value;
use tch::{Kind, Tensor};

use self::files::{Saved, WeightSource};
use crate::error::Error;
use crate::model::{Named, Network};
use crate::state;
use crate::torch;

/// A tensor by its name and the length of each dimension.
pub type NamedShape = (String, Vec<i64>);

/// How many tensors are named in one message.
const NAMED: usize = 6;

/// How the tensors of a file fit those of a network.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WeightMatch {
    /// Tensors to copy.
    pub taken: Vec<String>,
    /// Tensors of the head that keep their fresh values, each with the reason.
    pub fresh: Vec<String>,
    /// Tensors of the file that have no use here.
    pub left: Vec<String>,
    /// Everything else that does not fit, each with the reason.
    pub wrong: Vec<String>,
}

impl WeightMatch {
    /// Compares the file's tensors with the network's; `head` are the prefixes of the names of its head.
    pub fn of(network: &[NamedShape], file: &[NamedShape], head: &[&str]) -> WeightMatch {
        let in_head = |name: &str| head.iter().any(|start| name.starts_with(start));
        let mut fit = WeightMatch::default();
        for (name, shape) in network {
            let found = file.iter().find(|(known, _)| known == name).map(|(_, shape)| shape);
            match found {
                Some(found) if found == shape => fit.taken.push(name.clone()),
                Some(found) => {
                    let why = format!("`{name}` is {found:?}, and {shape:?} here");
                    if in_head(name) { &mut fit.fresh } else { &mut fit.wrong }.push(why);
                }
                None if in_head(name) => fit.fresh.push(format!("`{name}` is missing")),
                // Files of old lack this counter, which does not enter any result.
                None if name.ends_with(".num_batches_tracked") => {}
                None => fit.wrong.push(format!("`{name}` {shape:?} is missing")),
            }
        }
        for (name, shape) in file {
            if network.iter().any(|(known, _)| known == name) {
                continue;
            }
            if in_head(name) {
                fit.left.push(format!("`{name}`"));
            } else {
                fit.wrong.push(format!("`{name}` {shape:?} is not in the network"));
            }
        }
        fit
    }

    /// The notes to the user about a file that fits, a sentence each.
    pub fn notes(&self, path: &Path) -> Vec<String> {
        let mut notes = vec![format!("{} tensors were taken from `{}`", self.taken.len(), path.display())];
        if !self.fresh.is_empty() {
            notes.push(format!("the head keeps its initial weights: {}", several(&self.fresh)));
        }
        if !self.left.is_empty() {
            notes.push(format!("tensors of the file that this network does not have: {}", several(&self.left)));
        }
        notes
    }
}

/// The first few of a list, and how many more there are.
fn several(list: &[String]) -> String {
    let mut text = list.iter().take(NAMED).cloned().collect::<Vec<_>>().join(", ");
    if list.len() > NAMED {
        text.push_str(&format!(" and {} more", list.len() - NAMED));
    }
    text
}

/// The local name of a tensor of a file; `None` for one that is not a weight, or a second name of another.
///
/// Files use several conventions: a model saved without its head lacks the first part of each name, one saved in
/// distributed training begins with `module.`, and the first BERT files used `gamma` and `beta`. The names of a user's
/// own module are unchanged.
fn name_here(name: &str, architecture: Option<Architecture>) -> Option<String> {
    let Some(architecture) = architecture else { return Some(name.to_owned()) };
    let name = name.strip_prefix("module.").unwrap_or(name);
    match architecture {
        Architecture::Bert { .. } => {
            let doubled =
                ["cls.predictions.decoder.", "cls.seq_relationship."].iter().any(|start| name.starts_with(start));
            if doubled || name.ends_with("embeddings.position_ids") {
                return None;
            }
            let bare = ["embeddings.", "encoder.", "pooler."].iter().any(|start| name.starts_with(start));
            let name = if bare { format!("bert.{name}") } else { name.to_owned() };
            Some(name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias"))
        }
        Architecture::Gpt { .. } => {
            if name == "lm_head.weight" || name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias") {
                return None;
            }
            let bare = ["wte.", "wpe.", "h.", "ln_f."].iter().any(|start| name.starts_with(start));
            Some(if bare { format!("transformer.{name}") } else { name.to_owned() })
        }
        Architecture::Mlp | Architecture::Cnn | Architecture::SmallResnet { .. } => Some(name.to_owned()),
        Architecture::Resnet { .. } | Architecture::MobilenetV2 => Some(name.to_owned()),
        Architecture::MobilenetV3 { .. } | Architecture::Vit { .. } => Some(name.to_owned()),
        Architecture::Convnext { .. } | Architecture::EfficientnetB0 => Some(name.to_owned()),
        // The distances that edges are means of are no weights, though files hold them as such.
        Architecture::Yolo { .. } => (name != "model.22.dfl.conv.weight").then(|| name.to_owned()),
    }
}

/// Weights that fit a network, still in their files: each is read when it is needed.
pub struct Pretrained {
    /// Notes for the user, a sentence each.
    pub notes: Vec<String>,
    source: WeightSource,
    /// By the names of tensors here, those in the files.
    taken: BTreeMap<String, String>,
}

impl Pretrained {
    /// The names of the network's tensors that are in the files.
    pub fn taken(&self) -> impl Iterator<Item = &str> {
        self.taken.keys().map(String::as_str)
    }

    /// One of the tensors, in 32 bits if it is a float.
    ///
    /// # Errors
    /// If the file cannot be read, or has none of this name.
    pub fn tensor(&self, name: &str) -> Result<Tensor, Error> {
        let saved = self.taken.get(name).map(|there| self.source.whole(there)).transpose()?.flatten();
        let missing = || Finding::new(Cause::Internal, format!("`{name}` is not among the pretrained weights"));
        let tensor = state::tensor_of(&saved.ok_or_else(missing)?)?;
        let kind = if tensor.is_floating_point() { Kind::Float } else { tensor.kind() };
        Ok(tensor.f_to_kind(kind).map_err(torch::Error::from)?)
    }

    /// Fills those tensors that are in the files.
    ///
    /// # Errors
    /// When a file cannot be read.
    pub fn fill<'a>(&self, tensors: impl IntoIterator<Item = &'a Named>) -> Result<(), Error> {
        for named in tensors.into_iter().filter(|named| self.taken.contains_key(&named.name)) {
            let values = self.tensor(&named.name)?;
            let mut target = named.tensor.f_detach().map_err(torch::Error::from)?;
            target.f_copy_(&values).map_err(torch::Error::from)?;
        }
        Ok(())
    }
}

/// Fills `network`, a `model`, from the file at `path`, and returns notes for the user.
///
/// # Errors
/// If the file cannot be read, or tensors outside the head do not fit: all are counted, the first ones named.
pub fn load(network: &Network, model: &ModelSource, path: &Path) -> Result<Vec<String>, Error> {
    let pretrained = open(network, model, path)?;
    pretrained.fill(network.weights().all())?;
    Ok(pretrained.notes)
}

/// Compares the file at `path` with `network`, a `model`; reads names and shapes only.
///
/// # Errors
/// As [`load`].
pub fn open(network: &Network, model: &ModelSource, path: &Path) -> Result<Pretrained, Error> {
    let Saved { source, config } = Saved::open(path)?;
    if let (Some(config), Some(model)) = (&config, model.named()) {
        check_config(config, model, path)?;
    }
    let architecture = model.architecture();
    let mut names = BTreeMap::new();
    for there in source.names() {
        if let Some(here) = name_here(there, architecture) {
            names.entry(here).or_insert_with(|| there.to_owned());
        }
    }
    let here: Vec<NamedShape> =
        network.weights().all().map(|named| (named.name.clone(), named.tensor.size())).collect();
    let shape = |there: &str| source.shape(there).unwrap_or_default().iter().map(|length| *length as i64).collect();
    let there: Vec<NamedShape> = names.iter().map(|(here, there)| (here.clone(), shape(there))).collect();
    let fit = WeightMatch::of(&here, &there, network.head_names());
    if !fit.wrong.is_empty() {
        let count = fit.wrong.len();
        let message = format!(
            "the weights `{}` do not fit `{}` in {count} tensor{}: {}",
            path.display(),
            model.name(),
            if count == 1 { "" } else { "s" },
            several(&fit.wrong)
        );
        let is_embedding = |name: &str| name.ends_with("word_embeddings.weight") || name.ends_with("wte.weight");
        let vocabulary = here.iter().any(|(name, _)| is_embedding(name) && !fit.taken.contains(name))
            && there.iter().any(|(name, _)| is_embedding(name));
        let stem = here.iter().find(|(name, shape)| name == "conv1.weight" && shape.ends_with(&[3, 3]));
        let hint = match stem {
            None if vocabulary => {
                "name the tokeniser that the weights were made with: `text: {tokenizer: tokenizer.json}`"
            }
            Some(_) => {
                "images below 64×64 have another first layer than torchvision's; set `data.size`, for example to 224"
            }
            None => "choose the `model` and the `data.size` that the weights were made for",
        };
        return Err(Finding::new(Cause::Job, message).hint(hint).into());
    }
    let taken = names.into_iter().filter(|(here, _)| fit.taken.contains(here)).collect();
    Ok(Pretrained { notes: fit.notes(path), source, taken })
}

/// Refuses weights of another network whose tensors have the same names and shapes.
fn check_config(config: &Value, model: Model, path: &Path) -> Result<(), Error> {
    let wrong = config::differences(config, model);
    if wrong.is_empty() {
        return Ok(());
    }
    let message = format!(
        "the weights `{}` are of another network than `{}` by their `config.json`: {}",
        path.display(),
        model.name(),
        several(&wrong)
    );
    let hint = match config::described(config) {
        Some(described) => format!("write `model: {}`", described.name()),
        None => "this network is not served; choose weights of one that is".to_owned(),
    };
    Err(Finding::new(Cause::Job, message).hint(hint).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forms(text: &str) -> Vec<NamedShape> {
        let form = |word: &str| {
            let (name, shape) = word.split_once('=').unwrap_or((word, ""));
            (name.to_owned(), shape.split('x').filter_map(|length| length.parse().ok()).collect())
        };
        text.split_whitespace().map(form).collect()
    }

    /// The network's tensors and the file's, as `name=2x3`; what fits them and what does not.
    #[track_caller]
    fn check(network: &str, file: &str, expected: &str) {
        let fit = WeightMatch::of(&forms(network), &forms(file), &["fc.", "classifier."]);
        let part = |name: &str, list: &[String]| format!("{name}: {}", list.join(", "));
        let found =
            [part("taken", &fit.taken), part("fresh", &fit.fresh), part("left", &fit.left), part("wrong", &fit.wrong)];
        let lines: Vec<&str> = expected.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
        assert_eq!(found.iter().map(|line| line.trim()).collect::<Vec<_>>(), lines);
    }

    #[test]
    fn a_file_fits_or_its_tensors_are_named() {
        let network = "conv1.weight=4x3 bn.num_batches_tracked fc.weight=10x4 fc.bias=10";
        check(
            network,
            "conv1.weight=4x3 fc.weight=10x4 fc.bias=10",
            "taken: conv1.weight, fc.weight, fc.bias
             fresh:
             left:
             wrong:",
        );
        check(
            network,
            "conv1.weight=4x3 fc.weight=1000x4 classifier.weight=2x2",
            "taken: conv1.weight
             fresh: `fc.weight` is [1000, 4], and [10, 4] here, `fc.bias` is missing
             left: `classifier.weight`
             wrong:",
        );
        check(
            network,
            "conv1.weight=4x1 layer9.weight=2 fc.weight=10x4 fc.bias=10",
            "taken: fc.weight, fc.bias
             fresh:
             left:
             wrong: `conv1.weight` is [4, 1], and [4, 3] here, `layer9.weight` [2] is not in the network",
        );
    }

    #[test]
    fn other_spellings_are_known() {
        let (bert, gpt) = (Architecture::of(Model::BertMini), Architecture::of(Model::Gpt2));
        let check = |architecture, name: &str, expected: Option<&str>| {
            assert_eq!(name_here(name, Some(architecture)).as_deref(), expected, "{name}");
        };
        check(bert, "embeddings.LayerNorm.gamma", Some("bert.embeddings.LayerNorm.weight"));
        check(bert, "bert.encoder.layer.0.output.dense.bias", Some("bert.encoder.layer.0.output.dense.bias"));
        check(bert, "module.classifier.bias", Some("classifier.bias"));
        check(bert, "cls.predictions.decoder.weight", None);
        check(bert, "bert.embeddings.position_ids", None);
        check(gpt, "h.0.attn.c_attn.weight", Some("transformer.h.0.attn.c_attn.weight"));
        check(gpt, "h.0.attn.bias", None);
        check(gpt, "h.0.attn.c_attn.bias", Some("transformer.h.0.attn.c_attn.bias"));
        check(gpt, "lm_head.weight", None);
        check(Architecture::of(Model::Resnet50), "conv1.weight", Some("conv1.weight"));
    }

    #[test]
    fn many_tensors_are_counted() {
        let many: Vec<String> = (0..9).map(|number| format!("`{number}`")).collect();
        assert_eq!(several(&many), "`0`, `1`, `2`, `3`, `4`, `5` and 3 more");
        assert_eq!(several(&many[..2]), "`0`, `1`");
    }
}
