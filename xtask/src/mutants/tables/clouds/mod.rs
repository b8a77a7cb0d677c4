//! Mutants of clouds: rented machines, audits, and machines that fetch programs from each other.

mod audits;
mod peers;
mod rented;

use crate::mutants::mutant::SourceMutant;

pub(super) const CLOUDS: &[&[SourceMutant]] = &[rented::RENTED, audits::AUDITS, peers::PEERS];
