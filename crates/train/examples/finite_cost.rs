//! Prints the cost per step of checking that gradients are finite, as a share of the step, and the cost of checking all
//! values of a checkpoint.
//!
//! `cargo run --release -p gradus-train --example finite_cost -- [THREADS]`
//!
//! Rounds alternate: one makes a step with AdamW and without clipping, which computes the norm of all gradients only
//! for the check; the other computes that norm of as many values once more.

use std::error::Error;
use std::time::Instant;

use domain::train::Train;
use serde_json::json;
use tch::{Device, Kind, Tensor};
use train::model::{ImageShape, InputShape, ModelShape, OutputShape, TextShape};
use train::ranks::Ranks;
use train::state::Trainer;
use train::step::{BatchShare, BatchTensors, StepConfig, step};
use train::torch;

const ROUNDS: usize = 9;

fn main() -> Result<(), Box<dyn Error>> {
    let threads = std::env::args().nth(1).map_or(Ok(1), |text| text.parse())?;
    torch::set_threads(threads);
    for (model, batch, size) in [("resnet18", 32, 64), ("resnet50", 8, 224), ("gpt_tiny", 8, 256), ("gpt2", 2, 256)] {
        measure(model, batch, size)?;
    }
    Ok(())
}

/// Images of `size` pixels, or `size` tokens.
fn measure(model: &str, batch: i64, size: i64) -> Result<(), Box<dyn Error>> {
    let is_text = model.starts_with("gpt");
    let train: Train = serde_json::from_value(json!({
        "model": model, "data": {"path": "none"}, "epochs": 1, "batch": batch, "optimizer": {"adamw": {"lr": 1e-4}},
    }))?;
    let cpu = |kind| (kind, Device::Cpu);
    let (shape, values, labels) = if is_text {
        let tokens = Tensor::f_randint(2000, [batch, size], cpu(Kind::Int64))?;
        let input = InputShape::Text(TextShape { vocabulary: 2000, length: size, separator: None });
        (ModelShape { input, output: OutputShape::Tokens }, tokens.shallow_clone(), tokens)
    } else {
        let input = InputShape::Image(ImageShape { channels: 3, height: size, width: size });
        let values = Tensor::f_randn([batch, 3, size, size], cpu(Kind::Float))?;
        (
            ModelShape { input, output: OutputShape::Classes(10) },
            values,
            Tensor::f_randint(10, [batch], cpu(Kind::Int64))?,
        )
    };
    let mut trainer = Trainer::fresh(&train, shape, Device::Cpu, 1, &mut Ranks::alone())?;
    let config = StepConfig::of(&train, Device::Cpu);
    let share = BatchShare::all(batch as usize);
    let batch = BatchTensors { values, mask: None, labels, share, class_weights: None };
    let parameters = trainer.network.weights().parameters().iter();
    let gradients: Vec<Tensor> = parameters.map(|named| named.tensor.f_randn_like()).collect::<Result<_, _>>()?;
    let (mut steps, mut norms) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        let began = Instant::now();
        step(&trainer.network, &mut trainer.optimizer, &config, &batch, 1e-4, &Ranks::alone())?;
        steps.push(began.elapsed().as_secs_f64());
        let began = Instant::now();
        assert!(torch::gradient_norm(&gradients)?.f_double_value(&[])?.is_finite());
        norms.push(began.elapsed().as_secs_f64());
    }
    let began = Instant::now();
    trainer.is_finite(&Ranks::alone())?;
    let state = began.elapsed().as_secs_f64() * 1e3;
    let [step, norm] = [steps, norms].map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[ROUNDS / 2] * 1e3
    });
    let share = norm / step * 100.0;
    println!(
        "{model}: step {step:.1} ms, gradients {norm:.2} ms ({share:.2} %), the state at a checkpoint {state:.1} ms"
    );
    Ok(())
}
