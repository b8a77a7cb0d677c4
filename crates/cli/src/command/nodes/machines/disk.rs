//! What the disks of stopped machines cost, as adjustments of the runs that had them: written once those runs are billed.
//! [`disks`](crate::local::disks) shows what is not written yet.

use cloud::rented::kept::{DiskWait, KeptMachine, KeptMachines, KeptState};
use domain::run::{BillAdjustment, BilledKind};
use domain::{Elapsed, Event, Timestamp};
use plan::{Run, RunOrSweep};
use server::{Home, State, clock};

use crate::error::{Error, exit};
use crate::local::disks::{STOPPING_CLOUDS, owed};

/// Where those of a cloud are written down.
pub fn files(home: &Home, cloud: &str) -> KeptMachines {
    KeptMachines::new(home.root(), cloud)
}

/// An error of the world, with what to do.
pub fn world(message: String, hint: &str) -> Error {
    Error::Code { message, hint: Some(hint.to_owned()), code: exit::WORLD }
}

/// The run that had a stopped machine last.
pub fn of_run<'a>(state: &'a State, machine: &KeptMachine) -> Result<&'a Run, Error> {
    let id = machine.run();
    state.world().runs.get(&id).ok_or_else(|| server::Error::NoRun(id.to_string()).into())
}

/// Counts what the disk has cost until now, in the run that had the machine last.
pub fn charge(machine: &KeptMachine, home: &Home, state: &mut State) -> Result<(), Error> {
    let id = machine.run();
    state.recall(&RunOrSweep::Run(id.clone()))?;
    let run = of_run(state, machine)?;
    if !run.state.is_final() || run.bill.is_none() {
        let hint = format!("wait until it is; `gradus stop {id}` stops it where that was not asked for");
        return Err(world(format!("`{id}` is not stopped yet"), &hint));
    }
    let Some(adjustment) = disk_cost(machine, run, clock::now()) else { return Ok(()) };
    let (counted, before) = (adjustment.1, run.adjusted());
    let source = "the disk of its stopped machine".to_owned();
    if let Some(adjustment) = adjustment.0 {
        state.append(vec![Event::BillAdjusted { run: id, source, before, adjustments: vec![adjustment] }])?;
    }
    let counted = KeptMachine { state: KeptState::Stopped { since: counted }, ..machine.clone() };
    files(home, &machine.offer.provider).write(&counted).map_err(Error::file("write", home.root()))
}

/// Counts what disks have cost while starts waited, in the runs that waited, as far as these are billed.
///
/// # Errors
/// [`Error`] when what is written down, or the state of the home, cannot be read or written.
pub fn settle(home: &Home, state: &mut State) -> Result<(), Error> {
    for cloud in STOPPING_CLOUDS {
        settle_at(&files(home, cloud), home, state)?;
    }
    Ok(())
}

fn settle_at(files: &KeptMachines, home: &Home, state: &mut State) -> Result<(), Error> {
    for wait in files.waits().map_err(Error::file("read", home.root()))? {
        let id = wait.run();
        state.recall(&RunOrSweep::Run(id.clone()))?;
        let Some(run) = state.world().runs.get(&id).filter(|run| run.bill.is_some()) else { continue };
        let (adjustment, before) = (wait_cost(&wait, run), run.adjusted());
        let source = "the disk of its machine while its start waited".to_owned();
        if let Some(adjustment) = adjustment {
            state.append(vec![Event::BillAdjusted { run: id, source, before, adjustments: vec![adjustment] }])?;
        }
        files.remove_wait(&wait).map_err(Error::file("delete", home.root()))?;
    }
    Ok(())
}

/// What a run is adjusted by for a wait; none where its log has that already.
fn wait_cost(wait: &DiskWait, run: &Run) -> Option<BillAdjustment> {
    let is_same =
        |one: &BillAdjustment| one.kind == BilledKind::Disk && one.at == wait.from && one.instance == wait.instance;
    let (instance, kind) = (wait.instance.clone(), BilledKind::Disk);
    let cost = BillAdjustment { instance, kind, at: wait.from, amount: wait.cost() };
    (!run.adjustments.iter().any(is_same)).then_some(cost)
}

/// What the disk has cost since it was last counted, and until when; without an amount where the log has it already. None
/// while nothing is stopped.
fn disk_cost(machine: &KeptMachine, run: &Run, now: Timestamp) -> Option<(Option<BillAdjustment>, Timestamp)> {
    let since = machine.stopped()?;
    let is_same =
        |one: &&BillAdjustment| one.kind == BilledKind::Disk && one.at == since && one.instance == machine.instance;
    if let Some(known) = run.adjustments.iter().find(is_same) {
        // It was counted, and that was not written down any more: so far the amount goes.
        let rate = machine.disk.micros_per_hour().max(1) as f64;
        let counted = Elapsed((known.amount.micros().max(0) as f64 / rate * 3.6e9) as u64);
        return Some((None, Timestamp(since.0.saturating_add_unsigned(counted.0)).min(now)));
    }
    let amount = owed(machine, now);
    let (instance, kind) = (machine.instance.clone(), BilledKind::Disk);
    Some((Some(BillAdjustment { instance, kind, at: since, amount }), now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use domain::InstanceId;

    #[test]
    fn a_wait_is_as_dear_as_its_disk() {
        let (instance, disk) = (InstanceId::new("box-1-i2"), "0.02/h".parse().unwrap());
        let until = Timestamp(3 * 3_600_000_000);
        let wait = DiskWait { handle: "i-1".into(), instance, disk, from: Timestamp(0), until };
        assert_eq!((wait.run().as_str(), wait.cost().to_string().as_str()), ("box-1", "$0.06"));
    }
}
