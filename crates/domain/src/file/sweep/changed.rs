//! Keys of `train:` that are changed when a run is resumed: `epochs=60`.
//!
//! A value is read as it would be in the job file, so that what is wrong there is wrong here, in the same words. What a
//! checkpoint rests on (the model, the data and its split, the batch, the kind of optimizer) stays.

use serde::Deserialize;
use serde_json::{Value as Json, json};

use super::super::tree::{self, Node, clip};
use super::super::{schema, sense, shape, sweep};
use crate::problem::Problem;
use crate::sweep::Setting;
use crate::train::{Optimizer, Precision, Train};

impl Train {
    /// The settings that texts such as `optimizer.adamw.lr=1e-4` ask for, in their order, each with the value that the
    /// section then has.
    ///
    /// # Errors
    /// Everything that is wrong with the texts, or with the section that they make.
    pub fn settings(&self, texts: &[String]) -> Result<Vec<Setting>, Vec<Problem>> {
        let whole = json!({ "train": self });
        let (mut whole, _) = tree::read(&whole.to_string())?;
        let mut problems = Vec::new();
        let mut keys = Vec::new();
        for text in texts {
            match assignment(text) {
                Ok((key, node)) => {
                    if let Some(train) = whole.get_mut("train") {
                        sweep::put(train, key, 1, &node);
                    }
                    keys.push(key.to_owned());
                }
                Err(problem) => problems.push(problem),
            }
        }
        let shaped = shape::check(schema(), &whole, &mut problems, &mut Vec::new());
        let without_lines = |problem: Problem| Problem { line: None, ..problem };
        if !problems.is_empty() {
            return Err(problems.into_iter().map(without_lines).collect());
        }
        let after =
            Train::deserialize(&shaped["train"]).map_err(|error| vec![Problem::at("train", error.to_string())])?;
        let mut problems = sense::of_train(&after);
        problems.extend(fixed(self, &after));
        if !problems.is_empty() {
            return Err(problems);
        }
        let value = |key: &str| key.split('.').fold(&shaped["train"], |value, part| &value[part]).clone();
        Ok(keys.into_iter().map(|key| Setting { value: value(&key), key }).collect())
    }
}

/// The key path of `KEY=VALUE`, and the value.
fn assignment(text: &str) -> Result<(&str, Node), Problem> {
    let wrong = |message: String| Problem::at("", message).hint("write for example `--set epochs=60`");
    let Some((key, value)) = text.split_once('=') else {
        return Err(wrong(format!("`{}` is no setting", clip(text))));
    };
    let key = key.trim();
    let key = key.strip_prefix("train.").unwrap_or(key);
    if key.contains('[') || key.split('.').any(str::is_empty) {
        return Err(wrong(format!("`{}` is no key of `train`", clip(key))));
    }
    let read = tree::read(&format!("value: {}", value.trim()));
    let node = read.ok().and_then(|(tree, _)| tree.get("value").map(|(_, node)| node.clone()));
    node.map(|node| (key, node)).ok_or_else(|| wrong(format!("the value of `{}` cannot be read", clip(text))))
}

/// What a checkpoint rests on, and has changed.
fn fixed(before: &Train, after: &Train) -> Option<Problem> {
    let [left, right] = [before, after].map(|train| serde_json::to_value(train).unwrap_or(Json::Null));
    let is_same = |key: &str| {
        let at = |whole: &Json| key.split('.').fold(whole, |value, part| &value[part]).clone();
        at(&left) == at(&right)
    };
    let kind = |train: &Train| std::mem::discriminant(&train.optimizer);
    let is_fp16 = |train: &Train| train.precision == Precision::Fp16;
    // Without momentum there is no state of it.
    let has_momentum = |train: &Train| matches!(train.optimizer, Optimizer::Sgd(sgd) if sgd.momentum > 0.0);
    let changed = if kind(before) != kind(after) {
        Some("optimizer")
    } else if is_fp16(before) != is_fp16(after) {
        Some("precision")
    } else if has_momentum(before) != has_momentum(after) {
        Some("optimizer.sgd.momentum")
    } else {
        FIXED.into_iter().find(|key| !is_same(key))
    };
    changed.map(|key| {
        let message = "a checkpoint of another value cannot be resumed";
        let hint = "start another run with `gradus run JOB.yaml --new`; `weights:` may name the model of this one";
        Problem::at(format!("train.{key}"), message).hint(hint)
    })
}

/// Keys that the state in a checkpoint depends on.
const FIXED: [&str; 16] = [
    "model",
    "loss",
    "weights",
    "batch",
    "seed",
    "average",
    "parameters.freeze",
    "data.path",
    "data.split",
    "data.classes",
    "data.labels",
    "data.text",
    "data.size",
    "data.normalize",
    "data.corrupt",
    "threads",
];

#[cfg(test)]
mod tests {
    use crate::job::{Job, Work};

    fn check(texts: &[&str], expected: &str) {
        let text = include_str!("../../../../../examples/digits.yaml");
        let Work::Train(train) = Job::parse(text, "digits.yaml").unwrap().job.work else { panic!("digits trains") };
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        let found = match train.settings(&texts) {
            Ok(settings) => {
                train.with(&settings).unwrap();
                let told = |setting: &crate::sweep::Setting| format!("{}={}", setting.key, setting.say());
                settings.iter().map(told).collect::<Vec<_>>().join(" ")
            }
            Err(problems) => {
                let told = |problem: &crate::Problem| {
                    let hint = problem.hint.as_ref().map(|hint| format!(" ({hint})")).unwrap_or_default();
                    format!("{}: {}{hint}", problem.key, problem.message)
                };
                problems.iter().map(told).collect::<Vec<_>>().join("; ")
            }
        };
        assert_eq!(found, expected, "{texts:?}");
    }

    #[test]
    fn settings_are_read_as_in_a_job_file() {
        check(&["epochs=60"], "epochs=60");
        check(&["train.epochs = 60", "processes=2"], "epochs=60 processes=2");
        check(&["stop={patience: 3}"], "stop={patience: 3}");
        check(&["stop=null", "checkpoint.every=10m"], "stop=null checkpoint.every=10m");
        check(&["validate_every=500 steps"], "validate_every=500 steps");
        check(&["epochs=many"], "train.epochs: expected a whole number, found the text `many`");
        check(&["epoch=60"], "train.epoch: unknown key (did you mean `epochs`?)");
        check(&["epochs"], ": `epochs` is no setting (write for example `--set epochs=60`)");
        check(&["a..b=1"], ": `a..b` is no key of `train` (write for example `--set epochs=60`)");
        check(&["epochs=[1"], ": the value of `epochs=[1` cannot be read (write for example `--set epochs=60`)");
    }

    #[test]
    fn what_a_checkpoint_rests_on_stays() {
        let refused = |key: &str| {
            format!(
                "train.{key}: a checkpoint of another value cannot be resumed (start another run with `gradus run \
                 JOB.yaml --new`; `weights:` may name the model of this one)"
            )
        };
        check(&["seed=7"], &refused("seed"));
        check(&["batch=7"], &refused("batch"));
        check(&["model=mlp"], &refused("model"));
        check(&["data.path=other.csv"], &refused("data.path"));
        check(&["optimizer={lamb: {lr: 0.1}}"], &refused("optimizer"));
        check(&["precision=fp16"], &refused("precision"));
    }
}
