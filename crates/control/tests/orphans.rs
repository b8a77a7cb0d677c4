//! Machines that no run of this home has are found, reported and ended. Time is an argument.

mod lab;

use domain::rental::{MachineHandle, MachineState, ProviderAnswer, ProviderCall, ProviderView, SeenMachine};
use domain::run::InstanceState;

use lab::{Lab, SECOND, run, seen, up};

/// What the provider lists: a machine with our tag that nobody knows.
fn orphan(state: MachineState) -> SeenMachine {
    let instance = domain::RunId::new("forgotten").instance(3);
    SeenMachine { handle: MachineHandle("i-lost".into()), instance, state, notice: None }
}

fn listed(machines: Vec<SeenMachine>) -> ProviderAnswer {
    ProviderAnswer::Observed(ProviderView { is_complete: true, machines, unseen: Vec::new() })
}

/// A home without runs, as after its log was lost. The time is the policy's ten minutes.
#[test]
fn a_machine_that_nobody_knows_is_reported_on_start_and_ended_after_its_grace() {
    let mut ended = Vec::new();
    let mut lab = Lab::new(Vec::new(), |call, _| match call {
        ProviderCall::End(requests) => {
            ended.extend(requests.iter().map(|request| (request.instance.to_string(), request.handle.clone())));
            ProviderAnswer::Ending
        }
        _ => listed(vec![orphan(MachineState::Running)]),
    });
    assert_eq!(lab.calls, [(0, "observe")], "on start");
    let noted = lab.noted("i-lost");
    assert_eq!(
        noted,
        ["machine i-lost has our tag `forgotten-i3` and no run of this home has it; it is ended if it stays so"]
    );
    lab.pass(599 * SECOND);
    assert!(!lab.calls.iter().any(|(_, name)| *name == "end"), "{:?}", lab.calls);
    lab.pass(2 * SECOND);
    assert_eq!(lab.calls.iter().filter(|(_, name)| *name == "end").count(), 1, "{:?}", lab.calls);
    // It stays listed, and is asked to end again, not in every step.
    lab.pass(1_800 * SECOND);
    assert_eq!(lab.waits("end"), [600, 600, 600]);
    assert_eq!(lab.noted("i-lost").len(), 1);
    drop(lab);
    assert!(ended.iter().all(|one| *one == ("forgotten-i3".into(), Some(MachineHandle("i-lost".into())))), "{ended:?}");
}

/// Each machine has a grace of its own: what is found meanwhile, and makes the controller look again, shortens none.
#[test]
fn a_second_unknown_machine_does_not_end_the_first_before_its_grace() {
    let clock = std::cell::Cell::new(0);
    let ended = std::cell::RefCell::new(Vec::new());
    let mut lab = Lab::new(up(), |call, _| match call {
        ProviderCall::End(requests) => {
            let handles = requests.iter().filter_map(|request| request.handle.clone());
            ended.borrow_mut().extend(handles.map(|handle| (handle.0, clock.get() / SECOND)));
            ProviderAnswer::Ending
        }
        _ => {
            let ProviderAnswer::Observed(mut view) = seen(MachineState::Running) else { unreachable!("it is a view") };
            view.machines.push(orphan(MachineState::Running));
            if clock.get() >= 300 * SECOND {
                view.machines.push(SeenMachine { handle: MachineHandle("i-other".into()), ..view.machines[1].clone() });
            }
            ProviderAnswer::Observed(view)
        }
    });
    while lab.now < 1_000 * SECOND {
        lab.pass(SECOND);
        clock.set(lab.now);
    }
    assert_eq!(lab.noted("i-lost").len(), 1);
    assert_eq!(lab.noted("i-other").len(), 1);
    let first = |name: &str| ended.borrow().iter().find(|(handle, _)| handle == name).map(|(_, at)| *at);
    let (Some(lost), Some(other)) = (first("i-lost"), first("i-other")) else {
        panic!("both are ended: {:?}", ended.borrow());
    };
    assert!((595..=615).contains(&lost) && (895..=915).contains(&other), "{lost} s, {other} s");
}

/// The provider is listed again and again though nothing is rented from it.
#[test]
fn a_machine_that_appears_later_is_found_within_ten_minutes() {
    let appears = 3_000 * SECOND;
    let clock = std::cell::Cell::new(0);
    let mut lab = Lab::new(Vec::new(), |call, _| match call {
        ProviderCall::End(_) => ProviderAnswer::Ending,
        _ if clock.get() < appears => listed(Vec::new()),
        _ => listed(vec![orphan(MachineState::Running)]),
    });
    while lab.noted("i-lost").is_empty() {
        lab.pass(SECOND);
        clock.set(lab.now);
        assert!(lab.now < appears + 700 * SECOND, "{:?}", lab.calls);
    }
    assert!(lab.now >= appears);
    assert!(lab.waits("observe").iter().all(|wait| *wait <= 600), "{:?}", lab.waits("observe"));
}

/// The machine of a run that has just been submitted, and one that has gone, are no orphans.
#[test]
fn machines_of_runs_and_those_that_are_gone_are_left_alone() {
    let mut lab = Lab::new(up(), |call, _| match call {
        ProviderCall::End(_) => ProviderAnswer::Ending,
        _ => {
            let ProviderAnswer::Observed(mut view) = seen(MachineState::Running) else { unreachable!("it is a view") };
            view.machines.push(orphan(MachineState::Gone(None)));
            ProviderAnswer::Observed(view)
        }
    });
    lab.pass(30 * SECOND);
    assert!(!lab.calls.iter().any(|(_, name)| *name == "end"), "{:?}", lab.calls);
    assert!(lab.noted("i-lost").is_empty() && lab.noted("m").is_empty());
    assert_eq!(lab.controller.world().instances[&run().instance(1)].state, InstanceState::Up);
}
