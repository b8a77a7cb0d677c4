//! Copies of the state, to be saved: all of it on the first rank, or each rank's part.

use std::sync::Arc;
use std::time::Instant;

use checkpoint::{PartFolders, Snapshot, SnapshotPart};

use super::tensors::{HostCopies, state_mismatch};
use super::{AVERAGE, Trainer, generators_name};
use crate::error::Error;
use crate::model::Named;
use crate::ranks::shards;
use crate::ranks::{ParamSet, Ranks};
use crate::torch;

impl Trainer {
    /// Copies the state of all ranks, into the memory of an earlier snapshot if there is one; `None` on a rank that is
    /// not the first.
    pub fn snapshot(&self, spare: Option<Snapshot>, ranks: &Ranks) -> Result<Option<Snapshot>, Error> {
        let began = Instant::now();
        ranks.check_replicas(&self.network, self.progress.step)?;
        let (old_model, old_training) = spare.map_or_else(Default::default, |old| (old.model, old.training));
        let mut training = HostCopies::over(old_training);
        shards::gather(&self.optimizer.state(), self.kept(), ranks, &mut |named| training.add(named))?;
        if let Some(average) = &self.average {
            shards::gather(average.state(), AVERAGE, ranks, &mut |named| training.add(named))?;
        }
        let of_ranks = self.generators().into_iter().map(|(device, _)| Ok((device, ranks.generators(device)?)));
        let of_ranks = of_ranks.collect::<torch::Result<Vec<_>>>()?;
        let model = self.whole_weights(old_model, ranks)?;
        if !ranks.is_first() {
            return Ok(None);
        }
        for (device, name) in self.generators() {
            training.add(&Named { name: name.into(), tensor: torch::random_state(device)? })?;
        }
        for (device, tensor) in of_ranks.into_iter().filter_map(|(device, tensor)| Some((device, tensor?))) {
            training.add(&Named { name: generators_name(device).into(), tensor })?;
        }
        let state = serde_json::to_value(&self.progress).map_err(|error| state_mismatch(&error.to_string()))?;
        let (step, training, best) = (self.progress.step, training.made, self.best.clone());
        Ok(Some(Snapshot { step, began, model, training, state, best, part: None }))
    }

    /// Copies of all weights and buffers, sorted by name, on the first rank; empty on the others.
    pub(super) fn whole_weights(
        &self,
        spare: Vec<checkpoint::Tensor>,
        ranks: &Ranks,
    ) -> Result<Vec<checkpoint::Tensor>, Error> {
        let mut copies = HostCopies::over(spare);
        let weights = self.network.weights();
        match ranks.division() {
            Some(division) => {
                let mut failed = None;
                let own = |name: &str| {
                    let found = self.held.parameters().iter().find(|named| named.name == name);
                    found.map(|named| named.tensor.shallow_clone())
                };
                division.each_whole(ParamSet::All, &own, &mut |name, tensor| {
                    if failed.is_none() {
                        failed = copies.add(&Named { name: name.to_owned(), tensor }).err();
                    }
                    Ok(())
                })?;
                failed.map_or(Ok(()), Err)?;
                copies.made.sort_by(|left, right| left.name.cmp(&right.name));
            }
            None if ranks.is_first() => weights.parameters().iter().try_for_each(|named| copies.add(named))?,
            None => {}
        }
        if ranks.is_first() {
            weights.buffers().iter().try_for_each(|named| copies.add(named))?;
        }
        Ok(copies.made)
    }

    /// Copies this rank's part of the state, into the memory of an earlier snapshot if there is one. Undivided state is
    /// copied by the first rank.
    pub fn snapshot_part(
        &self,
        spare: Option<Snapshot>,
        folders: PartFolders,
        ranks: &Ranks,
    ) -> Result<Snapshot, Error> {
        let began = Instant::now();
        ranks.check_replicas(&self.network, self.progress.step)?;
        let (old_model, old_training) = spare.map_or_else(Default::default, |old| (old.model, old.training));
        let model = self.part_of_weights(old_model, ranks)?;
        let mut training = HostCopies::over(old_training);
        let optimizer = self.optimizer.state();
        for named in optimizer.iter().chain(self.average.iter().flat_map(|average| average.state())) {
            if self.places.contains_key(&named.name) {
                training.add_flat(named)?;
            } else if ranks.is_first() {
                training.add(named)?;
            }
        }
        for (device, name) in self.generators() {
            let all = ranks.generators(device)?;
            if ranks.is_first() {
                training.add(&Named { name: name.into(), tensor: torch::random_state(device)? })?;
                if let Some(tensor) = all {
                    training.add(&Named { name: generators_name(device).into(), tensor })?;
                }
            }
        }
        let state = serde_json::to_value(&self.progress).map_err(|error| state_mismatch(&error.to_string()))?;
        let PartFolders { step: folder, best: best_folder } = folders;
        let places = Arc::clone(&self.places);
        let part = SnapshotPart { rank: ranks.rank(), of: ranks.size(), folder, best_folder, places };
        let (step, training, best) = (self.progress.step, training.made, self.best.clone());
        Ok(Snapshot { step, began, model, training, state, best, part: Some(part) })
    }

    /// Copies of this rank's part of the weights, and on the first rank of the buffers.
    pub(super) fn part_of_weights(
        &self,
        spare: Vec<checkpoint::Tensor>,
        ranks: &Ranks,
    ) -> Result<Vec<checkpoint::Tensor>, Error> {
        let mut copies = HostCopies::over(spare);
        self.held.parameters().iter().try_for_each(|named| copies.add_flat(named))?;
        let mut buffers = self.network.weights().buffers().iter().filter(|_| ranks.is_first());
        buffers.try_for_each(|named| copies.add(named))?;
        Ok(copies.made)
    }
}
