//! Basic values: names, money, times, units and seeded random draws.

pub mod id;
pub mod money;
pub mod random;
pub mod time;
pub mod units;
