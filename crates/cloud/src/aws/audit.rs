//! Lists everything with our tag in all regions, or everything of the account: its cost, whether it is known, and whether it
//! may be ended. What is not of this home never is. What an account has beside machines is in [`resources`].

mod resources;

use std::collections::BTreeSet;

use domain::listing::Cloud;
use domain::rental::MachineState;
use domain::{Duration, InstanceId, Timestamp};

use super::client::{Client, now};
use super::look;
use super::wire::answers::{ListedMachine, Regions};
use super::wire::failure::AwsFailure;
use super::wire::query::OWNER_TAG;
use super::wire::{query, times};
use crate::catalog::Catalog;
use crate::rented::audit::{AuditVerdict, AuditedMachine, rate};

/// Lists the machines of a region.
type RegionList<'a> = dyn Fn(&str) -> Result<Vec<ListedMachine>, AwsFailure> + Sync + 'a;

/// Looks through an account.
#[derive(Debug)]
pub struct Auditor<'a> {
    pub client: &'a Client,
    /// The owner whose machines are this home's.
    pub owner: &'a str,
    /// A region in which the list of regions is requested.
    pub region: &'a str,
    /// What machines cost.
    pub catalog: &'a Catalog,
    /// Machines that a run has or is about to have.
    pub rented: &'a BTreeSet<InstanceId>,
    /// A younger machine is not ended.
    pub grace: Duration,
}

impl Auditor<'_> {
    /// Every machine of the owner that is not gone; and each region that could not be queried, with the reason.
    ///
    /// # Errors
    /// [`AwsFailure`] if the list of regions is not available.
    pub fn look(&self) -> Result<(Vec<AuditedMachine>, Vec<String>), AwsFailure> {
        self.look_by(&|region| self.client.machines(region, self.owner, None))
    }

    /// The same of every machine of the account, whoever rented it.
    ///
    /// # Errors
    /// [`AwsFailure`] if the list of regions is not available.
    pub fn look_at_all(&self) -> Result<(Vec<AuditedMachine>, Vec<String>), AwsFailure> {
        self.look_by(&|region| self.client.every_machine(region))
    }

    /// The regions that the account may use.
    fn regions(&self) -> Result<Vec<String>, AwsFailure> {
        let regions: Regions = self.client.ask(self.region, &query::describe_regions())?;
        Ok(regions.region_info.item.into_iter().map(|region| region.region_name).collect())
    }

    fn look_by(&self, list: &RegionList<'_>) -> Result<(Vec<AuditedMachine>, Vec<String>), AwsFailure> {
        let names = self.regions()?;
        let at = now();
        let answers: Vec<Result<Vec<ListedMachine>, AwsFailure>> = std::thread::scope(|scope| {
            let look = |region| scope.spawn(move || list(region));
            let threads: Vec<_> = names.iter().map(|region| look(region.as_str())).collect();
            let lost = |_| Err(AwsFailure::Doubt("it could not be asked".to_owned()));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(lost)).collect()
        });
        let (mut found, mut unseen) = (Vec::new(), Vec::new());
        for (region, answer) in names.iter().zip(answers) {
            match answer {
                Ok(machines) => found.extend(machines.iter().filter_map(|machine| self.audited(region, machine, at))),
                Err(failure) => unseen.push(format!("{region}: {failure}")),
            }
        }
        Ok((found, unseen))
    }

    /// Ends all orphans, continuing after errors: returns AWS's names of those, and why others were not ended.
    pub fn end_all(&self, machines: &[AuditedMachine]) -> (BTreeSet<String>, Vec<String>) {
        let (mut ended, mut failures) = (BTreeSet::new(), Vec::new());
        for machine in machines {
            match self.end(machine) {
                Ok(true) => drop(ended.insert(machine.handle.clone())),
                Ok(false) => {}
                Err(failure) => failures.push(format!("{} in {}: {failure}", machine.handle, machine.region)),
            }
        }
        (ended, failures)
    }

    fn audited(&self, region: &str, machine: &ListedMachine, at: Timestamp) -> Option<AuditedMachine> {
        if matches!(look::state(machine, at), MachineState::Gone(_)) {
            return None;
        }
        // A machine of ours whose tag was changed costs money like any other.
        let instance = machine.instance().filter(|name| look::is_name(name)).unwrap_or_else(|| "?".to_owned());
        let instance = InstanceId::new(instance);
        let is_spot = machine.instance_lifecycle == "spot";
        let age = times::read(&machine.launch_time).map(|launched| Duration::from_micros(at.since(launched).0));
        let verdict = match machine.tag(OWNER_TAG) {
            None => AuditVerdict::Foreign,
            Some(owner) if owner != self.owner => AuditVerdict::OtherHome,
            Some(_) if self.rented.contains(&instance) => AuditVerdict::Rented,
            Some(_) if age.is_none_or(|age| age < self.grace) => AuditVerdict::Young,
            Some(_) => AuditVerdict::Orphaned,
        };
        let state = machine.instance_state.name.clone();
        // One that is stopped costs its disk, which this list does not show.
        let is_off = verdict.is_of_others() && state == "stopped";
        let rate = rate(self.catalog, &Cloud::Aws, region, &machine.instance_type, is_spot).filter(|_| !is_off);
        Some(AuditedMachine {
            region: region.to_owned(),
            zone: None,
            handle: machine.instance_id.clone(),
            instance,
            machine: format!("{}{}", machine.instance_type, if is_spot { "/spot" } else { "" }),
            state,
            rate,
            age,
            verdict,
        })
    }

    /// Ends a machine if it is an orphan.
    ///
    /// # Errors
    /// [`AwsFailure`].
    pub fn end(&self, machine: &AuditedMachine) -> Result<bool, AwsFailure> {
        if machine.verdict != AuditVerdict::Orphaned {
            return Ok(false);
        }
        match self.client.tell(&machine.region, &query::terminate(&[&machine.handle])) {
            Ok(()) | Err(AwsFailure::NotFound(_)) => Ok(true),
            Err(failure) => Err(failure),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::wire::scripted::{Script, client, error, reply};
    use super::*;

    #[test]
    fn what_is_not_of_this_home_is_shown_and_never_ended() {
        let machine = |id: &str, state: &str, tags: &str| {
            format!(
                "<item><instanceId>{id}</instanceId><instanceType>g4dn.xlarge</instanceType><instanceState><name>{state}\
                 </name></instanceState><launchTime>2020-01-01T00:00:00.000Z</launchTime><tagSet>{tags}</tagSet></item>"
            )
        };
        let owner = |owner: &str| format!("<item><key>gradus-owner</key><value>{owner}</value></item>");
        let machines = [
            machine("i-mine", "running", &owner("me")),
            machine("i-other", "running", &owner("other")),
            machine("i-plain", "running", "<item><key>Name</key><value>web</value></item>"),
            machine("i-off", "stopped", ""),
            machine("i-gone", "terminated", ""),
        ];
        let list = format!(
            "<R><reservationSet><item><instancesSet>{}</instancesSet></item></reservationSet></R>",
            machines.concat()
        );
        let script = Script::new(move |asked| match asked {
            asked if asked.contains("DescribeRegions") => {
                let regions = "<item><regionName>us-east-1</regionName></item>";
                Ok(reply(200, &format!("<R><regionInfo>{regions}</regionInfo></R>")))
            }
            // By the owner's tag nothing but ours is listed.
            asked if asked.contains("Filter") => Ok(error("OperationNotPermitted")),
            asked if asked.contains("DescribeInstances") => Ok(reply(200, &list)),
            _ => Ok(reply(200, "<R/>")),
        });
        let (catalog, rented) = (Catalog::embedded().unwrap(), BTreeSet::new());
        let (client, grace) = (client(script), Duration::from_secs(600));
        let (owner, region) = ("me", "us-east-1");
        let auditor = Auditor { client: &client, owner, region, catalog: &catalog, rented: &rented, grace };
        let (found, unseen) = auditor.look_at_all().unwrap();
        let shown: Vec<String> = found
            .iter()
            .map(|one| format!("{} {:?} {}", one.handle, one.verdict, if one.rate.is_some() { "priced" } else { "-" }))
            .collect();
        let expected =
            ["i-mine Orphaned priced", "i-other OtherHome priced", "i-plain Foreign priced", "i-off Foreign -"];
        assert_eq!(shown, expected, "{unseen:?}");
        let (ended, failures) = auditor.end_all(&found);
        assert_eq!((ended, failures), (BTreeSet::from(["i-mine".to_owned()]), Vec::new()));
    }

    #[test]
    fn an_orphan_that_cannot_be_ended_does_not_keep_others_alive() {
        let script = Script::new(|asked| match asked {
            asked if asked.ends_with("=i-1") => Ok(error("OperationNotPermitted")),
            _ => Ok(reply(200, "<R/>")),
        });
        let catalog = Catalog::embedded().unwrap();
        let (client, rented) = (client(script), BTreeSet::new());
        let (owner, region, grace) = ("me", "us-east-1", Duration::from_secs(600));
        let auditor = Auditor { client: &client, owner, region, catalog: &catalog, rented: &rented, grace };
        let retagged = ListedMachine { instance_id: "i-4".into(), ..ListedMachine::default() };
        let found = auditor.audited(region, &retagged, Timestamp(0)).map(|machine| machine.instance);
        assert_eq!(found, Some(InstanceId::new("?")), "a machine without our name is shown");
        let machine = |handle: &str, verdict| AuditedMachine {
            region: region.into(),
            zone: None,
            handle: handle.into(),
            instance: InstanceId::new("r-i1"),
            machine: "c7i.large".into(),
            state: "running".into(),
            rate: None,
            age: Some(Duration::from_secs(3600)),
            verdict,
        };
        let machines = [
            machine("i-1", AuditVerdict::Orphaned),
            machine("i-2", AuditVerdict::Orphaned),
            machine("i-3", AuditVerdict::Rented),
        ];
        let (ended, failures) = auditor.end_all(&machines);
        assert_eq!(ended, BTreeSet::from(["i-2".to_owned()]));
        assert!(failures.len() == 1 && failures[0].starts_with("i-1 in us-east-1: "), "{failures:?}");
    }
}
