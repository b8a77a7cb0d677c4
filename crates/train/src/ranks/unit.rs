//! The unit of gathering: a block, or the parameters outside the blocks, in one contiguous buffer.
//!
//! Its tensors are views of the buffer, which is freed while the unit is not in use. Where products are computed in 16 bits,
//! the buffer has 16 bits too: each rank casts its shard before it is sent, and the layers use what arrives, which is what
//! autocast would have made of 32 bits. Values that are read in 32 bits lie elsewhere ([`super::wide`]). Read next:
//! [`super::flat`], which calls it around each block.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use tch::{Device, Kind, Tensor};

use super::wide::{Placed, Wide, is_narrow};
use crate::model::Named;
use crate::torch::group::{PendingCollective, ProcessGroup};
use crate::torch::{self, Error, Result};

/// Tensors are aligned to this number of values, as if each had its own allocation: 64 bytes.
const ALIGNED: i64 = 16;

/// How units are gathered, and how their gradients are exchanged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UnitFormat {
    /// Whether memory is given back while a unit is not at work.
    pub frees: bool,
    /// Whether gradients are sent in half precision.
    pub bf16: bool,
    /// The 16-bit format of products, in which weights are gathered if they are freed; `None` for 32 bits.
    pub half: Option<Kind>,
}

/// The unit of gathering.
pub(super) struct Unit {
    pub(super) group: Rc<ProcessGroup>,
    pub(super) format: UnitFormat,
    pub(super) tensors: Vec<Flat>,
    /// All values, in 32 bits or in 16.
    pub(super) flat: Tensor,
    /// This rank's shard, in 32 bits: a view of `flat`, or separate memory if that is freed.
    pub(super) part: Tensor,
    /// What stays in 32 bits if `flat` has 16, where these values have no meaning; `None` too if nothing does.
    pub(super) wide: Option<Wide>,
    pub(super) pieces: Vec<Piece>,
    pub(super) gradient: RefCell<Option<Tensor>>,
    is_gathered: Cell<bool>,
    gathering: RefCell<Option<PendingCollective>>,
    reducing: RefCell<Option<Reducing>>,
}

/// Gradients that are being summed over the ranks.
struct Reducing {
    /// This rank's part of the sum, once it is there.
    own: Tensor,
    pending: PendingCollective,
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
    /// Moves parameters, sorted by name, into a flat buffer; autocast casts those in `cast` at every use.
    pub(super) fn of(
        parameters: &[&Named],
        cast: &BTreeSet<String>,
        group: &Rc<ProcessGroup>,
        format: UnitFormat,
    ) -> Result<Unit> {
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
        let [ranks, rank] = [group.size(), group.rank()].map(i64::from);
        let length = part_of(end, ranks);
        let flat = Tensor::f_zeros([length * ranks], (Kind::Float, device))?;
        for Flat { tensor, size, strides, start, .. } in &tensors {
            flat.f_as_strided(size, strides, *start)?.f_copy_(&tensor.f_detach()?)?;
        }
        let first = length * rank;
        let part = flat.f_narrow(0, first, length)?;
        let part = if format.frees { torch::copied(&part)? } else { part };
        let (flat, wide) = narrowed(&tensors, cast, flat, format, [ranks, rank])?;
        for (place, Flat { tensor, size, strides, start, .. }) in tensors.iter().enumerate() {
            let view = match wide.as_ref().map(|wide| wide.view(place, size, strides)).transpose()?.flatten() {
                Some(view) => view,
                None => flat.f_as_strided(size, strides, *start)?,
            };
            tensor.shallow_clone().f_set_data(&view)?;
        }
        let pieces = pieces(&tensors, &part, [first, length])?;
        let (gradient, is_gathered) = (RefCell::new(None), Cell::new(true));
        let (gathering, reducing) = (RefCell::new(None), RefCell::new(None));
        let group = Rc::clone(group);
        let unit =
            Unit { group, format, tensors, flat, part, wide, pieces, gradient, is_gathered, gathering, reducing };
        unit.release()?;
        Ok(unit)
    }

    /// Makes all of it be there.
    pub(super) fn gather(&self) -> Result<()> {
        self.begin_gather()?;
        if let Some(gathering) = self.gathering.take() {
            gathering.wait()?;
            self.is_gathered.set(true);
        }
        Ok(())
    }

    /// Begins to gather it before it is needed, if products are in 16 bits: two units take then what one takes in 32.
    pub(super) fn gather_ahead(&self) -> Result<()> {
        match self.format.half {
            Some(_) => self.begin_gather(),
            None => Ok(()),
        }
    }

    /// Begins to gather it, unless it is there or under way. The shard is cast before it is sent.
    fn begin_gather(&self) -> Result<()> {
        if self.is_gathered.get() || self.gathering.borrow().is_some() {
            return Ok(());
        }
        torch::allocate_memory(&self.flat)?;
        let sent = self.part.f_to_kind(self.flat.kind())?;
        *self.gathering.borrow_mut() = Some(self.group.begin_all_gather(&self.flat, &sent)?);
        Ok(())
    }

    /// Frees the other ranks' shards.
    pub(super) fn release(&self) -> Result<()> {
        if self.format.frees && self.is_gathered.replace(false) {
            torch::release_memory(&self.flat)?;
        }
        Ok(())
    }

    /// After its backward pass: begins to take the mean of all ranks' gradients, of which this rank gets its part. What
    /// was begun before is finished first, so that one sum is under way at a time.
    pub(super) fn begin_reduce(&self) -> Result<()> {
        self.finish_reduce()?;
        self.release()?;
        if !self.tensors.iter().any(|flat| flat.is_trained) {
            return Ok(());
        }
        let flat = self.flat_gradients()?;
        let _ = flat.shallow_clone().f_div_scalar_(i64::from(self.group.size()))?;
        let kind = if self.format.bf16 { Kind::BFloat16 } else { Kind::Float };
        let own = Tensor::f_empty([self.part.numel() as i64], (kind, flat.device()))?;
        let pending = self.group.begin_reduce_scatter(&own, &flat.f_to_kind(kind)?)?;
        *self.reducing.borrow_mut() = Some(Reducing { own, pending });
        Ok(())
    }

    /// Adds this rank's part of what was begun to its gradients; nothing where nothing was. Over Gloo the host waits for it,
    /// over NCCL what the device computes from now on.
    pub(super) fn finish_reduce(&self) -> Result<()> {
        let Some(Reducing { own, pending: summed }) = self.reducing.take() else { return Ok(()) };
        summed.wait()?;
        let own = own.f_to_kind(Kind::Float)?;
        let mut gradient = self.gradient.borrow_mut();
        *gradient = Some(match gradient.take() {
            None => own,
            Some(sum) => sum.f_add(&own)?,
        });
        Ok(())
    }

    /// Whether its gradients are being summed.
    #[cfg(test)]
    pub(super) fn is_reducing(&self) -> bool {
        self.reducing.borrow().is_some()
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

/// The buffer in the format in which it is gathered, and what of it stays in 32 bits if that is 16.
fn narrowed(
    tensors: &[Flat],
    cast: &BTreeSet<String>,
    flat: Tensor,
    format: UnitFormat,
    ranks: [i64; 2],
) -> Result<(Tensor, Option<Wide>)> {
    let place = |flat: &Flat| Placed {
        start: flat.start,
        length: flat.tensor.numel() as i64,
        is_cast: cast.contains(&flat.name),
    };
    let placed: Vec<Placed> = tensors.iter().map(place).collect();
    match format.half.filter(|_| format.frees && is_narrow(&placed)) {
        Some(half) => {
            let has_wide = placed.iter().any(|tensor| !tensor.is_cast && tensor.length > 0);
            let wide = has_wide.then(|| Wide::of(tensors, &placed, &flat, ranks)).transpose()?;
            Ok((flat.f_to_kind(half)?, wide))
        }
        None => Ok((flat, None)),
    }
}

/// The parts of tensors in the shard `part`, which is the range `[first, length]` of the buffer.
fn pieces(tensors: &[Flat], part: &Tensor, [first, length]: [i64; 2]) -> Result<Vec<Piece>> {
    let mut pieces = Vec::new();
    for (of, Flat { tensor, size, start, .. }) in tensors.iter().enumerate() {
        let Some([from, at, length]) = common([*start, tensor.numel() as i64], [first, length]) else { continue };
        let mut form = vec![1; size.len().max(1)];
        form[size.len().max(1) - 1] = length;
        let values = part.f_narrow(0, at, length)?.f_view(form.as_slice())?.f_detach()?;
        let values = values.f_set_requires_grad(tensor.requires_grad())?;
        pieces.push(Piece { of, from, at, length, values });
    }
    Ok(pieces)
}

/// The length that a tensor of so many values takes.
pub(super) fn aligned(length: i64) -> i64 {
    (length + ALIGNED - 1) / ALIGNED * ALIGNED
}

/// The length of each rank's part of so many values.
fn part_of(length: i64, ranks: i64) -> i64 {
    aligned((length + ranks - 1) / ranks).max(ALIGNED)
}

/// The intersection of two ranges `[start, length]`: its start in the first, its start in the second, and its length;
/// `None` if it is empty.
pub(super) fn common([first, long]: [i64; 2], [second, wide]: [i64; 2]) -> Option<[i64; 3]> {
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
