//! What a mutant is.

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
