//! Times the bare step function on one batch that stays the same: what a run's step, and PyTorch's, are held against.
//!
//! `cargo run --release -p gradus-train --example step_time -- '{"model": "resnet18", "batch": 32, "size": 32, …}'`
//! prints one JSON line with the microseconds of every step after the warm-up.

use std::time::Instant;

use domain::train::{Data, MemoryFormat, Model, Optimizer, Precision, Train};
use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};
use train::model::{Network, Shape};
use train::optim;
use train::step::{Recipe, Samples, step};
use train::torch;

/// What is timed.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    model: Model,
    batch: u32,
    size: i64,
    #[serde(default)]
    precision: Precision,
    #[serde(default)]
    memory_format: MemoryFormat,
    optimizer: Optimizer,
    threads: u32,
    warmup: u32,
    steps: u32,
}

#[derive(Debug, Serialize)]
struct Times {
    step_us: Vec<u64>,
    last_loss: f64,
    peak_bytes: u64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    torch::open_cuda();
    torch::steady_allocator();
    let case: Case = serde_json::from_str(&std::env::args().nth(1).ok_or("give a case as JSON")?)?;
    let device = if tch::Cuda::is_available() { Device::Cuda(0) } else { Device::Cpu };
    torch::set_threads(case.threads);
    torch::set_deterministic(true)?;
    let train = Train {
        model: case.model,
        data: Data {
            path: String::new(),
            split: Default::default(),
            classes: None,
            augment: Vec::new(),
            normalize: None,
            size: None,
            corrupt: Default::default(),
            workers: 1,
        },
        epochs: 1,
        batch: case.batch,
        accumulate: 1,
        precision: case.precision,
        optimizer: case.optimizer,
        schedule: Default::default(),
        label_smoothing: 0.0,
        clip_norm: None,
        memory_format: case.memory_format,
        seed: 0,
        threads: Some(case.threads),
        deterministic: true,
        stop: None,
        checkpoint: Default::default(),
    };
    let shape = Shape { channels: 3, height: case.size, width: case.size, classes: 10 };
    let network = Network::new(case.model, shape, 0, device, case.memory_format)?;
    let mut optimizer = optim::Optimizer::new(case.optimizer, network.weights())?;
    let recipe = Recipe::of(&train, device);
    let batch = i64::from(case.batch);
    let mut images = Tensor::f_randn([batch, 3, case.size, case.size], (Kind::Float, device))?;
    if case.memory_format == MemoryFormat::ChannelsLast {
        images = torch::channels_last(&images)?;
    }
    let labels = Tensor::f_arange(batch, (Kind::Int64, device))?.f_remainder(10)?;
    let samples = Samples { images, labels };

    let lr = optimizer.base_rate();
    let mut times = Times { step_us: Vec::new(), last_loss: 0.0, peak_bytes: 0 };
    for number in 0..case.warmup + case.steps {
        let began = Instant::now();
        times.last_loss = step(&network, &mut optimizer, &recipe, &samples, lr)?;
        if number >= case.warmup {
            times.step_us.push(began.elapsed().as_micros() as u64);
        }
    }
    times.peak_bytes = torch::peak_memory()?.host;
    println!("{}", serde_json::to_string(&times)?);
    Ok(())
}
