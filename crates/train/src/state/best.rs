//! The best weights so far: remembered, and put back.

use std::sync::Arc;

use checkpoint::BestWeights;

use super::tensors::{fill, find, state_mismatch, to_tensor};
use super::{BestScore, Trainer};
use crate::error::Error;
use crate::ranks::Ranks;

impl Trainer {
    /// Remembers the present weights as the best ones, on the first rank, for which all gather them.
    pub fn keep_best(&mut self, score: BestScore, ranks: &Ranks) -> Result<(), Error> {
        let model = self.whole_weights(Vec::new(), ranks)?;
        if ranks.is_first() {
            self.best = Some(Arc::new(BestWeights { step: score.step, model }));
        }
        self.progress.best = Some(score);
        Ok(())
    }

    /// The best weights so far, on the first rank.
    pub fn best(&self) -> Option<&BestWeights> {
        self.best.as_deref()
    }

    /// Copies of the present weights and buffers, gathered on the first rank; nothing on the others.
    ///
    /// # Errors
    /// When libtorch, or an exchange between ranks, fails.
    pub fn last_weights(&self, ranks: &Ranks) -> Result<Vec<checkpoint::Tensor>, Error> {
        self.whole_weights(Vec::new(), ranks)
    }

    /// Puts the best weights, which the first rank knows, into the network of every rank; returns them there as they
    /// are saved.
    pub fn load_best(&mut self, ranks: &Ranks) -> Result<Option<Arc<BestWeights>>, Error> {
        if ranks.is_first() && self.best.is_none() {
            return Err(state_mismatch("it holds no best weights"));
        }
        let saved: &[checkpoint::Tensor] = self.best.as_ref().map_or(&[], |best| &best.model);
        let weights = self.network.weights();
        let own = |name: &str| {
            let found = self.held.parameters().iter().find(|named| named.name == name);
            found.map(|named| named.tensor.shallow_clone())
        };
        let is_divided = ranks.scatter_whole(|name| to_tensor(find(saved, name)?), own)?;
        let whole = || weights.all().skip(if is_divided { weights.parameters().len() } else { 0 });
        if ranks.is_first() {
            fill(whole(), saved)?;
        }
        ranks.broadcast(whole())?;
        Ok(self.best.clone())
    }
}
