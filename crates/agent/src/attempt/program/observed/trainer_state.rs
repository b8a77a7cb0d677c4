//! `trainer_state.json`, in which Hugging Face's trainer keeps what it has logged; written with each checkpoint.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::SystemTime;

use serde_json::Value;

use super::steps::ObservedStep;

/// A longer file is not read.
const LARGEST: u64 = 64 << 20;

/// What the trainer has logged, in the order of its steps; nothing if the file is not whole. When each step was is not
/// known: those after step `last`, which was at `since`, are spread over the time until the file was written.
pub(super) fn read(path: &Path, (last, since): (u64, f64)) -> Vec<ObservedStep> {
    let about = fs::metadata(path);
    if about.as_ref().map_or(true, |about| about.len() > LARGEST) {
        return Vec::new();
    }
    let Some(state) = fs::read(path).ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok()) else {
        return Vec::new();
    };
    let (steps, newest) = (state["max_steps"].as_u64(), state["global_step"].as_u64().unwrap_or(0));
    let written = about.and_then(|about| about.modified()).map_or(since, seconds);
    let each = (written - since).max(0.0) / newest.saturating_sub(last).max(1) as f64;
    let at = |step: u64| since + each * step.saturating_sub(last) as f64;
    let history = state["log_history"].as_array().map(Vec::as_slice).unwrap_or_default();
    history.iter().filter_map(|entry| seen(entry, steps, at)).collect()
}

/// Seconds since 1970.
pub(super) fn seconds(time: SystemTime) -> f64 {
    time.duration_since(SystemTime::UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

fn seen(entry: &Value, steps: Option<u64>, at: impl Fn(u64) -> f64) -> Option<ObservedStep> {
    let mut others: BTreeMap<String, f64> = BTreeMap::new();
    for (name, value) in entry.as_object()? {
        // Newer versions write some numbers as text.
        let number = value.as_f64().or_else(|| value.as_str()?.parse().ok());
        others.extend(number.map(|number| (name.clone(), number)));
    }
    let step = others.remove("step")? as u64;
    let (epoch, loss, lr) = (others.remove("epoch"), others.remove("loss"), others.remove("learning_rate"));
    Some(ObservedStep { step, steps, epoch, loss, lr, samples: None, others, at: at(step) })
}
