//! Every machine of an owner that a cloud lists, its cost, and whether a run has it.
//!
//! The intent to rent is on disk before a cloud is asked. So what runs have is read after the cloud was: then a machine that no
//! run has was not rented by any that is still there, also where the cloud does not say how old it is.

pub mod price;
pub mod resource;
pub mod unused;
pub mod verdict;

use std::collections::BTreeSet;

use domain::listing::{Cloud, Listing};
use domain::{Duration, InstanceId, Rate, Timestamp};

use super::names::{ANY_PREFIX, name_prefix};
use super::{CloudApi, CloudFailure, CloudMachine, MachinePlace, machine_name};
use crate::catalog::Catalog;

/// A machine that an audit found.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct AuditedMachine {
    pub region: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub zone: Option<String>,
    /// The cloud's name.
    pub handle: String,
    /// Ours, or where that is not known what the cloud calls it.
    pub instance: InstanceId,
    /// Such as `p4d.24xlarge`, or `p4d.24xlarge/spot`.
    pub machine: String,
    pub state: String,
    /// Its price, if the catalog has it.
    pub rate: Option<Rate>,
    /// How long it has been there, if the cloud says so.
    pub age: Option<Duration>,
    pub verdict: AuditVerdict,
}

/// The verdict about a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditVerdict {
    /// A run of this home has rented it and still has it.
    Rented,
    /// No run of this home has it, and it may be too young to be known.
    Young,
    /// No run of this home has it.
    Orphaned,
    /// Another home of gradus has rented it.
    OtherHome,
    /// It has no tag or name of gradus.
    Foreign,
}

impl AuditVerdict {
    /// Whether it is not this home's: then it is shown, and never ended.
    pub fn is_of_others(self) -> bool {
        match self {
            AuditVerdict::OtherHome | AuditVerdict::Foreign => true,
            AuditVerdict::Rented | AuditVerdict::Young | AuditVerdict::Orphaned => false,
        }
    }
}

/// The price of a machine in the catalog.
pub fn rate(catalog: &Catalog, cloud: &Cloud, region: &str, machine: &str, is_spot: bool) -> Option<Rate> {
    let is_meant =
        |listing: &&Listing| listing.cloud == *cloud && listing.region == region && listing.instance_type == machine;
    let listing = catalog.listings.iter().find(is_meant)?;
    let price = if is_spot { &listing.spot } else { &listing.on_demand };
    price.as_ref().map(|price| price.rate)
}

/// What is to be judged with which knowledge.
#[derive(Debug)]
pub struct MachineJudge<'a> {
    pub cloud: Cloud,
    pub catalog: &'a Catalog,
    pub owner: &'a str,
    /// Machines that runs have or are about to have, read after the cloud was asked.
    pub rented: &'a BTreeSet<InstanceId>,
    /// A younger machine is not ended.
    pub grace: Duration,
    pub now: Timestamp,
}

impl MachineJudge<'_> {
    /// Every machine of a list that is not gone.
    pub fn judge(&self, machines: &[CloudMachine]) -> Vec<AuditedMachine> {
        machines.iter().filter(|machine| !machine.is_gone()).map(|machine| self.audited(machine)).collect()
    }

    /// Those of every machine of an account that are not gone and not this home's, which are `ours`.
    pub fn others(&self, every: &[CloudMachine], ours: &[CloudMachine]) -> Vec<AuditedMachine> {
        let prefix = name_prefix(self.owner);
        // By name too: one may have been rented since ours were listed.
        let is_other = |machine: &&CloudMachine| {
            let is_ours = machine.name.starts_with(&prefix) || ours.iter().any(|our| our.handle == machine.handle);
            !machine.is_gone() && !is_ours
        };
        let judged = |machine: &CloudMachine| {
            let is_gradus = machine.name.starts_with(ANY_PREFIX);
            let verdict = if is_gradus { AuditVerdict::OtherHome } else { AuditVerdict::Foreign };
            AuditedMachine { verdict, ..self.audited(machine) }
        };
        every.iter().filter(is_other).map(judged).collect()
    }

    fn audited(&self, machine: &CloudMachine) -> AuditedMachine {
        let of_a_run = self.rented.iter().find(|instance| machine_name(self.owner, instance) == machine.name);
        let age = machine.started.map(|started| Duration::from_micros(self.now.since(started).0));
        let verdict = match (of_a_run, age) {
            (Some(_), _) => AuditVerdict::Rented,
            (None, Some(age)) if age < self.grace => AuditVerdict::Young,
            (None, _) => AuditVerdict::Orphaned,
        };
        let name = if machine.name.is_empty() { "?" } else { machine.name.as_str() };
        AuditedMachine {
            region: machine.region.clone(),
            zone: machine.zone.clone(),
            handle: machine.handle.clone(),
            instance: of_a_run.cloned().unwrap_or_else(|| InstanceId::new(name)),
            machine: format!("{}{}", machine.machine, if machine.is_spot { "/spot" } else { "" }),
            state: format!("{:?}", machine.state).to_lowercase(),
            rate: rate(self.catalog, &self.cloud, &machine.region, &machine.machine, machine.is_spot),
            age,
            verdict,
        }
    }
}

/// Ends all orphans, continuing after errors: the cloud's names of those, and why others were not ended.
pub fn end_orphans(api: &dyn CloudApi, machines: &[AuditedMachine]) -> (BTreeSet<String>, Vec<String>) {
    let (mut ended, mut failures) = (BTreeSet::new(), Vec::new());
    for machine in machines.iter().filter(|machine| machine.verdict == AuditVerdict::Orphaned) {
        let AuditedMachine { handle, region, zone, .. } = machine;
        match api.end(&MachinePlace { handle: handle.clone(), region: region.clone(), zone: zone.clone() }) {
            Ok(()) | Err(CloudFailure::NotFound(_)) => drop(ended.insert(handle.clone())),
            Err(failure) => failures.push(format!("{handle} in {region}: {failure}")),
        }
    }
    (ended, failures)
}

#[cfg(test)]
mod tests {
    use domain::rental::MachineState;

    use super::*;

    #[test]
    fn only_what_no_run_has_and_is_old_enough_is_orphaned() {
        let catalog = Catalog::embedded().unwrap();
        let rented = BTreeSet::from([InstanceId::new("mine-i1")]);
        let minutes = |count: i64| Timestamp(count * 60_000_000);
        let judge = MachineJudge {
            cloud: Cloud::Lambda,
            catalog: &catalog,
            owner: "me",
            rented: &rented,
            grace: Duration::from_secs(600),
            now: minutes(60),
        };
        let machine = |name: &str, started: Option<Timestamp>, state| CloudMachine {
            handle: "h".into(),
            name: name.to_owned(),
            region: "us-east-1".into(),
            zone: None,
            machine: "gpu_1x_a6000".into(),
            is_spot: false,
            state,
            address: None,
            started,
            ended: None,
        };
        let mine = machine_name("me", &InstanceId::new("mine-i1"));
        let check = |name: &str, started, expected| {
            let found = judge.judge(&[machine(name, started, MachineState::Running)]);
            assert_eq!(found[0].verdict, expected, "{name} {started:?}");
            assert!(found[0].rate.is_some(), "its price is in the catalog");
        };
        check(&mine, Some(minutes(0)), AuditVerdict::Rented);
        check(&mine, None, AuditVerdict::Rented);
        check("gradus-other", Some(minutes(55)), AuditVerdict::Young);
        check("gradus-other", Some(minutes(50)), AuditVerdict::Orphaned);
        check("gradus-other", None, AuditVerdict::Orphaned);
        assert_eq!(judge.judge(&[machine("gradus-other", None, MachineState::Gone(None))]), []);
        let named = |name: &str| CloudMachine { handle: name.to_owned(), ..machine(name, None, MachineState::Running) };
        let gone = machine("web-2", None, MachineState::Gone(None));
        let every = [named(&mine), named("tagged-as-ours"), named("gradus-other"), named("web"), gone];
        let others = judge.others(&every, &[named("tagged-as-ours")]);
        let shown: Vec<String> = others.iter().map(|one| format!("{} {:?}", one.handle, one.verdict)).collect();
        assert_eq!(shown, ["gradus-other OtherHome", "web Foreign"]);
    }
}
