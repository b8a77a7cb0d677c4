//! Machines to rent, their locations and prices, and a job's constraints on them.

pub mod accelerators;
pub mod boot_disk;
pub mod gpu;
pub mod listing;
pub mod offer;
pub mod plan;
pub mod region;
pub mod tariff;
pub mod terms;
pub mod volume;
pub mod wants;
