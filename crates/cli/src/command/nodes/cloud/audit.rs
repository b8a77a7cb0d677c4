//! `gradus cloud audit`.

use std::collections::BTreeSet;

use cloud::Catalog;
use cloud::aws::{AuditVerdict, AuditedMachine, Auditor};
use domain::run::InstanceState;
use domain::{Duration, InstanceId, Rate};
use server::{Home, OperationNote, Series, State};

use super::CloudName;
use crate::error::{Error, exit};
use crate::figures::short;
use crate::local::rented;
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use crate::table;

/// Arguments of `gradus cloud audit`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Cloud to look through
    #[arg(value_enum)]
    cloud: CloudName,
    /// End machines of this home that no run uses and that are older than `--grace`
    #[arg(long)]
    end: bool,
    /// How old a machine must be to count as orphaned
    #[arg(long, value_name = "TIME", default_value = "10m")]
    grace: Duration,
}

/// Scans all regions, and ends orphans if requested.
///
/// # Errors
/// [`Error::Code`] if the cloud or a region cannot be reached, or a machine could not be ended.
pub fn run(args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let CloudName::Aws = args.cloud;
    let home = Home::open(&settings.home)?;
    let client = rented::client(settings)?;
    let catalog = Catalog::open(&settings.home)?;
    let rented_now = rented_now(&home)?;
    let auditor = Auditor {
        client: &client,
        owner: home.owner(),
        region: &rented::region(settings, None),
        catalog: &catalog,
        rented: &rented_now,
        grace: args.grace,
    };
    let refused = |failure| rented::refused("look through AWS", &failure);
    let (machines, unseen) = auditor.look().map_err(refused)?;
    let (ended, mut failures) = if args.end { auditor.end_all(&machines) } else { Default::default() };
    let mut rows = Vec::new();
    for machine in &machines {
        let is_ended = ended.contains(&machine.handle);
        if printer.is_json() {
            printer.json(&serde_json::json!({ "machine": machine, "ended": is_ended }));
        }
        rows.push(row(machine, is_ended));
    }
    if !printer.is_json() {
        show(printer, &machines, &rows);
        if !args.end && machines.iter().any(|machine| machine.verdict == AuditVerdict::Orphaned) {
            printer.say("`gradus cloud audit aws --end` ends the orphaned machines");
        }
    }
    failures.iter_mut().for_each(|failure| *failure = format!("could not end {failure}"));
    failures.extend(unseen.into_iter().map(|region| format!("could not look at {region}")));
    if failures.is_empty() {
        return Ok(exit::DONE);
    }
    let message = failures.join("; ");
    let hint = Some("run the same command again; everything else was looked at".to_owned());
    Err(Error::Code { message, hint, code: exit::WORLD })
}

/// Between two audits of a server.
const EVERY: std::time::Duration = std::time::Duration::from_secs(1800);

/// A machine that no run has is ended by a server once it is so old.
const GRACE: Duration = Duration::from_secs(1800);

/// Looks through all regions of AWS every half an hour while this process lives, where anything was ever rented there, and ends
/// what is this home's and no run's. The loop itself looks only where it has rented. What was ended, and what could not be
/// looked at, is in the operations log.
pub fn watch(settings: &GlobalSettings, home: &Home) {
    let (settings, home) = (settings.clone(), home.clone());
    let thread = std::thread::Builder::new().name("audit".into());
    // Without it the loop works as well.
    let _ = thread.spawn(move || {
        loop {
            std::thread::sleep(EVERY);
            if home.root().join(cloud::aws::NAME).join("regions").is_file() {
                let notes = audit_once(&settings, &home).unwrap_or_else(|error| vec![error.to_string()]);
                let Ok(series) = Series::open(&home) else { continue };
                for text in notes {
                    let note = OperationNote { subject: cloud::aws::NAME.to_owned(), text, is_mistake: false };
                    // An instance is terminated even if the note fails.
                    let _ = series.note(server::clock::now(), &note);
                }
            }
        }
    });
}

/// One audit that terminates orphaned instances; returns its actions, a sentence each.
fn audit_once(settings: &GlobalSettings, home: &Home) -> Result<Vec<String>, Error> {
    let rented_now = rented_now(home)?;
    let (client, catalog) = (rented::client(settings)?, Catalog::open(&settings.home)?);
    let (owner, region) = (home.owner(), &rented::region(settings, None));
    let auditor = Auditor { client: &client, owner, region, catalog: &catalog, rented: &rented_now, grace: GRACE };
    let refused = |failure| rented::refused("look through AWS", &failure);
    let (machines, unseen) = auditor.look().map_err(refused)?;
    let (ended, failures) = auditor.end_all(&machines);
    let ended = ended.into_iter().map(|handle| format!("audit: `{handle}` belonged to no run and was ended"));
    let failures = failures.into_iter().map(|why| format!("audit: could not end {why}"));
    let unseen = unseen.into_iter().map(|why| format!("audit: could not look at {why}"));
    Ok(ended.chain(failures).chain(unseen).collect())
}

/// Machines that a run has, or asks for, or is giving back.
fn rented_now(home: &Home) -> Result<BTreeSet<InstanceId>, Error> {
    let state = State::open_lean(home)?;
    let instances = state.world().instances.iter();
    let is_had = |instance: &plan::Instance| !matches!(instance.state, InstanceState::Released { .. });
    Ok(instances.filter(|(_, instance)| is_had(instance)).map(|(id, _)| id.clone()).collect())
}

fn row(machine: &AuditedMachine, is_ended: bool) -> Vec<String> {
    let verdict = match (is_ended, machine.verdict) {
        (true, _) => "ended",
        (false, AuditVerdict::Rented) => "used by a run",
        (false, AuditVerdict::Young) => "no run, younger than the grace",
        (false, AuditVerdict::Orphaned) => "orphaned",
    };
    vec![
        machine.region.clone(),
        machine.handle.clone(),
        machine.machine.clone(),
        machine.state.clone(),
        short(machine.age),
        machine.rate.map_or_else(|| "unknown".to_owned(), |rate| rate.to_string()),
        machine.instance.to_string(),
        verdict.to_owned(),
    ]
}

fn show(printer: &mut Printer, machines: &[AuditedMachine], rows: &[Vec<String>]) {
    if machines.is_empty() {
        printer.say("nothing is rented from AWS by this home, in any region");
        return;
    }
    let header = ["region", "machine", "type", "state", "age", "price", "instance", "verdict"];
    table::lines(&header, rows).into_iter().for_each(|line| printer.data(line));
    let rates = machines.iter().filter_map(|machine| machine.rate).map(Rate::micros_per_hour);
    printer.data(format!("together {}", Rate::from_micros_per_hour(rates.fold(0, i64::saturating_add))));
}
