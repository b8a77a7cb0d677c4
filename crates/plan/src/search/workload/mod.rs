//! From a job to the inputs of the search: the network, and the training in numbers. What the job leaves open is
//! assumed, and the assumption is stated.
//!
//! [`described`] resolves the `workload:` section of a user's own program, [`trained`] the `train:` section of the
//! built-in trainer, with the known facts about its data; both result in one [`TrainingSpec`].

mod described;
mod facts;
mod input;
pub mod request;
pub mod spec;
pub mod trained;

use domain::problem::Problem;
use domain::{Bytes, Job, Work};

pub use described::model_file;
pub use facts::{JobFacts, ProgramProfile};
pub use request::LayoutRequest;
pub use spec::{
    CheckpointFigures, DataDemand, NetworkFigures, ParallelChoice, ProgramOptions, RunLength, TrainingSpec,
};

use crate::estimate::limits::{offloaded, offloaded_activations};
use crate::estimate::memory::Savings;
use crate::estimate::optimizer::state_bytes;
use crate::estimate::{FittedCoefficients, OpProfile, Setup, StepTime, step_of};
use crate::model::{Graph, ModelDescription, OpKind};

/// The workload of a plan.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedWorkload {
    pub network: ResolvedNetwork,
    pub spec: TrainingSpec,
    /// Whether a `workload:` describes a user's own program.
    pub is_described: bool,
    /// Training samples, if known.
    pub samples: Option<u64>,
    /// The assumptions, a sentence each.
    pub assumptions: Vec<String>,
}

/// A network, ready for estimates.
#[derive(Debug, Clone, PartialEq)]
pub struct ResolvedNetwork {
    pub model: ModelDescription,
    /// The same, grouped for estimates of time, with what of it is trained.
    pub ops: OpProfile,
    /// How the program saves memory.
    pub savings: Savings,
    /// Weights in all, frozen ones included.
    pub weights: f64,
}

/// Resolves a job for rented machines, without opening its data. `bytes` are those of the file that [`model_file`]
/// names.
///
/// # Errors
/// What is missing or unreadable, with a hint.
pub fn resolve(job: &Job, bytes: Option<&[u8]>) -> Result<ResolvedWorkload, Problem> {
    match (&job.workload, &job.work) {
        (Some(workload), _) => described::resolve(job, workload, bytes),
        (None, Work::Train(train)) => trained::resolve(job, train),
        (None, Work::Command(_)) => {
            let message = "what the program trains is not said, so nothing can be planned for it";
            Err(Problem::at("workload", message)
                .hint("write `workload: {model: config.json, batch: 256, epochs: 3}` and `data: {samples: …}`"))
        }
    }
}

impl ResolvedNetwork {
    /// Groups the operators of a model.
    pub fn of(model: ModelDescription) -> ResolvedNetwork {
        let ops = OpProfile::of(&model);
        ResolvedNetwork { weights: ops.parameters, ops, model, savings: Savings::default() }
    }

    /// The same network as a program trains it that saves memory so.
    #[must_use]
    pub fn saving(self, savings: Savings) -> ResolvedNetwork {
        let ops = match savings.adapters {
            Some(adapters) => self.ops.frozen(adapters),
            None => self.ops,
        };
        let ops = if savings.trainer_gathers { ops.gathered_by_trainer() } else { ops };
        ResolvedNetwork { ops, savings, ..self }
    }

    /// Estimates one step, with what copies to the host's memory and back add.
    pub fn step(&self, setup: &Setup, coefficients: &FittedCoefficients) -> StepTime {
        let mut step = step_of(&self.ops, setup, coefficients);
        let added = self.host_seconds(setup, step.seconds.middle);
        if added > 0.0 {
            let samples = step.samples_per_second * step.seconds.middle;
            step.overhead += added;
            step.seconds.low += added;
            step.seconds.middle += added;
            step.seconds.high += added;
            step.samples_per_second = samples / step.seconds.middle;
        }
        step
    }

    /// Seconds that what lies in the host's memory adds to a step of `computed` seconds.
    pub fn host_seconds(&self, setup: &Setup, computed: f64) -> f64 {
        let activations = match self.savings.offload_activations {
            true => offloaded_activations(&self.ops, setup, computed),
            false => 0.0,
        };
        match self.savings.offload_optimizer {
            true => activations + offloaded(&self.ops, setup, &self.savings),
            false => activations,
        }
    }

    /// The figures that the search depends on.
    fn figures(&self) -> NetworkFigures {
        match &self.model {
            ModelDescription::Graph(graph) => {
                let [heads, key_heads] = heads(graph);
                NetworkFigures {
                    multiply_adds: graph.multiply_adds() as f64,
                    blocks: graph.blocks(),
                    heads,
                    key_heads,
                    tokens: graph.tokens().unwrap_or(0),
                    experts: experts(graph),
                }
            }
            ModelDescription::Summary(summary) => {
                NetworkFigures { multiply_adds: summary.multiply_adds, ..NetworkFigures::default() }
            }
        }
    }
}

/// The minimum numbers of heads, and of those of keys and values, over all attention layers; 0 without attention.
fn heads(graph: &Graph) -> [u32; 2] {
    let layers = graph.operators.iter().filter_map(|operator| match operator.kind {
        OpKind::Attention { heads, key_heads, .. } => Some([heads, key_heads]),
        _ => None,
    });
    let least = layers.reduce(|least, layer| [least[0].min(layer[0]), least[1].min(layer[1])]);
    least.map_or([0, 0], |least| least.map(|heads| u32::try_from(heads).unwrap_or(0)))
}

/// The minimum number of experts over all layers that have several; 0 without.
fn experts(graph: &Graph) -> u32 {
    let experts = graph.operators.iter().filter_map(|operator| match operator.kind {
        OpKind::Linear { inner, columns, .. } => {
            Some(operator.parameters / inner.saturating_mul(columns).max(1)).filter(|experts| *experts > 1)
        }
        _ => None,
    });
    experts.min().and_then(|experts| u32::try_from(experts).ok()).unwrap_or(0)
}

/// Interval and number of checkpoints.
#[derive(Debug, Clone, Copy)]
struct CheckpointSchedule {
    keep: u32,
    every: Option<f64>,
}

/// The size of a checkpoint with this many trained weights.
fn checkpoints(weights: f64, program: &ProgramOptions, saving: CheckpointSchedule) -> CheckpointFigures {
    let weight = program.precision.weight_bytes();
    let averaged = if program.averages { weight } else { 0.0 };
    let state = weight + state_bytes(program.optimizer, program.precision) + averaged;
    CheckpointFigures {
        state: Bytes((weights * state) as u64),
        weights: Bytes((weights * weight) as u64),
        keep: saving.keep,
        every: saving.every,
    }
}
