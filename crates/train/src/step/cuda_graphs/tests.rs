//! Replays with a recorder that calls the recorded closure again: like a device, it executes nothing while it records,
//! uses the same addresses each time, and leaves the loss where the last one was.

use domain::train::{Adamw, MemoryFormat, Model, Optimizer as Rule, Recompute};
use tch::{Device, Kind};

use super::*;
use crate::model::{InputShape, ModelShape as NetworkShape, Network, OutputShape, TextShape};
use crate::optim::{GradScaler, ModelOptimizer};
use crate::ranks::Ranks;
use crate::step::precision::ComputeFormat;
use crate::step::profile::Timeline;
use crate::step::{StepConfig, TrainStep, timed_step};

struct Again;

struct Kept {
    parameters: Vec<Tensor>,
    loss: Tensor,
    gradients: Vec<Tensor>,
}

fn shared(tensors: &[Tensor]) -> Vec<Tensor> {
    tensors.iter().map(Tensor::shallow_clone).collect()
}

impl GraphRecorder for Again {
    fn record(&self, parameters: &[Tensor], _: &mut dyn FnMut() -> Result<Tensor>) -> Result<CapturedPasses> {
        assert!(gradients(parameters)?.iter().all(|gradient| !gradient.defined()), "a gradient would be added to");
        let loss = Tensor::f_full([0i64; 0], f64::NAN, (Kind::Float, Device::Cpu))?;
        let unset = |parameter: &Tensor| Ok(parameter.f_detach()?.f_full_like(f64::NAN)?);
        let gradients: Vec<Tensor> = parameters.iter().map(unset).collect::<Result<_>>()?;
        let kept = Kept { parameters: shared(parameters), loss: loss.shallow_clone(), gradients: shared(&gradients) };
        Ok(CapturedPasses { graph: Box::new(kept), loss, gradients })
    }
}

impl RecordedGraph for Kept {
    fn repeat(&self, work: &mut dyn FnMut() -> Result<Tensor>) -> Result<()> {
        let before = gradients(&self.parameters)?;
        torch::drop_gradients(&self.parameters)?;
        self.loss.shallow_clone().f_copy_(&work()?)?;
        let after = gradients(&self.parameters)?;
        if after.iter().all(Tensor::defined) {
            torch::copy(&self.gradients, &after)?;
        }
        torch::set_gradients(&self.parameters, &before)
    }
}

/// Has no memory for a graph, or cannot record what it is given.
struct Refuses {
    has_room: bool,
    why: &'static str,
}

impl GraphRecorder for Refuses {
    fn has_room(&self) -> Result<bool> {
        Ok(self.has_room)
    }

    fn record(&self, _: &[Tensor], work: &mut dyn FnMut() -> Result<Tensor>) -> Result<CapturedPasses> {
        work().and(Err(Error::new(self.why)))
    }
}

/// A batch of padded rows of 12 tokens, which differ in each step.
fn batch(model: Model, step: i64, count: i64) -> BatchTensors {
    let words = Tensor::arange(count * 12, (Kind::Int64, Device::Cpu)) * 7 + step * 13;
    let values = (words.remainder(49) + 1).view([count, 12]);
    let length = Tensor::arange(count, (Kind::Int64, Device::Cpu)).remainder(5) + 6;
    let is_word = Tensor::arange(12, (Kind::Int64, Device::Cpu)).unsqueeze(0).lt_tensor(&length.unsqueeze(1));
    let labels = match model {
        Model::GptTiny => values.where_self(&is_word, &Tensor::from(-100i64)),
        _ => (Tensor::arange(count, (Kind::Int64, Device::Cpu)) + step).remainder(3),
    };
    let share = BatchShare::all(count as usize);
    BatchTensors { values, mask: Some(is_word), labels, share, class_weights: None }
}

fn network(model: Model) -> Network {
    let output = if model == Model::GptTiny { OutputShape::Tokens } else { OutputShape::Classes(3) };
    let shape =
        NetworkShape { input: InputShape::Text(TextShape { vocabulary: 50, length: 12, separator: None }), output };
    Network::new(model, shape, 3, Device::Cpu, MemoryFormat::Contiguous).unwrap()
}

/// Losses of some steps, the last of each round over a smaller batch, and the weights afterwards.
fn train(
    model: Model,
    recipe: &StepConfig,
    clip_norm: Option<f64>,
    is_repeated: bool,
) -> (Vec<f64>, Vec<Tensor>, usize) {
    let _turn = torch::turn();
    let network = network(model);
    let rule = Rule::Adamw(Adamw { lr: 1e-3, betas: [0.9, 0.999], eps: 1e-8, weight_decay: 0.01 });
    let mut optimizer = ModelOptimizer::new(rule, network.weights()).unwrap();
    if recipe.format == ComputeFormat::Fp16 {
        optimizer = optimizer.scaled(GradScaler::new(Device::Cpu).unwrap());
    }
    let ranks = Ranks::alone();
    let mut repeated = is_repeated.then(|| CudaGraphRunner::by(Box::new(Again), network.weights()).unwrap());
    torch::seed(5).unwrap();
    let recipe = StepConfig { clip_norm, ..*recipe };
    let losses = (0..9).map(|step| {
        let batch = batch(model, step, if step % 4 == 3 { 5 } else { 8 });
        let learner =
            TrainStep { network: &network, optimizer: &mut optimizer, ranks: &ranks, cuda_graphs: repeated.as_mut() };
        timed_step(learner, &recipe, &batch, 1e-3 * (step + 1) as f64, &mut Timeline::off()).unwrap().loss
    });
    let losses = losses.collect();
    let recorded = repeated.map_or(0, |all| all.shapes.iter().filter(|shape| shape.fixed.is_some()).count());
    (losses, network.weights().all().map(|named| named.tensor.detach().copy()).collect(), recorded)
}

#[test]
fn repeated_passes_are_the_same_to_the_last_bit() {
    for (model, format, accumulate, clip_norm) in [
        (Model::BertMini, ComputeFormat::Fp16, 2, Some(0.5)),
        (Model::GptTiny, ComputeFormat::Bf16, 1, Some(1.0)),
        (Model::GptTiny, ComputeFormat::Fp32, 3, None),
    ] {
        let recompute = Recompute::None;
        let device = Device::Cpu;
        let recipe = StepConfig {
            device,
            format,
            accumulate,
            label_smoothing: 0.1,
            clip_norm: None,
            recompute,
            chunked_loss: false,
        };
        let (losses, weights, _) = train(model, &recipe, clip_norm, false);
        let (again, same, recorded) = train(model, &recipe, clip_norm, true);
        assert!(recorded > 0, "{model:?} {format:?}: nothing was repeated");
        assert_eq!(losses, again, "{model:?} {format:?} {accumulate}");
        assert!(weights.iter().zip(&same).all(|(one, other)| one.equal(other)), "{model:?} {format:?} {accumulate}");
    }
}

#[test]
fn more_shapes_than_are_kept_are_computed_as_usual() {
    let _turn = torch::turn();
    let network = network(Model::BertMini);
    let mut repeated = CudaGraphRunner::by(Box::new(Again), network.weights()).unwrap();
    let mut calls = 0;
    for round in 0..i64::from(FIRST) + 3 {
        for count in 1..=MOST as i64 + 2 {
            let part = batch(Model::BertMini, round, count);
            let mut passes = |part: &BatchTensors, _: Option<&Tensor>| {
                calls += 1;
                Ok(part.values.sum(Kind::Float))
            };
            let wanted = part.values.sum(Kind::Float);
            assert!(repeated.pass(&part, None, &mut passes).unwrap().equal(&wanted), "{round} {count}");
        }
    }
    assert_eq!((calls, repeated.shapes.len()), (6 * (MOST + 2), MOST));
}

#[test]
fn what_cannot_be_recorded_is_said_with_the_way_out() {
    let _turn = torch::turn();
    let network = network(Model::BertMini);
    let why = "operation not permitted when stream is capturing";
    let recorder = || Box::new(Refuses { has_room: true, why });
    let mut repeated = CudaGraphRunner::by(recorder(), network.weights()).unwrap();
    let part = batch(Model::BertMini, 0, 2);
    let mut passes = |part: &BatchTensors, _: Option<&Tensor>| Ok(part.values.sum(Kind::Float));
    for _ in 0..FIRST {
        let _ = repeated.pass(&part, None, &mut passes).unwrap();
    }
    let expected = "the passes of a step cannot be captured as a CUDA graph (write `cuda_graphs: false`): operation not permitted \
                    when stream is capturing";
    assert_eq!(repeated.pass(&part, None, &mut passes).unwrap_err().to_string(), expected);
    // What broke a capture is an error for every job; only memory is done without.
    let runner = CudaGraphRunner::by(recorder(), network.weights()).unwrap();
    let mut optional = CudaGraphRunner { is_required: false, ..runner };
    for _ in 0..FIRST {
        let _ = optional.pass(&part, None, &mut passes).unwrap();
    }
    assert_eq!(optional.pass(&part, None, &mut passes).unwrap_err().to_string(), expected);
}

#[test]
fn a_job_that_does_not_ask_for_graphs_goes_on_without() {
    let _turn = torch::turn();
    for (has_room, why) in [(true, "CUDA out of memory"), (false, "less than twice")] {
        let network = network(Model::BertMini);
        let runner =
            CudaGraphRunner::by(Box::new(Refuses { has_room, why: "CUDA out of memory" }), network.weights()).unwrap();
        let mut runner = CudaGraphRunner { is_required: false, ..runner };
        let part = batch(Model::BertMini, 0, 2);
        let mut passes = |part: &BatchTensors, _: Option<&Tensor>| Ok(part.values.sum(Kind::Float));
        for _ in 0..FIRST {
            let _ = runner.pass(&part, None, &mut passes).unwrap();
        }
        assert_eq!(runner.gave_up, None);
        for _ in 0..2 {
            assert!(runner.pass(&part, None, &mut passes).unwrap().equal(&part.values.sum(Kind::Float)));
        }
        let mut runner = Some(runner);
        let note = CudaGraphRunner::drop_if_given_up(&mut runner).unwrap();
        assert!(note.contains(why) && runner.is_none(), "{note}");
        assert_eq!(CudaGraphRunner::drop_if_given_up(&mut runner), None);
    }
}

#[test]
fn a_graph_leaves_room_for_passes_of_other_shapes() {
    let check = |current: u64, peak: u64, capacity: u64, expected: bool| {
        assert_eq!(leaves_room(DeviceMemory { current, peak, capacity }), expected, "{current} {peak} {capacity}");
    };
    check(10, 30, 80, true);
    check(10, 45, 80, true);
    check(10, 46, 80, false);
    check(10, 10, 10, true);
    check(30, 20, 10, true);
}

#[test]
fn nothing_is_recorded_without_a_device() {
    let _turn = torch::turn();
    assert!(CudaGraphRunner::on(Device::Cpu, network(Model::BertMini).weights()).unwrap().is_none());
}
