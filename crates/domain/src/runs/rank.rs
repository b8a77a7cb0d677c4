//! Messages between an agent and a rank.
//!
//! A rank reads one [`Spec`] from a JSON file and local files, and is independent of clouds, money and HTTP. Over a
//! Unix socket it sends one JSON [`Report`] per line and receives one JSON [`RankCommand`] per line; end of file means
//! that the agent is gone, and the rank exits. Its stdout and stderr are logs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::finding::Finding;
use crate::id::{AttemptId, Fence, RunId};
use crate::train::Train;

pub use super::pause::Pause;
pub use super::ready::{Ready, Sample};
pub use super::scores::{Evaluated, EvaluatedSplit, TaskMetrics};

/// Everything a rank needs to know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Spec {
    /// Version of this file.
    pub schema: u32,
    /// The run this rank works for.
    pub run: RunId,
    /// The attempt this rank belongs to.
    pub attempt: AttemptId,
    /// Number of this attempt within the run; a manifest with a lower one than the folder's fence is never written.
    pub fence: Fence,
    /// Rank of this process among all, from 0.
    pub rank: u32,
    /// Number of ranks.
    pub world_size: u32,
    /// The rendezvous of the ranks; `None` for a single one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meeting: Option<Rendezvous>,
    /// SHA-256 of everything that determines the result; a checkpoint of another job is never resumed.
    pub job_hash: String,
    /// The training configuration.
    pub train: Train,
    /// Where the data is on this node, absolute.
    pub data: String,
    /// Threads of libtorch.
    pub threads: u32,
    /// Whether a checkpoint is resumed although the data has changed since.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub accept_data_change: bool,
    /// Folder of checkpoints and manifests, absolute.
    pub checkpoints: String,
    /// Folder that `model.safetensors` and `model.json` are written to, absolute.
    pub export: String,
    /// Folder in which tokenized texts are stored for all runs of this node, absolute; if empty, `tokens` next to the
    /// checkpoint folder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub tokens: String,
    /// Unix socket of the agent, absolute.
    pub socket: String,
}

/// The rendezvous: a store hosted by rank 0, like torchrun's `MASTER_ADDR` and `MASTER_PORT`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rendezvous {
    /// Name or address of rank 0's machine.
    pub host: String,
    /// Port on it.
    pub port: u16,
    /// Local rank on its machine, from 0, which selects its accelerator.
    #[serde(default)]
    pub local_rank: u32,
    /// Whether the launcher keeps the store itself, as torchrun may.
    #[serde(default)]
    pub is_kept: bool,
    /// Seconds that a rank waits for others, to come and to take part.
    #[serde(default = "patience")]
    pub patience_s: u64,
    /// Prefix of keys in the store, so that restarted ranks do not see keys of earlier ones in a store that outlives
    /// them.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
}

/// Shorter than an agent waits for the first step, so that a rank names the one that it misses.
pub fn patience() -> u64 {
    600
}

/// The version of [`Spec`] that this program writes and reads.
pub const SPEC_SCHEMA: u32 = 1;

/// A rank's report.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum Report {
    /// First report: the rank, its process id, and its environment.
    Hello { rank: u32, pid: u32, environment: Environment },
    /// Data and model stand; training begins at `step`, 0 unless a checkpoint was resumed.
    Ready(Ready),
    /// One optimizer step is done.
    Step(Step),
    /// One evaluation is done.
    Evaluated(Evaluated),
    /// Metrics of a user's program that have no field of their own.
    Metrics(Metrics),
    /// The last value of each metric of a user's program that has succeeded. Said by the agent, once the program has ended; of
    /// several of one attempt, the last one counts.
    Result(Metrics),
    /// What the machine's GPUs do. Said by the agent, and not by a rank.
    Devices { devices: Vec<DeviceUse> },
    /// A checkpoint is durable: its manifest was renamed into place and synced.
    Checkpointed(Checkpointed),
    /// Data is being prepared before the first step: number of samples that were read, decoded, measured or tokenized,
    /// counted once per pass. Sent only while it grows.
    Preparing { done: u64 },
    /// Steps pause for something that has a time limit of its own. Stays with the agent, other than that of
    /// [`Pause::Sending`].
    Pausing { pause: Pause },
    /// Something the user should know, and that does not end the run.
    Note { text: String },
    /// The model and its card are durable in the export folder.
    Exported(Exported),
    /// Last report: all epochs are done, or the target was met.
    Trained,
    /// Last report: stopped by order; the state of `step` is durable.
    Stopped { step: u64 },
    /// Last report: it has failed.
    Failed(Finding),
}

/// An agent's order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "order", rename_all = "snake_case")]
pub enum RankCommand {
    /// Save a checkpoint within one step, then continue.
    Checkpoint,
    /// Save a checkpoint within one step, then end with [`Report::Stopped`].
    Stop {
        /// Microseconds until the rank is killed, from when it is sent; `None` where that is not known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        within_us: Option<u64>,
    },
}

impl RankCommand {
    /// The order to stop for a rank that is killed after this grace period.
    pub fn stop_within(grace: std::time::Duration) -> RankCommand {
        RankCommand::Stop { within_us: u64::try_from(grace.as_micros()).ok() }
    }
}

/// The environment of a rank; stored in the report of the run.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Environment {
    /// `cpu` or `cuda:0`.
    pub device: String,
    /// Name of the processor or card.
    pub device_name: String,
    /// Version of libtorch.
    pub torch: String,
    /// Threads of libtorch.
    pub threads: u32,
    /// The precision that `auto` selected.
    pub precision: String,
    /// Version of `gradus-rank`.
    pub gradus: String,
}

/// One optimizer step.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// From 1.
    pub step: u64,
    /// From 0.
    pub epoch: u32,
    /// Mean loss of the batch.
    pub loss: f64,
    /// Learning rate used.
    pub lr: f64,
    /// Samples in the batch.
    pub samples: u32,
    /// Microseconds from the end of the last step to the end of this one.
    pub step_us: u64,
    /// Microseconds of those spent waiting for data.
    pub data_wait_us: u64,
    /// Microseconds of those spent on snapshots and waiting for the checkpoint writer.
    pub checkpoint_us: u64,
    /// What the loader did since the last step.
    #[serde(default, skip_serializing_if = "Fetching::is_empty")]
    pub data: Fetching,
}

/// What a loader did between two steps, as far as it is known.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Fetching {
    /// Microseconds that a thread spent on a sample, on average: reading, decoding and changing it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_us: Option<f64>,
    /// Batches that were complete and waited for the step.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<u32>,
    /// Reads of data elsewhere that the cache answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_hits: Option<u64>,
    /// Reads of data elsewhere that went there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_misses: Option<u64>,
}

impl Fetching {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        *self == Fetching::default()
    }

    /// The share of reads that the cache answered; none without reads.
    pub fn hit_rate(&self) -> Option<f64> {
        let (hits, misses) = (self.cache_hits?, self.cache_misses?);
        (hits + misses > 0).then(|| hits as f64 / (hits + misses) as f64)
    }
}

/// Figures that a user's program has logged by names of its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Metrics {
    /// Step after which they were measured.
    pub step: u64,
    /// Finite numbers by name, such as `val/f1`.
    pub values: BTreeMap<String, f64>,
    /// The loss of the step, where it is not finite: then it has no [`Report::Step`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub loss: Option<NotFinite>,
    /// Other figures that are not finite, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub not_finite: BTreeMap<String, NotFinite>,
}

/// A number that JSON cannot hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NotFinite {
    /// Not a number.
    Nan,
    /// Infinite, of either sign.
    Infinite,
}

impl NotFinite {
    /// Which one `value` is; `None` if it is finite.
    pub fn of(value: f64) -> Option<NotFinite> {
        match value {
            value if value.is_nan() => Some(NotFinite::Nan),
            value if value.is_infinite() => Some(NotFinite::Infinite),
            _ => None,
        }
    }

    /// Those of `values` that are not finite.
    pub fn among(values: &BTreeMap<String, f64>) -> BTreeMap<String, NotFinite> {
        values.iter().filter_map(|(name, value)| Some((name.clone(), NotFinite::of(*value)?))).collect()
    }

    /// The number.
    pub fn value(self) -> f64 {
        match self {
            NotFinite::Nan => f64::NAN,
            NotFinite::Infinite => f64::INFINITY,
        }
    }
}

/// What a GPU does, as its driver states it; what it does not state is none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeviceUse {
    /// Number of the GPU on its machine.
    pub gpu: u32,
    /// Number of the MIG instance within it; none for a whole GPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<u32>,
    /// Name, such as `NVIDIA H100 80GB HBM3`.
    pub name: String,
    /// Share of the last moments in which a kernel ran, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub busy_percent: Option<u32>,
    /// Bytes of memory that are taken.
    pub used_bytes: u64,
    /// Bytes of memory that it has.
    pub memory_bytes: u64,
    /// Power in watts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watts: Option<f64>,
    /// Temperature in degrees Celsius.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub celsius: Option<u32>,
}

/// A line of a user's program that stays with the agent: it says that the process lives, and whether its program moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignOfLife {
    /// Calls that the program itself has made so far; it moves while this grows.
    pub alive: u64,
    /// Whether the program asks if it is to stop: then it is told so here, and not by SIGTERM.
    pub listens: bool,
    /// Seconds without a call after which it counts as hung; none if it never does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hang_after_s: Option<u64>,
    /// Milliseconds since the newest of these calls; none of an earlier version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quiet_ms: Option<u64>,
    /// The longest time between two of them so far, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub longest_ms: Option<u64>,
    /// Its last line: the interpreter ends, and so does the process, unless it hangs.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_ending: bool,
}

/// A durable checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkpointed {
    /// Step whose state it holds.
    pub step: u64,
    /// Size of all its files.
    pub bytes: u64,
    /// Microseconds the training thread stood still for it.
    pub stall_us: u64,
    /// Microseconds from the snapshot to the durable manifest.
    pub commit_us: u64,
}

/// A durable model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Exported {
    /// Absolute path of `model.safetensors`.
    pub model: String,
    /// SHA-256 of that file, in hexadecimal.
    pub model_sha256: String,
    /// Size of that file.
    pub bytes: u64,
    /// Step whose weights it holds: the best by validation.
    pub step: u64,
    /// Accuracy on the validation split, of those weights.
    pub validation_accuracy: f64,
    /// Accuracy on the test split, measured once.
    pub test_accuracy: f64,
    /// Optimizer steps of the run.
    pub steps: u64,
    /// Most memory that the rank ever held, in bytes: of the accelerator, else of its process; 0 where it is not known.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub peak_memory: u64,
    /// The same of each of several ranks, from rank 0 on; none where there was one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rank_memory: Vec<u64>,
    /// Microseconds of processor time that the ranks of this attempt took, all threads together; 0 where it is not known.
    #[serde(default, skip_serializing_if = "is_unknown")]
    pub processor_us: u64,
    /// What else was measured on the test split.
    #[serde(default, skip_serializing_if = "TaskMetrics::is_empty")]
    pub figures: Box<TaskMetrics>,
    /// Mean loss on the validation split, of those weights.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub validation_loss: Option<f64>,
    /// What else was measured on the validation split.
    #[serde(default, skip_serializing_if = "TaskMetrics::is_empty")]
    pub validation_figures: Box<TaskMetrics>,
    /// Of the test samples of each class, how many were taken for which; none for many classes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confusion: Vec<Vec<u64>>,
}

/// A figure that nobody measured is not written, as in the logs of versions that did not know it.
fn is_unknown(figure: &u64) -> bool {
    *figure == 0
}
