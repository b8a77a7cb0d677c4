//! The distribution of parameters among the ranks, and reassembly of full tensors.
//!
//! Two nested divisions: first each rank takes its part of the layers ([`super::split`]), then the ranks that have the
//! same part shard its values ([`super::flat`]). For saving, full tensors are reassembled one after another, so that a
//! checkpoint is independent of both.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use domain::train::{Exchange, Parallel, Shard};
use tch::{Kind, Tensor};

use super::flat::FlatShards;
use super::mesh::DeviceMesh;
use super::split::TensorSplit;
use super::unit::UnitFormat;
use crate::model::{Named, Network, OnBlock, TensorParallel, Weights};
use crate::torch::group::ProcessGroup;
use crate::torch::{self, Error, Result};

/// How the parameters lie among the ranks.
pub struct ParamLayout {
    mesh: DeviceMesh,
    /// The ranks that have other parts of the layers.
    tensor: Option<Rc<ProcessGroup>>,
    /// By name, in order: the full shape, how it is divided, and whether it is trained.
    parameters: BTreeMap<String, Placement>,
    shards: Option<FlatShards>,
}

/// The placement of one parameter.
struct Placement {
    shape: Vec<i64>,
    split: Option<TensorSplit>,
    is_trained: bool,
}

/// A division during construction of the network, so that no rank ever has all of its values.
pub struct Dividing {
    under_way: Rc<RefCell<ParamLayout>>,
    group: Rc<ProcessGroup>,
    format: UnitFormat,
}

impl Dividing {
    /// Empty, among the ranks of a group; weights are gathered in the 16-bit format `half` of products, if that is theirs.
    pub(super) fn among(
        group: &Rc<ProcessGroup>,
        mesh: DeviceMesh,
        parallel: Parallel,
        half: Option<Kind>,
    ) -> Dividing {
        let layout = ParamLayout { mesh, tensor: None, parameters: BTreeMap::new(), shards: Some(FlatShards::none()) };
        let format = UnitFormat { frees: true, bf16: parallel.exchange == Exchange::Bf16, half };
        Dividing { under_way: Rc::new(RefCell::new(layout)), group: Rc::clone(group), format }
    }

    /// Divides each block of the network; parameters whose names begin with one of `frozen` are not trained.
    pub fn on_block(&self, frozen: &[String]) -> OnBlock {
        let (under_way, group, format, frozen) =
            (Rc::clone(&self.under_way), Rc::clone(&self.group), self.format, frozen.to_vec());
        OnBlock::new(move |parameters, cast| {
            let mut layout = under_way.borrow_mut();
            for Named { name, tensor } in parameters {
                let is_trained = !frozen.iter().any(|start| name.starts_with(start));
                let _ = tensor.f_set_requires_grad(is_trained)?;
                layout.parameters.insert(name.clone(), Placement { shape: tensor.size(), split: None, is_trained });
            }
            let mut sorted: Vec<&Named> = parameters.iter().collect();
            sorted.sort_by(|left, right| left.name.cmp(&right.name));
            layout.shards.as_mut().map_or(Ok(()), |shards| shards.add(&sorted, cast, &group, format))
        })
    }

    /// How the parameters lie, once the network is made.
    pub fn done(self) -> ParamLayout {
        let empty = ParamLayout { mesh: DeviceMesh::ALONE, tensor: None, parameters: BTreeMap::new(), shards: None };
        let mut layout = self.under_way.replace(empty);
        layout.shards.iter_mut().for_each(FlatShards::finish);
        layout
    }
}

/// Selects tensors: parameters themselves, or optimizer state of each that is trained.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ParamSet {
    All,
    Trained,
}

impl ParamLayout {
    /// Divides a network that is complete and the same on every rank; `None` if nothing is to be divided.
    pub fn of(
        network: &mut Network,
        parallel: Parallel,
        mesh: DeviceMesh,
        [data, tensor]: [Option<&Rc<ProcessGroup>>; 2],
        half: Option<Kind>,
    ) -> Result<Option<ParamLayout>> {
        let mut parameters = BTreeMap::new();
        for Named { name, tensor: values } in network.weights().parameters() {
            let goes_up = |split: &TensorSplit| tensor.is_some() && split.goes_up(&values.size(), mesh.tensor());
            let split = TensorSplit::of(name).filter(goes_up);
            let lies = Placement { shape: values.size(), split, is_trained: values.requires_grad() };
            if let Some(split) = split {
                let part = split.take(&values.f_detach()?, mesh.tensor_place(), mesh.tensor())?;
                values.shallow_clone().f_set_data(&part)?;
            }
            parameters.insert(name.clone(), lies);
        }
        if let Some(group) = tensor {
            network.set_tensor_parallel(Rc::new(TensorParallel::of(Rc::clone(group))));
        }
        let frees = match parallel.shard {
            Shard::None | Shard::Optimizer => None,
            Shard::Gradients => Some(false),
            Shard::Parameters => Some(true),
        };
        let bf16 = parallel.exchange == Exchange::Bf16;
        let shards = match (frees, data) {
            (Some(frees), Some(group)) => {
                Some(FlatShards::of(network.weights(), group, UnitFormat { frees, bf16, half })?)
            }
            (_, _) => None,
        };
        let tensor = tensor.cloned();
        let divides = tensor.is_some() || shards.is_some();
        Ok(divides.then_some(ParamLayout { mesh, tensor, parameters, shards }))
    }

    /// The part that ranks with the same layers share among them.
    pub fn shards(&self) -> Option<&FlatShards> {
        self.shards.as_ref()
    }

    /// This rank's parts of the parameters between two steps, by name.
    pub fn held(&self, weights: &Weights) -> Weights {
        match &self.shards {
            Some(shards) => weights.with(shards.pieces()),
            None => weights.only(|_| true),
        }
    }

    /// Names and full shapes of all parameters.
    pub fn shapes(&self) -> impl Iterator<Item = (&str, &[i64])> {
        self.parameters.iter().map(|(name, lies)| (name.as_str(), lies.shape.as_slice()))
    }

    /// Whether each rank that divides the layers has another part of it.
    pub fn is_split(&self, name: &str) -> bool {
        self.parameters.get(name).is_some_and(|lies| lies.split.is_some())
    }

    /// Calls `each` on the first rank with full tensors by the names of parameters, whose local part `own` returns.
    /// Collective: called by all ranks.
    pub fn each_whole(
        &self,
        of: ParamSet,
        own: &dyn Fn(&str) -> Option<Tensor>,
        each: &mut dyn FnMut(&str, Tensor) -> Result<()>,
    ) -> Result<()> {
        // The ranks with other samples have the same.
        let mut joined = |name: &str, part: Tensor| -> Result<()> {
            if self.mesh.data_place() > 0 {
                return Ok(());
            }
            let whole = self.joined(name, part)?;
            if self.mesh.tensor_place() == 0 { each(name, whole) } else { Ok(()) }
        };
        let is_meant = |is_trained: bool| of == ParamSet::All || is_trained;
        if let Some(shards) = &self.shards {
            return shards.each_whole(own, &is_meant, &mut joined);
        }
        for (name, lies) in &self.parameters {
            if is_meant(lies.is_trained) {
                let part = own(name).ok_or_else(|| Error::new(format!("`{name}` is kept nowhere")))?;
                joined(name, part.f_detach()?)?;
            }
        }
        Ok(())
    }

    /// The inverse: scatters full tensors of the first rank, and copies each rank's part to the tensor that `own`
    /// returns. Only tensors for which `is_meant` returns true, given name and whether it is trained; the same on all
    /// ranks.
    pub fn scatter_whole<E: From<torch::Error>>(
        &self,
        everyone: &ProcessGroup,
        is_meant: impl Fn(&str, bool) -> bool,
        whole: impl Fn(&str) -> std::result::Result<Tensor, E>,
        own: impl Fn(&str) -> Option<Tensor>,
    ) -> std::result::Result<(), E> {
        for (name, Placement { shape, is_trained, .. }) in &self.parameters {
            if !is_meant(name, *is_trained) {
                continue;
            }
            let values = match everyone.rank() {
                0 => whole(name)?.f_contiguous().map_err(torch::Error::from)?,
                _ => Tensor::f_empty(shape, (Kind::Float, tch::Device::Cpu)).map_err(torch::Error::from)?,
            };
            if values.size() != *shape {
                return Err(Error::new(format!("`{name}` has another shape in what was saved")).into());
            }
            everyone.broadcast(&values, 0)?;
            let own = own(name);
            if let (Some(part), Some(own)) = (self.part(name, values)?, own) {
                own.f_detach().and_then(|mut own| own.f_copy_(&part)).map_err(torch::Error::from)?;
            }
        }
        Ok(())
    }

    /// This rank's part of a full tensor.
    fn part(&self, name: &str, whole: Tensor) -> Result<Option<Tensor>> {
        let split = self.parameters.get(name).and_then(|lies| lies.split);
        let part = match split {
            Some(split) => split.take(&whole, self.mesh.tensor_place(), self.mesh.tensor())?,
            None => whole,
        };
        match &self.shards {
            Some(shards) => shards.piece(name, &part),
            None => Ok(Some(part)),
        }
    }

    /// Concatenates every rank's part of the layers.
    fn joined(&self, name: &str, part: Tensor) -> Result<Tensor> {
        let split = self.parameters.get(name).and_then(|lies| lies.split);
        let (Some(group), Some(split)) = (&self.tensor, split) else { return Ok(part) };
        let (size, part) = (part.size(), part.f_contiguous()?.f_view([-1])?);
        let all = Tensor::f_empty([part.numel() as i64 * i64::from(group.size())], (part.kind(), part.device()))?;
        group.all_gather(&all, &part)?;
        let parts = all.f_chunk(i64::from(group.size()), 0)?;
        let parts = parts.iter().map(|part| Ok(part.f_view(size.as_slice())?)).collect::<Result<Vec<Tensor>>>()?;
        split.join(&parts)
    }
}
