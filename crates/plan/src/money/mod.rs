//! Money: the cost of runs in integer micro-dollars; dollars are never floating-point numbers.
//!
//! [`cost`] is the arithmetic of one run; [`invoice`] reads a provider's bill; [`ledger`] counts what was paid under users, projects and days; [`reserved`] says when a reservation pays; [`savings`] what spot machines saved; [`carbon`] what a run emits.

pub mod allowance;
pub mod carbon;
pub mod cost;
pub mod invoice;
pub mod ledger;
pub mod reserved;
pub mod savings;

pub use cost::{Cost, Stored, Transferred, kept, moved, rent};
