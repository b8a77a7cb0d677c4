//! Checks before a resume: whether what a run or sweep would be resumed from is there.

use domain::run::{Outcome, RunState};
use domain::{RunId, SweepId, Work};
use plan::World;
use server::Home;

use crate::command::runs::checkpoints;
use crate::command::runs::rm::REMOVED;
use crate::error::{Error, exit};
use crate::local::{machine, mounts};

/// Refuses to rent anything for a run that may be resumed by its state, and yet has nothing to resume from or to run: its
/// files were deleted, its checkpoints are damaged or gone, its provider is not there, or what it mounts. `gradus serve` asks
/// here as well.
///
/// # Errors
/// [`Error::Usage`], [`Error::Code`] or [`Error::Job`] with what is missing.
pub fn require_resumable(home: &Home, world: &World, id: &RunId) -> Result<(), Error> {
    refuse_removed(home, id)?;
    refuse_damaged(home, world, id)?;
    let Some(run) = world.runs.get(id) else { return Ok(()) };
    machine::require_served(home, &run.plan.offer.provider)?;
    let folder = home.run(id);
    let is_extended = matches!(run.state, RunState::Done { outcome: Outcome::Trained { .. } });
    // An object store is looked into by the machine of the run, which may have other credentials.
    let is_here = run.job.checkpoint_store.is_none();
    if is_extended && is_here && !checkpoints::has_any(&folder.join("checkpoints"))? {
        let message = format!(
            "run `{id}` has no checkpoint left to train on from (`gradus gc` deletes those of a trained run), and would \
             start from step 0"
        );
        let model = folder.join("export/model.safetensors");
        let hint = format!(
            "start from its model: `gradus run JOB.yaml --new` with `weights: {}` below `train:`",
            model.display()
        );
        return Err(Error::Usage { message, hint });
    }
    mounts::check(&run.job, (id.as_str(), ""))
}

/// Refuses to resume a sweep of which no trial could be started: its provider is not there, or what it mounts. `gradus serve`
/// asks here as well.
///
/// # Errors
/// [`Error::Code`] or [`Error::Job`] with what is missing.
pub fn require_resumable_sweep(home: &Home, world: &World, id: &SweepId) -> Result<(), Error> {
    let Some(sweep) = world.sweeps.get(id) else { return Ok(()) };
    machine::require_served(home, &sweep.plan.offer.provider)?;
    mounts::check(&sweep.job, (id.as_str(), ""))
}

/// Refuses what has no files any more.
///
/// # Errors
/// [`Error::Usage`].
pub fn refuse_removed(home: &Home, id: &RunId) -> Result<(), Error> {
    if !home.run(id).join(REMOVED).exists() {
        return Ok(());
    }
    let message = format!("the files of run `{id}` were deleted, so there is no checkpoint to resume from");
    Err(Error::Usage { message, hint: "submit the job again with `gradus run JOB.yaml`".to_owned() })
}

/// Refuses to rent anything for a run of which every checkpoint is damaged: what was paid for would be paid again.
///
/// # Errors
/// [`Error::Code`] with what is damaged.
pub fn refuse_damaged(home: &Home, world: &World, id: &RunId) -> Result<(), Error> {
    let is_here = |run: &&plan::Run| matches!(run.job.work, Work::Train(_)) && run.job.checkpoint_store.is_none();
    let Some(run) = world.runs.get(id).filter(is_here) else { return Ok(()) };
    let folder = home.run(id).join("checkpoints");
    let damaged = agent::unusable_checkpoints(&folder, &run.job_hash);
    let Some(newest) = damaged.first() else { return Ok(()) };
    let spent = run.bill.as_ref().map(|bill| format!(", for which {} were billed", bill.total)).unwrap_or_default();
    let message = format!("all {} checkpoints of run `{id}` are damaged{spent}: {newest}", damaged.len());
    let hint =
        format!("put back a copy of `{}`, or train from step 0 with `gradus run JOB.yaml --new`", folder.display());
    Err(Error::Code { message, hint: Some(hint), code: exit::WORLD })
}
