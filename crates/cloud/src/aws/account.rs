//! In which account a machine of AWS was rented. Credentials belong to one account: machines of another one are neither listed
//! nor ended with them, and so are never taken for gone. Where STS cannot be reached, as in some private networks, work continues
//! with an account that is not known, as long as the key stays the same.

use std::collections::BTreeMap;
use std::io;

use domain::InstanceId;
use domain::rental::ProviderView;

use super::Aws;
use super::wire::failure::AwsFailure;
use crate::rented::account::{elsewhere, other_account};
use crate::rented::rentals::Rental;

impl Aws {
    /// What is said of a machine that was rented in another account than that of the credentials; none where it was not, or
    /// where whose they are is not known now.
    pub(super) fn is_elsewhere(&self, instance: &InstanceId, rental: &Rental) -> Option<String> {
        rental.account.as_ref()?;
        let now = self.client.account_if_known(&rental.region).ok()?;
        let account = other_account(rental, Some(&now))?;
        Some(elsewhere([instance], (account, &now), None))
    }

    /// What is said of a request that another key may have rented with, where it is not known whose that key is: sent again it
    /// could rent a second machine. Keys that end are replaced by others of the same identity, and say nothing.
    pub(super) fn is_of_other_key(&self, instance: &InstanceId, rental: &Rental) -> Option<String> {
        let before = rental.key.as_ref().filter(|_| rental.account.is_none() && rental.unanswered > 0)?;
        let now = self.client.key(&rental.region).ok().filter(|lease| lease.until.is_none())?;
        (now.key.id != *before).then(|| {
            format!(
                "`{instance}` was asked for with the key `{before}`, and here `{}` is set: AWS STS did not say whose the first \
                 one is, so set it again and restart gradus",
                now.key.id
            )
        })
    }

    /// Counts a request that is about to be sent, and notes its key unless keys end.
    pub(super) fn count_sent(&self, instance: &InstanceId, rental: &Rental) -> io::Result<()> {
        let lease = self.client.key(&rental.region).ok().filter(|lease| lease.until.is_none());
        let key = lease.map(|lease| lease.key.id);
        let counted = self.rentals.change(instance, |rental| {
            rental.unanswered = rental.unanswered.saturating_add(1);
            rental.key = key;
            true
        })?;
        counted.map(drop).ok_or_else(|| io::Error::from(io::ErrorKind::NotFound))
    }

    /// Writes down the account of a machine that was rented without it, as by an earlier version: what is listed is in the
    /// credentials' own.
    pub(super) fn learn_account(&self, instance: &InstanceId, rental: &Rental) {
        if rental.account.is_some() {
            return;
        }
        let Ok(account) = self.client.account_if_known(&rental.region) else { return };
        // Where it cannot be written down, the next look tries again.
        let _ = self.rentals.change(instance, |rental| {
            rental.account.get_or_insert(account);
            true
        });
    }

    /// Sees to it that there is a key, and that it is known whose it is where another one may have been used before.
    ///
    /// # Errors
    /// [`AwsFailure`].
    pub(super) fn known_key(&self, rental: &Rental) -> Result<(), AwsFailure> {
        let lease = self.client.key(&rental.region)?;
        // The key with which it was sent before is one of the same account.
        match rental.account.is_none() || rental.key.as_ref() == Some(&lease.key.id) {
            true => Ok(()),
            false => self.client.account(&rental.region).map(drop),
        }
    }

    /// Notes in a view which of these machines the credentials cannot see: those of other accounts. Where it is not known whose
    /// the credentials are, what is missing is not known to be gone.
    pub(super) fn note_elsewhere(&self, rented: &[(InstanceId, Rental)], view: &mut ProviderView) {
        let here = rented.iter().filter(|(_, rental)| rental.gone.is_none() && rental.account.is_some());
        let here: Vec<&(InstanceId, Rental)> = here.collect();
        let Some((_, first)) = here.first() else { return };
        let now = match self.client.account_if_known(&first.region) {
            Ok(now) => now,
            Err(failure) => {
                view.is_complete = false;
                view.unseen.push(format!("it is not known which account the credentials belong to: {failure}"));
                return;
            }
        };
        let mut others: BTreeMap<&str, Vec<&InstanceId>> = BTreeMap::new();
        for (instance, rental) in here {
            if let Some(account) = other_account(rental, Some(&now)) {
                others.entry(account).or_default().push(instance);
            }
        }
        for (account, machines) in others {
            view.is_complete = false;
            view.unseen.push(elsewhere(machines, (account, &now), None));
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::rental::{EndRequest, LaunchRequest, ProviderAnswer};
    use domain::{Node, Offer};

    use super::super::wire::scripted::{Script, aws, reply};
    use super::*;

    fn rental(account: Option<&str>) -> Rental {
        let offer = Offer {
            provider: "aws".into(),
            kind: "us-east-1/c7i.large".into(),
            node: Node::default(),
            rate: "1/h".parse().unwrap(),
            price_source: String::new(),
        };
        let request = LaunchRequest {
            members: vec![InstanceId::new("r-i1")],
            token: "t".into(),
            offer,
            price_cap: None,
            expires: None,
            first_answer: None,
            has_peers: false,
        };
        let (handle, account) = (Some("i-1".to_owned()), account.map(str::to_owned));
        Rental { handle, account, ..Rental::new(request, "us-east-1".into(), Vec::new()) }
    }

    /// Credentials of account 2, in which nothing is rented. What is seen, asked for and ended of a machine of `account`.
    fn check(account: Option<&str>, expected: (bool, usize, &str)) {
        let home = tempfile::tempdir().unwrap();
        let script = Script::new(|asked| match asked.contains("GetCallerIdentity") {
            true => Ok(reply(200, "<R><GetCallerIdentityResult><Account>2</Account></GetCallerIdentityResult></R>")),
            false => Ok(reply(200, "<R/>")),
        });
        let aws = aws(home.path(), script.clone());
        let instance = InstanceId::new("r-i1");
        aws.rentals.write(&instance, &rental(account)).unwrap();
        let ProviderAnswer::Observed(view) = aws.observe(std::slice::from_ref(&instance)) else { panic!() };
        let ended = match aws.end(&[EndRequest { instance: instance.clone(), handle: None }]) {
            ProviderAnswer::Ending => "ending",
            ProviderAnswer::Unavailable(why) if why.contains("rented in account `1`, and here `2` is set") => "told",
            other => panic!("{other:?}"),
        };
        assert_eq!((view.is_complete, view.unseen.len(), ended), expected, "{account:?} {view:?}");
        let asked = script.asked.lock().unwrap();
        let terminated = asked.iter().any(|asked| asked.contains("TerminateInstances"));
        assert_eq!(terminated, ended == "ending", "{asked:?}");
    }

    #[test]
    fn without_sts_a_request_in_doubt_is_repeated_with_the_same_key_alone() {
        let check = |account: Option<&str>, before: Option<&str>, unanswered: u32, expected: bool| {
            let home = tempfile::tempdir().unwrap();
            let script = Script::new(|_| Err("no route".to_owned()));
            let aws = aws(home.path(), script.clone());
            let known = Rental { key: before.map(str::to_owned), unanswered, handle: None, ..rental(account) };
            let instance = InstanceId::new("r-i1");
            aws.rentals.write(&instance, &known).unwrap();
            let answer = aws.launch(&known.request);
            assert!(matches!(answer, ProviderAnswer::Doubt(_)), "{answer:?}");
            let is_sent = script.asked.lock().unwrap().iter().any(|asked| asked.contains("Action=RunInstances"));
            assert_eq!(is_sent, expected, "{account:?} {before:?} {unanswered} {answer:?}");
            let noted = aws.rentals.read(&instance).unwrap().unwrap().key;
            assert_eq!(noted.as_deref(), if expected { Some("key") } else { before });
        };
        check(None, Some("key"), 1, true);
        check(None, Some("other"), 1, false);
        check(Some("2"), Some("key"), 1, true);
        check(Some("2"), Some("other"), 1, false);
        // Nothing was sent with it.
        check(None, Some("other"), 0, true);
        // Of an earlier version, which did not write it down.
        check(None, None, 1, true);
    }

    #[test]
    fn a_machine_of_another_account_is_neither_gone_nor_ended() {
        check(Some("2"), (true, 0, "ending"));
        check(Some("1"), (false, 1, "told"));
        // Of an earlier version, which did not write it down.
        check(None, (true, 0, "ending"));
    }
}
