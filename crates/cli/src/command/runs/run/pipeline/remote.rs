//! Pipelines of a server, with the same output as those of a home.

use std::time::Duration;

use domain::{PipelineId, RunId};
use serde_json::Value;

use super::output::{self, PipelineFacts, list, print_already_ended};
use crate::error::{Error, exit};
use crate::printer::Printer;
use crate::remote::Server;

/// Interval at which a pipeline of a server is looked at.
const LOOK: Duration = Duration::from_secs(1);

/// Prints each task after the first `known` as it starts, until the pipeline has ended and its newest run is billed. Ctrl-C
/// leaves the pipeline alone.
///
/// # Errors
/// [`Error::Code`] if it failed, or if the server cannot be reached for longer than two minutes.
pub fn finish(server: &Server, id: &PipelineId, known: usize, printer: &mut Printer) -> Result<u8, Error> {
    let mut started = known;
    loop {
        let shown = server.retry(|server| server.pipeline(id))?;
        let runs = list(&shown["runs"]);
        for run in runs.iter().skip(started) {
            printer.say(format!("run {run}: started; `gradus attach {run}` follows it"));
        }
        started = started.max(runs.len());
        if has_ended(&shown) && server.retry(|server| is_billed(server, runs.last().copied()))? {
            return output::end(&shown, printer);
        }
        std::thread::sleep(LOOK);
    }
}

/// Stops a pipeline with the task that runs, and follows it to its end.
///
/// # Errors
/// As [`finish`].
pub fn stop(server: &Server, id: &PipelineId, printer: &mut Printer) -> Result<u8, Error> {
    let shown = server.pipeline(id)?;
    if has_ended(&shown) {
        return Ok(print_already_ended(&shown, "", printer));
    }
    server.post(&format!("/v1/pipelines/{id}/stop"), None, None)?;
    match finish(server, id, list(&shown["runs"]).len(), printer)? {
        exit::RUN_STOPPED => Ok(exit::DONE),
        code => Ok(code),
    }
}

/// Waits for the end of a pipeline.
///
/// # Errors
/// As [`finish`].
pub fn wait(server: &Server, id: &PipelineId, printer: &mut Printer) -> Result<u8, Error> {
    loop {
        let shown = server.retry(|server| server.pipeline(id))?;
        if has_ended(&shown) {
            return output::end(&shown, printer);
        }
        std::thread::sleep(LOOK);
    }
}

/// The facts about a pipeline, whose tasks the server runs.
///
/// # Errors
/// [`Error::Code`] if the server cannot be reached.
pub fn facts(server: &Server, id: &PipelineId) -> Result<PipelineFacts, Error> {
    let shown = server.pipeline(id)?;
    let mut runs = Vec::new();
    for run in list(&shown["runs"]) {
        let known = server.run(&RunId::new(run), 0)?;
        runs.push((known.run()?.state.word().to_owned(), known.cost));
    }
    Ok(PipelineFacts { shown, runs, is_attended: true })
}

fn has_ended(shown: &Value) -> bool {
    shown["state"]["state"] == "ended"
}

/// Whether the newest run has its bill, and its machines are released.
fn is_billed(server: &Server, run: Option<&str>) -> Result<bool, Error> {
    let Some(run) = run else { return Ok(true) };
    Ok(server.get(&format!("/v1/runs/{run}/cost"))?["final"] == true)
}
