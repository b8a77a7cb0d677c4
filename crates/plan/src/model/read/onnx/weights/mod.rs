//! Which weights a file holds: [`trained`] counts the values of each that are trained, [`listed`] does so where the file
//! lists its weights, and [`rank`] sees a product of two narrow weights in its values.

mod listed;
mod rank;
mod trained;

pub(super) use listed::{Listed, Missing};
pub(super) use trained::Weights;
