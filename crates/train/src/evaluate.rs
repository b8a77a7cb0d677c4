//! How good a network is on samples it was not trained on.

use tch::{Kind, Tensor};

use crate::error::Error;
use crate::material::Feed;
use crate::model::Network;
use crate::ranks::Ranks;
use crate::step::{Recipe, Samples, cross_entropy};
use crate::torch::Result;

/// Figures over a whole split.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// Mean cross-entropy, without smoothing, so that runs can be compared.
    pub loss: f64,
    /// Share of samples, or of guessed words, whose highest score is the true one; of equal scores the first counts.
    pub accuracy: f64,
}

/// Sums over the batches seen so far. They stay on the device until the end.
#[derive(Default)]
struct Sums {
    loss: Option<Tensor>,
    correct: Option<Tensor>,
    count: Option<Tensor>,
}

/// Scores every batch of `feed`, of which each rank has its share; `None` if `go_on` said no on any before the end.
pub fn evaluate(
    network: &Network,
    recipe: &Recipe,
    feed: &mut Feed,
    ranks: &Ranks,
    mut go_on: impl FnMut() -> bool,
) -> std::result::Result<Option<Score>, Error> {
    let mut sums = Sums::default();
    while let Some(batch) = feed.next(recipe.device) {
        let batch = batch?.samples;
        tch::no_grad(|| sums.add(network, recipe, &batch))?;
        if ranks.any(!go_on())? {
            return Ok(None);
        }
    }
    Ok(Some(sums.score(ranks)?))
}

impl Sums {
    fn add(&mut self, network: &Network, recipe: &Recipe, batch: &Samples) -> Result<()> {
        if batch.of.counted == 0 {
            return Ok(());
        }
        let count = batch.labels.f_ge(0)?.f_sum(Kind::Int64)?;
        let pass = batch.pass(false);
        let scores = recipe.format.forward(recipe.device, || network.forward(&batch.values, &pass))?;
        let loss = cross_entropy(&scores, &batch.labels, 0.0)?.f_to_kind(Kind::Double)?.f_mul(&count)?;
        // A batch without a word to guess has no mean.
        let loss = if batch.labels.dim() > 1 {
            loss.f_where_self(&count.f_gt(0)?, &count.f_to_kind(Kind::Double)?)?
        } else {
            loss
        };
        let correct = scores.f_argmax(-1, false)?.f_eq_tensor(&batch.labels)?.f_sum(Kind::Int64)?;
        self.loss = Some(add(self.loss.take(), loss)?);
        self.correct = Some(add(self.correct.take(), correct)?);
        self.count = Some(add(self.count.take(), count)?);
        Ok(())
    }

    fn score(self, ranks: &Ranks) -> Result<Score> {
        let value = |sum: Option<Tensor>| sum.map_or(Ok(0.0), |sum| sum.f_double_value(&[]));
        let mut sums = [value(self.loss)?, value(self.correct)?, value(self.count)?];
        ranks.sum(&mut sums)?;
        let [loss, correct, count] = sums;
        Ok(Score { loss: loss / count.max(1.0), accuracy: correct / count.max(1.0) })
    }
}

fn add(sum: Option<Tensor>, value: Tensor) -> Result<Tensor> {
    match sum {
        None => Ok(value),
        Some(sum) => Ok(sum.f_add(&value)?),
    }
}
