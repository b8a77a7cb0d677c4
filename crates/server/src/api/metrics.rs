//! Whether the server lives and answers, and its figures in the text format of Prometheus.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use serde_json::{Value, json};

use super::Api;
use super::failure::ApiError;

/// Number of the API: another one means that requests or answers have changed so that an older client fails.
pub const VERSION: u64 = 1;

/// The process answers.
pub(super) async fn health() -> Json<Value> {
    Json(json!({ "status": "ok", "version": env!("CARGO_PKG_VERSION"), "api": VERSION }))
}

/// The control loop answers, and nothing is refused for want of disk space.
pub(super) async fn ready(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    let events = api.door.look(|world| world.last_seq).await?;
    let shortages = api.home.space().shortages();
    if !shortages.is_empty() {
        return Err(ApiError::full(503, &shortages));
    }
    Ok(Json(json!({ "status": "ready", "events": events })))
}

/// Runs by state, machines by provider, events, and the disk space that is left.
pub(super) async fn metrics(State(api): State<Api>) -> Result<String, ApiError> {
    let reader = api.reader.clone();
    let runs = super::reading::blocking(move || reader.count_by_state().map_err(ApiError::inside)).await?;
    let figures = api.door.look(|world| {
        let mut machines = BTreeMap::<String, u64>::new();
        for (_, instance) in world.live_instances() {
            *machines.entry(instance.offer.provider.clone()).or_default() += 1;
        }
        (machines, world.last_seq)
    });
    let (machines, events) = figures.await?;
    let mut text = String::from("# HELP gradus_runs Runs by state.\n# TYPE gradus_runs gauge\n");
    for (state, count) in runs {
        text.push_str(&format!("gradus_runs{{state=\"{state}\"}} {count}\n"));
    }
    text.push_str("# HELP gradus_machines Machines that are rented, by provider.\n# TYPE gradus_machines gauge\n");
    for (provider, count) in machines {
        text.push_str(&format!("gradus_machines{{provider=\"{provider}\"}} {count}\n"));
    }
    text.push_str("# HELP gradus_events_total Events in the log.\n# TYPE gradus_events_total counter\n");
    text.push_str(&format!("gradus_events_total {events}\n"));
    let root = api.home.root().to_owned();
    let disk = super::reading::blocking(move || rustix::fs::statvfs(&root).map_err(ApiError::inside));
    if let Ok(disk) = disk.await {
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        text.push_str("# HELP gradus_disk_free_bytes Free space on the disk of the home folder.\n");
        text.push_str("# TYPE gradus_disk_free_bytes gauge\n");
        text.push_str(&format!("gradus_disk_free_bytes {free}\n"));
    }
    Ok(text)
}
