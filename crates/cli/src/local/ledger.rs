//! What runs without a bill have cost so far, machine by machine.

use domain::run::{BillAdjustment, InstanceState, Usage};
use domain::{Elapsed, InstanceId, RunId};
use plan::money::ledger::LedgerLine;
use plan::{Run, World};
use server::Home;

use crate::follow::liveness::meters;

/// The lines of all runs without a bill, as far as their machines are metered.
pub fn open_lines(home: &Home, world: &World) -> Vec<LedgerLine> {
    let meters = meters(home, world);
    let open = world.runs.iter().filter(|(_, run)| run.bill.is_none());
    let machines = open.flat_map(|(id, run)| run.instances.iter().map(move |instance| (id, run, instance)));
    let rents = machines.flat_map(|(id, run, instance)| {
        lines(world, (id, run), instance, meters.get(instance).copied().unwrap_or_default())
    });
    let open = world.runs.iter().filter(|(_, run)| run.bill.is_none());
    rents.chain(open.flat_map(|(id, run)| adjusted(world, (id, run)))).collect()
}

/// What a run that was resumed was adjusted by before.
fn adjusted(world: &World, (id, run): (&RunId, &Run)) -> Vec<LedgerLine> {
    let line = |adjustment: &BillAdjustment| {
        let known = world.instances.get(&adjustment.instance)?;
        Some(LedgerLine {
            run: id.clone(),
            instance: adjustment.instance.clone(),
            provider: known.offer.provider.clone(),
            user: run.user.clone(),
            project: run.job.project.clone(),
            started: adjustment.at,
            elapsed: Elapsed(0),
            amount: adjustment.amount,
            race: false,
            adjusts: Some(adjustment.kind),
            is_final: false,
        })
    };
    run.adjustments.iter().filter_map(line).collect()
}

fn lines(world: &World, (id, run): (&RunId, &Run), instance: &InstanceId, metered: Elapsed) -> Vec<LedgerLine> {
    let Some(known) = world.instances.get(instance) else { return Vec::new() };
    let first = match &known.state {
        InstanceState::Released { usage } => (usage.started, usage.elapsed),
        InstanceState::Intended | InstanceState::Launching | InstanceState::Up | InstanceState::Releasing => {
            (known.own_start(), metered)
        }
    };
    let first = (first.0, first.1, known.cost(first.1));
    let double = |usage: &Usage| (usage.started, usage.elapsed, known.offer.rate.cost(usage.elapsed));
    let doubles = known.doubles.values().map(double);
    let line = |(started, elapsed, amount)| LedgerLine {
        run: id.clone(),
        instance: instance.clone(),
        provider: known.offer.provider.clone(),
        user: run.user.clone(),
        project: run.job.project.clone(),
        started,
        elapsed,
        amount,
        race: known.lost_race,
        adjusts: None,
        is_final: false,
    };
    std::iter::once(first).chain(doubles).map(line).collect()
}
