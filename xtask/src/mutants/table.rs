//! The mutants: for each failure that once lost work or money, the line that prevents it, and the test that must notice.
//!
//! Text is replaced, not code: a mutant stays readable beside what it changes, and the tests here check that its text is
//! still found exactly once.

use super::agents::AGENTS;
use super::audits::AUDITS;
use super::clouds::CLOUDS;
use super::machines::MACHINES;
use super::mutant::SourceMutant;
use super::outputs::OUTPUTS;
use super::peers::PEERS;
use super::plans::PLANS;
use super::programs::PROGRAMS;
use super::servers::SERVERS;
use super::space::SPACE;
use super::sweeps::SWEEPS;
use super::training::TRAINING;

/// All of them: those of training, of machines, of disk space, of agents, of servers, of programs, of sweeps, of
/// clouds, of audits, of machines that fetch from each other, of plans, and of outputs.
pub(super) fn all() -> Vec<&'static SourceMutant> {
    let tables = [TRAINING, MACHINES, SPACE, AGENTS, SERVERS, PROGRAMS, SWEEPS, CLOUDS, AUDITS, PEERS, PLANS, OUTPUTS];
    tables.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn what_a_mutant_changes_is_found_exactly_once() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the checkout");
        for SourceMutant { name, file, from, to, .. } in all() {
            let text =
                std::fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{name}: {file}: {error}"));
            assert_eq!(text.matches(from).count(), 1, "{name}: `{from}` in {file}");
            assert_ne!(from, to, "{name}");
        }
    }

    #[test]
    fn mutants_have_names_of_their_own() {
        let names: BTreeSet<&str> = all().into_iter().map(|mutant| mutant.name).collect();
        assert_eq!(names.len(), all().len());
    }
}
