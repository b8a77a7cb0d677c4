//! Machines of AWS that are stopped with their disk and started again. They keep their tags; under which of our names they run
//! is written down ([`kept`](crate::rented)).

mod state;

use std::io;
use std::sync::PoisonError;
use std::time::Instant;

use domain::rental::{EndRequest, LaunchRequest, MachineState, Refusal, SeenMachine};
use domain::{Elapsed, Timestamp};

use super::launch::{accepted, is_in_time, too_late, unsent};
use super::wire::answers::ListedMachine;
use super::wire::failure::AwsFailure;
use super::wire::query;
use super::{Aws, client, site};
use crate::provider::ProviderAnswer;
use crate::rented::kept::start::{alone, rental_of_start};
use crate::rented::kept::{KeptMachine, KeptState, MachineEnd, after_start, machine_end};
use crate::rented::rentals::Rental;
use state::state_of_kept;

/// A machine that is still stopping is asked again to start after this time.
const STOPPING: Elapsed = Elapsed(10_000_000);

impl Aws {
    /// Starts the machine that the kind of an offer names. Asking twice starts it once.
    pub(super) fn start_kept(&self, request: &LaunchRequest, (kind, handle): (&str, &str)) -> ProviderAnswer {
        self.try_start(request, (kind, handle)).unwrap_or_else(|answer| answer)
    }

    fn try_start(
        &self,
        request: &LaunchRequest,
        (kind, handle): (&str, &str),
    ) -> Result<ProviderAnswer, ProviderAnswer> {
        let asked = Instant::now();
        let instance = alone(&request.members)?;
        let one_at_a_time = self.preparing(kind.split('/').next().unwrap_or_default());
        let _one_at_a_time = one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        let Some((known, since)) = self.kept.to_start(handle, instance)? else {
            return Ok(accepted(&request.members, vec![handle.to_owned()]));
        };
        // Its answer may have been lost.
        let asked_before = u32::from(matches!(known.state, KeptState::Starting { .. }));
        let now = Some(client::now());
        let rental = rental_of_start((&self.rentals, &self.reach), (instance, request), &known, now)?;
        self.known_key(&rental).map_err(|failure| unsent(&failure, asked_before))?;
        if let Some(why) = self.is_elsewhere(instance, &rental) {
            return Err(ProviderAnswer::Doubt(why));
        }
        // One that nobody reaches would be given back, with its disk.
        let place = (known.region.as_str(), request.has_peers);
        let let_in = site::let_in(&self.client, &self.settings.options, self.owner(), place);
        let_in.map_err(|failure| unsent(&failure, asked_before))?;
        // Whoever asked has given up, and may have ended it since.
        if !is_in_time(asked, Instant::now()) {
            return Err(too_late());
        }
        // From here on its end stops it, and keeps the disk.
        let machine = KeptMachine { instance: instance.clone(), state: KeptState::Starting { since }, ..known };
        let unwritten =
            |error: io::Error| ProviderAnswer::Doubt(format!("cannot write down that `{handle}` is started: {error}"));
        self.kept.write(&machine).map_err(unwritten)?;
        Ok(self.start(&machine, since))
    }

    fn start(&self, machine: &KeptMachine, since: Timestamp) -> ProviderAnswer {
        let handle = &machine.handle;
        let unknown = |error: io::Error| ProviderAnswer::Doubt(format!("cannot write down `{handle}`: {error}"));
        let note = |state| self.kept.write(&KeptMachine { state, ..machine.clone() });
        match self.client.tell(&machine.region, &query::start(handle)) {
            Ok(()) => match note(KeptState::Accepted { since, at: client::now() }) {
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
        let (is_deleted, now) = (matches!(seen.state, MachineState::Gone(_)), client::now());
        if is_deleted && is_noted {
            self.kept.forget(&kept, now)?;
        }
        let state = state_of_kept(&kept, machine, rented, now);
        if is_noted && matches!(state, Some(MachineState::Pending | MachineState::Running)) {
            // Somebody has started it again: it costs money, and is to be ended.
            self.rentals.change(&kept.instance, |rental| rental.gone.take().is_some())?;
        }
        let known = (self.reach.has_agent(&kept.instance), rented.unwrap_or(now));
        if let Some(next) = state.and_then(|state| after_start(&kept, state, known)).filter(|_| !is_deleted) {
            self.kept.change_from(&kept, next)?;
        }
        Ok(state.map(|state| {
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
                // One whose start was accepted may have run until now.
                let since = match kept.state {
                    KeptState::Stopped { since } | KeptState::Starting { since } => since,
                    KeptState::Accepted { .. } | KeptState::Started => client::now(),
                };
                match self.client.tell(&kept.region, &query::stop(handle)) {
                    // Another look tells whether it is.
                    Ok(()) | Err(AwsFailure::NotFound(_)) => {}
                    Err(AwsFailure::Invalid { code, .. }) if code == "IncorrectInstanceState" => {}
                    Err(failure) => return Err(format!("`{handle}` in `{}`: {failure}", kept.region)),
                }
                let written = self.kept.change(&kept, KeptState::Stopped { since });
                written.map_err(|error| format!("cannot write down that `{handle}` is stopped: {error}"))?;
                Ok(true)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::{InstanceId, Node, Offer};

    use super::super::look;
    use super::super::wire::answers::StateName;
    use super::super::wire::scripted::{Script, aws, error, reply};
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
    fn check(answer: Option<&'static str>, expected: (&str, &str, Option<&str>)) {
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
        let state = state_word(&aws);
        let end = EndRequest { instance: InstanceId::new("b-i1"), handle: None };
        assert_eq!(aws.end(std::slice::from_ref(&end)), ProviderAnswer::Ending);
        let asked = script.asked.lock().unwrap();
        let first = |action: &str| asked.iter().position(|asked| asked.contains(action)).unwrap();
        assert!(first("Action=AuthorizeSecurityGroupIngress") < first("Action=StartInstances"), "{asked:?}");
        let last = asked.iter().rev().find_map(|asked| {
            ["Action=TerminateInstances", "Action=StopInstances"].into_iter().find(|action| asked.contains(action))
        });
        assert_eq!((word(&started), state, last), expected, "{answer:?}");
        // Its disk is paid for, and counted, from now on at the latest.
        assert_eq!(state_word(&aws), "stopped", "{answer:?}");
    }

    fn state_word(aws: &Aws) -> &'static str {
        match aws.kept.read("i-1").unwrap().unwrap().state {
            KeptState::Stopped { .. } => "stopped",
            KeptState::Starting { .. } => "starting",
            KeptState::Accepted { .. } => "accepted",
            KeptState::Started => "started",
        }
    }

    #[test]
    fn a_disk_is_deleted_only_by_a_run_that_has_its_machine() {
        let stop = Some("Action=StopInstances");
        // It was accepted and never reached.
        check(None, ("accepted", "accepted", stop));
        check(Some("lost"), ("doubt", "starting", stop));
        check(Some("IncorrectInstanceState"), ("later", "starting", stop));
        check(Some("InsufficientInstanceCapacity"), ("refused", "stopped", stop));
        check(Some("InvalidInstanceID.NotFound"), ("refused", "stopped", stop));
        let home = tempfile::tempdir().unwrap();
        let script = Script::new(|_| Ok(reply(200, "<R/>")));
        let aws = aws(home.path(), script.clone());
        aws.kept.write(&kept("b-i1", KeptState::Started)).unwrap();
        aws.rentals.write(&InstanceId::new("b-i1"), &rental_of(&request("b-i1"))).unwrap();
        aws.end(&[EndRequest { instance: InstanceId::new("b-i1"), handle: None }]);
        let asked = script.asked.lock().unwrap();
        assert!(asked.iter().any(|asked| asked.contains("Action=TerminateInstances")), "{asked:?}");
    }

    fn rental_of(request: &LaunchRequest) -> Rental {
        Rental { handle: Some("i-1".into()), ..Rental::new(request.clone(), "us-east-1".into(), Vec::new()) }
    }

    /// AWS has said yes, and the machine is stopped again without having run: the run learns that, and another start of it is
    /// asked for under another name.
    #[test]
    fn a_start_that_fails_after_it_was_accepted_leaves_a_stopped_machine() {
        let home = tempfile::tempdir().unwrap();
        let aws = aws(home.path(), Script::new(|_| Ok(reply(200, "<R/>"))));
        let since = Timestamp(5);
        let listed = |name: &str| ListedMachine {
            instance_id: "i-1".into(),
            instance_state: StateName { name: name.into() },
            launch_time: "2020-11-23T18:00:00.000Z".into(),
            ..ListedMachine::default()
        };
        let listed_as = |name: &str, rental: &Rental, state: KeptState| {
            aws.rentals.write(&InstanceId::new("b-i1"), rental).unwrap();
            aws.kept.write(&kept("b-i1", state)).unwrap();
            let state = look::state(&listed(name), client::now());
            let handle = domain::rental::MachineHandle("i-1".into());
            let seen = SeenMachine { handle, instance: InstanceId::new("a-i1"), state, notice: None };
            let seen = aws.as_kept(&listed(name), seen).unwrap();
            (seen.map(|seen| seen.state), aws.kept.read("i-1").unwrap().unwrap().state)
        };
        let rental = Rental { rented: Some(client::now()), ..rental_of(&request("b-i1")) };
        let fresh = KeptState::Accepted { since, at: client::now() };
        assert_eq!(listed_as("stopped", &rental, fresh), (None, fresh), "its start is not listed yet");
        let old = KeptState::Accepted { since, at: Timestamp(9) };
        assert_eq!(listed_as("stopped", &rental, old), (Some(MachineState::Gone(None)), KeptState::Stopped { since }));
        assert_eq!(listed_as("running", &rental, old), (Some(MachineState::Running), old), "it was not reached");
        let starting = KeptState::Starting { since };
        let (on, known) = listed_as("pending", &rental, starting);
        assert!(on == Some(MachineState::Pending) && matches!(known, KeptState::Accepted { .. }), "{known:?}");
        // It was started in the console after its end.
        let usage = domain::run::Usage { started: Timestamp(5), elapsed: Elapsed(7) };
        let noted = Rental { gone: Some(usage), ..rental.clone() };
        let stopped = KeptState::Stopped { since };
        assert_eq!(listed_as("running", &noted, stopped), (Some(MachineState::Running), stopped));
        assert_eq!(aws.rentals.read(&InstanceId::new("b-i1")).unwrap().unwrap().gone, None, "it is ended again");
        assert_eq!(aws.kept.waits().unwrap(), []);
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
}
