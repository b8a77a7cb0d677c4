//! The named tensors of a network: where layers get theirs from, and where everybody else finds them.

use std::collections::BTreeSet;
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use domain::train::MemoryFormat;
use tch::{Device, Kind, Tensor};

use crate::torch::group::ProcessGroup;
use crate::torch::{self, Result};

/// A convolution's weight and the normalisation after it, by their names.
#[derive(Debug, Clone, PartialEq)]
pub struct ConvNormPair {
    /// Such as `layer1.0.conv1`.
    pub convolution: String,
    /// Such as `layer1.0.bn1`.
    pub normalisation: String,
    /// Added to the variance.
    pub eps: f64,
}

/// A tensor and its name. The handle is shared: writing to it changes the network.
#[derive(Debug)]
pub struct Named {
    /// Such as `layer1.0.conv1.weight`.
    pub name: String,
    /// The values.
    pub tensor: Tensor,
}

/// Is called with the parameters of each block as soon as it is made, and at last with those around the blocks, and with the
/// names of those that autocast casts; it may move their values.
pub struct OnBlock(Box<BlockWork>);

type BlockWork = dyn FnMut(&[Named], &BTreeSet<String>) -> Result<()>;

impl OnBlock {
    /// Calls `work`.
    pub fn new(work: impl FnMut(&[Named], &BTreeSet<String>) -> Result<()> + 'static) -> OnBlock {
        OnBlock(Box::new(work))
    }
}

impl std::fmt::Debug for OnBlock {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("OnBlock")
    }
}

/// Distribution of a network under construction.
#[derive(Debug, Default)]
pub struct BuildHooks {
    /// The ranks over which batch statistics are computed; `None` for this one alone.
    pub sync_batch_norm: Option<Rc<ProcessGroup>>,
    /// Divides the values of each block; `None` if each rank has all of them.
    pub on_block: Option<OnBlock>,
}

/// All tensors of a network, sorted by name, so that every rank and every file has them in the same order.
#[derive(Debug)]
pub struct Weights {
    device: Device,
    format: MemoryFormat,
    hooks: BuildHooks,
    parameters: Vec<Named>,
    buffers: Vec<Named>,
    /// Names of the parameters in the order in which layers were created, from the stem to the head.
    made: Vec<String>,
    /// The range of them that each block created.
    blocks: Vec<Range<usize>>,
    /// Names of the parameters that autocast casts at every use.
    cast: BTreeSet<String>,
    /// Number of trained values, before any were moved to other ranks.
    count: u64,
    pairs: Vec<ConvNormPair>,
}

impl Weights {
    /// No tensors yet.
    pub(in crate::model) fn new(device: Device, format: MemoryFormat, hooks: BuildHooks) -> Weights {
        Weights {
            device,
            format,
            hooks,
            parameters: Vec::new(),
            buffers: Vec::new(),
            made: Vec::new(),
            blocks: Vec::new(),
            cast: BTreeSet::new(),
            count: 0,
            pairs: Vec::new(),
        }
    }

    /// After the last layer.
    pub(in crate::model) fn finish(&mut self) -> Result<()> {
        if let Some(mut on_block) = self.hooks.on_block.take() {
            let is_around = |name: &String| !self.by_block().any(|block| block.contains(name));
            let around: Vec<Named> =
                self.parameters.iter().filter(|named| is_around(&named.name)).map(shared).collect();
            (on_block.0)(&around, &self.cast)?;
        }
        self.parameters.sort_by(|left, right| left.name.cmp(&right.name));
        self.buffers.sort_by(|left, right| left.name.cmp(&right.name));
        self.count = self.parameters.iter().map(|named| named.tensor.numel() as u64).sum();
        Ok(())
    }

    /// Registers a block, whose parameters are those that `make` creates.
    pub(in crate::model) fn block<Block>(
        &mut self,
        make: impl FnOnce(&mut Weights) -> Result<Block>,
    ) -> Result<Arc<Block>> {
        let start = self.made.len();
        let block = make(self)?;
        self.blocks.push(start..self.made.len());
        if let Some(on_block) = &mut self.hooks.on_block {
            // Parameters are not sorted yet, so they stand as they were made.
            (on_block.0)(&self.parameters[start..], &self.cast)?;
        }
        Ok(Arc::new(block))
    }

    /// A trained tensor with the given first values.
    pub(in crate::model) fn parameter(&mut self, name: String, values: Tensor) -> Result<Tensor> {
        let tensor = self.place(values)?.f_set_requires_grad(true)?;
        self.made.push(name.clone());
        self.parameters.push(Named { name, tensor: tensor.shallow_clone() });
        Ok(tensor)
    }

    /// A trainable tensor drawn uniformly from `-bound` to `bound`; on the CPU, whose generator is the same on every
    /// machine.
    pub(in crate::model) fn uniform(&mut self, name: String, shape: &[i64], bound: f64) -> Result<Tensor> {
        let mut values = Tensor::f_empty(shape, (Kind::Float, Device::Cpu))?;
        let _ = values.f_uniform_(-bound, bound)?;
        self.parameter(name, values)
    }

    /// A trained tensor drawn from the normal distribution around zero.
    pub(in crate::model) fn normal(&mut self, name: String, shape: &[i64], deviation: f64) -> Result<Tensor> {
        let values = self.draw_normal(shape, deviation)?;
        self.parameter(name, values)
    }

    /// Values drawn from the normal distribution around zero, for a tensor that is yet to be changed.
    pub(in crate::model) fn draw_normal(&self, shape: &[i64], deviation: f64) -> Result<Tensor> {
        let mut values = Tensor::f_empty(shape, (Kind::Float, Device::Cpu))?;
        let _ = values.f_normal_(0.0, deviation)?;
        Ok(values)
    }

    /// A trained tensor of zeros.
    pub(in crate::model) fn zeros(&mut self, name: String, shape: &[i64]) -> Result<Tensor> {
        self.parameter(name, Tensor::f_zeros(shape, (Kind::Float, Device::Cpu))?)
    }

    /// A trainable tensor of ones.
    pub(in crate::model) fn ones(&mut self, name: String, shape: &[i64]) -> Result<Tensor> {
        self.parameter(name, Tensor::f_ones(shape, (Kind::Float, Device::Cpu))?)
    }

    /// Notes that a parameter is read by convolutions and matrix products alone, as their weight: under autocast they read
    /// it in 16 bits. One that anything else reads too, such as a table of embeddings, must not be noted.
    pub(in crate::model) fn mark_cast(&mut self, name: String) {
        self.cast.insert(name);
    }

    /// Names of the parameters that autocast casts at every use, whatever reads them.
    pub fn cast_names(&self) -> &BTreeSet<String> {
        &self.cast
    }

    /// Notes that a normalisation of the previous layer's output is about to be created.
    pub(in crate::model) fn normalises(&mut self, name: &str, eps: f64) {
        if let Some(convolution) = self.made.last().and_then(|last| last.strip_suffix(".weight")) {
            let convolution = convolution.to_owned();
            self.pairs.push(ConvNormPair { convolution, normalisation: name.to_owned(), eps });
        }
    }

    /// Convolutions without a bias, each with the normalisation that follows it.
    pub fn pairs(&self) -> &[ConvNormPair] {
        &self.pairs
    }

    /// A tensor that belongs to the network and is not trained, as `register_buffer`.
    pub(in crate::model) fn buffer(&mut self, name: String, values: Tensor) -> Result<Tensor> {
        let tensor = self.place(values)?;
        self.buffers.push(Named { name, tensor: tensor.shallow_clone() });
        Ok(tensor)
    }

    /// Adds a tensor that exists already; a tensor that is registered under another name is added once.
    pub(in crate::model) fn bring(&mut self, name: String, mut tensor: Tensor, is_parameter: bool) -> Result<()> {
        let is_known = self.all().any(|named| named.tensor.data_ptr() == tensor.data_ptr() && tensor.numel() > 0);
        if is_known {
            return Ok(());
        }
        let placed = self.place(tensor.f_detach()?)?;
        if placed.data_ptr() != tensor.data_ptr() {
            tensor.f_set_data(&placed)?;
        }
        if is_parameter {
            self.made.push(name.clone());
            self.parameters.push(Named { name, tensor });
        } else {
            self.buffers.push(Named { name, tensor });
        }
        Ok(())
    }

    /// The device of all tensors.
    pub(in crate::model) fn device(&self) -> Device {
        self.device
    }

    /// The parameters that `keep` accepts; the handles are shared.
    pub fn only(&self, keep: impl Fn(&Named) -> bool) -> Weights {
        let kept = self.parameters.iter().filter(|named| keep(named));
        self.with(kept.map(shared).collect())
    }

    /// A copy with other tensors in place of the parameters, such as shards of them, by the same names.
    pub fn with(&self, parameters: Vec<Named>) -> Weights {
        let (device, format, buffers, count) = (self.device, self.format, Vec::new(), self.count);
        // The order of all parameters assigns each to a layer.
        let (made, blocks, pairs) = (self.made.clone(), self.blocks.clone(), self.pairs.clone());
        let (hooks, cast) = (BuildHooks::default(), self.cast.clone());
        Weights { device, format, hooks, parameters, buffers, made, blocks, cast, count, pairs }
    }

    /// The ranks over which batch statistics are computed.
    pub(in crate::model) fn sync_batch_norm(&self) -> Option<Rc<ProcessGroup>> {
        self.hooks.sync_batch_norm.clone()
    }

    fn place(&self, values: Tensor) -> Result<Tensor> {
        let values = values.f_to_device(self.device)?;
        match self.format {
            MemoryFormat::ChannelsLast if values.dim() == 4 => torch::channels_last(&values),
            MemoryFormat::ChannelsLast | MemoryFormat::Contiguous => Ok(values),
        }
    }

    /// Trained tensors, sorted by name.
    pub fn parameters(&self) -> &[Named] {
        &self.parameters
    }

    /// Names of the trained tensors, from the stem through the blocks to the head.
    pub fn in_order(&self) -> &[String] {
        &self.made
    }

    /// Names of the trained tensors of each block.
    pub fn by_block(&self) -> impl Iterator<Item = &[String]> {
        self.blocks.iter().map(|range| &self.made[range.clone()])
    }

    /// Tensors that are not trained, such as running statistics, sorted by name.
    pub fn buffers(&self) -> &[Named] {
        &self.buffers
    }

    /// Parameters, then buffers.
    pub fn all(&self) -> impl Iterator<Item = &Named> {
        self.parameters.iter().chain(&self.buffers)
    }

    /// Number of trained values, over all ranks that divide them.
    pub fn count(&self) -> u64 {
        self.count
    }
}

/// Another handle of the same tensor.
fn shared(named: &Named) -> Named {
    Named { name: named.name.clone(), tensor: named.tensor.shallow_clone() }
}
