//! `gradus resume`: resume a run from its newest checkpoint.

use domain::run::{Outcome, RunState, StopBy};
use domain::sweep::Setting;
use domain::{Duration, Event, Money, Problems, RunId, SweepId, Work};
use plan::{Resumption, World};
use serde_json::Value;
use server::{Home, State};

use super::checkpoints;
use super::rm::REMOVED;
use crate::command::find::{RunOrSweep, find_any, open_named};
use crate::error::{Error, exit};
use crate::follow::elsewhere;
use crate::follow::left_behind::take_over;
use crate::follow::result::finish;
use crate::follow::watch::Since;
use crate::local::spending::{self, SpendingRequest};
use crate::local::{machine, mounts};
use crate::printer::Printer;
use crate::remote::{self, Server};
use crate::settings::GlobalSettings;

/// Arguments of `gradus resume`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run or sweep: its name, a unique prefix of it, or `last`
    run: String,
    /// New budget for the whole run, including what it has cost so far, such as `$20`
    #[arg(long, value_name = "AMOUNT", allow_hyphen_values = true)]
    budget: Option<Money>,
    /// New deadline, counted from the run's submission, such as `12h`
    #[arg(long, value_name = "DURATION")]
    deadline: Option<Duration>,
    /// Resume although the data has changed since the checkpoint: samples that the run knows stay in their split, new
    /// ones are assigned to one, and text keeps its vocabulary
    #[arg(long)]
    accept_data_change: bool,
    /// Change a key of `train:` from here on, such as `epochs=60` or `processes=1`; what the checkpoint rests on (model, data,
    /// batch, kind of optimizer) stays. A run that has ended is extended by more epochs. Can be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<String>,
    /// Ask nothing, as `gradus run --yes`; a resume asks nothing in any case
    #[arg(short = 'y', long = "yes")]
    _yes: bool,
}

impl Args {
    /// Whether it changes settings of the run.
    fn changes_something(&self) -> bool {
        self.budget.is_some() || self.deadline.is_some() || self.accept_data_change || !self.set.is_empty()
    }

    fn event(&self, world: &World, run: &RunId) -> Result<Event, Error> {
        Ok(Event::ResumeRequested {
            run: run.clone(),
            budget: self.budget,
            deadline: self.deadline,
            epochs: None,
            accept_data_change: self.accept_data_change,
            set: self.settings(world, run)?,
        })
    }

    /// The keys that are set.
    fn settings(&self, world: &World, run: &RunId) -> Result<Vec<Setting>, Error> {
        match world.runs.get(run).map(|run| &run.job.work) {
            _ if self.set.is_empty() => Ok(Vec::new()),
            Some(Work::Train(train)) => train
                .settings(&self.set)
                .map_err(|problems| Error::Job(Problems { file: "--set".to_owned(), problems })),
            Some(Work::Command(_)) | None => Err(Error::Usage {
                message: format!("run `{run}` is a program of its own, which has no keys of `train:`"),
                hint: "leave `--set` out".to_owned(),
            }),
        }
    }
}

/// Resumes a run, or follows it if another process already runs it.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    if let Some(server) = remote::chosen(settings)? {
        return of_server(&args, &server, printer);
    }
    let home = Home::open(&settings.home)?;
    let mut state = open_named(&home, &args.run)?;
    let id = match find_any(state.world(), &args.run)? {
        RunOrSweep::Run(id) => id,
        RunOrSweep::Sweep(id) => return sweep(state, &args, settings, printer, &home, &id),
    };
    refuse_removed(&home, &id)?;
    let since = Since::Event(state.world().last_seq);
    let resume = args.event(state.world(), &id)?;
    let resumption = plan::resume::run(state.world(), server::clock::now(), &id, &resume);
    if is_allowed(resumption.map_err(server::Error::from)?, &args, "run", id.as_str())? {
        require_resumable(&home, state.world(), &id)?;
        let asked = state.world().runs.get(&id).map(|run| SpendingRequest::resumed(&id, run, args.budget));
        let admitted = asked.map(|asked| spending::admit(&asked, &home)).transpose()?.unwrap_or_default();
        admitted.notes.iter().for_each(|note| printer.say(note));
        home.unmark_reported(&home.run(&id));
        state.append(vec![resume])?;
        drop((state, admitted));
        return finish(settings, printer, &home, &id, since);
    }
    if let Some(run) = state.world().runs.get(&id).filter(|run| run.state.is_final() && run.bill.is_some()) {
        printer.say(nothing_done(&id, run));
    }
    drop(state);
    let since = take_over(settings, printer, &home, &id, since)?;
    finish(settings, printer, &home, &id, since)
}

/// What is said where a run has its result and nothing was asked to change.
fn nothing_done(id: &RunId, run: &plan::Run) -> String {
    let more = match run.job.work {
        Work::Train(_) => format!("to train on: `gradus resume {id} --set epochs=N`"),
        Work::Command(_) => "`gradus run JOB.yaml --new` runs the program again".to_owned(),
    };
    format!("run {id} is already {}, and nothing was done; {more}", run.state.word())
}

/// Refuses to rent anything for a run that may be resumed by its state, and yet has nothing to resume from or to run: its
/// files were deleted, its checkpoints are damaged or gone, its provider is not there, or what it mounts. `gradus serve` asks
/// here as well.
///
/// # Errors
/// [`Error::Usage`], [`Error::Code`] or [`Error::Job`] with what is missing.
pub fn require_resumable(home: &Home, world: &World, id: &RunId) -> Result<(), Error> {
    refuse_removed(home, id)?;
    refuse_damaged(home, world, id)?;
    let Some(run) = world.runs.get(id) else { return Ok(()) };
    machine::require_served(home, &run.plan.offer.provider)?;
    let folder = home.run(id);
    let is_extended = matches!(run.state, RunState::Done { outcome: Outcome::Trained { .. } });
    if is_extended && !checkpoints::has_any(&folder.join("checkpoints"))? {
        let message = format!(
            "run `{id}` has no checkpoint left to train on from (`gradus gc` deletes those of a trained run), and would \
             start from step 0"
        );
        let model = folder.join("export/model.safetensors");
        let hint = format!(
            "start from its model: `gradus run JOB.yaml --new` with `weights: {}` below `train:`",
            model.display()
        );
        return Err(Error::Usage { message, hint });
    }
    mounts::check(&run.job, (id.as_str(), ""))
}

/// Refuses to resume a sweep of which no trial could be started: its provider is not there, or what it mounts. `gradus serve`
/// asks here as well.
///
/// # Errors
/// [`Error::Code`] or [`Error::Job`] with what is missing.
pub fn require_resumable_sweep(home: &Home, world: &World, id: &SweepId) -> Result<(), Error> {
    let Some(sweep) = world.sweeps.get(id) else { return Ok(()) };
    machine::require_served(home, &sweep.plan.offer.provider)?;
    mounts::check(&sweep.job, (id.as_str(), ""))
}

fn refuse_removed(home: &Home, id: &RunId) -> Result<(), Error> {
    if !home.run(id).join(REMOVED).exists() {
        return Ok(());
    }
    let message = format!("the files of run `{id}` were deleted, so there is no checkpoint to resume from");
    Err(Error::Usage { message, hint: "submit the job again with `gradus run JOB.yaml`".to_owned() })
}

/// Refuses to rent anything for a run of which every checkpoint is damaged: what was paid for would be paid again.
///
/// # Errors
/// [`Error::Code`] with what is damaged.
pub fn refuse_damaged(home: &Home, world: &plan::World, id: &RunId) -> Result<(), Error> {
    let Some(run) = world.runs.get(id).filter(|run| matches!(run.job.work, domain::Work::Train(_))) else {
        return Ok(());
    };
    let folder = home.run(id).join("checkpoints");
    let damaged = agent::unusable_checkpoints(&folder, &run.job_hash);
    let Some(newest) = damaged.first() else { return Ok(()) };
    let spent = run.bill.as_ref().map(|bill| format!(", for which {} were billed", bill.total)).unwrap_or_default();
    let message = format!("all {} checkpoints of run `{id}` are damaged{spent}: {newest}", damaged.len());
    let hint =
        format!("put back a copy of `{}`, or train from step 0 with `gradus run JOB.yaml --new`", folder.display());
    Err(Error::Code { message, hint: Some(hint), code: exit::WORLD })
}

/// The same for a run of a server.
fn of_server(args: &Args, server: &Server, printer: &mut Printer) -> Result<u8, Error> {
    let id = match server.find_any(&args.run)? {
        RunOrSweep::Run(id) => id,
        RunOrSweep::Sweep(id) => return sweep_of_server(args, server, printer, &id),
    };
    let known = server.run(&id, 0)?;
    let since = Since::Event(known.world.last_seq);
    let resumption = plan::resume::run(&known.world, server::clock::now(), &id, &args.event(&known.world, &id)?);
    if is_allowed(resumption.map_err(server::Error::from)?, args, "run", id.as_str())? {
        let body = serde_json::json!({
            "budget": args.budget.map(|budget| budget.to_string()),
            "deadline": args.deadline.map(|deadline| deadline.to_string()),
            "accept_data_change": args.accept_data_change,
            "set": args.set,
        });
        request(server, &format!("/v1/runs/{id}/resume"), &body)?;
    }
    elsewhere::finish(server, printer, &id, since)
}

/// Requests a resume. A request whose answer was lost is repeated, and resumes once.
fn request(server: &Server, path: &str, body: &Value) -> Result<Value, Error> {
    let key = remote::idempotency_key();
    let resume = || server.post(path, Some(body), Some(&key));
    resume().or_else(|error| if error.code() == exit::WORLD { resume() } else { Err(error) })
}

/// Whether to resume, rather than follow a run that needs no resuming; an error if neither is possible as requested.
fn is_allowed(resumption: Resumption, args: &Args, kind: &str, id: &str) -> Result<bool, Error> {
    let (message, hint) = match resumption {
        Resumption::Allowed => return Ok(true),
        Resumption::Unfinished | Resumption::Complete if !args.changes_something() => return Ok(false),
        Resumption::Complete => {
            let message = format!("{kind} `{id}` has ended with its result, so there is nothing to resume");
            let again = "submit the job again with `gradus run JOB.yaml`";
            // The trials of a sweep take no `--set`.
            let extend = if kind == "run" { "extend it with `--set epochs=N`, or " } else { "" };
            (message, format!("{extend}{again}"))
        }
        Resumption::Unfinished => {
            let message =
                format!("{kind} `{id}` is still running, so neither its limits, its keys nor its data can be changed");
            (message, format!("stop it first with `gradus stop {id}`"))
        }
        Resumption::TrialOf(sweep) => {
            let message =
                format!("run `{id}` is a trial of sweep `{sweep}`, whose budget and deadline apply to all trials");
            (message, format!("resume the sweep: `gradus resume {sweep}`"))
        }
        Resumption::Reached(StopBy::User | StopBy::Idle) => return Ok(true),
        Resumption::Reached(stop @ (StopBy::Budget | StopBy::Deadline)) => {
            let (limit, flag) = if stop == StopBy::Budget {
                ("budget", "--budget AMOUNT")
            } else {
                ("deadline", "--deadline DURATION")
            };
            let message = format!("{kind} `{id}` has reached its {limit} and would be stopped again at once");
            (message, format!("raise the {limit} with `gradus resume {id} {flag}`"))
        }
    };
    Err(Error::Usage { message, hint })
}

/// The event that resumes a sweep; none where there is nothing to resume, and it can be followed.
fn resumed_sweep(args: &Args, world: &World, id: &SweepId) -> Result<Option<Event>, Error> {
    if !args.set.is_empty() {
        let message = "`--set` changes one run; the trials of a sweep have the values that it searches".to_owned();
        return Err(Error::Usage { message, hint: "leave `--set` out, or change the job file".to_owned() });
    }
    let (budget, deadline, accept_data_change) = (args.budget, args.deadline, args.accept_data_change);
    let resume = Event::SweepResumeRequested { sweep: id.clone(), budget, deadline, accept_data_change };
    let resumption = plan::resume::sweep(world, server::clock::now(), id, &resume);
    let is_allowed = is_allowed(resumption.map_err(server::Error::from)?, args, "sweep", id.as_str())?;
    Ok(is_allowed.then_some(resume))
}

/// Resumes a sweep of a server.
fn sweep_of_server(args: &Args, server: &Server, printer: &mut Printer, id: &SweepId) -> Result<u8, Error> {
    let known = server.sweep(id)?;
    if resumed_sweep(args, &known.world, id)?.is_some() {
        let body = serde_json::json!({
            "budget": args.budget.map(|budget| budget.to_string()),
            "deadline": args.deadline.map(|deadline| deadline.to_string()),
            "accept_data_change": args.accept_data_change,
        });
        request(server, &format!("/v1/sweeps/{id}/resume"), &body)?;
    }
    crate::sweep::elsewhere::finish(server, printer, id, known.world.last_seq)
}

/// Resumes a sweep.
fn sweep(
    mut state: State,
    args: &Args,
    settings: &GlobalSettings,
    printer: &mut Printer,
    home: &Home,
    id: &SweepId,
) -> Result<u8, Error> {
    let since = state.world().last_seq;
    if let Some(resume) = resumed_sweep(args, state.world(), id)? {
        require_resumable_sweep(home, state.world(), id)?;
        let asked = state.world().sweeps.get(id).map(|sweep| SpendingRequest::resumed_sweep(sweep, args.budget));
        let admitted = asked.map(|asked| spending::admit(&asked, home)).transpose()?.unwrap_or_default();
        admitted.notes.iter().for_each(|note| printer.say(note));
        home.unmark_reported(&home.sweep(id));
        state.append(vec![resume])?;
    }
    drop(state);
    crate::sweep::finish(settings, printer, home, id, since)
}
