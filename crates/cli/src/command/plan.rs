//! `gradus plan`: what will be done, before anything is spent.

use std::path::{Path, PathBuf};

use domain::rank::Report;
use domain::{Duration, Job, Plan, Rate, Train};
use plan::draft::Facts;
use server::{Home, Series, State};

use crate::error::Error;
use crate::machine;
use crate::printer::Printer;
use crate::settings::Settings;

/// Arguments of `gradus plan`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    pub job: JobArgs,
}

/// The job, as every command that takes one names it.
#[derive(Debug, clap::Args)]
pub struct JobArgs {
    /// The job file
    #[arg(value_name = "JOB")]
    pub file: PathBuf,
    /// What this machine costs, such as `0.35/h`
    #[arg(long, value_name = "PRICE", default_value = "0/h")]
    pub price: Rate,
    /// Seed of the weights, the split and the order, instead of the job file's
    #[arg(long, value_name = "NUMBER")]
    pub seed: Option<u64>,
    /// A variable for the work's environment; may be given again
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub envs: Vec<String>,
}

/// Prints the plan.
///
/// # Errors
/// [`Error::Job`] with everything wrong in the file, [`Error::Infeasible`] with every reason.
pub fn run(args: Args, settings: &Settings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let (job, plan) = draft(&args.job, settings, &home, printer)?;
    if printer.is_json() {
        printer.json(&serde_json::json!({ "job": job, "plan": plan }));
    } else {
        for line in lines(&job, &plan) {
            printer.data(line);
        }
    }
    Ok(crate::exit::DONE)
}

/// Reads the job and drafts the plan that is recommended.
///
/// # Errors
/// As [`run`].
pub fn draft(args: &JobArgs, settings: &Settings, home: &Home, printer: &mut Printer) -> Result<(Job, Plan), Error> {
    let job = read(args, printer)?;
    let mut offers = Vec::new();
    for provider in machine::providers(settings, home, args.price) {
        offers.extend(provider.offers()?);
    }
    let facts = facts(home, &job)?;
    let plans = plan::draft::draft(&job, &offers, &facts);
    let plans = plans.map_err(|infeasible| Error::Infeasible { reasons: reasons(&infeasible) })?;
    match plans.into_iter().next() {
        Some(plan) => Ok((job, plan)),
        None => Err(Error::Infeasible { reasons: vec!["nothing is offered".to_owned()] }),
    }
}

/// What is known before anything runs: what the data is made of, and how long a step took when this work ran before.
fn facts(home: &Home, job: &Job) -> Result<Facts, Error> {
    let domain::Work::Train(train) = &job.work else { return Ok(Facts::default()) };
    let outline = data::Outline::of(&train.data, Path::new(&train.data.path), train.seed);
    let outline = outline.map_err(|error| {
        let finding = error.finding();
        Error::Code { message: finding.message, hint: finding.hint, code: crate::exit::USAGE }
    })?;
    let [channels, height, width] = outline.shape.map(|length| u32::try_from(length).unwrap_or(u32::MAX));
    Ok(Facts {
        samples: Some(outline.counts),
        input_shape: Some([channels, height, width]),
        classes: u32::try_from(outline.classes.len()).ok(),
        measured_step: measured(home, train)?,
    })
}

/// The median step of the newest run of the same model, batch and precision on this machine.
fn measured(home: &Home, train: &Train) -> Result<Option<Duration>, Error> {
    let (state, series) = (State::open(home)?, Series::open(home)?);
    let alike = |other: &Train| {
        let division =
            |train: &Train| (train.model, train.batch, train.accumulate, train.precision, train.memory_format);
        division(other) == division(train) && (other.threads, &other.data.path) == (train.threads, &train.data.path)
    };
    let runs = state.world().runs.iter();
    let runs = runs.filter(|(_, run)| matches!(&run.job.work, domain::Work::Train(other) if alike(other)));
    let Some((id, _)) = runs.max_by_key(|(_, run)| run.order) else { return Ok(None) };
    let mut steps: Vec<u64> = Vec::new();
    for (_, point) in series.newest(id, 500)? {
        if let Report::Step(step) = point.report {
            steps.push(step.step_us);
        }
    }
    steps.sort_unstable();
    Ok(steps.get(steps.len() / 2).copied().map(Duration::from_micros))
}

fn reasons(infeasible: &plan::draft::Infeasible) -> Vec<String> {
    let line = |reason: &domain::Problem| {
        let hint = reason.hint.as_ref().map(|hint| format!("\n    hint: {hint}")).unwrap_or_default();
        format!("  {}{hint}", reason.message)
    };
    infeasible.reasons.iter().map(line).collect()
}

/// The text of a job file.
fn text(file: &Path) -> Result<String, Error> {
    let unreadable = |why: String| Error::Usage {
        message: format!("cannot read the job file `{}`: {why}", file.display()),
        hint: "name a text file in UTF-8, such as `examples/digits.yaml`; `docs/job-file.md` says what stands in it"
            .into(),
    };
    let kind = std::fs::metadata(file).map_err(|error| unreadable(error.to_string()))?;
    if !kind.is_file() {
        return Err(unreadable("it is not a file".into()));
    }
    let bytes = std::fs::read(file).map_err(|error| unreadable(error.to_string()))?;
    String::from_utf8(bytes).map_err(|error| {
        let valid = &error.as_bytes()[..error.utf8_error().valid_up_to()];
        let line = valid.iter().filter(|byte| **byte == b'\n').count() + 1;
        unreadable(format!("line {line} is not UTF-8"))
    })
}

fn read(args: &JobArgs, printer: &mut Printer) -> Result<Job, Error> {
    let text = text(&args.file)?;
    let parsed = Job::parse(&text, &args.file.to_string_lossy()).map_err(Error::Job)?;
    for warning in parsed.warnings {
        let file = args.file.to_string_lossy().into_owned();
        printer.say(format!("warning: {}", domain::Problems { file, problems: vec![warning] }));
    }
    let mut job = parsed.job;
    let folder = args.file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let folder = std::fs::canonicalize(folder).map_err(Error::file("open", folder))?;
    job.resolve(&folder);
    if let (Some(seed), domain::Work::Train(train)) = (args.seed, &mut job.work) {
        train.seed = seed;
    }
    if let domain::Work::Command(command) = &job.work
        && let Some(workdir) = command.workdir.as_ref().filter(|workdir| !Path::new(workdir).is_dir())
    {
        let message = format!("`workdir`: `{workdir}` is not a folder");
        return Err(Error::Usage { message, hint: "name a folder, relative to the job file".to_owned() });
    }
    for pair in &args.envs {
        let Some((name, value)) = pair.split_once('=').filter(|(name, _)| !name.is_empty()) else {
            let message = format!("`{pair}` is no variable");
            return Err(Error::Usage { message, hint: "write `--env NAME=VALUE`".to_owned() });
        };
        job.envs.insert(name.to_owned(), value.to_owned());
    }
    Ok(job)
}

/// The plan for people.
pub fn lines(job: &Job, plan: &Plan) -> Vec<String> {
    let offer = &plan.offer;
    let mut lines = vec![
        format!("job      {}", job.name),
        format!(
            "machine  {} ({}): {} cores, {:.0} GiB memory",
            offer.kind,
            offer.node.cpu,
            offer.node.cores,
            offer.node.memory.0 as f64 / f64::from(1 << 30),
        ),
        format!("price    {} ({})", offer.rate, offer.price_source),
    ];
    if let Some(share) = plan.share {
        let steps = share.steps.map_or(String::new(), |steps| format!("; {} steps", crate::progress::grouped(steps)));
        lines.push(format!(
            "step     {} samples as {} × {}, {} threads{steps}",
            share.batch, share.accumulate, share.micro_batch, share.threads
        ));
    }
    if let Some(memory) = plan.memory {
        lines.push(format!("memory   {:.2} GiB at the peak", memory.0 as f64 / f64::from(1 << 30)));
    }
    match plan.time {
        Some(time) => lines.push(format!(
            "time     {} (one run in ten below {}, one above {})",
            short(time.middle),
            short(time.low),
            short(time.high)
        )),
        None => lines.push("time     unknown".to_owned()),
    }
    match plan.cost {
        Some(cost) => {
            lines.push(format!("cost     {} (one run in ten below {}, one above {})", cost.middle, cost.low, cost.high))
        }
        None => lines.push("cost     unknown".to_owned()),
    }
    if let Some(budget) = job.budget {
        lines.push(format!("budget   {} at most; saves and stops before it is exceeded", budget.max));
    }
    for assumption in &plan.assumptions {
        lines.push(format!("assumed  {assumption}"));
    }
    lines
}

/// A duration without the digits that an estimate does not have.
fn short(duration: domain::Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 10.0 {
        format!("{seconds:.1}s")
    } else {
        domain::Duration::from_secs(seconds.round() as u64).to_string()
    }
}
