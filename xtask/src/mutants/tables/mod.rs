//! The mutants: for each failure that once lost work or money, the line that prevents it, and the test that must notice.
//!
//! Text is replaced, not code: a mutant stays readable beside what it changes, and the tests here check that its text is
//! still found exactly once.

mod agents;
mod clouds;
mod disks;
mod machines;
mod plans;
mod servers;
mod sweeps;
mod training;

use agents::AGENTS;
use clouds::CLOUDS;
use disks::DISKS;
use machines::MACHINES;
use plans::PLANS;
use servers::SERVERS;
use sweeps::SWEEPS;
use training::TRAINING;

use super::mutant::SourceMutant;

/// All of them.
pub(super) fn all() -> Vec<&'static SourceMutant> {
    let grouped = [MACHINES, AGENTS, CLOUDS].into_iter().flatten().copied();
    grouped.chain([SERVERS, TRAINING, SWEEPS, PLANS, DISKS]).flatten().collect()
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
