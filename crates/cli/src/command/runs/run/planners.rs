//! Plans what a server submits, for whoever asks or by itself, as `gradus run` plans it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use domain::file::{JobPipeline, PipelineTask};
use domain::{Job, Problem, Rate, RunId};
use server::Home;
use server::api::{self, ApiError, PlannedJob, SubmitRequest};

use super::pipeline::{as_task, require_outputs};
use super::warm_start::{require_classes, warm_start};
use crate::error::{Error, exit};
use crate::local::facts::ClassCheck;
use crate::local::job_file::{JobOverrides, load_edited, require_secrets};
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

/// Plans runs and sweeps of schedules, with the times that their job file names and what the run before has written.
pub fn due_planner(settings: GlobalSettings, home: Home, price: Rate) -> Arc<api::DuePlanner> {
    Arc::new(move |request, start| {
        let due = SubmitRequest { job: start.due.placed(&request.job), ..request.clone() };
        let last = start.last.as_ref();
        let edit = |job: &mut Job| {
            let only_new = job.schedule.as_ref().is_some_and(|schedule| schedule.new_data);
            warm_start(job, last, only_new, &home)
        };
        let due_job = JobEdit { edit: &edit, classes: &|classes| require_classes(last, classes, &home) };
        let planned = plan_edited(&due, &due_job, &settings, &home, price).map_err(outside)?;
        machine::require_served(&home, &planned.plan.offer.provider).map_err(|error| refusal(409, error))?;
        Ok(planned)
    })
}

/// The failure of a network, a store or a disk as one of the server, which is tried again.
fn outside(failure: ApiError) -> ApiError {
    let is_outside = failure.exit_code == Some(exit::WORLD) && failure.status < 500;
    if is_outside { ApiError { status: 502, ..failure } } else { failure }
}

/// Plans tasks of pipelines, each with the outputs of those before it, and for a schedule with what the same task has written
/// before.
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
        let (last, only_new) =
            (start.last.as_ref(), pipeline.schedule.as_ref().is_some_and(|schedule| schedule.new_data));
        let edit = |job: &mut Job| {
            as_task(job, &task.name, folders.as_ref(), start.budget)?;
            warm_start(job, last, only_new, &home)
        };
        let task_job = JobEdit { edit: &edit, classes: &|classes| require_classes(last, classes, &home) };
        let asked = SubmitRequest { job: pipeline.text(start.place), ..request.clone() };
        let planned = plan_edited(&asked, &task_job, &settings, &home, price);
        let planned = planned.map_err(|refused| if start.is_due { outside(refused) } else { refused })?;
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

fn plan(request: &SubmitRequest, settings: &GlobalSettings, home: &Home, price: Rate) -> Result<PlannedJob, ApiError> {
    plan_edited(request, &JobEdit { edit: &|_| Ok(()), classes: &|_| Ok(()) }, settings, home, price)
}

/// What a schedule or pipeline does with the job of its file.
struct JobEdit<'a> {
    /// Changes it before its paths are resolved.
    edit: &'a dyn Fn(&mut Job) -> Result<(), Problem>,
    /// Refuses classes of its data.
    classes: ClassCheck<'a>,
}

/// Plans a job after it was edited.
fn plan_edited(
    request: &SubmitRequest,
    edited: &JobEdit<'_>,
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
        envs: request.envs.iter().map(pair).collect(),
        secrets: request.secrets.iter().map(pair).collect(),
        ..JobOverrides::default()
    };
    let mut printer = Printer::silent();
    let names = (request.file.as_str(), Path::new(&request.folder));
    // The server's own variables are private.
    let read =
        load_edited(request.job.clone(), names, &typed, &|_| None, edited.edit, &mut printer).map_err(failure)?;
    if let Some(unrentable) = read.unrentable {
        return Err(failure(Error::Job(unrentable)));
    }
    weights::require_files(&read.job, &read.source).map_err(failure)?;
    require_secrets(&read.job).map_err(failure)?;
    let plan = draft::draft_here(&read.job, price, settings, (home, edited.classes), &mut printer).map_err(failure)?;
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

/// A failure of the command line as one of the API.
pub fn refusal(status: u16, error: Error) -> ApiError {
    let (message, hint) = error.message_and_hint();
    let failure = ApiError::new(status, message).exit_code(error.code());
    match hint {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

#[cfg(test)]
mod tests {
    use domain::Problems;

    use super::*;

    #[test]
    fn the_hint_of_a_wrong_job_file_is_beside_the_message() {
        let problems = vec![Problem::at("trian", "unknown key").hint("write `train`")];
        let check = |error: Error, expected: &str| {
            let refused = refusal(422, error);
            assert_eq!((refused.message.as_str(), refused.hint.as_deref()), (expected, Some("write `train`")));
            assert_eq!((refused.status, refused.exit_code), (422, Some(exit::USAGE)));
        };
        check(Error::Unfit(problems.clone()), "`trian`: unknown key");
        check(Error::Job(Problems { file: "job.yaml".to_owned(), problems }), "job.yaml: `trian`: unknown key");
        let usage = Error::Usage { message: "no".to_owned(), hint: "write `train`".to_owned() };
        check(usage, "no");
    }
}
