//! The first phase of a run: the data is opened and compared with that of the checkpoint, the network is built, filled
//! and divided among the ranks.

use std::path::Path;

use checkpoint::{CheckpointManifest, LoadedCheckpoint};
use domain::finding::{Cause, Finding};
use domain::rank::Spec;
use domain::train::ModelSource;

use super::Context;
use super::checks::{check_batches, check_image_size, check_shares, keep_threads, length};
use super::guard::RollBack;
use crate::error::Error;
use crate::input::TrainingData;
use crate::input::provenance::{Recorded, named, prepared};
use crate::model::ModelShape;
use crate::optim::schedule::Length;
use crate::ranks::Ranks;
use crate::state::{InitialState, Trainer, pretrained};
use crate::torch;

/// What the loop over steps begins with.
pub(super) struct Prepared {
    pub data: TrainingData,
    pub start: StartingPoint,
}

/// The state of the step that training begins after.
pub(super) struct StartingPoint {
    pub trainer: Trainer,
    pub length: Length,
    pub shape: ModelShape,
    /// The checkpoint that was resumed.
    pub manifest: Option<CheckpointManifest>,
    /// Why newer checkpoints were not used.
    pub passed_over: Vec<String>,
    /// Whether this attempt has made no step yet.
    pub is_first: bool,
}

/// Does all that comes before the first step; after a roll-back, before the next one. All ranks come here together.
pub(super) fn prepare(context: &Context, ranks: &mut Ranks, rolled_back: Option<&RollBack>) -> Result<Prepared, Error> {
    let Context { spec, config, channel, .. } = *context;
    let train = &spec.train;
    chaos::point("stage");
    let (loaded, passed_over) = newest_checkpoint(spec, ranks)?;
    if let Some(lost) = loaded.as_ref().and_then(|loaded| loaded.lost_best.as_ref()) {
        context.note(format!("{lost}; the next evaluation finds the best ones anew"));
    }
    let manifest = loaded.as_ref().map(|loaded| loaded.manifest.clone());

    let mut recorded = match context.options.omitted.data {
        false => Recorded::by(manifest.as_ref(), Path::new(&spec.checkpoints), &spec.job_hash),
        true => Recorded::Unknown,
    };
    let mut provenance = recorded.provenance(spec, ranks)?;
    let opened = prepared(channel, &provenance.preparation(), || TrainingData::open(spec, channel, &mut provenance));
    let data = opened.map_err(|error| named(error, spec))?;
    let digest = recorded.check(&provenance, spec, channel, ranks).map_err(|error| named(error, spec))?;
    let changed = provenance.change().map(|_| (data.counts()[0], u64::from(train.batch)));
    drop(provenance);
    let shape = data.shape(train);
    let length = length(train, data.counts())?;
    check_image_size(train, shape)?;
    check_batches(train, shape, data.counts(), ranks.shares())?;
    check_shares(train, data.counts(), ranks.shares())?;

    torch::set_threads(spec.threads);
    torch::set_deterministic(train.deterministic)?;
    config.format.settle(context.options.device)?;
    let mut initial = InitialState::fresh(train, shape, context.options.device, spec.threads, ranks)?;
    fill(&mut initial, loaded, context, ranks)?;
    initial.trains_on(digest, changed);
    if let Some(RollBack { step, cursor, .. }) = rolled_back {
        initial.skip_to(*step, *cursor);
    }
    // All ranks begin with what the first one has.
    let trainer = initial.among(train, ranks)?;
    let length = length.counted_from(trainer.progress.origin, train.epochs);
    keep_threads(spec, &trainer, channel);
    ranks.hook(&trainer.network, train.parallel)?;
    let is_first = rolled_back.is_none();
    Ok(Prepared { data, start: StartingPoint { trainer, length, shape, manifest, passed_over, is_first } })
}

/// The newest checkpoint that verifies, on the first rank, and why newer ones do not. Where there are some and none
/// verifies, the run ends: whether to pay for all steps again is for the user to say.
///
/// A checkpoint whose values are not finite is passed over like one that does not verify.
fn newest_checkpoint(spec: &Spec, ranks: &Ranks) -> Result<(Option<LoadedCheckpoint>, Vec<String>), Error> {
    if !ranks.is_first() {
        return Ok((None, Vec::new()));
    }
    let folder = Path::new(&spec.checkpoints);
    checkpoint::claim(folder, spec.fence)?;
    // Those that earlier versions saved without a look at their values.
    let is_finite = |loaded: &LoadedCheckpoint| match not_finite(loaded, &spec.train.model) {
        Some(name) => Err(format!("`{name}` has values that are not finite")),
        None => Ok(()),
    };
    match checkpoint::newest_usable(folder, &spec.job_hash, &is_finite)? {
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

/// The first tensor of a checkpoint that is not finite. The constants of a user's own module may be infinite, as those of
/// masks are.
fn not_finite<'a>(loaded: &'a LoadedCheckpoint, model: &ModelSource) -> Option<&'a str> {
    let weights = match model {
        ModelSource::Named(_) => &loaded.model[..],
        ModelSource::Module(_) => &[],
    };
    weights.iter().chain(&loaded.training).find(|tensor| !tensor.is_finite()).map(|tensor| tensor.name.as_str())
}

/// Fills the network of the first rank with a checkpoint, or with pretrained weights.
fn fill(
    initial: &mut InitialState,
    loaded: Option<LoadedCheckpoint>,
    context: &Context,
    ranks: &Ranks,
) -> Result<(), Error> {
    let train = &context.spec.train;
    match (loaded, &train.weights) {
        (Some(loaded), _) => initial.restore(loaded, context.options.omitted)?,
        (None, Some(path)) if ranks.is_first() => {
            for text in pretrained::load(&initial.network, &train.model, Path::new(path))? {
                context.note(text);
            }
        }
        (None, Some(_) | None) => {}
    }
    Ok(())
}
