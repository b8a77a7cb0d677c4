//! Machines of AWS that are stopped with their disk and started again. They keep their tags; under which of our names they run
//! is written down ([`kept`](crate::rented)).

use std::io;
use std::sync::PoisonError;
use std::time::Instant;

use domain::rental::{EndRequest, LaunchRequest, MachineState, Refusal, SeenMachine};
use domain::{Elapsed, Timestamp};

use super::launch::{accepted, is_in_time, refused, too_late, unsent};
use super::wire::answers::ListedMachine;
use super::wire::failure::AwsFailure;
use super::wire::query;
use super::{Aws, client, look, site};
use crate::provider::ProviderAnswer;
use crate::rented::kept::{KeptMachine, KeptState, MachineEnd, machine_end};
use crate::rented::rentals::Rental;

/// A machine that is still stopping is asked again to start after this time.
const STOPPING: Elapsed = Elapsed(10_000_000);

/// Clocks here and at AWS differ by less.
const CLOCKS: i64 = 60_000_000;

impl Aws {
    /// Starts the machine that the kind of an offer names. Asking twice starts it once.
    pub(super) fn start_kept(&self, request: &LaunchRequest, (kind, handle): (&str, &str)) -> ProviderAnswer {
        let asked = Instant::now();
        let [instance] = &request.members[..] else {
            return refused("a stopped machine is started alone".to_owned());
        };
        let one_at_a_time = self.preparing(kind.split('/').next().unwrap_or_default());
        let _one_at_a_time = one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let known = match self.kept.read(handle) {
            Ok(Some(known)) => known,
            Ok(None) => {
                return refused(format!("no machine `{handle}` is stopped here; `gradus machines list` shows all"));
            }
            Err(error) => return ProviderAnswer::Doubt(format!("cannot read what `{handle}` is: {error}")),
        };
        let since = match known.state {
            KeptState::Started if known.instance != *instance => {
                return refused(format!("`{handle}` is started, and `{}` has it", known.instance));
            }
            KeptState::Started => return accepted(&request.members, vec![handle.to_owned()]),
            KeptState::Stopped { since } | KeptState::Starting { since } => since,
        };
        // Its answer may have been lost.
        let asked_before = u32::from(matches!(known.state, KeptState::Starting { .. }));
        let rental = match self.rental_of_kept(request, &known) {
            Ok(rental) => rental,
            Err(answer) => return answer,
        };
        if let Err(failure) = self.known_key(&rental) {
            return unsent(&failure, asked_before);
        }
        if let Some(why) = self.is_elsewhere(instance, &rental) {
            return ProviderAnswer::Doubt(why);
        }
        // One that nobody reaches would be given back, with its disk.
        let place = (known.region.as_str(), request.has_peers);
        if let Err(failure) = site::let_in(&self.client, &self.settings.options, self.owner(), place) {
            return unsent(&failure, asked_before);
        }
        // Whoever asked has given up, and may have ended it since.
        if !is_in_time(asked, Instant::now()) {
            return too_late();
        }
        // From here on its end stops it, and keeps the disk.
        let machine = KeptMachine { instance: instance.clone(), state: KeptState::Starting { since }, ..known };
        match self.kept.write(&machine) {
            Ok(()) => self.start(&machine, since),
            Err(error) => ProviderAnswer::Doubt(format!("cannot write down that `{handle}` is started: {error}")),
        }
    }

    fn start(&self, machine: &KeptMachine, since: Timestamp) -> ProviderAnswer {
        let handle = &machine.handle;
        let unknown = |error: io::Error| ProviderAnswer::Doubt(format!("cannot write down `{handle}`: {error}"));
        let note = |state| self.kept.write(&KeptMachine { state, ..machine.clone() });
        match self.client.tell(&machine.region, &query::start(handle)) {
            Ok(()) => match note(KeptState::Started) {
                Ok(()) => accepted(std::slice::from_ref(&machine.instance), vec![handle.clone()]),
                Err(error) => unknown(error),
            },
            Err(AwsFailure::Invalid { code, .. }) if code == "IncorrectInstanceState" => {
                ProviderAnswer::Refused(Refusal::Throttled { after: Some(STOPPING) })
            }
            Err(failure) => match failure.refusal() {
                None | Some(Refusal::Throttled { .. }) => unsent(&failure, 0),
                Some(refusal) => match note(KeptState::Stopped { since }) {
                    Ok(()) => ProviderAnswer::Refused(refusal),
                    Err(error) => unknown(error),
                },
            },
        }
    }

    /// The request, on disk before it is sent: with the machine's name, so that an end of it finds it.
    fn rental_of_kept(&self, request: &LaunchRequest, known: &KeptMachine) -> Result<Rental, ProviderAnswer> {
        let Some(instance) = request.members.first() else { return Err(refused("it has no name".to_owned())) };
        match self.rentals.read(instance) {
            Ok(Some(rental)) if rental.request.token != request.token => {
                return Err(refused(format!(
                    "`{instance}` was asked for with token `{}` before",
                    rental.request.token
                )));
            }
            Ok(Some(rental)) => return Ok(rental),
            Ok(None) => {}
            Err(error) => return Err(ProviderAnswer::Doubt(format!("cannot read what was asked for: {error}"))),
        }
        let rental = Rental {
            account: known.account.clone(),
            handle: Some(known.handle.clone()),
            rented: Some(client::now()),
            ..Rental::new(request.clone(), known.region.clone(), Vec::new())
        };
        let written = self.rentals.write(instance, &rental);
        written.map_err(|error| refused(format!("cannot prepare to start `{}`: {error}", known.handle)))?;
        Ok(rental)
    }

    /// A listed machine under the name that it has now; none that is stopped and no run's.
    ///
    /// # Errors
    /// If what is known of it cannot be read: then it proves nothing.
    pub(super) fn as_kept(&self, machine: &ListedMachine, seen: SeenMachine) -> io::Result<Option<SeenMachine>> {
        let Some(kept) = self.kept.read(&machine.instance_id)? else { return Ok(Some(seen)) };
        let rental = self.rentals.read(&kept.instance)?;
        let rented = rental.as_ref().and_then(|rental| rental.rented);
        let is_noted = rental.is_some_and(|rental| rental.gone.is_some());
        // Its run has seen its end, or is over.
        if matches!(seen.state, MachineState::Gone(_)) && is_noted {
            self.kept.remove(&kept.handle)?;
        }
        Ok(state_of_kept(&kept, machine, rented, client::now()).map(|state| {
            let instance = kept.instance.clone();
            SeenMachine { instance, state, ..seen }
        }))
    }

    /// Ends a machine that was stopped before, as it is to be ended; whether that was done.
    ///
    /// # Errors
    /// Why it was not.
    pub(super) fn end_kept(&self, request: &EndRequest, rental: Option<&Rental>) -> Result<bool, String> {
        let told = request.handle.as_ref().map(|handle| &handle.0);
        let Some(handle) = told.or(rental.and_then(|rental| rental.handle.as_ref())) else { return Ok(false) };
        let read = self.kept.read(handle);
        let kept = read.map_err(|error| format!("cannot read what `{handle}` is: {error}"))?;
        match (machine_end(kept.as_ref(), &request.instance), kept) {
            (MachineEnd::Delete, _) | (_, None) => Ok(false),
            (MachineEnd::Leave, Some(_)) => Ok(true),
            (MachineEnd::Stop, Some(kept)) => {
                let since = kept.stopped().unwrap_or_else(client::now);
                match self.client.tell(&kept.region, &query::stop(handle)) {
                    // Another look tells whether it is.
                    Ok(()) | Err(AwsFailure::NotFound(_)) => {}
                    Err(AwsFailure::Invalid { code, .. }) if code == "IncorrectInstanceState" => {}
                    Err(failure) => return Err(format!("`{handle}` in `{}`: {failure}", kept.region)),
                }
                let written = self.kept.write(&KeptMachine { state: KeptState::Stopped { since }, ..kept });
                written.map_err(|error| format!("cannot write down that `{handle}` is stopped: {error}"))?;
                Ok(true)
            }
        }
    }
}

/// The state of a machine that was stopped before, for the run that has or had it; none while it is not that run's to see.
/// `rented` is when the run has asked for its start.
fn state_of_kept(
    kept: &KeptMachine,
    machine: &ListedMachine,
    rented: Option<Timestamp>,
    now: Timestamp,
) -> Option<MachineState> {
    let name = machine.instance_state.name.as_str();
    match (kept.state, name) {
        // The rent is over. One that did not start since it was asked to was not rented.
        (KeptState::Stopped { .. }, "stopped" | "terminated") | (KeptState::Starting { .. }, "terminated") => {
            let usage = look::usage(machine, now);
            let is_of_this_run = |usage: &domain::run::Usage| {
                rented.is_none_or(|rented| usage.started.0.saturating_add(CLOCKS) >= rented.0)
            };
            Some(MachineState::Gone(usage.filter(is_of_this_run)))
        }
        // It has not started yet.
        (KeptState::Starting { .. }, "stopping" | "stopped") => None,
        _ => Some(look::state(machine, now)),
    }
}

#[cfg(test)]
mod tests {
    use domain::{InstanceId, Node, Offer};

    use super::super::wire::answers::StateName;
    use super::super::wire::scripted::{Script, aws, error, reply};
    use super::super::wire::times;
    use super::*;

    fn offer(kind: &str) -> Offer {
        let (node, rate) = (Node::default(), "1/h".parse().unwrap());
        Offer { provider: "aws".into(), kind: kind.into(), node, rate, price_source: String::new() }
    }

    fn kept(instance: &str, state: KeptState) -> KeptMachine {
        KeptMachine {
            handle: "i-1".into(),
            region: "us-east-1".into(),
            account: None,
            instance: InstanceId::new(instance),
            offer: offer("us-east-1/c7i.large"),
            disk: "0.02/h".parse().unwrap(),
            state,
        }
    }

    fn request(instance: &str) -> LaunchRequest {
        LaunchRequest {
            members: vec![InstanceId::new(instance)],
            token: format!("token-{instance}"),
            offer: offer("us-east-1/c7i.large@i-1"),
            price_cap: None,
            expires: None,
            first_answer: None,
            has_peers: false,
        }
    }

    fn word(answer: &ProviderAnswer) -> &'static str {
        match answer {
            ProviderAnswer::Accepted(_) => "accepted",
            ProviderAnswer::Refused(Refusal::Throttled { .. }) => "later",
            ProviderAnswer::Refused(_) => "refused",
            ProviderAnswer::Doubt(_) => "doubt",
            other => panic!("{other:?}"),
        }
    }

    /// A start that AWS answers so, and what is written down; then an end, and what that asks for.
    fn check(answer: Option<&'static str>, expected: (&str, KeptState, Option<&str>)) {
        let home = tempfile::tempdir().unwrap();
        let since = Timestamp(5);
        let script = Script::new(move |asked| match (asked.contains("Action=StartInstances"), answer) {
            (true, Some("lost")) => Err("lost".to_owned()),
            (true, Some(code)) => Ok(error(code)),
            _ => {
                Ok(reply(200, "<R><subnetSet><item><vpcId>vpc-1</vpcId></item></subnetSet><groupId>sg-1</groupId></R>"))
            }
        });
        let aws = aws(home.path(), script.clone());
        aws.kept.write(&kept("a-i1", KeptState::Stopped { since })).unwrap();
        let started = aws.launch(&request("b-i1"));
        let state = aws.kept.read("i-1").unwrap().unwrap().state;
        let end = EndRequest { instance: InstanceId::new("b-i1"), handle: None };
        assert_eq!(aws.end(std::slice::from_ref(&end)), ProviderAnswer::Ending);
        let asked = script.asked.lock().unwrap();
        let first = |action: &str| asked.iter().position(|asked| asked.contains(action)).unwrap();
        assert!(first("Action=AuthorizeSecurityGroupIngress") < first("Action=StartInstances"), "{asked:?}");
        let last = asked.iter().rev().find_map(|asked| {
            ["Action=TerminateInstances", "Action=StopInstances"].into_iter().find(|action| asked.contains(action))
        });
        assert_eq!((word(&started), state, last), expected, "{answer:?}");
    }

    #[test]
    fn a_disk_is_deleted_only_by_a_run_that_has_its_machine() {
        let since = Timestamp(5);
        check(None, ("accepted", KeptState::Started, Some("Action=TerminateInstances")));
        let stop = Some("Action=StopInstances");
        check(Some("lost"), ("doubt", KeptState::Starting { since }, stop));
        check(Some("IncorrectInstanceState"), ("later", KeptState::Starting { since }, stop));
        check(Some("InsufficientInstanceCapacity"), ("refused", KeptState::Stopped { since }, stop));
        check(Some("InvalidInstanceID.NotFound"), ("refused", KeptState::Stopped { since }, stop));
    }

    #[test]
    fn a_machine_that_another_run_has_is_not_started_and_not_ended() {
        let home = tempfile::tempdir().unwrap();
        let script = Script::new(|_| Ok(reply(200, "<R/>")));
        let aws = aws(home.path(), script.clone());
        assert_eq!(word(&aws.launch(&request("b-i1"))), "refused", "nothing is stopped here");
        aws.kept.write(&kept("a-i1", KeptState::Started)).unwrap();
        assert_eq!(word(&aws.launch(&request("b-i1"))), "refused");
        let handle = Some(domain::rental::MachineHandle("i-1".into()));
        assert_eq!(aws.end(&[EndRequest { instance: InstanceId::new("b-i1"), handle }]), ProviderAnswer::Ending);
        assert_eq!(script.asked.lock().unwrap().len(), 0);
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
            let found = state_of_kept(&kept("a-i1", state), &machine, rented.map(at), at("2026-11-23T19:00:00Z"));
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
        check(KeptState::Started, "running", Some("2026-11-23T18:00:00Z"), "Some(Running)");
        check(KeptState::Started, "terminated", Some("2026-11-23T18:00:00Z"), "gone after 1800 s");
    }
}
