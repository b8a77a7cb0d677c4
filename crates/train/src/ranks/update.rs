//! What ranks do with gradients: exchange them, and update the parameters by them, each its part.

use std::collections::{BTreeMap, BTreeSet};

use domain::train::{Exchange as ExchangeDtype, Parallel, Shard};
use tch::{Device, Kind, Tensor};

use super::division::ParamLayout;
use super::{FlatShards, Ranks};
use crate::model::{Named, Network, Weights};
use crate::optim::{GlobalGradients, ModelOptimizer, UpdateFlag};
use crate::torch::group::{ProcessGroup, Reducer};
use crate::torch::{self, Result};

impl Ranks {
    /// Installs hooks that exchange the gradients of this network during the backward pass.
    pub fn hook(&mut self, network: &Network, parallel: Parallel) -> Result<()> {
        let Some(group) = self.data.as_ref().filter(|_| self.shards().is_none()) else { return Ok(()) };
        let parameters = in_order(network.weights());
        self.exchange = Some(Reducer::new(group, &parameters, parallel.exchange == ExchangeDtype::Bf16)?);
        Ok(())
    }

    /// The local parameters whose optimizer state is local: all, unless the job shards it.
    pub fn kept(&mut self, held: &Weights, parallel: Parallel) -> Weights {
        match parallel.shard {
            Shard::None | Shard::Gradients | Shard::Parameters => held.only(|_| true),
            Shard::Optimizer => {
                let owners = owners(held, self.size);
                let trained = held.parameters().iter().filter(|named| named.tensor.requires_grad());
                let mine = trained.zip(&owners).filter(|(_, owner)| **owner == self.rank);
                let mine: BTreeSet<&str> = mine.map(|(named, _)| named.name.as_str()).collect();
                let kept = held.only(|named| mine.contains(named.name.as_str()));
                self.owners = Some(owners);
                kept
            }
        }
    }

    /// Makes gradients wait until the end of the backward pass, to measure the benefit of overlapping.
    pub fn wait_with_gradients(&mut self, waits: bool) {
        self.waits = waits;
    }

    /// Replaces all gradients by their mean over the shares, as one message.
    fn average_at_once(&self, network: &Network) -> Result<()> {
        let Some(group) = &self.data else { return Ok(()) };
        let gradients =
            handles(network.weights()).iter().map(Tensor::f_grad).collect::<std::result::Result<Vec<_>, _>>()?;
        let flat: Vec<Tensor> =
            gradients.iter().map(|tensor| tensor.f_reshape([-1])).collect::<std::result::Result<_, _>>()?;
        let all = Tensor::f_cat(&flat, 0)?;
        group.sum(&all)?;
        let all = all.f_div_scalar(i64::from(group.size()))?;
        let mut start = 0;
        for gradient in gradients {
            let values = all.f_narrow(0, start, gradient.numel() as i64)?.f_reshape(gradient.size())?;
            gradient.shallow_clone().f_copy_(&values)?;
            start += gradient.numel() as i64;
        }
        Ok(())
    }

    /// After each backward pass of a micro-batch.
    pub fn after_backward(&self) -> Result<()> {
        self.shards().map_or(Ok(()), FlatShards::end)
    }

    /// Multiplies all accumulated gradients of a step by a scalar.
    pub fn scale_gradients(&self, network: &Network, factor: &Tensor) -> Result<()> {
        if let Some(shards) = self.shards() {
            return shards.scale_gradients(factor);
        }
        let gradients =
            handles(network.weights()).iter().map(Tensor::f_grad).collect::<std::result::Result<Vec<_>, _>>()?;
        torch::scale(&gradients, factor)
    }

    /// One update by the accumulated gradients, which are cleared. The flag is false if a gradient of any rank is not
    /// finite: then nothing is updated.
    ///
    /// # Errors
    /// If libtorch, or a collective operation, fails.
    pub fn update(
        &self,
        network: &Network,
        optimizer: &mut ModelOptimizer,
        lr: f64,
        clip: Option<f64>,
    ) -> Result<UpdateFlag> {
        if self.waits && self.shards().is_none() {
            self.average_at_once(network)?;
        }
        if let Some(division) = &self.division {
            return self.update_parts(division, network, optimizer, lr, clip);
        }
        let (Some(group), Some(owners)) = (&self.group, &self.owners) else {
            return optimizer.step(lr, clip);
        };
        let parameters = handles(network.weights());
        // Each rank has all gradients, so all compute the same norm and scale.
        let gradients = parameters.iter().map(Tensor::f_grad).collect::<std::result::Result<Vec<_>, _>>()?;
        let flag = optimizer.step_among(lr, clip, &gradients, None)?;
        torch::drop_gradients(&parameters)?;
        if matches!(flag, UpdateFlag::Known(false)) {
            return Ok(flag);
        }
        tch::no_grad(|| -> Result<()> {
            for root in 0..self.size {
                let theirs = parameters.iter().zip(owners).filter(|(_, owner)| **owner == root);
                self.broadcast_flat(group, &theirs.map(|(tensor, _)| tensor).collect::<Vec<_>>(), root)?;
            }
            Ok(())
        })?;
        Ok(flag)
    }

    /// The same where each rank has parts of the parameters.
    fn update_parts(
        &self,
        division: &ParamLayout,
        network: &Network,
        optimizer: &mut ModelOptimizer,
        lr: f64,
        clip: Option<f64>,
    ) -> Result<UpdateFlag> {
        let gradients: Vec<Named> = match division.shards() {
            Some(shards) => shards.take_sharded_gradients()?,
            None => {
                let trained = network.weights().parameters().iter().filter(|named| named.tensor.requires_grad());
                let gradient = |of: &Named| Ok(Named { name: of.name.clone(), tensor: of.tensor.f_grad()? });
                trained.map(gradient).collect::<Result<_>>()?
            }
        };
        let all: Vec<Tensor> = gradients.iter().map(|named| named.tensor.shallow_clone()).collect();
        let (split, whole): (Vec<Named>, Vec<Named>) =
            gradients.into_iter().partition(|named| division.is_split(&named.name));
        let tensors = |named: Vec<Named>| named.into_iter().map(|named| named.tensor).collect::<Vec<_>>();
        let parts = Parted {
            ranks: self,
            device: network.weights().parameters().first().map_or(Device::Cpu, |named| named.tensor.device()),
            is_sharded: division.shards().is_some(),
            split: tensors(split),
            whole: tensors(whole),
        };
        let flag = optimizer.step_among(lr, clip, &all, Some(&parts))?;
        tch::no_grad(|| self.refresh())?;
        Ok(flag)
    }

    /// The gradient reducer; `None` for a single rank.
    pub fn exchange(&self) -> Option<&Reducer> {
        self.exchange.as_ref().filter(|_| !self.waits)
    }

    /// As [`Ranks::broadcast`] for many tensors, as one message.
    fn broadcast_flat(&self, group: &ProcessGroup, tensors: &[&Tensor], root: u32) -> Result<()> {
        if tensors.is_empty() {
            return Ok(());
        }
        let flat: Vec<Tensor> =
            tensors.iter().map(|tensor| tensor.f_reshape([-1])).collect::<std::result::Result<_, _>>()?;
        let all = Tensor::f_cat(&flat, 0)?;
        group.broadcast(&all, root)?;
        if root == self.rank {
            return Ok(());
        }
        let mut start = 0;
        for tensor in tensors {
            let values = all.f_narrow(0, start, tensor.numel() as i64)?.f_reshape(tensor.size())?;
            tensor.f_detach()?.f_copy_(&values)?;
            start += tensor.numel() as i64;
        }
        Ok(())
    }
}

/// The gradients of parts of parameters: of those that each rank which divides the layers has another part of, and of
/// those that all have.
struct Parted<'a> {
    ranks: &'a Ranks,
    /// The network's, also where this rank has no gradients.
    device: Device,
    /// Whether the ranks with other samples have other values.
    is_sharded: bool,
    split: Vec<Tensor>,
    whole: Vec<Tensor>,
}

impl GlobalGradients for Parted<'_> {
    /// Stays on the device, which the host does not wait for.
    fn norm(&self) -> Result<Tensor> {
        let square = |gradients: &[Tensor]| -> Result<Tensor> {
            match gradients.first() {
                Some(_) => Ok(torch::gradient_norm(gradients)?.f_square()?),
                // Where the others have theirs, so that all use the same backend.
                None => Ok(Tensor::f_zeros([0i64; 0], (Kind::Float, self.device))?),
            }
        };
        let both = Tensor::f_stack(&[square(&self.split)?, square(&self.whole)?], 0)?;
        if let Some(data) = self.ranks.data.as_ref().filter(|_| self.is_sharded) {
            data.sum(&both)?;
        }
        let (split, whole) = (both.f_narrow(0, 0, 1)?.f_contiguous()?, both.f_narrow(0, 1, 1)?);
        if let Some(tensor) = &self.ranks.tensor {
            tensor.sum(&split)?;
        }
        // A rank that holds no parameters counts its updates on the host.
        let own = self.split.iter().chain(&self.whole).next().map_or(Device::Cpu, Tensor::device);
        Ok(split.f_add(&whole)?.f_sqrt()?.f_squeeze()?.f_to_device(own)?)
    }

    fn found(&self, found: &Tensor) -> Result<()> {
        self.ranks.group.as_ref().map_or(Ok(()), |group| group.max(found))
    }
}

/// The trainable parameters; a frozen one has no gradient.
fn handles(weights: &Weights) -> Vec<Tensor> {
    let trained = weights.parameters().iter().filter(|named| named.tensor.requires_grad());
    trained.map(|named| named.tensor.shallow_clone()).collect()
}

/// The trainable parameters, from the stem to the head: gradients are computed in reverse, and buckets of neighbours
/// are complete early.
fn in_order(weights: &Weights) -> Vec<Tensor> {
    let places: BTreeMap<&str, usize> =
        weights.in_order().iter().zip(0..).map(|(name, place)| (name.as_str(), place)).collect();
    let mut trained: Vec<&Named> = weights.parameters().iter().filter(|named| named.tensor.requires_grad()).collect();
    trained.sort_by_key(|named| places.get(named.name.as_str()));
    trained.into_iter().map(|named| named.tensor.shallow_clone()).collect()
}

/// Assigns each parameter to the rank that has the fewest values, largest first.
fn owners(weights: &Weights, ranks: u32) -> Vec<u32> {
    let sizes: Vec<usize> = handles(weights).iter().map(Tensor::numel).collect();
    let mut places: Vec<usize> = (0..sizes.len()).collect();
    places.sort_by_key(|place| (std::cmp::Reverse(sizes[*place]), *place));
    let mut loads = vec![0; ranks as usize];
    let mut owners = vec![0; sizes.len()];
    for place in places {
        let owner = (0..loads.len()).min_by_key(|rank| loads[*rank]).unwrap_or(0);
        loads[owner] += sizes[place];
        owners[place] = owner as u32;
    }
    owners
}
