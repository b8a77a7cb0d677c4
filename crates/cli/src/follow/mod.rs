//! Following a run: running the control loop or watching the process that does, printing what happens, and its result.
//!
//! `progress`, `watch`, `report` → `narrator` → `attend` → `result`.

pub mod attend;
pub mod narrator;
pub mod progress;
pub mod report;
pub mod result;
pub mod watch;

use std::collections::BTreeMap;

use domain::{Elapsed, InstanceId};
use plan::{Instance, World};

/// Rent so far of every machine that is not released, by the wall clock; the bill is made from its meter.
pub fn meters(world: &World) -> BTreeMap<InstanceId, Elapsed> {
    let now = server::clock::now();
    let running = |(id, instance): (&InstanceId, &Instance)| Some((id.clone(), now.since(instance.started?)));
    world.live_instances().filter_map(running).collect()
}
