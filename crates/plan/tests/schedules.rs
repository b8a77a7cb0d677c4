//! Schedules: each due time is settled once, by a run or by a reason why it has none.

use domain::event::{PipelineSubmitted, ScheduleAdded};
use domain::pipeline::PipelineEnd;
use domain::run::StopBy;
use domain::schedule::{JobSchedule, ScheduleChange, ScheduledWork, SkipReason};
use domain::{Event, PipelineId, Record, RunId, ScheduleId, SweepId, Timestamp};
use plan::{LastDueRun, NamedWork, ScheduleDecision, SweepRecord, SweepState, World};

const HOUR: i64 = 3_600_000_000;

/// Due at 3:00 UTC of each day; day 0 is 1970-01-01.
fn due(day: i64) -> Timestamp {
    Timestamp((24 * day + 3) * HOUR)
}

fn id() -> ScheduleId {
    ScheduleId::new("nightly-1")
}

/// A schedule that was added at noon of day 0, and some events of it.
fn world(keys: &str, events: Vec<Event>) -> World {
    world_of(ScheduledWork::Run, keys, events)
}

/// The same of a schedule that submits something else.
fn world_of(work: ScheduledWork, keys: &str, events: Vec<Event>) -> World {
    let times: JobSchedule = serde_json::from_str(&format!("{{\"cron\": \"0 3 * * *\"{keys}}}")).unwrap();
    let (request, file) = ("sealed".to_owned(), "job.yaml".to_owned());
    let added =
        Event::ScheduleAdded(Box::new(ScheduleAdded { schedule: id(), times, work, request, file, user: None }));
    let mut world = World::default();
    for (event, seq) in std::iter::once(added).chain(events).zip(1..) {
        let at = if seq == 1 { Timestamp(12 * HOUR) } else { Timestamp(100 * 24 * HOUR) };
        world.apply(&Record { seq, at, event }).unwrap();
    }
    world
}

fn decide(world: &World, last: Option<&LastDueRun>, now: Timestamp) -> ScheduleDecision {
    let record = &world.schedules[&id()];
    record.decide(&record.times.times().unwrap(), last, now)
}

fn run_of(day: i64, ended: Option<Timestamp>) -> LastDueRun {
    LastDueRun { run: id().run(due(day)), submitted: due(day), ended, is_stopping: false }
}

fn fired(day: i64) -> Event {
    Event::ScheduleFired { schedule: id(), due: due(day), run: id().run(due(day)) }
}

fn later(at: Timestamp, hours: i64) -> Timestamp {
    Timestamp(at.0 + hours * HOUR)
}

#[test]
fn a_due_time_is_submitted_once() {
    let before = world("", vec![]);
    assert_eq!(decide(&before, None, later(due(1), -1)), ScheduleDecision::Wait { until: Some(due(1)) });
    assert_eq!(decide(&before, None, due(1)), ScheduleDecision::Submit { due: due(1) });
    let mut after = world("", vec![fired(1)]);
    let ended = run_of(1, Some(later(due(1), 1)));
    assert_eq!(decide(&after, Some(&ended), later(due(1), 2)), ScheduleDecision::Wait { until: Some(due(2)) });
    let again = Record { seq: after.last_seq + 1, at: due(1), event: fired(1) };
    assert!(after.apply(&again).unwrap_err().why.contains("settled"));
    assert_eq!(id().run(due(1)), RunId::new("nightly-1-19700102t0300"));
    assert_eq!(after.schedules[&id()].runs, [id().run(due(1))]);
}

#[test]
fn what_was_missed_is_made_up_for_by_policy() {
    let now = later(due(4), 2);
    let skip = |due, count| ScheduleDecision::Skip { due, count, why: SkipReason::Missed };
    assert_eq!(decide(&world("", vec![]), None, now), skip(due(3), 3), "the latest is left");
    assert_eq!(decide(&world(", \"catch_up\": \"none\"", vec![]), None, now), skip(due(4), 4));
    assert_eq!(decide(&world(", \"catch_up\": \"all\"", vec![]), None, now), ScheduleDecision::Submit { due: due(1) });
    let skipped = Event::ScheduleSkipped { schedule: id(), due: due(3), count: 3, why: SkipReason::Missed };
    let rest = world("", vec![skipped]);
    assert_eq!(decide(&rest, None, now), ScheduleDecision::Submit { due: due(4) });
    assert_eq!(rest.schedules[&id()].skipped, 3);
    // A server that was away for minutes has missed nothing.
    let on_time = Timestamp(due(1).0 + 60_000_000);
    assert_eq!(
        decide(&world(", \"catch_up\": \"none\"", vec![]), None, on_time),
        ScheduleDecision::Submit { due: due(1) }
    );
}

#[test]
fn a_run_that_has_not_ended_is_treated_by_policy() {
    let (open, now) = (run_of(1, None), later(due(2), 1));
    let skip = ScheduleDecision::Skip { due: due(2), count: 1, why: SkipReason::Overlap };
    assert_eq!(decide(&world("", vec![fired(1)]), Some(&open), now), skip);
    let queue = world(", \"overlap\": \"queue\", \"catch_up\": \"none\"", vec![fired(1)]);
    assert_eq!(decide(&queue, Some(&open), now), ScheduleDecision::WaitFor { run: open.run.clone() });
    let ended = run_of(1, Some(later(due(2), 5)));
    assert_eq!(decide(&queue, Some(&ended), later(due(2), 5)), ScheduleDecision::Submit { due: due(2) });
    let replace = world(", \"overlap\": \"replace\"", vec![fired(1)]);
    assert_eq!(decide(&replace, Some(&open), now), ScheduleDecision::Stop { run: open.run.clone() });
    let stopping = LastDueRun { is_stopping: true, ..open.clone() };
    assert_eq!(decide(&replace, Some(&stopping), now), ScheduleDecision::WaitFor { run: open.run.clone() });
    // A backlog is worked off one by one.
    let all = world(", \"catch_up\": \"all\"", vec![fired(1)]);
    let open = LastDueRun { submitted: later(due(9), 0), ..run_of(1, None) };
    assert_eq!(decide(&all, Some(&open), later(due(9), 1)), ScheduleDecision::WaitFor { run: open.run.clone() });
}

#[test]
fn a_paused_schedule_waits_and_makes_up_for_nothing() {
    let change = |change| Event::ScheduleChanged { schedule: id(), change };
    let paused = world(", \"catch_up\": \"all\"", vec![change(ScheduleChange::Pause)]);
    assert_eq!(decide(&paused, None, due(200)), ScheduleDecision::Wait { until: None });
    // It is resumed at midnight of day 100.
    let resumed = world(
        ", \"catch_up\": \"all\"",
        vec![change(ScheduleChange::Pause), change(ScheduleChange::Resume), change(ScheduleChange::Resume)],
    );
    assert_eq!(decide(&resumed, None, due(100)), ScheduleDecision::Submit { due: due(100) });
    let removed = world("", vec![change(ScheduleChange::Remove)]);
    assert!(removed.schedules.is_empty());
    let text = serde_json::to_string(&resumed).unwrap();
    assert_eq!(serde_json::from_str::<World>(&text).unwrap().schedules, resumed.schedules);
}

#[test]
fn a_name_stands_for_what_the_schedule_submits() {
    let (run, name) = (id().run(due(1)), "nightly-1-19700102t0300");
    let named = |work: ScheduledWork| world_of(work, "", vec![fired(1)]).schedules[&id()].named(&run);
    assert_eq!(named(ScheduledWork::Run), NamedWork::Run(RunId::new(name)));
    assert_eq!(named(ScheduledWork::Sweep), NamedWork::Sweep(SweepId::new(name)));
    assert_eq!(named(ScheduledWork::Pipeline), NamedWork::Pipeline(PipelineId::new(name)));
    // Logs of every version before say nothing, and mean runs.
    let text = serde_json::to_string(&world("", vec![]).schedules[&id()]).unwrap();
    assert!(!text.contains("\"work\""), "{text}");
}

/// The pipeline of day 1 after some events, as the schedule sees it at this time.
fn pipeline_of_day_1(events: &[Event], now: Timestamp) -> LastDueRun {
    let name = id().run(due(1));
    let pipeline = PipelineId::new(name.as_str());
    let submitted = Event::PipelineSubmitted(Box::new(PipelineSubmitted {
        pipeline: pipeline.clone(),
        tasks: vec!["prep".to_owned(), "fit".to_owned()],
        budget: None,
        request: "sealed".to_owned(),
        file: "night.yaml".to_owned(),
        user: None,
        last_runs: Vec::new(),
    }));
    let mut world = World::default();
    for (event, seq) in std::iter::once(&submitted).chain(events).zip(1_u64..) {
        let at = later(due(1), i64::try_from(seq).unwrap() - 1);
        world.apply(&Record { seq, at, event: event.clone() }).unwrap();
    }
    LastDueRun::of_pipeline(&name, &world.pipelines[&pipeline], now)
}

#[test]
fn a_pipeline_that_has_not_ended_is_treated_by_policy() {
    let pipeline = PipelineId::new(id().run(due(1)).as_str());
    let now = later(due(2), 1);
    let open = pipeline_of_day_1(&[], now);
    assert_eq!((open.submitted, open.ended, open.is_stopping), (due(1), None, false));
    let replace = world_of(ScheduledWork::Pipeline, ", \"overlap\": \"replace\"", vec![fired(1)]);
    assert_eq!(decide(&replace, Some(&open), now), ScheduleDecision::Stop { run: id().run(due(1)) });
    let told = [Event::PipelineStopRequested { pipeline: pipeline.clone() }];
    let stopping = pipeline_of_day_1(&told, now);
    assert_eq!(decide(&replace, Some(&stopping), now), ScheduleDecision::WaitFor { run: id().run(due(1)) });
    let end = PipelineEnd::Stopped { by: StopBy::User };
    let mut events = vec![told[0].clone(), Event::PipelineEnded { pipeline: pipeline.clone(), end }];
    let ended = pipeline_of_day_1(&events, now);
    assert_eq!(ended.ended, Some(later(due(1), 2)));
    assert_eq!(decide(&replace, Some(&ended), now), ScheduleDecision::Submit { due: due(2) });
    // One that a user has resumed runs again.
    events.push(Event::PipelineResumeRequested { pipeline });
    let resumed = pipeline_of_day_1(&events, now);
    assert_eq!((resumed.ended, resumed.is_stopping), (None, false));
}

#[test]
fn a_sweep_is_open_until_it_has_ended() {
    let history = include_str!("../../server/tests/histories/sweep.jsonl");
    let records: Vec<Record> = history.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let world = World::replay(&records).unwrap();
    let (id, sweep) = world.sweeps.iter().next().unwrap();
    let last = |sweep: &SweepRecord| LastDueRun::of_sweep(&RunId::new(id.as_str()), sweep, due(9));
    let ended = last(sweep);
    assert!(ended.ended.is_some() && ended.ended == sweep.ended && !ended.is_stopping, "{ended:?}");
    assert_eq!((ended.run.as_str(), ended.submitted), (id.as_str(), sweep.submitted));
    let open = SweepRecord { state: SweepState::Running, ended: None, ..sweep.clone() };
    assert_eq!((last(&open).ended, last(&open).is_stopping), (None, false));
    let stopping = SweepRecord { state: SweepState::Stopping { by: StopBy::User }, ..open };
    assert_eq!((last(&stopping).ended, last(&stopping).is_stopping), (None, true));
}
