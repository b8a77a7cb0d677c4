//! Follows a run: runs the control loop or watches the process that does, and prints progress and the result.
//!
//! `liveness`, `progress`, `news`, `refused` → `watch`, `report` → `narrator` → `history`, `attend` → `left_behind`, `result` → `elsewhere`.

pub mod attend;
pub mod elsewhere;
pub mod history;
pub mod left_behind;
pub mod liveness;
pub mod narrator;
pub mod news;
pub mod output;
pub mod progress;
pub mod refused;
pub mod report;
pub mod result;
pub mod watch;
mod written;
