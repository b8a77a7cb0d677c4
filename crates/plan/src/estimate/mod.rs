//! Estimates: memory and time of one step of a model on given hardware, divided in a given way.
//!
//! Pure arithmetic over a [`ModelDescription`](crate::model::ModelDescription) and a [`Setup`]. Nothing here knows a price or a cloud.

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
pub(crate) mod tests;
pub mod time;
pub mod totals;

pub use collective::ExchangeNeeds;
pub use fitted::anchor::Anchor;
pub use fitted::band::{Class, ErrorBands, GpuEvidence, Origin, Percentiles, ProgramDetails};
pub use fitted::calibration::{Calibration, MeasuredStep};
pub use fitted::coefficients::FittedCoefficients;
pub use limits::{DataLimit, data_limit};
pub use machine::{EagerModules, ProgramStyle};
pub use ops::OpProfile;
pub use setup::{ActivationCheckpointing, Device, Layout, NumericFormat, OptimizerKind, ParallelDegrees, Setup, Zero};
pub use time::{OperatorCosts, StepTime, seconds, seconds_with, step, step_of};
