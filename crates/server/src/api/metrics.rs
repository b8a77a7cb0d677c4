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

/// The control loop answers.
pub(super) async fn ready(State(api): State<Api>) -> Result<Json<Value>, ApiError> {
    let events = api.door.look(|world| world.last_seq).await?;
    Ok(Json(json!({ "status": "ready", "events": events })))
}

/// Runs by state, machines by provider, and events.
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
    Ok(text)
}
