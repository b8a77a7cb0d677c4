//! Flat parameters: parameters in one contiguous buffer, of which each rank stores an equal shard.
//!
//! The idea of fully sharded data parallelism (Rajbhandari et al. 2020, ZeRO; Zhao et al. 2023, "PyTorch FSDP"): a
//! [`Unit`] is gathered at a time, a block or the parameters outside the blocks. Its tensors are views of its flat
//! buffer, which is freed while the unit is not in use. Blocks are unaware of it.
//!
//! `gradients`: each rank has all parameters, and after a unit's backward pass only its shard of the summed gradients.
//! `parameters`: it also has all parameters of the units in use only.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use checkpoint::Placement;
use tch::{Device, Kind, Tensor};

use crate::model::{Named, Weights};
use crate::torch::group::ProcessGroup;
use crate::torch::{self, Error, Result};

/// Tensors are aligned to this number of values, as if each had its own allocation: 64 bytes.
const ALIGNED: i64 = 16;

/// All units of a network: first the parameters outside the blocks, then each block.
pub struct FlatShards {
    units: Vec<Rc<Unit>>,
}

/// The unit of gathering.
struct Unit {
    group: Rc<ProcessGroup>,
    /// Whether memory is given back while the unit is not at work.
    frees: bool,
    /// Whether gradients are sent in half precision.
    bf16: bool,
    tensors: Vec<Flat>,
    flat: Tensor,
    /// This rank's shard: a view of `flat`, or separate memory if that is freed.
    part: Tensor,
    pieces: Vec<Piece>,
    gradient: RefCell<Option<Tensor>>,
    is_gathered: Cell<bool>,
}

/// A tensor of a unit.
struct Flat {
    name: String,
    tensor: Tensor,
    size: Vec<i64>,
    strides: Vec<i64>,
    /// Where it begins in the flat memory.
    start: i64,
    is_trained: bool,
}

/// The part of a tensor in this rank's shard.
struct Piece {
    /// Which tensor of the unit.
    of: usize,
    /// Values of the tensor before these, in the order of memory.
    from: i64,
    /// Values of the part before these.
    at: i64,
    length: i64,
    /// The values, with as many dimensions as the tensor, all but the last of length 1, so that code that treats
    /// matrices differently from vectors also does so for their parts.
    values: Tensor,
}

impl FlatShards {
    /// The units of an undivided network.
    pub fn of(weights: &Weights, group: &Rc<ProcessGroup>, frees: bool, bf16: bool) -> Result<FlatShards> {
        let by_block: Vec<&[String]> = weights.by_block().collect();
        let around = weights.in_order().iter().filter(|name| !by_block.iter().any(|block| block.contains(name)));
        let around: Vec<String> = around.cloned().collect();
        let mut shards = FlatShards::none();
        for names in by_block.into_iter().chain([around.as_slice()]) {
            let parameters = weights.parameters().iter().filter(|named| names.contains(&named.name));
            shards.add(&parameters.collect::<Vec<_>>(), group, frees, bf16)?;
        }
        shards.finish();
        Ok(shards)
    }

    /// An empty list of shards.
    pub fn none() -> FlatShards {
        FlatShards { units: Vec::new() }
    }

    /// Moves the parameters of a unit, sorted by name, into a flat buffer, and keeps a shard of it, or all of it unless
    /// `frees`. First each block, and last the parameters outside them.
    pub fn add(&mut self, parameters: &[&Named], group: &Rc<ProcessGroup>, frees: bool, bf16: bool) -> Result<()> {
        self.units.push(Rc::new(Unit::of(parameters, group, frees, bf16)?));
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
        self.units.iter().any(|unit| unit.frees)
    }

    /// Before a forward pass.
    pub fn begin(&self) -> Result<()> {
        self.units[0].gather()
    }

    /// After a forward pass without a backward pass.
    pub fn forget(&self) -> Result<()> {
        self.units[0].release()
    }

    /// After the last block's backward pass and the stem's.
    pub fn end(&self) -> Result<()> {
        tch::no_grad(|| self.units[0].reduce())
    }

    /// Runs `work`, the forward pass of block number `place`, and installs hooks for its backward pass.
    pub fn around(&self, place: usize, x: &Tensor, work: impl FnOnce(&Tensor) -> Result<Tensor>) -> Result<Tensor> {
        let unit = self.units.get(place + 1).ok_or_else(|| Error::new(format!("there is no block {place}")))?;
        unit.gather()?;
        // Autograd needs an input that requires a gradient, and after a frozen stem the values require none.
        let x = if x.requires_grad() { x.shallow_clone() } else { x.f_detach()?.f_set_requires_grad(true)? };
        let (before, after) = (Rc::clone(unit), Rc::clone(unit));
        let x = torch::backward_hook(&x, move || tch::no_grad(|| after.reduce()))?;
        let out = work(&x)?;
        unit.release()?;
        torch::backward_hook(&out, move || before.gather())
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

    /// After the parts have changed: gathers them on all ranks, if these keep full parameters.
    pub fn refresh(&self) -> Result<()> {
        let mut kept = self.units.iter().filter(|unit| !unit.frees);
        kept.try_for_each(|unit| unit.group.all_gather(&unit.flat, &unit.part))
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

impl Unit {
    fn of(parameters: &[&Named], group: &Rc<ProcessGroup>, frees: bool, bf16: bool) -> Result<Unit> {
        let mut tensors: Vec<Flat> = Vec::new();
        let (mut end, mut device) = (0, Device::Cpu);
        for Named { name, tensor } in parameters {
            device = tensor.device();
            let (size, strides, is_trained) = (tensor.size(), tensor.stride(), tensor.requires_grad());
            tensors.push(Flat {
                name: name.clone(),
                tensor: tensor.shallow_clone(),
                size,
                strides,
                start: end,
                is_trained,
            });
            end += aligned(tensor.numel() as i64);
        }
        let length = part_of(end, i64::from(group.size()));
        let flat = Tensor::f_zeros([length * i64::from(group.size())], (Kind::Float, device))?;
        for Flat { tensor, size, strides, start, .. } in &tensors {
            let mut view = flat.f_as_strided(size, strides, *start)?;
            view.f_copy_(&tensor.f_detach()?)?;
            tensor.shallow_clone().f_set_data(&view)?;
        }
        let first = length * i64::from(group.rank());
        let part = flat.f_narrow(0, first, length)?;
        let part = if frees { torch::copied(&part)? } else { part };
        let mut pieces = Vec::new();
        for (of, Flat { tensor, size, start, .. }) in tensors.iter().enumerate() {
            let Some([from, at, length]) = common([*start, tensor.numel() as i64], [first, length]) else { continue };
            let mut form = vec![1; size.len().max(1)];
            form[size.len().max(1) - 1] = length;
            let values = part.f_narrow(0, at, length)?.f_view(form.as_slice())?.f_detach()?;
            let values = values.f_set_requires_grad(tensor.requires_grad())?;
            pieces.push(Piece { of, from, at, length, values });
        }
        let (gradient, is_gathered) = (RefCell::new(None), Cell::new(true));
        let unit = Unit { group: Rc::clone(group), frees, bf16, tensors, flat, part, pieces, gradient, is_gathered };
        unit.release()?;
        Ok(unit)
    }

    /// Makes all of it be there.
    fn gather(&self) -> Result<()> {
        if !self.is_gathered.get() {
            torch::allocate_memory(&self.flat)?;
            self.group.all_gather(&self.flat, &self.part)?;
            self.is_gathered.set(true);
        }
        Ok(())
    }

    /// Frees the other ranks' shards.
    fn release(&self) -> Result<()> {
        if self.frees && self.is_gathered.replace(false) {
            torch::release_memory(&self.flat)?;
        }
        Ok(())
    }

    /// After its backward pass: adds the mean of all ranks' gradients to this rank's part of them.
    fn reduce(&self) -> Result<()> {
        self.release()?;
        if !self.tensors.iter().any(|flat| flat.is_trained) {
            return Ok(());
        }
        let flat = self.flat_gradients()?;
        let _ = flat.shallow_clone().f_div_scalar_(i64::from(self.group.size()))?;
        let kind = if self.bf16 { Kind::BFloat16 } else { Kind::Float };
        let own = Tensor::f_empty([self.part.numel() as i64], (kind, flat.device()))?;
        self.group.reduce_scatter(&own, &flat.f_to_kind(kind)?)?;
        let own = own.f_to_kind(Kind::Float)?;
        let mut gradient = self.gradient.borrow_mut();
        *gradient = Some(match gradient.take() {
            None => own,
            Some(sum) => sum.f_add(&own)?,
        });
        Ok(())
    }

    /// Takes the gradients that a backward pass has left.
    fn flat_gradients(&self) -> Result<Tensor> {
        let flat = Tensor::f_zeros([self.flat.numel() as i64], (Kind::Float, self.flat.device()))?;
        for Flat { name, tensor, size, strides, start, .. } in self.tensors.iter().filter(|flat| flat.is_trained) {
            let gradient = tensor.f_grad()?;
            if !gradient.defined() {
                return Err(Error::new(format!("`{name}` has no gradient: the loss does not depend on it")));
            }
            flat.f_as_strided(size, strides, *start)?.f_copy_(&gradient)?;
            torch::drop_gradients(std::slice::from_ref(tensor))?;
        }
        Ok(flat)
    }
}

/// The length that a tensor of so many values takes.
fn aligned(length: i64) -> i64 {
    (length + ALIGNED - 1) / ALIGNED * ALIGNED
}

/// The length of each rank's part of so many values.
fn part_of(length: i64, ranks: i64) -> i64 {
    aligned((length + ranks - 1) / ranks).max(ALIGNED)
}

/// The intersection of two ranges `[start, length]`: its start in the first, its start in the second, and its length;
/// `None` if it is empty.
fn common([first, long]: [i64; 2], [second, wide]: [i64; 2]) -> Option<[i64; 3]> {
    let (start, end) = (first.max(second), (first + long).min(second + wide));
    (start < end).then(|| [start - first, start - second, end - start])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_value_lies_in_one_part() {
        let check = |lengths: &[i64], ranks: i64| {
            let mut starts = Vec::new();
            let mut end = 0;
            for length in lengths {
                starts.push(end);
                end += aligned(*length);
            }
            let part = part_of(end, ranks);
            for (start, length) in starts.iter().zip(lengths) {
                let mut next = 0;
                for rank in 0..ranks {
                    let Some([from, at, some]) = common([*start, *length], [rank * part, part]) else { continue };
                    assert_eq!(from, next, "{lengths:?} {ranks}");
                    assert!(at >= 0 && at + some <= part, "{lengths:?} {ranks}");
                    next += some;
                }
                assert_eq!(next, *length, "{lengths:?} {ranks}");
            }
        };
        check(&[1], 4);
        check(&[16, 16], 2);
        check(&[100, 3, 50], 2);
        check(&[100, 3, 50], 3);
        check(&[1000, 1, 17, 64], 8);
    }
}
