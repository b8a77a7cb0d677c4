//! This rank among all: its share of each batch, and collective operations.
//!
//! One idea: a step processes the global batch, however it is distributed, and all ranks have the same state after it.
//! So the loop is the same for any number of ranks; for a single one each call here does nothing. The calls below are
//! made by all ranks in the same order.

mod alike;
pub mod all_reduce;
mod division;
mod flat;
mod mesh;
pub mod shards;
mod split;
mod unit;
mod update;
mod wide;

use std::rc::Rc;

use data::RankShare;
use domain::finding::{Cause, Finding};
use domain::rank::{Rendezvous, Spec};
use domain::train::{Parallel, Shard};
use tch::{Kind, Tensor};

use crate::error::Error;
use crate::model::{Named, Network, Weights};
use crate::torch::group::{ProcessGroup, Reducer, TcpStore, Transport, listed};
use crate::torch::{self, Result};

use division::ParamLayout;
pub use division::{Dividing, ParamSet};
pub use flat::FlatShards;
use mesh::DeviceMesh;

/// This rank among all.
pub struct Ranks {
    rank: u32,
    size: u32,
    mesh: DeviceMesh,
    /// The group of all ranks; `None` for a single one.
    group: Option<Rc<ProcessGroup>>,
    /// Those with other samples, and those with other parts of the layers.
    data: Option<Rc<ProcessGroup>>,
    tensor: Option<Rc<ProcessGroup>>,
    /// Batch statistics have their own group, because they are exchanged between the gradients.
    moments: Option<Rc<ProcessGroup>>,
    exchange: Option<Reducer>,
    /// Whether gradients wait until the backward pass is over.
    waits: bool,
    /// Which rank updates each parameter; `None` if every rank updates all.
    owners: Option<Vec<u32>>,
    /// The placement of the parameters; `None` if each rank has all of them.
    division: Option<ParamLayout>,
    /// Whether each rank saves its own part of the state.
    saves_parts: bool,
}

impl Ranks {
    /// One rank that has no others.
    pub fn alone() -> Ranks {
        let (group, data, tensor, moments) = (None, None, None, None);
        let (exchange, waits, owners, division) = (None, false, None, None);
        Ranks {
            rank: 0,
            size: 1,
            mesh: DeviceMesh::ALONE,
            group,
            data,
            tensor,
            moments,
            exchange,
            waits,
            owners,
            division,
            saves_parts: false,
        }
    }

    /// Waits for all ranks of the run.
    pub fn rendezvous(spec: &Spec) -> std::result::Result<Ranks, Error> {
        Ranks::join(spec.rank, spec.world_size, spec.meeting.as_ref(), spec.train.parallel)
    }

    /// Waits for all `size` ranks at a meeting.
    pub fn join(
        rank: u32,
        size: u32,
        meeting: Option<&Rendezvous>,
        parallel: Parallel,
    ) -> std::result::Result<Ranks, Error> {
        if size <= 1 {
            return Ok(Ranks::alone());
        }
        let meeting = meeting.ok_or_else(|| {
            Finding::new(Cause::Internal, format!("{size} ranks were asked for, and not where they meet"))
                .hint("set `MASTER_ADDR` and `MASTER_PORT`")
        })?;
        let everyone: Vec<u32> = (0..size).collect();
        let mesh = DeviceMesh::of(rank, size, parallel.tensor.max(1)).ok_or_else(|| {
            let message = format!("{size} ranks cannot be divided into groups of {}", parallel.tensor);
            Finding::new(Cause::Job, message).hint("start as many ranks as a multiple of `parallel.tensor`")
        })?;
        let join = || -> Result<Ranks> {
            let store = Rc::new(TcpStore::open(meeting, rank == 0 && !meeting.is_kept)?);
            let group = Rc::new(ProcessGroup::join(&store, "all", rank, &everyone)?);
            let moments = match parallel.sync_batch_norm {
                true => Some(Rc::new(ProcessGroup::join(&store, "moments", rank, &everyone)?)),
                false => None,
            };
            let part = |name: String, place: u32, ranks: Vec<u32>| -> Result<Option<Rc<ProcessGroup>>> {
                if ranks.len() == 1 {
                    return Ok(None);
                }
                Ok(Some(Rc::new(ProcessGroup::join(&store, &name, place, &ranks)?)))
            };
            let (data, tensor) = if mesh.tensor() == 1 {
                (Some(Rc::clone(&group)), None)
            } else {
                let [row, column] = [mesh.data_place(), mesh.tensor_place()];
                let data = part(format!("data-{column}"), row, mesh.data_ranks())?;
                (data, part(format!("tensor-{row}"), column, mesh.tensor_ranks())?)
            };
            let (group, exchange, waits, owners, division) = (Some(group), None, false, None, None);
            let saves_parts = false;
            Ok(Ranks { rank, size, mesh, group, data, tensor, moments, exchange, waits, owners, division, saves_parts })
        };
        join().map_err(|error| {
            Finding::new(Cause::RankLost, format!("rank {rank} of {size} does not find the others: {error}"))
                .hint("see the other ranks' logs; all need the same address, port and number of ranks")
                .into()
        })
    }

    /// Index among all ranks, from 0.
    pub fn rank(&self) -> u32 {
        self.rank
    }

    /// Number of ranks.
    pub fn size(&self) -> u32 {
        self.size
    }

    /// Whether this rank reports, saves and exports for all.
    pub fn is_first(&self) -> bool {
        self.rank == 0
    }

    /// How ranks with CUDA devices communicate, for people.
    pub fn exchanges(&self) -> String {
        match self.group.as_ref().map(|group| group.way()) {
            Some(Transport::Nccl) => "over NCCL".to_owned(),
            Some(Transport::Host) | None => {
                "through the host, for they cannot over NCCL: no CUDA device or no `libgradus-cuda.so`".to_owned()
            }
            Some(Transport::HostFor(ranks)) => {
                let ranks = listed(ranks);
                format!(
                    "through the host, for {ranks} cannot exchange over NCCL, though others can: no CUDA device or no `libgradus-cuda.so`"
                )
            }
        }
    }

    /// Which samples of a batch are this rank's.
    pub fn share(&self) -> RankShare {
        RankShare::new(self.mesh.data_place(), self.mesh.data()).unwrap_or_default()
    }

    /// Shares that a batch is divided into.
    pub fn shares(&self) -> u32 {
        self.mesh.data()
    }

    /// The group for batch statistics; `None` if each rank computes its own.
    pub fn moments(&self) -> Option<Rc<ProcessGroup>> {
        self.moments.clone()
    }

    /// Divides the parameters of a network, complete and the same on every rank, as the job specifies. `half` is the 16-bit
    /// format that products are computed in, if they are.
    pub fn divide(&mut self, network: &mut Network, parallel: Parallel, half: Option<Kind>) -> Result<()> {
        let groups = [self.data.as_ref(), self.tensor.as_ref()];
        self.division = ParamLayout::of(network, parallel, self.mesh, groups, half)?;
        Ok(())
    }

    /// Divides a built-in network during its construction, if no rank may have all parameters; `half` as for
    /// [`Ranks::divide`].
    pub fn dividing(&self, parallel: Parallel, half: Option<Kind>) -> Option<Dividing> {
        let group = self.data.as_ref().filter(|_| self.tensor.is_none() && parallel.shard == Shard::Parameters)?;
        Some(Dividing::among(group, self.mesh, parallel, half))
    }

    /// Takes over how a network was divided while it was made.
    pub fn take_division(&mut self, dividing: Dividing) {
        self.division = Some(dividing.done());
    }

    /// Forgets how an earlier network was divided.
    pub fn forget_division(&mut self) {
        (self.division, self.owners) = (None, None);
    }

    /// Whether the division allows each rank to save its own part of the state.
    pub fn can_save_parts(&self, parallel: Parallel) -> bool {
        let is_sharded = matches!(parallel.shard, Shard::Gradients | Shard::Parameters);
        is_sharded && self.size > 1 && self.tensor.is_none()
    }

    /// Makes each rank save its own part of the state, or the first one all of it.
    pub fn set_saves_parts(&mut self, saves_parts: bool) {
        self.saves_parts = saves_parts;
    }

    /// Whether each rank saves its own part of the state.
    pub fn saves_parts(&self) -> bool {
        self.saves_parts
    }

    /// The placement of the parameters among the ranks; `None` if each has all of them.
    pub(crate) fn division(&self) -> Option<&ParamLayout> {
        self.division.as_ref()
    }

    /// The flat shards, which are gathered and freed around each block; `None` if each rank has all of its layers'
    /// parameters and gradients.
    pub fn shards(&self) -> Option<&FlatShards> {
        self.division.as_ref().and_then(ParamLayout::shards)
    }

    /// This rank's parameters between two steps: all, or a part of each.
    pub fn held(&self, weights: &Weights) -> Weights {
        self.division.as_ref().map_or_else(|| weights.only(|_| true), |division| division.held(weights))
    }

    /// If the parameters are divided, scatters `whole` ones of the first rank to the tensors that `own` returns;
    /// returns whether they are. Only those for which `is_meant` returns true, on all ranks.
    pub fn scatter_whole(
        &self,
        is_meant: impl Fn(&str) -> bool,
        whole: impl Fn(&str) -> std::result::Result<Tensor, Error>,
        own: impl Fn(&str) -> Option<Tensor>,
    ) -> std::result::Result<bool, Error> {
        let (Some(division), Some(group)) = (&self.division, &self.group) else { return Ok(false) };
        division.scatter_whole(group, |name, _| is_meant(name), whole, own)?;
        self.refresh()?;
        Ok(true)
    }

    /// Updates the flat shards after parameters were written by anything but [`Ranks::update`].
    pub fn refresh(&self) -> Result<()> {
        self.shards().map_or(Ok(()), FlatShards::refresh)
    }

    /// Replaces figures, each of a share of a batch, by their sums over shares.
    pub fn sum(&self, values: &mut [f64]) -> Result<()> {
        self.data.as_ref().map_or(Ok(()), |group| self.sum_over(group, values))
    }

    fn sum_over(&self, group: &ProcessGroup, values: &mut [f64]) -> Result<()> {
        let tensor = Tensor::f_from_slice(values)?;
        group.sum(&tensor)?;
        tensor.f_copy_data(values, values.len())?;
        Ok(())
    }

    /// The sum over shares of a figure on the device.
    pub fn sum_tensor(&self, value: Tensor) -> Result<Tensor> {
        if let Some(group) = &self.data {
            group.sum(&value)?;
        }
        Ok(value)
    }

    /// Every rank's figure, in their order.
    pub fn gather(&self, value: f64) -> Result<Vec<f64>> {
        let mut figures = vec![0.0; self.size as usize];
        figures[self.rank as usize] = value;
        self.group.as_ref().map_or(Ok(()), |group| self.sum_over(group, &mut figures))?;
        Ok(figures)
    }

    /// Whether the flag is true on any rank.
    pub fn any(&self, yes: bool) -> Result<bool> {
        Ok(self.gather(f64::from(u8::from(yes)))?.iter().any(|figure| *figure > 0.0))
    }

    /// The flags of rank 0.
    pub fn broadcast_flags<const N: usize>(&self, flags: [bool; N]) -> Result<[bool; N]> {
        let Some(group) = &self.group else { return Ok(flags) };
        let mut figures = flags.map(|yes| f64::from(u8::from(yes && self.is_first())));
        self.sum_over(group, &mut figures)?;
        Ok(figures.map(|figure| figure > 0.0))
    }

    /// Gives every rank the values of rank 0.
    pub fn broadcast<'a>(&self, tensors: impl IntoIterator<Item = &'a Named>) -> Result<()> {
        let Some(group) = &self.group else { return Ok(()) };
        for named in tensors {
            self.broadcast_from(group, &named.tensor, 0)?;
        }
        Ok(())
    }

    /// Gives every rank the text of the rank `root`.
    pub fn broadcast_text(&self, root: u32, text: &str) -> Result<String> {
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
    /// so that all ranks have the same and a rank without samples contributes nothing.
    pub fn sync_buffers(&self, network: &Network, counted: usize) -> Result<()> {
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

    /// Waits until all have come here.
    pub fn barrier(&self) -> Result<()> {
        self.group.as_ref().map_or(Ok(()), |group| group.barrier())
    }

    /// Adds the missing ranks to an error of a collective operation.
    pub fn name_missing(&self, error: Error) -> Error {
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

    fn broadcast_from(&self, group: &ProcessGroup, tensor: &Tensor, root: u32) -> Result<()> {
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

#[cfg(test)]
mod tests;
