//! What transfers are spoken of in, and needs no library: places, credentials, limits, what is asked and what came of it.

pub mod access;
pub mod limits;
pub mod location;
pub mod meter;
pub mod socket;
pub mod transfer;

/// The file by which a pushed data set is known.
pub(crate) const HEAD: &str = "gradus.json";
