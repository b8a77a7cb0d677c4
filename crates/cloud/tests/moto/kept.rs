//! A machine is stopped with its disk, started again, and given back.

use cloud::rented::kept::{KeptMachine, KeptMachines, KeptState, start_kind};
use cloud::{LaunchRequest, Provider, ProviderAnswer, ProviderCall};
use domain::rental::{EndRequest, MachineState};
use domain::{InstanceId, Timestamp};

use super::server::{Moto, client, provider};
use super::{ANY_KEY, REGION, all, launch, offer, request, state};

#[test]
#[ignore = "needs moto: `cargo xtask test` provides it"]
fn a_stopped_machine_keeps_its_disk_until_a_run_that_has_it_ends() {
    let (moto, home) = (Moto::start(None), tempfile::tempdir().unwrap());
    let (aws, direct) = (provider(home.path(), moto.port, ANY_KEY), client(moto.port, ANY_KEY));
    let kind = "us-east-1/c7i.large";
    let (first, second) = (InstanceId::new("a-i1"), InstanceId::new("b-i1"));
    let end = |instance: &InstanceId| {
        let call = ProviderCall::End(vec![EndRequest { instance: instance.clone(), handle: None }]);
        assert_eq!(aws.call(&call), ProviderAnswer::Ending);
    };
    let rented = LaunchRequest { offer: offer(kind), ..request(first.as_str(), "one") };
    let answer = launch(&aws, &rented);
    let ProviderAnswer::Accepted(named) = &answer else { panic!("{answer:?}") };
    let handle = named[0].1.0.clone();
    let machines = KeptMachines::new(home.path(), "aws");
    let stopped = KeptMachine {
        handle: handle.clone(),
        region: REGION.to_owned(),
        account: None,
        instance: first.clone(),
        offer: offer(kind),
        disk: "0.01/h".parse().unwrap(),
        state: KeptState::Stopped { since: Timestamp(0) },
    };
    machines.write(&stopped).unwrap();
    end(&first);
    let seen = state(&aws, &first);
    assert!(matches!(seen, Some(MachineState::Gone(Some(_)))), "{seen:?}");
    assert_eq!(all(&direct)[0].instance_state.name, "stopped");
    let again = LaunchRequest { offer: offer(&start_kind(kind, &handle)), ..request(second.as_str(), "two") };
    let started = launch(&aws, &again);
    let ProviderAnswer::Accepted(named) = &started else { panic!("{started:?}") };
    assert_eq!((&named[0].0, &named[0].1.0), (&second, &handle));
    // Asked twice it is started once, and another process knows whose it is.
    assert_eq!(launch(&provider(home.path(), moto.port, ANY_KEY), &again), started);
    assert_eq!(state(&aws, &second), Some(MachineState::Running));
    let known = machines.read(&handle).unwrap().unwrap();
    assert!(matches!(known.state, KeptState::Accepted { .. }), "{known:?}");
    // Nobody has reached it: its disk stays.
    end(&second);
    assert_eq!(all(&direct)[0].instance_state.name, "stopped");
    let seen = state(&aws, &second);
    assert!(matches!(seen, Some(MachineState::Gone(_))), "{seen:?}");
    assert_eq!(machines.waits().unwrap().len(), 1);
    // As once its agent was started there.
    let third = InstanceId::new("c-i1");
    let again = LaunchRequest { offer: offer(&start_kind(kind, &handle)), ..request(third.as_str(), "three") };
    let started = launch(&aws, &again);
    assert!(matches!(started, ProviderAnswer::Accepted(_)), "{started:?}");
    machines.write(&KeptMachine { instance: third.clone(), state: KeptState::Started, ..known }).unwrap();
    end(&third);
    assert_eq!((all(&direct).len(), all(&direct)[0].instance_state.name.as_str()), (1, "terminated"));
    let seen = state(&aws, &third);
    assert!(matches!(seen, Some(MachineState::Gone(_))), "{seen:?}");
}
