//! This rank among all: its share of each batch, and what ranks do together.
//!
//! One idea: the global batch is what a step is made of, whoever computes it, and all ranks hold the same state after
//! it. So the loop reads the same for any number of them; for one alone each call here does nothing. The calls below
//! are made by all ranks in the same order.

pub mod shards;

use std::collections::BTreeSet;
use std::rc::Rc;

use data::Share;
use domain::finding::{Cause, Finding};
use domain::rank::Spec;
use domain::train::{Exchange as Numbers, Parallel, Shard};
use tch::{Device, Kind, Tensor};

use crate::error::Error;
use crate::model::{Named, Network, Weights};
use crate::optim::Optimizer;
use crate::torch::group::{Exchange, Group, Store, listed};
use crate::torch::{self, Result};

/// This rank among all.
pub struct Ranks {
    rank: u32,
    size: u32,
    /// None for one alone.
    group: Option<Rc<Group>>,
    /// Statistics of batches go by a group of their own: they are exchanged amid the gradients.
    moments: Option<Rc<Group>>,
    exchange: Option<Exchange>,
    /// Which rank updates each parameter; none where every rank updates all.
    owners: Option<Vec<u32>>,
}

impl Ranks {
    /// One rank that has no others.
    pub fn alone() -> Ranks {
        Ranks { rank: 0, size: 1, group: None, moments: None, exchange: None, owners: None }
    }

    /// Waits for all ranks of the run.
    pub fn meet(spec: &Spec) -> std::result::Result<Ranks, Error> {
        let (rank, size) = (spec.rank, spec.world_size);
        if size <= 1 {
            return Ok(Ranks::alone());
        }
        let meeting = spec.meeting.as_ref().ok_or_else(|| {
            Finding::new(Cause::Internal, format!("{size} ranks were asked for, and not where they meet"))
                .hint("set `MASTER_ADDR` and `MASTER_PORT`")
        })?;
        let everyone: Vec<u32> = (0..size).collect();
        let join = || -> Result<Ranks> {
            let store = Rc::new(Store::open(meeting, rank == 0 && !meeting.is_kept)?);
            let group = Rc::new(Group::join(&store, "all", rank, &everyone)?);
            let moments = match spec.train.parallel.sync_batch_norm {
                true => Some(Rc::new(Group::join(&store, "moments", rank, &everyone)?)),
                false => None,
            };
            Ok(Ranks { rank, size, group: Some(group), moments, exchange: None, owners: None })
        };
        join().map_err(|error| {
            Finding::new(Cause::RankLost, format!("rank {rank} of {size} does not find the others: {error}"))
                .hint("see the other ranks' logs; all need the same address, port and number of ranks")
                .into()
        })
    }

    /// Place among all, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Whether this rank speaks, saves and exports for all.
    pub fn is_first(&self) -> bool {
        self.rank == 0
    }

    /// Which samples of a batch are this rank's.
    pub fn share(&self) -> Share {
        Share::new(self.rank, self.size).unwrap_or_default()
    }

    /// The group that batch statistics are taken over; none where each rank takes its own.
    pub fn moments(&self) -> Option<Rc<Group>> {
        self.moments.clone()
    }

    /// From now on the gradients of this network are exchanged while its backward pass goes on.
    pub fn hook(&mut self, network: &Network, parallel: Parallel) -> Result<()> {
        let Some(group) = &self.group else { return Ok(()) };
        let parameters = handles(network.weights());
        self.exchange = Some(Exchange::new(group, &parameters, parallel.exchange == Numbers::Bf16)?);
        Ok(())
    }

    /// The weights whose optimiser is kept here: all, unless the job shards it.
    pub fn kept(&mut self, weights: &Weights, parallel: Parallel) -> Weights {
        match parallel.shard {
            Shard::None => weights.only(|_| true),
            Shard::Optimizer => {
                let owners = owners(weights, self.size);
                let trained = weights.parameters().iter().filter(|named| named.tensor.requires_grad());
                let mine = trained.zip(&owners).filter(|(_, owner)| **owner == self.rank);
                let mine: BTreeSet<&str> = mine.map(|(named, _)| named.name.as_str()).collect();
                let kept = weights.only(|named| mine.contains(named.name.as_str()));
                self.owners = Some(owners);
                kept
            }
        }
    }

    /// One update by the gradients that backward passes have left, which are forgotten.
    pub fn update(&self, network: &Network, optimizer: &mut Optimizer, lr: f64, clip: Option<f64>) -> Result<()> {
        let (Some(group), Some(owners)) = (&self.group, &self.owners) else {
            return optimizer.step(lr, clip).map(|_| ());
        };
        let parameters = handles(network.weights());
        // Each rank has all gradients, so all come to the same norm and scale.
        let gradients = parameters.iter().map(Tensor::f_grad).collect::<std::result::Result<Vec<_>, _>>()?;
        optimizer.step_among(lr, clip, &gradients)?;
        torch::drop_gradients(&parameters)?;
        tch::no_grad(|| -> Result<()> {
            for root in 0..self.size {
                let theirs = parameters.iter().zip(owners).filter(|(_, owner)| **owner == root);
                self.spread_flat(group, &theirs.map(|(tensor, _)| tensor).collect::<Vec<_>>(), root)?;
            }
            Ok(())
        })
    }

    /// The exchange of gradients; none for one alone.
    pub fn exchange(&self) -> Option<&Exchange> {
        self.exchange.as_ref()
    }

    /// Replaces figures by their sums over ranks.
    pub fn sum(&self, values: &mut [f64]) -> Result<()> {
        let Some(group) = &self.group else { return Ok(()) };
        let tensor = Tensor::f_from_slice(values)?;
        group.sum(&tensor)?;
        tensor.f_copy_data(values, values.len())?;
        Ok(())
    }

    /// The sum over ranks of a figure on the device.
    pub fn total(&self, value: Tensor) -> Result<Tensor> {
        if let Some(group) = &self.group {
            group.sum(&value)?;
        }
        Ok(value)
    }

    /// Every rank's figure, in their order.
    pub fn each(&self, value: f64) -> Result<Vec<f64>> {
        let mut figures = vec![0.0; self.size as usize];
        figures[self.rank as usize] = value;
        self.sum(&mut figures)?;
        Ok(figures)
    }

    /// Whether any rank says yes.
    pub fn any(&self, yes: bool) -> Result<bool> {
        let mut count = [f64::from(u8::from(yes))];
        self.sum(&mut count)?;
        Ok(count[0] > 0.0)
    }

    /// What rank 0 says.
    pub fn agree<const N: usize>(&self, said: [bool; N]) -> Result<[bool; N]> {
        if self.group.is_none() {
            return Ok(said);
        }
        let mut figures = said.map(|yes| f64::from(u8::from(yes && self.is_first())));
        self.sum(&mut figures)?;
        Ok(figures.map(|figure| figure > 0.0))
    }

    /// Gives every rank the values of rank 0.
    pub fn spread<'a>(&self, tensors: impl IntoIterator<Item = &'a Named>) -> Result<()> {
        let Some(group) = &self.group else { return Ok(()) };
        for named in tensors {
            self.spread_from(group, &named.tensor, 0)?;
        }
        Ok(())
    }

    /// Gives every rank the text of the rank `root`.
    pub fn spread_text(&self, root: u32, text: &str) -> Result<String> {
        let Some(group) = &self.group else { return Ok(text.to_owned()) };
        let length = Tensor::f_from_slice(&[text.len() as i64])?;
        group.broadcast(&length, root)?;
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize(length.f_int64_value(&[0])? as usize, 0);
        let tensor = Tensor::f_from_slice(&bytes)?;
        group.broadcast(&tensor, root)?;
        tensor.f_copy_data(&mut bytes, tensor.numel())?;
        String::from_utf8(bytes).map_err(|error| torch::Error::new(format!("what rank 0 sent is no text: {error}")))
    }

    /// After each step: running statistics become the mean over ranks, each weighted by the samples that it `counted`,
    /// so that all hold the same and a rank without samples adds nothing.
    pub fn level(&self, network: &Network, counted: usize) -> Result<()> {
        let Some(group) = self.group.as_ref().filter(|_| self.moments.is_none()) else { return Ok(()) };
        let buffers = network.weights().buffers().iter().map(|named| &named.tensor);
        let floats: Vec<&Tensor> = buffers.filter(|tensor| tensor.kind() == Kind::Float).collect();
        if floats.is_empty() {
            return Ok(());
        }
        let mut flat: Vec<Tensor> =
            floats.iter().map(|tensor| tensor.f_reshape([-1])).collect::<std::result::Result<_, _>>()?;
        // Behind them a one, which becomes the number of all samples.
        flat.push(Tensor::f_ones([1], (Kind::Float, floats[0].device()))?);
        let all = Tensor::f_cat(&flat, 0)?.f_mul_scalar(counted as f64)?;
        group.sum(&all)?;
        let whole = all.f_narrow(0, all.numel() as i64 - 1, 1)?;
        let all = all.f_div(&whole)?;
        let mut start = 0;
        for tensor in floats {
            let mean = all.f_narrow(0, start, tensor.numel() as i64)?.f_reshape(tensor.size())?;
            tensor.shallow_clone().f_copy_(&mean)?;
            start += tensor.numel() as i64;
        }
        Ok(())
    }

    /// Makes sure that all ranks hold the same weights, to the last bit.
    pub fn check_same(&self, network: &Network, step: u64) -> std::result::Result<(), Error> {
        let Some(group) = &self.group else { return Ok(()) };
        let sums = || -> Result<(Tensor, Tensor)> {
            let mut sums = Vec::new();
            for named in network.weights().all() {
                let bits = match named.tensor.kind() {
                    Kind::Float => named.tensor.f_detach()?.f_view_dtype(Kind::Int)?,
                    _ => named.tensor.f_detach()?,
                };
                sums.push(bits.f_sum(Kind::Int64)?.f_to_device(Device::Cpu)?);
            }
            let own = Tensor::f_stack(&sums, 0)?;
            // The largest of the numbers and of their negatives: equal but for the sign where all ranks agree.
            let both = Tensor::f_cat(&[own.shallow_clone(), own.f_neg()?], 0)?;
            group.max(&both)?;
            let half = own.numel() as i64;
            Ok((both.f_narrow(0, 0, half)?, both.f_narrow(0, half, half)?.f_neg()?))
        };
        let (largest, smallest) = sums()?;
        if largest == smallest {
            return Ok(());
        }
        let message = format!("after step {step} the ranks hold different weights");
        Err(Finding::new(Cause::Internal, message).hint("resume the run, and report this with the ranks' logs").into())
    }

    /// The states of every rank's generator on the CPU, a row a rank.
    pub fn generators(&self) -> Result<Tensor> {
        let own = torch::random_state(Device::Cpu)?;
        let all = Tensor::f_zeros([i64::from(self.size), own.numel() as i64], (Kind::Uint8, Device::Cpu))?;
        match &self.group {
            Some(group) => group.all_gather(&all.f_view([-1])?, &own)?,
            None => all.f_select(0, 0)?.f_copy_(&own)?,
        }
        Ok(all)
    }

    /// Takes this rank's row of what [`Ranks::generators`] once returned on rank 0; where there were more or fewer
    /// ranks then, each begins anew by `seed`, the step and its place.
    pub fn set_generators(&self, saved: Option<Tensor>, seed: u64, step: u64) -> Result<()> {
        let Some(group) = &self.group else { return Ok(()) };
        let mut own = torch::random_state(Device::Cpu)?;
        let size = [i64::from(self.size), own.numel() as i64];
        let saved = saved.filter(|saved| saved.size() == size);
        let found = Tensor::f_from_slice(&[i64::from(saved.is_some())])?;
        group.broadcast(&found, 0)?;
        if found.f_int64_value(&[0])? == 0 {
            let place = u64::from(self.rank) + 1;
            return torch::seed(seed ^ (step << 16) ^ (place << 48));
        }
        let all = saved.map_or_else(|| Tensor::f_zeros(size, (Kind::Uint8, Device::Cpu)), Ok)?;
        group.broadcast(&all, 0)?;
        // The generator reads from where the memory begins, whatever part of it the tensor is.
        own.f_copy_(&all.f_select(0, i64::from(self.rank))?)?;
        torch::set_random_state(Device::Cpu, &own)
    }

    /// Waits until all have come here.
    pub fn wait(&self) -> Result<()> {
        self.group.as_ref().map_or(Ok(()), |group| group.barrier())
    }

    /// What is said of an error: one of the exchange itself is told with who is missing.
    pub fn blame(&self, error: Error) -> Error {
        let (Error::Torch(inner), Some(group)) = (&error, &self.group) else { return error };
        if !inner.is_of_exchange() {
            return error;
        }
        let missing = group.missing();
        let who = if missing.is_empty() {
            "the ranks cannot reach each other".into()
        } else {
            format!("{} ended or stands still", listed(&missing))
        };
        let message = format!("{who}, so rank {} of {} cannot go on: {inner}", self.rank, self.size);
        Finding::new(Cause::RankLost, message)
            .hint("see that rank's log; the run resumes from its newest checkpoint")
            .into()
    }

    /// As [`Ranks::spread`] for many tensors, as one message.
    fn spread_flat(&self, group: &Group, tensors: &[&Tensor], root: u32) -> Result<()> {
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

    fn spread_from(&self, group: &Group, tensor: &Tensor, root: u32) -> Result<()> {
        // Gloo wants values without gaps; weights may lie pixel by pixel.
        let detached = tensor.f_detach()?;
        let plain = detached.f_contiguous()?;
        group.broadcast(&plain, root)?;
        if plain.data_ptr() != detached.data_ptr() {
            detached.shallow_clone().f_copy_(&plain)?;
        }
        Ok(())
    }
}

/// What is trained; a parameter that stays as it is has no gradient.
fn handles(weights: &Weights) -> Vec<Tensor> {
    let trained = weights.parameters().iter().filter(|named| named.tensor.requires_grad());
    trained.map(|named| named.tensor.shallow_clone()).collect()
}

/// Gives each parameter to the rank that has the fewest values so far, the largest first.
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
