//! What can be rented, where and at what price, and what a job may rent of it.

pub mod accelerators;
pub mod gpu;
pub mod listing;
pub mod offer;
pub mod plan;
pub mod region;
pub mod tariff;
pub mod terms;
pub mod wants;
