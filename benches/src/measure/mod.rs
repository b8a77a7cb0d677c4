//! Measurement: [`program`] runs blocks of work in a program, [`quiet`] measures how much of the machine others used
//! meanwhile, [`load`] adds load on purpose, [`figures`] summarizes the results.

pub mod figures;
pub mod load;
pub mod program;
pub mod quiet;
