//! Scoring the validation and test splits, and judging which weights are the best.

use data::{Cursor, Part};
use domain::rank::{Evaluated, EvaluatedSplit, Pause, Report};
use domain::train::{Labels, Task};

use super::Context;
use super::commands::Commands;
use super::evaluate::{EvaluationScore, evaluate};
use crate::error::{Error, not_finite};
use crate::input::TrainingData;
use crate::optim::schedule::Length;
use crate::ranks::Ranks;
use crate::state::average::measure_statistics;
use crate::state::{BestScore, Trainer};

/// Everything needed to evaluate a split.
#[derive(Clone, Copy)]
pub(super) struct Evaluator<'a> {
    pub context: &'a Context<'a>,
    pub data: &'a TrainingData,
    pub ranks: &'a Ranks,
}

impl Evaluator<'_> {
    /// Scores the validation split, keeps the weights if they are the best, and reports; unless an order to stop comes.
    pub fn validate(&self, trainer: &mut Trainer, length: Length, commands: &mut Commands) -> Result<(), Error> {
        let Context { spec, config, .. } = self.context;
        self.context.pauses(Pause::Evaluation, self.ranks);
        let swapped = trainer.swap_in_average(length, self.ranks)?;
        if let Some(batches) = swapped.as_ref().map(|swapped| swapped.batches).filter(|batches| *batches > 0) {
            let mut loader = self.data.train(&spec.train, Cursor { epoch: 0, pos: 0 }, self.ranks.share());
            let counted = measure_statistics(&trainer.network, config, &mut loader, batches, self.ranks)?;
            self.ranks.sync_buffers(&trainer.network, counted)?;
        }
        if let Some(score) = self.score(trainer, Part::Validation, commands)? {
            self.judge(trainer, length, score)?;
        }
        swapped.map_or(Ok(()), |swapped| trainer.swap_back(swapped, self.ranks))
    }

    /// Keeps the weights if they are the best, and reports.
    fn judge(&self, trainer: &mut Trainer, length: Length, score: EvaluationScore) -> Result<(), Error> {
        let at = trainer.progress.step;
        let train = &self.context.spec.train;
        let better = |best: BestScore| match train.task() {
            Task::ImageClassification | Task::TextClassification if train.data.labels == Labels::Number => {
                score.loss < best.loss
            }
            Task::ImageClassification | Task::TextClassification | Task::ObjectDetection => {
                score.accuracy > best.accuracy
            }
            // Only a part of the tokens can be predicted at all; the loss also counts the others.
            Task::MaskedLanguageModel | Task::LanguageModel => score.loss < best.loss,
        };
        let [_, validation, _] = self.data.counts();
        if !score.loss.is_finite() {
            let loss = score.loss;
            self.context
                .note(format!("the validation loss after step {at} is `{loss}`: these weights are not the best"));
            trainer.progress.evaluated = true;
            return Ok(());
        }
        // Without validation samples, the last weights are the best that can be named.
        let best = trainer.progress.best.is_none_or(better) || validation == 0;
        if best {
            let score = BestScore { step: at, loss: score.loss, accuracy: score.accuracy, figures: score.figures };
            trainer.keep_best(score, self.ranks)?;
        }
        trainer.progress.evaluated = true;
        // Nothing was evaluated, so there is no metric to report.
        if validation == 0 {
            return Ok(());
        }
        self.context.channel.send(evaluated(at, length, EvaluatedSplit::Validation, &score, best));
        Ok(())
    }

    /// Scores one split; `None` if an order to stop came first.
    pub fn score(
        &self,
        trainer: &Trainer,
        part: Part,
        commands: &mut Commands,
    ) -> Result<Option<EvaluationScore>, Error> {
        let Context { spec, config, .. } = self.context;
        let mut loader = self.data.evaluate(&spec.train, part, self.ranks.share());
        let score = evaluate(&trainer.network, config, &mut loader, self.ranks, || {
            commands.poll();
            !commands.stop
        })?;
        match score {
            // Later weights may be better than those of a validation; the test is of the best ones.
            Some(score) if part == Part::Test && !score.loss.is_finite() => {
                Err(not_finite(trainer.progress.step, score.loss))
            }
            Some(_) | None => Ok(score),
        }
    }
}

/// The report of a split's score after `step`.
pub(super) fn evaluated(
    step: u64,
    length: Length,
    split: EvaluatedSplit,
    score: &EvaluationScore,
    best: bool,
) -> Report {
    let EvaluationScore { loss, accuracy, figures, .. } = *score;
    Report::Evaluated(Evaluated { step, epoch: length.epoch_ended_by(step), split, loss, accuracy, best, figures })
}
