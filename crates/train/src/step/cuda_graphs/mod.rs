//! CUDA graphs: the passes of a step on a GPU, recorded once for each shape of a batch and then replayed with a single
//! launch, which avoids the launch overhead of every operation (`cuda_graphs`).
//!
//! On a GPU this is the default: on one H100 the step of a BERT-base took 2.3 times as long without (`docs/gpu.md`). Where
//! the job does not ask for it and memory is short, passes are launched kernel by kernel.
//!
//! A graph reads and writes fixed addresses. So a batch is copied to the buffers of the first of its shape, and the loss
//! is copied before the next pass. The gradients of a step with one micro-batch are those that the graph wrote; of
//! several they are added up outside it. Norms, scales and updates stay outside too: they are few, and learning rates
//! change.

use std::cell::OnceCell;
use std::rc::Rc;

use domain::train::Train;
use tch::Tensor;

use crate::model::Weights;
use crate::step::{BatchShare, BatchTensors};
use crate::torch::cuda::graph::{CudaGraph, CudaGraphLibrary};
use crate::torch::{self, DeviceMemory, Error, Result};

/// Passes that are made as usual before one is recorded: libraries choose their kernels and take their memory.
const FIRST: u32 = 3;
/// Maximum number of recorded shapes; batches of other shapes run without graphs.
const MOST: usize = 4;

/// Forward and backward pass of a micro-batch, with the number of target tokens in the complete batch, if known;
/// returns the loss.
pub type Passes<'a> = &'a mut dyn FnMut(&BatchTensors, Option<&Tensor>) -> Result<Tensor>;

/// Records operations of a device.
pub trait GraphRecorder {
    /// Whether passes of other shapes still find their memory when a graph keeps what its own need.
    ///
    /// # Errors
    /// Errors of the device.
    fn has_room(&self) -> Result<bool> {
        Ok(true)
    }

    /// Records `work`, which returns a loss and leaves gradients of `parameters`, without executing it. None of them has
    /// one before.
    ///
    /// # Errors
    /// Errors of `work`, or that it cannot be recorded.
    fn record(&self, parameters: &[Tensor], work: &mut dyn FnMut() -> Result<Tensor>) -> Result<CapturedPasses>;
}

/// What was recorded, and the tensors that hold the results of each replay.
pub struct CapturedPasses {
    graph: Box<dyn RecordedGraph>,
    loss: Tensor,
    gradients: Vec<Tensor>,
}

/// A recorded graph.
pub trait RecordedGraph {
    /// Replays it; `work` is the recorded closure.
    ///
    /// # Errors
    /// Errors of the device.
    fn repeat(&self, work: &mut dyn FnMut() -> Result<Tensor>) -> Result<()>;
}

/// A CUDA device.
struct Device {
    number: usize,
    library: CudaGraphLibrary,
    /// The first graph, whose memory pool all share.
    first: OnceCell<Rc<CudaGraph>>,
}

impl GraphRecorder for Device {
    fn has_room(&self) -> Result<bool> {
        Ok(leaves_room(torch::device_memory()?))
    }

    fn record(&self, parameters: &[Tensor], work: &mut dyn FnMut() -> Result<Tensor>) -> Result<CapturedPasses> {
        let (graph, loss) = self.library.record(self.number, self.first.get().map(Rc::as_ref), work)?;
        let graph = Rc::new(graph);
        self.first.get_or_init(|| Rc::clone(&graph));
        Ok(CapturedPasses { graph: Box::new(graph), loss, gradients: gradients(parameters)? })
    }
}

/// Whether the passes fit twice: what a graph keeps of them is of no use to batches of other shapes and to validation.
fn leaves_room(memory: DeviceMemory) -> bool {
    let DeviceMemory { current, peak, capacity } = memory;
    capacity.saturating_sub(current) >= 2 * peak.saturating_sub(current)
}

/// The gradients that parameters have.
fn gradients(parameters: &[Tensor]) -> Result<Vec<Tensor>> {
    Ok(parameters.iter().map(Tensor::f_grad).collect::<std::result::Result<_, _>>()?)
}

impl RecordedGraph for Rc<CudaGraph> {
    fn repeat(&self, _: &mut dyn FnMut() -> Result<Tensor>) -> Result<()> {
        CudaGraph::repeat(self)
    }
}

/// The recorded passes of one network.
pub struct CudaGraphRunner {
    recorder: Box<dyn GraphRecorder>,
    parameters: Vec<Tensor>,
    /// Sums of gradients over the micro-batches of a step; empty until one has several.
    sums: Vec<Tensor>,
    /// Whether the gradients of this step so far are a graph's own, which its next replay overwrites.
    are_lent: bool,
    shapes: Vec<Shape>,
    /// Whether the job asks for graphs, so that a failure to capture one is an error.
    is_required: bool,
    /// Why no more graphs are captured.
    gave_up: Option<String>,
}

/// The graphs of a job, or why there are none although its author would expect them.
#[derive(Default)]
pub struct JobGraphs {
    /// Where passes are captured.
    pub runner: Option<CudaGraphRunner>,
    /// Why they are not; `None` where nobody expects it.
    pub why_not: Option<&'static str>,
}

/// A shape that parts of batches have.
struct Shape {
    key: Key,
    passes: u32,
    fixed: Option<Fixed>,
}

/// The properties in which batches must agree to share a graph.
#[derive(Debug, Clone, PartialEq)]
struct Key {
    values: Vec<i64>,
    mask: Option<(Vec<i64>, tch::Kind)>,
    labels: (Vec<i64>, tch::Kind),
    share: BatchShare,
    has_target_count: bool,
}

/// A recorded pass, with its inputs and outputs.
struct Fixed {
    part: BatchTensors,
    target_count: Option<Tensor>,
    recorded: CapturedPasses,
}

impl CudaGraphRunner {
    /// Empty, for the CUDA device `device`; `None` if it is another kind of device, or the recording library was not
    /// found.
    pub fn on(device: tch::Device, weights: &Weights) -> Result<Option<CudaGraphRunner>> {
        match (device, CudaGraphLibrary::find()) {
            (tch::Device::Cuda(number), Some(library)) => {
                let first = OnceCell::new();
                CudaGraphRunner::by(Box::new(Device { number, library, first }), weights).map(Some)
            }
            (_, _) => Ok(None),
        }
    }

    /// The job's setting, or by default graphs wherever the passes can be captured.
    pub fn of(train: &Train, device: tch::Device, weights: &Weights, ranks: u32) -> Result<JobGraphs> {
        let why_not = match (train.cuda_graphs, device.is_cuda(), ranks) {
            (Some(false), _, _) | (None, false, _) => None,
            (None, true, _) if train.why_not_captured().is_some() => None,
            (Some(true), false, _) => Some("there is no CUDA device here"),
            (_, true, 1) => match CudaGraphRunner::on(device, weights)? {
                Some(runner) => {
                    let is_required = train.cuda_graphs.is_some();
                    return Ok(JobGraphs { runner: Some(CudaGraphRunner { is_required, ..runner }), why_not: None });
                }
                None => Some("`libgradus-cuda.so` is not beside `gradus-rank` (`cargo xtask cuda` builds it)"),
            },
            (None, true, _) => None,
            (Some(true), true, _) => Some("several ranks exchange gradients during the backward pass"),
        };
        Ok(JobGraphs { runner: None, why_not })
    }

    /// Why passes are no longer captured, since an attempt failed; there is no runner then any more.
    pub fn drop_if_given_up(runner: &mut Option<CudaGraphRunner>) -> Option<String> {
        let why = runner.as_ref()?.gave_up.clone()?;
        *runner = None;
        Some(format!("steps run without CUDA graphs: {why}"))
    }

    /// The same, recorded by `recorder`.
    pub fn by(recorder: Box<dyn GraphRecorder>, weights: &Weights) -> Result<CudaGraphRunner> {
        let trained = weights.parameters().iter().filter(|named| named.tensor.requires_grad());
        let parameters: Vec<Tensor> = trained.map(|named| named.tensor.shallow_clone()).collect();
        let (sums, shapes) = (Vec::new(), Vec::new());
        Ok(CudaGraphRunner { recorder, parameters, sums, are_lent: false, shapes, is_required: true, gave_up: None })
    }

    /// To be called before the first pass of a step: there are no gradients.
    pub fn begin(&mut self) -> Result<()> {
        self.are_lent = false;
        torch::drop_gradients(&self.parameters)
    }

    /// Both passes of one micro-batch, directly or by replaying a graph; returns the loss.
    pub fn pass(&mut self, part: &BatchTensors, target_count: Option<&Tensor>, passes: Passes) -> Result<Tensor> {
        if self.gave_up.is_some() {
            return passes(part, target_count);
        }
        let Some(shape) = known(&mut self.shapes, part, target_count) else { return passes(part, target_count) };
        shape.passes += 1;
        if shape.passes <= FIRST {
            return passes(part, target_count);
        }
        if shape.fixed.is_none() {
            if !self.is_required && !self.recorder.has_room()? {
                self.give_up("the device has less than twice the memory that the passes need".to_owned());
                return passes(part, target_count);
            }
            match Fixed::record(self.recorder.as_ref(), &self.parameters, part, target_count, passes) {
                Ok(fixed) => shape.fixed = Some(fixed),
                Err(error) if self.is_required || !error.is_out_of_memory() => {
                    // Not as memory that ran out: the passes themselves fit.
                    let why = match error.is_out_of_memory() {
                        true => "the device has no memory for it beside the passes".to_owned(),
                        false => error.to_string(),
                    };
                    let message =
                        "the passes of a step cannot be captured as a CUDA graph (write `cuda_graphs: false`)";
                    return Err(Error::new(format!("{message}: {why}")));
                }
                Err(error) => {
                    self.give_up(error.to_string());
                    return passes(part, target_count);
                }
            }
        }
        let Some(fixed) = &shape.fixed else { return passes(part, target_count) };
        if std::mem::take(&mut self.are_lent) {
            keep_sums(&self.parameters, &mut self.sums)?;
        }
        let loss = fixed.replay(part, target_count, passes)?;
        self.are_lent = hand_over(&self.parameters, &fixed.recorded.gradients)?;
        Ok(loss)
    }

    /// Captures no more, and gives the memory of the graphs so far back.
    fn give_up(&mut self, why: String) {
        self.gave_up = Some(why);
        self.shapes.clear();
    }
}

/// The state of micro-batches of this shape; `None` if there are too many shapes.
fn known<'a>(shapes: &'a mut Vec<Shape>, part: &BatchTensors, target_count: Option<&Tensor>) -> Option<&'a mut Shape> {
    let key = Key::of(part, target_count);
    let place = match shapes.iter().position(|shape| shape.key == key) {
        Some(place) => place,
        None if shapes.len() < MOST => {
            shapes.push(Shape { key, passes: 0, fixed: None });
            shapes.len() - 1
        }
        None => return None,
    };
    shapes.get_mut(place)
}

impl Key {
    fn of(part: &BatchTensors, target_count: Option<&Tensor>) -> Key {
        Key {
            values: part.values.size(),
            mask: part.mask.as_ref().map(|mask| (mask.size(), mask.kind())),
            labels: (part.labels.size(), part.labels.kind()),
            share: part.share,
            has_target_count: target_count.is_some(),
        }
    }
}

impl Fixed {
    /// Records the passes of a micro-batch, without making them.
    fn record(
        recorder: &dyn GraphRecorder,
        parameters: &[Tensor],
        part: &BatchTensors,
        target_count: Option<&Tensor>,
        passes: Passes,
    ) -> Result<Fixed> {
        let (part, target_count) = (part.copied()?, target_count.map(torch::copied).transpose()?);
        // Of micro-batches before this one.
        let before = gradients(parameters)?;
        torch::drop_gradients(parameters)?;
        let recorded = recorder.record(parameters, &mut || passes(&part, target_count.as_ref()));
        torch::set_gradients(parameters, &before)?;
        let recorded = recorded?;
        match recorded.gradients.iter().all(Tensor::defined) {
            true => Ok(Fixed { part, target_count, recorded }),
            false => Err(Error::new("a parameter has no part in the loss")),
        }
    }

    /// Replays the graph for other values; returns the loss.
    fn replay(&self, part: &BatchTensors, target_count: Option<&Tensor>, passes: Passes) -> Result<Tensor> {
        self.part.take(part)?;
        if let (Some(mine), Some(target_count)) = (&self.target_count, target_count) {
            mine.shallow_clone().f_copy_(target_count)?;
        }
        self.recorded.graph.repeat(&mut || passes(&self.part, self.target_count.as_ref()))?;
        // The next pass writes to the same address.
        torch::copied(&self.recorded.loss)
    }
}

/// Moves the gradients, which are a graph's own, to where no replay overwrites them.
fn keep_sums(parameters: &[Tensor], sums: &mut Vec<Tensor>) -> Result<()> {
    let lent = gradients(parameters)?;
    match sums.is_empty() {
        true => *sums = lent.iter().map(torch::copied).collect::<Result<_>>()?,
        false => torch::copy(sums, &lent)?,
    }
    torch::set_gradients(parameters, sums)
}

/// Adds what a graph wrote to the gradients; where there are none, it becomes them. Returns whether it did.
fn hand_over(parameters: &[Tensor], written: &[Tensor]) -> Result<bool> {
    let before = gradients(parameters)?;
    if before.iter().all(Tensor::defined) {
        return torch::add(&before, written).map(|()| false);
    }
    torch::set_gradients(parameters, written).map(|()| true)
}

#[cfg(test)]
mod tests;
