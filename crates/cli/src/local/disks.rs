//! What the disks of stopped machines have cost that no bill has yet: lines of the ledger, so that costs and budgets have them
//! while a machine is stopped, and while a start of it waits for capacity. And whose machines a loop stops at all.

use cloud::rented::kept::{DiskWait, KeptMachine, KeptMachines};
use domain::run::BilledKind;
use domain::{Elapsed, InstanceId, Money, RunId, Timestamp};
use plan::World;
use plan::money::ledger::LedgerLine;
use server::Home;

use crate::error::{Error, exit};

/// The clouds whose machines can be stopped.
pub const STOPPING_CLOUDS: [&str; 5] =
    [cloud::aws::NAME, cloud::gcp::NAME, cloud::azure::NAME, cloud::alibaba::NAME, cloud::tencent::NAME];

/// Of the loop that runs, or was killed last: the clouds whose machines it stops with their disk, a line each.
const STOPS: &str = "loop.stops";

/// Writes down what the loop that begins here can stop. One of an earlier version deletes what it knows nothing of.
///
/// # Errors
/// [`Error::File`].
pub fn note_stops(home: &Home) -> Result<(), Error> {
    let path = home.root().join(STOPS);
    node::durable::replace(&path, STOPPING_CLOUDS.join("\n").as_bytes()).map_err(Error::file("write", &path))
}

/// Forgets it once that loop has ended: the next one may be of a process that was started with an earlier version.
pub fn forget_stops(home: &Home) {
    // Where it stays, the next loop writes it anew.
    let _ = std::fs::remove_file(home.root().join(STOPS));
}

/// Refuses to stop a machine where the loop that runs would delete it.
///
/// # Errors
/// [`Error::Code`].
pub fn require_stops(home: &Home, cloud: &str) -> Result<(), Error> {
    // Each version that stops machines stops those of AWS. Where no loop runs, the next one is of this version.
    if cloud == cloud::aws::NAME || home.try_loop()?.is_some() {
        return Ok(());
    }
    let stops = std::fs::read_to_string(home.root().join(STOPS)).unwrap_or_default();
    if stops.lines().any(|name| name == cloud) {
        return Ok(());
    }
    let message = format!(
        "the loop of this home was started with an earlier version, which would delete a machine of `{cloud}` with its disk"
    );
    let hint =
        "end `gradus serve`, or the `gradus run` that is the loop, and start it again; attempts continue meanwhile";
    Err(Error::Code { message, hint: Some(hint.to_owned()), code: exit::WORLD })
}

/// What the disk of a stopped machine has cost since it was last counted.
pub fn owed(machine: &KeptMachine, now: Timestamp) -> Money {
    machine.unpaid(now).map_or(Money::default(), |(from, until)| machine.disk.cost(until.since(from)))
}

/// One line for each disk of a home with a cost that is not in `known`, the lines of all bills.
///
/// # Errors
/// [`Error::File`] when what is written down of one cannot be read.
pub fn disk_lines(home: &Home, world: &World, known: &[LedgerLine], now: Timestamp) -> Result<Vec<LedgerLine>, Error> {
    let mut lines = Vec::new();
    for cloud in STOPPING_CLOUDS {
        let files = KeptMachines::new(home.root(), cloud);
        let failed = || Error::file("read", home.root().join(cloud).join("kept"));
        let (machines, waits) = (files.all().map_err(failed())?, files.waits().map_err(failed())?);
        lines.extend(uncounted(cloud, (&machines, &waits), (world, known), now));
    }
    Ok(lines)
}

/// The lines of these disks. What a bill has under the same machine and moment was counted.
fn uncounted(
    cloud: &str,
    (machines, waits): (&[KeptMachine], &[DiskWait]),
    (world, known): (&World, &[LedgerLine]),
    now: Timestamp,
) -> Vec<LedgerLine> {
    let of_machine = |machine: &KeptMachine| {
        let (from, _) = machine.unpaid(now)?;
        Some((machine.run(), machine.instance.clone(), from, owed(machine, now)))
    };
    let of_wait = |wait: &DiskWait| (wait.run(), wait.instance.clone(), wait.from, wait.cost());
    let all = machines.iter().filter_map(of_machine).chain(waits.iter().map(of_wait));
    let is_counted = |instance: &InstanceId, from: Timestamp| {
        let is_same = |line: &LedgerLine| {
            line.adjusts == Some(BilledKind::Disk) && line.instance == *instance && line.started == from
        };
        known.iter().any(is_same)
    };
    all.filter(|(_, instance, from, _)| !is_counted(instance, *from))
        .map(|(run, instance, started, amount)| {
            let (user, project) = payer(&run, world, known);
            LedgerLine {
                run,
                instance,
                provider: cloud.to_owned(),
                user,
                project,
                started,
                elapsed: Elapsed(0),
                amount,
                race: false,
                adjusts: Some(BilledKind::Disk),
                is_final: false,
            }
        })
        .collect()
}

/// The user and the project of a run, which may have ended long ago.
fn payer(run: &RunId, world: &World, known: &[LedgerLine]) -> (Option<String>, Option<String>) {
    if let Some(run) = world.runs.get(run) {
        return (run.user.clone(), run.job.project.clone());
    }
    let line = known.iter().find(|line| line.run == *run);
    line.map_or((None, None), |line| (line.user.clone(), line.project.clone()))
}

#[cfg(test)]
mod tests {
    use cloud::rented::kept::KeptState;
    use domain::{Node, Offer};

    use super::*;

    const HOUR: i64 = 3_600_000_000;

    fn machine(state: KeptState) -> KeptMachine {
        let (node, rate) = (Node::default(), "1/h".parse().unwrap());
        let offer =
            Offer { provider: "aws".into(), kind: "us-east-1/x".into(), node, rate, price_source: String::new() };
        KeptMachine {
            handle: "i-1".into(),
            region: "us-east-1".into(),
            account: None,
            instance: InstanceId::new("box-1-i1"),
            offer,
            disk: "0.02/h".parse().unwrap(),
            state,
        }
    }

    fn lines(state: KeptState, known: &[LedgerLine]) -> Vec<LedgerLine> {
        uncounted("aws", (&[machine(state)], &[]), (&World::default(), known), Timestamp(10 * HOUR))
    }

    #[test]
    fn a_loop_that_would_delete_a_machine_is_not_asked_to_stop_it() {
        let folder = tempfile::tempdir().unwrap();
        let home = Home::open(folder.path()).unwrap();
        let check = |cloud: &str, expected: bool| {
            assert_eq!(require_stops(&home, cloud).is_ok(), expected, "{cloud}");
        };
        check("gcp", true);
        // One of an earlier version runs, and writes nothing down.
        let running = home.try_loop().unwrap().unwrap();
        check("gcp", false);
        check("aws", true);
        note_stops(&home).unwrap();
        STOPPING_CLOUDS.iter().for_each(|cloud| check(cloud, true));
        forget_stops(&home);
        check("azure", false);
        drop(running);
        check("azure", true);
    }

    #[test]
    fn a_disk_is_in_the_ledger_while_its_machine_is_stopped_and_while_a_start_waits() {
        let check = |state: KeptState, expected: &[&str]| {
            let amounts: Vec<String> = lines(state, &[]).iter().map(|line| line.amount.to_string()).collect();
            assert_eq!(amounts, expected, "{state:?}");
        };
        let since = Timestamp(5 * HOUR);
        check(KeptState::Stopped { since }, &["$0.10"]);
        check(KeptState::Starting { since }, &["$0.10"]);
        // From then on the rent has it.
        check(KeptState::Accepted { since, at: Timestamp(6 * HOUR) }, &["$0.02"]);
        check(KeptState::Started, &[]);
        let (instance, disk) = (InstanceId::new("box-1-i1"), "0.02/h".parse().unwrap());
        let wait = DiskWait { handle: "i-1".into(), instance, disk, from: since, until: Timestamp(7 * HOUR) };
        let waited = uncounted("aws", (&[], &[wait]), (&World::default(), &[]), Timestamp(10 * HOUR));
        assert_eq!((waited.len(), waited[0].amount.to_string().as_str()), (1, "$0.04"));
        assert_eq!(waited[0].run, RunId::new("box-1"));
    }

    #[test]
    fn what_a_bill_has_is_not_counted_again() {
        let state = KeptState::Stopped { since: Timestamp(5 * HOUR) };
        let counted = LedgerLine { project: Some("vision".into()), is_final: true, ..lines(state, &[]).remove(0) };
        assert_eq!(lines(state, std::slice::from_ref(&counted)), []);
        // Another one of the same run says whose it is.
        let before = LedgerLine { started: Timestamp(1), ..counted };
        assert_eq!(lines(state, &[before])[0].project.as_deref(), Some("vision"));
    }
}
