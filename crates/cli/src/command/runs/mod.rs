//! Commands on runs: start, follow, stop and inspect them.

pub mod attach;
pub mod checkpoints;
pub mod cost;
pub mod events;
pub mod logs;
pub mod program;
pub mod report;
pub mod resume;
pub mod rm;
pub mod run;
pub mod serve;
pub mod status;
pub mod stop;
pub mod wait;
