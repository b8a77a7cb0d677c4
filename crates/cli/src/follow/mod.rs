//! Following a run: running the control loop or watching the process that does, printing what happens, and its result.
//!
//! `liveness`, `progress`, `watch`, `report` → `narrator` → `history`, `attend` → `result`.

pub mod attend;
pub mod history;
pub mod liveness;
pub mod narrator;
pub mod output;
pub mod progress;
pub mod report;
pub mod result;
pub mod watch;
