//! `gradus launch`: a Python script as a job, without a job file.
//!
//! The options become the text of a job file, which `--dry-run` prints; from there on everything is as in `gradus run`.

use std::path::{Path, PathBuf};

use domain::file::written::name_from;
use domain::{Duration, Problems, Rate};
use server::Home;

use super::composed::{ProcessesPerNode, ScriptRequest, compose};
use super::framework::{OUTPUT_OPTION, ScriptDefaults, framework};
use super::script;
use crate::command::runs::run::{StartOptions, start};
use crate::error::{Error, exit};
use crate::local::draft::draft_loaded;
use crate::local::job_file::{JobOverrides, env, load, require_secrets};
use crate::local::machine;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Arguments of `gradus launch`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Python script, or with `-m` a module
    #[arg(value_name = "SCRIPT")]
    script: String,
    /// What stands before `--` and belongs behind it
    #[arg(hide = true)]
    strays: Vec<String>,
    /// Arguments of the script, after `--`
    #[arg(value_name = "ARGS", last = true)]
    arguments: Vec<String>,
    /// SCRIPT is a module, as in `python -m`
    #[arg(long, short)]
    module: bool,
    /// Processes per node: a number, `gpu` (one per GPU), `cpu` (one per core), or `auto` (`gpu`, or else `cpu`)
    #[arg(long, visible_alias = "nproc_per_node", value_name = "N", default_value = "1")]
    nproc_per_node: ProcessesPerNode,
    /// Number of nodes; more than one needs `--infra ssh` or `--infra aws`
    #[arg(long, value_name = "N", value_parser = nodes)]
    nnodes: Option<u32>,
    /// How often to start again after the script has failed, from its newest checkpoint
    #[arg(long, visible_alias = "max_restarts", value_name = "N")]
    max_restarts: Option<u32>,
    /// Where to run: `local`, `ssh`, `ssh/NODE`, or a cloud such as `aws` [default: this machine]
    #[arg(long, value_name = "PLACE")]
    infra: Option<String>,
    /// GPUs per rented machine, such as `A100:8` or `24GB+:1`
    #[arg(long, value_name = "GPUS")]
    gpus: Option<String>,
    /// Least number of CPU cores, such as `8+`
    #[arg(long, value_name = "CORES")]
    cpus: Option<String>,
    /// Least memory in GB, such as `64+`
    #[arg(long, value_name = "SIZE")]
    memory: Option<String>,
    /// Container image to run in, such as `docker:pytorch/pytorch:2.11.0-cuda12.8-cudnn9-runtime`
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Folder to copy to the machine, in which the script is started [default: the script's]
    #[arg(long, value_name = "FOLDER")]
    workdir: Option<PathBuf>,
    /// Folder below the working folder that outlives an attempt (repeatable) [default: where Hugging Face's trainer or Lightning save]
    #[arg(long = "output", value_name = "FOLDER")]
    outputs: Vec<String>,
    /// Regular expression that finds steps in the output, such as `step (?<step>\d+) loss (?<loss>\S+)`
    #[arg(long, value_name = "REGEX")]
    progress: Option<String>,
    /// Name of the job [default: the script's]
    #[arg(long)]
    name: Option<String>,
    /// Set an environment variable (repeatable)
    #[arg(long = "env", value_name = "NAME[=VALUE]")]
    envs: Vec<String>,
    /// Set a secret environment variable; `NAME` alone takes the value from the environment (repeatable)
    #[arg(long = "secret", value_name = "NAME[=VALUE]")]
    secrets: Vec<String>,
    /// Bash commands that prepare the machine, such as `pip install -r requirements.txt`
    #[arg(long, value_name = "COMMANDS")]
    setup: Option<String>,
    /// Python to start the script with
    #[arg(long, value_name = "PROGRAM", default_value = "python3")]
    python: String,
    /// Limit on the cost, such as `$20`
    #[arg(long, value_name = "MONEY", allow_hyphen_values = true)]
    budget: Option<String>,
    /// Limit on the time from submission to end, such as `12h`
    #[arg(long, value_name = "DURATION", value_parser = Duration::parse_with_unit)]
    deadline: Option<Duration>,
    /// Time to save after an order to stop, such as `5m`; at most 30 min [default: 60s]
    #[arg(long, value_name = "DURATION", value_parser = Duration::parse_with_unit)]
    stop_grace: Option<Duration>,
    /// Price of this machine, such as `0.35/h` [default: that of `gradus serve` while it runs, else `0/h`]
    #[arg(long, value_name = "PRICE", allow_hyphen_values = true)]
    price: Option<Rate>,
    /// Print the job file and submit nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    start: StartOptions,
    /// Has no effect: a job on one machine meets there
    #[arg(long, hide = true)]
    standalone: bool,
    /// Options of torchrun for what gradus sets
    #[command(flatten)]
    rendezvous: Rendezvous,
}

/// Options of torchrun that say where processes meet. gradus tells them, so these are refused by name.
#[derive(Debug, clap::Args)]
struct Rendezvous {
    #[arg(long, hide = true, alias = "node_rank")]
    node_rank: Option<String>,
    #[arg(long, hide = true, alias = "master_addr")]
    master_addr: Option<String>,
    #[arg(long, hide = true, alias = "master_port")]
    master_port: Option<String>,
    #[arg(long, hide = true, alias = "rdzv_backend")]
    rdzv_backend: Option<String>,
    #[arg(long, hide = true, alias = "rdzv_endpoint")]
    rdzv_endpoint: Option<String>,
    #[arg(long, hide = true, alias = "rdzv_id")]
    rdzv_id: Option<String>,
}

impl Rendezvous {
    /// The first of them that was given.
    fn given(&self) -> Option<&'static str> {
        let all = [
            ("--node-rank", &self.node_rank),
            ("--master-addr", &self.master_addr),
            ("--master-port", &self.master_port),
            ("--rdzv-backend", &self.rdzv_backend),
            ("--rdzv-endpoint", &self.rdzv_endpoint),
            ("--rdzv-id", &self.rdzv_id),
        ];
        all.into_iter().find(|(_, value)| value.is_some()).map(|(name, _)| name)
    }
}

fn nodes(text: &str) -> Result<u32, String> {
    if text.contains(':') {
        return Err("a number of nodes that may change is not supported yet; write one number".to_owned());
    }
    text.parse()
        .ok()
        .filter(|nodes| (1..=4096).contains(nodes))
        .ok_or_else(|| "write a number from 1 to 4096".to_owned())
}

/// Composes the job, and starts it as `gradus run` does.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    check_words(&args)?;
    let found = match args.module {
        true => script::find_module(&args.script, args.workdir.as_deref())?,
        false => script::find(Path::new(&args.script), args.workdir.as_deref())?,
    };
    if args.workdir.is_none() {
        script::check_size(&found.workdir, GlobalSettings::variable("HOME").as_deref())?;
    }
    let defaults = framework(&script::text(&found), &args.arguments);
    if defaults.lacks_output && args.outputs.is_empty() {
        printer.say(format!(
            "note: where the script saves is not known, so each attempt starts over; `-- {OUTPUT_OPTION} out` keeps it"
        ));
    }
    let request = request(&args, &found, defaults)?;
    let text = compose(&request).render();
    let overrides =
        JobOverrides { price: args.price, seed: None, envs: Vec::new(), secrets: args.secrets, secret_file: None };
    let here = Path::new(".");
    let loaded = load(text.clone(), (&args.script, here), &overrides, &GlobalSettings::variable, printer);
    let loaded = loaded.map_err(of_options)?;
    // A dry run too: what it prints is a job file that `gradus run` takes.
    if let Some(unrentable) = &loaded.unrentable {
        return Err(of_options(Error::Job(unrentable.clone())));
    }
    if args.dry_run {
        if printer.is_json() {
            printer.json(&serde_json::json!({ "job_file": text }));
        } else {
            printer.data(text.trim_end());
        }
        return Ok(exit::DONE);
    }
    let home = Home::open(&settings.home)?;
    let price = machine::price(&home, args.price)?;
    let (job, plan) = draft_loaded(loaded, price, settings, &home, printer).map_err(of_options)?;
    require_secrets(&job)?;
    start(job, plan, &found.file.to_string_lossy(), &args.start, settings, &home, printer)
}

/// Refuses arguments in the wrong position.
fn check_words(args: &Args) -> Result<(), Error> {
    let usage = |message: String, hint: String| Err(Error::Usage { message, hint });
    if let Some(stray) = args.strays.first() {
        let all: Vec<&str> = args.strays.iter().chain(&args.arguments).map(String::as_str).collect();
        let message = format!("`{stray}` stands before `--`, where only options of `gradus launch` are");
        return usage(
            message,
            format!("arguments of the script follow `--`: `gradus launch {} -- {}`", args.script, all.join(" ")),
        );
    }
    if let Some(option) = args.rendezvous.given() {
        let message = format!("`{option}` is not needed: gradus tells all processes where they meet");
        return usage(message, format!("leave `{option}` out; RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are set"));
    }
    Ok(())
}

/// The request of the options, and of what the script does by itself.
fn request(args: &Args, found: &script::LaunchedScript, defaults: ScriptDefaults) -> Result<ScriptRequest, Error> {
    let inner = found.inner.to_string_lossy().into_owned();
    let stem = match args.module {
        true => inner.rsplit('.').next().unwrap_or_default().to_owned(),
        false => found.inner.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
    };
    let mut program = vec![args.python.clone()];
    program.extend(args.module.then(|| "-m".to_owned()));
    program.push(inner);
    program.extend(args.arguments.iter().cloned());
    let pair = |text: &String| env(text, &GlobalSettings::variable);
    let ScriptDefaults { resume, outputs, .. } = defaults;
    Ok(ScriptRequest {
        name: args.name.clone().unwrap_or_else(|| name_from(&stem)),
        program,
        resume,
        outputs: if args.outputs.is_empty() { outputs } else { args.outputs.clone() },
        progress: args.progress.clone(),
        processes: Some(args.nproc_per_node),
        nodes: args.nnodes,
        max_restarts: args.max_restarts,
        infra: args.infra.clone(),
        accelerators: args.gpus.clone(),
        cpus: args.cpus.clone(),
        memory: args.memory.clone(),
        image: args.image.clone(),
        workdir: found.workdir.clone(),
        envs: args.envs.iter().map(pair).collect::<Result<_, _>>()?,
        secrets: args.secrets.iter().map(|text| text.split('=').next().unwrap_or_default().to_owned()).collect(),
        setup: args.setup.clone(),
        budget: args.budget.clone(),
        deadline: args.deadline,
        stop_grace: args.stop_grace,
    })
}

/// Keys of the job file, and the options that they come from.
const OPTIONS: [(&str, &str); 16] = [
    ("name", "--name"),
    ("num_nodes", "--nnodes"),
    ("resources.infra", "--infra"),
    ("resources.accelerators", "--gpus"),
    ("resources.cpus", "--cpus"),
    ("resources.memory", "--memory"),
    ("resources.image_id", "--image"),
    ("resources.job_recovery", "--max-restarts"),
    ("budget", "--budget"),
    ("deadline", "--deadline"),
    ("stop_grace", "--stop-grace"),
    ("envs", "--env"),
    ("secrets", "--secret"),
    ("workdir", "--workdir"),
    ("outputs", "--output"),
    ("progress", "--progress"),
];

/// Translates problems of a generated job file to the options.
fn of_options(error: Error) -> Error {
    let Error::Job(Problems { problems, .. }) = error else { return error };
    let option =
        |key: &str| OPTIONS.iter().find(|(prefix, _)| key.starts_with(prefix)).map_or("job", |(_, option)| option);
    let in_options = |text: &str| text.replace("`infra: ", "`--infra ").replace("`num_nodes: ", "`--nnodes ");
    let lines: Vec<String> = problems
        .iter()
        .map(|problem| format!("`{}`: {}", option(&problem.key), in_options(&problem.message)))
        .collect();
    let mut hints: Vec<String> =
        problems.iter().filter_map(|problem| problem.hint.as_deref().map(in_options)).collect();
    hints.dedup();
    if hints.is_empty() {
        hints.push("`gradus launch --help` says what each option takes".to_owned());
    }
    Error::Usage { message: lines.join("\n"), hint: hints.join("\n  ") }
}
