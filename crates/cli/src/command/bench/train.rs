//! `gradus bench train`: how fast this machine trains, measured on samples of no meaning.

use std::path::PathBuf;

use domain::architecture::{Architecture, Reads};
use domain::rank::Sample;
use domain::train::{Model, Precision, Train};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::record::{self, BenchKind, BenchRecord};
use crate::error::Error;
use crate::error::exit;
use crate::printer::Printer;
use crate::rank::steps::{NoAnswer, StepBench, quartiles};
use crate::settings::GlobalSettings;

/// Arguments of `gradus bench train`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Model, as `train.model` of a job file, such as `resnet50` or `bert_mini`
    #[arg(long, value_parser = word::<Model>)]
    model: Model,
    /// Samples per step
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=1_048_576))]
    batch: u32,
    /// Height and width of images [default: 224, or 32 for CIFAR-sized models]
    #[arg(long, value_name = "PIXELS", value_parser = clap::value_parser!(u32).range(8..=1024))]
    image: Option<u32>,
    /// Tokens per row of text [default: 128]
    #[arg(long, value_name = "TOKENS", value_parser = clap::value_parser!(u32).range(8..=1024))]
    sequence: Option<u32>,
    /// Precision, as `train.precision` of a job file
    #[arg(long, default_value = "auto", value_parser = word::<Precision>)]
    precision: Precision,
    /// Use channels-last memory format (NHWC)
    #[arg(long)]
    channels_last: bool,
    /// Use activation checkpointing on blocks
    #[arg(long)]
    recompute: bool,
    /// Whether to use CUDA graphs, as `train.cuda_graphs` of a job file [default: where passes can be captured]
    #[arg(long, value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    cuda_graphs: Option<bool>,
    /// Ranks; steps are timed with gradient all-reduce overlapping the backward pass, and after it
    #[arg(long, value_name = "RANKS", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1024))]
    processes: u32,
    /// libtorch threads per rank [default: all cores divided by the ranks]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Timed steps, after 5 warm-up steps
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    steps: u32,
    /// Peak of the device in TFLOP/s, to compute MFU [default: from the catalog, if it has the GPU]
    #[arg(long, value_name = "TFLOPS")]
    peak_tflops: Option<f64>,
    /// File to append the result to [default: `bench.jsonl` in the home folder]
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Note to store with the result, such as a commit
    #[arg(long)]
    note: Option<String>,
}

/// Warm-up steps.
const WARM_UP: u32 = 5;
/// Matrix products to measure the achievable peak of the device.
const PRODUCTS: u32 = 5;
/// Vocabulary size and classes of the samples.
const VOCABULARY: u32 = 8_000;
const CLASSES: u32 = 1_000;
/// Tokens per row by default.
const USUAL_LENGTH: u32 = 128;

/// Measures.
///
/// # Errors
/// [`Error`].
pub fn run(args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    if let Some(peak) = args.peak_tflops.filter(|peak| !(peak.is_finite() && *peak > 0.0)) {
        let message = format!("`--peak-tflops {peak}` is not a positive number");
        return Err(Error::Usage { message, hint: "use the figure of the data sheet, such as `989`".to_owned() });
    }
    let threads = args.threads.unwrap_or_else(|| (cores() / args.processes).max(1));
    if args.processes > args.batch {
        let message = format!("a batch of {} samples cannot be divided among {} ranks", args.batch, args.processes);
        return Err(Error::Usage { message, hint: format!("use `--batch {}` or more", args.processes) });
    }
    let case = case(args, threads)?;
    let [answer, apart] = ask(settings, &case, threads, args)?;
    let mut figures = figures(args, &answer)?;
    if args.processes > 1 {
        figures["processes"] = json!(args.processes);
        figures["apart_step_ms"] = self::figures(args, &apart)?["step_ms"].clone();
    }
    let path = record::file(args.history.as_deref(), settings);
    record::append(&path, &[entry(args, &figures, settings, threads)?])?;
    if printer.is_json() {
        printer.json(&figures);
        return Ok(exit::DONE);
    }
    let number = |key: &str| figures[key].as_f64().unwrap_or_default();
    printer.data(format!(
        "step          {:.1} ms (quartiles {:.1} to {:.1})",
        number("step_ms"),
        number("step_ms_low"),
        number("step_ms_high")
    ));
    if args.processes > 1 {
        let (step, apart) = (number("step_ms"), number("apart_step_ms"));
        printer.data(format!("              {} ranks, gradient all-reduce overlaps the backward pass", args.processes));
        printer.data(format!("not overlapped {apart:.1} ms, {:.2} × as long", apart / step));
    }
    printer.data(format!("throughput    {:.1} samples/s", number("samples_per_s")));
    printer.data(format!("peak memory   {:.0} MB", number("peak_bytes") / 1e6));
    if figures["tflops"].is_number() {
        printer.data(format!("model FLOP/s  {:.3} TFLOP/s", number("tflops")));
    }
    if let (Some(mfu), Some(of)) = (figures["mfu"].as_f64(), figures["peak_of"].as_str()) {
        printer.data(format!("MFU           {:.1} % of {:.1} TFLOP/s, {of}", 100.0 * mfu, number("peak_tflops")));
    }
    if let (Some(rate), Some(reached)) = (figures["matmul_tflops"].as_f64(), figures["tflops"].as_f64()) {
        let share = 100.0 * reached / rate;
        printer.data(format!("              {share:.1} % of a large matrix product, measured at {rate:.3} TFLOP/s"));
    }
    printer.say(format!("appended to `{}`; compare with `gradus bench history`", path.display()));
    Ok(exit::DONE)
}

/// What `gradus-rank bench` is given: the `train:` section of a job, and what its data would say.
fn case(args: &Args, threads: u32) -> Result<Value, Error> {
    let architecture = Architecture::of(args.model);
    let name = args.model.name();
    let usage = |message: String, hint: &str| Error::Usage { message, hint: hint.to_owned() };
    let mut job = json!({
        "model": args.model, "data": {"path": ""}, "epochs": 1, "batch": args.batch, "precision": args.precision,
        "processes": args.processes, "memory_format": if args.channels_last { "channels_last" } else { "contiguous" },
        "recompute": if args.recompute { "blocks" } else { "none" }, "cuda_graphs": args.cuda_graphs,
    });
    let parsed: Option<Train> = serde_json::from_value(job.clone()).ok();
    if let (Some(true), Some(why)) = (args.cuda_graphs, parsed.and_then(|train| train.why_not_captured())) {
        return Err(usage(format!("{why}, so CUDA graphs cannot capture a step"), "remove `--cuda-graphs`"));
    }
    let mut size = 0;
    match architecture.reads() {
        Reads::Images | Reads::DetectionImages => {
            if args.sequence.is_some() {
                return Err(usage(format!("`{name}` takes images, not text"), "use `--image PIXELS`"));
            }
            size = args.image.unwrap_or_else(|| usual_image(architecture));
            job["optimizer"] = json!({"sgd": {"lr": 0.01}});
        }
        Reads::Tokens | Reads::CausalTokens => {
            if args.image.is_some() || args.channels_last {
                return Err(usage(format!("`{name}` takes text, not images"), "use `--sequence TOKENS`"));
            }
            let length = args.sequence.unwrap_or(USUAL_LENGTH);
            if let Some(longest) = architecture.positions().filter(|longest| i64::from(length) > *longest) {
                let message = format!("`--sequence {length}` exceeds the {longest} positions of `{name}`");
                return Err(usage(message, &format!("use `--sequence {longest}` or less")));
            }
            job["data"]["text"] = json!({"label": "class", "length": length, "vocabulary": VOCABULARY});
            job["optimizer"] = json!({"adamw": {"lr": 1e-4}});
        }
    }
    Ok(json!({
        "train": job, "size": size, "vocabulary": VOCABULARY, "classes": CLASSES, "threads": threads,
        "products": if args.processes == 1 { PRODUCTS } else { 0 },
    }))
}

/// Steps per block, if two configurations are timed alternately.
const BLOCK: u32 = 5;

/// The requests to a rank: warm-up steps, then timed ones, if there are several ranks in alternating blocks of both
/// configurations.
fn questions(args: &Args) -> Vec<(&'static str, u32, bool)> {
    if args.processes == 1 {
        return vec![("steps", WARM_UP, false), ("steps", args.steps, true)];
    }
    let mut questions = vec![("steps", WARM_UP, false), ("apart", WARM_UP, false)];
    let mut left = args.steps;
    while left > 0 {
        let count = left.min(BLOCK);
        questions.extend([("steps", count, true), ("apart", count, true)]);
        left -= count;
    }
    questions
}

/// Lets a rank make the steps, and returns its answers: for steps as in a run, and for those without overlap.
fn ask(settings: &GlobalSettings, case: &Value, threads: u32, args: &Args) -> Result<[Value; 2], Error> {
    // The rank has printed the reason on stderr.
    let silent = |_| Error::Code {
        message: "the benchmark process failed".to_owned(),
        hint: Some("see its message above; if memory is short, use a smaller `--batch`".to_owned()),
        code: exit::WORLD,
    };
    let mut steps = StepBench::start(settings, case, threads)?;
    let mut answers = [Value::Null, Value::Null];
    for (question, count, counts) in questions(args) {
        let said = steps.ask(question, count, None).map_err(silent)?;
        if counts {
            add(&mut answers[usize::from(question == "apart")], said);
        }
    }
    if steps.finish() { Ok(answers) } else { Err(silent(NoAnswer::Ended)) }
}

/// The same answer over more steps.
fn add(answer: &mut Value, said: Value) {
    let mut seconds = answer["seconds"].as_array().cloned().unwrap_or_default();
    seconds.extend(said["seconds"].as_array().into_iter().flatten().cloned());
    *answer = said;
    answer["seconds"] = json!(seconds);
}

/// Figures of the steps that were timed.
fn figures(args: &Args, answer: &Value) -> Result<Value, Error> {
    let Some([low, middle, high]) = quartiles(answer) else {
        let message = "`gradus-rank` returned no step times".to_owned();
        let hint = Some("install `gradus` and `gradus-rank` of the same version".to_owned());
        return Err(Error::Code { message, hint, code: exit::WORLD });
    };
    let architecture = Architecture::of(args.model);
    let graph = ::plan::model::ours::graph(architecture, sample(args, architecture), classes(architecture));
    let flops = graph.as_ref().map(::plan::utilisation::flops_per_sample);
    let tflops = flops.map(|flops| flops * f64::from(args.batch) / middle / 1e12);
    let environment = &answer["environment"];
    let stated = args.peak_tflops.map(|peak| (peak, "from `--peak-tflops`".to_owned()));
    // The peak of one device, times the number of ranks.
    let of_all = |(peak, of): (f64, String)| (peak * f64::from(args.processes), of);
    let peak = stated.or_else(|| known_peak(environment)).map(of_all);
    let mfu = tflops.zip(peak.as_ref()).map(|(reached, (peak, _))| reached / peak);
    Ok(json!({
        "model": args.model, "batch": args.batch, "image": args.image, "sequence": args.sequence,
        "step_ms": 1e3 * middle, "step_ms_low": 1e3 * low, "step_ms_high": 1e3 * high,
        "steps": answer["seconds"].as_array().map(Vec::len),
        "samples_per_s": f64::from(args.batch) / middle, "peak_bytes": answer["peak_bytes"],
        "parameters": answer["parameters"], "environment": environment, "flops_per_sample": flops, "tflops": tflops,
        "peak_tflops": peak.as_ref().map(|(peak, _)| peak), "peak_of": peak.as_ref().map(|(_, of)| of), "mfu": mfu,
        "matmul_tflops": answer["matmul_flops"].as_f64().map(|flops| flops / 1e12),
    }))
}

/// One sample as `gradus-rank bench` makes it.
fn sample(args: &Args, architecture: Architecture) -> Sample {
    match architecture.reads() {
        Reads::Images | Reads::DetectionImages => {
            let side = args.image.unwrap_or_else(|| usual_image(architecture));
            Sample::Image { channels: 3, height: side, width: side }
        }
        Reads::Tokens | Reads::CausalTokens => {
            Sample::Text { vocabulary: VOCABULARY, length: args.sequence.unwrap_or(USUAL_LENGTH) }
        }
    }
}

/// Number of classes; 0 for a language model.
fn classes(architecture: Architecture) -> u64 {
    match architecture.reads() {
        Reads::Images | Reads::DetectionImages | Reads::Tokens => u64::from(CLASSES),
        Reads::CausalTokens => 0,
    }
}

/// The catalog's peak of the measured device, in TFLOP/s, and the device.
fn known_peak(environment: &Value) -> Option<(f64, String)> {
    let gpus = cloud::catalog::gpus::GpuTable::embedded().ok()?;
    let gpu = gpus.meant(environment["device_name"].as_str()?, None)?;
    let precision = environment["precision"].as_str()?;
    let peak = ::plan::utilisation::peak(gpu, precision)?;
    Some((peak / 1e12, format!("data sheet of {} in {precision}", gpu.name)))
}

/// The measurement as it is recorded.
fn entry(args: &Args, figures: &Value, settings: &GlobalSettings, threads: u32) -> Result<BenchRecord, Error> {
    let environment = &figures["environment"];
    let machine = environment["device_name"].as_str().unwrap_or_default().to_owned();
    let mut entry = BenchRecord::now(BenchKind::Step, settings, machine, args.note.clone())?;
    let architecture = Architecture::of(args.model);
    let (image, sequence) = match sample(args, architecture) {
        Sample::Image { height, .. } => (Some(height), None),
        Sample::Text { length, .. } => (None, Some(length)),
    };
    let mut case = json!({
        "model": args.model, "batch": args.batch, "image": image, "sequence": sequence,
        "precision": environment["precision"], "channels_last": args.channels_last, "recompute": args.recompute,
        "threads": threads, "processes": args.processes, "torch": environment["torch"],
    });
    if let Some(cuda_graphs) = args.cuda_graphs {
        case["cuda_graphs"] = json!(cuda_graphs);
    }
    entry.case = case.as_object().cloned().unwrap_or_default();
    let kept = ["step_ms", "step_ms_low", "step_ms_high", "samples_per_s", "peak_bytes", "tflops", "mfu"];
    let kept = kept.into_iter().filter(|key| !figures[*key].is_null());
    entry.figures = kept.map(|key| (key.to_owned(), figures[key].clone())).collect();
    Ok(entry)
}

/// Height and width of the images that a network was made for.
fn usual_image(architecture: Architecture) -> u32 {
    if matches!(architecture, Architecture::SmallResnet { .. }) { 32 } else { 224 }
}

/// A word of a job file.
fn word<T: DeserializeOwned>(text: &str) -> Result<T, String> {
    let read = |text: &str| serde_json::from_value(json!(text));
    read(text).map_err(|error| unknown(text, &error.to_string(), |word| read(word).is_ok()))
}

/// The message for a word that is none of those which serde lists, with the nearest of them that stands for itself.
fn unknown(text: &str, error: &str, is_whole: impl Fn(&str) -> bool) -> String {
    if error.starts_with("invalid type: unit variant") {
        return format!(
            "`{text}` has sizes or a file, which only a job file gives; name a model by one word, such as `cnn`"
        );
    }
    let Some((_, list)) = error.split_once("expected one of ") else { return error.to_owned() };
    let known: Vec<&str> = list.split('`').skip(1).step_by(2).filter(|word| is_whole(word)).collect();
    match domain::file::nearest::nearest(text, known.iter().copied()) {
        Some(near) => format!("not known here; did you mean `{near}`?"),
        None => format!("not known here; there are {}", known.join(", ")),
    }
}

fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| u32::try_from(cores.get()).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mistyped_model_is_led_to_the_nearest() {
        assert_eq!(word::<Model>("resnet19").unwrap_err(), "not known here; did you mean `resnet18`?");
        assert_eq!(word::<Model>("resnetx").unwrap_err(), "not known here; did you mean `resnet20`?");
        assert!(word::<Model>("resnet").unwrap_err().contains("only a job file gives"));
        assert!(word::<Model>("completely_else").unwrap_err().starts_with("not known here; there are mlp, cnn, "));
        assert!(word::<Model>("resnet18").is_ok());
    }
}
