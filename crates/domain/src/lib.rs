//! The words of gradus: values only, and how the job file is read.
//!
//! Every other crate speaks in these types. Nothing here does I/O, reads a clock or decides anything; a decision
//! belongs in `plan`. Start with [`Job`], what a user asks for; then [`Event`], what has happened to it; then
//! [`rank`] and [`wire`], what the processes of a run say to each other.

pub mod accelerators;
pub mod architecture;
pub mod event;
pub mod file;
pub mod finding;
pub mod format;
pub mod gpu;
pub mod id;
pub mod job;
pub mod listing;
pub mod money;
pub mod offer;
pub mod plan;
pub mod problem;
pub mod random;
pub mod rank;
pub mod region;
pub mod run;
pub mod series;
pub mod span;
pub mod sweep;
pub mod tariff;
pub mod threads;
pub mod time;
pub mod torch;
pub mod train;
pub mod units;
pub mod wants;
pub mod wire;
pub mod workload;

pub use event::{Event, Record};
pub use finding::{Cause, Finding};
pub use id::{AttemptId, Fence, InstanceId, RunId, SweepId};
pub use job::{Command, Job, Secret, Work};
pub use money::{Money, Rate};
pub use offer::{Node, Offer};
pub use plan::{Plan, Share};
pub use problem::{Problem, Problems};
pub use sweep::Sweep;
pub use time::{Elapsed, Timestamp};
pub use train::Train;
pub use units::{Bytes, Duration, Fraction};
