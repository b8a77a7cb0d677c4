//! The keys of a job file, as types. Their doc comments are the documentation, their attributes the published schema.
//!
//! What stands here is what was written; [`super::lower`] turns it into a [`crate::Job`]. SkyPilot's keys that cannot
//! be served yet have no field: [`super::served`] refuses them by name.

mod disk;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Deserialize;

use super::sweep::{Ranges, TrialRows};
use crate::accelerators::Accelerators;
use crate::gpu::GpuSpec;
use crate::hang::HangLimits;
use crate::money::{Money, Rate};
use crate::mounts::MountKeys;
use crate::progress::Progress;
use crate::schedule::JobSchedule;
use crate::sweep::{Goal, Method, Metric};
use crate::train::Train;
use crate::units::{Bytes, Duration, Fraction, human_text};
use crate::volume::DiskTier;
use crate::wants::Spot;
use crate::workload::{DataFacts, Workload};

pub(crate) use disk::DiskKeys;

/// A job: what to train or run, where, and the limits on cost and time.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "gradus job file")]
pub(crate) struct JobFile {
    /// Name of the job: letters a–z, digits and `-`, at most 63. Default: the file's name.
    #[schemars(extend("pattern" = "^[a-z0-9-]{1,63}$"))]
    pub name: Option<String>,
    /// Project that the cost is counted under, for `gradus cost --by project`: letters a–z, digits and `-`, at most 63.
    #[schemars(extend("pattern" = "^[a-z0-9-]{1,63}$"))]
    pub project: Option<String>,
    /// The built-in trainer, instead of a `run` program.
    pub train: Option<Train>,
    /// Many trials: of `train` with different hyperparameters, or of a `run` program with different variables. `budget` and `deadline` then apply to all trials together.
    pub sweep: Option<SweepKeys>,
    /// Times at which the job is run again and again, once it was added with `gradus schedules add`; in a pipeline, a key of its first document. The file may name the time of a run, for example to train on the data of a day: `${schedule.date}` (`2026-11-27`) and `${schedule.due}`, and of the run before `${schedule.previous_date}` and `${schedule.previous_due}`.
    pub schedule: Option<JobSchedule>,
    /// What your own program trains, so that `gradus plan` can estimate it.
    pub workload: Option<Workload>,
    /// Facts about data that is not on this machine, for `gradus plan`.
    pub data: Option<DataFacts>,
    /// Limit on the cost of the run.
    pub budget: Option<BudgetKeys>,
    /// Limit on the time from submission to end.
    pub deadline: Option<Duration>,
    /// Stop the run when its `run` program has been idle for this long: it used less than 5 % of a core and no GPU, and did not call the package `gradus`. At least `5s`; for a job on one machine. Default: never.
    pub idle_timeout: Option<Duration>,
    /// Time to save after an order to stop (`gradus stop`, the budget, the deadline, a spot notice) until the job is killed: from `1s` to `30m`, but at most a tenth of what the budget buys, and no longer than the notice leaves. It is kept back from the budget. Default: `60s`.
    pub stop_grace: Option<Duration>,
    /// For how long an attempt may be silent until it counts as hung, is ended and started again, such as `{setup: 30m, step: 10m, save: 20m}`: each is at least `30s`, or `false` for no limit. A limit that is not stated is chosen for the run.
    pub hang_after: Option<HangLimits>,
    /// Where checkpoints are kept, such as `s3://BUCKET/PREFIX` (also `gs://`, `az://`, `oss://`, `cos://`), in place of the machine where `gradus run` or `gradus serve` runs: the machine of a run writes them to a folder of the run below it, and another one resumes from there, each with its own credentials. The store needs conditional writes (`If-None-Match`).
    pub checkpoint_store: Option<String>,
    /// Environment variables of the job. `NAME: null` must be given with `--env NAME=VALUE`.
    pub envs: Option<BTreeMap<String, Option<EnvText>>>,
    /// Secret environment variables, such as tokens: encrypted at rest, passed to the program only, and masked in logs and reports. `NAME: null` takes the value from `--secret NAME`.
    pub secrets: Option<BTreeMap<String, Option<EnvText>>>,
    /// Which machines may be rented, what they must have, and when to retry.
    pub resources: Option<Resources>,
    /// Folder to copy to the machine before each attempt; the working directory of `setup` and `run`. Relative to the job file.
    pub workdir: Option<String>,
    /// Files and folders to copy to the machine before each attempt, beside `workdir`: a path there (absolute, `~/…`, or relative to the working folder), and a path here (relative to the job file, or `~/…`) or an address such as `s3://BUCKET/PREFIX`; in a pipeline also `${TASK.outputs}`.
    pub file_mounts: Option<BTreeMap<String, MountKeys>>,
    /// Folders below `workdir` that the program writes to and that must outlive an attempt, such as `[out]`: each is a link to `$GRADUS_CHECKPOINTS/outputs/…`, which the next attempt finds as it was left.
    pub outputs: Option<Vec<String>>,
    /// Number of machines that train together. `gradus plan` accepts any number and, without this key, finds the best one; `gradus run` uses one, or with `infra: ssh` or `infra: aws` so many.
    /// `{min: 2, max: 4}` continues with fewer while no more are available, down to `min`, with the same global batch.
    pub num_nodes: Option<NodeCount>,
    /// Number of machines beyond `num_nodes` that stand by, prepared and paid for, and take over from one that is lost. Default: 0.
    #[schemars(range(min = 0, max = 4096))]
    pub spares: Option<u32>,
    /// Bash commands that prepare the machine, executed before `run` in each attempt, unless they would do the same again.
    pub setup: Option<String>,
    /// Bash commands that run your own program, instead of `train`.
    pub run: Option<String>,
    /// What is read of a program that does not use the package `gradus`: its output by a pattern, and files of its framework.
    pub progress: Option<Progress>,
}

/// Hyperparameter search: many trials of `train` with different values, or of a `run:` program with different variables. Each trial is a run; of `train`, with the same seed and therefore the same split.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SweepKeys {
    /// Keys of `train`, such as `batch` or `optimizer.adamw.lr`, and their values: a list, `{choices: […]}`, or a range `{min: …, max: …}`, logarithmic with `log: true`; a grid takes `points` values of a range. Ranges of integer keys yield integers. They override the same keys of `train`.
    /// Of a `run:` program, variables: `envs.LR`.
    #[expect(dead_code, reason = "read from the tree, which knows its lines")]
    pub parameters: Option<Ranges>,
    /// In place of `parameters`: a CSV file, relative to the job file, or a list of rows. Each row is a trial; the columns are keys as under `parameters`.
    pub table: Option<TrialRows>,
    /// How trials are chosen.
    #[serde(default = "random")]
    pub method: Method,
    /// Maximum number of trials. Default: the size of the grid or of the table, or as many as `budget` and `deadline` allow.
    #[schemars(range(min = 1, max = 10_000))]
    pub trials: Option<u32>,
    /// Validation metric that trials are compared by. Default: `accuracy` for classification (`map` for `labels: multi_label`, `loss` for `labels: number`), `map` for detection, `loss` for language models. Trials of a `run:` program are compared only where this key is given: by the last value that the program has reported under this name, by the package `gradus`, `progress.regex` or its files; `val_` or `eval_` before the name is preferred.
    pub metric: Option<Metric>,
    /// Whether higher or lower values of the metric are better. Default: depends on the metric.
    pub goal: Option<Goal>,
    /// Seed of the drawn values. The seed of each trial's training is `train.seed`.
    #[serde(default)]
    pub seed: u64,
    /// Number of concurrent trials. On this machine they share its cores; elsewhere each has a machine of its own.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1_024))]
    pub parallel: u32,
    /// Number of trials that may fail; one more fails the sweep.
    #[serde(default = "three")]
    #[schemars(range(min = 0, max = 10_000))]
    pub max_failed: u32,
}

fn random() -> Method {
    Method::Random
}
fn one() -> u32 {
    1
}
fn three() -> u32 {
    3
}

/// Limit on the cost of the run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BudgetKeys {
    /// The run saves its state and stops at this amount.
    pub max: Money,
    /// Print a message at this fraction of `max`.
    #[serde(default = "alert")]
    pub alert: Fraction,
}

/// Which machines may be rented, what they must have, and when to retry.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resources {
    /// Where to rent: `local` (this machine), `ssh` (any node), `ssh/NAME` (a node or a pool of them), or a cloud and region such as `aws` or `gcp/us-central1`.
    pub infra: Option<String>,
    /// GPUs per machine: `A100:8`, `A100-80GB:8`, `40GB+:4`; a list, or a map of names to numbers, means any of them.
    pub accelerators: Option<AnyAccelerators>,
    /// GPUs that the catalog does not know, by their names in `accelerators` and in imported prices: `{X100: {memory: 96GB, bandwidth: 3.35TB/s, bf16: 989TFLOPS, power: 700W}}`. Estimates on them have a wide band.
    pub gpu_specs: Option<BTreeMap<String, GpuSpec>>,
    /// Instance type, such as `p4d.24xlarge`.
    pub instance_type: Option<String>,
    /// A cloud; for `gradus plan` also a list of them.
    pub cloud: Option<Names>,
    /// A region, or a list of them: a name, a prefix with `*`, or a country's two-letter code.
    pub region: Option<Names>,
    /// Compliance programmes that the region must have, all of them: `gdpr`, `hipaa`, `iso27001`, `soc2`.
    pub compliance: Option<Names>,
    /// SkyPilot's form of `spot`: `true` is `spot: only`, `false` is `spot: never`.
    pub use_spot: Option<bool>,
    /// Whether spot instances may be rented.
    pub spot: Option<Spot>,
    /// With `use_spot: true`, so many of the `num_nodes` machines are rented on demand, node rank 0 first: with `num_nodes: {min, max}` the run continues on them while no spot machine is to be had. Default: 0.
    #[schemars(range(min = 0, max = 4096))]
    pub on_demand: Option<u32>,
    /// Maximum price per machine and hour, with the disk that is rented with it.
    pub max_price: Option<Rate>,
    /// Same as `max_price`.
    pub max_hourly_cost: Option<Rate>,
    /// Only dedicated machines; for `gradus plan` only.
    pub dedicated: Option<bool>,
    /// Numbers of machines to choose from; `num_nodes` fixes the number.
    pub nodes: Option<Numbers>,
    /// Maximum emissions of the run in kg CO₂; for `gradus plan` only.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub max_carbon: Option<f64>,
    /// Minimum number of CPU cores, such as `4` or `4+`.
    pub cpus: Option<Cores>,
    /// Minimum memory in GB (10⁹ bytes), such as `32` or `32+`, or with a unit, such as `32GiB`.
    pub memory: Option<Gigabytes>,
    /// Minimum free disk space in GB (10⁹ bytes), such as `256`, or with a unit.
    pub disk_size: Option<Gigabytes>,
    /// The network volume of a machine of AWS: its size, and how fast it is, where the plan should not choose.
    pub disk: Option<DiskKeys>,
    /// SkyPilot's form of `disk: {tier: …}`. Default: what the plan chooses.
    pub disk_tier: Option<DiskTier>,
    /// Whether `setup` and `run` are held to `cpus` and `memory`, where the machine's user may make control groups (cgroup v2) or the program runs in a container: more memory is an error of the program. Default: `false`.
    pub enforce: Option<bool>,
    /// Container image that `setup` and `run` run in, through podman or docker of the machine: `docker:IMAGE`, `docker:IMAGE:TAG` or `docker:IMAGE@sha256:…`. It needs `bash`.
    pub image_id: Option<String>,
    /// Whether the run may take over the machine of a run that has ended, and leave its own to a run that waits; only between trials of a sweep, and between runs of one user and project with `train:` on the same data. Default: `true`.
    pub take_over: Option<bool>,
    /// When to retry the job; `none` means never.
    pub job_recovery: Option<JobRecovery>,
}

/// One name or several.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Names {
    /// One name.
    One(String),
    /// Several names.
    Many(Vec<String>),
}

impl Names {
    /// All of them.
    pub fn all(self) -> Vec<String> {
        match self {
            Names::One(name) => vec![name],
            Names::Many(names) => names,
        }
    }
}

/// One number or several.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Numbers {
    /// One number.
    One(u32),
    /// Several numbers.
    Many(Vec<u32>),
}

/// Number of machines that train together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum NodeCount {
    /// So many.
    Fixed(#[schemars(range(min = 1, max = 4096))] u32),
    /// As many as can be had, within bounds.
    Elastic(ElasticNodes),
}

/// As many machines as can be had, within bounds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ElasticNodes {
    /// Minimum number of machines; with fewer the job waits.
    #[schemars(range(min = 1, max = 4096))]
    pub min: u32,
    /// The most that it uses.
    #[schemars(range(min = 1, max = 4096))]
    pub max: u32,
}

/// How often an attempt is repeated without progress, by what ended the one before.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CauseRestarts {
    /// A process was killed. A `run:` program that is killed 3 times in succession within 10 minutes is given up in any case. Default: 20.
    pub killed: Option<u32>,
    /// Another rank ended or stands still. Default: 20.
    pub rank_lost: Option<u32>,
    /// No step was reported for too long. Default: 5.
    pub hang: Option<u32>,
    /// The machine is gone. Default: 20.
    pub instance_lost: Option<u32>,
    /// A checkpoint could not be read. Default: 8.
    pub unreadable: Option<u32>,
}

/// GPUs of a machine, or several kinds of which any will do.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum AnyAccelerators {
    /// One kind.
    One(Accelerators),
    /// Any of these.
    Many(Vec<Accelerators>),
    /// Names and how many of them.
    Counted(BTreeMap<String, u32>),
}

/// When to retry the job.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum JobRecovery {
    /// `none`: never.
    Word(NoRecovery),
    /// By rules.
    Rules(RecoveryRules),
}

/// The word `none`.
#[derive(Debug, Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum NoRecovery {
    /// Never.
    None,
}

/// When to retry the job.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecoveryRules {
    /// How often to retry after your own program exits with a code other than 0. Default: 0.
    pub max_restarts_on_errors: Option<u32>,
    /// Exit codes, 0 to 255, after which your own program is always retried. Default: none.
    pub recover_on_exit_codes: Option<ExitCodes>,
    /// How often to retry without progress, by cause.
    pub max_restarts: Option<CauseRestarts>,
    /// When memory runs out, divide each step of `train:` into twice as many micro-batches and resume, instead of failing. Default: false.
    pub halve_micro_batch: Option<bool>,
    /// Of a job on several machines, replace one whose steps take more than 1.5 times as long as the median of all, 20 in succession: the ranks save, and resume without it. Such a machine is reported in any case. At most 3 are replaced in a run. Only `run:` programs are compared, if they print their steps with a loss on each machine, as `progress` reads them. Default: false.
    pub replace_stragglers: Option<bool>,
}

/// One code or several.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum ExitCodes {
    /// One code.
    One(u8),
    /// Several codes.
    Many(Vec<u8>),
}

fn alert() -> Fraction {
    Fraction::percent(80)
}

/// The value of a variable: any scalar, as the text that Python's `str` gives of what PyYAML reads.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub(crate) struct EnvText(pub String);

impl JsonSchema for EnvText {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "EnvText".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": ["string", "number", "boolean"], "format": "env" })
    }
}

/// A number of processor cores: `4`, `4+`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cores(pub u32);

impl FromStr for Cores {
    type Err = String;

    fn from_str(text: &str) -> Result<Cores, String> {
        let wrong = || format!("`{text}` is no number of cores; write for example `4` or `4+`");
        let number: f64 = text.trim().trim_end_matches('+').parse().map_err(|_| wrong())?;
        if !(number > 0.0 && number <= 65536.0) {
            return Err(wrong());
        }
        Ok(Cores(number.ceil() as u32))
    }
}

impl fmt::Display for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A size whose bare number counts GB (10⁹ bytes): `32`, `32+`, `512GiB`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gigabytes(pub Bytes);

impl FromStr for Gigabytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Gigabytes, String> {
        let wrong = || format!("`{text}` is no size in GB; write for example `32` or `32+`");
        let bare = text.trim().trim_end_matches('+').trim();
        let bytes = match bare.parse::<f64>() {
            Ok(number) if number.is_finite() => format!("{number} GB").parse::<Bytes>(),
            _ => bare.parse::<Bytes>(),
        };
        bytes.map(Gigabytes).map_err(|_| wrong())
    }
}

impl fmt::Display for Gigabytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

human_text!(Cores, "cores", "A number of processor cores, such as `4` or `4+`.");
human_text!(
    Gigabytes,
    "gigabytes",
    "A size in GB (10⁹ bytes), such as `32` or `32+`, or with a unit, such as `32GiB`."
);
