//! Ends machines, continuing after errors.

use std::collections::BTreeSet;

use domain::rental::EndRequest;

use super::Aws;
use super::wire::answers::ListedMachine;
use super::wire::failure::AwsFailure;
use super::wire::query;
use crate::provider::ProviderAnswer;
use crate::rented::rentals::Rental;

impl Aws {
    /// Ends machines by AWS's names, and others by our tag.
    pub(super) fn end(&self, requests: &[EndRequest]) -> ProviderAnswer {
        let (mut machines, mut failures) = (BTreeSet::new(), Vec::new());
        for request in requests {
            match self.rentals.read(&request.instance) {
                Ok(Some(rental)) if is_gone(request, &rental) => {}
                Ok(rental) => {
                    let elsewhere = rental.as_ref().and_then(|rental| self.is_elsewhere(&request.instance, rental));
                    match elsewhere.map_or_else(|| self.end_kept(request, rental.as_ref()), Err) {
                        Ok(true) => {}
                        Ok(false) => self.name(request, rental.as_ref(), &mut machines, &mut failures),
                        Err(why) => failures.push(why),
                    }
                }
                Err(error) => failures.push(format!("cannot read what `{}` is: {error}", request.instance)),
            }
        }
        for (region, handle) in &machines {
            match self.client.tell(region, &query::terminate(&[handle])) {
                // Not listed yet, or forgotten already: the next view shows whether it is gone.
                Ok(()) | Err(AwsFailure::NotFound(_)) => {}
                Err(failure) => failures.push(format!("`{handle}` in `{region}`: {failure}")),
            }
        }
        match failures.is_empty() {
            true => ProviderAnswer::Ending,
            false => ProviderAnswer::Unavailable(failures.join("; ")),
        }
    }

    /// Adds region and name of every machine that a request means: more than one where a token rented two.
    fn name(
        &self,
        request: &EndRequest,
        rental: Option<&Rental>,
        machines: &mut BTreeSet<(String, String)>,
        failures: &mut Vec<String>,
    ) {
        let told = request.handle.as_ref().map(|handle| &handle.0);
        if let Some(rental) = rental
            && let Some(handle) = told.or(rental.handle.as_ref())
        {
            machines.insert((rental.region.clone(), handle.clone()));
            return;
        }
        let regions = match rental {
            Some(rental) => BTreeSet::from([rental.region.clone()]),
            None => self.rentals.regions().unwrap_or_else(|error| {
                failures.push(format!("cannot read `aws/regions`: {error}"));
                BTreeSet::new()
            }),
        };
        for region in regions {
            // Machines of one request carry the name of the first, so all are listed.
            match self.client.machines(&region, self.owner(), None) {
                Ok(listed) => {
                    let is_meant = |machine: &ListedMachine| {
                        let name = machine.instance();
                        name.as_deref() == Some(request.instance.as_str()) || told == Some(&machine.instance_id)
                    };
                    let living = listed.into_iter().filter(is_meant);
                    let living = living.filter(|machine| machine.instance_state.name != "terminated");
                    machines.extend(living.map(|machine| (region.clone(), machine.instance_id)));
                }
                Err(failure) => failures.push(format!("`{}` in `{region}`: {failure}", request.instance)),
            }
        }
    }
}

/// Whether AWS has reported this very machine as gone; another one of the same token may be running.
fn is_gone(request: &EndRequest, rental: &Rental) -> bool {
    let is_meant = request.handle.as_ref().is_none_or(|handle| Some(&handle.0) == rental.handle.as_ref());
    rental.gone.is_some() && is_meant
}

#[cfg(test)]
mod tests {
    use domain::rental::{LaunchRequest, MachineHandle};
    use domain::run::Usage;
    use domain::{Elapsed, InstanceId, Node, Offer, Timestamp};

    use super::super::wire::scripted::{Script, aws, error, reply};
    use super::*;

    fn ask(instance: &str, handle: Option<&str>) -> EndRequest {
        EndRequest { instance: InstanceId::new(instance), handle: handle.map(|handle| MachineHandle(handle.into())) }
    }

    fn rental(handle: &str, is_gone: bool) -> Rental {
        let offer = Offer {
            provider: "aws".into(),
            kind: "us-east-1/c7i.large".into(),
            node: Node::default(),
            rate: "1/h".parse().unwrap(),
            price_source: String::new(),
        };
        let members = vec![InstanceId::new("r-i1")];
        let request = LaunchRequest {
            members,
            token: "t".into(),
            offer,
            price_cap: None,
            expires: None,
            first_answer: None,
            has_peers: false,
        };
        let gone = is_gone.then_some(Usage { started: Timestamp(0), elapsed: Elapsed(60_000_000) });
        let (region, handle) = ("us-east-1".to_owned(), Some(handle.to_owned()));
        Rental { handle, gone, ..Rental::new(request, region, Vec::new()) }
    }

    #[test]
    fn a_machine_that_cannot_be_ended_does_not_keep_others_alive() {
        let home = tempfile::tempdir().unwrap();
        let script = Script::new(|asked| match asked {
            asked if asked.starts_with("eu-west-1") => Err("no route".into()),
            asked if asked.contains("Action=DescribeInstances") => Ok(reply(
                200,
                "<R><reservationSet><item><instancesSet><item><instanceId>i-3</instanceId></item></instancesSet></item>\
                 </reservationSet></R>",
            )),
            asked if asked.ends_with("InstanceId.1=i-1") => Ok(error("OperationNotPermitted")),
            _ => Ok(reply(200, "<R/>")),
        });
        let aws = aws(home.path(), script.clone());
        aws.rentals.note_region("eu-west-1").unwrap();
        aws.rentals.note_region("us-east-1").unwrap();
        for (instance, handle) in [("r-i1", "i-1"), ("r-i2", "i-2")] {
            aws.rentals.write(&InstanceId::new(instance), &rental(handle, false)).unwrap();
        }
        let answer = aws.end(&[ask("r-i1", None), ask("r-i2", None), ask("r-i3", Some("i-3"))]);
        let ProviderAnswer::Unavailable(why) = &answer else { panic!("{answer:?}") };
        assert!(why.contains("`i-1`") && why.contains("OperationNotPermitted") && why.contains("no route"), "{why}");
        let asked = script.asked.lock().unwrap();
        for handle in ["i-1", "i-2", "i-3"] {
            let is_ended = |asked: &&String| asked.contains("Terminate") && asked.ends_with(&format!("={handle}"));
            assert_eq!(asked.iter().filter(is_ended).count(), 1, "{handle} in {asked:?}");
        }
    }

    #[test]
    fn a_second_machine_of_a_token_is_ended_when_the_first_is_gone() {
        let check = |handle, is_gone, expected| {
            assert_eq!(super::is_gone(&ask("r-i1", handle), &rental("i-1", is_gone)), expected, "{handle:?}");
        };
        check(None, true, true);
        check(Some("i-1"), true, true);
        check(Some("i-2"), true, false);
        check(None, false, false);
    }
}
