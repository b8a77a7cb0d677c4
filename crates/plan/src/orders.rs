//! What an agent is told, and what its words mean.

use domain::rank::Report;
use domain::run::{InstanceState, RunState};
use domain::wire::{Entry, Order, Start, Word};
use domain::{AttemptId, Event, InstanceId, RunId};

use crate::world::{AttemptState, Run, World};

/// What an instance is wanted to do, as its agent is told with every reply. `start` fills in what only the shell
/// knows: the folder on the node.
pub fn orders(world: &World, id: &InstanceId, start: impl Fn(&RunId, &Run, &AttemptId) -> Start) -> Vec<Order> {
    let Some(instance) = world.instances.get(id) else { return vec![Order::Leave] };
    match instance.state {
        InstanceState::Releasing | InstanceState::Released { .. } => return vec![Order::Leave],
        InstanceState::Intended | InstanceState::Launching | InstanceState::Up => {}
    }
    let Some(run) = world.runs.get(&instance.run) else { return vec![Order::Leave] };
    let Some((attempt, state)) = world.active_attempt(run) else { return Vec::new() };
    if state.instance != *id {
        return Vec::new();
    }
    if matches!(run.state, RunState::Stopping { .. }) {
        return vec![Order::Stop { attempt: attempt.clone() }];
    }
    vec![Order::Start(Box::new(start(&instance.run, run, attempt)))]
}

/// The event that an agent's word amounts to, or none: most words are measurements, and a word that was heard before,
/// or that comes after its attempt was given up, changes nothing.
pub fn hear(world: &World, entry: &Entry) -> Option<Event> {
    let attempt = world.attempts.get(&entry.attempt)?;
    match (&attempt.state, &entry.word) {
        (AttemptState::Ended { .. }, _) => None,
        (_, Word::Ended { end }) => Some(Event::AttemptEnded { attempt: entry.attempt.clone(), end: end.clone() }),
        (AttemptState::Intended, Word::Reported { rank: 0, report: Report::Ready(ready) }) => {
            Some(Event::AttemptReady { attempt: entry.attempt.clone(), ready: Some(ready.clone()) })
        }
        (AttemptState::Intended, Word::Started) => {
            let run = world.runs.get(&attempt.run)?;
            match run.job.work {
                domain::Work::Train(_) => None,
                domain::Work::Command(_) => Some(Event::AttemptReady { attempt: entry.attempt.clone(), ready: None }),
            }
        }
        (AttemptState::Intended | AttemptState::Ready { .. }, Word::Started | Word::Reported { .. }) => None,
    }
}
