//! Data at an address: fetched or read in ranges, with a progress line.

pub mod opened;
pub mod transfer;
