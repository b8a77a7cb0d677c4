//! Pipelines of this home, followed to their end. What is next of one is decided by [`PipelineRecord::decide`].
//!
//! A server of the home does it. While none runs, the command that follows the pipeline does, in the same way: the name of a
//! run follows from the place of its task, so neither submits one that the other has.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use domain::event::Submitted;
use domain::run::StopBy;
use domain::{Event, Money, PipelineId, RunId};
use plan::{PipelineDecision, PipelineRecord, PipelineState, Run, RunOrSweep, World};
use server::api::{ApiError, PaidRequest, PlannedJob, TaskStart, pipeline_view};
use server::{Home, State, submit};

use super::output::{self, PipelineFacts, print_already_ended};
use crate::command::runs::run::planners::{refusal, task_planner};
use crate::command::runs::serve::admission::admitter;
use crate::error::{Error, exit};
use crate::follow::attend::on_signals;
use crate::follow::liveness::{Liveness, meters};
use crate::follow::result;
use crate::follow::watch::Since;
use crate::local::machine;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// Interval at which the log is looked at.
const LOOK: Duration = Duration::from_millis(100);

/// A pipeline that is followed.
struct FollowedPipeline<'a> {
    id: &'a PipelineId,
    settings: &'a GlobalSettings,
    home: &'a Home,
    /// Only events after this one are printed.
    since: u64,
    /// Ctrl-C, which ends the command between two tasks as well.
    interrupted: Arc<AtomicBool>,
}

/// Follows a pipeline until it has ended and its newest run is billed, and prints its result. Only what happens after the event
/// `since` is printed.
///
/// # Errors
/// [`Error::Code`] if it failed, or was interrupted; others if the state cannot be read or written.
pub fn finish(
    settings: &GlobalSettings,
    printer: &mut Printer,
    home: &Home,
    id: &PipelineId,
    since: u64,
) -> Result<u8, Error> {
    let _attendance = home.watch(&home.pipeline(id))?;
    // From here on no default action ends the process, so that each task looks whether it may start.
    let interrupted: Arc<AtomicBool> = Arc::default();
    on_signals(channel().0, interrupted.clone())?;
    let followed = FollowedPipeline { id, settings, home, since, interrupted };
    let mut state = State::open_lean(home)?;
    let mut shown = BTreeSet::new();
    loop {
        state.refresh()?;
        let record = known(&state, id)?;
        if !followed.step(&mut state, &record, &mut shown, printer)? {
            return output::end(&pipeline_view(id, &record), printer);
        }
    }
}

impl FollowedPipeline<'_> {
    /// Does what is next, or waits for the server to do it; returns false once nothing is left. `shown` are the runs that were
    /// followed to their end.
    fn step(
        &self,
        state: &mut State,
        record: &PipelineRecord,
        shown: &mut BTreeSet<RunId>,
        printer: &mut Printer,
    ) -> Result<bool, Error> {
        let is_served = self.home.has_server();
        recall_runs(state, record)?;
        let newest = record.runs.last().and_then(|run| state.world().runs.get(run));
        let decision = record.decide(newest.map(|run| &run.state));
        let run = self.to_follow(state.world(), record, shown);
        if let PipelineDecision::Stop { run } = &decision
            && !is_served
        {
            append(state, vec![Event::StopRequested { run: run.clone(), by: StopBy::User }])?;
        }
        // Its machines are released as well before another task starts, or the pipeline ends.
        if let Some((place, is_new)) = run {
            self.refuse_interrupted()?;
            self.follow_run(record, place, is_new, printer)?;
            shown.extend(record.runs.get(place).cloned());
            return Ok(true);
        }
        if matches!(record.state, PipelineState::Ended { .. }) {
            return Ok(false);
        }
        self.refuse_interrupted()?;
        match decision {
            PipelineDecision::End { end } if !is_served => {
                append(state, vec![Event::PipelineEnded { pipeline: self.id.clone(), end }])?;
            }
            PipelineDecision::Submit { place } if !is_served => self.submit(state, record, place)?,
            PipelineDecision::End { .. } | PipelineDecision::Submit { .. } => std::thread::sleep(LOOK),
            PipelineDecision::Wait | PipelineDecision::Stop { .. } => std::thread::sleep(LOOK),
        }
        Ok(true)
    }

    /// The place of the run that is to be followed, and whether it is new: the first that is new and was not `shown`, even if it
    /// has ended meanwhile, as a short one does on a server; else the newest while it has no bill.
    fn to_follow(&self, world: &World, record: &PipelineRecord, shown: &BTreeSet<RunId>) -> Option<(usize, bool)> {
        let known = |place: usize| world.runs.get(record.runs.get(place)?);
        let is_new = |place: usize| known(place).is_some_and(|run| run.order > self.since);
        let places = 0..record.runs.len();
        let unseen = places.clone().find(|place| is_new(*place) && !shown.contains(&record.runs[*place]));
        let open = places.last().filter(|place| known(*place).is_some_and(|run| run.bill.is_none()));
        unseen.or(open).map(|place| (place, is_new(place)))
    }

    /// Follows the run of a task to its end, whatever that is.
    fn follow_run(
        &self,
        record: &PipelineRecord,
        place: usize,
        is_new: bool,
        printer: &mut Printer,
    ) -> Result<(), Error> {
        let Some(id) = record.runs.get(place) else { return Ok(()) };
        if is_new && !printer.is_json() {
            printer.say(format!("task     {} of {}: run {id}", place + 1, record.tasks.len()));
        }
        let since = if is_new { Since::Start } else { Since::Event(self.since) };
        match result::finish(self.settings, printer, self.home, id, since) {
            Ok(_) | Err(Error::Failed { .. }) => Ok(()),
            Err(error) if error.code() == exit::INTERRUPTED => Err(self.interruption(error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// Returns the error for Ctrl-C once it was pressed: what follows a task has a flag of its own, and would not see it.
    fn refuse_interrupted(&self) -> Result<(), Error> {
        if !self.interrupted.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(self.interruption(format!("interrupted before the next task of pipeline `{}` started", self.id)))
    }

    /// The error for Ctrl-C.
    fn interruption(&self, message: String) -> Error {
        let id = self.id;
        let hint = match self.home.has_server() {
            true => format!("see `gradus status {id}`, or stop the pipeline with `gradus stop {id}`"),
            false => format!("continue the pipeline with `gradus resume {id}`, or stop it with `gradus stop {id}`"),
        };
        Error::Code { message, hint: Some(hint), code: exit::INTERRUPTED }
    }

    /// Submits the run of a task as a server does, or ends the pipeline where that is refused.
    fn submit(&self, state: &mut State, record: &PipelineRecord, place: usize) -> Result<(), Error> {
        let run = self.id.task(place + 1);
        let advanced = Event::PipelineAdvanced { pipeline: self.id.clone(), run: run.clone() };
        // A server that was killed may have submitted it.
        if state.recall(&RunOrSweep::Run(run.clone()))? {
            return append(state, vec![advanced]);
        }
        let planned = self.planned(state, record, place);
        // Planning takes time, in which the command may be interrupted, or the pipeline told to stop.
        self.refuse_interrupted()?;
        state.refresh()?;
        if state.world().pipelines.get(self.id) != Some(record) {
            return Ok(());
        }
        let PlannedJob { job, plan, .. } = match planned {
            Ok(planned) => planned,
            Err(failure) => return self.refuse(state, record, place, failure),
        };
        let user = record.user.clone();
        // Held until the run is on disk, so that two of them do not spend the same money.
        let _admitted = match admitter(self.home.clone())(PaidRequest::Submit(&job, &plan, user.as_deref())) {
            Ok(admitted) => admitted,
            Err(failure) => return self.refuse(state, record, place, failure),
        };
        let (job_hash, file) = (submit::job_hash(&job, &plan), record.task_file(place));
        let submitted = Submitted { run, job, plan, job_hash, file, trial: None, user };
        append(state, vec![Event::Submitted(Box::new(submitted)), advanced])
    }

    /// Plans a task with what is left of the budget of all.
    fn planned(&self, state: &mut State, record: &PipelineRecord, place: usize) -> Result<PlannedJob, ApiError> {
        let cost = cost(self.home, state, record).map_err(|error| ApiError::new(500, error.to_string()))?;
        let budget = record
            .left(cost)
            .map_err(|message| ApiError::new(409, message).hint("raise `budget` in the first document of the file"))?;
        let request = submit::request_of(state.key(), &record.request);
        let request = request.ok_or_else(|| ApiError::new(409, "its job was sealed with the key of another home"))?;
        let (earlier, last) = (Some(record.runs.clone()), record.last_runs.get(place).cloned());
        let start = TaskStart { place, earlier, budget, last, is_due: false };
        // What the server had is the price of this machine, or later tasks would not count for the budget of all.
        let price = machine::served_price(self.home).map_err(|error| refusal(500, error))?;
        task_planner(self.settings.clone(), self.home.clone(), price)(&request, &start)
    }

    /// Ends the pipeline, because a task was refused. What may pass is an error instead, and the pipeline is left as it is.
    fn refuse(&self, state: &mut State, record: &PipelineRecord, place: usize, failure: ApiError) -> Result<(), Error> {
        if failure.status >= 500 {
            let code = failure.exit_code.unwrap_or(exit::WORLD);
            return Err(Error::Code { message: failure.message, hint: failure.hint, code });
        }
        let end = record.refused(place, &failure.message, failure.hint.as_deref());
        append(state, vec![Event::PipelineEnded { pipeline: self.id.clone(), end }])
    }
}

/// Stops a pipeline with the task that runs, and follows it to its end.
///
/// # Errors
/// As [`finish`].
pub fn stop(
    mut state: State,
    settings: &GlobalSettings,
    printer: &mut Printer,
    home: &Home,
    id: &PipelineId,
) -> Result<u8, Error> {
    let (since, record) = (state.world().last_seq, known(&state, id)?);
    match record.state {
        PipelineState::Ended { .. } => return Ok(print_already_ended(&pipeline_view(id, &record), "", printer)),
        PipelineState::Running => append(&mut state, vec![Event::PipelineStopRequested { pipeline: id.clone() }])?,
        PipelineState::Stopping => {}
    }
    drop(state);
    match finish(settings, printer, home, id, since)? {
        exit::RUN_STOPPED => Ok(exit::DONE),
        code => Ok(code),
    }
}

/// Waits until a pipeline has ended.
///
/// # Errors
/// [`Error::Code`] if it failed, or if no process runs its tasks, so that it would never end.
pub fn wait(mut state: State, printer: &mut Printer, home: &Home, id: &PipelineId) -> Result<u8, Error> {
    loop {
        state.refresh()?;
        let record = known(&state, id)?;
        if matches!(record.state, PipelineState::Ended { .. }) {
            return output::end(&pipeline_view(id, &record), printer);
        }
        if !home.is_watched(&home.pipeline(id)) {
            let message = format!("no process runs the tasks of pipeline `{id}`, so it does not end by itself");
            let hint = Some(format!("start `gradus serve`, or continue with `gradus resume {id}`"));
            return Err(Error::Code { message, hint, code: exit::NOT_FINISHED });
        }
        std::thread::sleep(LOOK);
    }
}

/// The facts about a pipeline.
///
/// # Errors
/// [`server::Error::NoRun`] if there is none of this name; others if the state cannot be read.
pub fn facts(state: &mut State, home: &Home, id: &PipelineId) -> Result<PipelineFacts, Error> {
    let record = known(state, id)?;
    recall_runs(state, &record)?;
    let world = state.world();
    let meters = meters(home, world);
    let runs = record.runs.iter().filter_map(|run| world.runs.get_key_value(run)).map(|(run, known)| {
        let word = Liveness::of(home, world, run, known).word(&known.state);
        (word.to_owned(), plan::spent(world, known, &meters))
    });
    let is_attended = matches!(record.state, PipelineState::Ended { .. }) || home.is_watched(&home.pipeline(id));
    Ok(PipelineFacts { shown: pipeline_view(id, &record), runs: runs.collect(), is_attended })
}

/// A pipeline of the log.
///
/// # Errors
/// [`server::Error::NoRun`] if there is none of this name.
pub fn known(state: &State, id: &PipelineId) -> Result<PipelineRecord, Error> {
    state.world().pipelines.get(id).cloned().ok_or_else(|| server::Error::NoRun(id.to_string()).into())
}

/// The newest run of a pipeline, which stays in memory.
///
/// # Errors
/// As [`State::recall`].
pub fn newest_run(state: &mut State, record: &PipelineRecord) -> Result<Option<Run>, Error> {
    let Some(run) = record.runs.last() else { return Ok(None) };
    state.recall(&RunOrSweep::Run(run.clone()))?;
    Ok(state.world().runs.get(run).cloned())
}

/// Appends events. Where they cannot follow any more, because another process was faster, none is, and the log is to be looked
/// at again.
///
/// # Errors
/// As [`State::append`].
pub fn append(state: &mut State, events: Vec<Event>) -> Result<(), Error> {
    let known = state.world().last_seq;
    match state.append(events) {
        Err(server::Error::Illegal(_)) if state.world().last_seq > known => Ok(()),
        appended => appended.map(|_| ()).map_err(Error::from),
    }
}

/// What the tasks so far have cost.
fn cost(home: &Home, state: &mut State, record: &PipelineRecord) -> Result<Money, Error> {
    recall_runs(state, record)?;
    let world = state.world();
    let meters = meters(home, world);
    let runs = record.runs.iter().filter_map(|run| world.runs.get(run));
    Ok(runs.map(|run| plan::spent(world, run, &meters)).sum())
}

fn recall_runs(state: &mut State, record: &PipelineRecord) -> Result<(), Error> {
    for run in &record.runs {
        state.recall(&RunOrSweep::Run(run.clone()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use domain::event::PipelineSubmitted;

    use super::*;

    #[test]
    fn ctrl_c_while_a_task_is_planned_leaves_the_pipeline_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        let settings = GlobalSettings::gather(Some(folder.path().to_owned()), None).unwrap();
        let (id, mut state) = (PipelineId::new("night-1"), State::open_lean(&home).unwrap());
        let submitted = PipelineSubmitted {
            pipeline: id.clone(),
            tasks: vec!["prep".to_owned()],
            budget: None,
            // What cannot be planned is refused, which would end the pipeline.
            request: String::new(),
            file: "night.yaml".to_owned(),
            user: None,
            last_runs: Vec::new(),
        };
        append(&mut state, vec![Event::PipelineSubmitted(Box::new(submitted))]).unwrap();
        let record = known(&state, &id).unwrap();
        let of = |interrupted: bool| FollowedPipeline {
            id: &id,
            settings: &settings,
            home: &home,
            since: 0,
            interrupted: Arc::new(AtomicBool::new(interrupted)),
        };
        let error = of(true).submit(&mut state, &record, 0).unwrap_err();
        assert_eq!(error.code(), exit::INTERRUPTED, "{error}");
        assert!(error.hint().unwrap().contains("`gradus resume night-1`"));
        assert_eq!(known(&state, &id).unwrap(), record);
        of(false).submit(&mut state, &record, 0).unwrap();
        assert!(matches!(known(&state, &id).unwrap().state, PipelineState::Ended { .. }));
    }
}
