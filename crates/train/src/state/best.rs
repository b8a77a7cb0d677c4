//! The best weights: stored, restored, and written as a model.

use std::path::Path;
use std::sync::Arc;

use checkpoint::{BestWeights, Dtype, FileEntry, TensorFileWriter};
use tch::Tensor;

use super::tensors::{HostCopies, copy, copy_values, fill, find, state_mismatch, to_tensor};
use super::{BestScore, Trainer};
use crate::error::Error;
use crate::model::Named;
use crate::ranks::{ParamSet, Ranks};

/// Weights of a run that can be written as a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WhichWeights {
    /// Those that the network has now.
    Present,
    /// The best weights.
    Best,
}

impl Trainer {
    /// Stores the current weights as the best ones: on the first rank, for which all gather them, or on each rank that
    /// saves its own part.
    pub fn keep_best(&mut self, score: BestScore, ranks: &Ranks) -> Result<(), Error> {
        let model = match ranks.saves_parts() {
            true => self.part_of_weights(Vec::new(), ranks)?,
            false => self.whole_weights(Vec::new(), ranks)?,
        };
        if ranks.is_first() || ranks.saves_parts() {
            self.best = Some(Arc::new(BestWeights { step: score.step, model }));
        }
        self.progress.best = Some(score);
        Ok(())
    }

    /// The step of the best weights, if they or a part of them are here.
    pub fn best_step(&self) -> Option<u64> {
        self.best.as_ref().map(|best| best.step)
    }

    /// Loads the best weights, of which the first rank has all or each rank a part, into the network of every rank;
    /// returns their step on the first one.
    pub fn load_best(&mut self, ranks: &Ranks) -> Result<Option<u64>, Error> {
        if ranks.is_first() && self.best.is_none() {
            return Err(state_mismatch("it holds no best weights"));
        }
        let saved: &[checkpoint::Tensor] = self.best.as_ref().map_or(&[], |best| &best.model);
        let weights = self.network.weights();
        let is_divided = if ranks.saves_parts() {
            self.held.parameters().iter().try_for_each(|named| copy_values(named, find(saved, &named.name)?))?;
            ranks.refresh()?;
            true
        } else {
            ranks.scatter_whole(|_| true, |name| to_tensor(find(saved, name)?), |name| self.held_tensor(name))?
        };
        let whole = || weights.all().skip(if is_divided { weights.parameters().len() } else { 0 });
        if ranks.is_first() {
            fill(whole(), saved)?;
        }
        ranks.broadcast(whole())?;
        Ok(self.best_step().filter(|_| ranks.is_first()))
    }

    /// Writes weights as a model file atomically; returns the file entry on the first rank, which writes. Collective:
    /// called by all ranks, and none has to hold all of the weights: if they are divided, one unit at a time is
    /// gathered. The bytes depend on the weights alone.
    ///
    /// # Errors
    /// If the file cannot be written, there are no such weights, or a collective operation fails.
    pub fn write_weights(&self, which: WhichWeights, path: &Path, ranks: &Ranks) -> Result<Option<FileEntry>, Error> {
        let best = self.best.as_ref().map(|best| best.model.as_slice());
        let format = [("format", "pt")];
        match which {
            WhichWeights::Best if !ranks.saves_parts() => {
                let Some(best) = best.filter(|_| ranks.is_first()) else { return Ok(None) };
                Ok(Some(checkpoint::write_tensors(path, best, &format)?))
            }
            WhichWeights::Best => {
                let best = best.ok_or_else(|| state_mismatch("it holds no best weights"))?;
                let own = |name: &str| {
                    let held = self.held_tensor(name)?;
                    to_tensor(find(best, name).ok()?).ok()?.f_view(held.size().as_slice()).ok()
                };
                let names: Vec<&str> =
                    self.network.weights().buffers().iter().map(|named| named.name.as_str()).collect();
                let buffers = best.iter().filter(|tensor| names.contains(&tensor.name.as_str())).cloned().collect();
                self.write_gathered(path, &own, buffers, ranks)
            }
            WhichWeights::Present => {
                let buffers = copy(self.network.weights().buffers())?;
                self.write_gathered(path, &|name| self.held_tensor(name), buffers, ranks)
            }
        }
    }

    /// Writes parameters of which `own` finds this rank's part, and these buffers.
    fn write_gathered(
        &self,
        path: &Path,
        own: &dyn Fn(&str) -> Option<Tensor>,
        buffers: Vec<checkpoint::Tensor>,
        ranks: &Ranks,
    ) -> Result<Option<FileEntry>, Error> {
        let Some(division) = ranks.division() else {
            if !ranks.is_first() {
                return Ok(None);
            }
            let mut all = copy(self.network.weights().parameters())?;
            all.extend(buffers);
            return Ok(Some(checkpoint::write_tensors(path, &all, &[("format", "pt")])?));
        };
        let unsigned = |shape: &[i64]| shape.iter().map(|length| length.unsigned_abs()).collect();
        let mut heads: Vec<_> =
            division.shapes().map(|(name, shape)| (name.to_owned(), Dtype::F32, unsigned(shape))).collect();
        heads.extend(buffers.iter().map(|tensor| (tensor.name.clone(), tensor.dtype, tensor.shape.clone())));
        // A write error on the first rank must not prevent it from the collective operations.
        let mut writer: Result<Option<TensorFileWriter>, Error> = match ranks.is_first() {
            true => TensorFileWriter::create(path, heads, &[("format", "pt")]).map(Some).map_err(Error::from),
            false => Ok(None),
        };
        division.each_whole(ParamSet::All, own, &mut |name, tensor| {
            let Ok(Some(file)) = &mut writer else { return Ok(()) };
            let put = || -> Result<(), Error> {
                let mut copies = HostCopies::over(Vec::new());
                copies.add(&Named { name: name.to_owned(), tensor })?;
                Ok(copies.made.iter().try_for_each(|tensor| file.put(tensor))?)
            };
            let put = put();
            if let Err(error) = put {
                writer = Err(error);
            }
            Ok(())
        })?;
        let Some(mut writer) = writer? else { return Ok(None) };
        buffers.iter().try_for_each(|tensor| writer.put(tensor))?;
        Ok(Some(writer.finish()?))
    }

    /// The local part of a parameter.
    fn held_tensor(&self, name: &str) -> Option<Tensor> {
        let found = self.held.parameters().iter().find(|named| named.name == name);
        found.map(|named| named.tensor.shallow_clone())
    }
}
