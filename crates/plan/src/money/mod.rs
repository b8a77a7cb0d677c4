//! Money: what a run costs beside another, in whole micro-dollars; nothing here is ever a floating-point dollar.
//!
//! [`cost`] is the arithmetic of one run; [`reserved`] says when a reservation pays; [`carbon`] what a run emits.

pub mod carbon;
pub mod cost;
pub mod reserved;

pub use cost::{Cost, Stored, Transferred, kept, moved, rent};
