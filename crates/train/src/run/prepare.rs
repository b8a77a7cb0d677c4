//! The first phase of a run: the data is opened and compared with that of the checkpoint, the network is built, filled
//! and divided among the ranks.

use std::path::Path;

use checkpoint::CheckpointManifest;

use super::Context;
use super::checks::{check_batches, check_image_size, check_shares, keep_threads, length};
use super::guard::RollBack;
use super::newest::{newest_checkpoint, sees_same_folder};
use crate::error::Error;
use crate::input::TrainingData;
use crate::input::provenance::{Recorded, named, prepared};
use crate::model::ModelShape;
use crate::optim::schedule::Length;
use crate::ranks::Ranks;
use crate::state::{InitialState, Resumed, Trainer, pretrained};
use crate::torch;
use domain::train::Codec;

/// The initial state of the loop over steps.
pub(super) struct Prepared {
    pub data: TrainingData,
    pub start: StartingPoint,
}

/// The state of the step that training begins after.
pub(super) struct StartingPoint {
    pub trainer: Trainer,
    pub length: Length,
    pub shape: ModelShape,
    /// The checkpoint that was resumed, on each rank that saves.
    pub manifest: Option<CheckpointManifest>,
    /// Its step, on every rank.
    pub saved: Option<u64>,
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
    let is_shared = ranks.can_save_parts(train.parallel) && sees_same_folder(spec, ranks)?;
    let (resumed, passed_over) = newest_checkpoint(spec, ranks, is_shared)?;
    if let Some(lost) = resumed.as_ref().and_then(Resumed::lost_best) {
        context.note(format!("{lost}; the next evaluation finds the best ones anew"));
    }
    // Deltas are made of complete tensors, by one rank.
    let is_whole = matches!(resumed, Some(Resumed::Whole(_))) || train.checkpoint.codec != Codec::Full;
    let [is_whole] = ranks.broadcast_flags([is_whole])?;
    ranks.set_saves_parts(is_shared && !is_whole);
    let manifest = resumed.as_ref().map(|resumed| resumed.manifest().clone());
    let saved = manifest.as_ref().map_or(String::new(), |manifest| manifest.step.to_string());
    let saved = ranks.broadcast_text(0, &saved)?.parse().ok();

    let mut recorded = match context.options.omitted.data {
        false => {
            Recorded::by(manifest.as_ref().filter(|_| ranks.is_first()), Path::new(&spec.checkpoints), &spec.job_hash)
        }
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
    fill(&mut initial, resumed, context, ranks)?;
    initial.trains_on(digest, changed);
    if let Some(RollBack { step, cursor, .. }) = rolled_back {
        initial.skip_to(*step, *cursor);
    }
    // All ranks begin with the state of the first one.
    let trainer = initial.among(train, ranks)?;
    let length = length.counted_from(trainer.progress.origin, train.epochs);
    keep_threads(spec, &trainer, channel);
    ranks.hook(&trainer.network, train.parallel)?;
    let is_first = rolled_back.is_none();
    let start = StartingPoint { trainer, length, shape, manifest, saved, passed_over, is_first };
    Ok(Prepared { data, start })
}

/// Fills the network with a checkpoint, or that of the first rank with pretrained weights.
fn fill(initial: &mut InitialState, resumed: Option<Resumed>, context: &Context, ranks: &Ranks) -> Result<(), Error> {
    let train = &context.spec.train;
    match (resumed, &train.weights) {
        (Some(resumed), _) => initial.restore(resumed, context.options.omitted, ranks)?,
        (None, Some(path)) if ranks.is_first() => {
            let weights = pretrained::open(&initial.network, &train.model, Path::new(path))?;
            weights.notes.iter().for_each(|text| context.note(text.clone()));
            initial.start_from(weights, ranks)?;
        }
        (None, Some(_) | None) => {}
    }
    Ok(())
}
