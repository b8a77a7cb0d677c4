//! Both ends of the control protocol as pure state machines: inputs in, outputs out, no clock, file, thread or socket.
//!
//! [`Controller`] is the control loop: requests of users, reports of agents and answers of providers go in; events to
//! append, calls to providers and replies come out, calls and replies only once the events that they depend on are
//! durable. [`Supervisor`] is the agent on a machine: replies and events of its attempt go in; heartbeats, starts,
//! stops and entries to spool come out. `server` and `agent` are thin shells around them; the crate `sim` runs both
//! against a simulated cloud. `plan` decides what to do; this crate decides when, and holds the state.

mod controller;
pub mod identity;
mod supervisor;

pub use controller::{
    CallId, Controller, ControllerInput, ControllerOutput, Mistake, Now, OperationNote, ReplyId, ReplyToAgent,
    WatchedWork,
};
pub use supervisor::{
    Departure, EntryQueue, QueueMemory, SpoolRange, StopReason, Supervisor, SupervisorInput, SupervisorOutput,
    is_decision,
};
