//! The control protocol under simulation, in virtual time: the real [`control::Controller`] and
//! [`control::Supervisor`], with a cloud that lags, refuses and loses replies, a network that delays, drops and repeats
//! messages, ranks that die, and a disk that loses everything that was not synced.
//!
//! [`check`] runs one schedule, drawn from a seed: a storm of faults, then quiet until all work has ended. It fails if
//! a machine leaks or is rented twice, a run, a sweep or an acknowledged request is lost, reported work is repeated,
//! what has failed is tried again more or less often than documented, a due time of a schedule is run twice or not as its
//! policies say, a machine on demand is a spot machine, or a bill differs from what the cloud has metered. [`Rule`] lists the assumptions; each can be broken, and the simulation must then fail.
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
pub use scenario::{Scenario, SimulatedMarket, SimulatedSchedule, SimulatedSweep, SimulatedWork};
pub use shrink::shrink;
pub use simulation::ScheduleStats;
pub use verdict::goodput::GoodputCase;
pub use verdict::{Failure, check, log, run};
