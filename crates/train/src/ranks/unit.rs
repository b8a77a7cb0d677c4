//! The unit of gathering: a block, or the parameters outside the blocks, in one contiguous buffer.
//!
//! Its tensors are views of the buffer, which is freed while the unit is not in use. Read next: [`super::flat`], which
//! calls it around each block.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use tch::{Device, Kind, Tensor};

use crate::model::Named;
use crate::torch::group::ProcessGroup;
use crate::torch::{self, Error, Result};

/// Tensors are aligned to this number of values, as if each had its own allocation: 64 bytes.
const ALIGNED: i64 = 16;

/// The unit of gathering.
pub(super) struct Unit {
    pub(super) group: Rc<ProcessGroup>,
    /// Whether memory is given back while the unit is not at work.
    pub(super) frees: bool,
    /// Whether gradients are sent in half precision.
    pub(super) bf16: bool,
    pub(super) tensors: Vec<Flat>,
    pub(super) flat: Tensor,
    /// This rank's shard: a view of `flat`, or separate memory if that is freed.
    pub(super) part: Tensor,
    pub(super) pieces: Vec<Piece>,
    pub(super) gradient: RefCell<Option<Tensor>>,
    pub(super) is_gathered: Cell<bool>,
}

/// A tensor of a unit.
pub(super) struct Flat {
    pub(super) name: String,
    pub(super) tensor: Tensor,
    pub(super) size: Vec<i64>,
    pub(super) strides: Vec<i64>,
    /// Where it begins in the flat memory.
    pub(super) start: i64,
    pub(super) is_trained: bool,
}

/// The part of a tensor in this rank's shard.
pub(super) struct Piece {
    /// Which tensor of the unit.
    pub(super) of: usize,
    /// Values of the tensor before these, in the order of memory.
    pub(super) from: i64,
    /// Values of the part before these.
    pub(super) at: i64,
    pub(super) length: i64,
    /// The values, with as many dimensions as the tensor, all but the last of length 1, so that code that treats
    /// matrices differently from vectors also does so for their parts.
    pub(super) values: Tensor,
}

impl Unit {
    /// Moves parameters, sorted by name, into a flat buffer.
    pub(super) fn of(parameters: &[&Named], group: &Rc<ProcessGroup>, frees: bool, bf16: bool) -> Result<Unit> {
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
    pub(super) fn gather(&self) -> Result<()> {
        if !self.is_gathered.get() {
            torch::allocate_memory(&self.flat)?;
            self.group.all_gather(&self.flat, &self.part)?;
            self.is_gathered.set(true);
        }
        Ok(())
    }

    /// Frees the other ranks' shards.
    pub(super) fn release(&self) -> Result<()> {
        if self.frees && self.is_gathered.replace(false) {
            torch::release_memory(&self.flat)?;
        }
        Ok(())
    }

    /// After its backward pass: adds the mean of all ranks' gradients to this rank's part of them.
    pub(super) fn reduce(&self) -> Result<()> {
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
