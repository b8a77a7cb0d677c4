//! How things are measured: [`program`] asks a program for blocks of work, [`quiet`] tells how much of the machine others
//! took meanwhile, [`load`] takes some on
//! purpose, [`figures`] sums up what came out.

pub mod figures;
pub mod load;
pub mod program;
pub mod quiet;
