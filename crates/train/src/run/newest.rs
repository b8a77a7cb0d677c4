//! Which checkpoint a run resumes: the newest one that verifies. Where all ranks see the folder and each needs a part,
//! they share the work of verifying it, and none holds all of it.

use std::fs;
use std::path::Path;

use checkpoint::{CheckpointManifest, LoadedCheckpoint, Rejected, StateKind};
use domain::finding::{Cause, Finding};
use domain::rank::Spec;
use domain::train::ModelSource;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::ranks::Ranks;
use crate::state::{CheckpointFiles, Resumed};

/// A checkpoint, and why newer ones are not used.
type Newest = (Option<Resumed>, Vec<String>);

/// The newest checkpoint that verifies, and why newer ones do not. If there are checkpoints but none verifies, the run
/// ends: repeating all steps is the user's decision.
///
/// A checkpoint with non-finite values is skipped like one that does not verify. Only the first rank has one, unless
/// the folder `is_shared`.
pub(super) fn newest_checkpoint(spec: &Spec, ranks: &Ranks, is_shared: bool) -> Result<Newest, Error> {
    let folder = Path::new(&spec.checkpoints);
    if ranks.is_first() {
        checkpoint::claim(folder, spec.fence)?;
    }
    let among_all = if is_shared { newest_among_all(spec, ranks)? } else { None };
    let found = match among_all {
        Some(found) => found,
        None if ranks.is_first() => newest_whole(spec)?,
        None => (None, Vec::new()),
    };
    match found {
        (None, passed_over) if !passed_over.is_empty() => {
            let message = format!(
                "no checkpoint in `{}` can be resumed, and the run would start over from step 0: {}",
                folder.display(),
                passed_over.join("; ")
            );
            let hint = "put the files back and resume the run, or train from step 0 with `gradus run JOB.yaml --new`";
            Err(Finding::new(Cause::Internal, message).hint(hint).into())
        }
        found => Ok(found),
    }
}

/// Whether every rank sees the first one's checkpoint folder; nodes need not share one.
pub(super) fn sees_same_folder(spec: &Spec, ranks: &Ranks) -> Result<bool, Error> {
    let folder = Path::new(&spec.checkpoints);
    let sign = folder.join(".seen");
    let mut told = String::new();
    if ranks.is_first() {
        checkpoint::claim(folder, spec.fence)?;
        told = format!("{} {}", spec.attempt, std::process::id());
        checkpoint::write_file(&sign, told.as_bytes())?;
    }
    let told = ranks.broadcast_text(0, &told)?;
    let sees = fs::read_to_string(&sign).is_ok_and(|found| found == told);
    let is_shared = !ranks.any(!sees)?;
    if ranks.is_first() {
        // The next attempt writes it again.
        let _ = fs::remove_file(&sign);
    }
    Ok(is_shared)
}

/// The same, read by the first rank alone.
fn newest_whole(spec: &Spec) -> Result<Newest, Error> {
    // For checkpoints of earlier versions, which were saved without checking their values.
    let is_finite = |loaded: &LoadedCheckpoint| match not_finite(loaded, &spec.train.model) {
        Some(name) => Err(format!("`{name}` has values that are not finite")),
        None => Ok(()),
    };
    let (loaded, passed_over) = checkpoint::newest_usable(Path::new(&spec.checkpoints), &spec.job_hash, &is_finite)?;
    Ok((loaded.map(|loaded| Resumed::Whole(Box::new(loaded))), passed_over))
}

/// The first tensor of a checkpoint that is not finite. The constants of a user's own module may be infinite, as those of
/// masks are.
fn not_finite<'a>(loaded: &'a LoadedCheckpoint, model: &ModelSource) -> Option<&'a str> {
    let weights = match model {
        ModelSource::Named(_) => &loaded.model[..],
        ModelSource::Module(_) => &[],
    };
    weights.iter().chain(&loaded.training).find(|tensor| !tensor.is_finite()).map(|tensor| tensor.name.as_str())
}

/// One rank's verdict about the files that it has verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Verdict {
    /// They are as they were written.
    Right,
    /// The best weights are damaged; the reason is part of a sentence.
    BestDamaged(String),
    /// One of the state is not.
    Damaged(String),
    /// One cannot be read now.
    Unreadable(String),
}

/// The newest checkpoint, verified by all ranks together; `None` if it is a delta checkpoint, which is assembled in
/// memory.
fn newest_among_all(spec: &Spec, ranks: &Ranks) -> Result<Option<Newest>, Error> {
    let folder = Path::new(&spec.checkpoints);
    let steps = if ranks.is_first() { checkpoint::steps(folder)? } else { Vec::new() };
    let steps: Vec<u64> = agreed(ranks, 0, &steps)?;
    let mut passed_over = Vec::new();
    for step in steps {
        let read = checkpoint::read_manifest(folder, step, &spec.job_hash);
        if ranks.broadcast_flags([read.as_ref().is_ok_and(CheckpointManifest::is_chained)])? == [true] {
            return Ok(None);
        }
        let verdict = match &read {
            Ok(manifest) => verified(folder, manifest, spec, ranks),
            Err(rejected) => told(rejected),
        };
        let mut verdicts = Vec::new();
        for rank in 0..ranks.size() {
            verdicts.push(agreed(ranks, rank, &verdict)?);
        }
        if let Err(Rejected::Unreadable(error)) = read {
            return Err(error.into());
        }
        match worst(verdicts) {
            Verdict::Unreadable(why) => {
                let finding = Finding::new(Cause::Unreadable, why);
                return Err(finding.hint("check the disk or mount, then resume the run: nothing was removed").into());
            }
            Verdict::Damaged(why) => {
                passed_over.push(format!("the checkpoint of step {step} is not used: {why}"));
            }
            best @ (Verdict::Right | Verdict::BestDamaged(_)) => {
                let Ok(mut manifest) = read else { continue };
                let lost_best = match (best, &manifest.best) {
                    (Verdict::BestDamaged(flaw), Some(best)) => Some(checkpoint::lost_best(best.step, &flaw)),
                    (_, _) => None,
                };
                if lost_best.is_some() {
                    manifest.forget_best();
                }
                let files = CheckpointFiles::open(folder, manifest, lost_best)?;
                return Ok(Some((Some(Resumed::Files(Box::new(files))), passed_over)));
            }
        }
    }
    Ok(Some((None, passed_over)))
}

/// The damage in this rank's share of the files of a checkpoint.
fn verified(folder: &Path, manifest: &CheckpointManifest, spec: &Spec, ranks: &Ranks) -> Verdict {
    let is_own_module = matches!(spec.train.model, ModelSource::Module(_));
    let model = manifest.files_of(StateKind::Model).into_iter().map(|file| (file, !is_own_module, false));
    let training = manifest.files_of(StateKind::Training).into_iter().map(|file| (file, true, false));
    let best = manifest.best_files().iter().map(|file| (file, false, true));
    let mut verdict = Verdict::Right;
    for (number, (file, is_finite, is_best)) in model.chain(training).chain(best).enumerate() {
        if number as u32 % ranks.size() != ranks.rank() {
            continue;
        }
        let found = match checkpoint::check_file(folder, file, is_finite) {
            Ok(()) => Verdict::Right,
            Err(Rejected::Damaged(flaw)) if is_best => Verdict::BestDamaged(flaw),
            Err(rejected) => told(&rejected),
        };
        verdict = worst(vec![verdict, found]);
    }
    verdict
}

fn told(rejected: &Rejected) -> Verdict {
    match rejected {
        Rejected::Damaged(flaw) => Verdict::Damaged(flaw.clone()),
        Rejected::Unreadable(error) => Verdict::Unreadable(error.finding().message),
    }
}

/// The verdict that counts: unreadable before damaged, and the first of several.
fn worst(verdicts: Vec<Verdict>) -> Verdict {
    let rank = |verdict: &Verdict| match verdict {
        Verdict::Unreadable(_) => 0,
        Verdict::Damaged(_) => 1,
        Verdict::BestDamaged(_) => 2,
        Verdict::Right => 3,
    };
    verdicts.into_iter().min_by_key(rank).unwrap_or(Verdict::Right)
}

/// The value of the rank `root`.
fn agreed<T: Serialize + for<'de> Deserialize<'de>>(ranks: &Ranks, root: u32, own: &T) -> Result<T, Error> {
    let wrong = |error: serde_json::Error| {
        Finding::new(Cause::Internal, format!("ranks do not understand each other: {error}"))
    };
    let text = ranks.broadcast_text(root, &serde_json::to_string(own).map_err(wrong)?)?;
    Ok(serde_json::from_str(&text).map_err(wrong)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_read_counts_before_what_is_damaged() {
        let unreadable = || Verdict::Unreadable("u".into());
        let damaged = |why: &str| Verdict::Damaged(why.into());
        let best = || Verdict::BestDamaged("b".into());
        assert_eq!(worst(vec![Verdict::Right, damaged("1"), unreadable(), damaged("2")]), unreadable());
        assert_eq!(worst(vec![best(), damaged("1"), damaged("2")]), damaged("1"));
        assert_eq!(worst(vec![Verdict::Right, best()]), best());
        assert_eq!(worst(vec![]), Verdict::Right);
    }
}
