//! Mutants of machines: processes, nodes, connections over SSH, orphans, and disk space.

mod connections;
mod nodes;
mod orphans;
mod processes;
mod space;

use crate::mutants::mutant::SourceMutant;

pub(super) const MACHINES: &[&[SourceMutant]] =
    &[processes::PROCESSES, nodes::NODES, connections::CONNECTIONS, orphans::ORPHANS, space::SPACE];
