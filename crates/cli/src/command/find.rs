//! The run, sweep or pipeline that a name on the command line refers to.

use domain::{PipelineId, RunId, SweepId};
use plan::World;
pub use plan::{NamedWork, RunOrSweep};
use server::{Home, State};

use crate::error::Error;

/// The state of a home with unfinished work, and the candidates for a name.
pub fn open_named(home: &Home, name: &str) -> Result<State, Error> {
    let mut state = State::open_lean(home)?;
    state.recall_named(name)?;
    Ok(state)
}

/// Resolves a run, sweep or pipeline: its name, a unique prefix of it, or `last`. A prefix that a pipeline and the runs of
/// its tasks share is the pipeline, and so is `last` where one of them is the newest.
pub fn find_named(world: &World, name: &str) -> Result<NamedWork, Error> {
    refuse_empty(name)?;
    if name == "last" {
        return newest(world).ok_or_else(|| server::Error::NoRun(name.to_owned()).into());
    }
    let starting: Vec<&PipelineId> = world.pipelines.keys().filter(|id| id.as_str().starts_with(name)).collect();
    if let Some(exact) = starting.iter().find(|id| id.as_str() == name) {
        return Ok(NamedWork::Pipeline((*exact).clone()));
    }
    let is_exact = world.runs.contains_key(&RunId::new(name)) || world.sweeps.contains_key(&SweepId::new(name));
    let [pipeline, rest @ ..] = &starting[..] else { return find_any(world, name).map(NamedWork::from) };
    if is_exact {
        return find_any(world, name).map(NamedWork::from);
    }
    let is_other = |id: &RunId, run: &plan::Run| {
        run.trial.is_none() && id.as_str().starts_with(name) && world.pipeline_of(id).is_none()
    };
    let is_sweep = world.sweeps.keys().any(|id| id.as_str().starts_with(name));
    if !rest.is_empty() || is_sweep || world.runs.iter().any(|(id, run)| is_other(id, run)) {
        return Err(Error::ambiguous(name));
    }
    Ok(NamedWork::Pipeline((*pipeline).clone()))
}

/// What was submitted last: a pipeline in place of the runs of its tasks.
fn newest(world: &World) -> Option<NamedWork> {
    let sweeps = world.sweeps.iter().map(|(id, sweep)| (sweep.order, NamedWork::Sweep(id.clone())));
    let pipelines = world.pipelines.iter().map(|(id, known)| (known.order, NamedWork::Pipeline(id.clone())));
    let runs = world.runs.iter().filter(|(_, run)| run.trial.is_none()).map(|(id, run)| {
        let task_of = world.pipeline_of(id).map(|pipeline| NamedWork::Pipeline(pipeline.clone()));
        (run.order, task_of.unwrap_or_else(|| NamedWork::Run(id.clone())))
    });
    sweeps.chain(pipelines).chain(runs).max_by_key(|(order, _)| *order).map(|(_, work)| work)
}

/// Resolves a run or sweep: its name, a unique prefix of it, or `last`. A prefix that a sweep and its trials share is the
/// sweep. A pipeline is an error.
pub fn find_any(world: &World, name: &str) -> Result<RunOrSweep, Error> {
    refuse_empty(name)?;
    refuse_pipeline(world, name)?;
    let sweep =
        |(id, sweep): (&SweepId, &plan::SweepRecord)| (sweep.order, id.to_string(), RunOrSweep::Sweep(id.clone()));
    let alone = world.runs.iter().filter(|(_, run)| run.trial.is_none());
    let run = |(id, run): (&RunId, &plan::Run)| (run.order, id.to_string(), RunOrSweep::Run(id.clone()));
    let all: Vec<(u64, String, RunOrSweep)> = world.sweeps.iter().map(sweep).chain(alone.map(run)).collect();
    if name == "last" {
        let newest = all.into_iter().max_by_key(|(order, ..)| *order);
        return newest.map(|(.., one)| one).ok_or_else(|| server::Error::NoRun(name.to_owned()).into());
    }
    let starting: Vec<&(u64, String, RunOrSweep)> = all.iter().filter(|(_, id, _)| id.starts_with(name)).collect();
    match (starting.iter().find(|(_, id, _)| id == name), &starting[..]) {
        (Some((.., one)), _) | (None, [(.., one)]) => Ok(one.clone()),
        // The name may be that of a trial.
        (None, []) => find(world, name).map(RunOrSweep::Run),
        (None, _) => Err(Error::ambiguous(name)),
    }
}

/// Resolves a run: its name, a unique prefix of it, or `last`. A sweep or pipeline is an error.
pub fn find(world: &World, name: &str) -> Result<RunId, Error> {
    refuse_empty(name)?;
    refuse_pipeline(world, name)?;
    let sweep = SweepId::new(name);
    if let Some(trials) = world.sweeps.get(&sweep).map(|sweep| &sweep.trials) {
        let message = format!("`{name}` is a sweep; this command takes a single run");
        let trial = trials.first().map_or("a trial".to_owned(), |trial| format!("`{trial}`"));
        return Err(Error::Usage { message, hint: format!("give one of its trials, such as {trial}") });
    }
    if name == "last" {
        let newest = world.runs.iter().max_by_key(|(_, run)| run.order);
        return newest.map(|(id, _)| id.clone()).ok_or_else(|| server::Error::NoRun(name.to_owned()).into());
    }
    let id = RunId::new(name);
    if world.runs.contains_key(&id) {
        return Ok(id);
    }
    let mut starting = world.runs.keys().filter(|id| id.as_str().starts_with(name));
    match (starting.next(), starting.next()) {
        (Some(id), None) => Ok(id.clone()),
        (Some(_), Some(_)) => Err(Error::ambiguous(name)),
        (None, _) => Err(server::Error::NoRun(name.to_owned()).into()),
    }
}

/// Refuses the name of a pipeline, with which those of its runs begin.
fn refuse_pipeline(world: &World, name: &str) -> Result<(), Error> {
    match world.pipelines.get(&PipelineId::new(name)) {
        Some(pipeline) => Err(Error::pipeline(name, pipeline.runs.first().map(RunId::as_str))),
        None => Ok(()),
    }
}

/// Refuses the empty name, with which every run begins: most often a variable that is not set.
fn refuse_empty(name: &str) -> Result<(), Error> {
    if !name.is_empty() {
        return Ok(());
    }
    let hint = "give the name of a run, or `last`: `gradus status` lists them".to_owned();
    Err(Error::Usage { message: "the name of the run is empty".to_owned(), hint })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_empty_name_is_no_prefix() {
        let world = World::default();
        let errors =
            [find(&world, "").map(|_| ()), find_any(&world, "").map(|_| ()), find_named(&world, "").map(|_| ())];
        for error in errors.map(Result::unwrap_err) {
            assert_eq!(error.to_string(), "the name of the run is empty");
        }
    }

    #[test]
    fn a_name_that_two_sweeps_begin_with_is_not_the_only_trial_of_either() {
        let history = include_str!("../../../server/tests/histories/sweep.jsonl");
        let records: Vec<domain::Record> = history.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let mut world = World::replay(&records).unwrap();
        let (id, sweep) = world.sweeps.first_key_value().map(|(id, sweep)| (id.clone(), sweep.clone())).unwrap();
        let trial = sweep.trials[0].clone();
        world.runs.retain(|run, _| *run == trial);
        world.sweeps.insert(SweepId::new("search-other"), sweep);
        assert!(find_any(&world, "search-").unwrap_err().to_string().contains("ambiguous"));
        assert_eq!(find_any(&world, id.as_str()).unwrap(), RunOrSweep::Sweep(id));
        assert_eq!(find_any(&world, trial.as_str()).unwrap(), RunOrSweep::Run(trial));
    }

    /// The world of [`find_named`]'s tests: a sweep, and a pipeline with the run of its first task.
    fn with_pipelines() -> (World, RunId) {
        let history = include_str!("../../../server/tests/histories/sweep.jsonl");
        let records: Vec<domain::Record> = history.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let mut world = World::replay(&records).unwrap();
        let task = PipelineId::new("night-a1").task(1);
        let submitted = |pipeline: &str| domain::event::PipelineSubmitted {
            pipeline: PipelineId::new(pipeline),
            tasks: vec!["prep".to_owned(), "fit".to_owned()],
            budget: None,
            request: String::new(),
            file: "night.yaml".to_owned(),
            user: None,
            last_runs: Vec::new(),
        };
        let mut run = world.runs.values().next().unwrap().clone();
        (run.trial, run.order) = (None, world.last_seq + 3);
        for event in [
            domain::Event::PipelineSubmitted(Box::new(submitted("night-a1"))),
            domain::Event::PipelineAdvanced { pipeline: PipelineId::new("night-a1"), run: task.clone() },
        ] {
            let seq = world.last_seq + 1;
            world.apply(&domain::Record { seq, at: domain::Timestamp(0), event }).unwrap();
        }
        world.runs.insert(task.clone(), run);
        (world, task)
    }

    #[test]
    fn a_prefix_that_a_pipeline_shares_with_its_runs_is_the_pipeline() {
        let (mut world, task) = with_pipelines();
        let night = NamedWork::Pipeline(PipelineId::new("night-a1"));
        for name in ["night", "night-a1", "last"] {
            assert_eq!(find_named(&world, name).unwrap(), night, "{name}");
        }
        assert_eq!(find_named(&world, task.as_str()).unwrap(), NamedWork::Run(task.clone()));
        assert_eq!(find_named(&world, "night-a1-ta").unwrap(), NamedWork::Run(task.clone()), "no pipeline begins so");
        assert!(matches!(find_named(&world, "search").unwrap(), NamedWork::Sweep(_)));
        let unknown = find_named(&world, "nobody").unwrap_err();
        assert!(unknown.to_string().contains("no run, sweep or pipeline is called `nobody`"), "{unknown}");

        // Another run, and then another pipeline, may be meant as well.
        let (mut other, mut two) = (world.runs[&task].clone(), world.clone());
        other.order += 1;
        world.runs.insert(RunId::new("night-b2"), other);
        assert!(find_named(&world, "night").unwrap_err().to_string().contains("ambiguous"));
        assert_eq!(find_named(&world, "night-a").unwrap(), night);
        assert_eq!(find_named(&world, "last").unwrap(), NamedWork::Run(RunId::new("night-b2")));
        let pipeline = two.pipelines.values().next().unwrap().clone();
        two.pipelines.insert(PipelineId::new("night-c3"), pipeline);
        assert!(find_named(&two, "night").unwrap_err().to_string().contains("ambiguous"));
    }

    #[test]
    fn a_pipeline_is_no_single_run() {
        let (world, task) = with_pipelines();
        let refused = [find(&world, "night-a1").map(|_| ()), find_any(&world, "night-a1").map(|_| ())];
        for error in refused.map(Result::unwrap_err) {
            assert!(error.to_string().contains("`night-a1` is a pipeline"), "{error}");
            assert!(error.hint().unwrap().contains(task.as_str()), "{error}");
        }
        assert_eq!(find(&world, "night-a1-task1").unwrap(), task);
    }
}
