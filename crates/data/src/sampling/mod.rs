//! Which sample comes when, on which rank, and in which split: pure functions of seed, epoch and position.

pub mod balanced;
pub mod order;
pub(crate) mod random;
pub(crate) mod share;
pub(crate) mod split;
