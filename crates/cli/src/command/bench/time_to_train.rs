//! `gradus bench time-to-train`: the time of a job until its model reaches a target, over several seeds, as in MLPerf
//! Training (Mattson et al. 2020): time to an accuracy is more meaningful than steps per second.

use std::path::{Path, PathBuf};

use domain::rank::{EvaluatedSplit, Exported, Report};
use domain::run::{Outcome, RunState};
use domain::train::{Span, Stop, Train};
use domain::{Fraction, RunId, Work};
use serde_json::{Value, json};
use server::{Home, Series, State, submit};

use super::record::{self, BenchKind, BenchRecord};
use crate::error::Error;
use crate::error::exit;
use crate::follow::attend::attend;
use crate::follow::result::verdict;
use crate::follow::watch::Since;
use crate::local::draft::draft;
use crate::local::job_file::JobArgs;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus bench time-to-train`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    job: JobArgs,
    /// Validation accuracy that ends a run, such as `0.97` or `97%`
    #[arg(long, value_name = "ACCURACY")]
    target: Fraction,
    /// Number of runs; their seeds count up from `--seed`, or from 1
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    seeds: u32,
    /// File to append the results to [default: `bench.jsonl` in the home folder]
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Note to store with this measurement, such as a commit
    #[arg(long)]
    note: Option<String>,
}

/// The result of one run.
#[derive(Debug, Clone, PartialEq)]
struct Reached {
    run: RunId,
    seed: u64,
    /// Epochs and steps until the validation that met the target; `None` if none did.
    epochs: Option<u32>,
    steps: Option<u64>,
    /// From the submission to that validation, or to the run's end.
    seconds: f64,
    /// From the first step's beginning to it.
    training_seconds: f64,
    /// CPU time of all threads of all ranks, until the model was exported.
    processor_seconds: f64,
    dollars: f64,
    accuracy: f64,
}

/// Runs the job once per seed.
///
/// # Errors
/// [`Error`]; a run that fails ends the measurement.
pub fn run(args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let file = std::fs::canonicalize(&args.job.file).map_err(Error::file("open", &args.job.file))?;
    let path = record::file(args.history.as_deref(), settings);
    let mut all = Vec::new();
    for seed in (args.job.typed.seed.unwrap_or(1)..).take(args.seeds as usize) {
        let (reached, entry) = measure(args, &file, seed, settings, &home, printer)?;
        let figures = figures(&reached);
        // Only runs that met the target have a time to it.
        if let (Value::Object(figures), Some(_)) = (&figures, reached.epochs) {
            let entry = BenchRecord { figures: figures.clone(), ..entry };
            record::append(&path, &[entry])?;
        }
        match printer.is_json() {
            true => printer.json(&figures),
            false => printer.data(line(&reached)),
        }
        all.push(reached);
    }
    check_reached(&all, args.target)?;
    if !printer.is_json() {
        summary(&all).into_iter().for_each(|line| printer.data(line));
        printer.say(format!("added to `{}`; `gradus bench history` compares", path.display()));
    }
    Ok(exit::DONE)
}

/// Runs the job with a seed until it meets the target: returns the result, and its record without figures.
fn measure(
    args: &Args,
    file: &Path,
    seed: u64,
    settings: &GlobalSettings,
    home: &Home,
    printer: &mut Printer,
) -> Result<(Reached, BenchRecord), Error> {
    let (mut job, plan) = draft(&args.job, settings, home, printer)?;
    if job.sweep.is_some() {
        let message = "a sweep has many models, and no one time to an accuracy".to_owned();
        return Err(Error::Usage { message, hint: "leave `sweep:` out, with the best trial's values".to_owned() });
    }
    let Work::Train(train) = &mut job.work else {
        let message = "a `run:` program does not report how good its model is".to_owned();
        return Err(Error::Usage { message, hint: "name a job with `train:`".to_owned() });
    };
    check(train)?;
    (train.seed, train.stop) = (seed, Some(Stop { accuracy: Some(args.target), epochs: None, patience: None }));
    let case = case(train, plan.share.map(|share| share.threads), args.target, file);
    printer.say(format!("seed {seed}:"));
    let mut state = State::open(home)?;
    let run = submit::submit(&mut state, job, plan, &file.to_string_lossy())?;
    drop(state);
    // What the run says meanwhile is conversation, also where a program reads.
    let mut narrator = Printer::new(false, settings.color);
    let watch = attend(settings, &mut narrator, home, &run, Since::Start)?;
    verdict(home, &run, watch)?;
    home.mark_reported(&home.run(&run))?;
    let (reached, machine) = outcome(home, &run, seed, args.target)?;
    let entry = BenchRecord::now(BenchKind::TimeToTrain, settings, machine, args.note.clone())?;
    Ok((reached, BenchRecord { case, ..entry }))
}

/// Refuses a measurement in which a run missed the target.
fn check_reached(all: &[Reached], target: Fraction) -> Result<(), Error> {
    let missed: Vec<&Reached> = all.iter().filter(|one| one.epochs.is_none()).collect();
    if missed.is_empty() {
        return Ok(());
    }
    let best = missed.iter().map(|one| one.accuracy).fold(0.0, f64::max);
    let message = format!(
        "{} of {} runs did not reach {:.2} % in all their epochs; the best of them came to {:.2} %",
        missed.len(),
        all.len(),
        100.0 * target.get(),
        100.0 * best
    );
    let hint = Some("lower `--target`, or give the job more `epochs`".to_owned());
    Err(Error::Code { message, hint, code: exit::RUN_FAILED })
}

/// Refuses a job that cannot meet a target.
fn check(train: &Train) -> Result<(), Error> {
    let domain::train::Split::Shares([_, validation, _]) = train.data.split else { return Ok(()) };
    if validation > 0.0 {
        return Ok(());
    }
    let message = "the job's `train.data.split` has no validation samples, so no accuracy is measured".to_owned();
    Err(Error::Usage { message, hint: "give validation a share".to_owned() })
}

/// The properties that make two measurements comparable: the work except for its seed.
fn case(train: &Train, threads: Option<u32>, target: Fraction, file: &Path) -> serde_json::Map<String, Value> {
    let name = file.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let warmup = train.schedule.warmup.map(|span| match span {
        Span::Epochs(epochs) => format!("{epochs} epochs"),
        Span::Steps(steps) => format!("{steps} steps"),
    });
    let case = json!({
        "job": name, "model": train.model.name(), "target": target.get(), "batch": train.batch,
        "epochs_at_most": train.epochs, "precision": train.precision, "processes": train.processes,
        "threads": threads, "warmup": warmup,
    });
    case.as_object().cloned().unwrap_or_default()
}

/// The result of a run that has ended, and its environment.
fn outcome(home: &Home, id: &RunId, seed: u64, target: Fraction) -> Result<(Reached, String), Error> {
    let state = State::open(home)?;
    let points = Series::open(home)?.points(id, 0)?;
    let run = state.world().runs.get(id).ok_or_else(|| server::Error::NoRun(id.to_string()))?;
    let RunState::Done { outcome: Outcome::Trained { model } } = &run.state else {
        let message = format!("run `{id}` ended as {}, without a model", run.state.word());
        return Err(Error::Code { message, hint: Some(format!("read `gradus logs {id}`")), code: exit::RUN_FAILED });
    };
    let Exported { processor_us, validation_accuracy, .. } = model;
    let (mut ready, mut met, mut last, mut machine) = (None, None, run.submitted, String::new());
    for (_, point) in &points {
        last = point.at;
        match &point.report {
            Report::Hello { environment, .. } => machine = environment.device_name.clone(),
            Report::Ready(_) if ready.is_none() => ready = Some(point.at),
            Report::Evaluated(one) if one.split == EvaluatedSplit::Validation && met.is_none() => {
                met = (one.accuracy >= target.get()).then_some((point.at, one.epoch, one.step));
            }
            _ => {}
        }
    }
    let end = met.map_or(last, |(at, ..)| at);
    let reached = Reached {
        run: id.clone(),
        seed,
        epochs: met.map(|(_, epoch, _)| epoch + 1),
        steps: met.map(|(_, _, step)| step),
        seconds: end.since(run.submitted).as_secs_f64(),
        training_seconds: ready.map_or(0.0, |ready| end.since(ready).as_secs_f64()),
        processor_seconds: *processor_us as f64 / 1e6,
        dollars: run.bill.as_ref().map_or(0.0, |bill| bill.total.micros() as f64 / 1e6),
        accuracy: *validation_accuracy,
    };
    Ok((reached, machine))
}

fn figures(reached: &Reached) -> Value {
    json!({
        "run": reached.run, "seed": reached.seed, "epochs": reached.epochs, "steps": reached.steps,
        "seconds": reached.seconds, "training_seconds": reached.training_seconds,
        "processor_seconds": reached.processor_seconds, "dollars": reached.dollars, "accuracy": reached.accuracy,
    })
}

fn line(reached: &Reached) -> String {
    let Reached { seed, seconds, processor_seconds, dollars, accuracy, .. } = reached;
    let accuracy = 100.0 * accuracy;
    match (reached.epochs, reached.steps) {
        (Some(epochs), Some(steps)) => format!(
            "seed {seed}: {accuracy:.2} % after {epochs} epochs ({steps} steps), {seconds:.1} s, {processor_seconds:.1} s of processor time, ${dollars:.6}"
        ),
        (_, _) => format!("seed {seed}: not reached; {accuracy:.2} % at best, after {seconds:.1} s"),
    }
}

/// The middle and the ends over the seeds.
fn summary(all: &[Reached]) -> Vec<String> {
    let spread = |name: &str, value: fn(&Reached) -> f64, unit: &str| {
        let mut values: Vec<f64> = all.iter().map(value).collect();
        values.sort_by(f64::total_cmp);
        let (Some(least), Some(most)) = (values.first(), values.last()) else { return String::new() };
        let half = values.len() / 2;
        let middle = if values.len() % 2 == 1 { values[half] } else { f64::midpoint(values[half - 1], values[half]) };
        format!("{name:<17} {middle:.2}{unit} (of {} seeds {least:.2} to {most:.2})", values.len())
    };
    vec![
        spread("seconds", |one| one.seconds, " s"),
        spread("training", |one| one.training_seconds, " s"),
        spread("processor time", |one| one.processor_seconds, " s"),
        spread("epochs", |one| f64::from(one.epochs.unwrap_or_default()), ""),
        spread("dollars", |one| one.dollars, ""),
    ]
}
