//! The event log is a stable format: every history that an older version wrote is read by this one.
//!
//! `histories/first.jsonl` is the log of two runs: one whose agent was killed, and which was stopped and resumed; one
//! whose program failed twice. `histories/sweep.jsonl` is that of a sweep of two trials, one of which was resumed;
//! `histories/schedule.jsonl` that of a schedule with two runs, and `histories/schedule-of-pipelines.jsonl` that of one with two
//! pipelines. Those
//! in `histories/simulated` were written by the simulation (`cargo xtask sim --log SEED`, seeds 203, 172, 18, 32, 215,
//! 169 and 182) and hold what the others lack: jobs on several machines, by one request or several, notices, races, machines
//! that were rented twice, budgets, a machine that three trials have had one after the other. Histories are added, never changed.

use domain::run::RunState;
use domain::{Record, RunId};
use plan::{NamedWork, World};

const FIRST: &str = include_str!("histories/first.jsonl");
const SWEEP: &str = include_str!("histories/sweep.jsonl");
const SCHEDULE: &str = include_str!("histories/schedule.jsonl");
const PIPELINES: &str = include_str!("histories/schedule-of-pipelines.jsonl");

fn records(text: &str) -> Vec<Record> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

#[test]
fn the_first_history_is_read_replayed_and_written_alike() {
    let records = records(FIRST);
    let world = World::replay(&records).unwrap();
    let word = |run: &RunId| world.runs[run].state.word();
    let words: Vec<&str> = world.runs.keys().map(word).collect();
    assert_eq!(words, ["trained", "failed"]);
    let old = world.runs.values().next().unwrap();
    assert!(matches!(old.state, RunState::Done { .. }));
    assert_eq!((old.attempts.len(), old.instances.len()), (ATTEMPTS, INSTANCES));
    assert_eq!(plan::bill(&world, old), old.bill, "the bill is what the usage comes to");
    are_written_alike(&records, FIRST);
}

fn are_written_alike(records: &[Record], text: &str) {
    for (record, line) in records.iter().zip(text.lines()) {
        let written = serde_json::to_value(record).unwrap();
        assert_eq!(written, serde_json::from_str::<serde_json::Value>(line).unwrap());
    }
}

#[test]
fn the_first_sweep_is_read_replayed_and_written_alike() {
    let records = records(SWEEP);
    let world = World::replay(&records).unwrap();
    let sweep = world.sweeps.values().next().unwrap();
    assert_eq!((sweep.state.word(), sweep.trials.len()), ("done", 2));
    let rows = plan::sweep::rows(&world, sweep, &Default::default());
    let said: Vec<_> = rows.iter().map(|row| (row.number, row.epochs, row.value.unwrap() > 0.8)).collect();
    assert_eq!(said, [(2, Some(2), true), (1, Some(1), true)]);
    assert_eq!(sweep.total, Some(rows.iter().map(|row| row.cost).sum()), "the bill is the sum");
    for row in &rows {
        assert_eq!(plan::sweep::values(&sweep.search, row.number), row.values, "a draw is a promise");
    }
    are_written_alike(&records, SWEEP);
}

#[test]
fn the_first_schedule_is_read_replayed_and_written_alike() {
    let records = records(SCHEDULE);
    let world = World::replay(&records).unwrap();
    let (id, schedule) = world.schedules.iter().next().unwrap();
    let runs: Vec<&str> = schedule.runs.iter().map(RunId::as_str).collect();
    assert_eq!(runs, ["nightly-0193f2a1c0-20241005t0200", "nightly-0193f2a1c0-20241008t0200"]);
    assert_eq!(schedule.runs.last(), schedule.last_due.map(|due| id.run(due)).as_ref(), "a name is a promise");
    assert_eq!((schedule.fired, schedule.skipped, schedule.paused), (2, 2, None));
    are_written_alike(&records, SCHEDULE);
}

#[test]
fn the_first_schedule_of_pipelines_is_read_replayed_and_written_alike() {
    let records = records(PIPELINES);
    let world = World::replay(&records).unwrap();
    let (_, schedule) = world.schedules.iter().next().unwrap();
    let pipelines: Vec<(&str, &str, bool)> =
        world.pipelines.iter().map(|(id, known)| (id.as_str(), known.state.word(), known.ended.is_some())).collect();
    assert_eq!(
        pipelines,
        [("nightly-0193f2a1c0-20241005t0200", "done", true), ("nightly-0193f2a1c0-20241006t0200", "running", false)]
    );
    let names: Vec<NamedWork> = schedule.runs.iter().map(|name| schedule.named(name)).collect();
    assert_eq!(names, world.pipelines.keys().cloned().map(NamedWork::Pipeline).collect::<Vec<_>>());
    let all: Vec<_> = world.pipelines.values().collect();
    let [first, second] = &all[..] else { panic!("{} pipelines", all.len()) };
    assert_eq!((&second.last_runs, first.last_runs.len()), (&first.runs, 0), "each task starts with the one before");
    are_written_alike(&records, PIPELINES);
}

const ATTEMPTS: usize = 3;
const INSTANCES: usize = 3;

/// Each with the bills of its runs. The loop of `race` died and never came back.
const SIMULATED: [(&str, &str, &[&str]); 7] = [
    ("budget", include_str!("histories/simulated/budget.jsonl"), &["$0.113806"]),
    ("gang", include_str!("histories/simulated/gang.jsonl"), &["$0.16461"]),
    ("race", include_str!("histories/simulated/race.jsonl"), &[]),
    ("reclaim", include_str!("histories/simulated/reclaim.jsonl"), &["$0.151735"]),
    ("double", include_str!("histories/simulated/double.jsonl"), &["$0.272105", "$0.332083"]),
    ("resize", include_str!("histories/simulated/resize.jsonl"), &["$1.234578"]),
    (
        "taken",
        include_str!("histories/simulated/taken.jsonl"),
        &["$0.0665", "$0.093183", "$0.047542", "$0.052199", "$0.068903"],
    ),
];

#[test]
fn every_simulated_history_is_read_replayed_and_written_alike() {
    let mut kinds = std::collections::BTreeSet::new();
    for (name, text, expected) in SIMULATED {
        let records = records(text);
        let world = World::replay(&records).unwrap_or_else(|illegal| panic!("{name}: {illegal}"));
        let bills = world.runs.values().filter_map(|run| run.bill.as_ref());
        assert_eq!(bills.map(|bill| bill.total.to_string()).collect::<Vec<_>>(), expected, "{name}");
        for run in world.runs.values() {
            assert_eq!(plan::bill(&world, run), run.bill, "{name}: the bill is what the usage comes to");
        }
        are_written_alike(&records, text);
        let kind = |record: &Record| serde_json::to_value(&record.event).unwrap()["event"].as_str().unwrap().to_owned();
        kinds.extend(records.iter().map(kind));
    }
    for kind in [
        "member_prepared",
        "member_ended",
        "attempt_resizing",
        "reclaim_noticed",
        "double_ended",
        "keeper_changed",
        "machine_taken",
    ] {
        assert!(kinds.contains(kind), "no history has `{kind}`");
    }
    assert_eq!(kinds.len(), 24, "{kinds:?}");
}
