//! `gradus cloud audit`.

mod resources;

use std::collections::BTreeSet;

use cloud::Catalog;
use cloud::aws::{Auditor, Client};
use cloud::rented::audit::resource::{ResourceKind, ResourceUse};
use cloud::rented::audit::verdict::{AuditedResource, ResourceVerdict};
use cloud::rented::audit::{AuditVerdict, AuditedMachine, MachineJudge, end_orphans};
use cloud::rented::kept::{KeptMachine, KeptMachines};
use cloud::rented::{CloudApi, CloudFailure, MachinePlace, MachinePower, rented_elsewhere};
use domain::listing::Cloud;
use domain::run::InstanceState;
use domain::{Duration, InstanceId, Rate};
use server::{Home, OperationNote, Series, State};

use super::{CloudName, not_answered};
use crate::error::{Error, exit};
use crate::figures::short;
use crate::local::rented::{self, RentedCloud};
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use crate::table;
use resources::ResourceAudit;

/// Arguments of `gradus cloud audit`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Cloud whose machines, disks, addresses, network interfaces, snapshots and images are listed
    #[arg(value_enum)]
    cloud: CloudName,
    /// End machines of this home that no run uses and that are older than `--grace`, and disks, addresses and interfaces that
    /// were unused for so long; never a snapshot or an image
    #[arg(long)]
    end: bool,
    /// List what everybody else has in the account too; nothing of that is ended
    #[arg(long)]
    all: bool,
    /// How old a machine must be, and how long anything else must have been unused, to count as orphaned
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = Duration::parse_with_unit)]
    grace: Duration,
}

/// Scans all regions, and ends orphans if requested.
///
/// # Errors
/// [`Error::Code`] if the cloud or a region cannot be reached, or something could not be ended.
pub fn run(args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let request = AuditRequest { ends: args.end, lists_all: args.all, grace: args.grace };
    let found = audit(args.cloud, &request, settings, &home)?;
    match printer.is_json() {
        true => show_json(&found, printer),
        false => show(args, &found, printer),
    }
    let failures = found.failures();
    if failures.is_empty() {
        return Ok(exit::DONE);
    }
    let message = failures.join("; ");
    let hint = Some("run the same command again; everything else was looked at".to_owned());
    Err(Error::Code { message, hint, code: exit::WORLD })
}

fn show_json(found: &Audit, printer: &mut Printer) {
    for machine in &found.machines {
        printer.json(&serde_json::json!({ "machine": machine, "ended": found.ended.contains(&machine.handle) }));
    }
    for resource in &found.beside.resources {
        printer.json(&serde_json::json!({ "resource": resource, "ended": found.beside.is_ended(resource) }));
    }
}

/// What an audit is to do.
struct AuditRequest {
    /// Whether orphans are ended.
    ends: bool,
    /// Whether what is not this home's is listed.
    lists_all: bool,
    /// What is younger, or was unused for less, is no orphan.
    grace: Duration,
}

/// What an audit came to.
struct Audit {
    machines: Vec<AuditedMachine>,
    /// The cloud's names of those that were ended.
    ended: BTreeSet<String>,
    /// What was not ended, with the reason.
    failures: Vec<String>,
    /// What could not be looked at, with the reason.
    unseen: Vec<String>,
    /// Machines of runs in other accounts, and what to do about them.
    elsewhere: Vec<String>,
    /// What there is beside machines.
    beside: ResourceAudit,
}

impl Audit {
    /// What was not done, a sentence each.
    fn failures(&self) -> Vec<String> {
        let failures = self.failures.iter().chain(&self.beside.failures).map(|why| format!("could not end {why}"));
        let unseen = self.unseen.iter().chain(&self.beside.unseen).map(|why| format!("could not look at {why}"));
        let rest = self.elsewhere.iter().chain(&self.beside.unnoted).cloned();
        failures.chain(unseen).chain(rest).collect()
    }
}

/// Looks at everything of this home at a cloud, and ends orphans older than a grace if requested.
fn audit(cloud: CloudName, request: &AuditRequest, settings: &GlobalSettings, home: &Home) -> Result<Audit, Error> {
    let catalog = Catalog::open(&settings.home)?;
    let (listing, api): (Cloud, Box<dyn CloudApi>) = match RentedCloud::open(cloud.provider(), settings, home)? {
        RentedCloud::Aws { client, .. } => return audit_aws(&client, request, &catalog, settings, home),
        RentedCloud::Lambda(api) => (Cloud::Lambda, Box::new(api)),
        RentedCloud::Gcp(api) => (Cloud::Gcp, Box::new(api)),
        RentedCloud::Azure(api) => (Cloud::Azure, Box::new(api)),
        RentedCloud::Alibaba(api) => (Cloud::Alibaba, Box::new(api)),
        RentedCloud::Tencent(api) => (Cloud::Tencent, Box::new(api)),
    };
    let refused = |failure| not_answered(&format!("list the machines in {}", cloud.display_name()), &failure);
    let listed = api.machines(home.owner()).map_err(refused)?;
    let every = match request.lists_all {
        true => api.every_machine().map_err(refused)?,
        false => Vec::new(),
    };
    // Only now: whatever is listed was intended before.
    let (rented, now) = (&rented_now(home)?, server::clock::now());
    let (owner, grace) = (home.owner(), request.grace);
    let judge = MachineJudge { cloud: listing.clone(), catalog: &catalog, owner, rented, grace, now };
    let mut machines = judge.judge(&listed);
    let kept = kept_at(home, cloud.provider())?;
    for machine in &mut machines {
        spare(machine, &kept, rented);
        show_stopped(machine, &kept, api.as_ref());
    }
    machines.extend(judge.others(&every, &listed));
    let (ended, failures) = if request.ends { end_orphans(api.as_ref(), &machines) } else { Default::default() };
    let elsewhere = elsewhere((home, cloud.provider()), rented, api.account());
    let (listed, tag) = (api.resources(owner, request.lists_all), api.owner_tag(owner));
    let beside = resources::audit(listed, (listing, tag.as_str()), (request, &catalog, home), |one| {
        match api.end_resource(one) {
            Err(CloudFailure::NotFound(_)) => Ok(()),
            other => other,
        }
    })?;
    count_disks_once(&mut machines, &beside.resources);
    Ok(Audit { machines, ended, failures, unseen: Vec::new(), elsewhere, beside })
}

/// The same of AWS, region by region.
fn audit_aws(
    client: &Client,
    request: &AuditRequest,
    catalog: &Catalog,
    settings: &GlobalSettings,
    home: &Home,
) -> Result<Audit, Error> {
    let rented_now = rented_now(home)?;
    let (owner, region) = (home.owner(), &rented::region(settings, None));
    let auditor = Auditor { client, owner, region, catalog, rented: &rented_now, grace: request.grace };
    let found = if request.lists_all { auditor.look_at_all() } else { auditor.look() };
    let (mut machines, unseen) = found.map_err(|failure| rented::refused("list the machines in AWS", &failure))?;
    let kept = kept_at(home, cloud::aws::NAME)?;
    for machine in &mut machines {
        spare(machine, &kept, &rented_now);
        if let Some(kept) = stopped(machine, &kept).filter(|_| machine.state == STOPPED) {
            machine.rate = disk_rate(kept);
        }
    }
    let (ended, failures) = if request.ends { auditor.end_all(&machines) } else { Default::default() };
    let elsewhere = elsewhere((home, cloud::aws::NAME), &rented_now, client.account(region).map(Some));
    let listed = auditor.resources(request.lists_all);
    let listed = listed.map_err(|failure| rented::refused("list disks and addresses in AWS", &failure))?;
    let beside =
        resources::audit(listed, (Cloud::Aws, owner), (request, catalog, home), |one| auditor.end_resource(one))?;
    count_disks_once(&mut machines, &beside.resources);
    Ok(Audit { machines, ended, failures, unseen, elsewhere, beside })
}

/// What is said of machines of other accounts than that of the credentials; `now` is none of a cloud that does not say.
fn elsewhere<E: std::fmt::Display>(
    (home, provider): (&Home, &'static str),
    rented: &BTreeSet<InstanceId>,
    now: Result<Option<String>, E>,
) -> Vec<String> {
    match now {
        Ok(Some(now)) => rented_elsewhere(home.root(), provider, rented, &now),
        Ok(None) => Vec::new(),
        // Then none of them has an account that is known.
        Err(_) if rented_elsewhere(home.root(), provider, rented, "").is_empty() => Vec::new(),
        Err(failure) => vec![format!("it is not known which account the credentials belong to: {failure}")],
    }
}

/// The machines of a cloud that were stopped at least once.
fn kept_at(home: &Home, cloud: &str) -> Result<Vec<KeptMachine>, Error> {
    let kept = KeptMachines::new(home.root(), cloud).all();
    kept.map_err(Error::file("read", &home.root().join(cloud).join("kept")))
}

/// The state of a machine that is off, of which its disk alone is paid for.
const STOPPED: &str = "stopped";

/// What is written down of a machine that was stopped.
fn stopped<'a>(machine: &AuditedMachine, kept: &'a [KeptMachine]) -> Option<&'a KeptMachine> {
    kept.iter().find(|kept| kept.handle == machine.handle && kept.stopped().is_some())
}

/// What the disk of a stopped machine costs, if that was known when it was stopped.
fn disk_rate(kept: &KeptMachine) -> Option<Rate> {
    (kept.disk.micros_per_hour() > 0).then_some(kept.disk)
}

/// A machine that its cloud says is off costs its disk.
fn show_stopped(machine: &mut AuditedMachine, kept: &[KeptMachine], api: &dyn CloudApi) {
    let Some(kept) = stopped(machine, kept) else { return };
    let (handle, region, zone) = (machine.handle.clone(), machine.region.clone(), machine.zone.clone());
    if let Ok(MachinePower::Off(_)) = api.power(&MachinePlace { handle, region, zone }) {
        machine.state = STOPPED.to_owned();
        machine.rate = disk_rate(kept);
    }
}

/// A stopped machine whose disk has a line and a price of its own costs nothing beside it.
fn count_disks_once(machines: &mut [AuditedMachine], resources: &[AuditedResource]) {
    for machine in machines.iter_mut().filter(|machine| machine.state == STOPPED) {
        let holder = ResourceUse::HeldBy(machine.handle.clone());
        let is_its_disk = |one: &AuditedResource| {
            one.resource.kind == ResourceKind::Disk && one.resource.used == holder && one.price.rate().is_some()
        };
        if resources.iter().any(is_its_disk) {
            machine.rate = Some(Rate::default());
        }
    }
}

/// A machine that was stopped before is known under the name of the run that has it now, and what is stopped is no orphan.
fn spare(machine: &mut AuditedMachine, kept: &[KeptMachine], rented: &BTreeSet<InstanceId>) {
    let Some(kept) = kept.iter().find(|kept| kept.handle == machine.handle) else { return };
    machine.instance = kept.instance.clone();
    if kept.stopped().is_some() || rented.contains(&kept.instance) {
        machine.verdict = AuditVerdict::Rented;
    }
}

/// Between two audits of a server.
const EVERY: std::time::Duration = std::time::Duration::from_secs(1800);

/// What no run needs is ended by a server once it is so old, or was unused for so long.
const GRACE: Duration = Duration::from_secs(1800);

/// Looks through all regions of each cloud every half an hour while this process lives, where anything was ever rented there,
/// and ends what is this home's and no run's. The loop itself looks only where it has rented. What was ended, and what could
/// not be looked at, is in the operations log.
pub fn watch(settings: &GlobalSettings, home: &Home) {
    let (settings, home) = (settings.clone(), home.clone());
    let thread = std::thread::Builder::new().name("audit".into());
    // Without it the loop works as well.
    let _ = thread.spawn(move || {
        loop {
            std::thread::sleep(EVERY);
            for cloud in CloudName::ALL.into_iter().filter(|cloud| home.root().join(cloud.provider()).is_dir()) {
                let notes = audit_once(cloud, &settings, &home).unwrap_or_else(|error| vec![error.to_string()]);
                let Ok(series) = Series::open(&home) else { continue };
                for text in notes {
                    let note = OperationNote { subject: cloud.provider().to_owned(), text, is_mistake: false };
                    // An instance is terminated even if the note fails.
                    let _ = series.note(server::clock::now(), &note);
                }
            }
        }
    });
}

/// One audit that terminates orphaned instances; returns its actions, a sentence each.
fn audit_once(cloud: CloudName, settings: &GlobalSettings, home: &Home) -> Result<Vec<String>, Error> {
    let request = AuditRequest { ends: true, lists_all: false, grace: GRACE };
    let found = audit(cloud, &request, settings, home)?;
    let ended = found.ended.iter().map(|handle| format!("audit: `{handle}` belonged to no run and was ended"));
    let failures = found.failures().into_iter().map(|what| format!("audit: {what}"));
    Ok(ended.chain(found.beside.notes()).chain(failures).collect())
}

/// Machines that a run has, or asks for, or is giving back.
fn rented_now(home: &Home) -> Result<BTreeSet<InstanceId>, Error> {
    let state = State::open_lean(home)?;
    let instances = state.world().instances.iter();
    let is_had = |instance: &plan::Instance| !matches!(instance.state, InstanceState::Released { .. });
    // A cloud knows one that was taken over by the name that it was rented under.
    Ok(instances.filter(|(_, instance)| is_had(instance)).map(|(id, one)| one.machine_name(id).clone()).collect())
}

fn row(machine: &AuditedMachine, is_ended: bool) -> Vec<String> {
    let verdict = match (is_ended, machine.verdict) {
        (true, _) => "ended",
        (false, AuditVerdict::Rented) => "used by a run",
        (false, AuditVerdict::Young) => "no run, younger than the grace",
        (false, AuditVerdict::Orphaned) => "orphaned",
        (false, AuditVerdict::OtherHome) => "of another home",
        (false, AuditVerdict::Foreign) => "not of gradus",
    };
    let unknown = || "unknown".to_owned();
    vec![
        machine.region.clone(),
        machine.handle.clone(),
        machine.machine.clone(),
        machine.state.clone(),
        machine.age.map_or_else(unknown, short),
        machine.rate.map_or_else(unknown, |rate| rate.to_string()),
        machine.instance.to_string(),
        verdict.to_owned(),
    ]
}

fn show(args: &Args, found: &Audit, printer: &mut Printer) {
    let (machines, resources) = (&found.machines, &found.beside.resources);
    if machines.is_empty() && resources.is_empty() {
        printer.say(format!("nothing is rented from {} by this home, in any region", args.cloud.display_name()));
        return;
    }
    if !machines.is_empty() {
        let header = ["region", "machine", "type", "state", "age", "price", "instance", "verdict"];
        let rows: Vec<Vec<String>> =
            machines.iter().map(|machine| row(machine, found.ended.contains(&machine.handle))).collect();
        table::lines(&header, &rows).into_iter().for_each(|line| printer.data(line));
    }
    if !resources.is_empty() {
        found.beside.lines().into_iter().for_each(|line| printer.data(line));
    }
    let rates = |is_of_others: bool| -> Vec<Option<Rate>> {
        let machines = machines.iter().filter(|one| one.verdict.is_of_others() == is_of_others).map(|one| one.rate);
        let resources = resources.iter().filter(|one| one.verdict.is_of_others() == is_of_others);
        machines.chain(resources.map(|one| one.price.rate())).collect()
    };
    printer.data(format!("together {}", together(&rates(false))));
    let others = rates(true);
    if !others.is_empty() {
        printer.data(format!("of others {}", together(&others)));
    }
    let is_orphaned = machines.iter().any(|one| one.verdict == AuditVerdict::Orphaned)
        || resources.iter().any(|one| one.verdict == ResourceVerdict::Orphaned);
    if !args.end && is_orphaned {
        let (cloud, grace) = (args.cloud.provider(), args.grace);
        printer.say(format!("`gradus cloud audit {cloud} --end` ends what is orphaned, after a grace of {grace}"));
    }
}

/// What everything costs together; what has no known price is counted, and not taken for free.
fn together(rates: &[Option<Rate>]) -> String {
    let known = rates.iter().flatten().map(|rate| rate.micros_per_hour());
    let sum = Rate::from_micros_per_hour(known.fold(0, i64::saturating_add));
    match rates.iter().filter(|rate| rate.is_none()).count() {
        0 => sum.to_string(),
        unknown => format!("{sum}, and {unknown} of unknown price"),
    }
}

#[cfg(test)]
mod tests {
    use cloud::rented::audit::price::ResourcePrice;
    use cloud::rented::audit::resource::CloudResource;

    use super::*;

    fn rate(text: &str) -> Option<Rate> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn what_has_no_known_price_is_not_taken_for_free() {
        assert_eq!(together(&[]), "$0.00/h");
        assert_eq!(together(&[rate("1/h"), Some(Rate::default()), rate("0.5/h")]), "$1.50/h");
        assert_eq!(together(&[rate("1/h"), None, None]), "$1.00/h, and 2 of unknown price");
    }

    #[test]
    fn the_disk_of_a_stopped_machine_is_counted_once() {
        let check = |state: &str, kind, holder: &str, price, expected: Option<Rate>| {
            let mut machines = [AuditedMachine {
                region: "us-east-1".to_owned(),
                zone: None,
                handle: "i-1".to_owned(),
                instance: InstanceId::new("r-i1"),
                machine: "c7i.large".to_owned(),
                state: state.to_owned(),
                rate: rate("0.02/h"),
                age: None,
                verdict: AuditVerdict::Rented,
            }];
            let resource = CloudResource {
                used: ResourceUse::HeldBy(holder.to_owned()),
                ..CloudResource::new(kind, "vol-1", "us-east-1")
            };
            let verdict = ResourceVerdict::InUse;
            count_disks_once(&mut machines, &[AuditedResource { resource, price, unused_for: None, verdict }]);
            assert_eq!(machines[0].rate, expected, "{state} {kind:?} {holder} {price:?}");
        };
        let price = ResourcePrice::PerHour("0.02/h".parse().unwrap());
        check("stopped", ResourceKind::Disk, "i-1", price, Some(Rate::default()));
        check("running", ResourceKind::Disk, "i-1", price, rate("0.02/h"));
        check("stopped", ResourceKind::Disk, "i-2", price, rate("0.02/h"));
        check("stopped", ResourceKind::Address, "i-1", price, rate("0.02/h"));
        check("stopped", ResourceKind::Disk, "i-1", ResourcePrice::Unknown, rate("0.02/h"));
    }
}
