//! The run or sweep that a name on the command line refers to.

use domain::{RunId, SweepId};
pub use plan::RunOrSweep;
use plan::World;
use server::{Home, State};

use crate::error::Error;

/// The state of a home with unfinished work, and the candidates for a name.
pub fn open_named(home: &Home, name: &str) -> Result<State, Error> {
    let mut state = State::open_lean(home)?;
    state.recall_named(name)?;
    Ok(state)
}

/// Resolves a run or sweep: its name, a unique prefix of it, or `last`. A prefix that a sweep and its trials share is the
/// sweep.
pub fn find_any(world: &World, name: &str) -> Result<RunOrSweep, Error> {
    refuse_empty(name)?;
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

/// Resolves a run: its name, a unique prefix of it, or `last`. A sweep is an error.
pub fn find(world: &World, name: &str) -> Result<RunId, Error> {
    refuse_empty(name)?;
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
        for error in [find(&world, "").unwrap_err(), find_any(&world, "").unwrap_err()] {
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
}
