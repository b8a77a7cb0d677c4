//! `gradus schedules`: jobs, sweeps and pipelines that `gradus serve` submits again and again, at the due times of their
//! `schedule:`.

use domain::schedule::{JobSchedule, ScheduleChange, ScheduledWork, SkipReason};
use domain::{Event, ScheduleId};
use serde_json::{Value, json};
use server::api::{SubmitRequest, schedule_view};
use server::state::StateReader;
use server::{Home, State, submit};

use super::pipeline;
use crate::error::{Error, exit};
use crate::follow::history::skipped;
use crate::local::draft::{draft, known, lines};
use crate::local::job_file::{JobArgs, require_secrets};
use crate::local::job_request::{pipeline_request, request};
use crate::printer::Printer;
use crate::remote::{self, Server};
use crate::settings::GlobalSettings;
use crate::sweep::preview::Preview;
use crate::table;

/// Arguments of `gradus schedules`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Have a job with `schedule:` run at its due times: as a run, as a sweep with `sweep:`, or as a pipeline where the first
    /// document of the file has the key. `gradus serve` plans and submits each, with the job file as it is now and its budget
    Add(JobArgs),
    /// List schedules, with what each submits, when it is due next, and the state of its newest run
    List,
    /// Show a schedule with its newest runs, sweeps or pipelines and their states
    Show {
        /// A schedule: its name, or the beginning of it
        schedule: String,
    },
    /// Submit nothing of a schedule until it is resumed
    Pause {
        /// A schedule: its name, or the beginning of it
        schedule: String,
    },
    /// Submit what is due of a schedule again, at due times from now on
    Resume {
        /// A schedule: its name, or the beginning of it
        schedule: String,
    },
    /// Remove a schedule; what it has submitted stays
    Rm {
        /// A schedule: its name, or the beginning of it
        schedule: String,
    },
}

/// Adds, lists, shows or changes schedules.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let mut keeper = match remote::chosen(settings)? {
        Some(server) => ScheduleHost::Elsewhere(server),
        None => {
            let home = Home::open(&settings.home)?;
            let state = State::open_lean(&home)?;
            ScheduleHost::Here(home, Box::new(state))
        }
    };
    match args.command {
        Subcommand::Add(job) => add(&mut keeper, &job, settings, printer),
        Subcommand::List => {
            list(&keeper.all(NEWEST)?, printer);
            Ok(exit::DONE)
        }
        Subcommand::Show { schedule } => {
            let found = keeper.one(&schedule)?;
            match printer.is_json() {
                true => printer.json(&found),
                false => described(&found).into_iter().for_each(|line| printer.data(line)),
            }
            Ok(exit::DONE)
        }
        Subcommand::Pause { schedule } => change(&mut keeper, &schedule, ScheduleChange::Pause, printer),
        Subcommand::Resume { schedule } => change(&mut keeper, &schedule, ScheduleChange::Resume, printer),
        Subcommand::Rm { schedule } => change(&mut keeper, &schedule, ScheduleChange::Remove, printer),
    }
}

/// Runs of each schedule whose states are listed.
const NEWEST: usize = 1;

/// Where schedules are.
enum ScheduleHost {
    /// In the home of this machine.
    Here(Home, Box<State>),
    /// At a server.
    Elsewhere(Server),
}

impl ScheduleHost {
    /// Every schedule as the API shows it, with the states of so many of its newest runs.
    fn all(&self, newest: usize) -> Result<Vec<Value>, Error> {
        match self {
            ScheduleHost::Here(home, state) => {
                let reader = StateReader::open(home)?;
                let schedules = state.world().schedules.iter();
                let shown = schedules.map(|(id, record)| schedule_view(&reader, (id, record), newest));
                Ok(shown.collect::<Result<Vec<Value>, server::Error>>()?)
            }
            ScheduleHost::Elsewhere(server) => {
                let mut answer = server.get("/v1/schedules")?;
                server.typed(answer["schedules"].take())
            }
        }
    }

    /// The schedule of this name, or of this beginning of it, with the states of all runs that are known by name.
    fn one(&self, name: &str) -> Result<Value, Error> {
        match self {
            ScheduleHost::Here(..) => found(self.all(usize::MAX)?, name),
            ScheduleHost::Elsewhere(server) => {
                let id = ScheduleId::new(text(&found(self.all(NEWEST)?, name)?, "schedule"));
                server.get(&format!("/v1/schedules/{id}"))
            }
        }
    }

    fn change(&mut self, id: &ScheduleId, change: ScheduleChange) -> Result<(), Error> {
        match self {
            ScheduleHost::Here(_, state) => {
                state.append(vec![Event::ScheduleChanged { schedule: id.clone(), change }])?;
            }
            ScheduleHost::Elsewhere(server) => {
                let word = match change {
                    ScheduleChange::Pause => "pause",
                    ScheduleChange::Resume => "resume",
                    ScheduleChange::Remove => "remove",
                };
                server.post(&format!("/v1/schedules/{id}/{word}"), None, None)?;
            }
        }
        Ok(())
    }
}

fn add(
    keeper: &mut ScheduleHost,
    args: &JobArgs,
    settings: &GlobalSettings,
    printer: &mut Printer,
) -> Result<u8, Error> {
    let ScheduleFile { name, times, work, body } = ScheduleFile::read(args, printer)?;
    refuse_ignored(args)?;
    let id: ScheduleId = match keeper {
        ScheduleHost::Here(home, state) => {
            // A mistake is found now, and not at the first due time.
            let lines = planned(args, settings, home, printer)?;
            if !printer.is_json() {
                lines.iter().for_each(|line| printer.say(line));
            }
            let sent = serde_json::from_value::<SubmitRequest>(body);
            let sent = sent.map_err(|error| Error::file("read the job file", &args.file)(error.into()))?;
            submit::add_schedule(state, (&name, times, work), &sent, settings.user.clone())?
        }
        ScheduleHost::Elsewhere(server) => {
            let key = remote::idempotency_key();
            let add = || server.post("/v1/schedules", Some(&body), Some(&key));
            let added = add().or_else(|error| if error.code() == exit::WORLD { add() } else { Err(error) })?;
            server.typed(added["schedule"].clone())?
        }
    };
    let shown = keeper.one(id.as_str())?;
    match printer.is_json() {
        true => printer.json(&shown),
        false => described(&shown).into_iter().for_each(|line| printer.data(line)),
    }
    if let ScheduleHost::Here(home, _) = keeper
        && !home.has_server()
    {
        printer.say("note: no `gradus serve` is running for this home; it submits the runs");
    }
    Ok(exit::DONE)
}

/// A job file with `schedule:`, as it is added.
struct ScheduleFile {
    name: String,
    times: JobSchedule,
    work: ScheduledWork,
    /// As the API takes it.
    body: Value,
}

impl ScheduleFile {
    /// The job or pipeline of a command.
    fn read(args: &JobArgs, printer: &mut Printer) -> Result<ScheduleFile, Error> {
        let example = "`schedule: {cron: 0 3 * * *, timezone: Europe/Berlin}`";
        let without =
            |hint: String| Error::Usage { message: format!("`{}` has no `schedule:`", args.file.display()), hint };
        if let Some(pipeline) = pipeline::read(&args.file)? {
            let body = pipeline_request(args, &pipeline, &GlobalSettings::variable, printer)?;
            let times = pipeline.schedule.ok_or_else(|| {
                without(format!("begin the file with a document of its own, for example {example}, and `---` after it"))
            })?;
            return Ok(ScheduleFile { name: pipeline.name, times, work: ScheduledWork::Pipeline, body });
        }
        let (job, body) = request(args, &GlobalSettings::variable, printer)?;
        let times = job.schedule.ok_or_else(|| without(format!("add for example {example}")))?;
        let work = if job.sweep.is_some() { ScheduledWork::Sweep } else { ScheduledWork::Run };
        Ok(ScheduleFile { name: job.name, times, work, body })
    }
}

/// Plans a job or pipeline as it would be now, so that a mistake is found before the first due time; its plan for people.
fn planned(
    args: &JobArgs,
    settings: &GlobalSettings,
    home: &Home,
    printer: &mut Printer,
) -> Result<Vec<String>, Error> {
    if let Some(pipeline) = pipeline::read(&args.file)? {
        let plans = pipeline::plans(&pipeline, args, settings, home, printer)?;
        return Ok(pipeline::lines(&pipeline, 0, &plans));
    }
    let (job, plan) = draft(args, settings, home, printer)?;
    require_secrets(&job)?;
    if let Some(sweep) = &job.sweep {
        let known = known(settings, home, &job, printer)?;
        Preview::of(&job, sweep, &plan, known, &args.file.to_string_lossy())?;
    }
    Ok(lines(&job, &plan))
}

/// Refuses flags that only a single run has.
fn refuse_ignored(args: &JobArgs) -> Result<(), Error> {
    let typed = &args.typed;
    let given = [("--seed", typed.seed.is_some()), ("--price", typed.price.is_some())];
    let Some((flag, _)) = given.into_iter().find(|(_, is_given)| *is_given) else { return Ok(()) };
    let message = format!("`{flag}` applies to a single run, and a schedule plans each from its job file");
    let hint = match flag {
        "--seed" => "write `seed` under `train` in the job file",
        _ => "start the server with it: `gradus serve --price PRICE`",
    };
    Err(Error::Usage { message, hint: hint.to_owned() })
}

fn change(keeper: &mut ScheduleHost, name: &str, change: ScheduleChange, printer: &mut Printer) -> Result<u8, Error> {
    let known = found(keeper.all(0)?, name)?;
    let id = ScheduleId::new(text(&known, "schedule"));
    keeper.change(&id, change)?;
    let word = match change {
        ScheduleChange::Pause => "paused",
        ScheduleChange::Resume => "resumed",
        ScheduleChange::Remove => "removed",
    };
    match printer.is_json() {
        true => printer.json(&json!({ "event": word, "schedule": id })),
        false => printer.data(format!("{word} {id}")),
    }
    Ok(exit::DONE)
}

/// The schedule that a name on the command line refers to: its name, or a beginning of it that no other has.
fn found(all: Vec<Value>, name: &str) -> Result<Value, Error> {
    if let Some(exact) = all.iter().find(|one| one["schedule"] == name) {
        return Ok(exact.clone());
    }
    let mut of_name = all.into_iter().filter(|one| text(one, "schedule").starts_with(name));
    let hint = "list them with `gradus schedules list`".to_owned();
    match (of_name.next(), of_name.next()) {
        (Some(one), None) if !name.is_empty() => Ok(one),
        (Some(_), _) => Err(Error::Usage { message: format!("several schedules begin with `{name}`"), hint }),
        (None, _) => Err(Error::Usage { message: format!("no schedule is called `{name}`"), hint }),
    }
}

fn text<'a>(one: &'a Value, key: &str) -> &'a str {
    one[key].as_str().unwrap_or_default()
}

fn list(all: &[Value], printer: &mut Printer) {
    if printer.is_json() {
        all.iter().for_each(|one| printer.json(one));
        return;
    }
    if all.is_empty() {
        printer.say("no schedules yet; add one with `gradus schedules add JOB`");
        return;
    }
    let row = |one: &Value| {
        let or = |key: &str| one[key].as_str().unwrap_or("–").to_owned();
        let times = format!("{} {}", text(one, "cron"), text(one, "timezone"));
        let newest = one["newest"][0]["word"].as_str().unwrap_or("–").to_owned();
        let (next, last, count) = (or("next_due"), or("last_due"), one["submitted"].to_string());
        vec![or("schedule"), or("word"), work(one).to_owned(), times, next, last, count, newest]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let head = ["schedule", "state", "submits", "times", "next due", "last due", "so far", "newest"];
    table::lines(&head, &rows).into_iter().for_each(|line| printer.data(line));
}

/// What a schedule submits: runs, where its server is of a version that submits nothing else.
fn work(one: &Value) -> &str {
    one["work"].as_str().unwrap_or("run")
}

/// A schedule in lines.
fn described(one: &Value) -> Vec<String> {
    let (word, work) = (|key: &str| text(one, key), work(one));
    let works = format!("{work}s");
    let mut lines = vec![
        format!("schedule {}: {}", word("schedule"), word("word")),
        format!("times    {} in {}", word("cron"), word("timezone")),
        format!("next     {}", one["next_due"].as_str().unwrap_or("not before it is resumed")),
        format!("policy   catch_up: {}, overlap: {}", word("catch_up"), word("overlap")),
        format!("job      {}", word("file")),
        format!("{works:<8} {} submitted, {} due times skipped", one["submitted"], one["skipped"]),
    ];
    if let Some(due) = one["last_skip"]["due"].as_str() {
        let why = serde_json::from_value(one["last_skip"]["why"].clone());
        let why = why.map_or(String::new(), |why| format!(": {}", reason(&why)));
        lines.push(format!("skipped  {due}{why}"));
    }
    let runs = one["runs"].as_array().into_iter().flatten().rev().filter_map(Value::as_str);
    let states = one["newest"].as_array().into_iter().flatten().map(|run| run["word"].as_str());
    for (run, state) in runs.zip(states.chain(std::iter::repeat(None))) {
        let state = state.map_or(String::new(), |state| format!(": {state}"));
        lines.push(format!("{work:<8} {run}{state}"));
    }
    lines
}

/// Why a due time was skipped, with what to do about it.
fn reason(why: &SkipReason) -> String {
    match why {
        SkipReason::Refused { message } => message.lines().map(str::trim).collect::<Vec<_>>().join("; "),
        SkipReason::Missed | SkipReason::Overlap => skipped(why),
    }
}
