//! From a job to what the search needs: the network, and the task in numbers. What the job leaves open is assumed, and
//! said.

use domain::architecture::Architecture;
use domain::problem::Problem;
use domain::rank::Sample;
use domain::tariff::Service;
use domain::train::{self, MemoryFormat, Train};
use domain::workload::{Described, Format, Model as Named, Update, Workload};
use domain::{Bytes, Job, Work as JobWork};

use super::entering::{Entering, TOKEN_BYTES, fits, photographs};
use super::task::{Formats, Task};
use crate::estimate::{Layout, Optimizer, Work};
use crate::model::read::{self, Shape};
use crate::model::{Graph, Kind, Model, Summary, ours};

/// What is planned.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    pub model: Model,
    /// The same, digested for estimates of time.
    pub work: Work,
    pub task: Task,
    /// Training samples, where they are known.
    pub samples: Option<u64>,
    /// What was assumed, a sentence each.
    pub assumptions: Vec<String>,
}

/// Checkpoints that are kept when the job does not say how many.
const KEEP: u32 = 3;

/// What a job's model file is, as far as the job names one.
pub fn file(job: &Job) -> Option<&str> {
    match &job.workload.as_ref()?.model {
        Named::File(path) => Some(path),
        Named::Described(_) => None,
    }
}

/// Understands a job. `bytes` are those of the file that [`file`] names.
///
/// # Errors
/// What is missing or cannot be read, with what to write.
pub fn subject(job: &Job, bytes: Option<&[u8]>) -> Result<Subject, Problem> {
    match (&job.workload, &job.work) {
        (Some(workload), _) => described(job, workload, bytes),
        (None, JobWork::Train(train)) => trained(job, train),
        (None, JobWork::Command(_)) => {
            let message = "what the program trains is not said, so nothing can be planned for it";
            Err(Problem::at("workload", message)
                .hint("write `workload: {model: config.json, batch: 256, epochs: 3}` and `data: {samples: …}`"))
        }
    }
}

fn described(job: &Job, workload: &Workload, bytes: Option<&[u8]>) -> Result<Subject, Problem> {
    let mut assumptions = Vec::new();
    let shape =
        Shape { sequence: workload.sequence, picture: workload.picture.map(|side| [3, side, side]), classes: None };
    let at_model = |problem: Problem| match problem.key.as_str() {
        key @ ("sequence" | "picture") => Problem { key: format!("workload.{key}"), ..problem },
        key => {
            let at = if key.is_empty() { String::new() } else { format!("`{key}`: ") };
            let whose = match &workload.model {
                Named::File(path) => format!("`{path}`: "),
                Named::Described(_) => String::new(),
            };
            let message = format!("{whose}{at}{}", problem.message);
            Problem { key: "workload.model".to_owned(), message, ..problem }
        }
    };
    let model = match &workload.model {
        Named::File(_) => Model::Graph(read::model(bytes.unwrap_or_default(), &shape).map_err(at_model)?),
        Named::Described(Described::Config(figures)) => {
            let text = serde_json::Value::Object(figures.0.clone()).to_string();
            Model::Graph(read::model(text.as_bytes(), &shape).map_err(at_model)?)
        }
        Named::Described(Described::Totals(totals)) => {
            if totals.parameters.0 == 0 || totals.multiply_adds.0 == 0 {
                let message = "a network without weights or arithmetic learns nothing";
                return Err(Problem::at("workload.model.totals", message)
                    .hint("write its totals, as tables of models state them"));
            }
            Model::Summary(Summary {
                parameters: totals.parameters.0 as f64,
                multiply_adds: totals.multiply_adds.0 as f64,
                activations: totals.activations.0 as f64,
                family: totals.family.clone(),
            })
        }
    };
    if let Model::Graph(graph) = &model {
        fits(graph, workload)?;
        if !graph.unknown.is_empty() {
            let what = graph.unknown.join(", ");
            assumptions.push(format!("not understood, and an operator that is not known counts nothing: {what}"));
        }
        assumptions.extend(graph.assumed.iter().cloned());
    }
    let entering = Entering::of(&model, workload);
    let samples = job.data.samples.map(|count| count.0);
    let length = entering.tokens.or(workload.sequence);
    let steps = steps(workload, samples, length, &mut assumptions)?;
    let epochs = match (workload.epochs, samples) {
        (Some(epochs), _) => epochs,
        (None, Some(samples)) if samples > 0 => steps as f64 * workload.batch as f64 / samples as f64,
        (None, _) => 1.0,
    };
    let seen = samples.unwrap_or_else(|| steps.saturating_mul(workload.batch));
    let sample_bytes = entering.bytes;
    let data = job.data.bytes.unwrap_or_else(|| {
        let assumed = Bytes(seen.saturating_mul(sample_bytes));
        assumptions.push(format!(
            "the data is taken to be {:.1} GB: {sample_bytes} bytes a sample; say `data: {{bytes: …}}`",
            assumed.0 as f64 / 1e9
        ));
        assumed
    });
    let per_core = match (job.data.per_core, entering.sees) {
        (Some(given), _) => Some(given),
        (None, false) => None,
        (None, true) => {
            let per_core = photographs().per_core;
            assumptions.push(format!(
                "a core makes {per_core} photographs a second ready with our loader; other loaders may be several times slower: measure (`gradus data bench` tells ours on a machine), and say `data: {{per_core: …}}`"
            ));
            Some(per_core)
        }
    };
    let update = optimizer(workload.optimizer);
    Ok(finish(
        model,
        assumptions,
        samples,
        Draft {
            batch: workload.batch,
            steps,
            evaluated: workload.evaluated.map_or(0, |count| (count.0 as f64 * epochs.ceil()) as u64),
            per_core,
            data,
            disk: if entering.sees { Service::SsdDisk } else { Service::PlainDisk },
            keep: KEEP,
            checkpoint: workload.checkpoint.map(|between| between.as_secs_f64()),
            formats: formats(workload.precision),
            optimizer: update,
            layout: layout(workload.memory_format),
            flash_attention: workload.flash_attention,
            compiled: workload.compiled,
            recompute: workload.recompute,
        },
    ))
}

/// What is said of the task beside the network.
struct Draft {
    batch: u64,
    steps: u64,
    evaluated: u64,
    per_core: Option<f64>,
    data: Bytes,
    disk: Service,
    keep: u32,
    checkpoint: Option<f64>,
    formats: Formats,
    optimizer: Optimizer,
    layout: Layout,
    flash_attention: bool,
    compiled: bool,
    recompute: bool,
}

fn finish(model: Model, assumptions: Vec<String>, samples: Option<u64>, draft: Draft) -> Subject {
    let work = Work::of(&model);
    let moments = match draft.optimizer {
        Optimizer::Sgd => 0.0,
        Optimizer::SgdMomentum => 4.0,
        Optimizer::Adam | Optimizer::Lamb => 8.0,
        Optimizer::Adam8bit => 2.0,
        Optimizer::Adafactor => 4.0,
    };
    let (heads, blocks, multiply_adds) = match &model {
        Model::Graph(graph) => (heads(graph), graph.blocks(), graph.multiply_adds() as f64),
        Model::Summary(summary) => (0, 0, summary.multiply_adds),
    };
    let weights = work.parameters;
    // Weights in bfloat16 take half the room, and so do the values that the optimiser keeps of them.
    let width = if draft.formats == Formats::Bf16 { 0.5 } else { 1.0 };
    let task = Task {
        batch: draft.batch,
        steps: draft.steps,
        evaluated: draft.evaluated,
        per_core: draft.per_core,
        data: draft.data,
        disk: draft.disk,
        state: Bytes((weights * (4.0 + moments) * width) as u64),
        weights: Bytes((weights * 4.0 * width) as u64),
        keep: draft.keep,
        checkpoint: draft.checkpoint,
        multiply_adds,
        formats: draft.formats,
        optimizer: draft.optimizer,
        layout: draft.layout,
        flash_attention: draft.flash_attention,
        compiled: draft.compiled,
        recompute: draft.recompute,
        blocks,
        heads,
    };
    Subject { model, work, task, samples, assumptions }
}

/// Steps in all; `length` is that of a sequence, where the network reads words.
fn steps(
    workload: &Workload,
    samples: Option<u64>,
    length: Option<u64>,
    assumptions: &mut Vec<String>,
) -> Result<u64, Problem> {
    let missing = |message: &str, hint: &str| Problem::at("workload", message).hint(hint);
    let per_batch = |samples: f64| (samples / workload.batch as f64).ceil().max(1.0) as u64;
    match (workload.steps, workload.tokens, workload.epochs) {
        (Some(steps), _, _) => Ok(steps.0),
        (None, Some(tokens), _) => {
            let Some(length) = length else {
                let message = "`tokens` are counted in sequences, and this network reads none whose length is known";
                return Err(missing(
                    message,
                    "write `sequence: 2048`, or `steps: …` or `epochs: …` for another network",
                ));
            };
            if workload.sequence.is_none() {
                assumptions.push(format!("sequences are {length} tokens; say `sequence` for others"));
            }
            Ok(per_batch(tokens.0 as f64 / length as f64))
        }
        (None, None, Some(epochs)) => match samples {
            // Each epoch ends with a whole step.
            Some(samples) => Ok((epochs * samples.div_ceil(workload.batch) as f64).ceil() as u64),
            None => Err(missing(
                "epochs are counted in samples, and their number is not said",
                "write `data: {samples: …}`",
            )),
        },
        (None, None, None) => {
            Err(missing("how long it trains is not said", "write `epochs: …`, `steps: …` or `tokens: …`"))
        }
    }
}

fn trained(job: &Job, train: &Train) -> Result<Subject, Problem> {
    let mut assumptions = Vec::new();
    let Some(samples) = job.data.samples.map(|count| count.0) else {
        let message =
            "the data is not opened for a plan over machines elsewhere, and its number of samples is not said";
        return Err(Problem::at("data.samples", message).hint("write `data: {samples: 50000}`"));
    };
    if u64::from(train.batch) > samples {
        let message = format!("a batch of {} is more than the {samples} training samples", train.batch);
        return Err(Problem::at("train.batch", message).hint(format!("write `batch: {samples}` or less")));
    }
    let Some((graph, words)) = network(train, &mut assumptions) else {
        let message = "this network is not counted yet, so nothing can be planned for it elsewhere";
        return Err(Problem::at("train.model", message).hint("describe it under `workload:` beside a `run:` program"));
    };
    let (bytes, per_core) = match words {
        Some(length) => (TOKEN_BYTES * length, job.data.per_core),
        None => (photographs().bytes as u64, Some(job.data.per_core.unwrap_or(photographs().per_core))),
    };
    let data = job.data.bytes.unwrap_or_else(|| Bytes(samples.saturating_mul(bytes)));
    let draft = Draft {
        batch: u64::from(train.batch),
        steps: u64::from(train.epochs) * samples.div_ceil(u64::from(train.batch)),
        evaluated: u64::from(train.epochs) * samples / 10,
        per_core,
        data,
        disk: if words.is_some() { Service::PlainDisk } else { Service::SsdDisk },
        keep: train.checkpoint.keep,
        checkpoint: match train.checkpoint.every {
            train::Every::Time(between) => Some(between.as_secs_f64()),
            train::Every::Auto | train::Every::Steps(_) => None,
        },
        formats: match train.precision {
            train::Precision::Auto => Formats::Auto,
            // What fp32 comes to on a GPU that has TF32.
            train::Precision::Fp32 | train::Precision::Tf32 => Formats::Fp32,
            train::Precision::Bf16 => Formats::AmpBf16,
            train::Precision::Fp16 => Formats::AmpFp16,
        },
        optimizer: match train.optimizer {
            train::Optimizer::Sgd(sgd) if sgd.momentum == 0.0 => Optimizer::Sgd,
            // LARS keeps as much, and takes two norms more of each tensor.
            train::Optimizer::Sgd(_) | train::Optimizer::Lars(_) => Optimizer::SgdMomentum,
            train::Optimizer::Adamw(_) => Optimizer::Adam,
            train::Optimizer::Lamb(_) => Optimizer::Lamb,
            train::Optimizer::Adafactor(_) => Optimizer::Adafactor,
        },
        layout: layout(train.memory_format),
        flash_attention: true,
        compiled: false,
        recompute: train.recompute == train::Recompute::Blocks,
    };
    Ok(finish(Model::Graph(graph), assumptions, Some(samples), draft))
}

/// The network as far as the job says what it is given, and for text the words of a row; none where it is not counted.
fn network(train: &Train, assumptions: &mut Vec<String>) -> Option<(Graph, Option<u64>)> {
    let architecture = train.model.architecture()?;
    let mut assume = |value: u32, what: &str, key: &str| {
        assumptions.push(format!("{value} {what} are assumed; say `train.data.{key}`"));
        value
    };
    let (usual_side, usual_classes) = match (train.task(), architecture) {
        (train::Task::Boxes, _) => (640, 80),
        (_, Architecture::SmallResnet { .. } | Architecture::Cnn | Architecture::Mlp) => (32, 10),
        (train::Task::Texts, _) => (0, 2),
        (_, _) => (224, 1000),
    };
    let (sample, words) = match train.task() {
        train::Task::Pictures | train::Task::Boxes => {
            let side = train.data.size.unwrap_or_else(|| assume(usual_side, "pixels a side", "size"));
            (Sample::Picture { channels: 3, height: side, width: side }, None)
        }
        train::Task::Texts | train::Task::MaskedWords | train::Task::NextWord => {
            let text = train.data.text.as_ref()?;
            let sample = Sample::Text { vocabulary: text.vocabulary, length: text.length };
            (sample, Some(u64::from(text.length)))
        }
    };
    let classes = match train.task() {
        train::Task::MaskedWords | train::Task::NextWord => 0,
        train::Task::Pictures | train::Task::Boxes | train::Task::Texts => {
            train.data.classes.unwrap_or_else(|| assume(usual_classes, "classes", "classes"))
        }
    };
    Some((ours::graph(architecture, sample, u64::from(classes))?, words))
}

fn heads(graph: &Graph) -> u32 {
    let heads = graph.operators.iter().filter_map(|operator| match operator.kind {
        Kind::Attention { heads, .. } => Some(heads),
        _ => None,
    });
    heads.min().and_then(|heads| u32::try_from(heads).ok()).unwrap_or(0)
}

fn optimizer(update: Update) -> Optimizer {
    match update {
        Update::Sgd => Optimizer::Sgd,
        Update::SgdMomentum => Optimizer::SgdMomentum,
        Update::Adam => Optimizer::Adam,
        Update::Adam8bit => Optimizer::Adam8bit,
        Update::Adafactor => Optimizer::Adafactor,
        Update::Lamb => Optimizer::Lamb,
    }
}

fn formats(format: Format) -> Formats {
    match format {
        Format::Auto => Formats::Auto,
        Format::Fp32 => Formats::Fp32,
        Format::AmpFp16 => Formats::AmpFp16,
        Format::AmpBf16 => Formats::AmpBf16,
        Format::Bf16 => Formats::Bf16,
        Format::Fp8 => Formats::Fp8,
    }
}

fn layout(format: MemoryFormat) -> Layout {
    match format {
        MemoryFormat::Contiguous => Layout::ChannelsFirst,
        MemoryFormat::ChannelsLast => Layout::ChannelsLast,
    }
}
