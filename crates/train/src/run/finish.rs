//! The last phase of a run: the best weights are scored on the test split and exported.

use std::path::Path;

use data::Part;
use domain::finding::{Cause, Finding};
use domain::rank::{EvaluatedSplit, Pause, Report};

use super::export::{FinalScores, export, export_stopped, write_last, write_model};
use super::training::Training;
use super::validation::evaluated;
use super::{Context, Ending};
use crate::error::{Error, never_finite};
use crate::ranks::Ranks;
use crate::state::WhichWeights;
use crate::step::profile::Timeline;
use crate::torch;

/// Ends a run whose steps are done.
pub(super) fn finish(training: Training) -> Result<Ending, Error> {
    let Training { evaluator, length, mut trainer, mut checkpointer, mut commands, timeline, .. } = training;
    let (context, ranks) = (evaluator.context, evaluator.ranks);
    report_times(context, &timeline, ranks)?;
    // Durable before it is exported: a kill from here on costs no step.
    checkpointer.finish()?;
    if context.spec.train.export_every.is_some() {
        context.pauses(Pause::Export, ranks);
        write_last(&trainer, context.spec, ranks)?;
    }
    if trainer.progress.best.is_none() {
        return Err(never_finite());
    }
    let best_step = trainer.load_best(ranks)?;
    context.pauses(Pause::Evaluation, ranks);
    let Some(test) = evaluator.score(&trainer, Part::Test, &mut commands)? else {
        return Ok(Ending::Stopped { step: trainer.progress.step });
    };
    let rank_memory = report_memory(context, ranks)?;
    let processor_us = ranks.gather(torch::processor_micros() as f64)?.iter().sum::<f64>() as u64;
    // The network has the best weights now.
    context.pauses(Pause::Export, ranks);
    let entry = write_model(&trainer, context.spec, WhichWeights::Present, ranks)?;
    let (Some(step), Some(entry)) = (best_step, entry) else { return Ok(Ending::Trained) };
    let validation = trainer.progress.best.ok_or_else(|| Finding::new(Cause::Internal, "nothing was evaluated"))?;
    let [_, _, tested] = evaluator.data.counts();
    if tested > 0 {
        context.channel.send(evaluated(validation.step, length, EvaluatedSplit::Test, &test, true));
    }
    if tested > 0 && !test.figures.is_empty() {
        let figures: Vec<String> = test.figures.lines().iter().map(|(name, value)| format!("{name} {value}")).collect();
        context.note(format!("on the test split: {}", figures.join(", ")));
    }
    let (network, parameters) = (&trainer.network, trainer.network.weights().count());
    let format = context.config.format;
    let scores = FinalScores { network, validation, test, parameters, format, rank_memory, processor_us };
    let exported = export(context.spec, evaluator.data, (step, &entry), &trainer.progress, &scores)?;
    context.channel.send(Report::Exported(exported));
    Ok(Ending::Trained)
}

/// Exports the best and the last model of a run that was stopped by order, deadline or budget. Errors do not prevent
/// the stop: the state is in a checkpoint.
pub(super) fn leave_models(training: &Training) -> Result<(), Error> {
    let Training { evaluator, trainer, .. } = training;
    let (context, ranks) = (evaluator.context, evaluator.ranks);
    let is_finite = trainer.is_finite(ranks)?;
    let [has_best] = ranks.broadcast_flags([trainer.best_step().is_some()])?;
    if trainer.progress.step == 0 {
        return Ok(());
    }
    context.pauses(Pause::Export, ranks);
    // A disk error is reported; the collective operations are the same on all ranks.
    let best = match has_best {
        true => write_model(trainer, context.spec, WhichWeights::Best, ranks),
        false => Ok(None),
    };
    let last = match is_finite {
        true => write_last(trainer, context.spec, ranks),
        false => Ok(None),
    };
    if !ranks.is_first() {
        return Ok(());
    }
    let exported = last.and(best).and_then(|entry| {
        let format = context.config.format;
        export_stopped(context.spec, evaluator.data, trainer, format, entry.as_ref())
    });
    match exported {
        Ok(()) => context.note(format!("the best and the last weights so far are in `{}`", context.spec.export)),
        Err(error) => context.note(format!("the models of the stopped run are not exported: {error}")),
    }
    Ok(())
}

/// Writes every rank's trace, and reports the time of each phase.
fn report_times(context: &Context, timeline: &Timeline, ranks: &Ranks) -> Result<(), Error> {
    let spec = context.spec;
    let trace = Path::new(&spec.export).with_file_name("profile").join(format!("rank-{}.json", spec.rank));
    let Some(own) = timeline.finish(&trace, spec.rank)? else { return Ok(()) };
    for rank in 0..ranks.size() {
        context.note(ranks.broadcast_text(rank, &own)?);
    }
    Ok(())
}

/// Reports the peak memory of each rank, in bytes, and returns it.
fn report_memory(context: &Context, ranks: &Ranks) -> Result<Vec<u64>, Error> {
    if ranks.size() == 1 {
        return Ok(Vec::new());
    }
    let peaks = ranks.gather(torch::peak_memory()?.largest() as f64)?;
    let words: Vec<String> = peaks.iter().map(|bytes| format!("{:.0} MB", bytes / 1e6)).collect();
    context.note(format!("peak memory of the ranks, from rank 0 on: {}", words.join(", ")));
    Ok(peaks.into_iter().map(|bytes| bytes as u64).collect())
}
