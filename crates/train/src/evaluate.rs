//! How good a network is on samples it was not trained on.

use data::{Batch, Loader};
use tch::{Kind, Tensor};

use crate::error::Error;
use crate::model::Network;
use crate::step::{Recipe, Samples, cross_entropy};
use crate::torch::Result;

/// Figures over a whole split.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Score {
    /// Mean cross-entropy, without smoothing, so that runs can be compared.
    pub loss: f64,
    /// Share of samples whose highest score is the true class; of equal scores the first class counts.
    pub accuracy: f64,
}

/// Sums over the batches seen so far. They stay on the device until the end.
#[derive(Default)]
struct Sums {
    loss: Option<Tensor>,
    correct: Option<Tensor>,
    count: u64,
}

/// Scores every batch of `loader`, moved to the device by `prepare`; `None` if `go_on` said no before the end.
pub fn evaluate(
    network: &Network,
    recipe: &Recipe,
    loader: &mut Loader,
    prepare: impl Fn(&Batch) -> Result<Samples>,
    mut go_on: impl FnMut() -> bool,
) -> std::result::Result<Option<Score>, Error> {
    let mut sums = Sums::default();
    while let Some(batch) = loader.next() {
        let batch = prepare(&batch?)?;
        tch::no_grad(|| sums.add(network, recipe, &batch))?;
        if !go_on() {
            return Ok(None);
        }
    }
    Ok(Some(sums.score()?))
}

impl Sums {
    fn add(&mut self, network: &Network, recipe: &Recipe, batch: &Samples) -> Result<()> {
        let count = batch.labels.size1()?;
        let scores = recipe.format.forward(recipe.device, || network.forward(&batch.images, false))?;
        let loss = cross_entropy(&scores, &batch.labels, 0.0)?.f_to_kind(Kind::Double)?.f_mul_scalar(count as f64)?;
        let correct = scores.f_argmax(-1, false)?.f_eq_tensor(&batch.labels)?.f_sum(Kind::Int64)?;
        self.loss = Some(add(self.loss.take(), loss)?);
        self.correct = Some(add(self.correct.take(), correct)?);
        self.count += count as u64;
        Ok(())
    }

    fn score(self) -> Result<Score> {
        let value = |sum: Option<Tensor>| sum.map_or(Ok(0.0), |sum| sum.f_double_value(&[]));
        let count = self.count.max(1) as f64;
        Ok(Score { loss: value(self.loss)? / count, accuracy: value(self.correct)? / count })
    }
}

fn add(sum: Option<Tensor>, value: Tensor) -> Result<Tensor> {
    match sum {
        None => Ok(value),
        Some(sum) => Ok(sum.f_add(&value)?),
    }
}
