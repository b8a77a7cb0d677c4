//! What a listed machine that was stopped before is to the run that has it, or had it: pure functions.

use domain::rental::MachineState;
use domain::run::Usage;
use domain::{Elapsed, Timestamp};

use super::super::look;
use super::super::wire::answers::ListedMachine;
use crate::rented::kept::{KeptMachine, KeptState};

/// Clocks here and at AWS differ by less.
const CLOCKS: i64 = 60_000_000;

/// A machine whose start was accepted may be listed as stopped for so long.
const VISIBLE: Elapsed = Elapsed(120_000_000);

/// The state of a machine that was stopped before, for the run that has or had it; none while it is not that run's to see.
/// `rented` is when the run has asked for its start.
pub(super) fn state_of_kept(
    kept: &KeptMachine,
    machine: &ListedMachine,
    rented: Option<Timestamp>,
    now: Timestamp,
) -> Option<MachineState> {
    let name = machine.instance_state.name.as_str();
    match (kept.state, name) {
        // The rent is over. One that did not start since it was asked to was not rented.
        (KeptState::Stopped { .. }, "stopped" | "terminated") | (KeptState::Starting { .. }, "terminated") => {
            Some(MachineState::Gone(usage_since(machine, rented, now)))
        }
        // It has not started yet.
        (KeptState::Starting { .. }, "stopping" | "stopped") => None,
        // It has stopped by itself, as where there is no capacity after all; or AWS does not list its start yet.
        (KeptState::Accepted { at, .. }, "stopped") => match usage_since(machine, rented, now) {
            None if now.since(at) < VISIBLE => None,
            usage => Some(MachineState::Gone(usage)),
        },
        (KeptState::Accepted { .. }, "terminated") => Some(MachineState::Gone(usage_since(machine, rented, now))),
        _ => Some(look::state(machine, now)),
    }
}

/// What was used of it since a run has asked for it.
fn usage_since(machine: &ListedMachine, rented: Option<Timestamp>, now: Timestamp) -> Option<Usage> {
    let is_of_this_run = |usage: &Usage| rented.is_none_or(|rented| usage.started.0.saturating_add(CLOCKS) >= rented.0);
    look::usage(machine, now).filter(is_of_this_run)
}

#[cfg(test)]
mod tests {
    use domain::{InstanceId, Node, Offer};

    use super::super::super::wire::answers::StateName;
    use super::super::super::wire::times;
    use super::*;

    fn kept(state: KeptState) -> KeptMachine {
        let (node, rate) = (Node::default(), "1/h".parse().unwrap());
        let kind = "us-east-1/c7i.large".to_owned();
        let offer = Offer { provider: "aws".into(), kind, node, rate, price_source: String::new() };
        KeptMachine {
            handle: "i-1".into(),
            region: "us-east-1".into(),
            account: None,
            instance: InstanceId::new("a-i1"),
            offer,
            disk: "0.02/h".parse().unwrap(),
            state,
        }
    }

    #[test]
    fn the_rent_of_a_stopped_machine_is_over_and_of_each_run_its_own() {
        let since = Timestamp(5);
        let at = |text: &str| times::read(text).unwrap();
        let check = |state: KeptState, name: &str, rented: Option<&str>, expected: &str| {
            let machine = ListedMachine {
                instance_id: "i-1".into(),
                instance_state: StateName { name: name.into() },
                launch_time: "2026-11-23T18:00:00.000Z".into(),
                reason: "User initiated (2026-11-23 18:30:00 GMT)".into(),
                ..ListedMachine::default()
            };
            let found = state_of_kept(&kept(state), &machine, rented.map(at), at("2026-11-23T19:00:00Z"));
            let shown = match found {
                Some(MachineState::Gone(Some(usage))) => format!("gone after {} s", usage.elapsed.as_secs_f64()),
                other => format!("{other:?}"),
            };
            assert_eq!(shown, expected, "{state:?} {name} {rented:?}");
        };
        let stopped = KeptState::Stopped { since };
        check(stopped, "running", None, "Some(Running)");
        check(stopped, "stopping", None, "Some(Ending)");
        check(stopped, "stopped", None, "gone after 1800 s");
        check(stopped, "stopped", Some("2026-11-23T17:59:40Z"), "gone after 1800 s");
        // It was asked to start, and did not: what it ran before was another run's.
        check(stopped, "stopped", Some("2026-11-23T18:40:00Z"), "Some(Gone(None))");
        check(KeptState::Starting { since }, "stopped", Some("2026-11-23T18:40:00Z"), "None");
        check(KeptState::Starting { since }, "terminated", Some("2026-11-23T18:40:00Z"), "Some(Gone(None))");
        check(KeptState::Starting { since }, "terminated", Some("2026-11-23T18:00:00Z"), "gone after 1800 s");
        check(KeptState::Starting { since }, "pending", Some("2026-11-23T18:40:00Z"), "Some(Pending)");
        let accepted = |at: &str| KeptState::Accepted { since, at: times::read(at).unwrap() };
        let (new, old) = (accepted("2026-11-23T18:59:30Z"), accepted("2026-11-23T18:40:00Z"));
        check(new, "stopped", Some("2026-11-23T18:59:20Z"), "None");
        check(old, "stopped", Some("2026-11-23T18:39:50Z"), "Some(Gone(None))");
        check(old, "stopped", Some("2026-11-23T17:59:50Z"), "gone after 1800 s");
        check(old, "terminated", Some("2026-11-23T18:39:50Z"), "Some(Gone(None))");
        check(old, "pending", Some("2026-11-23T18:39:50Z"), "Some(Pending)");
        check(KeptState::Started, "running", Some("2026-11-23T18:00:00Z"), "Some(Running)");
        check(KeptState::Started, "terminated", Some("2026-11-23T18:00:00Z"), "gone after 1800 s");
    }
}
