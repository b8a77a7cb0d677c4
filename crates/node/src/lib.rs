//! What a node is on disk and to the kernel: the contract between a provider and the agent that lives on its machine.
//!
//! An instance has a [`Folder`]. `launch.json` ([`LaunchSpec`]) says what was asked for, `agent.lock` ([`Lock`]) is held
//! for as long as the agent lives, `meter.jsonl` ([`MeterFile`]) is what the bill is made from, and `spool.jsonl`
//! ([`Spool`]) holds what the agent has to report, in case it is gone before anybody has read it. From these the
//! provider proves that an instance is alive or gone. Its processes carry a tag ([`processes`]) and run in [`session`]s
//! of their own. Files that travel to and from the machine are compared by their [`sha256`]; logs are bounded ([`log`]). Nothing here decides anything.

mod digest;
pub mod folder;
mod launch;
mod lock;
pub mod log;
mod meter;
pub mod processes;
pub mod session;
mod spool;

pub use digest::sha256;
pub use folder::Folder;
pub use launch::{LaunchSpec, SCHEMA};
pub use lock::Lock;
pub use meter::MeterFile;
pub use spool::Spool;
