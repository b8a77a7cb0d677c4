//! Mutants of agents: their attempts, what programs write and report, hangs, and measurements that wait for a server.

mod attempts;
mod backlog;
mod hangs;
mod outputs;
mod programs;

use crate::mutants::mutant::SourceMutant;

pub(super) const AGENTS: &[&[SourceMutant]] =
    &[attempts::ATTEMPTS, hangs::HANGS, backlog::BACKLOG, programs::PROGRAMS, outputs::OUTPUTS];
