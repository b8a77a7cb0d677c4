//! Sweeps: which trial comes next, with what values, and which goes on.
//!
//! [`draws`] makes the values of a trial from its number alone; [`halving`] says which trials of a rung go on; [`next`]
//! joins both into one decision over how all trials stand; [`actions`] makes actions of it and keeps the limits;
//! [`bound`] says before anything runs what all of it takes. All are functions of the sweep, its seed and the
//! events so far: whoever asks again after a crash is told the same.

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

pub use actions::{actions, best, spent};
pub use bound::{Bound, bound};
pub use draws::values;
pub use halving::rungs;
pub use next::{Move, next};
pub use rows::{TrialRow, rows};
pub use standing::{Stand, Standing, standing};
pub use trial::{Misfit, crowded, job, misfit, most, plan};
