//! Checkpoints of which an object store has lost a file: a rule of the bucket, or somebody, has deleted it. The run resumes from
//! the newest one that is whole, and says which are not.

use std::collections::{BTreeMap, BTreeSet};

use checkpoint::{CheckpointManifest, FileEntry};
use domain::{Cause, Finding};

use super::loop_files::TravelError;

/// What is lost with files that are gone.
#[derive(Debug, Default, PartialEq)]
pub(super) struct LostCheckpoints {
    /// Files that are of no use any more: manifests of checkpoints that lack a file, and what no other checkpoint names.
    pub useless: BTreeSet<String>,
    /// A sentence for each checkpoint that cannot be resumed, the newest first.
    pub checkpoints: Vec<String>,
    /// A sentence for each file that a checkpoint can be resumed without: one of its best weights.
    pub best: Vec<String>,
}

impl LostCheckpoints {
    /// What is lost of checkpoints with these manifests, by their paths, where files are gone, each with the object that had
    /// its contents.
    pub fn find(manifests: &BTreeMap<String, CheckpointManifest>, gone: &BTreeMap<String, String>) -> LostCheckpoints {
        let mut steps: BTreeMap<u64, &str> =
            gone.keys().filter_map(|path| Some((manifest_step(path)?, path.as_str()))).collect();
        let (mut useless, mut needed) = (BTreeSet::new(), BTreeSet::<String>::new());
        for (path, manifest) in manifests {
            let names = state(manifest).chain(manifest.best_files()).map(|file| file.name.clone());
            match state(manifest).find(|file| gone.contains_key(&file.name)) {
                Some(lacking) => {
                    steps.insert(manifest.step, &lacking.name);
                    useless.insert(path.clone());
                    useless.extend(names);
                }
                None => needed.extend(names),
            }
        }
        useless.retain(|path| !needed.contains(path));
        let why = |path: &str| format!("`{path}` is lost, because `{}` is missing", gone[path]);
        let unused = |(step, path): (&u64, &&str)| format!("the checkpoint of step {step} is not used: {}", why(path));
        LostCheckpoints {
            useless,
            checkpoints: steps.iter().rev().map(unused).collect(),
            best: gone.keys().filter(|path| needed.contains(*path)).map(|path| why(path)).collect(),
        }
    }

    /// Why a run without any other checkpoint does not begin.
    pub fn all(&self) -> TravelError {
        let why = self.checkpoints.join("; ");
        let message = format!("no checkpoint can be resumed, and the run would start over from step 0: {why}");
        let hint = "put the objects back and resume the run, or train from step 0 with `gradus run JOB.yaml --new`";
        TravelError::Store(Box::new(Finding::new(Cause::Data, message).hint(hint)))
    }
}

/// The files without which a checkpoint cannot be resumed, those that it builds on included.
fn state(manifest: &CheckpointManifest) -> impl Iterator<Item = &FileEntry> {
    let own = &manifest.files[..manifest.files.len() - manifest.best_files().len()];
    manifest.chain.iter().flat_map(|link| &link.files).chain(own)
}

/// The step of a manifest, by its path.
fn manifest_step(path: &str) -> Option<u64> {
    path.strip_prefix("manifest-")?.strip_suffix(".json")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn file(name: &str) -> serde_json::Value {
        json!({ "name": name, "bytes": 1, "sha256": "" })
    }

    /// The manifest of a step that builds on others, and names the best weights of step 5.
    fn manifest(step: u64, builds_on: &[u64]) -> (String, CheckpointManifest) {
        let model = |step: &u64| file(&format!("step-{step}-a1/model.delta"));
        let chain: Vec<_> = builds_on.iter().map(|step| json!({ "step": step, "files": [model(step)] })).collect();
        let manifest = json!({
            "schema": 2, "run": "r", "attempt": "r-a1", "fence": 1, "job_hash": "", "step": step, "state": null,
            "best": { "step": 5, "name": "best-5-a1" }, "files": [model(&step), file("best-5-a1")], "chain": chain,
        });
        (format!("manifest-{step}.json"), serde_json::from_value(manifest).unwrap())
    }

    #[test]
    fn a_checkpoint_is_lost_with_what_it_builds_on_and_not_with_its_best_weights() {
        let manifests =
            BTreeMap::from([manifest(10, &[]), manifest(20, &[10]), manifest(30, &[10, 20]), manifest(40, &[])]);
        let check = |gone: &[&str], steps: &[u64], useless: &[&str], best: usize| {
            let gone: BTreeMap<String, String> =
                gone.iter().map(|path| ((*path).to_owned(), format!("s3://b/{path}"))).collect();
            let lost = LostCheckpoints::find(&manifests, &gone);
            let sentence = |step: &u64| format!("the checkpoint of step {step} is not used: `");
            assert_eq!(lost.checkpoints.len(), steps.len(), "{lost:?}");
            let is_of = |(said, step): (&String, &u64)| said.starts_with(&sentence(step)) && said.contains("`s3://b/");
            assert!(lost.checkpoints.iter().zip(steps).all(is_of), "{lost:?}");
            assert_eq!(lost.useless.iter().map(String::as_str).collect::<Vec<_>>(), useless, "{lost:?}");
            assert_eq!(lost.best.len(), best, "{lost:?}");
        };
        check(&[], &[], &[], 0);
        check(&["step-40-a1/model.delta"], &[40], &["manifest-40.json", "step-40-a1/model.delta"], 0);
        check(&["step-30-a1/model.delta"], &[30], &["manifest-30.json", "step-30-a1/model.delta"], 0);
        check(
            &["step-20-a1/model.delta"],
            &[30, 20],
            &["manifest-20.json", "manifest-30.json", "step-20-a1/model.delta", "step-30-a1/model.delta"],
            0,
        );
        check(&["best-5-a1"], &[], &[], 1);
        // What no manifest names is of a checkpoint that was not complete.
        check(&["step-50-a1/model.delta"], &[], &[], 0);
        check(&["manifest-50.json"], &[50], &[], 0);
    }
}
