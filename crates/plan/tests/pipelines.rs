//! Pipelines that a server runs: a task starts once the one before has succeeded, and each has one run.

use domain::event::PipelineSubmitted;
use domain::pipeline::PipelineEnd;
use domain::run::{Outcome, RunState, StopBy};
use domain::{Cause, Event, Finding, Job, Money, PipelineId, Record, RunId, Timestamp};
use plan::{PipelineDecision, PipelineResumption, PipelineState, World};

fn id() -> PipelineId {
    PipelineId::new("night-1")
}

/// A pipeline of two tasks after some events.
fn world(events: &[Event]) -> World {
    let submitted = Event::PipelineSubmitted(Box::new(PipelineSubmitted {
        pipeline: id(),
        tasks: vec!["prep".to_owned(), "fit".to_owned()],
        budget: None,
        request: "sealed".to_owned(),
        file: "night.yaml".to_owned(),
        user: None,
        last_runs: Vec::new(),
    }));
    let mut world = World::default();
    for (event, seq) in std::iter::once(&submitted).chain(events).zip(1..) {
        world.apply(&Record { seq, at: Timestamp(0), event: event.clone() }).unwrap();
    }
    world
}

fn decide(world: &World, last: Option<RunState>) -> PipelineDecision {
    world.pipelines[&id()].decide(last.as_ref())
}

fn advanced(number: usize) -> Event {
    Event::PipelineAdvanced { pipeline: id(), run: id().task(number) }
}

fn done(outcome: Outcome) -> Option<RunState> {
    Some(RunState::Done { outcome })
}

#[test]
fn a_task_starts_once_the_one_before_has_succeeded() {
    assert_eq!(decide(&world(&[]), None), PipelineDecision::Submit { place: 0 });
    let first = world(&[advanced(1)]);
    assert_eq!(decide(&first, Some(RunState::Queued)), PipelineDecision::Wait);
    assert_eq!(decide(&first, done(Outcome::Succeeded)), PipelineDecision::Submit { place: 1 });
    let both = world(&[advanced(1), advanced(2)]);
    assert_eq!(decide(&both, done(Outcome::Succeeded)), PipelineDecision::End { end: PipelineEnd::Done });
    let ended = world(&[Event::PipelineEnded { pipeline: id(), end: PipelineEnd::Done }]);
    assert_eq!(decide(&ended, None), PipelineDecision::Wait);
    assert_eq!(ended.pipelines[&id()].state.word(), "done");
    assert_eq!(ended.pipelines[&id()].ended, Some(Timestamp(0)));
}

#[test]
fn a_task_that_fails_or_is_stopped_ends_the_pipeline() {
    let first = world(&[advanced(1)]);
    let failed = done(Outcome::Failed { finding: Finding::new(Cause::ExitCode, "code 1") });
    let end = PipelineEnd::Failed { task: "prep".to_owned(), message: "code 1".to_owned() };
    assert_eq!(decide(&first, failed), PipelineDecision::End { end });
    let end = PipelineEnd::Stopped { by: StopBy::Budget };
    assert_eq!(decide(&first, Some(RunState::Stopped { by: StopBy::Budget })), PipelineDecision::End { end });
}

#[test]
fn a_stop_is_passed_on_to_the_task_that_runs() {
    let stop = Event::PipelineStopRequested { pipeline: id() };
    let stopping = world(&[advanced(1), stop.clone()]);
    assert_eq!(decide(&stopping, Some(RunState::Queued)), PipelineDecision::Stop { run: id().task(1) });
    assert_eq!(decide(&stopping, Some(RunState::Stopping { by: StopBy::User })), PipelineDecision::Wait);
    let end = PipelineEnd::Stopped { by: StopBy::User };
    assert_eq!(decide(&stopping, done(Outcome::Succeeded)), PipelineDecision::End { end: end.clone() });
    assert_eq!(decide(&world(&[stop]), None), PipelineDecision::End { end });
}

#[test]
fn a_pipeline_is_resumed_where_it_has_ended() {
    let ended = |runs: usize, end: PipelineEnd| {
        let advanced = (1..=runs).map(advanced);
        world(&advanced.chain([Event::PipelineEnded { pipeline: id(), end }]).collect::<Vec<_>>())
    };
    let stopped = || PipelineEnd::Stopped { by: StopBy::User };
    let failed = || PipelineEnd::Failed { task: "prep".to_owned(), message: "code 1".to_owned() };
    let check = |world: &World, last: Option<RunState>, expected: PipelineResumption| {
        assert_eq!(world.pipelines[&id()].resumption(last.as_ref()), expected, "{last:?}");
    };
    let code = Outcome::Failed { finding: Finding::new(Cause::ExitCode, "code 1") };
    check(&ended(1, failed()), done(code.clone()), PipelineResumption::Run(id().task(1)));
    check(&ended(2, stopped()), Some(RunState::Stopped { by: StopBy::User }), PipelineResumption::Run(id().task(2)));
    // Planning the second task failed, or it was stopped before that.
    check(&ended(1, failed()), done(Outcome::Succeeded), PipelineResumption::Next);
    check(&ended(0, stopped()), None, PipelineResumption::Next);
    // The first request was cut off between its two events.
    check(&ended(1, failed()), Some(RunState::Queued), PipelineResumption::Next);
    check(&ended(2, PipelineEnd::Done), done(Outcome::Succeeded), PipelineResumption::Complete);
    check(&world(&[advanced(1)]), done(code), PipelineResumption::Running);
    let stop = Event::PipelineStopRequested { pipeline: id() };
    check(&world(&[advanced(1), stop]), Some(RunState::Queued), PipelineResumption::Stopping);
}

#[test]
fn what_is_resumed_waits_for_its_run_and_goes_to_the_next_task() {
    let resume = Event::PipelineResumeRequested { pipeline: id() };
    let end = PipelineEnd::Failed { task: "prep".to_owned(), message: "code 1".to_owned() };
    let resumed = world(&[advanced(1), Event::PipelineEnded { pipeline: id(), end }, resume.clone()]);
    assert_eq!(decide(&resumed, Some(RunState::Queued)), PipelineDecision::Wait);
    assert_eq!(decide(&resumed, done(Outcome::Succeeded)), PipelineDecision::Submit { place: 1 });
    let mut complete = world(&[Event::PipelineEnded { pipeline: id(), end: PipelineEnd::Done }]);
    let again = Record { seq: complete.last_seq + 1, at: Timestamp(0), event: resume };
    assert!(complete.apply(&again).unwrap_err().why.contains("is done"));
}

#[test]
fn each_task_has_one_run() {
    let mut world = world(&[advanced(1)]);
    let again = Record { seq: world.last_seq + 1, at: Timestamp(0), event: advanced(1) };
    assert!(world.apply(&again).unwrap_err().why.contains("already"));
    assert_eq!(world.pipelines[&id()].state, PipelineState::Running);
    assert_eq!(id().task(1).as_str(), "night-1-task1");
}

#[test]
fn what_tasks_have_cost_is_not_spent_again() {
    let mut pipeline = world(&[]).pipelines.remove(&id()).unwrap();
    let dollars = |text: &str| text.parse::<Money>().unwrap();
    assert!(pipeline.left(dollars("$7")).unwrap().is_none(), "without a budget nothing is limited");
    pipeline.budget = Job::parse("run: 'true'\nbudget: {max: $10}\n", "job.yaml").unwrap().job.budget;
    let left = |cost: &str| pipeline.left(dollars(cost)).map(|left| left.unwrap().max);
    assert_eq!((left("$0"), left("$7.50")), (Ok(dollars("$10")), Ok(dollars("$2.50"))));
    for cost in ["$10", "$11"] {
        assert!(left(cost).unwrap_err().contains("the budget of the pipeline, $10.00, is spent"), "{cost}");
    }
}

#[test]
fn a_run_is_known_as_that_of_a_task_also_before_it_is_written_down() {
    let world = world(&[advanced(1)]);
    let of = |run: RunId| world.pipeline_of(&run).cloned();
    assert_eq!((of(id().task(1)), of(id().task(2))), (Some(id()), Some(id())));
    assert_eq!((of(id().task(3)), of(RunId::new("night-1"))), (None, None));
}

#[test]
fn a_task_that_is_refused_ends_the_pipeline_with_what_to_do() {
    let world = world(&[]);
    let pipeline = &world.pipelines[&id()];
    assert_eq!(pipeline.task_file(1), "night.yaml#fit");
    let end = PipelineEnd::Failed { task: "fit".to_owned(), message: "no offer (hint: raise `budget`)".to_owned() };
    assert_eq!(pipeline.refused(1, "no offer", Some("raise `budget`")), end);
}
