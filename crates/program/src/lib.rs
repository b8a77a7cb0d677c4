//! The interface of gradus to a user's program in any language: the connection to its agent, and its checkpoints.
//!
//! [`ProgramRun`] is the complete interface. It reports metrics that the program logs, sends heartbeats, receives
//! requests to save or stop, and saves and loads the program's state with `checkpoint`: verified, atomic, fenced by the
//! attempt's number. Outside of gradus the same calls use a folder of the program's own, or do nothing.
//!
//! No call waits for the agent, and only [`ProgramRun::save`] waits for the disk. Read next: `run` (the calls),
//! `saving` (one process writes for all ranks), `copying` (what the program waits for), `resumed` (loading), `line`
//! (threads and the socket).

mod copying;
mod error;
mod handover;
mod line;
mod resumed;
mod run;
mod saving;
mod streamed;
#[cfg(test)]
mod tests;

pub use error::Error;
pub use resumed::ResumedState;
pub use run::{LoggedStep, ProgramRun, ProgramSettings};
pub use saving::{SaveOutcome, StateView, TensorView};
