//! The on-disk and process interface of a node: the contract between a provider and the agent on its machine.
//!
//! An instance has a [`Folder`]. `launch.json` ([`LaunchSpec`]) is the launch specification, `agent.lock` ([`Lock`]) is
//! held while the agent lives, `meter.jsonl` ([`MeterFile`]) is what the bill is computed from, and `spool.jsonl`
//! and `measurements/` ([`Spool`]) hold the agent's reports until they are acknowledged. From these the provider determines
//! whether an instance is alive or gone. Its processes carry a tag ([`processes`], [`containers`]) and run in separate [`session`]s. Files
//! transferred to and from the machine are compared by [`sha256`], and programs and libraries kept under it ([`blobs`]);
//! logs are bounded ([`log`]). What must outlast a loss of power is written by [`durable`]. [`workdir`] says which files of a
//! user's folder are transferred. The machine describes itself as [`facts`]. This crate makes no decisions.

pub mod blobs;
pub mod durable;
pub mod facts;
pub mod folder;
pub mod log;
pub mod mounts;
pub mod oom;
pub mod processes;
pub mod session;
pub mod terminals;
pub mod workdir;

pub use blobs::{RunningHash, sha256};
pub use folder::{
    Folder, LaunchSpec, Lock, MeterFile, SCHEMA, Spool, SpoolLimits, SpoolPart, SpoolRead, read_secret, write_secret,
};
pub use processes::containers;
