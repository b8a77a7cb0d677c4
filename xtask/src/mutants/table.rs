//! The mutants: for each failure that once lost work or money, the line that prevents it, and the test that must notice.
//!
//! Text is replaced, not code: a mutant stays readable beside what it changes, and the tests here check that its text is
//! still found exactly once.

use super::machines::MACHINES;
use super::training::TRAINING;

/// A deliberate bug, and the test that must fail with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SourceMutant {
    /// Its name on the command line.
    pub name: &'static str,
    /// What a user would lose.
    pub harm: &'static str,
    /// The file to change, below the root.
    pub file: &'static str,
    /// Text that occurs once in it.
    pub from: &'static str,
    /// What replaces that text.
    pub to: &'static str,
    /// What must fail.
    pub test: CargoTest,
}

/// Tests of one executable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CargoTest {
    pub package: &'static str,
    /// What cargo builds of the package: `--lib`, or `--test` and a name.
    pub target: &'static [&'static str],
    /// Part of the names of the tests to run.
    pub filter: &'static str,
}

/// All of them: those of training, and those of machines.
pub(super) fn all() -> Vec<&'static SourceMutant> {
    TRAINING.iter().chain(MACHINES).collect()
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
