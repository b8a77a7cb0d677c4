//! What comes before the start of a stopped machine, at any cloud: whether it may be asked for, and what is written down first.

use domain::rental::LaunchRequest;
use domain::{InstanceId, Timestamp};

use super::{KeptMachine, KeptMachines, KeptState};
use crate::provider::ProviderAnswer;
use crate::rented::reach::Reach;
use crate::rented::refused;
use crate::rented::rentals::{Rental, Rentals};

/// The one machine that a start is asked for.
///
/// # Errors
/// The refusal where there are several.
pub(crate) fn alone(members: &[InstanceId]) -> Result<&InstanceId, ProviderAnswer> {
    match members {
        [instance] => Ok(instance),
        _ => Err(refused("a stopped machine is started alone".to_owned())),
    }
}

impl KeptMachines {
    /// A machine that is to be started under this name, and since when its disk alone is paid for; none where this name has it
    /// already.
    ///
    /// # Errors
    /// The answer where it cannot be started, or where that is not known.
    pub(crate) fn to_start(
        &self,
        handle: &str,
        instance: &InstanceId,
    ) -> Result<Option<(KeptMachine, Timestamp)>, ProviderAnswer> {
        let known = match self.read(handle) {
            Ok(Some(known)) => known,
            Ok(None) => {
                let message = format!("no machine `{handle}` is stopped here; `gradus machines list` shows all");
                return Err(refused(message));
            }
            Err(error) => return Err(ProviderAnswer::Doubt(format!("cannot read what `{handle}` is: {error}"))),
        };
        match known.state {
            KeptState::Started if known.instance != *instance => {
                Err(refused(format!("`{handle}` is started, and `{}` has it", known.instance)))
            }
            KeptState::Accepted { .. } if known.instance != *instance => {
                Err(refused(format!("`{handle}` is being started, and `{}` has it", known.instance)))
            }
            KeptState::Started | KeptState::Accepted { .. } => Ok(None),
            KeptState::Stopped { since } | KeptState::Starting { since } => Ok(Some((known, since))),
        }
    }
}

/// The request of a start, on disk before it is sent: with the machine's name, so that an end of it finds it. `rented` is when
/// its rent begins, where the cloud does not say so later.
///
/// # Errors
/// The answer where it cannot be asked for.
pub(crate) fn rental_of_start(
    (rentals, reach): (&Rentals, &Reach),
    (instance, request): (&InstanceId, &LaunchRequest),
    known: &KeptMachine,
    rented: Option<Timestamp>,
) -> Result<Rental, ProviderAnswer> {
    match rentals.asked(instance, &request.token)? {
        // Earlier versions wrote down that it was ending.
        Some(rental) if rental.is_given_up || rental.is_ending => {
            return Err(refused(format!("the end of `{instance}` was asked for")));
        }
        Some(rental) => return Ok(rental),
        None => {}
    }
    let rental = Rental {
        account: known.account.clone(),
        reach: reach.wanted()?,
        handle: Some(known.handle.clone()),
        rented,
        ..Rental::new(request.clone(), known.region.clone(), Vec::new())
    };
    let written = rentals.write(instance, &rental);
    written.map_err(|error| refused(format!("cannot prepare to start `{}`: {error}", known.handle)))?;
    Ok(rental)
}

#[cfg(test)]
mod tests {
    use domain::rental::Refusal;
    use domain::{Node, Offer};

    use super::*;

    fn kept(state: KeptState) -> KeptMachine {
        let (node, rate) = (Node::default(), "1/h".parse().unwrap());
        let kind = "us-east-1/c7i.large".into();
        KeptMachine {
            handle: "i-1".into(),
            region: "us-east-1".into(),
            account: None,
            instance: InstanceId::new("a-i1"),
            offer: Offer { provider: "aws".into(), kind, node, rate, price_source: String::new() },
            disk: "0.02/h".parse().unwrap(),
            state,
        }
    }

    #[test]
    fn a_machine_that_another_run_has_is_not_started() {
        let home = tempfile::tempdir().unwrap();
        let machines = KeptMachines::new(home.path(), "aws");
        let since = Timestamp(5);
        let check = |state: Option<KeptState>, name: &str, expected: &str| {
            state.iter().for_each(|state| machines.write(&kept(*state)).unwrap());
            let found = match machines.to_start("i-1", &InstanceId::new(name)) {
                Ok(Some((known, at))) => format!("{} since {}", known.handle, at.0),
                Ok(None) => "has it".to_owned(),
                Err(ProviderAnswer::Refused(Refusal::Invalid { message, .. })) => message,
                Err(other) => panic!("{other:?}"),
            };
            assert_eq!(found, expected, "{state:?} {name}");
        };
        check(None, "b-i1", "no machine `i-1` is stopped here; `gradus machines list` shows all");
        check(Some(KeptState::Stopped { since }), "b-i1", "i-1 since 5");
        check(Some(KeptState::Starting { since }), "b-i1", "i-1 since 5");
        let accepted = KeptState::Accepted { since, at: Timestamp(9) };
        check(Some(accepted), "a-i1", "has it");
        check(Some(accepted), "b-i1", "`i-1` is being started, and `a-i1` has it");
        check(Some(KeptState::Started), "a-i1", "has it");
        check(Some(KeptState::Started), "b-i1", "`i-1` is started, and `a-i1` has it");
    }

    #[test]
    fn a_stopped_machine_is_started_alone() {
        let members = ["a-i1", "a-i2"].map(InstanceId::new);
        assert_eq!(alone(&members[..1]), Ok(&members[0]));
        assert!(alone(&members).is_err() && alone(&[]).is_err());
    }
}
