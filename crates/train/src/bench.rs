//! Benchmarks of the step function and the snapshot, in blocks on demand: `gradus-rank bench CASE`.
//!
//! One argument describes the case as JSON; each line on stdin requests one block, and one line of JSON answers it:
//! `steps 10` times ten steps on a fixed batch, `fed 10` ten steps whose batch is copied from the host before each,
//! `kernels 3` lists what three steps execute, `snapshots 5` times five snapshots and five plain copies of as many bytes.
//! With several `processes`, the first one starts the others and forwards each request to them; `apart 10` times steps
//! whose gradients are exchanged after the backward pass. Between the blocks the process sleeps, so that another
//! program can be measured alternately; `benches/peers/torch_step.py` supports the same case and `steps N`. `gradus
//! bench train` sends one request.

use std::collections::VecDeque;
use std::error::Error;
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use domain::rank::Rendezvous;
use domain::train::{MemoryFormat, Task, Train};
use serde::Deserialize;
use serde_json::{Value, json};
use tch::{Device, Kind, Tensor};

use crate::detect::{self, GroundTruth};
use crate::model::{ImageShape, InputShape, ModelShape, OutputShape, TextShape};
use crate::ranks::Ranks;
use crate::run::{environment_of, lag};
use crate::state::Trainer;
use crate::step::cuda_graphs::CudaGraphRunner;
use crate::step::profile::Timeline;
use crate::step::{BatchShare, BatchTensors, PendingStep, StepConfig, TrainStep, begin_step};
use crate::torch;

/// The case: a job's `train:` section, and the properties of its data and machine.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Case {
    train: Train,
    /// Height and width of images, in pixels.
    #[serde(default)]
    size: i64,
    /// Size of the vocabulary of texts.
    #[serde(default)]
    vocabulary: i64,
    classes: i64,
    threads: u32,
    /// Which of several processes this is, and the port of their rendezvous, which the first one gives to the others.
    #[serde(default)]
    rank: u32,
    #[serde(default)]
    port: u16,
    /// Number of large matrix products that are timed once, first; none by default.
    #[serde(default)]
    products: usize,
}

/// A trainer, and the batch it is given again and again.
struct Bench {
    ranks: Ranks,
    trainer: Trainer,
    config: StepConfig,
    batch: BatchTensors,
    lr: f64,
    cuda_graphs: Option<CudaGraphRunner>,
}

/// Answers requests until end of input.
///
/// # Errors
/// An invalid case, or an unknown request.
pub fn answer(case: &str, device: Device, requests: impl BufRead, mut to: impl Write) -> Result<(), Box<dyn Error>> {
    let text = case;
    let mut case: Case = serde_json::from_str(text)?;
    let mut others = if case.rank == 0 { Others::start(&mut case, text)? } else { Others::default() };
    torch::set_threads(case.threads);
    torch::set_deterministic(case.train.deterministic)?;
    let mut bench = Bench::new(&case, device)?;
    let matmul_flops = if case.products > 0 { Some(bench.products(case.products)?) } else { None };
    for line in requests.lines() {
        let line = line?;
        others.ask(&line)?;
        let mut answer = match line.split_once(' ') {
            Some(("steps", count)) => bench.steps(count.parse()?, false)?,
            Some(("apart", count)) => bench.steps(count.parse()?, true)?,
            Some(("fed", count)) => bench.fed(count.parse()?)?,
            Some(("kernels", count)) => bench.kernels(count.parse()?)?,
            Some(("snapshots", count)) => bench.snapshots(count.parse()?)?,
            Some(_) | None => return Err(format!("`{line}` is not understood").into()),
        };
        answer["peak_bytes"] = json!(torch::peak_memory()?.largest());
        answer["parameters"] = json!(bench.trainer.network.weights().count());
        answer["environment"] = json!(environment_of(case.threads, &bench.config, &torch::version()?));
        if let Some(flops) = matmul_flops {
            answer["matmul_flops"] = json!(flops);
        }
        writeln!(to, "{answer}")?;
        to.flush()?;
    }
    others.end()
}

/// How long ranks wait for each other.
const PATIENCE_S: u64 = 60;

/// The processes besides the first.
#[derive(Default)]
struct Others(Vec<Child>);

impl Others {
    /// Starts as many processes as the case specifies.
    fn start(case: &mut Case, text: &str) -> Result<Others, Box<dyn Error>> {
        let mut others = Others::default();
        if case.train.processes > 1 {
            // Free again, and unlikely to be reused within the moment.
            case.port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
        }
        for rank in 1..case.train.processes {
            let mut theirs: Value = serde_json::from_str(text)?;
            (theirs["rank"], theirs["port"]) = (json!(rank), json!(case.port));
            let mut command = Command::new(std::env::current_exe()?);
            command.arg("bench").arg(theirs.to_string()).stdin(Stdio::piped()).stdout(Stdio::null());
            others.0.push(command.spawn()?);
        }
        Ok(others)
    }

    fn ask(&mut self, line: &str) -> Result<(), Box<dyn Error>> {
        for input in self.0.iter_mut().filter_map(|child| child.stdin.as_mut()) {
            writeln!(input, "{line}")?;
            input.flush()?;
        }
        Ok(())
    }

    fn end(mut self) -> Result<(), Box<dyn Error>> {
        for mut child in self.0.drain(..) {
            drop(child.stdin.take());
            if !child.wait()?.success() {
                return Err("another rank failed; its own output says why".into());
            }
        }
        Ok(())
    }
}

/// Dropping it ends the other processes too.
impl Drop for Others {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Case {
    fn shape(&self) -> ModelShape {
        let input = match self.train.task() {
            Task::ImageClassification | Task::ObjectDetection => {
                InputShape::Image(ImageShape { channels: 3, height: self.size, width: self.size })
            }
            Task::TextClassification | Task::MaskedLanguageModel | Task::LanguageModel => {
                let length = self.train.data.text.as_ref().map_or(0, |text| i64::from(text.length));
                InputShape::Text(TextShape { vocabulary: self.vocabulary, length, separator: None })
            }
        };
        let output = match self.train.task() {
            Task::ObjectDetection => OutputShape::Boxes(self.classes),
            Task::ImageClassification | Task::TextClassification => OutputShape::Classes(self.classes),
            Task::MaskedLanguageModel | Task::LanguageModel => OutputShape::Tokens,
        };
        ModelShape { input, output }
    }

    /// This rank's share of a batch of random samples; texts have no padding.
    fn samples(&self, device: Device, ranks: &Ranks) -> Result<BatchTensors, torch::Error> {
        let batch = u64::from(self.train.batch);
        let count = ranks.share().most(batch) as i64;
        let share = BatchShare { counted: count as usize, whole: batch as usize };
        let classes = Tensor::f_arange(count, (Kind::Int64, device))?.f_remainder(self.classes.max(1))?;
        match self.shape().input {
            InputShape::Image(ImageShape { channels, height, width }) => {
                let mut values = Tensor::f_randn([count, channels, height, width], (Kind::Float, device))?;
                if self.train.memory_format == Some(MemoryFormat::ChannelsLast) {
                    values = torch::channels_last(&values)?;
                }
                let labels = match self.shape().output {
                    OutputShape::Classes(_) | OutputShape::Labels(_) | OutputShape::Number | OutputShape::Tokens => {
                        classes
                    }
                    OutputShape::Boxes(_) => {
                        // One object in the middle of each, half as wide and high.
                        let [width, height] = [width as f32, height as f32];
                        let edges = [width / 4.0, height / 4.0, width * 0.75, height * 0.75];
                        let truth =
                            |number: i64| vec![GroundTruth { class: (number % self.classes.max(1)) as u32, edges }];
                        detect::ground_truth_tensor(&(0..count).map(truth).collect::<Vec<_>>(), device)?
                    }
                };
                Ok(BatchTensors { values, mask: None, labels, share, class_weights: None })
            }
            InputShape::Text(TextShape { vocabulary, length, .. }) => {
                let values = Tensor::f_randint_low(1, vocabulary, [count, length], (Kind::Int64, device))?;
                let labels = match self.shape().output {
                    OutputShape::Tokens => values.shallow_clone(),
                    OutputShape::Classes(_) | OutputShape::Labels(_) | OutputShape::Number => classes,
                    OutputShape::Boxes(_) => classes,
                };
                Ok(BatchTensors { values, mask: None, labels, share, class_weights: None })
            }
        }
    }
}

impl Bench {
    fn new(case: &Case, device: Device) -> Result<Bench, Box<dyn Error>> {
        let config = StepConfig::of(&case.train, device);
        config.format.settle(device)?;
        let (host, port, local_rank) = ("127.0.0.1".to_owned(), case.port, case.rank);
        let prefix = String::new();
        let meeting = Rendezvous { host, port, local_rank, is_kept: false, patience_s: PATIENCE_S, prefix };
        let mut ranks = Ranks::join(case.rank, case.train.processes, Some(&meeting), case.train.parallel)?;
        let mut trainer = Trainer::fresh(&case.train, case.shape(), device, case.threads, &mut ranks)?;
        ranks.hook(&trainer.network, case.train.parallel)?;
        trainer.optimizer.defer(lag(device) > 0);
        let (lr, batch) = (trainer.optimizer.base_rate(), case.samples(device, &ranks)?);
        let graphs = CudaGraphRunner::of(&case.train, device, trainer.network.weights(), ranks.size())?;
        if let (Some(true), Some(why)) = (case.train.cuda_graphs, graphs.why_not) {
            return Err(format!("no CUDA graph is captured: {why}\n  hint: leave `--cuda-graphs` out").into());
        }
        let cuda_graphs = graphs.runner;
        Ok(Bench { ranks, trainer, config, batch, lr, cuda_graphs })
    }

    fn step(&mut self) -> Result<PendingStep, torch::Error> {
        let Trainer { network, optimizer, .. } = &mut self.trainer;
        let learner = TrainStep { network, optimizer, ranks: &self.ranks, cuda_graphs: self.cuda_graphs.as_mut() };
        begin_step(learner, &self.config, &self.batch, self.lr, &mut Timeline::off())
    }

    /// Seconds of each step; with gradients that are exchanged `apart` from the backward pass, or during it. On a device
    /// that is read late, as in a run, each step of a block is said to take as long as any other, and `host_seconds` how
    /// long the host took to name a step's operations.
    fn steps(&mut self, count: usize, apart: bool) -> Result<Value, Box<dyn Error>> {
        self.ranks.wait_with_gradients(apart);
        self.timed(count, None)
    }

    /// The same with the batch copied from the host before each step, as a run copies what its loader has made.
    fn fed(&mut self, count: usize) -> Result<Value, Box<dyn Error>> {
        self.ranks.wait_with_gradients(false);
        let host = [HostTensor::of(&self.batch.values)?, HostTensor::of(&self.batch.labels)?];
        self.timed(count, Some(&host))
    }

    fn timed(&mut self, count: usize, fed: Option<&[HostTensor; 2]>) -> Result<Value, Box<dyn Error>> {
        let (lag, whole) = (lag(self.config.device), Instant::now());
        let (mut seconds, mut loss, mut on_host) = (Vec::with_capacity(count), 0.0, 0.0);
        let mut pending = VecDeque::with_capacity(lag + 1);
        for _ in 0..count {
            let began = Instant::now();
            if let Some([values, labels]) = fed {
                let device = self.config.device;
                (self.batch.values, self.batch.labels) = (values.upload(device)?, labels.upload(device)?);
            }
            pending.push_back(self.step()?);
            on_host += began.elapsed().as_secs_f64();
            if let Some(oldest) = if pending.len() > lag { pending.pop_front() } else { None } {
                loss = oldest.read()?.loss;
            }
            seconds.push(began.elapsed().as_secs_f64());
        }
        for step in pending {
            loss = step.read()?.loss;
        }
        if lag == 0 {
            return Ok(json!({"seconds": seconds, "loss": loss}));
        }
        let each = whole.elapsed().as_secs_f64() / count.max(1) as f64;
        Ok(json!({"seconds": vec![each; count], "loss": loss, "host_seconds": on_host / count.max(1) as f64}))
    }

    /// What so many steps execute on the device, or which operators on a CPU; times in seconds, of all executions.
    fn kernels(&mut self, count: usize) -> Result<Value, Box<dyn Error>> {
        let device = self.config.device;
        let steps = || -> Result<(), torch::Error> { (0..count).try_for_each(|_| self.step()?.read().map(|_| ())) };
        let ((), kernels) = torch::profiled(device, steps)?;
        let described = |kernel: torch::KernelTime| {
            let seconds = kernel.time.as_secs_f64();
            json!({"name": kernel.name, "count": kernel.count, "seconds": seconds, "on_device": kernel.on_device})
        };
        Ok(json!({"kernels": kernels.into_iter().map(described).collect::<Vec<_>>()}))
    }

    /// FLOP/s of the fastest of some matrix products, large enough that launch overhead is negligible: the achievable
    /// peak of this machine, as PyTorch's users would measure it.
    fn products(&self, count: usize) -> Result<f64, Box<dyn Error>> {
        const SIDE: i64 = 2048;
        let device = self.config.device;
        let values = || Tensor::f_randn([SIDE, SIDE], (Kind::Float, device));
        let (left, right) = (values()?, values()?);
        let mut fastest = f64::INFINITY;
        for _ in 0..=count {
            let began = Instant::now();
            let product = tch::no_grad(|| self.config.format.scope(device, || Ok(left.f_matmul(&right)?)))?;
            // Reading a value waits for all of them.
            black_box(product.f_double_value(&[0, 0])?);
            fastest = fastest.min(began.elapsed().as_secs_f64());
        }
        Ok(2.0 * (SIDE as f64).powi(3) / fastest)
    }

    /// Seconds of each snapshot, and of each copy of as many bytes from one block of memory to another.
    ///
    /// A step comes before each, as in a run, so that neither finds its bytes in the cache because of the other. All
    /// memory was written to before: a run copies into the memory of the snapshot before last.
    fn snapshots(&mut self, count: usize) -> Result<Value, Box<dyn Error>> {
        let began = Instant::now();
        if self.ranks.size() > 1 {
            return Err("snapshots are measured with one process".into());
        }
        let first = self.trainer.snapshot(None, &self.ranks)?.ok_or("the first rank has a snapshot")?;
        let fresh_seconds = began.elapsed().as_secs_f64();
        let bytes: usize = first.model.iter().chain(&first.training).map(|tensor| tensor.bytes.len()).sum();
        let (mut spare, from, mut to) = (Some(first), vec![1u8; bytes], vec![2u8; bytes]);
        let (mut snapshots, mut copies) = (Vec::new(), Vec::new());
        for _ in 0..count {
            self.step()?.read()?;
            let began = Instant::now();
            spare = self.trainer.snapshot(spare, &self.ranks)?;
            snapshots.push(began.elapsed().as_secs_f64());
            self.step()?.read()?;
            let began = Instant::now();
            to.copy_from_slice(black_box(&from));
            copies.push(began.elapsed().as_secs_f64());
            black_box(&mut to);
        }
        Ok(json!({"snapshots": snapshots, "copies": copies, "bytes": bytes, "fresh_seconds": fresh_seconds}))
    }
}

/// A tensor's values in memory of the host, in the order in which they lie in the device's.
struct HostTensor {
    values: HostValues,
    /// Of the values as they lie.
    size: Vec<i64>,
    /// Whether they are images that lie pixel by pixel.
    is_channels_last: bool,
}

enum HostValues {
    Floats(Vec<f32>),
    Integers(Vec<i64>),
}

impl HostTensor {
    /// A copy of a float32 or int64 tensor.
    fn of(tensor: &Tensor) -> Result<HostTensor, Box<dyn Error>> {
        let is_channels_last = tensor.dim() == 4 && tensor.stride().get(1) == Some(&1);
        let laid = if is_channels_last { tensor.f_permute([0, 2, 3, 1])? } else { tensor.shallow_clone() };
        let size = laid.size();
        let flat = laid.f_to_device(Device::Cpu)?.f_contiguous()?.f_view([-1])?;
        let values = match tensor.kind() {
            Kind::Float => HostValues::Floats(Vec::try_from(flat)?),
            Kind::Int64 => HostValues::Integers(Vec::try_from(flat)?),
            other => return Err(format!("batches of {other:?} are not copied from the host").into()),
        };
        Ok(HostTensor { values, size, is_channels_last })
    }

    /// The same values on a device, copied as those of a batch of a run.
    fn upload(&self, device: Device) -> torch::Result<Tensor> {
        let there = match &self.values {
            HostValues::Floats(values) => torch::upload(values, &self.size, device)?,
            HostValues::Integers(values) => torch::upload(values, &self.size, device)?,
        };
        Ok(if self.is_channels_last { there.f_permute([0, 3, 1, 2])? } else { there })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_copied_from_the_host_is_the_batch() {
        let images = Tensor::arange(2 * 3 * 4 * 5, (Kind::Float, Device::Cpu)).view([2, 3, 4, 5]);
        let by_pixel = torch::channels_last(&images).unwrap();
        let tokens = Tensor::arange(6, (Kind::Int64, Device::Cpu)).view([2, 3]);
        for tensor in [images, by_pixel, tokens] {
            let copy = HostTensor::of(&tensor).unwrap().upload(Device::Cpu).unwrap();
            assert_eq!((copy.kind(), copy.size(), copy.stride()), (tensor.kind(), tensor.size(), tensor.stride()));
            assert!(copy.equal(&tensor), "{tensor:?}");
        }
        assert!(HostTensor::of(&Tensor::zeros([2], (Kind::Half, Device::Cpu))).is_err());
    }
}
