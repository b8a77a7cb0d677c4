//! Resuming a pipeline: where it has ended, its newest run is resumed first; one that runs is followed.

use domain::pipeline::PipelineEnd;
use domain::{Event, PipelineId, RunId};
use plan::{PipelineResumption, PipelineState};
use server::api::pipeline_view;
use server::{Home, State};

use super::{follow, output, remote};
use crate::command::runs::resume::args::{Args, is_allowed, request};
use crate::command::runs::resume::preflight::require_resumable;
use crate::error::Error;
use crate::follow::left_behind::take_over;
use crate::follow::watch::Since;
use crate::local::spending::{self, SpendingRequest};
use crate::printer::Printer;
use crate::remote::Server;
use crate::settings::GlobalSettings;

/// Whether to resume a pipeline, rather than follow one that needs no resuming; an error if neither is possible as requested.
fn allowed(state: &PipelineState, args: &Args, id: &PipelineId) -> Result<bool, Error> {
    let (message, hint) = match state {
        PipelineState::Ended { how: PipelineEnd::Stopped { .. } | PipelineEnd::Failed { .. } } => return Ok(true),
        PipelineState::Stopping => {
            let message = format!("pipeline `{id}` was told to stop, and has not ended yet");
            (message, format!("wait for its end with `gradus stop {id}`, then resume it"))
        }
        PipelineState::Running | PipelineState::Ended { how: PipelineEnd::Done } if !args.changes_something() => {
            return Ok(false);
        }
        PipelineState::Running => {
            let message =
                format!("pipeline `{id}` is still running, so the limits and keys of its runs cannot be changed");
            (message, format!("stop it first with `gradus stop {id}`"))
        }
        PipelineState::Ended { how: PipelineEnd::Done } => {
            let message = format!("pipeline `{id}` has ended with its results, so there is nothing to resume");
            (message, "submit the file again with `gradus run FILE`".to_owned())
        }
    };
    Err(Error::Usage { message, hint })
}

/// Added to what is said of a pipeline that has its results.
const NOTHING_DONE: &str = ", and nothing was done; `gradus run FILE` runs its tasks again";

/// Resumes a pipeline of a server, and follows it.
///
/// # Errors
/// [`Error::Usage`] where it cannot be resumed as requested; others as [`remote::finish`].
pub fn of_server(args: &Args, server: &Server, printer: &mut Printer, id: &PipelineId) -> Result<u8, Error> {
    let shown = server.pipeline(id)?;
    let state: PipelineState = server.typed(shown["state"].clone())?;
    if allowed(&state, args, id)? {
        request(server, &format!("/v1/pipelines/{id}/resume"), &args.body())?;
    } else if matches!(state, PipelineState::Ended { .. }) {
        return Ok(output::print_already_ended(&shown, NOTHING_DONE, printer));
    }
    remote::finish(server, id, output::list(&shown["runs"]).len(), printer)
}

/// Resumes a pipeline, beginning with the run of its newest task where that has not succeeded, and follows it.
///
/// # Errors
/// [`Error::Usage`] where it cannot be resumed as requested; others as [`follow::finish`].
pub fn resume(
    mut state: State,
    args: &Args,
    settings: &GlobalSettings,
    printer: &mut Printer,
    home: &Home,
    id: &PipelineId,
) -> Result<u8, Error> {
    let (mut since, record) = (state.world().last_seq, follow::known(&state, id)?);
    let newest = follow::newest_run(&mut state, &record)?;
    if !allowed(&record.state, args, id)? {
        if matches!(record.state, PipelineState::Ended { .. }) {
            return Ok(output::print_already_ended(&pipeline_view(id, &record), NOTHING_DONE, printer));
        }
        drop(state);
        // A run that no process ran may turn out to have failed meanwhile.
        let left_behind = record.runs.last().filter(|_| !home.has_server());
        if let Some(run) = left_behind
            && let Since::Event(seq) = take_over(settings, printer, home, run, Since::Event(since))?
        {
            since = seq;
        }
        return follow::finish(settings, printer, home, id, since);
    }
    let resumed = Event::PipelineResumeRequested { pipeline: id.clone() };
    match record.resumption(newest.as_ref().map(|run| &run.state)) {
        PipelineResumption::Run(run) => resume_task(&mut state, args, printer, home, (id, &run), resumed)?,
        PipelineResumption::Next if args.changes_something() => {
            let message = format!("no run of pipeline `{id}` is to be resumed, so there is nothing to change");
            let hint = format!("resume it without options: `gradus resume {id}`");
            return Err(Error::Usage { message, hint });
        }
        // Others are followed, as above.
        PipelineResumption::Next => follow::append(&mut state, vec![resumed])?,
        PipelineResumption::Running | PipelineResumption::Stopping | PipelineResumption::Complete => {}
    }
    drop(state);
    follow::finish(settings, printer, home, id, since)
}

/// Resumes the run of a task, and `resumed` its pipeline with it.
fn resume_task(
    state: &mut State,
    args: &Args,
    printer: &mut Printer,
    home: &Home,
    (id, run): (&PipelineId, &RunId),
    resumed: Event,
) -> Result<(), Error> {
    let resume = args.event(state.world(), run)?;
    let resumption = plan::resume::run(state.world(), server::clock::now(), run, &resume);
    if !is_allowed(resumption.map_err(server::Error::from)?, args, "pipeline", id.as_str())? {
        return follow::append(state, vec![resumed]);
    }
    require_resumable(home, state.world(), run)?;
    let asked = state.world().runs.get(run).map(|known| SpendingRequest::resumed(run, known, args.budget));
    let admitted = asked.map(|asked| spending::admit(&asked, home)).transpose()?.unwrap_or_default();
    admitted.notes.iter().for_each(|note| printer.say(note));
    home.unmark_reported(&home.run(run));
    let appended = follow::append(state, vec![resume, resumed]);
    drop(admitted);
    appended
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use domain::run::StopBy;

    use super::*;

    #[derive(Debug, Parser)]
    struct Typed {
        #[command(flatten)]
        args: Args,
    }

    #[test]
    fn what_runs_or_has_its_results_is_only_followed_and_never_changed() {
        let check = |state: PipelineState, options: &[&str], expected: Result<bool, &str>| {
            let typed = Typed::parse_from([&["resume", "night-1"][..], options].concat());
            let said = allowed(&state, &typed.args, &PipelineId::new("night-1"));
            match (said, expected) {
                (Ok(said), Ok(expected)) => assert_eq!(said, expected, "{state:?} {options:?}"),
                (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{error}"),
                (said, expected) => panic!("{state:?} {options:?}: {said:?} and not {expected:?}"),
            }
        };
        let ended = |how: PipelineEnd| PipelineState::Ended { how };
        let stopped = || ended(PipelineEnd::Stopped { by: StopBy::User });
        let budget = &["--budget", "$5"][..];
        check(stopped(), &[], Ok(true));
        check(stopped(), budget, Ok(true));
        check(ended(PipelineEnd::Failed { task: "fit".to_owned(), message: "code 1".to_owned() }), &[], Ok(true));
        check(PipelineState::Running, &[], Ok(false));
        check(PipelineState::Running, budget, Err("is still running"));
        check(ended(PipelineEnd::Done), &[], Ok(false));
        check(ended(PipelineEnd::Done), budget, Err("has ended with its results"));
        check(PipelineState::Stopping, &[], Err("was told to stop"));
    }
}
