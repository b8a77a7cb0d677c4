//! The control protocol under simulation, in virtual time: the real [`control::Controller`] and [`control::Supervisor`]
//! between a cloud that lags, refuses and loses replies, a network that delays, loses and repeats, ranks that die, and a
//! disk of which only what was synced survives.
//!
//! [`check`] runs one schedule, drawn from a seed: a storm of faults, then quiet until all that was begun has ended. It
//! fails where a machine leaks or is rented twice, a run or an acknowledged request is lost, work that was reported is
//! done again, or a bill is not what the cloud has metered. [`Rule`] lists what this rests on; each can be broken, and the
//! simulation must then find it.
//!
//! ```text
//! rule, scenario, job → machine → cloud → loop_process → simulation, network, ranks, faults → verdict → shrink
//! ```

mod cloud;
mod faults;
mod gang;
mod job;
mod loop_process;
mod machine;
mod network;
mod ranks;
mod rule;
mod scenario;
mod shrink;
mod simulation;
mod verdict;

pub use rule::Rule;
pub use scenario::Scenario;
pub use shrink::shrink;
pub use simulation::ScheduleStats;
pub use verdict::{Failure, check, run};
