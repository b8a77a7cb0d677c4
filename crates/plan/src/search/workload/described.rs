//! The `workload:` section of a job: the training of a user's own program.

use domain::problem::Problem;
use domain::tariff::Service;
use domain::workload::{Described, Workload, WorkloadModel as Named};
use domain::{Bytes, Job};

use super::input::{InputSpec, fits, photographs};
use super::spec::{DataDemand, ProgramOptions, RunLength, TrainingSpec};
use super::{CheckpointSchedule, ResolvedNetwork, ResolvedWorkload, checkpoints, request};
use crate::estimate::Layout;
use crate::estimate::limits::PHOTOGRAPHS_BY_PYTORCH;
use crate::estimate::optimizer::state_bytes;
use crate::model::read::{self, SampleShape};
use crate::model::{ModelDescription, Summary};

/// Retained checkpoints if the job does not specify the number.
const KEEP: u32 = 3;

/// The job's model file, if it names one.
pub fn model_file(job: &Job) -> Option<&str> {
    match &job.workload.as_ref()?.model {
        Named::File(path) => Some(path),
        Named::Described(_) => None,
    }
}

/// Resolves the `workload:` section of a job. `bytes` are those of the file that [`model_file`] names.
///
/// # Errors
/// What is missing or unreadable, with a hint.
pub(super) fn resolve(job: &Job, workload: &Workload, bytes: Option<&[u8]>) -> Result<ResolvedWorkload, Problem> {
    let mut assumptions = Vec::new();
    let model = network(workload, bytes)?;
    if let ModelDescription::Graph(graph) = &model {
        fits(graph, workload)?;
        if !graph.unknown.is_empty() {
            let what = graph.unknown.join(", ");
            assumptions.push(format!("not understood, and an operator that is not known counts nothing: {what}"));
        }
        assumptions.extend(graph.assumed.iter().cloned());
    }
    let input = InputSpec::of(&model, workload);
    let length = input.tokens.or(workload.sequence);
    fills(workload, length, &mut assumptions)?;
    let samples = job.data.samples.map(|count| sequences(workload, count.0, length));
    let steps = steps(workload, samples, length, &mut assumptions)?;
    let epochs = match (workload.epochs, samples) {
        (Some(epochs), _) => epochs,
        (None, Some(samples)) if samples > 0 => steps as f64 * workload.batch as f64 / samples as f64,
        (None, _) => 1.0,
    };
    let seen = samples.unwrap_or_else(|| steps.saturating_mul(workload.batch));
    let data = demand(job, &input, seen, &mut assumptions);
    let length = RunLength {
        batch: workload.batch,
        steps,
        evaluated: workload.evaluated.map_or(0, |count| (count.0 as f64 * epochs.ceil()) as u64),
    };
    let program = program(workload);
    let saving = CheckpointSchedule { keep: KEEP, every: workload.checkpoint.map(|between| between.as_secs_f64()) };
    let network = ResolvedNetwork::of(model).saving(request::savings(workload));
    request::check(workload, &network)?;
    assumptions.extend(on_hosts(workload, network.ops.parameters, &program));
    let spec = TrainingSpec {
        length,
        data,
        checkpoints: checkpoints(network.ops.parameters, &program, saving),
        network: network.figures(),
        program,
        division: request::division(workload),
    };
    Ok(ResolvedWorkload { network, spec, is_described: true, samples, assumptions })
}

/// The network that a `workload:` names: from a file's bytes, a configuration or totals.
fn network(workload: &Workload, bytes: Option<&[u8]>) -> Result<ModelDescription, Problem> {
    let shape =
        SampleShape { sequence: workload.sequence, image: workload.image.map(|side| [3, side, side]), classes: None };
    let at_model = |problem: Problem| match problem.key.as_str() {
        key @ ("sequence" | "image") => Problem { key: format!("workload.{key}"), ..problem },
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
    Ok(match &workload.model {
        Named::File(_) => ModelDescription::Graph(read::model(bytes.unwrap_or_default(), &shape).map_err(at_model)?),
        Named::Described(Described::Config(figures)) => {
            let text = serde_json::Value::Object(figures.0.clone()).to_string();
            ModelDescription::Graph(read::model(text.as_bytes(), &shape).map_err(at_model)?)
        }
        Named::Described(Described::Totals(totals)) => {
            if totals.parameters.0 == 0 || totals.multiply_adds.0 == 0 {
                let message = "a network without weights or arithmetic learns nothing";
                return Err(Problem::at("workload.model.totals", message)
                    .hint("write its totals, as tables of models state them"));
            }
            ModelDescription::Summary(Summary {
                parameters: totals.parameters.0 as f64,
                multiply_adds: totals.multiply_adds.0 as f64,
                activations: totals.activations.0 as f64,
                family: totals.family.clone(),
            })
        }
    })
}

/// The data that the run reads: `seen` samples, unless the job specifies the bytes of the data.
fn demand(job: &Job, input: &InputSpec, seen: u64, assumptions: &mut Vec<String>) -> DataDemand {
    let sample_bytes = input.bytes;
    let data = job.data.bytes.unwrap_or_else(|| {
        let assumed = Bytes(seen.saturating_mul(sample_bytes));
        assumptions.push(format!(
            "the data is taken to be {:.1} GB: {sample_bytes} bytes a sample; say `data: {{bytes: …}}`",
            assumed.0 as f64 / 1e9
        ));
        assumed
    });
    let per_core = match (job.data.per_core, input.has_images) {
        (Some(given), _) => Some(given),
        (None, false) => None,
        (None, true) => {
            // The program is the user's own, and so is its loader.
            let (per_core, ours) = (PHOTOGRAPHS_BY_PYTORCH, photographs().per_core);
            assumptions.push(format!(
                "a core prepares {per_core} photographs a second, as PyTorch's `DataLoader` does; with `gradus.Loader` in the program it is {ours}: say `data: {{per_core: {ours}}}`, or what you measured"
            ));
            Some(per_core)
        }
    };
    // Samples of text fill sequences of another length.
    let stated = job.data.bytes.zip(job.data.samples);
    let stated = stated.filter(|(_, samples)| samples.0 > 0 && input.tokens.is_none());
    DataDemand {
        per_core,
        bytes: data,
        sample: stated.map_or(sample_bytes as f64, |(bytes, samples)| bytes.0 as f64 / samples.0 as f64),
        disk: if input.has_images { Service::SsdDisk } else { Service::PlainDisk },
    }
}

fn program(workload: &Workload) -> ProgramOptions {
    ProgramOptions {
        precision: workload.precision,
        optimizer: workload.optimizer,
        layout: Layout::from(workload.memory_format),
        flash_attention: workload.flash_attention,
        compiled: workload.compiled,
        recompute: workload.recompute.is_allowed(),
        averages: false,
    }
}

/// That hosts have the memory for what is offloaded to them, of which many offers do not say how much they have.
fn on_hosts(workload: &Workload, weights: f64, program: &ProgramOptions) -> Option<String> {
    let what = match (workload.offload.has_optimizer(), workload.offload.has_activations()) {
        (false, false) => return None,
        (false, true) => "the inputs of recomputed blocks".to_owned(),
        (true, has_activations) => {
            let bytes = weights * state_bytes(program.optimizer, program.precision);
            let others = if has_activations { " and the inputs of recomputed blocks" } else { "" };
            format!("{:.0} GiB of optimizer state in all{others}", (bytes / f64::from(1 << 30)).ceil())
        }
    };
    Some(format!("the hosts' memory is large enough for {what}; it is not compared"))
}

/// Refuses texts that cannot fill the network's sequences as the job says, and says how they do.
fn fills(workload: &Workload, length: Option<u64>, assumptions: &mut Vec<String>) -> Result<(), Problem> {
    let Some(is_packed) = workload.packed else { return Ok(()) };
    let Some(length) = length else {
        let message = "texts fill sequences of tokens, and this network reads none whose length is known";
        return Err(Problem::at("workload.packed", message).hint("leave `packed` out, or write `sequence: 2048`"));
    };
    let Some(mean) = workload.mean_length else { return Ok(()) };
    match is_packed {
        true => assumptions.push(format!(
            "texts of {mean} tokens on average are packed into sequences of {length}, which have no padding"
        )),
        false if mean > length => {
            let message = format!("texts of {mean} tokens on average do not fit sequences of {length}");
            return Err(Problem::at("workload.mean_length", message)
                .hint(format!("write `sequence: {mean}` or more, or `packed: true`")));
        }
        false => assumptions.push(format!(
            "texts of {mean} tokens on average are padded to {length}: {:.0} % of what is computed is padding",
            100.0 * (1.0 - mean as f64 / length as f64)
        )),
    }
    Ok(())
}

/// Sequences that so many samples fill: as many, or fewer where several share one.
fn sequences(workload: &Workload, samples: u64, length: Option<u64>) -> u64 {
    match (workload.packed, workload.mean_length, length) {
        (Some(true), Some(mean), Some(length)) => {
            ((samples as f64 * mean as f64 / length.max(1) as f64).ceil() as u64).max(samples.min(1))
        }
        _ => samples,
    }
}

/// Total steps; `length` is that of a sequence, for a network over tokens.
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
            // What a padded sequence holds beside its text is none of these tokens.
            let filled = workload.mean_length.filter(|_| workload.packed == Some(false)).unwrap_or(length);
            Ok(per_batch(tokens.0 as f64 / filled as f64))
        }
        (None, None, Some(epochs)) => match samples {
            // Fewer samples than that are refused before; packed, they may still be too few.
            Some(sequences) if sequences < workload.batch => {
                let message =
                    format!("a batch of {} is more than the {sequences} sequences that the texts fill", workload.batch);
                let hint = format!("write `batch: {}` or less, or a shorter `sequence`", sequences.max(1));
                Err(Problem::at("workload.batch", message).hint(hint))
            }
            // Each epoch ends with a complete step.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Images a second that a core prepares for a program, with this `data:`.
    fn per_core(data: &str) -> Option<f64> {
        let text = format!(
            "run: torchrun train.py\ndata: {{samples: 1281167, bytes: 147 GB{data}}}\n\
             workload: {{model: {{config: {{model_type: resnet}}}}, image: 224, batch: 1024, epochs: 90}}\n"
        );
        let job = Job::parse(&text, "job.yaml").unwrap().job;
        super::super::resolve(&job, None).unwrap().spec.data.per_core
    }

    /// Whoever starts `torchrun` has PyTorch's loader, and a plan at the speed of ours would be too cheap.
    #[test]
    fn a_program_is_taken_to_have_a_loader_of_its_own() {
        let ours = photographs().per_core;
        assert_eq!(per_core(""), Some(PHOTOGRAPHS_BY_PYTORCH));
        assert!(PHOTOGRAPHS_BY_PYTORCH < ours / 2.0, "{PHOTOGRAPHS_BY_PYTORCH} {ours}");
        assert_eq!(per_core(&format!(", per_core: {ours}")), Some(ours));
    }
}
