//! The control loop and its interfaces.
//!
//! [`State`] stores the event log; [`control`] is the shell around the controller of the crate `control`: it wakes on
//! an agent's call, a provider's answer, a timer or an interrupt, and carries out the controller's outputs. Read
//! `control` first.

pub mod api;
pub mod clock;
pub mod control;
pub mod error;
pub mod files;
pub mod home;
mod loading;
pub mod report;
pub mod routes;
pub mod secrets;
pub mod series;
pub mod state;
pub mod submit;
pub mod tensorboard;

pub use ::control::OperationNote;
pub use error::Error;
pub use home::{Home, LoopLock};
pub use loading::Loading;
pub use series::{Series, goodput_json, goodput_of_json};
pub use state::State;
