//! `gradus plan JOB --calibrate` without a table: steps of the job's model, measured on this machine.
//!
//! A measured step holds for machines of the same kind only: the achieved share of peak FLOP/s differs between devices. So
//! on a machine without a GPU the plan for this machine is calibrated, and plans over GPUs refuse the measurement.

use std::process::Command;
use std::time::{Duration, Instant};

use domain::architecture::{Architecture, Reads};
use domain::plan::Share;
use domain::{Job, Train, Work};
use plan::local::JobFacts;
use plan::measured::MeasuredRow;
use serde::Serialize;
use serde_json::{Value, json};

use crate::error::Error;
use crate::error::exit;
use crate::rank::steps::{NoAnswer, StepBench, quartiles};
use crate::settings::GlobalSettings;

/// StepBench that were made on this machine.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct StepMeasurement {
    /// Quartiles of the step time in seconds.
    pub seconds: [f64; 3],
    pub steps: u32,
    /// Samples of a step: one rank's share of the batch.
    pub samples: u32,
    pub threads: u32,
    /// `cpu`, or the index of a GPU.
    pub device: String,
    pub device_name: String,
    /// The number format of products.
    pub precision: String,
}

/// StepBench that are timed, at least and at most.
const FEWEST: u32 = 3;
const MOST: u32 = 200;
/// Time limits of the timed steps together, and of the first one with its initialization.
const TOGETHER: Duration = Duration::from_secs(5);
const FIRST: Duration = Duration::from_secs(90);

/// The hint if steps cannot be measured here.
const TABLE: &str = "measure some steps on the target machine and pass them as `--calibrate FILE.csv` with the \
    columns `source_id,model,gpu,n_gpus,batch_per_gpu,throughput,unit`";

/// The training of a job, if it can be measured here.
///
/// # Errors
/// [`Error::Usage`] for a job with a program of its own.
pub fn measurable(job: &Job) -> Result<&Train, Error> {
    match &job.work {
        Work::Train(train) => Ok(train),
        Work::Command(_) => Err(Error::Usage {
            message: "`--calibrate` without a table works only with `train:`; this job runs a program".to_owned(),
            hint: TABLE.to_owned(),
        }),
    }
}

/// Makes steps of a rank's share of the batch, on samples of no meaning.
///
/// # Errors
/// [`Error::Code`] when no rank can be started, when it fails or when a step takes too long.
pub fn measure(
    train: &Train,
    share: &Share,
    facts: &JobFacts,
    settings: &GlobalSettings,
) -> Result<StepMeasurement, Error> {
    let ranks = share.ranks.max(1);
    let samples = share.batch.div_ceil(ranks);
    let case = case(train, samples, share.threads, facts);
    let mut steps = StepBench::start(settings, &case, share.threads)?;
    let failed = |silence: NoAnswer| match silence {
        NoAnswer::TimedOut => Error::Code {
            message: format!(
                "a step of {samples} samples takes more than {} s on this machine, too long to measure",
                FIRST.as_secs()
            ),
            hint: Some("remove `--calibrate`, or use a smaller `batch`".to_owned()),
            code: exit::WORLD,
        },
        NoAnswer::Ended => Error::Code {
            message: "the benchmark process failed".to_owned(),
            hint: Some(
                "see its message above; if memory is short, use a larger `accumulate`, or plan without `--calibrate`"
                    .to_owned(),
            ),
            code: exit::WORLD,
        },
    };
    // The first steps include one-time work: allocation, algorithm selection, optimizer state.
    let begun = Instant::now();
    steps.ask("steps", 1, Some(FIRST)).map_err(failed)?;
    let first = steps.ask("steps", 1, Some(FIRST)).map_err(failed)?;
    let usual = quartiles(&first).map_or(begun.elapsed().as_secs_f64(), |[_, middle, _]| middle);
    let count = ((TOGETHER.as_secs_f64() / usual.max(1e-6)) as u32).clamp(FEWEST, MOST);
    let limit = FIRST.max(Duration::from_secs_f64(3.0 * usual * f64::from(count)));
    let answer = steps.ask("steps", count, Some(limit)).map_err(failed)?;
    steps.finish();
    let Some(seconds) = quartiles(&answer) else {
        return Err(Error::Code {
            message: "`gradus-rank` returned no step times".to_owned(),
            hint: Some("install `gradus` and `gradus-rank` of the same version".to_owned()),
            code: exit::WORLD,
        });
    };
    let word = |key: &str| answer["environment"][key].as_str().unwrap_or("unknown").to_owned();
    Ok(StepMeasurement {
        seconds,
        steps: count,
        samples,
        threads: share.threads,
        device: word("device"),
        device_name: word("device_name"),
        precision: word("precision"),
    })
}

/// What `gradus-rank bench` is given: the job's `train:` section for one rank, and what its data would say.
fn case(train: &Train, samples: u32, threads: u32, facts: &JobFacts) -> Value {
    let mut alone = train.clone();
    (alone.batch, alone.processes, alone.weights) = (samples, 1, None);
    alone.parallel = domain::train::Parallel::default();
    let size = match train.model.architecture().map(Architecture::reads) {
        None | Some(Reads::Images | Reads::DetectionImages) => {
            let seen = facts.input_shape.map(|[_, height, width]| height.max(width));
            train.data.size.or(seen).unwrap_or(224)
        }
        Some(Reads::Tokens | Reads::CausalTokens) => 0,
    };
    let vocabulary = train.data.text.as_ref().map_or(0, |text| text.vocabulary);
    let classes = facts.classes.or(train.data.classes).unwrap_or(1_000);
    json!({"train": alone, "size": size, "vocabulary": vocabulary, "classes": classes, "threads": threads})
}

impl StepMeasurement {
    /// Whether a GPU made the steps.
    pub fn is_of_gpu(&self) -> bool {
        self.device.starts_with("cuda")
    }

    /// Describes the measurement.
    pub fn summary(&self, train: &Train) -> String {
        let [low, middle, high] = self.seconds.map(|seconds| 1e3 * seconds);
        let on = match self.is_of_gpu() {
            true => format!("on {}", self.device_name),
            false if self.threads == 1 => format!("with one thread on {}", self.device_name),
            false => format!("with {} threads on {}", self.threads, self.device_name),
        };
        format!(
            "measured {} steps of `{}` {on}, {} samples each, in {}: {middle:.1} ms (quartiles {low:.1} to {high:.1})",
            self.steps,
            train.model.name(),
            self.samples,
            self.precision,
        )
    }

    /// The measurement as a row of a table, for estimates on GPUs.
    pub fn row(&self, train: &Train, gpu: &str) -> MeasuredRow {
        let [_, middle, _] = self.seconds;
        MeasuredRow {
            source: "this machine".to_owned(),
            model: train.model.name().to_owned(),
            gpu: gpu.to_owned(),
            gpus: Some(1),
            nodes: Some(1),
            precision: match self.precision.as_str() {
                // Weights stay in fp32 with products in half precision.
                "bf16" => "amp_bf16".to_owned(),
                "fp16" => "amp_fp16".to_owned(),
                wide => wide.to_owned(),
            },
            batch: Some(f64::from(self.samples)),
            throughput: Some(f64::from(self.samples) / middle),
            unit: "samples/s".to_owned(),
            ..MeasuredRow::default()
        }
    }
}

/// The name of this machine's first GPU, according to its driver.
///
/// # Errors
/// [`Error::Usage`] if there is none: then a step here says nothing about GPUs.
pub fn gpu_here() -> Result<String, Error> {
    let asked = Command::new("nvidia-smi").args(["--query-gpu=name", "--format=csv,noheader"]).output();
    let told = asked.ok().filter(|output| output.status.success());
    let first = told
        .and_then(|output| String::from_utf8_lossy(&output.stdout).lines().next().map(|line| line.trim().to_owned()));
    first.filter(|name| !name.is_empty()).ok_or_else(|| Error::Usage {
        message:
            "this machine has no GPU, and a step on a CPU cannot calibrate GPUs: the achieved share of peak FLOP/s \
                  differs between devices"
                .to_owned(),
        hint: format!("{TABLE}; or plan for this machine only"),
    })
}
