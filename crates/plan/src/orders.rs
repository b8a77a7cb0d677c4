//! What an agent is told, and what its words mean.

use domain::rank::Report;
use domain::run::{InstanceState, RunState};
use domain::wire::{AgentCommand, AgentEvent, Entry, Start};
use domain::{AttemptId, Duration, Event, InstanceId, RunId};

use crate::reconcile::{Policy, wind_down};
use crate::world::{AttemptState, Run, World};

/// What an instance is wanted to do, as its agent is told with every reply. `start` fills in what only the shell
/// knows: the folder on the node.
pub fn orders(
    world: &World,
    policy: &Policy,
    id: &InstanceId,
    start: impl Fn(&RunId, &Run, &AttemptId) -> Start,
) -> Vec<AgentCommand> {
    let Some(instance) = world.instances.get(id) else { return vec![AgentCommand::Leave] };
    match instance.state {
        InstanceState::Releasing | InstanceState::Released { .. } => return vec![AgentCommand::Leave],
        InstanceState::Intended | InstanceState::Launching | InstanceState::Up => {}
    }
    let Some(run) = world.runs.get(&instance.run) else { return vec![AgentCommand::Leave] };
    let Some((attempt, state)) = world.active_attempt(run) else { return Vec::new() };
    if state.instance != *id {
        return Vec::new();
    }
    if matches!(run.state, RunState::Stopping { .. }) {
        let within = Duration::from_micros(wind_down(policy, run.job.budget, run.plan.offer.rate).0);
        return vec![AgentCommand::Stop { attempt: attempt.clone(), within: Some(within) }];
    }
    vec![AgentCommand::Start(Box::new(start(&instance.run, run, attempt)))]
}

/// The event that an agent's word amounts to, or none: most words are measurements, and a word that was heard before,
/// or that comes after its attempt was given up, changes nothing.
pub fn hear(world: &World, entry: &Entry) -> Option<Event> {
    let attempt = world.attempts.get(&entry.attempt)?;
    match (&attempt.state, &entry.event) {
        (AttemptState::Ended { .. }, _) => None,
        (_, AgentEvent::Ended { end }) => {
            Some(Event::AttemptEnded { attempt: entry.attempt.clone(), end: end.clone() })
        }
        (AttemptState::Intended, AgentEvent::Reported { rank: 0, report: Report::Ready(ready) }) => {
            Some(Event::AttemptReady { attempt: entry.attempt.clone(), ready: Some(ready.clone()) })
        }
        (AttemptState::Intended, AgentEvent::Started) => {
            let run = world.runs.get(&attempt.run)?;
            match run.job.work {
                domain::Work::Train(_) => None,
                domain::Work::Command(_) => Some(Event::AttemptReady { attempt: entry.attempt.clone(), ready: None }),
            }
        }
        (AttemptState::Intended | AttemptState::Ready { .. }, AgentEvent::Started | AgentEvent::Reported { .. }) => {
            None
        }
        (AttemptState::Intended | AttemptState::Ready { .. }, AgentEvent::Unknown) => None,
    }
}
