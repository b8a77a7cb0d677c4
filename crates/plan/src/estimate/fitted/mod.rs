//! What was fitted to measurements and what is known of its error.
//!
//! [`rates`] are the numbers for graphs, [`band`] how far estimates were from measurements, [`anchor`] which
//! measurements a fit knows, [`calibration`] how a few measured steps correct an estimate. All of it is one dated file:
//! [`FittedCoefficients`](coefficients::FittedCoefficients).

pub mod anchor;
pub mod band;
pub mod calibration;
pub mod coefficients;
pub mod rates;
