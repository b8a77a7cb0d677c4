//! The control loop and its doors.
//!
//! [`State`] keeps the event log; [`control`] wakes on an agent's call, a timer or an interrupt, asks `plan::reconcile`
//! what to do and lets [`perform`] do it: the only place that acts. Read `control` first.

pub mod clock;
pub mod control;
pub mod error;
pub mod home;
mod loading;
pub mod perform;
pub mod report;
pub mod routes;
pub mod secrets;
pub mod series;
pub mod state;
pub mod submit;
pub mod tensorboard;

pub use error::Error;
pub use home::Home;
pub use loading::Loading;
pub use series::Series;
pub use state::State;
