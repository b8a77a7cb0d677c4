//! Rents one machine: the request is on disk before it is sent, and repeated verbatim. So is the fact that it was sent:
//! until every request is answered, no refusal of another one proves that nothing was rented.

use std::io;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

use domain::InstanceId;
use domain::rental::{LaunchRequest, MachineHandle, Refusal};

use super::order::order;
use super::wire::answers::{ListedMachine, Reservation};
use super::wire::failure::AwsFailure;
use super::wire::query;
use super::{Aws, site};
use crate::provider::ProviderAnswer;
use crate::rented::kept::named_machine;
use crate::rented::rentals::Rental;
use crate::rented::user_data::user_data_with_cache;
use crate::rented::{MachineChoice, key};

/// A request that was delayed longer than this is not sent: the caller has timed out, and measures the time of its
/// possible effect from the call.
const SENT_WITHIN: Duration = Duration::from_secs(60);

impl Aws {
    pub(super) fn launch(&self, request: &LaunchRequest) -> ProviderAnswer {
        match named_machine(&request.offer.kind) {
            Some(named) => self.start_kept(request, named),
            None => self.rent(request),
        }
    }

    fn rent(&self, request: &LaunchRequest) -> ProviderAnswer {
        let asked = Instant::now();
        let Some(first) = request.members.first().filter(|first| are_following(first, &request.members)) else {
            return refused("the machine names of one request are not consecutive".to_owned());
        };
        let rental = match self.rental(first, request) {
            Ok(rental) => rental,
            Err(answer) => return answer,
        };
        if let Some(handles) = self.known_handles(&request.members) {
            return accepted(&request.members, handles);
        }
        // Without a key nothing is sent.
        if let Err(failure) = self.known_key(&rental) {
            return unsent(&failure, rental.unanswered);
        }
        // In another account the same request would rent a second machine.
        let other = self.is_elsewhere(first, &rental).or_else(|| self.is_of_other_key(first, &rental));
        if let Some(why) = other {
            return ProviderAnswer::Doubt(why);
        }
        if !is_in_time(asked, Instant::now()) {
            return too_late();
        }
        if let Err(error) = self.count_sent(first, &rental) {
            return ProviderAnswer::Doubt(format!("cannot write down that `{first}` is asked for: {error}"));
        }
        let answer = self.client.ask::<Reservation>(&rental.region, &query::run_instances(rental.params.clone()));
        let handles = match answer {
            Ok(reservation) => handles(&reservation.instances_set.item, request.members.len()),
            Err(AwsFailure::TokenReused(said)) => match self.rented_before(&rental, &request.members) {
                Some(handles) => Some(handles),
                None => return ProviderAnswer::Doubt(said),
            },
            Err(failure) if failure.refusal().is_none() => return ProviderAnswer::Doubt(failure.to_string()),
            Err(failure) => {
                return match self.count_answered(first) {
                    Ok(others) => judged(&failure, others),
                    Err(error) => {
                        ProviderAnswer::Doubt(format!("cannot write down that AWS says `{failure}`: {error}"))
                    }
                };
            }
        };
        let Some(handles) = handles else {
            return ProviderAnswer::Doubt("AWS has taken the request and not named all machines".to_owned());
        };
        for (member, handle) in request.members.iter().zip(&handles) {
            let known = self.rentals.change(member, |rental| {
                rental.handle = Some(handle.clone());
                true
            });
            // It is rented. A repeated request with the same token gets the same answer.
            if let Err(error) = known {
                return ProviderAnswer::Doubt(format!("cannot write down that `{handle}` was rented: {error}"));
            }
        }
        accepted(&request.members, handles)
    }

    /// AWS's names of all machines of a request, if they were told.
    fn known_handles(&self, members: &[InstanceId]) -> Option<Vec<String>> {
        members.iter().map(|member| self.rentals.read(member).ok().flatten()?.handle).collect()
    }

    /// Counts a request that was answered; how many are unanswered now.
    fn count_answered(&self, instance: &InstanceId) -> io::Result<u32> {
        let rental = self.rentals.change(instance, |rental| {
            rental.unanswered = rental.unanswered.saturating_sub(1);
            true
        })?;
        rental.map(|rental| rental.unanswered).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// The stored request, or else a new one: serialized, so that an abandoned call and its repetition send the same
    /// request.
    fn rental(&self, instance: &InstanceId, request: &LaunchRequest) -> Result<Rental, ProviderAnswer> {
        let region = request.offer.kind.split('/').next().unwrap_or_default();
        let one_at_a_time = self.preparing(region);
        let _one_at_a_time = one_at_a_time.lock().unwrap_or_else(PoisonError::into_inner);
        match self.rentals.asked(instance, &request.token)? {
            Some(rental) => self.reach.require_for(&rental).map(|()| rental),
            None => self.ordered(instance, request),
        }
    }

    /// Prepares the region and stores the request. This rents nothing.
    fn ordered(&self, instance: &InstanceId, request: &LaunchRequest) -> Result<Rental, ProviderAnswer> {
        let choice: MachineChoice = request.offer.kind.parse().map_err(refused)?;
        let reach = self.reach.wanted()?;
        let here = |error: std::io::Error| refused(format!("cannot prepare to rent `{}`: {error}", request.offer.kind));
        let key = {
            let _one_at_a_time = self.sharing.lock().unwrap_or_else(PoisonError::into_inner);
            self.rentals.note_region(&choice.region).map_err(here)?;
            key::public_key(&self.rentals.shared()).map_err(here)?
        };
        let wanted = (request.has_peers, request.members.len());
        let site = site::prepare(&self.client, &self.settings.options, self.owner(), &choice, wanted);
        let site = site.map_err(|failure| unsent(&failure, 0))?;
        let cap = self.bid(request, &choice);
        let account = self.client.account_if_known(&choice.region).ok();
        let params = order(request, &choice, (&site, cap), self.owner(), &user_data_with_cache(&key, self.owner()));
        // The agent of each is started with a request of its own. That of the first is what is sent.
        let of = |member: &InstanceId| LaunchRequest { members: vec![member.clone()], ..request.clone() };
        for member in &request.members[1..] {
            let rental = Rental::new(of(member), choice.region.clone(), Vec::new());
            let rental = Rental { account: account.clone(), reach, ..rental };
            self.rentals.write(member, &rental).map_err(here)?;
        }
        let rental = Rental { account, reach, ..Rental::new(of(instance), choice.region, params) };
        self.rentals.write(instance, &rental).map_err(here)?;
        Ok(rental)
    }

    /// The machines that this token has rented with other parameters: those on disk were lost, and created again.
    fn rented_before(&self, rental: &Rental, members: &[InstanceId]) -> Option<Vec<String>> {
        let first = members.first()?;
        let machines = self.client.machines(&rental.region, self.owner(), Some(first.as_str())).ok()?;
        let of = |member: &InstanceId| {
            let mut named = machines.iter().filter(|machine| !machine.instance_id.is_empty());
            let found = named.find(|machine| machine.instance().as_deref() == Some(member.as_str()))?;
            Some(found.instance_id.clone())
        };
        members.iter().map(of).collect()
    }
}

/// Whether the members of a request are numbered one after the other, by which their machines are told apart.
fn are_following(first: &InstanceId, members: &[InstanceId]) -> bool {
    (0..).zip(members).all(|(index, member)| index == 0 || first.following(index).as_ref() == Some(member))
}

/// AWS's names of so many machines, in the order of the request.
fn handles(machines: &[ListedMachine], count: usize) -> Option<Vec<String>> {
    let index = |machine: &ListedMachine| machine.ami_launch_index.parse::<usize>().unwrap_or(0);
    let of = |at: usize| {
        let found = machines.iter().find(|machine| index(machine) == at && !machine.instance_id.is_empty())?;
        Some(found.instance_id.clone())
    };
    (0..count).map(of).collect()
}

/// The conclusion from a refusal while other requests for the same machine are unanswered. AWS checks the caller and
/// the parameters before the token: such a refusal does not show what the token has rented.
fn judged(failure: &AwsFailure, others: u32) -> ProviderAnswer {
    let doubt = |why: &str| ProviderAnswer::Doubt(format!("{failure}{why}"));
    match failure.refusal() {
        None => doubt(""),
        Some(Refusal::Denied { .. } | Refusal::Invalid { .. }) if others > 0 => {
            doubt("; a request before it was not answered and may have rented")
        }
        Some(refusal) => ProviderAnswer::Refused(refusal),
    }
}

/// The answer if the request itself was not sent. Only a doubt carries the reason, and is retried.
pub(super) fn unsent(failure: &AwsFailure, others: u32) -> ProviderAnswer {
    match judged(failure, others) {
        ProviderAnswer::Doubt(why) => ProviderAnswer::Doubt(format!("it could not be asked for now: {why}")),
        other => other,
    }
}

/// Whether a request may still be sent.
pub(super) fn is_in_time(asked: Instant, now: Instant) -> bool {
    now.saturating_duration_since(asked) < SENT_WITHIN
}

/// The answer if it may not.
pub(super) fn too_late() -> ProviderAnswer {
    ProviderAnswer::Doubt("it took too long to prepare the request, so it was not sent".to_owned())
}

pub(super) fn accepted(members: &[InstanceId], handles: Vec<String>) -> ProviderAnswer {
    ProviderAnswer::Accepted(members.iter().cloned().zip(handles.into_iter().map(MachineHandle)).collect())
}

pub(super) fn refused(message: String) -> ProviderAnswer {
    ProviderAnswer::Refused(Refusal::Invalid { message, disk: None })
}

#[cfg(test)]
mod tests {
    use super::super::wire::scripted::{Script, aws, aws_reached, error};
    use super::*;
    use crate::ssh::NodeReach;

    fn request() -> LaunchRequest {
        let offer = domain::Offer {
            provider: "aws".into(),
            kind: "us-east-1/g4dn.xlarge".into(),
            node: domain::Node::default(),
            rate: "1/h".parse().unwrap(),
            price_source: String::new(),
        };
        let members = vec![InstanceId::new("r-i1")];
        LaunchRequest {
            members,
            token: "token".into(),
            offer,
            price_cap: None,
            expires: None,
            first_answer: None,
            has_peers: false,
        }
    }

    fn rental(unanswered: u32) -> Rental {
        Rental { unanswered, ..Rental::new(request(), "us-east-1".into(), Vec::new()) }
    }

    /// The outcome of each of these answers to `RunInstances`, each after a restart of the loop.
    fn check(before: u32, replies: &[Option<&str>], expected: &str) {
        let home = tempfile::tempdir().unwrap();
        let instance = InstanceId::new("r-i1");
        let mut shown = Vec::new();
        for (at, reply) in replies.iter().enumerate() {
            let reply = reply.map(error).ok_or("lost".to_owned());
            let aws = aws(home.path(), Script::new(move |_| reply.clone()));
            if at == 0 {
                aws.rentals.write(&instance, &rental(before)).unwrap();
            }
            let word = match aws.launch(&request()) {
                ProviderAnswer::Refused(_) => "refused",
                ProviderAnswer::Doubt(_) => "doubt",
                other => panic!("{other:?}"),
            };
            shown.push(format!("{word} {}", aws.rentals.read(&instance).unwrap().unwrap().unanswered));
        }
        assert_eq!(shown.join(", "), expected, "{replies:?}");
    }

    #[test]
    fn a_refusal_proves_nothing_while_another_request_is_unanswered() {
        check(0, &[Some("ExpiredToken")], "refused 0");
        check(0, &[Some("InvalidAMIID.NotFound"), Some("UnauthorizedOperation")], "refused 0, refused 0");
        check(0, &[None, Some("ExpiredToken")], "doubt 1, doubt 1");
        for code in ["AuthFailure", "UnauthorizedOperation", "InvalidParameterValue", "InvalidAMIID.NotFound"] {
            check(1, &[Some(code)], "doubt 1");
        }
        check(1, &[Some("InsufficientInstanceCapacity"), Some("RequestLimitExceeded")], "refused 1, refused 1");
        check(0, &[Some("InternalError"), Some("IdempotentInstanceTerminated")], "doubt 1, doubt 2");
    }

    #[test]
    fn machines_that_call_over_tls_are_rented_only_where_they_are_heard() {
        let (home, instance) = (tempfile::tempdir().unwrap(), InstanceId::new("r-i1"));
        let script = Script::new(|_| Ok(error("InsufficientInstanceCapacity")));
        let deaf = |reach| aws_reached(home.path(), script.clone(), reach);
        let refused = |aws: &Aws| match aws.launch(&request()) {
            ProviderAnswer::Refused(Refusal::Denied { message }) => {
                assert!(message.contains("--agents-at"), "{message}");
            }
            other => panic!("{other:?}"),
        };
        refused(&deaf(NodeReach::Tls));
        assert_eq!(deaf(NodeReach::Tls).rentals.read(&instance).unwrap(), None);
        // It was prepared by a server that has an address, and never sent.
        let direct = Rental { reach: NodeReach::Tls, ..rental(0) };
        deaf(NodeReach::Tunnel).rentals.write(&instance, &direct).unwrap();
        refused(&deaf(NodeReach::Tunnel));
        assert_eq!(script.asked.lock().unwrap().len(), 0, "nothing was asked for");
        // That it was sent before is not to be forgotten.
        deaf(NodeReach::Tunnel).rentals.write(&instance, &Rental { unanswered: 1, ..direct }).unwrap();
        assert!(matches!(deaf(NodeReach::Tls).launch(&request()), ProviderAnswer::Refused(Refusal::Capacity { .. })));
    }

    #[test]
    fn a_file_that_does_not_say_what_was_answered_is_in_doubt() {
        let mut text = serde_json::to_value(rental(0)).unwrap();
        text.as_object_mut().unwrap().remove("unanswered");
        assert_eq!(serde_json::from_value::<Rental>(text).unwrap().unanswered, 1);
    }

    #[test]
    fn a_request_is_not_sent_after_its_caller_has_given_up() {
        let asked = Instant::now();
        assert!(is_in_time(asked, asked) && is_in_time(asked, asked + Duration::from_secs(59)));
        assert!(!is_in_time(asked, asked + Duration::from_secs(60)));
    }

    #[test]
    fn what_could_not_be_prepared_is_asked_again_and_says_why() {
        let why = |failure| match unsent(&failure, 0) {
            ProviderAnswer::Doubt(why) => why,
            other => panic!("{other:?}"),
        };
        let said = why(AwsFailure::Doubt("no answer from AWS: timed out".into()));
        assert_eq!(said, "it could not be asked for now: no answer from AWS: timed out");
        let refused = unsent(&AwsFailure::Credentials("none".into()), 0);
        assert!(matches!(refused, ProviderAnswer::Refused(Refusal::Denied { .. })), "{refused:?}");
    }
}
