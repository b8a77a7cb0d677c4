//! What AWS lists, as a provider's view: pure functions.

use domain::rental::{MachineHandle, MachineState, SeenMachine};
use domain::run::Usage;
use domain::{Elapsed, InstanceId, Timestamp};

use super::wire::answers::ListedMachine;
use super::wire::times;

/// A machine that is listed at a moment; none without a tag of ours, or with a name that is none: names become paths and
/// arguments of `ssh`.
pub fn seen(machine: &ListedMachine, at: Timestamp) -> Option<SeenMachine> {
    let instance = machine.instance().filter(|name| is_name(name))?;
    let handle = Some(&machine.instance_id).filter(|handle| is_handle(handle))?;
    Some(SeenMachine {
        handle: MachineHandle(handle.clone()),
        instance: InstanceId::new(instance),
        state: state(machine, at),
        notice: None,
    })
}

/// Whether this may be our name of a machine.
pub fn is_name(name: &str) -> bool {
    let is_known = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
    name.chars().all(is_known) && name.starts_with(|first: char| first.is_ascii_alphanumeric())
}

/// Whether this may be AWS's name of a machine, such as `i-0abc`.
pub fn is_handle(handle: &str) -> bool {
    let is_hex = |letter: char| matches!(letter, '0'..='9' | 'a'..='f');
    handle.strip_prefix("i-").is_some_and(|rest| !rest.is_empty() && rest.chars().all(is_hex))
}

/// A machine that AWS has reported as gone before.
pub fn gone(instance: &InstanceId, handle: &str, usage: Usage) -> SeenMachine {
    let (handle, state) = (MachineHandle(handle.to_owned()), MachineState::Gone(Some(usage)));
    SeenMachine { handle, instance: instance.clone(), state, notice: None }
}

/// Its state. Only AWS's state `terminated` makes it gone.
pub fn state(machine: &ListedMachine, at: Timestamp) -> MachineState {
    match machine.instance_state.name.as_str() {
        "pending" => MachineState::Pending,
        "running" => MachineState::Running,
        "terminated" => MachineState::Gone(usage(machine, at)),
        // A stopped machine still has a disk that costs money; it is ended like any other.
        _ => MachineState::Ending,
    }
}

/// Its time, from AWS's own timestamps; `None` if it never ran.
pub fn usage(machine: &ListedMachine, at: Timestamp) -> Option<Usage> {
    let started = times::read(&machine.launch_time)?;
    let ended = machine.reason.split_once('(').and_then(|(_, rest)| times::read(rest));
    // AWS reports no time for a reclaimed spot machine: then the time of the first view without it counts.
    let elapsed = ended.unwrap_or(at).since(started);
    Some(Usage { started, elapsed: elapsed.max(Elapsed(1)) })
}

#[cfg(test)]
mod tests {
    use super::super::wire::answers::{Items, StateName, Tag};
    use super::super::wire::query::{INSTANCE_TAG, MEMBERS_TAG};
    use super::*;

    fn check(state: &str, reason: &str, expected: &str) {
        let tag = Tag { key: INSTANCE_TAG.into(), value: "r-i1".into() };
        let machine = ListedMachine {
            instance_id: "i-1".into(),
            instance_state: StateName { name: state.into() },
            launch_time: "2026-11-23T18:00:00.000Z".into(),
            reason: reason.into(),
            tag_set: Items { item: vec![tag] },
            ..ListedMachine::default()
        };
        let shown = match seen(&machine, times::read("2026-11-23T19:00:00Z").unwrap()).unwrap().state {
            MachineState::Gone(usage) => format!("gone after {} s", usage.unwrap().elapsed.as_secs_f64()),
            other => format!("{other:?}"),
        };
        assert_eq!(shown, expected, "{state} {reason}");
    }

    #[test]
    fn only_terminated_is_gone() {
        check("pending", "", "Pending");
        check("running", "", "Running");
        for state in ["shutting-down", "stopping", "stopped", "a new word"] {
            check(state, "User initiated (2026-11-23 18:30:00 GMT)", "Ending");
        }
        check("terminated", "User initiated (2026-11-23 18:30:00 GMT)", "gone after 1800 s");
        check("terminated", "User initiated (2026-11-23 18:00:05 GMT)", "gone after 5 s");
        check("terminated", "Server.SpotInstanceTermination", "gone after 3600 s");
        assert_eq!(seen(&ListedMachine::default(), Timestamp(0)), None);
    }

    #[test]
    fn machines_of_one_request_have_names_of_their_own() {
        let name = |members: Option<&str>, index: &str| {
            let tag = |(key, value): (&str, &str)| Tag { key: key.into(), value: value.into() };
            let tags = [(INSTANCE_TAG, "r-i9")].into_iter().chain(members.map(|members| (MEMBERS_TAG, members)));
            let machine = ListedMachine {
                instance_id: "i-1".into(),
                ami_launch_index: index.into(),
                tag_set: Items { item: tags.map(tag).collect() },
                ..ListedMachine::default()
            };
            seen(&machine, Timestamp(0)).map(|seen| seen.instance.to_string())
        };
        assert_eq!(name(None, "0").as_deref(), Some("r-i9"));
        assert_eq!(name(Some("3"), "0").as_deref(), Some("r-i9"));
        assert_eq!(name(Some("3"), "2").as_deref(), Some("r-i11"));
        // Not ours to number.
        assert_eq!(name(None, "2").as_deref(), Some("r-i9"));
    }

    #[test]
    fn names_that_are_no_names_are_not_taken() {
        for name in ["digits-0193f2a1-i1", "a_b.c-i2"] {
            assert!(is_name(name), "{name}");
        }
        for name in ["", "..", "../x", "/etc", "-o", "a b", "a\n"] {
            assert!(!is_name(name), "{name:?}");
        }
        assert!(is_handle("i-0123456789abcdef0"));
        for handle in ["", "i-", "-oProxyCommand=x", "i-0\nProxyCommand x", "i-0 x", "I-0", "sg-1"] {
            assert!(!is_handle(handle), "{handle:?}");
        }
        let addressed = |address: &str| ListedMachine { ip_address: address.into(), ..ListedMachine::default() };
        for (address, expected) in [("192.0.2.7", Some("192.0.2.7")), ("2001:db8::1", Some("2001:db8::1"))] {
            assert_eq!(addressed(address).address(), expected);
        }
        for address in ["", "-oProxyCommand=x", "host\nProxyCommand x", "example.org"] {
            assert_eq!(addressed(address).address(), None, "{address:?}");
        }
    }
}
