//! How a saved state comes back to the ranks: from the first one's memory, or from files of which each reads its part.

use std::collections::BTreeMap;

use checkpoint::Placement;

use super::saved::{CheckpointFiles, WholeWeights, fill_from_files};
use super::tensors::{find, state_mismatch, to_tensor};
use super::{AVERAGE, OmittedState, Trainer, generators_name};
use crate::error::Error;
use crate::model::Weights;
use crate::ranks::Ranks;
use crate::ranks::shards;
use crate::torch;

/// The placement of each of this rank's tensors, by name: of the weights, the optimizer and their average. Empty if the
/// first rank saves all.
pub(super) fn places(ranks: &Ranks, kinds: &[&str]) -> BTreeMap<String, Placement> {
    let shards = ranks.shards().filter(|_| ranks.saves_parts());
    let mut places = BTreeMap::new();
    for (name, place) in shards.map(|shards| shards.places()).unwrap_or_default() {
        for kind in kinds.iter().chain(AVERAGE.names) {
            places.insert(format!("{kind}.{name}"), place.clone());
        }
        places.insert(name, place);
    }
    places
}

/// Gives each rank its part of weights that only the first one has, if it has any.
pub(super) fn scatter_weights(whole: Option<&WholeWeights>, held: &Weights, ranks: &Ranks) -> Result<(), Error> {
    let [is_any] = ranks.broadcast_flags([whole.is_some()])?;
    if !is_any {
        return Ok(());
    }
    let wrong = |error: serde_json::Error| state_mismatch(&error.to_string());
    let names = serde_json::to_string(&whole.and_then(WholeWeights::names)).map_err(wrong)?;
    let names: Option<Vec<String>> = serde_json::from_str(&ranks.broadcast_text(0, &names)?).map_err(wrong)?;
    let own = |name: &str| {
        let found = held.parameters().iter().find(|named| named.name == name);
        found.map(|named| named.tensor.shallow_clone())
    };
    let tensor = |name: &str| match whole {
        Some(whole) => whole.tensor(name),
        None => Err(state_mismatch("only the first rank has whole weights")),
    };
    let is_meant = |name: &str| names.as_ref().is_none_or(|names| names.iter().any(|known| known == name));
    ranks.scatter_whole(is_meant, tensor, own)?;
    Ok(())
}

impl Trainer {
    /// Restores each rank's state from what the first one has `saved`.
    pub(super) fn resume(
        &self,
        is_resumed: bool,
        saved: &[checkpoint::Tensor],
        omitted: OmittedState,
        seed: u64,
        ranks: &Ranks,
    ) -> Result<(), Error> {
        // A run resumed with loss scaling, but started without, starts with the initial scale.
        let find = |name: &str| match find(saved, name) {
            Ok(tensor) => to_tensor(tensor).map(Some),
            Err(_) if !ranks.is_first() || name.starts_with("scaler.") => Ok(None),
            Err(error) => Err(error),
        };
        let [restores_optimizer] = ranks.broadcast_flags([is_resumed && !omitted.optimizer])?;
        if restores_optimizer {
            shards::scatter(&self.optimizer.state(), self.kept(), &find, ranks)?;
        }
        if let (Some(average), true) = (&self.average, is_resumed) {
            shards::scatter(average.state(), AVERAGE, &find, ranks)?;
        }
        if is_resumed && ranks.is_first() && !omitted.random {
            for (device, name) in self.generators() {
                torch::set_random_state(device, &to_tensor(self::find(saved, name)?)?)?;
            }
        }
        ranks.seed_per_share(seed, self.progress.step)?;
        for (device, _) in self.generators() {
            let found = saved.iter().find(|tensor| tensor.name == generators_name(device));
            ranks.set_generators(device, found.map(to_tensor).transpose()?)?;
        }
        Ok(())
    }

    /// Restores this rank's state from files; every rank reads its own part.
    pub(super) fn resume_files(
        &mut self,
        files: &CheckpointFiles,
        omitted: OmittedState,
        seed: u64,
        ranks: &Ranks,
    ) -> Result<(), Error> {
        let place = |name: &str| self.places.get(name).cloned();
        let is_optional = |name: &str| name.starts_with("scaler.");
        fill_from_files(self.held.parameters(), &files.model, place, |_| false)?;
        ranks.refresh()?;
        if !omitted.optimizer {
            fill_from_files(&self.optimizer.state(), &files.training, place, is_optional)?;
        }
        if let Some(average) = &self.average {
            fill_from_files(average.state(), &files.training, place, |_| false)?;
        }
        let pieces = self
            .held
            .parameters()
            .iter()
            .filter_map(|named| Some((named.name.clone(), place(&named.name)?, named.tensor.numel() as u64)));
        let whole = self.network.weights().buffers().iter().filter(|_| ranks.is_first());
        // Those of other data are no longer the best.
        if self.progress.best.is_some() {
            self.best = files.best(pieces, whole.map(|named| named.name.clone()))?;
        }
        let random = |name: &str| -> Result<Option<checkpoint::Tensor>, Error> {
            if ranks.is_first() { Ok(files.training.whole(name)?) } else { Ok(None) }
        };
        if ranks.is_first() && !omitted.random {
            for (device, name) in self.generators() {
                let saved = random(name)?.ok_or_else(|| state_mismatch(&format!("`{name}` is missing")))?;
                torch::set_random_state(device, &to_tensor(&saved)?)?;
            }
        }
        ranks.seed_per_share(seed, self.progress.step)?;
        for (device, _) in self.generators() {
            let saved = random(generators_name(device))?;
            ranks.set_generators(device, saved.as_ref().map(to_tensor).transpose()?)?;
        }
        Ok(())
    }
}
