//! What a user's program has of gradus, whatever language it is written in: the line to its agent, and its checkpoints.
//!
//! [`ProgramRun`] is all of it. It reports what the program logs, says that the process lives, hears whether it is to save
//! or to stop, and saves and loads the program's state as `checkpoint` has it: verified, atomic, with the attempt's number
//! as a fence. Outside of gradus the same calls work on a folder of the program's own, or do nothing.
//!
//! No call waits for the agent, and none but [`ProgramRun::save`] for the disk. Read next: `run` (the calls), `saving`
//! (one process writes for all ranks), `resumed` (what is loaded, and what is refused), `line` (threads and the socket).

mod error;
mod handover;
mod line;
mod resumed;
mod run;
mod saving;
#[cfg(test)]
mod tests;

pub use error::Error;
pub use resumed::ResumedState;
pub use run::{LoggedStep, ProgramRun, ProgramSettings};
pub use saving::{SaveOutcome, StateView, TensorView};
