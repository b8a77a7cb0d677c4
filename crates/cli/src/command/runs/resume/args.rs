//! Arguments of `gradus resume`, and whether what they ask for is possible in the state that a run, sweep or pipeline is in.

use domain::run::StopBy;
use domain::sweep::Setting;
use domain::{Duration, Event, Money, Problems, RunId, Work};
use plan::{Resumption, World};
use serde_json::Value;

use crate::error::{Error, exit};
use crate::remote::{self, Server};

/// Arguments of `gradus resume`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Run, sweep or pipeline: its name, a unique prefix of it, or `last`
    pub run: String,
    /// New budget for the whole run, including what it has cost so far, such as `$20`
    #[arg(long, value_name = "AMOUNT", allow_hyphen_values = true)]
    pub budget: Option<Money>,
    /// New deadline, counted from the run's submission, such as `12h`
    #[arg(long, value_name = "DURATION", value_parser = Duration::parse_with_unit)]
    pub deadline: Option<Duration>,
    /// Resume although the data has changed since the checkpoint: samples that the run knows stay in their split, new
    /// ones are assigned to one, and text keeps its vocabulary
    #[arg(long)]
    pub accept_data_change: bool,
    /// Change a key of `train:` from here on, such as `epochs=60` or `processes=1`; what the checkpoint rests on (model, data,
    /// batch, kind of optimizer) stays. A run that has ended is extended by more epochs. Can be given several times
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Ask nothing, as `gradus run --yes`; a resume asks nothing in any case
    #[arg(short = 'y', long = "yes")]
    _yes: bool,
}

impl Args {
    /// Whether it changes settings of the run.
    pub fn changes_something(&self) -> bool {
        self.budget.is_some() || self.deadline.is_some() || self.accept_data_change || !self.set.is_empty()
    }

    /// The changes as the API takes them for a run.
    pub fn body(&self) -> Value {
        serde_json::json!({
            "budget": self.budget.map(|budget| budget.to_string()),
            "deadline": self.deadline.map(|deadline| deadline.to_string()),
            "accept_data_change": self.accept_data_change,
            "set": self.set,
        })
    }

    /// The request to resume a run with the changes.
    ///
    /// # Errors
    /// [`Error::Job`] or [`Error::Usage`] where a key cannot be set.
    pub fn event(&self, world: &World, run: &RunId) -> Result<Event, Error> {
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

/// Requests a resume. A request whose answer was lost is repeated, and resumes once.
///
/// # Errors
/// As [`Server::post`].
pub fn request(server: &Server, path: &str, body: &Value) -> Result<Value, Error> {
    let key = remote::idempotency_key();
    let resume = || server.post(path, Some(body), Some(&key));
    resume().or_else(|error| if error.code() == exit::WORLD { resume() } else { Err(error) })
}

/// Whether to resume, rather than follow a run that needs no resuming; an error if neither is possible as requested.
///
/// # Errors
/// [`Error::Usage`].
pub fn is_allowed(resumption: Resumption, args: &Args, kind: &str, id: &str) -> Result<bool, Error> {
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
