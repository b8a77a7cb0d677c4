//! Sweeps: selects the next trial and its values, and which trials are promoted.
//!
//! [`draws`] computes the values of a trial from its number; [`halving`] selects promotions of a rung; [`next`]
//! combines both into one decision from the state of all trials; [`actions`] turns it into actions and enforces the
//! limits; [`bound`] computes the maximum work in advance. All are functions of the sweep, its seed and the events, so
//! the result is the same after a crash.

mod actions;
mod bound;
mod draws;
mod halving;
mod lifecycle;
mod next;
mod rows;
mod standing;
#[cfg(test)]
mod tests;
mod trial;

pub(crate) use actions::budget_due;
pub use actions::{actions, best, spent};
pub use bound::{Bound, bound};
pub use draws::values;
pub use halving::rungs;
pub use next::{Move, next};
pub use rows::{TrialRow, rows};
pub use standing::{Stand, Standing, standing};
pub(crate) use standing::{not_finite, reported};
pub use trial::{Misfit, crowded, job, misfit, most, plan};
