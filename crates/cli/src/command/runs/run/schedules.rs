//! `gradus schedules`: jobs that `gradus serve` runs again and again, at the due times of their `schedule:`.

use std::path::Path;

use domain::Job;
use domain::schedule::ScheduleChange;
use domain::{Event, ScheduleId};
use serde_json::{Value, json};
use server::api::{SubmitRequest, schedule_view};
use server::{Home, State, submit};

use crate::error::{Error, exit};
use crate::follow::history::skipped;
use crate::local::draft::{draft, lines};
use crate::local::job_file::{JobArgs, require_secrets};
use crate::local::job_request::request;
use crate::printer::Printer;
use crate::remote::{self, Server};
use crate::settings::GlobalSettings;
use crate::table;

/// Arguments of `gradus schedules`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Subcommand,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Have a job with `schedule:` run at its due times. `gradus serve` plans and submits each run, with the job file as it
    /// is now and the budget of the job
    Add(JobArgs),
    /// List schedules, with when each is due next
    List,
    /// Show a schedule with its newest runs
    Show {
        /// A schedule: its name, or the beginning of it
        schedule: String,
    },
    /// Submit no run of a schedule until it is resumed
    Pause {
        /// A schedule: its name, or the beginning of it
        schedule: String,
    },
    /// Submit runs of a schedule again, at due times from now on
    Resume {
        /// A schedule: its name, or the beginning of it
        schedule: String,
    },
    /// Remove a schedule; its runs stay
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
            list(&keeper.all()?, printer);
            Ok(exit::DONE)
        }
        Subcommand::Show { schedule } => {
            let found = found(keeper.all()?, &schedule)?;
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

/// Says that a job with `schedule:` is run once, by a command that runs it once.
pub fn note_single(job: &Job, file: &Path, printer: &mut Printer) {
    if job.schedule.is_some() {
        let file = file.display();
        printer.say(format!("note: this is one run, now; `gradus schedules add {file}` runs the job at its due times"));
    }
}

/// Where schedules are.
enum ScheduleHost {
    /// In the home of this machine.
    Here(Home, Box<State>),
    /// At a server.
    Elsewhere(Server),
}

impl ScheduleHost {
    /// Every schedule as the API shows it.
    fn all(&self) -> Result<Vec<Value>, Error> {
        match self {
            ScheduleHost::Here(_, state) => {
                Ok(state.world().schedules.iter().map(|(id, record)| schedule_view(id, record)).collect())
            }
            ScheduleHost::Elsewhere(server) => {
                let mut answer = server.get("/v1/schedules")?;
                server.typed(answer["schedules"].take())
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
    if super::pipeline::read(&args.file)?.is_some() {
        let file = args.file.display();
        let message = format!("`{file}` has several documents (a pipeline), and due times submit single runs");
        let hint = format!("have cron run `gradus run {file} --yes --detach` at these times, beside `gradus serve`");
        return Err(Error::Usage { message, hint });
    }
    let (job, body) = request(args, &GlobalSettings::variable, printer)?;
    let Some(times) = job.schedule.clone() else {
        let message = format!("`{}` has no `schedule:`", args.file.display());
        let hint = "add for example `schedule: {cron: 0 3 * * *, timezone: Europe/Berlin}`".to_owned();
        return Err(Error::Usage { message, hint });
    };
    refuse_ignored(args)?;
    let id: ScheduleId = match keeper {
        ScheduleHost::Here(home, state) => {
            // A mistake is found now, and not at the first due time.
            let (planned, plan) = draft(args, settings, home, printer)?;
            require_secrets(&planned)?;
            if !printer.is_json() {
                lines(&planned, &plan).iter().for_each(|line| printer.say(line));
            }
            let sent = serde_json::from_value::<SubmitRequest>(body);
            let sent = sent.map_err(|error| Error::file("read the job file", &args.file)(error.into()))?;
            submit::add_schedule(state, (&job.name, times), &sent, settings.user.clone())?
        }
        ScheduleHost::Elsewhere(server) => {
            let key = remote::idempotency_key();
            let add = || server.post("/v1/schedules", Some(&body), Some(&key));
            let added = add().or_else(|error| if error.code() == exit::WORLD { add() } else { Err(error) })?;
            server.typed(added["schedule"].clone())?
        }
    };
    let shown = found(keeper.all()?, id.as_str())?;
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

/// Refuses flags that only a single run has.
fn refuse_ignored(args: &JobArgs) -> Result<(), Error> {
    let typed = &args.typed;
    let given = [("--seed", typed.seed.is_some()), ("--price", typed.price != domain::Rate::default())];
    let Some((flag, _)) = given.into_iter().find(|(_, is_given)| *is_given) else { return Ok(()) };
    let message = format!("`{flag}` applies to a single run, and a schedule plans each from its job file");
    let hint = match flag {
        "--seed" => "write `seed` under `train` in the job file",
        _ => "start the server with it: `gradus serve --price PRICE`",
    };
    Err(Error::Usage { message, hint: hint.to_owned() })
}

fn change(keeper: &mut ScheduleHost, name: &str, change: ScheduleChange, printer: &mut Printer) -> Result<u8, Error> {
    let known = found(keeper.all()?, name)?;
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
        vec![or("schedule"), or("word"), times, or("next_due"), or("last_due"), one["submitted"].to_string()]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    let head = ["schedule", "state", "times", "next due", "last due", "runs"];
    table::lines(&head, &rows).into_iter().for_each(|line| printer.data(line));
}

/// A schedule in lines.
fn described(one: &Value) -> Vec<String> {
    let word = |key: &str| text(one, key);
    let mut lines = vec![
        format!("schedule {}: {}", word("schedule"), word("word")),
        format!("times    {} in {}", word("cron"), word("timezone")),
        format!("next     {}", one["next_due"].as_str().unwrap_or("not before it is resumed")),
        format!("policy   catch_up: {}, overlap: {}", word("catch_up"), word("overlap")),
        format!("job      {}", word("file")),
        format!("runs     {} submitted, {} due times skipped", one["submitted"], one["skipped"]),
    ];
    if let Some(due) = one["last_skip"]["due"].as_str() {
        let why = serde_json::from_value(one["last_skip"]["why"].clone());
        let why = why.map_or(String::new(), |why| format!(": {}", skipped(&why)));
        lines.push(format!("skipped  {due}{why}"));
    }
    let runs = one["runs"].as_array().into_iter().flatten().rev().filter_map(Value::as_str);
    lines.extend(runs.map(|run| format!("run      {run}")));
    lines
}
