//! Machines that one request rents. Time is an argument.

mod lab;

use domain::event::RentIntended;
use domain::rental::{MachineHandle, MachineState, ProviderAnswer, ProviderCall, ProviderView, SeenMachine};
use domain::run::Usage;
use domain::{Elapsed, Event, InstanceId, Job, Timestamp};

use lab::{Lab, SECOND, intended, run, submitted};

/// A run on two machines, which one request is to rent.
fn asked_for() -> Vec<Event> {
    let (mut submitted, mut intended) = (submitted(), intended(&run().instance(1)));
    if let (Event::Submitted(new), Event::RentIntended(intent)) = (&mut submitted, &mut intended) {
        new.job = Job::parse("name: job\nnum_nodes: 2\nrun: 'true'\n", "job.yaml").unwrap().job;
        **intent = RentIntended { others: vec![run().instance(2)], ..(**intent).clone() };
    }
    vec![submitted, intended]
}

/// A machine that has ended, as its provider lists it.
fn ended(instance: InstanceId) -> ProviderAnswer {
    let usage = Usage { started: Timestamp(0), elapsed: Elapsed(4 * SECOND) };
    let (handle, state) = (MachineHandle("m-2".into()), MachineState::Gone(Some(usage)));
    let machines = vec![SeenMachine { handle, instance, state, notice: None }];
    ProviderAnswer::Observed(ProviderView { is_complete: true, machines, unseen: Vec::new() })
}

/// The answer to the request is lost, and one of its machines ends before it is asked again: the other one is there.
#[test]
fn a_machine_that_ended_early_says_nothing_of_those_rented_with_it() {
    let mut launches = 0;
    let mut lab = Lab::new(asked_for(), |call, _| match call {
        ProviderCall::Launch(request) => {
            launches += 1;
            let handle = |id: &InstanceId| (id.clone(), MachineHandle(format!("machine of {id}")));
            match launches {
                1 => ProviderAnswer::Doubt("no reply".into()),
                _ => ProviderAnswer::Accepted(request.members.iter().map(handle).collect()),
            }
        }
        ProviderCall::Observe(_) => ended(run().instance(2)),
        ProviderCall::LastEvents(_) => ProviderAnswer::LastEvents(Vec::new()),
        _ => ProviderAnswer::Ending,
    });
    lab.pass(30 * SECOND);
    let world = lab.controller.world();
    let [first, second] = [1, 2].map(|number| &world.instances[&run().instance(number)]);
    assert!(first.is_accepted && !first.was_refused, "{first:?}");
    assert!(!second.was_refused, "{second:?}");
}
