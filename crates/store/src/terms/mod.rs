//! The vocabulary of transfers, without heavy dependencies: locations, credentials, limits, options and results.

pub mod access;
pub mod limits;
pub mod location;
pub mod meter;
pub mod socket;
pub mod transfer;

/// The file by which a pushed data set is known.
pub(crate) const HEAD: &str = "gradus.json";
