//! Trials of a sweep share its budget: what the agent of one reports is acted on at once. Time is an argument.

mod lab;

use domain::event::SweepSubmitted;
use domain::rental::ProviderAnswer;
use domain::sweep::{Known, Trial};
use domain::wire::{Heartbeat, SCHEMA};
use domain::{Elapsed, Event, Job, Rate, SweepId, Timestamp};
use plan::SweepState;

use control::{ControllerInput, ReplyId};
use lab::{Lab, SECOND, run, up};

/// A sweep with a budget of $50, the machine of whose first trial is up and costs $1 a second.
fn first_trial_up() -> Vec<Event> {
    let rate = Rate::from_micros_per_hour(3_600_000_000);
    let text = "name: job\nenvs: {N: 0}\nrun: 'true'\nbudget: {max: $50}\nsweep: {table: [{envs.N: 1}, {envs.N: 2}]}\n";
    let job = Job::parse(text, "job.yaml").unwrap().job;
    let mut events = up();
    let [Event::Submitted(trial), Event::RentIntended(intent), ..] = &mut events[..] else { panic!("no trial") };
    (trial.plan.offer.rate, intent.offer.rate) = (rate, rate);
    trial.trial = Some(Trial { sweep: SweepId::new("s"), number: 1, values: Vec::new() });
    let sweep = SweepSubmitted {
        sweep: SweepId::new("s"),
        job,
        plan: trial.plan.clone(),
        known: Known::default(),
        job_hash: String::new(),
        file: "job.yaml".into(),
        user: None,
    };
    events.insert(0, Event::SweepSubmitted(Box::new(sweep)));
    events
}

#[test]
fn a_sweep_is_stopped_when_an_agent_reports_that_its_budget_is_spent() {
    let mut lab = Lab::new(first_trial_up(), |_, _| ProviderAnswer::Unavailable("timed out".into()));
    let mut is_stopped_at = |seconds: u64| {
        let heartbeat = Heartbeat {
            schema: SCHEMA,
            instance: run().instance(1),
            started: Timestamp(0),
            elapsed: Elapsed(seconds * SECOND),
            entries: Vec::new(),
            reclaim: None,
            incarnation: 0,
            attempt: None,
        };
        // No time passes, so that no timer looks at it.
        lab.step(ControllerInput::Heartbeat { from: ReplyId(1), heartbeat: Box::new(heartbeat) });
        matches!(lab.controller.world().sweeps[&SweepId::new("s")].state, SweepState::Stopping { .. })
    };
    assert!(!is_stopped_at(20));
    assert!(is_stopped_at(46), "what is left is for saving");
}
