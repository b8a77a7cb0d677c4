//! The `train:` section of a job, for the built-in trainer: its network, and the training in numbers, with the known
//! facts about the data.

use domain::architecture::Architecture;
use domain::problem::Problem;
use domain::rank::Sample;
use domain::tariff::Service;
use domain::train::{self, Every, Train};
use domain::{Bytes, Job};

use super::input::{TOKEN_BYTES, photographs};
use super::spec::{DataDemand, NetworkFigures, ParallelChoice, ProgramOptions, RunLength, TrainingSpec};
use super::{CheckpointSchedule, JobFacts, ResolvedNetwork, ResolvedWorkload, checkpoints};
use crate::estimate::memory::Savings;
use crate::estimate::{ActivationCheckpointing, Layout, ParallelDegrees, Zero};
use crate::model::{Graph, ModelDescription, ours};

/// A resolved job of the built-in trainer.
#[derive(Debug, Clone, PartialEq)]
pub struct Trained {
    /// `None` if its graph is unknown: a user's own module.
    pub network: Option<ResolvedNetwork>,
    /// The network's input for one sample.
    pub sample: Option<Sample>,
    /// The steps are 0 where the number of samples is not known.
    pub spec: TrainingSpec,
    /// Samples of training, validation and test, if known.
    pub samples: Option<[u64; 3]>,
    /// The assumptions, a sentence each.
    pub assumptions: Vec<String>,
}

/// Resolves a job for rented machines, without opening its data.
///
/// # Errors
/// What is missing, with a hint.
pub(super) fn resolve(job: &Job, train: &Train) -> Result<ResolvedWorkload, Problem> {
    if job.data.samples.is_none() {
        let message =
            "the data is not opened for a plan over machines elsewhere, and its number of samples is not said";
        return Err(Problem::at("data.samples", message).hint("write `data: {samples: 50000}`"));
    }
    let Trained { network, spec, samples, assumptions, .. } = trained(job, train, &JobFacts::default())?;
    let Some(network) = network else {
        let message = "this network is not counted yet, so nothing can be planned for it elsewhere";
        return Err(Problem::at("train.model", message).hint("describe it under `workload:` beside a `run:` program"));
    };
    let samples = samples.map(|[training, ..]| training);
    Ok(ResolvedWorkload { network, spec, is_described: false, samples, assumptions })
}

/// Resolves a job with the known facts about its data.
///
/// # Errors
/// A batch larger than the data, or an image size that the network does not support.
pub fn trained(job: &Job, train: &Train, facts: &JobFacts) -> Result<Trained, Problem> {
    // Of samples that are only counted, a tenth is taken to be held out.
    let stated = job.data.samples.map(|count| [count.0, count.0 / 10, 0]);
    let samples = facts.samples.or(stated);
    if let Some([training, ..]) = samples
        && u64::from(train.batch) > training
    {
        let message = format!("a batch of {} is more than the {training} training samples", train.batch);
        return Err(Problem::at("train.batch", message).hint(format!("write `batch: {training}` or less")));
    }
    let mut assumptions = Vec::new();
    let sample = sample(train, facts, &mut assumptions);
    check_image_size(train, sample)?;
    let network = sample.and_then(|sample| graph(train, sample, facts, &mut assumptions));
    let savings = Savings { chunked_loss: train.chunked_loss, trainer_gathers: true, ..Savings::default() };
    let network = network.map(|graph| ResolvedNetwork::of(ModelDescription::Graph(graph)).saving(savings));
    let program = program(train);
    let saving = CheckpointSchedule {
        keep: train.checkpoint.keep,
        every: match train.checkpoint.every {
            Every::Time(between) => Some(between.as_secs_f64()),
            Every::Auto | Every::Steps(_) => None,
        },
    };
    let weights = network.as_ref().map_or(0.0, |network| network.ops.parameters);
    let spec = TrainingSpec {
        length: length(train, samples),
        data: data(job, train, samples),
        checkpoints: checkpoints(weights, &program, saving),
        network: network.as_ref().map_or(NetworkFigures::default(), figures),
        program,
        division: ParallelChoice::Search,
    };
    Ok(Trained { network, sample, spec, samples, assumptions })
}

/// The figures of a network that is trained here: ranks share neither sequences nor experts.
fn figures(network: &ResolvedNetwork) -> NetworkFigures {
    NetworkFigures { tokens: 0, experts: 0, ..network.figures() }
}

/// Refuses images whose size is not a multiple of a vision transformer's patches.
fn check_image_size(train: &Train, sample: Option<Sample>) -> Result<(), Problem> {
    let Some(Sample::Image { height, width, .. }) = sample else { return Ok(()) };
    let architecture = train.model.architecture();
    if matches!(architecture, Some(Architecture::Convnext { .. })) && height.min(width) < 32 {
        let message = format!("`{}` halves images five times, and {height} × {width} is too small", train.model.name());
        return Err(Problem::at("train.data.size", message).hint("write `size: 224`"));
    }
    let Some(Architecture::Vit { patch, .. }) = architecture else { return Ok(()) };
    let patch = patch as u32;
    if height % patch == 0 && width % patch == 0 {
        return Ok(());
    }
    let message = format!(
        "`{}` cuts images into patches of {patch} × {patch} pixels, and {height} × {width} is no multiple of it",
        train.model.name()
    );
    let size = height.max(width).next_multiple_of(patch);
    Err(Problem::at("train.data.size", message).hint(format!("write `size: {size}` under `train.data`")))
}

/// How the job itself divides a step among its ranks.
pub fn division(train: &Train, nodes: u32) -> ParallelChoice {
    let tensor = train.parallel.tensor.max(1);
    let parallel = ParallelDegrees {
        data: (train.processes.max(1) * nodes / tensor).max(1),
        tensor,
        pipeline: 1,
        zero: match train.parallel.shard {
            train::Shard::None => Zero::None,
            train::Shard::Optimizer => Zero::Optimizer,
            train::Shard::Gradients => Zero::Gradients,
            train::Shard::Parameters => Zero::Parameters,
        },
        ..ParallelDegrees::default()
    };
    let recompute = match train.recompute {
        train::Recompute::None => ActivationCheckpointing::None,
        train::Recompute::Blocks => ActivationCheckpointing::Full,
        train::Recompute::Every(blocks) => ActivationCheckpointing::Every(blocks),
    };
    ParallelChoice::Stated { parallel, accumulate: u64::from(train.accumulate.max(1)), recompute }
}

fn length(train: &Train, samples: Option<[u64; 3]>) -> RunLength {
    let batch = u64::from(train.batch.max(1));
    let Some([training, validation, test]) = samples else { return RunLength { batch, steps: 0, evaluated: 0 } };
    // A run that stops before its last epoch has fewer steps than the learning rate moves over.
    let epochs = u64::from(train.last_epoch());
    RunLength {
        batch,
        steps: epochs.saturating_mul(training.div_ceil(batch)),
        evaluated: validations(train, epochs, training.div_ceil(batch)).saturating_mul(validation).saturating_add(test),
    }
}

/// How often the validation split is scored in so many epochs of so many steps.
fn validations(train: &Train, epochs: u64, steps: u64) -> u64 {
    let all = epochs.saturating_mul(steps);
    match train.validate_every {
        None => epochs,
        Some(train::Span::Steps(every)) => all.div_ceil(every.max(1)),
        Some(train::Span::Epochs(every)) => all.div_ceil(((every * steps as f64).round() as u64).max(1)),
    }
}

fn data(job: &Job, train: &Train, samples: Option<[u64; 3]>) -> DataDemand {
    let (bytes, per_core, disk) = match &train.data.text {
        Some(text) => (TOKEN_BYTES * u64::from(text.length), job.data.per_core, Service::PlainDisk),
        None => {
            let photographs = photographs();
            let per_core = job.data.per_core.unwrap_or(photographs.per_core);
            (photographs.bytes as u64, Some(per_core), Service::SsdDisk)
        }
    };
    let training = samples.map_or(0, |[training, ..]| training);
    let bytes = job.data.bytes.unwrap_or_else(|| Bytes(training.saturating_mul(bytes)));
    // Texts and what is preloaded stay in memory.
    let is_read = train.data.text.is_none() && train.data.preload.is_none();
    let sample = if is_read && training > 0 { bytes.0 as f64 / training as f64 } else { 0.0 };
    DataDemand { per_core, bytes, sample, disk }
}

fn program(train: &Train) -> ProgramOptions {
    ProgramOptions {
        precision: train.precision.into(),
        optimizer: (&train.optimizer).into(),
        // As on a GPU; on processors no estimate depends on it.
        layout: Layout::from(train.memory_format_on(true)),
        flash_attention: true,
        compiled: false,
        recompute: train.recompute == train::Recompute::Blocks,
        averages: train.average.is_some(),
    }
}

/// Whether values are dropped out while it trains.
pub fn drops_out(train: &Train) -> bool {
    train.model.architecture().is_some_and(Architecture::has_dropout) && train.dropout != Some(0.0)
}

/// The default image size and number of classes of an architecture whose data is not opened.
fn usual(architecture: Option<Architecture>, task: train::Task) -> (u32, u32) {
    match (task, architecture) {
        (train::Task::ObjectDetection, _) => (640, 80),
        (_, Some(Architecture::SmallResnet { .. } | Architecture::Cnn | Architecture::Mlp)) => (32, 10),
        (train::Task::TextClassification, _) => (0, 2),
        (_, _) => (224, 1000),
    }
}

/// The network's input for one sample; `None` for text that the job does not describe.
fn sample(train: &Train, facts: &JobFacts, assumptions: &mut Vec<String>) -> Option<Sample> {
    match train.task() {
        train::Task::ImageClassification | train::Task::ObjectDetection => {
            let [channels, height, width] = image(train, facts, assumptions);
            Some(Sample::Image { channels, height, width })
        }
        train::Task::TextClassification | train::Task::MaskedLanguageModel | train::Task::LanguageModel => {
            let text = train.data.text.as_ref()?;
            let vocabulary = text.vocabulary;
            assumptions.push(match &text.tokenizer {
                None => format!("a vocabulary of {vocabulary} tokens, the most that is learned, is assumed"),
                Some(file) => format!("a vocabulary of {vocabulary} tokens is assumed: `{file}` is not opened yet"),
            });
            Some(Sample::Text { vocabulary, length: text.length })
        }
    }
}

/// Channels, height and width that the network is given.
fn image(train: &Train, facts: &JobFacts, assumptions: &mut Vec<String>) -> [u32; 3] {
    let size = train.data.size;
    if let Some([channels, height, width]) = facts.input_shape {
        return size.map_or([channels, height, width], |size| [channels, size, size]);
    }
    let path = train.data.path.to_lowercase();
    if path.ends_with(".csv") || path.ends_with(".csv.gz") {
        // That form of data has 64 pixels per sample.
        let side = size.unwrap_or(8);
        return [1, side, side];
    }
    let (usual, _) = usual(train.model.architecture(), train.task());
    let side = size.unwrap_or(usual);
    let why = if size.is_none() { "; say `train.data.size`" } else { "" };
    assumptions.push(format!("RGB images of {side}×{side} pixels are assumed until the data is opened{why}"));
    [3, side, side]
}

/// The network's graph for such samples; `None`, with an assumption, if there is none.
fn graph(train: &Train, sample: Sample, facts: &JobFacts, assumptions: &mut Vec<String>) -> Option<Graph> {
    let architecture = train.model.architecture();
    let known = match train.task() {
        train::Task::MaskedLanguageModel | train::Task::LanguageModel => Some(0),
        train::Task::ImageClassification | train::Task::ObjectDetection | train::Task::TextClassification => {
            facts.classes.or(train.data.classes)
        }
    };
    let (_, usual) = usual(architecture, train.task());
    let mut graph = ours::graph(architecture?, sample, u64::from(known.unwrap_or(usual)))?;
    if known.is_none() {
        assumptions.push(format!("{usual} classes are assumed until the data is opened; say `train.data.classes`"));
    }
    if !drops_out(train) {
        graph.leave_dropout_out();
    }
    Some(graph)
}
