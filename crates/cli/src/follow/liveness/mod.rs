//! The current state of a run, which may differ from its event log: a killed loop cannot record that its machine has
//! ended. The agent's lock shows whether the machine still works, its meter what it costs.

pub mod lease;

use std::collections::BTreeMap;

use cloud::local::{Probe, probe, spooled};
use domain::run::{RunState, Usage};
use domain::wire::AgentEvent;
use domain::{Duration, Elapsed, InstanceId, Offer, RunId, Timestamp};
use plan::{Instance, Run, World};
use server::Home;
use server::series::step_of;

/// Whether a process supervises a run, and whether its machine works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Liveness {
    /// A process runs it, or it has ended: its state in the event log is true.
    Logged,
    /// No process runs it; its machine still works until the lease expires.
    Unattended {
        /// How long agents continue at most after the end of the loop that ran last.
        lease: Duration,
    },
    /// No process runs it and its machines do not work. `None` if no machine was rented.
    Interrupted {
        /// When its machine ended.
        since: Option<Timestamp>,
    },
}

impl Liveness {
    /// Where a run stands.
    pub fn of(home: &Home, world: &World, id: &RunId, run: &Run) -> Liveness {
        let is_watched = home.is_watched(&home.run(id))
            || run.trial.as_ref().is_some_and(|trial| home.is_watched(&home.sweep(&trial.sweep)));
        if run.state.is_final() || is_watched {
            return Liveness::Logged;
        }
        let Some(instance) = run.instances.iter().rev().find(|id| is_live(world, id)) else {
            return Liveness::Interrupted { since: None };
        };
        match look(home, instance) {
            Some(probe) if probe.is_alive => Liveness::Unattended { lease: lease::granted(home) },
            Some(Probe { usage: Some(usage), .. }) => Liveness::Interrupted {
                since: Some(Timestamp(usage.started.0.saturating_add_unsigned(usage.elapsed.0))),
            },
            Some(Probe { usage: None, .. }) | None => Liveness::Interrupted { since: None },
        }
    }

    /// The name of the state: that in the log unless the log is outdated.
    pub fn word(self, state: &RunState) -> &'static str {
        match self {
            Liveness::Logged => state.word(),
            Liveness::Unattended { .. } => "unattended",
            Liveness::Interrupted { .. } => "interrupted",
        }
    }
}

/// Why a queued run waits: another run uses the machine that it was planned on.
pub fn waiting(other: &RunId, offer: &Offer) -> String {
    if let Some(pool) = Offer::pool_of(&offer.kind) {
        return format!("waiting for a free node of pool {pool}; run {other} uses one");
    }
    match offer.kind.as_str() {
        _ if offer.provider == cloud::local::NAME => format!("waiting for run {other}, which uses this machine"),
        Offer::ANY => format!("waiting for a free node, such as that of run {other}"),
        node => format!("waiting for run {other}, which uses node {node}"),
    }
}

fn is_live(world: &World, id: &InstanceId) -> bool {
    world.live_instances().any(|(live, _)| live == id)
}

/// The state of an instance; `None` if it was not launched, or cannot be read.
fn look(home: &Home, instance: &InstanceId) -> Option<Probe> {
    probe(home.root(), instance).ok().flatten()
}

/// Rented time of every machine that is not released: according to its meter, or the wall clock until there is one.
pub fn meters(home: &Home, world: &World) -> BTreeMap<InstanceId, Elapsed> {
    let now = server::clock::now();
    let rent = |(id, instance): (&InstanceId, &Instance)| {
        let metered = look(home, id).and_then(|probe| probe.usage).map(|usage| usage.elapsed);
        Some((id.clone(), metered.or_else(|| instance.rent_by_the_clock(now))?))
    };
    world.live_instances().filter_map(rent).collect()
}

/// Rented time according to the wall clock, if no meter can be read.
pub fn by_the_clock(world: &World) -> BTreeMap<InstanceId, Elapsed> {
    let now = server::clock::now();
    world.live_instances().filter_map(|(id, instance)| Some((id.clone(), instance.rent_by_the_clock(now)?))).collect()
}

/// The newest step that the machines of a run reported and no loop has read.
pub fn unheard_step(home: &Home, world: &World, run: &Run) -> Option<u64> {
    let live = run.instances.iter().filter(|id| is_live(world, id));
    let entries = live.filter_map(|id| spooled(home.root(), id).ok()).flatten();
    let reports = entries.filter_map(|entry| match entry.event {
        AgentEvent::Reported { report, .. } => Some(report),
        AgentEvent::Prepared { .. } | AgentEvent::Started | AgentEvent::Ended { .. } => None,
        AgentEvent::Idle | AgentEvent::Unknown => None,
    });
    reports.filter_map(|report| step_of(&report)).max()
}

/// The rented time of a machine whose agent is gone; `None` while it lives, or if it is unknown.
pub fn ended(home: &Home, id: &InstanceId) -> Option<Usage> {
    look(home, id).filter(|probe| !probe.is_alive)?.usage
}
