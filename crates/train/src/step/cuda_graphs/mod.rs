//! CUDA graphs: the passes of a step on a GPU, recorded once for each shape of a batch and then replayed with a single
//! launch, which avoids the launch overhead of every operation (`cuda_graphs`).
//!
//! A graph reads and writes fixed addresses. So a batch is copied to the buffers of the first of its shape, gradients
//! are zeroed and accumulated in place, and the loss is copied before the next pass. Norms, scales and updates stay
//! outside: they are few, and learning rates change.

use std::cell::OnceCell;
use std::rc::Rc;

use domain::train::Train;
use tch::Tensor;

use crate::model::Weights;
use crate::step::{BatchShare, BatchTensors};
use crate::torch::graph::{CudaGraph, CudaGraphLibrary};
use crate::torch::{self, Error, Result};

/// Passes that are made as usual before one is recorded: libraries choose their kernels and take their memory.
const FIRST: u32 = 3;
/// Maximum number of recorded shapes; batches of other shapes run without graphs.
const MOST: usize = 4;

/// Forward and backward pass of a micro-batch, with the number of target tokens in the complete batch, if known;
/// returns the loss.
pub type Passes<'a> = &'a mut dyn FnMut(&BatchTensors, Option<&Tensor>) -> Result<Tensor>;

/// Records operations of a device.
pub trait GraphRecorder {
    /// Records `work` without executing it. Returns the tensor that holds the result of each replay.
    ///
    /// # Errors
    /// Errors of `work`, or that it cannot be recorded.
    fn record(&self, work: &mut dyn FnMut() -> Result<Tensor>) -> Result<(Box<dyn RecordedGraph>, Tensor)>;
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
    fn record(&self, work: &mut dyn FnMut() -> Result<Tensor>) -> Result<(Box<dyn RecordedGraph>, Tensor)> {
        let (graph, result) = self.library.record(self.number, self.first.get().map(Rc::as_ref), work)?;
        let graph = Rc::new(graph);
        self.first.get_or_init(|| Rc::clone(&graph));
        Ok((Box::new(graph), result))
    }
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
    /// Gradients of each parameter, at fixed addresses.
    gradients: Vec<Tensor>,
    shapes: Vec<Shape>,
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
    loss: Tensor,
    recording: Box<dyn RecordedGraph>,
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

    /// The job's setting, as far as it is supported for the number of ranks; and why not otherwise.
    pub fn asked(
        train: &Train,
        device: tch::Device,
        weights: &Weights,
        ranks: u32,
    ) -> Result<(Option<CudaGraphRunner>, Option<&'static str>)> {
        let why = match (device.is_cuda(), ranks) {
            _ if !train.cuda_graphs => return Ok((None, None)),
            (false, _) => "there is no CUDA device here",
            (true, 1) => match CudaGraphRunner::on(device, weights)? {
                Some(repeated) => return Ok((Some(repeated), None)),
                None => "`libgradus-cuda.so` is not beside `gradus-rank` (`cargo xtask cuda` builds it)",
            },
            (true, _) => "several ranks exchange gradients during the backward pass",
        };
        Ok((None, Some(why)))
    }

    /// The same, recorded by `recorder`.
    pub fn by(recorder: Box<dyn GraphRecorder>, weights: &Weights) -> Result<CudaGraphRunner> {
        let trained = weights.parameters().iter().filter(|named| named.tensor.requires_grad());
        let parameters: Vec<Tensor> = trained.map(|named| named.tensor.shallow_clone()).collect();
        let zeros = |parameter: &Tensor| Ok(parameter.f_detach()?.f_zeros_like()?);
        let gradients = parameters.iter().map(zeros).collect::<Result<_>>()?;
        Ok(CudaGraphRunner { recorder, parameters, gradients, shapes: Vec::new() })
    }

    /// To be called before the first pass of a step: gradients begin at zero.
    pub fn begin(&self) -> Result<()> {
        torch::zero(&self.gradients)?;
        torch::set_gradients(&self.parameters, &self.gradients)
    }

    /// Both passes of one micro-batch, directly or by replaying a graph; returns the loss.
    pub fn pass(&mut self, part: &BatchTensors, target_count: Option<&Tensor>, passes: Passes) -> Result<Tensor> {
        let CudaGraphRunner { recorder, shapes, .. } = self;
        let Some(shape) = known(shapes, part, target_count) else { return passes(part, target_count) };
        shape.passes += 1;
        if shape.passes <= FIRST {
            return passes(part, target_count);
        }
        if shape.fixed.is_none() {
            let (part, target_count) = (part.copied()?, target_count.map(torch::copied).transpose()?);
            let recorded = recorder.record(&mut || passes(&part, target_count.as_ref()));
            let (recording, loss) = recorded.map_err(|error| {
                Error::new(format!("the passes of a step cannot be recorded (leave `cuda_graphs` out): {error}"))
            })?;
            shape.fixed = Some(Fixed { part, target_count, loss, recording });
        }
        match &shape.fixed {
            Some(fixed) => fixed.pass(part, target_count, passes),
            None => passes(part, target_count),
        }
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
    /// Replays the graph for other values.
    fn pass(&self, part: &BatchTensors, target_count: Option<&Tensor>, passes: Passes) -> Result<Tensor> {
        self.part.take(part)?;
        if let (Some(mine), Some(target_count)) = (&self.target_count, target_count) {
            mine.shallow_clone().f_copy_(target_count)?;
        }
        self.recording.repeat(&mut || passes(&self.part, self.target_count.as_ref()))?;
        // The next pass writes to the same address.
        torch::copied(&self.loss)
    }
}

#[cfg(test)]
mod tests;
