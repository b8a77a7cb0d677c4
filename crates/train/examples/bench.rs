//! Our side of `cargo xtask bench`: the bare step function and the snapshot, timed in blocks on demand.
//!
//! One argument describes the case as JSON; each line on stdin asks for one block, and one line of JSON answers it:
//! `steps 10` times ten steps on a batch that stays the same, `snapshots 5` five snapshots and five plain copies of as
//! many bytes. Between the blocks the process sleeps, so that another program can be measured in turn with this one;
//! `benches/peers/torch_step.py` understands the same case and `steps N`.

use std::error::Error;
use std::hint::black_box;
use std::io::BufRead;
use std::time::Instant;

use domain::train::{MemoryFormat, Train};
use serde::Deserialize;
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};
use train::model::Shape;
use train::ranks::Ranks;
use train::state::Trainer;
use train::step::{Of, Recipe, Samples, step};
use train::torch;

/// What is timed: a job's `train:` section, and what would come from its data and its machine.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    train: Train,
    size: i64,
    classes: i64,
    threads: u32,
}

/// A trainer, and the batch it is given again and again.
struct Bench {
    trainer: Trainer,
    recipe: Recipe,
    batch: Samples,
    lr: f64,
}

fn main() -> Result<(), Box<dyn Error>> {
    // As `gradus-rank` begins.
    torch::open_cuda();
    torch::steady_allocator();
    let case: Case = serde_json::from_str(&std::env::args().nth(1).ok_or("give a case as JSON")?)?;
    let device = if tch::Cuda::is_available() { Device::Cuda(0) } else { Device::Cpu };
    torch::set_threads(case.threads);
    torch::set_deterministic(case.train.deterministic)?;
    let mut bench = Bench::new(&case, device)?;
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let mut answer = match line.split_once(' ') {
            Some(("steps", count)) => bench.steps(count.parse()?)?,
            Some(("snapshots", count)) => bench.snapshots(count.parse()?)?,
            Some(_) | None => return Err(format!("`{line}` is not understood").into()),
        };
        answer["peak_bytes"] = json!(torch::peak_memory()?.host);
        println!("{answer}");
    }
    Ok(())
}

impl Bench {
    fn new(case: &Case, device: Device) -> Result<Bench, Box<dyn Error>> {
        let shape = Shape::pictures([3, case.size, case.size], case.classes);
        let trainer = Trainer::fresh(&case.train, shape, device, case.threads, &mut Ranks::alone())?;
        let count = i64::from(case.train.batch);
        let mut images = Tensor::f_randn([count, 3, case.size, case.size], (Kind::Float, device))?;
        if case.train.memory_format == MemoryFormat::ChannelsLast {
            images = torch::channels_last(&images)?;
        }
        let labels = Tensor::f_arange(count, (Kind::Int64, device))?.f_remainder(case.classes)?;
        let lr = trainer.optimizer.base_rate();
        let recipe = Recipe::of(&case.train, device);
        Ok(Bench {
            trainer,
            recipe,
            batch: Samples { values: images, mask: None, labels, of: Of::all(count as usize) },
            lr,
        })
    }

    fn step(&mut self) -> Result<f64, torch::Error> {
        step(&self.trainer.network, &mut self.trainer.optimizer, &self.recipe, &self.batch, self.lr, &Ranks::alone())
    }

    /// Seconds of each step.
    fn steps(&mut self, count: usize) -> Result<Value, Box<dyn Error>> {
        let (mut seconds, mut loss) = (Vec::with_capacity(count), 0.0);
        for _ in 0..count {
            let began = Instant::now();
            loss = self.step()?;
            seconds.push(began.elapsed().as_secs_f64());
        }
        Ok(json!({"seconds": seconds, "loss": loss}))
    }

    /// Seconds of each snapshot, and of each copy of as many bytes from one block of memory to another.
    ///
    /// A step comes before each, as in a run, so that neither finds its bytes in the cache because of the other. All
    /// memory was written to before: a run copies into the memory of the snapshot before last.
    fn snapshots(&mut self, count: usize) -> Result<Value, Box<dyn Error>> {
        let began = Instant::now();
        let first = self.trainer.snapshot(None, &Ranks::alone())?.ok_or("the first rank has a snapshot")?;
        let fresh_seconds = began.elapsed().as_secs_f64();
        let bytes: usize = first.model.iter().chain(&first.training).map(|tensor| tensor.bytes.len()).sum();
        let (mut spare, from, mut to) = (Some(first), vec![1u8; bytes], vec![2u8; bytes]);
        let (mut snapshots, mut copies) = (Vec::new(), Vec::new());
        for _ in 0..count {
            self.step()?;
            let began = Instant::now();
            spare = self.trainer.snapshot(spare, &Ranks::alone())?;
            snapshots.push(began.elapsed().as_secs_f64());
            self.step()?;
            let began = Instant::now();
            to.copy_from_slice(black_box(&from));
            copies.push(began.elapsed().as_secs_f64());
            black_box(&mut to);
        }
        Ok(json!({"snapshots": snapshots, "copies": copies, "bytes": bytes, "fresh_seconds": fresh_seconds}))
    }
}
