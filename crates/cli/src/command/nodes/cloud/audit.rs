//! `gradus cloud audit`.

use std::collections::BTreeSet;

use cloud::Catalog;
use cloud::aws::{Auditor, Client};
use cloud::rented::audit::{AuditVerdict, AuditedMachine, MachineJudge, end_orphans};
use cloud::rented::kept::{KeptMachine, KeptMachines};
use cloud::rented::{CloudApi, MachinePlace, MachinePower, rented_elsewhere};
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

/// Arguments of `gradus cloud audit`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Cloud whose machines are listed
    #[arg(value_enum)]
    cloud: CloudName,
    /// End machines of this home that no run uses and that are older than `--grace`
    #[arg(long)]
    end: bool,
    /// List every other machine of the account too, whoever rented it; none of those is ended
    #[arg(long)]
    all: bool,
    /// How old a machine must be to count as orphaned
    #[arg(long, value_name = "DURATION", default_value = "10m", value_parser = Duration::parse_with_unit)]
    grace: Duration,
}

/// Scans all regions, and ends orphans if requested.
///
/// # Errors
/// [`Error::Code`] if the cloud or a region cannot be reached, or a machine could not be ended.
pub fn run(args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let home = Home::open(&settings.home)?;
    let Audit { machines, ended, mut failures, unseen, elsewhere } =
        audit(args.cloud, &AuditRequest { ends: args.end, lists_all: args.all, grace: args.grace }, settings, &home)?;
    let mut rows = Vec::new();
    for machine in &machines {
        let is_ended = ended.contains(&machine.handle);
        if printer.is_json() {
            printer.json(&serde_json::json!({ "machine": machine, "ended": is_ended }));
        }
        rows.push(row(machine, is_ended));
    }
    if !printer.is_json() {
        show(args.cloud, printer, &machines, &rows);
        if !args.end && machines.iter().any(|machine| machine.verdict == AuditVerdict::Orphaned) {
            printer.say(format!("`gradus cloud audit {} --end` ends the orphaned machines", args.cloud.provider()));
        }
    }
    failures.iter_mut().for_each(|failure| *failure = format!("could not end {failure}"));
    failures.extend(unseen.into_iter().map(|region| format!("could not look at {region}")));
    failures.extend(elsewhere);
    if failures.is_empty() {
        return Ok(exit::DONE);
    }
    let message = failures.join("; ");
    let hint = Some("run the same command again; everything else was looked at".to_owned());
    Err(Error::Code { message, hint, code: exit::WORLD })
}

/// What an audit is to do.
struct AuditRequest {
    /// Whether orphans are ended.
    ends: bool,
    /// Whether machines that are not this home's are listed.
    lists_all: bool,
    /// A younger machine is no orphan.
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
}

/// Looks at every machine of this home at a cloud, and ends orphans older than a grace if requested.
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
    let judge = MachineJudge { cloud: listing, catalog: &catalog, owner, rented, grace, now };
    let mut machines = judge.judge(&listed);
    let kept = kept_at(home, cloud.provider())?;
    for machine in &mut machines {
        spare(machine, &kept, rented);
        show_stopped(machine, &kept, api.as_ref());
    }
    machines.extend(judge.others(&every, &listed));
    let (ended, failures) = if request.ends { end_orphans(api.as_ref(), &machines) } else { Default::default() };
    let elsewhere = elsewhere((home, cloud.provider()), rented, api.account());
    Ok(Audit { machines, ended, failures, unseen: Vec::new(), elsewhere })
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
    machines.iter_mut().for_each(|machine| spare(machine, &kept, &rented_now));
    let (ended, failures) = if request.ends { auditor.end_all(&machines) } else { Default::default() };
    let elsewhere = elsewhere((home, cloud::aws::NAME), &rented_now, client.account(region).map(Some));
    Ok(Audit { machines, ended, failures, unseen, elsewhere })
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

/// A machine that its cloud says is off costs its disk.
fn show_stopped(machine: &mut AuditedMachine, kept: &[KeptMachine], api: &dyn CloudApi) {
    let is_meant = |kept: &&KeptMachine| kept.handle == machine.handle && kept.stopped().is_some();
    let Some(kept) = kept.iter().find(is_meant) else { return };
    let (handle, region, zone) = (machine.handle.clone(), machine.region.clone(), machine.zone.clone());
    if let Ok(MachinePower::Off(_)) = api.power(&MachinePlace { handle, region, zone }) {
        machine.state = "stopped".to_owned();
        machine.rate = (kept.disk.micros_per_hour() > 0).then_some(kept.disk);
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

/// A machine that no run has is ended by a server once it is so old.
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
    let Audit { ended, failures, unseen, elsewhere, .. } = audit(cloud, &request, settings, home)?;
    let ended = ended.into_iter().map(|handle| format!("audit: `{handle}` belonged to no run and was ended"));
    let failures = failures.into_iter().map(|why| format!("audit: could not end {why}"));
    let unseen = unseen.into_iter().map(|why| format!("audit: could not look at {why}"));
    let elsewhere = elsewhere.into_iter().map(|what| format!("audit: {what}"));
    Ok(ended.chain(failures).chain(unseen).chain(elsewhere).collect())
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

fn show(cloud: CloudName, printer: &mut Printer, machines: &[AuditedMachine], rows: &[Vec<String>]) {
    if machines.is_empty() {
        printer.say(format!("nothing is rented from {} by this home, in any region", cloud.display_name()));
        return;
    }
    let header = ["region", "machine", "type", "state", "age", "price", "instance", "verdict"];
    table::lines(&header, rows).into_iter().for_each(|line| printer.data(line));
    let (others, ours): (Vec<_>, Vec<_>) = machines.iter().partition(|machine| machine.verdict.is_of_others());
    printer.data(format!("together {}", together(&ours)));
    if !others.is_empty() {
        printer.data(format!("of others {}, as far as the catalog has prices", together(&others)));
    }
}

/// What machines cost together, as far as that is known.
fn together(machines: &[&AuditedMachine]) -> Rate {
    let rates = machines.iter().filter_map(|machine| machine.rate).map(Rate::micros_per_hour);
    Rate::from_micros_per_hour(rates.fold(0, i64::saturating_add))
}
