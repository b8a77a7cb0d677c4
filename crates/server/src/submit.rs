//! How a job becomes a run.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;

pub use control::identity::{job_hash, sha256};
use domain::event::{PipelineSubmitted, ScheduleAdded, Submitted, SweepSubmitted};
use domain::file::JobPipeline;
use domain::schedule::{JobSchedule, ScheduledWork};
use domain::sweep::Known;
use domain::{Event, Job, PipelineId, Plan, RunId, ScheduleId, SweepId};
use node::durable;
use plan::RunOrSweep;
use serde::{Deserialize, Serialize};

use crate::api::SubmitRequest;
use crate::error::Error;
use crate::home::Home;
use crate::secrets::SecretKey;
use crate::state::State;

/// Writes a run into the log; when this returns, it will not be forgotten.
///
/// # Errors
/// As [`State::append`].
pub fn submit(state: &mut State, job: Job, plan: Plan, file: &str) -> Result<RunId, Error> {
    submit_as(state, job, plan, file, None)
}

/// Writes a run into the log, with who has asked for it.
///
/// # Errors
/// As [`State::append`].
pub fn submit_as(state: &mut State, job: Job, plan: Plan, file: &str, user: Option<String>) -> Result<RunId, Error> {
    let mut run = RunId::new(unique(&job.name));
    while state.recall(&RunOrSweep::Run(run.clone()))? {
        run = RunId::new(unique(&job.name));
    }
    let job_hash = job_hash(&job, &plan);
    let submitted = Submitted { run: run.clone(), job, plan, job_hash, file: file.to_owned(), trial: None, user };
    state.append(vec![Event::Submitted(Box::new(submitted))])?;
    Ok(run)
}

/// Writes a sweep into the log, with who has asked for it; its trials are submitted by the loop.
///
/// # Errors
/// As [`State::append`].
pub fn submit_sweep(
    state: &mut State,
    (job, plan, known): (Job, Plan, Known),
    file: &str,
    user: Option<String>,
) -> Result<SweepId, Error> {
    let sweep = SweepId::new(unique(&job.name));
    let job_hash = job_hash(&job, &plan);
    let submitted = SweepSubmitted { sweep: sweep.clone(), job, plan, known, job_hash, file: file.to_owned(), user };
    state.append(vec![Event::SweepSubmitted(Box::new(submitted))])?;
    Ok(sweep)
}

/// Writes a schedule into the log; a server submits its runs.
///
/// # Errors
/// As [`State::append`].
pub fn add_schedule(
    state: &mut State,
    (name, times, work): (&str, JobSchedule, ScheduledWork),
    request: &SubmitRequest,
    user: Option<String>,
) -> Result<ScheduleId, Error> {
    let schedule = ScheduleId::new(unique(name));
    let sealed = sealed_request(state.key(), request)?;
    let added = ScheduleAdded { schedule: schedule.clone(), times, work, request: sealed, file: request.path(), user };
    state.append(vec![Event::ScheduleAdded(Box::new(added))])?;
    Ok(schedule)
}

/// Writes a pipeline into the log; a server runs its tasks.
///
/// # Errors
/// As [`State::append`].
pub fn submit_pipeline(
    state: &mut State,
    pipeline: &JobPipeline,
    request: &SubmitRequest,
    user: Option<String>,
) -> Result<PipelineId, Error> {
    let id = PipelineId::new(unique(&pipeline.name));
    let event = pipeline_submitted((id.clone(), pipeline), request, state.key(), user, Vec::new())?;
    state.append(vec![event])?;
    Ok(id)
}

/// The submission of a pipeline, with the runs whose results its tasks start with, if any.
///
/// # Errors
/// As [`SecretKey::seal`].
pub(crate) fn pipeline_submitted(
    (id, pipeline): (PipelineId, &JobPipeline),
    request: &SubmitRequest,
    key: &SecretKey,
    user: Option<String>,
    last_runs: Vec<RunId>,
) -> Result<Event, Error> {
    Ok(Event::PipelineSubmitted(Box::new(PipelineSubmitted {
        pipeline: id,
        tasks: pipeline.tasks.iter().map(|task| task.name.clone()).collect(),
        budget: pipeline.budget,
        request: sealed_request(key, request)?,
        file: request.path(),
        user,
        last_runs,
    })))
}

/// What requests are sealed under.
const REQUEST: &str = "request";

/// The request of a schedule or pipeline as the log has it.
///
/// # Errors
/// As [`SecretKey::seal`].
pub(crate) fn sealed_request(key: &SecretKey, request: &SubmitRequest) -> Result<String, Error> {
    key.seal(REQUEST, &serde_json::json!(request).to_string())
}

/// A request that the log has; `None` if another key has sealed it.
pub fn request_of(key: &SecretKey, sealed: &str) -> Option<SubmitRequest> {
    serde_json::from_str(&key.unseal(REQUEST, sealed)?).ok()
}

/// The newest sweep of the same job file and job that has not ended, or whose end was not reported.
///
/// # Errors
/// As [`State::recall`].
pub fn unfinished_sweep(
    home: &Home,
    state: &mut State,
    job: &Job,
    plan: &Plan,
    file: &str,
) -> Result<Option<SweepId>, Error> {
    let hash = job_hash(job, plan);
    // Sweeps are few.
    state.recall_newest(100)?;
    let state = &*state;
    let same =
        |sweep: &plan::SweepRecord| sweep.job_hash == hash && sweep.file == file && is_same(state, &sweep.job, job);
    let open = |id: &SweepId, sweep: &plan::SweepRecord| !sweep.state.is_final() || !home.is_reported(&home.sweep(id));
    let sweeps = state.world().sweeps.iter().filter(|(id, sweep)| same(sweep) && open(id, sweep));
    Ok(sweeps.max_by_key(|(_, sweep)| sweep.order).map(|(id, _)| id.clone()))
}

/// The newest run of the same job file and job that has not ended, or whose end was not reported, because the process
/// that waited for it may have been killed just before.
///
/// # Errors
/// As [`State::recall`].
pub fn unfinished(home: &Home, state: &mut State, job: &Job, plan: &Plan, file: &str) -> Result<Option<RunId>, Error> {
    let hash = job_hash(job, plan);
    state.recall_of_job(&hash)?;
    let state = &*state;
    let same = |run: &plan::Run| {
        run.trial.is_none() && run.job_hash == hash && run.file == file && is_same(state, &run.job, job)
    };
    let open = |id: &RunId, run: &plan::Run| run.bill.is_none() || !home.is_reported(&home.run(id));
    let runs = state.world().runs.iter().filter(|(id, run)| same(run) && open(id, run));
    Ok(runs.max_by_key(|(_, run)| run.order).map(|(id, _)| id.clone()))
}

/// The newest run of this job file, if it was stopped or has failed: `gradus run` starts another one, and says so.
///
/// # Errors
/// As [`State::recall`].
pub fn left_behind(state: &mut State, file: &str) -> Result<Option<RunId>, Error> {
    state.recall_newest(100)?;
    let runs = state.world().runs.iter().filter(|(_, run)| run.trial.is_none() && run.file == file);
    let newest = runs.max_by_key(|(_, run)| run.order);
    Ok(newest.filter(|(_, run)| plan::resume::has_stopped(run)).map(|(id, _)| id.clone()))
}

/// Whether a job of the log, whose values are sealed, equals this one.
fn is_same(state: &State, sealed: &Job, job: &Job) -> bool {
    let mut open = sealed.clone();
    state.key().unseal_job(&mut open);
    open == *job
}

/// The name of a new run or sweep: derived from the key if there is one, else unique.
pub(crate) fn named(job: &str, key: Option<&str>) -> String {
    match key {
        Some(key) => format!("{job}-{}", &sha256(key.as_bytes())[..10]),
        None => unique(job),
    }
}

/// A submission with an `Idempotency-Key`: the run or sweep that it was given, and the SHA-256 of what it asked for. It is
/// stored before that is written into the log, so that the key means the same whenever the server was killed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyedSubmission {
    /// Name of the run or sweep.
    #[serde(rename = "run")]
    pub name: String,
    /// SHA-256 of what it asked for.
    pub request: String,
}

/// The submission that has this key, if one came before.
///
/// # Errors
/// [`Error::File`] when it cannot be read.
pub(crate) fn keyed(home: &Home, key: &str) -> Result<Option<KeyedSubmission>, Error> {
    let path = path_of_key(home, key);
    match fs::read(&path) {
        Ok(text) => serde_json::from_slice(&text).map(Some).map_err(|error| Error::file("read", &path)(error.into())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::file("read", &path)(error)),
    }
}

/// Gives a key to a submission, unless it belongs to one already: the one that has it from now on. Of two requests at the
/// same time one is first.
///
/// # Errors
/// [`Error::File`] when it cannot be written or read.
pub(crate) fn claim_key(home: &Home, key: &str, submission: KeyedSubmission) -> Result<KeyedSubmission, Error> {
    let path = path_of_key(home, key);
    let failed = || Error::file("write", &path);
    let text = serde_json::to_vec(&submission).map_err(|error| failed()(error.into()))?;
    fs::create_dir_all(home.root().join(KEYS)).map_err(failed())?;
    match durable::create(&path, &text).map_err(failed())? {
        true => Ok(submission),
        false => Ok(keyed(home, key)?.unwrap_or(submission)),
    }
}

/// The folder of submissions that have a key.
const KEYS: &str = "keys";

fn path_of_key(home: &Home, key: &str) -> PathBuf {
    home.root().join(KEYS).join(format!("{}.json", sha256(key.as_bytes())))
}

/// The job's name and the last digits of a time-ordered unique number.
fn unique(name: &str) -> String {
    let unique = uuid::Uuid::now_v7().simple().to_string();
    format!("{name}-{}{}", &unique[6..12], &unique[28..32])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_belongs_to_the_first_submission_that_claims_it() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        let submission =
            |run: &str, request: &str| KeyedSubmission { name: run.to_owned(), request: request.to_owned() };
        let (first, second) = (submission("a-1", "one"), submission("b-1", "another"));
        assert_eq!(keyed(&home, "k").unwrap(), None);
        assert_eq!(claim_key(&home, "k", first.clone()).unwrap(), first);
        assert_eq!(claim_key(&home, "k", second.clone()).unwrap(), first, "also with another job name");
        assert_eq!(claim_key(&home, "other", second.clone()).unwrap(), second);
        assert_eq!(keyed(&home, "k").unwrap(), Some(first));
        assert_eq!(fs::read_dir(home.root().join(KEYS)).unwrap().count(), 2, "no draft is left");
    }
}
