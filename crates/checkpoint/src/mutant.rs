//! Deliberate bugs, one at a time, that the chaos test must notice. Built only with the feature `mutants`.

use std::str::FromStr;

/// A deliberate mistake. [`Mutant::ManifestFirst`] is made by [`crate::CheckpointWriter`], the others by the trainer on resume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// The random number generators are not restored.
    NoRng,
    /// The optimiser state is not restored.
    NoOptimizer,
    /// The sample order starts at the beginning of the epoch.
    NoPosition,
    /// The manifest is renamed into place before its data.
    ManifestFirst,
}

impl Mutant {
    /// Every mistake there is.
    pub const ALL: [Mutant; 4] = [Mutant::NoRng, Mutant::NoOptimizer, Mutant::NoPosition, Mutant::ManifestFirst];

    /// Its name, as `FromStr` reads it.
    pub fn name(self) -> &'static str {
        match self {
            Mutant::NoRng => "no-rng",
            Mutant::NoOptimizer => "no-optimizer",
            Mutant::NoPosition => "no-position",
            Mutant::ManifestFirst => "manifest-first",
        }
    }
}

impl FromStr for Mutant {
    type Err = String;

    fn from_str(text: &str) -> Result<Mutant, String> {
        let known = Mutant::ALL.into_iter().find(|mutant| mutant.name() == text);
        known.ok_or_else(|| format!("`{text}` is no mutant; there are {:?}", Mutant::ALL.map(Mutant::name)))
    }
}
