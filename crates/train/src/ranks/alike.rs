//! What all ranks hold alike: whether they do, and the states of their generators.

use domain::finding::{Cause, Finding};
use tch::{Device, Kind, Tensor};

use super::{FlatShards, Ranks};
use crate::error::Error;
use crate::model::{Named, Network};
use crate::torch::group::ProcessGroup;
use crate::torch::{self, Result};

impl Ranks {
    /// Makes sure that all ranks that hold the same weights hold them to the last bit.
    pub fn check_replicas(&self, network: &Network, step: u64) -> std::result::Result<(), Error> {
        let Some(group) = &self.group else { return Ok(()) };
        let weights = network.weights();
        let is_split = |named: &&Named| self.division.as_ref().is_some_and(|division| division.is_split(&named.name));
        // Parts that exist on one rank only cannot differ.
        let parameters = if self.shards().is_some_and(FlatShards::frees) { &[] } else { weights.parameters() };
        let common = parameters.iter().filter(|named| !is_split(named)).chain(weights.buffers());
        let mut is_same = same(group, common)?;
        if let (Some(data), Some(_)) = (&self.data, &self.tensor) {
            is_same &= same(data, parameters.iter().filter(is_split))?;
        }
        if !self.any(!is_same)? {
            return Ok(());
        }
        let message = format!("after step {step} the ranks hold different weights");
        Err(Finding::new(Cause::Internal, message).hint("resume the run, and report this with the ranks' logs").into())
    }

    /// The generator states of each rank's `device`, one row per data-parallel share; `None` for a single share, whose
    /// ranks all have the same.
    pub fn generators(&self, device: Device) -> Result<Option<Tensor>> {
        let Some(group) = &self.data else { return Ok(None) };
        let own = torch::random_state(device)?;
        let all = Tensor::f_zeros([i64::from(group.size()), own.numel() as i64], (Kind::Uint8, Device::Cpu))?;
        group.all_gather(&all.f_view([-1])?, &own)?;
        Ok(Some(all))
    }

    /// Seeds the generators of all devices from `seed`, the step and the share; those of a single share are unchanged.
    pub fn seed_per_share(&self, seed: u64, step: u64) -> Result<()> {
        if self.group.is_none() || self.mesh.data() == 1 {
            return Ok(());
        }
        let place = u64::from(self.mesh.data_place());
        torch::seed(seed ^ (step << 16) ^ ((place + 1) << 48))
    }

    /// Restores this rank's row of what [`Ranks::generators`] returned on rank 0; if the number of shares or the kind
    /// of device differs, the generators are unchanged. A single share uses rank 0's.
    pub fn set_generators(&self, device: Device, saved: Option<Tensor>) -> Result<()> {
        let Some(group) = &self.group else { return Ok(()) };
        let mut own = torch::random_state(device)?;
        if self.mesh.data() == 1 {
            group.broadcast(&own, 0)?;
            return torch::set_random_state(device, &own);
        }
        let size = [i64::from(self.mesh.data()), own.numel() as i64];
        let saved = saved.filter(|saved| saved.size() == size);
        let found = Tensor::f_from_slice(&[i64::from(saved.is_some())])?;
        group.broadcast(&found, 0)?;
        if found.f_int64_value(&[0])? == 0 {
            return Ok(());
        }
        let all = saved.map_or_else(|| Tensor::f_zeros(size, (Kind::Uint8, Device::Cpu)), Ok)?;
        group.broadcast(&all, 0)?;
        // The generator reads from the start of the storage, whatever part of it the tensor is.
        own.f_copy_(&all.f_select(0, i64::from(self.mesh.data_place()))?)?;
        torch::set_random_state(device, &own)
    }
}

/// Whether all ranks of a group hold the same values, to the last bit.
fn same<'a>(group: &ProcessGroup, tensors: impl Iterator<Item = &'a Named>) -> Result<bool> {
    let mut sums = Vec::new();
    for named in tensors {
        let bits = match named.tensor.kind() {
            Kind::Float => named.tensor.f_detach()?.f_view_dtype(Kind::Int)?,
            _ => named.tensor.f_detach()?,
        };
        sums.push(bits.f_sum(Kind::Int64)?.f_to_device(Device::Cpu)?);
    }
    if sums.is_empty() {
        return Ok(true);
    }
    let own = Tensor::f_stack(&sums, 0)?;
    // The largest of the numbers and of their negatives: equal but for the sign where all ranks agree.
    let both = Tensor::f_cat(&[own.shallow_clone(), own.f_neg()?], 0)?;
    group.max(&both)?;
    let half = own.numel() as i64;
    Ok(both.f_narrow(0, 0, half)? == both.f_narrow(0, half, half)?.f_neg()?)
}
