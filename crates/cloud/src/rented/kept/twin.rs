//! What every cloud must show whose machines are stopped with their disk and started again.

use domain::rental::{EndRequest, MachineState, ProviderAnswer, ProviderCall};
use domain::{Elapsed, InstanceId, Timestamp};
use serde_json::Value;

use super::{KeptMachine, KeptMachines, KeptState, start_kind};
use crate::provider::Provider;
use crate::rented::rentals::{Rental, Rentals};
use crate::rented::twin::{OWNER, clock, pass, provider, request};
use crate::rented::{CloudApi, CloudFailure, CloudMachine, MachinePlace, MachinePower, Rented};

/// A machine of a run, at a time at which it is accepted to be started.
fn kept_machine<C: CloudApi>(rents: &Rented<C>, kind: &str, place: &MachinePlace) -> KeptMachine {
    KeptMachine {
        handle: place.handle.clone(),
        region: place.region.clone(),
        account: rents.api().account().ok().flatten(),
        instance: InstanceId::new("r-i1"),
        offer: request(rents, "r-i1", kind).offer,
        disk: "0.02/h".parse().unwrap(),
        state: KeptState::Accepted { since: clock(), at: clock() },
    }
}

/// Whether the cloud is told when to end the machine of `r-i1`, which its run has again.
pub fn is_bound<C: CloudApi>(rents: &Rented<C>, kind: &str, place: &MachinePlace) -> bool {
    rents.is_bound(rents.api(), &kept_machine(rents, kind, place), place)
}

/// A home with a machine on demand that was stopped.
struct StoppedGround<'a, C> {
    rents: Rented<C>,
    kind: &'a str,
    machine: CloudMachine,
    files: KeptMachines,
    rentals: Rentals,
    /// Until when its disk is counted.
    since: Timestamp,
}

impl<C: CloudApi> StoppedGround<'_, C> {
    fn call(&self, call: &ProviderCall) -> ProviderAnswer {
        self.rents.call(call)
    }

    /// What a complete view has of a machine.
    fn seen(&self, name: &str) -> Option<MachineState> {
        match self.call(&ProviderCall::Observe(vec![InstanceId::new(name)])) {
            ProviderAnswer::Observed(view) => {
                assert!(view.is_complete, "{view:?}");
                let own = view.machines.into_iter().find(|machine| machine.instance.as_str() == name);
                own.map(|machine| machine.state)
            }
            other => panic!("{other:?}"),
        }
    }

    fn end(&self, name: &str) {
        let request = EndRequest { instance: InstanceId::new(name), handle: None };
        assert_eq!(self.call(&ProviderCall::End(vec![request])), ProviderAnswer::Ending);
    }

    /// Asks for the start of the machine, as a run of this name does.
    fn start(&self, name: &str) -> ProviderAnswer {
        let mut start = request(&self.rents, name, self.kind);
        start.offer.kind = start_kind(self.kind, &self.machine.handle);
        self.call(&ProviderCall::Launch(Box::new(start)))
    }

    fn kept(&self) -> Option<KeptMachine> {
        self.files.read(&self.machine.handle).unwrap()
    }

    fn state(&self) -> KeptState {
        self.kept().unwrap().state
    }

    fn rental(&self, name: &str) -> Rental {
        self.rentals.read(&InstanceId::new(name)).unwrap().unwrap()
    }

    /// The cloud accepts a start, and the machine is never on: its run is told, and pays for nothing but the disk.
    fn fails_to_start(&self) {
        assert!(matches!(self.start("t-i1"), ProviderAnswer::Accepted(_)));
        self.rents.api().stop(&self.machine.place()).unwrap();
        // Longer than a start may take to be seen.
        pass(Elapsed(200_000_000));
        assert_eq!(self.seen("t-i1"), Some(MachineState::Gone(None)));
        assert_eq!(self.state(), KeptState::Stopped { since: self.since });
        assert_eq!(self.seen("t-i1"), Some(MachineState::Gone(None)), "the same each time");
    }

    /// The answer to a start is lost, and the run is over before the machine was looked at: it ran, and has a bill.
    fn is_given_up_in_doubt(&self, lose: &impl Fn(), is_off: &impl Fn() -> bool) {
        lose();
        assert!(matches!(self.start("u-i1"), ProviderAnswer::Doubt(_)) && !is_off());
        assert!(matches!(self.state(), KeptState::Starting { .. }));
        self.end("u-i1");
        assert!(is_off());
        assert!(matches!(self.seen("u-i1"), Some(MachineState::Gone(Some(_)))));
    }

    /// The answer to a start is lost, and nobody asks again: a look shows that the machine is on.
    fn is_started_in_doubt(&self, lose: &impl Fn(), is_off: &impl Fn() -> bool) {
        lose();
        assert!(matches!(self.start("s-i1"), ProviderAnswer::Doubt(_)));
        let starting = self.kept().unwrap();
        assert!(matches!(starting.state, KeptState::Starting { .. }));
        let asked = self.rental("s-i1").rented;
        assert!(asked.is_some(), "its rent is known also if this process is killed now");
        assert_eq!(self.seen("s-i1"), Some(MachineState::Running));
        assert!(matches!(self.state(), KeptState::Accepted { at, .. } if Some(at) == asked));
        // Asked again before any look.
        self.files.write(&starting).unwrap();
        assert!(matches!(self.start("s-i1"), ProviderAnswer::Accepted(_)) && !is_off());
        assert!(matches!(self.state(), KeptState::Accepted { .. }));
        assert_eq!((self.seen("s-i1"), self.rental("s-i1").rented), (Some(MachineState::Running), asked));
    }

    /// The run that had it before ends nothing, and one that was never reached keeps the disk.
    fn is_stopped_again(&self, is_off: &impl Fn() -> bool) {
        self.end("r-i1");
        assert!(!is_off());
        self.end("s-i1");
        assert!(is_off() && self.rents.api().machines(OWNER).unwrap().len() == 1, "its disk stays");
        assert!(!self.rental("s-i1").is_ending, "one list that lacks it does not prove that it is gone");
        assert!(matches!(self.start("s-i1"), ProviderAnswer::Refused(_)), "its end was asked for");
        assert!(is_off());
        assert!(matches!(self.seen("s-i1"), Some(MachineState::Gone(Some(_)))));
        // Somebody starts it in the console.
        self.rents.api().start(&self.machine.place(), "console").unwrap();
        assert!(!is_off());
        assert_eq!(self.seen("s-i1"), Some(MachineState::Running));
        self.end("s-i1");
        assert!(is_off(), "it costs money until it is stopped again");
        assert!(matches!(self.seen("s-i1"), Some(MachineState::Gone(Some(_)))));
    }

    /// Somebody deletes it in the console: its disk costs nothing from then on.
    fn is_deleted_elsewhere(&self, clear: impl Fn()) {
        let costs = |waits: &KeptMachines| waits.waits().unwrap().len();
        let before = costs(&self.files);
        clear();
        self.seen("r-i1");
        assert!(self.kept().is_some(), "one list proves nothing");
        // Longer than a machine is missed before it is gone.
        pass(Elapsed(200_000_000));
        self.seen("r-i1");
        assert_eq!((self.kept(), costs(&self.files)), (None, before + 1), "what it has cost until then is counted");
    }
}

/// A machine on demand is stopped with its disk, started again by other runs, and stopped again where it is not reached. `lose`
/// has the next answer lost, `is_off` says whether the cloud's only machine is off, `clear` deletes it.
pub fn stops_and_starts<C: CloudApi>(
    api: C,
    kind: &str,
    step: impl Fn(),
    lose: impl Fn(),
    (is_off, clear): (impl Fn() -> bool, impl Fn()),
) {
    let home = tempfile::tempdir().unwrap();
    let rents = provider(home.path(), api);
    let (files, rentals) =
        (KeptMachines::new(home.path(), rents.api().name()), Rentals::new(home.path(), rents.api().name()));
    let ordered = request(&rents, "r-i1", kind);
    assert!(matches!(rents.call(&ProviderCall::Launch(Box::new(ordered))), ProviderAnswer::Accepted(_)));
    step();
    let machine = rents.api().machines(OWNER).unwrap().remove(0);
    let ground = StoppedGround { rents, kind, machine, files, rentals, since: clock() };
    assert_eq!(ground.seen("r-i1"), Some(MachineState::Running));
    let state = KeptState::Stopped { since: ground.since };
    ground.files.write(&KeptMachine { state, ..kept_machine(&ground.rents, kind, &ground.machine.place()) }).unwrap();
    ground.end("r-i1");
    assert!(is_off(), "it is stopped and not deleted");
    assert!(matches!(ground.seen("r-i1"), Some(MachineState::Gone(Some(_)))), "its rent is over");
    ground.fails_to_start();
    ground.is_given_up_in_doubt(&lose, &is_off);
    ground.is_started_in_doubt(&lose, &is_off);
    ground.is_stopped_again(&is_off);
    ground.is_deleted_elsewhere(clear);
}

/// The cloud would end a machine, and delete its disk, at the time that it was told when the machine was rented: it is stopped
/// only once that is taken back. `timer` is what the cloud was told, null for nothing; `deny` forbids an action, or none, and
/// without one of `actions` it cannot be taken back.
pub fn is_stopped_without_its_timer<C: CloudApi>(
    api: impl Fn() -> C,
    place: &MachinePlace,
    timer: impl Fn() -> Value,
    (deny, actions): (impl Fn(Option<&'static str>), &[&'static str]),
) {
    assert!(!timer().is_null());
    for action in actions.iter().copied() {
        deny(Some(action));
        assert!(matches!(api().stop(place), Err(CloudFailure::Denied(_))), "{action}");
        assert_eq!(api().power(place), Ok(MachinePower::On), "it is not stopped while it would be ended");
    }
    deny(None);
    for _ in 0..2 {
        assert_eq!(api().stop(place), Ok(()), "also once it is stopped");
    }
    assert_eq!((timer(), api().power(place)), (Value::Null, Ok(MachinePower::Off(None))));
    let gone = MachinePlace { handle: "another".to_owned(), ..place.clone() };
    assert!(matches!(api().stop(&gone), Err(CloudFailure::NotFound(_))));
    assert!(matches!(api().power(&gone), Err(CloudFailure::NotFound(_))));
}

/// A start says when there is no capacity, which `refuse` has the cloud say once.
pub fn starts_once_there_is_capacity<C: CloudApi>(api: impl Fn() -> C, place: &MachinePlace, refuse: impl Fn()) {
    api().stop(place).unwrap();
    refuse();
    assert!(matches!(api().start(place, "t"), Err(CloudFailure::Capacity(_))));
    assert_eq!(api().start(place, "t"), Ok(()));
    assert_eq!(api().power(place), Ok(MachinePower::On));
}

/// A machine of a kind that is billed while it is off does not count as off.
pub fn is_on_while_it_is_billed<C: CloudApi>(api: impl Fn() -> C, place: &MachinePlace) {
    assert_eq!(api().stop(place), Ok(()));
    assert_eq!(api().power(place), Ok(MachinePower::On));
    let refused = api().stop(place);
    assert!(matches!(refused, Err(CloudFailure::Invalid(why)) if why.contains("it is billed all the same")));
}
