//! `gradus run`: from a job file to a model and a bill.

mod once;
pub mod pipeline;
pub mod planners;
pub mod schedules;
mod served;
mod warm_start;

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use domain::{Job, Plan, RunId, Work};
use node::containers::ContainerRuntime;
use server::{Home, State, submit};

use super::rm::REMOVED;
use crate::error::{Error, exit};
use crate::follow::elsewhere;
use crate::follow::left_behind::take_over;
use crate::follow::result::{confirm, finish};
use crate::follow::watch::Since;
use crate::local::draft::{draft, known, lines};
use crate::local::job_file::{JobArgs, require_secrets};
use crate::local::job_request::request;
use crate::local::spending::{self, SpendingRequest};
use crate::local::{machine, origin};
use crate::printer::Printer;
use crate::remote::{self, HERE, Server};
use crate::settings::GlobalSettings;
use crate::sweep::preview::Preview;

/// Arguments of `gradus run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    job: JobArgs,
    #[command(flatten)]
    start: StartOptions,
    /// Profile each step, and write a trace for `chrome://tracing` or Perfetto
    #[arg(long)]
    profile: bool,
    /// Of a file with several documents (a pipeline), start with this task; those before it must have succeeded
    #[arg(long, value_name = "TASK")]
    from: Option<String>,
}

/// How a run is started and followed.
#[derive(Debug, clap::Args)]
pub struct StartOptions {
    /// Skip the confirmation before money is spent
    #[arg(long, short)]
    yes: bool,
    /// Start a new run even if an unfinished run of the same job exists
    #[arg(long)]
    new: bool,
    /// Continue in the background once the run is submitted; see `gradus attach` and `gradus wait`. Sweeps and pipelines need
    /// a server for it
    #[arg(long, short)]
    detach: bool,
    /// Show neither progress nor the program's output; see `gradus logs`
    #[arg(long, short)]
    quiet: bool,
}

impl StartOptions {
    /// One that continues in the background, beside others of the same job.
    pub fn detached(yes: bool) -> StartOptions {
        StartOptions { yes, new: true, detach: true, quiet: false }
    }
}

/// Plans, confirms, submits and follows.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    printer.quiet(args.start.quiet);
    if let Some(server) = remote::chosen(settings)? {
        return of_server(&args, &server, printer);
    }
    let home = Home::open(&settings.home)?;
    if let Some(pipeline) = pipeline::read(&args.job.file)? {
        if args.profile {
            let message = "`--profile` does not apply to a file of several documents (a pipeline)".to_owned();
            return Err(Error::Usage { message, hint: "remove `--profile`".to_owned() });
        }
        let from = (&args.job, args.from.as_deref());
        return pipeline::run(&pipeline, from, &args.start, settings, &home, printer);
    }
    if let Some(task) = &args.from {
        let message = format!("`--from {task}` needs a file with several documents (a pipeline)");
        return Err(Error::Usage { message, hint: "remove `--from`".to_owned() });
    }
    let (mut job, plan) = draft(&args.job, settings, &home, printer)?;
    require_secrets(&job)?;
    once::note_job(&job, &args.job.file, printer);
    if args.profile {
        profile(&mut job)?;
    }
    let file = std::fs::canonicalize(&args.job.file).map_err(Error::file("open", &args.job.file))?;
    let file = file.to_string_lossy().into_owned();
    if let Some(sweep) = &job.sweep {
        let known = known(settings, &home, &job, printer)?;
        if args.start.detach && !home.has_server() {
            let message = "`--detach` of a job with `sweep:` needs a server, which continues it".to_owned();
            let hint = "start `gradus serve`, remove `--detach`, or run it under `nohup`".to_owned();
            return Err(Error::Usage { message, hint });
        }
        let preview = Preview::of(&job, sweep, &plan, known, &args.job.file.to_string_lossy())?;
        let flags = (args.start.new, args.start.yes, args.start.detach);
        return crate::sweep::run(settings, printer, &home, job, plan, &preview, &file, flags);
    }
    start(job, plan, &file, &args.start, settings, &home, printer)
}

/// Resumes the unfinished run of this job and `file`, or confirms and submits one; then follows it.
///
/// # Errors
/// [`Error`].
pub fn start(
    job: Job,
    plan: Plan,
    file: &str,
    options: &StartOptions,
    settings: &GlobalSettings,
    home: &Home,
    printer: &mut Printer,
) -> Result<u8, Error> {
    printer.quiet(options.quiet);
    let mut state = State::open_lean(home)?;
    let unfinished = if options.new { None } else { submit::unfinished(home, &mut state, &job, &plan, file)? };
    if let Some(run) = unfinished {
        super::resume::preflight::refuse_damaged(home, state.world(), &run)?;
        printer.say(format!("resuming run {run}; use `--new` to start another"));
        let (since, has_ended) = (Since::Event(state.world().last_seq), has_ended(&state, &run));
        drop(state);
        if options.detach && !has_ended {
            return detach(settings, home, &run, printer);
        }
        let since = take_over(settings, printer, home, &run, since)?;
        return finish(settings, printer, home, &run, since);
    }
    if !options.new {
        say_left_behind(home, &mut state, file, printer)?;
    }
    if !printer.is_json() {
        for line in lines(&job, &plan) {
            printer.say(line);
        }
    }
    require_trainer(&job, &plan, settings)?;
    require_containers(&job, &plan)?;
    machine::require_served(home, &plan.offer.provider)?;
    confirm(printer, &plan, options.yes)?;
    // Held until the run is submitted, so that two of them do not spend the same money.
    let admitted = spending::admit(&SpendingRequest::submitted(&job, &plan, settings.user.as_deref()), home)?;
    admitted.notes.iter().for_each(|note| printer.say(note));
    let (is_program, origin) = (matches!(job.work, Work::Command(_)), origin::of(folder_of(&job, file)));
    let run = submit::submit_as(&mut state, job, plan, file, settings.user.clone())?;
    drop((state, admitted));
    // A report without it is still one.
    let _ = origin.write(&home.run(&run));
    if is_program && !printer.is_json() {
        say_folders(&home.run(&run), printer);
    }
    if options.detach {
        return detach(settings, home, &run, printer);
    }
    say_unattended(home, printer);
    finish(settings, printer, home, &run, Since::Start)
}

/// Prints where a program's output and checkpoints are stored.
fn say_folders(folder: &Path, printer: &mut Printer) {
    printer.say(format!("logs     {}", folder.join("logs").display()));
    printer.say(format!("files    {} (GRADUS_CHECKPOINTS)", folder.join("checkpoints").display()));
}

/// Prints what Ctrl-C does to the run; with a server, it only stops following.
fn say_unattended(home: &Home, printer: &mut Printer) {
    if printer.is_terminal() && !home.has_server() {
        printer.say(format!(
            "Ctrl-C or closing this terminal leaves the run unattended: it saves a checkpoint and stops within {}; \
             `gradus run --detach` continues in the background",
            server::control::LEASE
        ));
    }
}

/// Whether a run has ended in the background: its result is shown then, or the same job would find it again and again.
fn has_ended(state: &State, run: &RunId) -> bool {
    state.world().runs.get(run).is_none_or(|run| run.state.is_final() && run.bill.is_some())
}

/// Refuses a program in a container on this machine without podman or docker.
fn require_containers(job: &Job, plan: &Plan) -> Result<(), Error> {
    let is_boxed = matches!(&job.work, Work::Command(command) if command.image.is_some());
    if !is_boxed || plan.offer.provider != cloud::local::NAME || ContainerRuntime::find().is_some() {
        return Ok(());
    }
    let message = "`image_id` needs podman or docker, and this machine has neither".to_owned();
    let hint = "install one, such as `sudo apt-get install podman catatonit`, or leave `image_id` out".to_owned();
    Err(Error::Code { message, hint: Some(hint), code: exit::WORLD })
}

/// Refuses a training run on this machine without the executable that trains.
fn require_trainer(job: &Job, plan: &Plan, settings: &GlobalSettings) -> Result<(), Error> {
    let trainer = &settings.rank_program;
    let is_needed = matches!(job.work, Work::Train(_)) && plan.offer.provider == cloud::local::NAME;
    if !is_needed || trainer.is_file() {
        return Ok(());
    }
    let hint = match *trainer == settings.program.with_file_name("gradus-rank") {
        true => "install gradus again: `gradus-rank` belongs beside `gradus`".to_owned(),
        false => "`GRADUS_RANK` names it: correct that variable, or unset it".to_owned(),
    };
    let message = format!("there is no trainer `{}`", trainer.display());
    Err(Error::Code { message, hint: Some(hint), code: exit::WORLD })
}

/// Prints which run of the same file could be resumed instead, if there is one.
fn say_left_behind(home: &Home, state: &mut State, file: &str, printer: &mut Printer) -> Result<(), Error> {
    if let Some(run) = submit::left_behind(state, file)?
        && !home.run(&run).join(REMOVED).exists()
    {
        let word = state.world().runs.get(&run).map_or("stopped", |run| run.state.word());
        printer.say(format!(
            "run {run} of this file is {word}: resume it with `gradus resume {run}` \
             (with other values: `--set KEY=VALUE`); this is a new run from step 0"
        ));
    }
    Ok(())
}

/// The folder that the program of a job, or else the job itself, comes from.
fn folder_of<'a>(job: &'a Job, file: &'a str) -> &'a Path {
    let workdir = match &job.work {
        Work::Command(command) => command.workdir.as_deref().map(Path::new),
        Work::Train(_) => None,
    };
    workdir.or_else(|| Path::new(file).parent()).unwrap_or(Path::new("."))
}

/// The same on a server, which plans with its own machine, data and nodes.
fn of_server(args: &Args, server: &Server, printer: &mut Printer) -> Result<u8, Error> {
    let typed = &args.job.typed;
    for (flag, is_given) in [
        ("--profile", args.profile),
        ("--from", args.from.is_some()),
        ("--seed", typed.seed.is_some()),
        ("--price", typed.price.is_some()),
    ] {
        if is_given {
            return Err(remote::only_here(&format!("`gradus run {flag}`"), server));
        }
    }
    if pipeline::read(&args.job.file)?.is_some() {
        return served::run(&args.job, &args.start, server, printer);
    }
    let (job, body) = request(&args.job, &GlobalSettings::variable, printer)?;
    once::note_job(&job, &args.job.file, printer);
    let planned = server.post("/v1/plans", Some(&body), None)?;
    // What is wrong with the file was said here already.
    let warnings = planned["warnings"].as_array().into_iter().flatten().filter_map(serde_json::Value::as_str);
    warnings.filter(|text| text.starts_with("note: ")).for_each(|text| printer.say(text));
    if job.sweep.is_some() {
        let flags = (args.start.yes, args.start.detach);
        return crate::sweep::elsewhere::run(server, printer, (job, &body), planned, flags);
    }
    let plan = server.typed(planned["plan"].clone())?;
    if !printer.is_json() {
        for line in lines(&job, &plan) {
            printer.say(line);
        }
    }
    confirm(printer, &plan, args.start.yes)?;
    // A request whose answer was lost is repeated, and submits one run.
    let key = remote::idempotency_key();
    let submit = || server.post("/v1/runs", Some(&body), Some(&key));
    let submitted = submit().or_else(|error| if error.code() == exit::WORLD { submit() } else { Err(error) })?;
    let run: RunId = server.typed(submitted["run"].clone())?;
    if args.start.detach {
        return Ok(detached(&run, None, printer));
    }
    elsewhere::finish(server, printer, &run, Since::Start)
}

/// Has each step of a job profiled.
fn profile(job: &mut Job) -> Result<(), Error> {
    match &mut job.work {
        Work::Train(train) => {
            train.profile = true;
            Ok(())
        }
        Work::Command(_) => Err(Error::Usage {
            message: "`--profile` works only with `train:`; this job runs a program".to_owned(),
            hint: "remove `--profile`, and use the profiler of your framework".to_owned(),
        }),
    }
}

/// Leaves a run to `gradus attach` in a new session, and returns once that process runs it.
fn detach(settings: &GlobalSettings, home: &Home, run: &RunId, printer: &mut Printer) -> Result<u8, Error> {
    if home.has_server() {
        return Ok(detached(run, None, printer));
    }
    let folder = home.run(run);
    std::fs::create_dir_all(&folder).map_err(Error::file("make the folder", &folder))?;
    let path = folder.join("keeper.log");
    let log = File::create(&path).map_err(Error::file("write", &path))?;
    let copy = log.try_clone().map_err(Error::file("write", &path))?;
    let mut keeper = Command::new(&settings.program);
    keeper.arg("--home").arg(home.root()).args(["--server", HERE, "attach", run.as_str()]);
    keeper.stdin(Stdio::null()).stdout(Stdio::from(log)).stderr(Stdio::from(copy));
    cloud::local::own_session(&mut keeper);
    let mut keeper = keeper.spawn().map_err(Error::file("start", &settings.program))?;
    while !home.is_watched(&folder) {
        let Some(status) = keeper.try_wait().map_err(Error::file("wait for", &settings.program))? else {
            std::thread::sleep(Duration::from_millis(10));
            continue;
        };
        // A short run may have ended already.
        let is_over = State::open_lean(home)?.world().runs.get(run).is_none_or(|run| run.state.is_final());
        if !is_over {
            let message = format!("the process that keeps run `{run}` has ended ({status})");
            let hint = Some(format!("read `{}`, then resume it with `gradus resume {run}`", path.display()));
            return Err(Error::Code { message, hint, code: exit::WORLD });
        }
        break;
    }
    Ok(detached(run, Some(keeper.id()), printer))
}

/// Prints that a run continues in the background, and how to follow it; a separate process runs it, or else the server.
fn detached(run: &RunId, keeper: Option<u32>, printer: &mut Printer) -> u8 {
    match printer.is_json() {
        true => printer.json(&serde_json::json!({ "event": "detached", "run": run, "pid": keeper })),
        false => {
            printer.data(format!("run      {run}: continues in the background"));
            printer.data(format!("follow   gradus attach {run}"));
            printer.data(format!("wait     gradus wait {run}"));
            printer.data(format!("stop     gradus stop {run}"));
        }
    }
    exit::DONE
}
