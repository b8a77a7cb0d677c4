//! How a server plans and admits what it is asked for: as the commands of this machine do.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use domain::file::{JobPipeline, PipelineTask};
use domain::{Job, Problem, Rate, RunId, Work};
use server::Home;
use server::api::{self, ApiError, PaidRequest, PlannedJob, SubmitRequest};

use crate::command::runs::run::outputs;
use crate::command::runs::run::pipeline::{as_task, require_outputs};
use crate::error::{Error, exit};
use crate::local::job_file::{JobOverrides, load_edited, require_secrets};
use crate::local::spending::{self, SpendingRequest};
use crate::local::{draft, machine, weights};
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use crate::sweep::preview::Preview;

/// Plans jobs as `gradus run` does.
pub fn planner(settings: GlobalSettings, home: Home, price: Rate) -> Arc<api::Planner> {
    Arc::new(move |request| {
        let planned = plan(request, &settings, &home, price)?;
        machine::require_served(&home, &planned.plan.offer.provider).map_err(|error| refusal(409, error))?;
        Ok(planned)
    })
}

/// Plans runs of schedules, with the times that their job file names and what the run before has written.
pub fn due_planner(settings: GlobalSettings, home: Home, price: Rate) -> Arc<api::DuePlanner> {
    Arc::new(move |request, start| {
        let due = SubmitRequest { job: start.due.placed(&request.job), ..request.clone() };
        let edit = |job: &mut Job| warm_start(job, start.last.as_ref(), &home);
        let planned = plan_edited(&due, &edit, &settings, &home, price).map_err(outside)?;
        machine::require_served(&home, &planned.plan.offer.provider).map_err(|error| refusal(409, error))?;
        Ok(planned)
    })
}

/// The failure of a network, a store or a disk as one of the server, which is tried again.
fn outside(failure: ApiError) -> ApiError {
    let is_outside = failure.exit_code == Some(exit::WORLD) && failure.status < 500;
    if is_outside { ApiError { status: 502, ..failure } } else { failure }
}

/// Plans tasks of pipelines, each with the outputs of those before it.
pub fn task_planner(settings: GlobalSettings, home: Home, price: Rate) -> Arc<api::TaskPlanner> {
    Arc::new(move |request, start| {
        let failure = |error: Error| refusal(422, error);
        let pipeline = JobPipeline::read(&request.job, &request.file).map_err(Error::Job).map_err(failure)?;
        let task = pipeline.as_ref().and_then(|pipeline| Some((pipeline, pipeline.tasks.get(start.place)?)));
        let Some((pipeline, task)) = task else {
            return Err(ApiError::new(422, format!("`{}` has no task {}", request.file, start.place + 1)));
        };
        let folder = |(task, run): (&PipelineTask, &RunId)| (task.name.clone(), kept_outputs(&home, run));
        let folders: Option<BTreeMap<String, String>> =
            start.earlier.as_ref().map(|runs| pipeline.tasks.iter().zip(runs).map(folder).collect());
        let edit = |job: &mut Job| as_task(job, &task.name, folders.as_ref(), start.budget);
        let asked = SubmitRequest { job: pipeline.text(start.place), ..request.clone() };
        let planned = plan_edited(&asked, &edit, &settings, &home, price)?;
        if planned.known.is_some() {
            let message = format!("task `{}` of the pipeline has `sweep:`, and a task is a single run", task.name);
            return Err(ApiError::new(422, message).hint("put the sweep in a job file of its own"));
        }
        require_outputs(pipeline, start.place, &planned.job).map_err(failure)?;
        machine::require_served(&home, &planned.plan.offer.provider).map_err(|error| refusal(409, error))?;
        Ok(planned)
    })
}

/// The folder of what a run has kept: the outputs of a program, or else the model of our trainer.
fn kept_outputs(home: &Home, run: &RunId) -> String {
    let folder = home.run(run);
    let outputs = folder.join("checkpoints/outputs");
    let kept = if outputs.is_dir() { outputs } else { folder.join("export") };
    kept.to_string_lossy().into_owned()
}

/// Where a program finds the outputs of the run before, below its working folder.
const LAST_OUTPUTS: &str = "last-outputs";

/// Has a job start with what an earlier run has written.
fn warm_start(job: &mut Job, last: Option<&RunId>, home: &Home) -> Result<(), Problem> {
    let Some(last) = last else { return Ok(()) };
    let folder = outputs(home, last, job);
    if !Path::new(&folder).exists() {
        let message = format!("the files of run `{last}`, which this one starts with, are not here any more");
        return Err(Problem::at("schedule.warm_start", message).hint("add the schedule again to start over"));
    }
    let only_new = job.schedule.as_ref().is_some_and(|schedule| schedule.new_data);
    match &mut job.work {
        Work::Train(train) => {
            train.weights = Some(format!("{folder}/model.safetensors"));
            if only_new {
                train.data.trained_on = Some(samples_of(home, last)?);
            }
        }
        Work::Command(command) => {
            command.file_mounts.insert(LAST_OUTPUTS.to_owned(), folder);
        }
    }
    Ok(())
}

/// The newest list of the samples that a run was trained on.
fn samples_of(home: &Home, run: &RunId) -> Result<String, Problem> {
    let folder = home.run(run).join("checkpoints");
    let files = std::fs::read_dir(&folder).into_iter().flatten().filter_map(Result::ok);
    let is_list = |name: &str| name.starts_with("data-") && name.ends_with(".json");
    let lists = files.filter(|file| file.file_name().to_str().is_some_and(is_list));
    let newest = lists.max_by_key(|file| file.metadata().and_then(|about| about.modified()).ok());
    newest.map(|file| file.path().to_string_lossy().into_owned()).ok_or_else(|| {
        let message = format!("run `{run}` has no list of the samples that it was trained on");
        Problem::at("schedule.new_data", message).hint("leave the key out, or add the schedule again to start over")
    })
}

/// Admits what `gradus run` and `gradus resume` would.
pub fn admitter(home: Home) -> Arc<api::Admitter> {
    Arc::new(move |request| {
        let asked = match request {
            PaidRequest::Submit(job, plan, user) => SpendingRequest::submitted(job, plan, user),
            PaidRequest::Resume(id, run, budget) => SpendingRequest::resumed(id, run, budget).hinting("send `budget`"),
            PaidRequest::ResumeSweep(sweep, budget) => {
                SpendingRequest::resumed_sweep(sweep, budget).hinting("send `budget`")
            }
        };
        // A list that cannot be read is no fault of who asks.
        spending::allowances(&home).map_err(|error| refusal(500, error))?;
        match spending::admit(&asked, &home) {
            Ok(admitted) => Ok(Box::new(admitted)),
            Err(error @ Error::Usage { .. }) => Err(refusal(422, error)),
            Err(error @ Error::Code { .. }) => Err(refusal(409, error)),
            Err(error) => Err(refusal(500, error)),
        }
    })
}

/// A failure of the command line as one of the API.
pub fn refusal(status: u16, error: Error) -> ApiError {
    let failure = ApiError::new(status, error.to_string()).exit_code(error.code());
    match error.hint() {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn plan(request: &SubmitRequest, settings: &GlobalSettings, home: &Home, price: Rate) -> Result<PlannedJob, ApiError> {
    plan_edited(request, &|_| Ok(()), settings, home, price)
}

/// Plans a job after `edit` has changed it.
fn plan_edited(
    request: &SubmitRequest,
    edit: &dyn Fn(&mut Job) -> Result<(), Problem>,
    settings: &GlobalSettings,
    home: &Home,
    price: Rate,
) -> Result<PlannedJob, ApiError> {
    let failure = |error: Error| refusal(422, error);
    if !Path::new(&request.folder).is_absolute() {
        let hint = "name a folder of the server's machine, from which relative paths in the job are taken";
        return Err(ApiError::new(422, format!("`folder`: `{}` is not absolute", request.folder)).hint(hint));
    }
    if JobPipeline::read(&request.job, &request.file).map_err(Error::Job).map_err(failure)?.is_some() {
        return Err(no_pipeline(&request.file));
    }
    let pair = |(name, value): (&String, &String)| format!("{name}={value}");
    let typed = JobOverrides {
        price,
        envs: request.envs.iter().map(pair).collect(),
        secrets: request.secrets.iter().map(pair).collect(),
        ..JobOverrides::default()
    };
    let mut printer = Printer::silent();
    let names = (request.file.as_str(), Path::new(&request.folder));
    // The server's own variables are private.
    let read = load_edited(request.job.clone(), names, &typed, &|_| None, edit, &mut printer).map_err(failure)?;
    if let Some(unrentable) = read.unrentable {
        return Err(failure(Error::Job(unrentable)));
    }
    weights::require_files(&read.job, &read.source).map_err(failure)?;
    require_secrets(&read.job).map_err(failure)?;
    let plan = draft::draft_here(&read.job, price, settings, home, &mut printer).map_err(failure)?;
    let known = match &read.job.sweep {
        None => None,
        Some(sweep) => {
            let known = draft::known(settings, home, &read.job, &mut printer).map_err(failure)?;
            Some(Preview::of(&read.job, sweep, &plan, known, &request.file).map_err(failure)?.known)
        }
    };
    Ok(PlannedJob { job: read.job, plan, known, warnings: printer.unsaid() })
}

/// The refusal of a file of several documents where a single job belongs.
fn no_pipeline(file: &str) -> ApiError {
    let message = format!("`{file}` has several documents, and is no single job");
    ApiError::new(422, message).hint("send it to `/v1/pipelines`").exit_code(exit::USAGE)
}
