//! Estimates: memory and time of one step of a model on given hardware, divided in a given way.
//!
//! Pure arithmetic over a [`Model`](crate::model::Model) and a [`Setup`]. Nothing here knows a price or a cloud.

pub mod anchor;
pub mod band;
pub mod calibration;
pub mod coefficients;
pub mod collective;
pub mod limits;
pub mod machine;
pub mod memory;
pub mod operator;
pub mod setup;
#[cfg(test)]
mod tests;
pub mod time;
pub mod totals;
pub mod work;

pub use anchor::Anchor;
pub use band::{Bands, Class, Origin, Percentiles};
pub use calibration::{Calibration, Measured};
pub use coefficients::Coefficients;
pub use limits::{DataLimit, data_limit};
pub use setup::{Device, Layout, Optimizer, Parallel, Precision, Recompute, Setup, Zero};
pub use time::{StepTime, seconds, step, step_of};
pub use work::Work;
