//! Flat parameters: parameters in one contiguous buffer, of which each rank stores an equal shard.
//!
//! The idea of fully sharded data parallelism (Rajbhandari et al. 2020, ZeRO; Zhao et al. 2023, "PyTorch FSDP"): a
//! [`Unit`] is gathered at a time, a block or the parameters outside the blocks. Its tensors are views of its flat
//! buffer, which is freed while the unit is not in use. Blocks are unaware of it.
//!
//! `gradients`: each rank has all parameters, and after a unit's backward pass only its shard of the summed gradients.
//! `parameters`: it also has all parameters of the units in use only, gathered in the format that they are multiplied in.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use checkpoint::Placement;
use tch::{Device, Kind, Tensor};

use super::unit::{Flat, Piece, Unit, UnitFormat};
use crate::model::{Named, Weights};
use crate::torch::group::ProcessGroup;
use crate::torch::{self, Error, Result};

/// All units of a network: first the parameters outside the blocks, then each block.
pub struct FlatShards {
    units: Vec<Rc<Unit>>,
}

impl FlatShards {
    /// The units of an undivided network.
    pub(super) fn of(weights: &Weights, group: &Rc<ProcessGroup>, format: UnitFormat) -> Result<FlatShards> {
        let by_block: Vec<&[String]> = weights.by_block().collect();
        let around = weights.in_order().iter().filter(|name| !by_block.iter().any(|block| block.contains(name)));
        let around: Vec<String> = around.cloned().collect();
        let mut shards = FlatShards::none();
        for names in by_block.into_iter().chain([around.as_slice()]) {
            let parameters = weights.parameters().iter().filter(|named| names.contains(&named.name));
            shards.add(&parameters.collect::<Vec<_>>(), weights.cast_names(), group, format)?;
        }
        shards.finish();
        Ok(shards)
    }

    /// An empty list of shards.
    pub fn none() -> FlatShards {
        FlatShards { units: Vec::new() }
    }

    /// Moves the parameters of a unit, sorted by name, into a flat buffer, and keeps a shard of it, or all of it unless
    /// it is freed; autocast casts those in `cast` at every use. First each block, and last the parameters outside them.
    pub(super) fn add(
        &mut self,
        parameters: &[&Named],
        cast: &BTreeSet<String>,
        group: &Rc<ProcessGroup>,
        format: UnitFormat,
    ) -> Result<()> {
        self.units.push(Rc::new(Unit::of(parameters, cast, group, format)?));
        Ok(())
    }

    /// After the last unit.
    pub fn finish(&mut self) {
        self.units.rotate_right(1);
    }

    /// The placement of this rank's part of each tensor, by name.
    pub fn places(&self) -> BTreeMap<String, Placement> {
        let place = |unit: &Unit, piece: &Piece| {
            let Flat { name, size, strides, .. } = &unit.tensors[piece.of];
            let unsigned = |numbers: &[i64]| numbers.iter().map(|number| number.unsigned_abs()).collect();
            let place =
                Placement { shape: unsigned(size), strides: unsigned(strides), from: piece.from.unsigned_abs() };
            (name.clone(), place)
        };
        self.units.iter().flat_map(|unit| unit.pieces.iter().map(move |piece| place(unit, piece))).collect()
    }

    /// This rank's parts of the parameters.
    pub fn pieces(&self) -> Vec<Named> {
        let named = |unit: &Rc<Unit>| -> Vec<Named> {
            let name = |piece: &Piece| unit.tensors[piece.of].name.clone();
            unit.pieces.iter().map(|piece| Named { name: name(piece), tensor: piece.values.shallow_clone() }).collect()
        };
        self.units.iter().flat_map(named).collect()
    }

    /// Whether parameters are there only while they are at work.
    pub fn frees(&self) -> bool {
        self.units.iter().any(|unit| unit.format.frees)
    }

    /// Before a forward pass.
    pub fn begin(&self) -> Result<()> {
        self.units[0].gather()?;
        self.gather_ahead(1)
    }

    /// Begins to gather unit number `place` before it is needed, if there is one and it is not kept.
    fn gather_ahead(&self, place: usize) -> Result<()> {
        self.units.get(place).map_or(Ok(()), |unit| unit.gather_ahead())
    }

    /// After a forward pass without a backward pass.
    pub fn forget(&self) -> Result<()> {
        self.units[0].release()
    }

    /// After the backward pass: no gradients are being summed any more.
    pub fn end(&self) -> Result<()> {
        tch::no_grad(|| {
            // Before the gradients of what is around the blocks are laid out, so that they need no memory beside these.
            self.units.iter().try_for_each(|unit| unit.finish_reduce())?;
            self.units[0].begin_reduce()?;
            self.units[0].finish_reduce()
        })
    }

    /// Runs `work`, the forward pass of block number `place`, and installs hooks for its backward pass. The block that is
    /// next in either pass is gathered meanwhile, where products are in 16 bits, and in the backward pass the gradients of the
    /// one before are summed.
    pub fn around(&self, place: usize, x: &Tensor, work: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let unit = self.units.get(place + 1).ok_or_else(|| Error::new(format!("there is no block {place}")))?;
        unit.gather()?;
        self.gather_ahead(place + 2)?;
        // Autograd needs an input that requires a gradient, and after a frozen stem the values require none.
        let x = if x.requires_grad() { x.shallow_clone() } else { x.f_detach()?.f_set_requires_grad(true)? };
        let (before, after) = (Rc::clone(unit), Rc::clone(unit));
        let previous = (place > 0).then(|| Rc::clone(&self.units[place]));
        let following = self.units.get(place + 2).map(Rc::clone);
        let x = torch::backward_hook(&x, move || {
            tch::no_grad(|| {
                // Its memory is given back before this one's gradients are laid out.
                following.as_ref().map_or(Ok(()), |following| following.finish_reduce())?;
                after.begin_reduce()
            })
        })?;
        let out = work(&x)?;
        unit.release()?;
        torch::backward_hook(&out, move || {
            before.gather()?;
            previous.as_ref().map_or(Ok(()), |previous| previous.gather_ahead())
        })
    }

    /// Sets the gradients of this rank's parts, frees the full gradients, and returns the parts with their names.
    pub fn take_sharded_gradients(&self) -> Result<Vec<Named>> {
        let mut all = Vec::new();
        for unit in &self.units {
            let Some(gradient) = unit.gradient.take() else { continue };
            let trained = unit.pieces.iter().filter(|piece| unit.tensors[piece.of].is_trained);
            for Piece { of, at, length, values, .. } in trained {
                let own = gradient.f_narrow(0, *at, *length)?.f_view(values.size().as_slice())?;
                torch::set_gradients(std::slice::from_ref(values), std::slice::from_ref(&own))?;
                all.push(Named { name: unit.tensors[*of].name.clone(), tensor: own });
            }
        }
        Ok(all)
    }

    /// Multiplies this rank's part of the gradients by a scalar.
    pub fn scale_gradients(&self, factor: &Tensor) -> Result<()> {
        let gradients: Vec<Tensor> =
            self.units.iter().filter_map(|unit| unit.gradient.borrow().as_ref().map(Tensor::shallow_clone)).collect();
        torch::scale(&gradients, factor)
    }

    /// After the parts have changed: gathers them on all ranks, if these keep full parameters, or what of them each rank
    /// keeps in 32 bits.
    pub fn refresh(&self) -> Result<()> {
        let mut kept = self.units.iter().filter(|unit| !unit.format.frees);
        kept.try_for_each(|unit| unit.group.all_gather(&unit.flat, &unit.part))?;
        let wide = || self.units.iter().filter_map(|unit| Some((unit, unit.wide.as_ref()?)));
        let Some(group) = wide().next().map(|(unit, _)| &unit.group) else { return Ok(()) };
        let sent = wide().map(|(unit, wide)| wide.sent(&unit.part)).collect::<Result<Vec<Tensor>>>()?;
        let sent = Tensor::f_cat(&sent, 0)?;
        let (ranks, length) = (i64::from(group.size()), sent.numel() as i64);
        // One message for all units.
        let all = Tensor::f_empty([ranks * length], (Kind::Float, sent.device()))?;
        group.all_gather(&all, &sent)?;
        let all = all.f_view([ranks, length])?;
        let mut at = 0;
        for (_, wide) in wide() {
            let some = wide.sent_length();
            wide.renew(&all.f_narrow(1, at, some)?.f_reshape([-1])?)?;
            at += some;
        }
        Ok(())
    }

    /// Gathers full tensors, or their state, by name on every rank: one after another, in an order that is the same on
    /// all. `own` returns the local part; only tensors for which `is_meant` returns true, given name and whether it is
    /// trained.
    pub fn each_whole(
        &self,
        own: &dyn Fn(&str) -> Option<Tensor>,
        is_meant: &dyn Fn(bool) -> bool,
        each: &mut dyn FnMut(&str, Tensor) -> Result<()>,
    ) -> Result<()> {
        for unit in &self.units {
            if !unit.tensors.iter().any(|flat| is_meant(flat.is_trained)) {
                continue;
            }
            let part = unit.part.f_detach()?.f_zeros_like()?;
            for Piece { of, at, length, .. } in &unit.pieces {
                if let Some(values) = own(&unit.tensors[*of].name) {
                    part.f_narrow(0, *at, *length)?.f_copy_(&values.f_detach()?.f_view([-1])?)?;
                }
            }
            let flat = Tensor::f_empty([unit.flat.numel() as i64], (Kind::Float, part.device()))?;
            unit.group.all_gather(&flat, &part)?;
            for Flat { name, size, strides, start, is_trained, .. } in &unit.tensors {
                if is_meant(*is_trained) {
                    each(name, flat.f_as_strided(size, strides, *start)?)?;
                }
            }
        }
        Ok(())
    }

    /// This rank's part of a full tensor, in the part's own shape; `None` if other ranks have all of it.
    pub fn piece(&self, name: &str, whole: &Tensor) -> Result<Option<Tensor>> {
        for unit in &self.units {
            let mut pieces = unit.pieces.iter().filter(|piece| unit.tensors[piece.of].name == name);
            let Some(Piece { of, from, length, values, .. }) = pieces.next() else { continue };
            let Flat { size, strides, .. } = &unit.tensors[*of];
            let mut laid = Tensor::f_empty_strided(size, strides, (whole.kind(), Device::Cpu))?;
            laid.f_copy_(whole)?;
            let in_memory = laid.f_as_strided([laid.numel() as i64], [1], 0)?;
            return Ok(Some(in_memory.f_narrow(0, *from, *length)?.f_view(values.size().as_slice())?));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests;
