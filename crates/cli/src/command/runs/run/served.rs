//! Pipelines that a server runs: submitted here, and perhaps followed.

use domain::file::JobPipeline;
use domain::{PipelineId, Plan, Rate};
use server::api::SubmitRequest;
use server::{Home, State, submit};

use super::{StartOptions, once, pipeline};
use crate::error::{Error, exit};
use crate::follow::result::confirm;
use crate::local::job_file::{JobArgs, due_now};
use crate::local::job_request::pipeline_request;
use crate::printer::Printer;
use crate::remote::{self, Server};
use crate::settings::GlobalSettings;

/// Refuses `--detach` of a pipeline that no server would run.
///
/// # Errors
/// [`Error::Usage`].
pub fn require_server(home: &Home, from: Option<&str>) -> Result<(), Error> {
    let usage = |message: &str, hint: &str| Err(Error::Usage { message: message.to_owned(), hint: hint.to_owned() });
    if from.is_some() {
        return usage("`--from` and `--detach` exclude each other", "remove `--detach`, or run it under `nohup`");
    }
    if !home.has_server() {
        let message = "`--detach` of a file of several documents (a pipeline) needs a server, which runs its tasks";
        return usage(message, "start `gradus serve`, remove `--detach`, or run it under `nohup`");
    }
    Ok(())
}

/// Leaves a pipeline to the server of this home.
///
/// # Errors
/// [`Error`].
pub fn detach(
    pipeline: &JobPipeline,
    job: &JobArgs,
    (settings, home): (&GlobalSettings, &Home),
    printer: &mut Printer,
) -> Result<u8, Error> {
    let body = pipeline_request(job, pipeline, &GlobalSettings::variable, printer)?;
    let sent = serde_json::from_value::<SubmitRequest>(body);
    let sent = sent.map_err(|error| Error::file("read the job file", &job.file)(error.into()))?;
    let sent = SubmitRequest { job: due_now(&sent.job), ..sent };
    let mut state = State::open_lean(home)?;
    let id = submit::submit_pipeline(&mut state, pipeline, &sent, settings.user.clone())?;
    Ok(detached(&id, printer))
}

/// Plans a pipeline on a server, confirms it, submits it, and follows it unless that is not asked for.
///
/// # Errors
/// [`Error`].
pub fn run(args: &JobArgs, options: &StartOptions, server: &Server, printer: &mut Printer) -> Result<u8, Error> {
    let Some(pipeline) = pipeline::read(&args.file)? else { return Ok(exit::DONE) };
    once::note_pipeline(&pipeline, &args.file, printer);
    let body = pipeline_request(args, &pipeline, &GlobalSettings::variable, printer)?;
    let planned = server.post("/v1/plans", Some(&body), None)?;
    let tasks = planned["tasks"].as_array().cloned().unwrap_or_default();
    let plans = tasks.into_iter().map(|mut task| server.typed(task["plan"].take()));
    let plans = plans.collect::<Result<Vec<Plan>, Error>>()?;
    if !printer.is_json() {
        pipeline::lines(&pipeline, 0, &plans).iter().for_each(|line| printer.say(line));
    }
    if let Some(plan) = plans.iter().find(|plan| plan.offer.rate != Rate::default()) {
        confirm(printer, plan, options.yes)?;
    }
    // A request whose answer was lost is repeated, and submits one pipeline.
    let key = remote::idempotency_key();
    let submit = || server.post("/v1/pipelines", Some(&body), Some(&key));
    let submitted = submit().or_else(|error| if error.code() == exit::WORLD { submit() } else { Err(error) })?;
    let id: PipelineId = server.typed(submitted["pipeline"].clone())?;
    match options.detach {
        true => Ok(detached(&id, printer)),
        false => pipeline::remote::finish(server, &id, 0, printer),
    }
}

/// Prints that a pipeline continues on its server, and how to follow it.
fn detached(id: &PipelineId, printer: &mut Printer) -> u8 {
    match printer.is_json() {
        true => printer.json(&serde_json::json!({ "event": "detached", "pipeline": id })),
        false => {
            printer.data(format!("pipeline {id}: continues in the background"));
            printer.data(format!("follow   gradus attach {}", id.task(1)));
            printer.data(format!("wait     gradus wait {id}"));
            printer.data(format!("stop     gradus stop {id}"));
        }
    }
    exit::DONE
}
