//! The keys of a job file, as types. Their doc comments are the documentation, their attributes the published schema.
//!
//! What stands here is what was written; [`super::lower`] turns it into a [`crate::Job`]. SkyPilot's keys that cannot
//! be served yet have no field: [`super::served`] refuses them by name.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::Deserialize;

use crate::accelerators::Accelerators;
use crate::money::{Money, Rate};
use crate::sweep::{Goal, Method, Metric};
use crate::train::Train;
use crate::units::{Bytes, Duration, Fraction, human_text};
use crate::wants::Spot;
use crate::workload::{DataFacts, Workload};

/// A job: what to train or run, on what, for how much money and time at most.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "gradus job file")]
pub(crate) struct JobFile {
    /// Letters a–z, digits and `-`, at most 63. Default: the file's name.
    #[schemars(extend("pattern" = "^[a-z0-9-]{1,63}$"))]
    pub name: Option<String>,
    /// Our own trainer, instead of `run`.
    pub train: Option<Train>,
    /// Many trials of `train` with other values of some of its keys; `budget` and `deadline` are then those of all together.
    pub sweep: Option<SweepKeys>,
    /// What a program of your own trains, so that `gradus plan` can say what it takes.
    pub workload: Option<Workload>,
    /// What is known of the data, where it is not at hand; for `gradus plan`.
    pub data: Option<DataFacts>,
    /// The most that the run may cost.
    pub budget: Option<BudgetKeys>,
    /// The longest that the run may take from its submission to its end.
    pub deadline: Option<Duration>,
    /// Variables that the work finds in its environment.
    pub envs: Option<BTreeMap<String, EnvText>>,
    /// What may be rented, what a machine must have at least, and when the work is tried again.
    pub resources: Option<Resources>,
    /// Folder copied to the machine before each attempt, where `setup` and `run` start; relative to the job file.
    pub workdir: Option<String>,
    /// Machines. `gradus plan` plans any number and, without this key, looks for the best; `gradus run` runs on one.
    #[schemars(range(min = 1, max = 4096))]
    pub num_nodes: Option<u32>,
    /// Bash commands that prepare the machine; run once an attempt, before `run`.
    pub setup: Option<String>,
    /// Bash commands of your own program, instead of `train`.
    pub run: Option<String>,
}

/// Many trials of `train` with other values of some of its keys. Each is a run of its own, with the same seed and so the same split.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SweepKeys {
    /// Keys of `train`, such as `batch` or `optimizer.adamw.lr`, and what each may be: a list of values, `{choices: […]}`, or a range `{min: …, max: …}`, by factors with `log: true`, of which a grid takes so many `points`. Ranges of keys that take whole numbers are of whole numbers. They stand before what `train` says of the same keys.
    #[expect(dead_code, reason = "read from the tree, which knows its lines")]
    pub parameters: Ranges,
    /// Which trial follows which.
    #[serde(default = "random")]
    pub method: Method,
    /// Trials at most. Default: as many as the grid has, or as `budget` and `deadline` allow.
    #[schemars(range(min = 1, max = 10_000))]
    pub trials: Option<u32>,
    /// What trials are judged by. Default: `accuracy` of pictures and texts, `map` of boxes, `loss` of words.
    pub metric: Option<Metric>,
    /// Whether more of the metric is better. Default: as is usual for the metric.
    pub goal: Option<Goal>,
    /// Seed of the values that are drawn; that of the trials themselves is `train.seed`.
    #[serde(default)]
    pub seed: u64,
    /// Trials at the same time, which share the machine's cores.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 1_024))]
    pub parallel: u32,
    /// Trials that may fail; with one more the sweep is given up.
    #[serde(default = "three")]
    #[schemars(range(min = 0, max = 10_000))]
    pub max_failed: u32,
}

/// Keys and what they may be, which [`super::sweep`] reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Ranges;

impl<'de> Deserialize<'de> for Ranges {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Ranges, D::Error> {
        serde::de::IgnoredAny::deserialize(deserializer).map(|_| Ranges)
    }
}

impl JsonSchema for Ranges {
    fn inline_schema() -> bool {
        true
    }
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Ranges".into()
    }
    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "object", "format": "figures", "additionalProperties": true })
    }
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

/// The most that the run may cost.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct BudgetKeys {
    /// At this amount the run saves its state and stops.
    pub max: Money,
    /// At this share of it you are told.
    #[serde(default = "alert")]
    pub alert: Fraction,
}

/// What may be rented, what a machine must have at least, and when the work is tried again.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Resources {
    /// Where to rent: `local` is this machine, `aws`, `gcp/us-central1` and the like are clouds and their regions.
    pub infra: Option<String>,
    /// GPUs of a machine: `A100:8`, `A100-80GB:8`, `40GB+:4`; a list or a mapping of names to numbers means any of them.
    pub accelerators: Option<AnyAccelerators>,
    /// The cloud's name of the machine, such as `p4d.24xlarge`.
    pub instance_type: Option<String>,
    /// A cloud, or a list of them.
    pub cloud: Option<Names>,
    /// A region, or a list of them: a name, the start of some with `*`, or a country's two letters.
    pub region: Option<Names>,
    /// What the region must comply with: `gdpr`, `hipaa`, `iso27001`, `soc2`; all of a list.
    pub compliance: Option<Names>,
    /// SkyPilot's word for `spot`: `true` is `spot: only`, `false` is `spot: never`.
    pub use_spot: Option<bool>,
    /// Whether machines may be rented that the cloud can take back.
    pub spot: Option<Spot>,
    /// The most that one machine may cost an hour.
    pub max_price: Option<Rate>,
    /// As `max_price`.
    pub max_hourly_cost: Option<Rate>,
    /// Only machines that no other customer shares.
    pub dedicated: Option<bool>,
    /// Numbers of machines to choose from; `num_nodes` is one number for sure.
    pub nodes: Option<Numbers>,
    /// Kilograms of CO₂ that the run may cause at most.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub max_carbon: Option<f64>,
    /// Processor cores, as `4` or `4+`; both mean at least.
    pub cpus: Option<Cores>,
    /// Memory in GB (10⁹ bytes), as `32` or `32+`, or with a unit, as `32GiB`; all mean at least.
    pub memory: Option<Gigabytes>,
    /// Free disk in GB (10⁹ bytes), as `256`, or with a unit.
    pub disk_size: Option<Gigabytes>,
    /// When the work is tried again; `none` is never.
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

/// When the work is tried again.
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

/// When the work is tried again.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RecoveryRules {
    /// Attempts after your own program ended with a code other than 0. Default: 0.
    pub max_restarts_on_errors: Option<u32>,
    /// Codes, 0 to 255, after which your own program is always tried again. Default: none.
    pub recover_on_exit_codes: Option<ExitCodes>,
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
