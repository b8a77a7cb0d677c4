//! In which account of a cloud a machine was rented, and what follows where the user has since named another one.
//!
//! A machine that another account lists, or that none lists which can be asked, is not gone: it costs money until the
//! account in which it was rented says otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use domain::InstanceId;

use super::rentals::{Rental, Rentals};
use super::{CloudApi, CloudFailure, Rented};

/// For so long a failure to ask whose credentials are stands: each machine of a list would wait for another one.
const UNKNOWN_FOR: Duration = Duration::from_secs(30);

/// The account of credentials that stay the same, for a cloud that has to be asked: until it has said so once.
#[derive(Debug, Default)]
pub(crate) struct CallerAccount {
    last: Mutex<Option<AskedCaller>>,
}

/// What the cloud has said.
#[derive(Debug)]
struct AskedCaller {
    account: Result<String, CloudFailure>,
    at: Instant,
}

impl CallerAccount {
    /// The account, for which `ask` asks the cloud.
    ///
    /// # Errors
    /// Why it is not known: [`CloudFailure::Doubt`] where the cloud names none.
    pub fn known(&self, ask: impl FnOnce() -> Result<String, CloudFailure>) -> Result<String, CloudFailure> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(last) = last.as_ref()
            && (last.account.is_ok() || last.at.elapsed() < UNKNOWN_FOR)
        {
            return last.account.clone();
        }
        let none = || CloudFailure::Doubt("the cloud names no account for this key".to_owned());
        let account = ask().and_then(|account| if account.is_empty() { Err(none()) } else { Ok(account) });
        *last = Some(AskedCaller { account: account.clone(), at: Instant::now() });
        account
    }
}

/// What is said where it is not known which account is set.
pub(crate) fn unknown(failure: &CloudFailure) -> String {
    format!("it is not known which account the credentials belong to: {failure}")
}

/// The account of a rental if it is not the one of now. A rental of a version that did not write it down is taken for one of
/// now's.
pub(crate) fn other_account<'a>(rental: &'a Rental, now: Option<&str>) -> Option<&'a str> {
    let (of, now) = (rental.account.as_deref()?, now?);
    (of != now).then_some(of)
}

/// What is said of machines that cannot be looked at or changed with the credentials of now.
pub(crate) fn elsewhere<'a>(
    machines: impl IntoIterator<Item = &'a InstanceId>,
    (account, now): (&str, &str),
    why: Option<&str>,
) -> String {
    let names: Vec<String> = machines.into_iter().map(|machine| format!("`{machine}`")).collect();
    let (was, they_count) = if names.len() == 1 { ("was", "it counts") } else { ("were", "they count") };
    let why = why.map(|why| format!(" ({why})")).unwrap_or_default();
    let set = if now.is_empty() { "none is set here".to_owned() } else { format!("here `{now}` is set") };
    format!(
        "{} {was} rented in account `{account}`, and {set}{why}: set `{account}` with its credentials again and restart gradus; \
         until then {they_count} as rented, also once ended in the cloud's console",
        names.join(", ")
    )
}

/// What is said of those of these machines that were rented in another account than that of now: a sentence for each account.
pub fn rented_elsewhere(home: &Path, cloud: &'static str, rented: &BTreeSet<InstanceId>, now: &str) -> Vec<String> {
    let rentals = Rentals::new(home, cloud);
    let mut others: BTreeMap<String, Vec<&InstanceId>> = BTreeMap::new();
    for instance in rented {
        let rental = rentals.read(instance).ok().flatten().filter(|rental| rental.gone.is_none());
        if let Some(account) = rental.as_ref().and_then(|rental| other_account(rental, Some(now))) {
            others.entry(account.to_owned()).or_default().push(instance);
        }
    }
    others.into_iter().map(|(account, machines)| elsewhere(machines, (&account, now), None)).collect()
}

impl<C: CloudApi> Rented<C> {
    /// The API of the account in which a machine was rented; none for that of now.
    ///
    /// # Errors
    /// What to say where it cannot be asked, or where it is not known which account is that of now.
    pub(super) fn api_of(&self, instance: &InstanceId, rental: &Rental) -> Result<Option<C>, String> {
        // What has no account is taken for one of now's, whichever that is.
        if rental.account.is_none() {
            return Ok(None);
        }
        let now = self.api.account().map_err(|failure| unknown(&failure))?;
        let Some(account) = other_account(rental, now.as_deref()) else { return Ok(None) };
        let none = || elsewhere([instance], (account, now.as_deref().unwrap_or_default()), None);
        self.api.of_account(account).map(Some).ok_or_else(none)
    }

    /// The machines that are asked about by the account in which each was rented; none for that of `now`. What is known to be
    /// gone needs no account. Where it is not known which account is that of now, machines with an account are of none.
    pub(super) fn by_account(
        &self,
        asked: &[InstanceId],
        now: &Result<Option<String>, CloudFailure>,
    ) -> BTreeMap<Option<String>, Vec<InstanceId>> {
        let now = now.as_ref().map_or(Some(""), Option::as_deref);
        let mut all = BTreeMap::from([(None, Vec::new())]);
        for instance in asked {
            let rental = self.rentals.read(instance).ok().flatten().filter(|rental| rental.gone.is_none());
            let account = rental.as_ref().and_then(|rental| other_account(rental, now)).map(str::to_owned);
            all.entry(account).or_default().push(instance.clone());
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whose_a_key_is_is_asked_until_the_cloud_has_said_so() {
        let account = CallerAccount::default();
        let said = || account.known(|| Ok("1".to_owned()));
        assert_eq!(said(), Ok("1".to_owned()));
        assert_eq!(account.known(|| panic!("it is known")), Ok("1".to_owned()));
        let account = CallerAccount::default();
        let failed = || Err(CloudFailure::Doubt("no answer".to_owned()));
        assert_eq!(account.known(failed), failed());
        assert_eq!(account.known(|| panic!("it was asked a moment ago")), failed());
        let account = CallerAccount::default();
        assert!(matches!(account.known(|| Ok(String::new())), Err(CloudFailure::Doubt(_))), "no account is none");
    }

    #[test]
    fn what_is_elsewhere_is_named_with_its_account_and_what_to_do() {
        let (one, two) = (InstanceId::new("r-i1"), InstanceId::new("r-i2"));
        assert_eq!(
            elsewhere([&one], ("old", "new"), None),
            "`r-i1` was rented in account `old`, and here `new` is set: set `old` with its credentials again and restart \
             gradus; until then it counts as rented, also once ended in the cloud's console"
        );
        let unset = elsewhere([&one], ("old", ""), None);
        assert!(unset.contains("and none is set here: "), "{unset}");
        let several = elsewhere([&one, &two], ("old", "new"), Some("HTTP status 403"));
        assert!(several.starts_with("`r-i1`, `r-i2` were rented in account `old`"), "{several}");
        assert!(
            several.contains("(HTTP status 403)") && several.contains("until then they count as rented, also"),
            "{several}"
        );
    }
}
