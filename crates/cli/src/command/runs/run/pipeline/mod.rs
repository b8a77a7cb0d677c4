//! Pipelines: the tasks of a job file of several documents, one after the other. All are planned before the first starts;
//! each is a run of its own, and starts once the one before has succeeded.

pub mod follow;
pub mod output;
pub mod remote;
pub mod resume;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use domain::file::written::name_from;
use domain::file::{JobPipeline, place_outputs};
use domain::job::Budget;
use domain::run::{Outcome, RunState};
use domain::{Job, Money, Plan, Problem, Rate, RunId, Work};
use server::{Home, State, submit};

use super::super::rm::REMOVED;
use super::{StartOptions, once, served, start};
use crate::error::{Error, exit};
use crate::figures::short;
use crate::follow::attend::on_signals;
use crate::follow::liveness::meters;
use crate::follow::result::confirm;
use crate::local::draft::draft_loaded;
use crate::local::job_file::{JobArgs, due_now, in_place_of_a_job, load_edited, require_secrets, text};
use crate::local::machine;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// The pipeline in a file, with the times that it names if it has `schedule:` as one that is due now has them; `None` for a file of
/// one job, and for a script.
///
/// # Errors
/// [`Error::Job`] with problems of all tasks; others if the file cannot be read.
pub fn read(file: &Path) -> Result<Option<JobPipeline>, Error> {
    let (text, name) = (text(file)?, file.to_string_lossy());
    if in_place_of_a_job(&name, &text).is_some() {
        return Ok(None);
    }
    JobPipeline::read(&due_now(&text), &name).map_err(Error::Job)
}

/// A pipeline that is run.
struct PipelineStart<'a> {
    pipeline: &'a JobPipeline,
    job: &'a JobArgs,
    /// The file, absolute.
    file: String,
    settings: &'a GlobalSettings,
    home: &'a Home,
    /// Ctrl-C, which ends the pipeline between two tasks as well.
    interrupted: Arc<AtomicBool>,
}

/// Plans all tasks from `from` on, confirms them together, and runs one after the other.
///
/// # Errors
/// [`Error`]: of the first task that does not succeed, after a line that says how to continue.
pub fn run(
    pipeline: &JobPipeline,
    (job, from): (&JobArgs, Option<&str>),
    options: &StartOptions,
    settings: &GlobalSettings,
    home: &Home,
    printer: &mut Printer,
) -> Result<u8, Error> {
    if options.detach {
        served::require_server(home, from)?;
    }
    once::note_pipeline(pipeline, &job.file, printer);
    let start_of = PipelineStart::of(pipeline, job, settings, home)?;
    let first = start_of.first(from)?;
    let (mut folders, mut since) = start_of.earlier(first)?;
    let mut planned = Vec::new();
    for place in first..pipeline.tasks.len() {
        let (job, plan) = start_of.draft(place, None, pipeline.budget, printer)?;
        require_outputs(pipeline, place, &job)?;
        if place == 0 && !options.new {
            // What it has cost so far counts as well.
            since = start_of.resumed(place, &job, &plan)?.unwrap_or(since);
        }
        planned.push(plan);
    }
    if !printer.is_json() {
        lines(pipeline, first, &planned).iter().for_each(|line| printer.say(line));
    }
    if let Some(plan) = planned.iter().find(|plan| plan.offer.rate != Rate::default()) {
        confirm(printer, plan, options.yes)?;
    }
    if options.detach {
        return served::detach(pipeline, start_of.job, (settings, home), printer);
    }
    // From here on no default action ends the process, so that each task looks whether it may start.
    on_signals(channel().0, start_of.interrupted.clone())?;
    let of_task = StartOptions { yes: true, new: options.new, detach: false, quiet: options.quiet };
    for place in first..pipeline.tasks.len() {
        let done = start_of.run_task(place, (&folders, since), &of_task, printer);
        match done {
            Ok((exit::DONE, folder)) => {
                folders.extend(folder.map(|folder| (pipeline.tasks[place].name.clone(), folder)));
            }
            Ok((code, _)) => {
                printer.say(start_of.continuation(place));
                return Ok(code);
            }
            Err(error) => {
                printer.say(start_of.continuation(place));
                return Err(error);
            }
        }
    }
    Ok(exit::DONE)
}

/// The plans of all tasks as they would be run now, without anything being started.
///
/// # Errors
/// As [`run`], where a task cannot be planned.
pub fn plans(
    pipeline: &JobPipeline,
    job: &JobArgs,
    settings: &GlobalSettings,
    home: &Home,
    printer: &mut Printer,
) -> Result<Vec<Plan>, Error> {
    let start_of = PipelineStart::of(pipeline, job, settings, home)?;
    let mut plans = Vec::with_capacity(pipeline.tasks.len());
    for place in 0..pipeline.tasks.len() {
        let (job, plan) = start_of.draft(place, None, pipeline.budget, printer)?;
        require_outputs(pipeline, place, &job)?;
        plans.push(plan);
    }
    Ok(plans)
}

impl<'a> PipelineStart<'a> {
    fn of(
        pipeline: &'a JobPipeline,
        job: &'a JobArgs,
        settings: &'a GlobalSettings,
        home: &'a Home,
    ) -> Result<PipelineStart<'a>, Error> {
        let file = std::fs::canonicalize(&job.file).map_err(Error::file("open", &job.file))?;
        let (file, interrupted) = (file.to_string_lossy().into_owned(), Arc::default());
        Ok(PipelineStart { pipeline, job, file, settings, home, interrupted })
    }
}

impl PipelineStart<'_> {
    /// The place of the task to start with.
    fn first(&self, from: Option<&str>) -> Result<usize, Error> {
        let Some(from) = from else { return Ok(0) };
        let tasks = &self.pipeline.tasks;
        tasks.iter().position(|task| task.name == from).ok_or_else(|| {
            let names: Vec<String> = tasks.iter().map(|task| format!("`{}`", task.name)).collect();
            let message = format!("`--from {from}`: the pipeline has no task of this name");
            Error::Usage { message, hint: format!("use one of {}", names.join(", ")) }
        })
    }

    /// The job file as runs of a task have it: `FILE#TASK`.
    fn task_file(&self, place: usize) -> String {
        format!("{}#{}", self.file, self.pipeline.tasks[place].name)
    }

    /// Everything that is known of runs.
    fn state(&self) -> Result<State, Error> {
        let mut state = State::open_lean(self.home)?;
        state.recall_newest(usize::MAX)?;
        Ok(state)
    }

    /// The folders of outputs of the tasks before this one, and the order of the first run that counts for the budget.
    fn earlier(&self, first: usize) -> Result<(BTreeMap<String, String>, u64), Error> {
        let state = self.state()?;
        let (mut folders, mut since) = (BTreeMap::new(), state.world().last_seq + 1);
        for place in 0..first {
            let name = &self.pipeline.tasks[place].name;
            let Some((id, run)) = self.succeeded(&state, place) else {
                let message = format!("task `{name}` comes before, and no run of it that has succeeded is here");
                let hint = format!("start with it: `gradus run {} --from {name}`", self.job.file.display());
                return Err(Error::Usage { message, hint });
            };
            since = since.min(run.order);
            folders.insert(name.clone(), outputs(self.home, id, &run.job));
        }
        Ok((folders, since))
    }

    /// The order of the run that `gradus run` would resume for this task.
    fn resumed(&self, place: usize, job: &Job, plan: &Plan) -> Result<Option<u64>, Error> {
        let mut state = State::open_lean(self.home)?;
        let run = submit::unfinished(self.home, &mut state, job, plan, &self.task_file(place))?;
        Ok(run.and_then(|run| state.world().runs.get(&run)).map(|run| run.order))
    }

    /// The job and the plan of a task that is due. One that is to be resumed has the budget that it began with: what was
    /// left then; any other has what is left now.
    fn draft_due(
        &self,
        place: usize,
        (folders, since): (&BTreeMap<String, String>, u64),
        is_new: bool,
        printer: &mut Printer,
    ) -> Result<(Job, Plan), Error> {
        let file = self.task_file(place);
        let is_open = |id: &RunId, run: &plan::Run| run.bill.is_none() || !self.home.is_reported(&self.home.run(id));
        let state = self.state()?;
        let runs = state.world().runs.iter().filter(|(_, run)| run.file == file && run.order >= since);
        let open = runs.filter(|(id, run)| is_open(id, run)).map(|(_, run)| run.order).max();
        if let Some(open) = open.filter(|_| !is_new)
            && let Ok(budget) = self.left(since, open)
        {
            let (job, plan) = self.draft(place, Some(folders), budget, printer)?;
            if self.resumed(place, &job, &plan)?.is_some() {
                return Ok((job, plan));
            }
        }
        self.draft(place, Some(folders), self.left(since, u64::MAX)?, printer)
    }

    /// The job and the plan of a task; without folders of outputs, it is only planned. It costs at most `budget`.
    fn draft(
        &self,
        place: usize,
        folders: Option<&BTreeMap<String, String>>,
        budget: Option<Budget>,
        printer: &mut Printer,
    ) -> Result<(Job, Plan), Error> {
        let task = &self.pipeline.tasks[place];
        let edit = |job: &mut Job| as_task(job, &task.name, folders, budget);
        let file = &self.job.file;
        let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let (name, typed) = (file.to_string_lossy(), &self.job.typed);
        let variable = &GlobalSettings::variable;
        let loaded = load_edited(self.pipeline.text(place), (&name, folder), typed, variable, &edit, printer)?;
        if loaded.job.sweep.is_some() {
            let message = format!("task `{}` of the pipeline has `sweep:`, and a task is a single run", task.name);
            return Err(Error::Usage { message, hint: "put the sweep in a job file of its own".to_owned() });
        }
        require_secrets(&loaded.job)?;
        draft_loaded(loaded, machine::price(self.home, typed.price)?, self.settings, self.home, printer)
    }

    /// Runs a task to its end; returns its exit code and the folder of its outputs.
    fn run_task(
        &self,
        place: usize,
        earlier: (&BTreeMap<String, String>, u64),
        options: &StartOptions,
        printer: &mut Printer,
    ) -> Result<(u8, Option<String>), Error> {
        let (job, plan) = self.draft_due(place, earlier, options.new, printer)?;
        if self.interrupted.load(Ordering::SeqCst) {
            let message = format!("interrupted before task `{}` started", self.pipeline.tasks[place].name);
            return Err(Error::Code { message, hint: None, code: exit::INTERRUPTED });
        }
        if !printer.is_json() {
            printer.say(format!("task     {} of {}", place + 1, self.pipeline.tasks.len()));
        }
        let file = self.task_file(place);
        let code = start(job, plan, &file, options, self.settings, self.home, printer)?;
        let state = self.state()?;
        let folder = self.succeeded(&state, place).map(|(id, run)| outputs(self.home, id, &run.job));
        Ok((code, folder))
    }

    /// What is left of the budget of all tasks by runs that were submitted from `since` on, and before `until`.
    fn left(&self, since: u64, until: u64) -> Result<Option<Budget>, Error> {
        let Some(budget) = self.pipeline.budget else { return Ok(None) };
        let state = self.state()?;
        let world = state.world();
        let (meters, of_this) = (meters(self.home, world), format!("{}#", self.file));
        let is_counted = |run: &plan::Run| (since..until).contains(&run.order) && run.file.starts_with(&of_this);
        let runs = world.runs.values().filter(|run| is_counted(run));
        let spent: Money = runs.map(|run| plan::spent(world, run, &meters)).sum();
        let left = budget.max.micros().saturating_sub(spent.micros());
        if left > 0 {
            return Ok(Some(Budget { max: Money::from_micros(left), ..budget }));
        }
        let message = format!("the budget of the pipeline, {}, is spent: its tasks have cost {spent}", budget.max);
        let hint = Some("raise `budget` in the first document of the file".to_owned());
        Err(Error::Code { message, hint, code: exit::RUN_STOPPED })
    }

    /// The newest run of a task that has succeeded, and whose files are here.
    fn succeeded<'s>(&self, state: &'s State, place: usize) -> Option<(&'s RunId, &'s plan::Run)> {
        let file = self.task_file(place);
        let is_done = |run: &plan::Run| {
            matches!(&run.state, RunState::Done { outcome: Outcome::Trained { .. } | Outcome::Succeeded })
        };
        let runs = state.world().runs.iter().filter(|(_, run)| run.file == file && is_done(run));
        runs.filter(|(id, _)| !self.home.run(id).join(REMOVED).exists()).max_by_key(|(_, run)| run.order)
    }

    /// How to go on once a task has not succeeded.
    fn continuation(&self, place: usize) -> String {
        let (tasks, file) = (&self.pipeline.tasks, self.job.file.display());
        let (task, is_last) = (&tasks[place].name, place + 1 == tasks.len());
        let later = if is_last { "" } else { ", so no later one was started" };
        format!("task `{task}` has not succeeded{later}; continue with `gradus run {file} --from {task}`")
    }
}

/// Gives a job that is a task its name, the folders of outputs of earlier tasks, and what it may cost.
///
/// # Errors
/// As [`place_outputs`].
pub fn as_task(
    job: &mut Job,
    task: &str,
    folders: Option<&BTreeMap<String, String>>,
    budget: Option<Budget>,
) -> Result<(), Problem> {
    place_outputs(job, folders)?;
    // `My_Task` of a file of SkyPilot's is `my-task`, as where it is a file of its own.
    let is_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    job.name = if task.bytes().all(is_name) { task.to_owned() } else { name_from(task) };
    if let Some(most) = budget {
        let own = job.budget.unwrap_or(most);
        job.budget = Some(Budget { max: own.max.min(most.max), ..own });
    }
    Ok(())
}

/// Refuses a task that keeps nothing where a later one names its outputs.
///
/// # Errors
/// [`Error::Usage`].
pub fn require_outputs(pipeline: &JobPipeline, place: usize, job: &Job) -> Result<(), Error> {
    let name = &pipeline.tasks[place].name;
    let keeps_none = matches!(&job.work, Work::Command(command) if command.outputs.is_empty());
    if !keeps_none || !(place + 1..pipeline.tasks.len()).any(|later| pipeline.names_outputs_of(later, name)) {
        return Ok(());
    }
    let message = format!("a later task names `${{{name}.outputs}}`, and task `{name}` has no `outputs`");
    Err(Error::Usage { message, hint: format!("add `outputs: [FOLDER]` to task `{name}`") })
}

/// The folder of what a run has written: the model of our trainer, or the `outputs` of a program.
pub fn outputs(home: &Home, run: &RunId, job: &Job) -> String {
    let below = match job.work {
        Work::Train(_) => "export",
        Work::Command(_) => "checkpoints/outputs",
    };
    home.run(run).join(below).to_string_lossy().into_owned()
}

/// The plans of all tasks, and their sum.
pub fn lines(pipeline: &JobPipeline, first: usize, plans: &[Plan]) -> Vec<String> {
    let mut lines = vec![format!("pipeline {}: {} tasks, one after the other", pipeline.name, plans.len())];
    for (task, plan) in pipeline.tasks.iter().skip(first).zip(plans) {
        let time = plan.time.map_or("unknown time".to_owned(), |time| short(time.middle));
        let cost = plan.cost.map_or("unknown cost".to_owned(), |cost| cost.middle.to_string());
        lines.push(format!("task     {}: {time}, {cost}, on {}", task.name, plan.offer.kind));
    }
    let time: Option<u64> = plans.iter().map(|plan| Some(plan.time?.middle.micros())).sum();
    let costs: Option<Vec<_>> = plans.iter().map(|plan| plan.cost).collect();
    let time = time.map_or("unknown time".to_owned(), |micros| short(domain::Duration::from_micros(micros)));
    let cost = costs.map_or("unknown cost".to_owned(), |costs| {
        let [low, middle, high]: [Money; 3] = [
            costs.iter().map(|cost| cost.low).sum(),
            costs.iter().map(|cost| cost.middle).sum(),
            costs.iter().map(|cost| cost.high).sum(),
        ];
        format!("{middle} (P10–P90 of each: {low} to {high})")
    });
    lines.push(format!("total    {time}, {cost}"));
    if let Some(budget) = pipeline.budget {
        lines.push(format!("budget   at most {} for all tasks", budget.max));
    }
    lines
}
