//! Estimates: memory and time of one step of a model on given hardware, divided in a given way.
//!
//! Pure arithmetic over a [`Model`](crate::model::Model) and a [`Setup`]. Nothing here knows a price or a cloud.

pub mod collective;
pub mod fitted;
pub mod limits;
pub mod machine;
pub mod memory;
pub mod operator;
pub mod ops;
pub mod optimizer;
pub mod processor;
pub mod savings;
pub mod setup;
#[cfg(test)]
mod tests;
pub mod time;
pub mod totals;

pub use fitted::anchor::Anchor;
pub use fitted::band::{Bands, Class, Origin, Percentiles};
pub use fitted::calibration::{Calibration, MeasuredStep};
pub use fitted::coefficients::Coefficients;
pub use limits::{DataLimit, data_limit};
pub use ops::OpProfile;
pub use setup::{Device, Layout, NumericFormat, OptimizerKind, Parallel, Recompute, Setup, Zero};
pub use time::{StepTime, seconds, step, step_of};
