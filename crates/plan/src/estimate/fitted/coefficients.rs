//! The numbers that were fitted to measurements: how far real machines stay below what their makers state.
//!
//! They live in one dated file, `catalog/fitted.json`, that `cargo xtask fit` writes with its own report. There are some
//! for all GPUs, some for each generation and some for each family of networks known by totals only; none for a model,
//! a GPU or a row. Each has bounds that physics gives, and a fit cannot leave them.

use std::collections::BTreeMap;

use domain::gpu::Gpu;
use serde::{Deserialize, Serialize};

use super::anchor::Anchor;
use super::band::{Class, ErrorBands, GpuEvidence, Origin, Percentiles, ProgramDetails};
use super::rates::{Generation, Shared, die};
use crate::estimate::memory::MemoryCoefficients;
use crate::estimate::totals::TotalsCoefficients;

/// Everything fitted, with where it comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FittedCoefficients {
    /// The day of the fit.
    pub dated: String,
    /// The command that made it.
    pub command: String,
    pub shared: Shared,
    pub generations: BTreeMap<String, Generation>,
    /// What a generation that nothing was measured on is expected to reach: the middle of all that were.
    pub unmeasured: Generation,
    pub totals: TotalsCoefficients,
    #[serde(default)]
    pub memory: MemoryCoefficients,
    pub bands: ErrorBands,
    pub anchors: Vec<Anchor>,
    /// What the fit says about itself.
    pub report: serde_json::Value,
}

/// What the last fit wrote.
const EMBEDDED: &str = include_str!("../../../../../catalog/fitted.json");

impl FittedCoefficients {
    /// The numbers that are part of the program.
    ///
    /// # Errors
    /// The file is from another version of the program.
    pub fn embedded() -> Result<FittedCoefficients, serde_json::Error> {
        FittedCoefficients::parse(EMBEDDED)
    }

    /// Reads the file that a fit wrote.
    ///
    /// # Errors
    /// The file is not one.
    pub fn parse(text: &str) -> Result<FittedCoefficients, serde_json::Error> {
        serde_json::from_str(text)
    }

    /// The band around estimates on `gpu`, each with its probability: a wider one where nothing was measured on that GPU, or
    /// where a user describes it, and where `details` of the program are not stated.
    pub fn band(
        &self,
        origin: Origin,
        class: Class,
        (gpu, details): (&Gpu, ProgramDetails),
        middles: &[(f64, f64)],
    ) -> Percentiles {
        self.bands.band(origin, class, (self.evidence(gpu), details), middles)
    }

    /// What estimates on `gpu` rest on.
    fn evidence(&self, gpu: &Gpu) -> GpuEvidence {
        match self.is_measured(gpu) {
            _ if gpu.traits.described => GpuEvidence::Described,
            true => GpuEvidence::Measured,
            false => GpuEvidence::Unmeasured,
        }
    }

    /// Whether a known program was measured on this GPU. Another GPU of its generation shares its coefficients, and not its
    /// memory, clocks and power.
    pub fn is_measured(&self, gpu: &Gpu) -> bool {
        self.generations.contains_key(die(gpu)) && self.anchors.iter().any(|anchor| anchor.gpu == gpu.name)
    }

    /// Returns the coefficients fitted to the GPU's generation, or those of an unmeasured one if no GPU of it was measured.
    pub fn generation(&self, gpu: &Gpu) -> Generation {
        self.generations.get(die(gpu)).copied().unwrap_or(self.unmeasured)
    }
}

#[cfg(test)]
mod tests {
    use domain::gpu::GpuArchitecture;

    use super::*;
    use crate::estimate::tests::a100;

    #[test]
    fn a_gpu_without_measurements_has_a_wider_band_than_its_sibling() {
        let coefficients = FittedCoefficients::embedded().expect("embedded numbers");
        let width = |name: &str, architecture: GpuArchitecture| {
            let gpu = Gpu { name: name.to_owned(), architecture, ..a100() };
            let known = (&gpu, ProgramDetails::Stated);
            let band = coefficients.band(Origin::Unknown, Class::Sequences, known, &[(1.0, 1.0)]);
            band.high / band.low
        };
        let known = width("A100-SXM4-80GB", GpuArchitecture::Ampere);
        let sibling = width("A800-SXM4-80GB", GpuArchitecture::Ampere);
        let stranger = width("A100-SXM4-80GB", GpuArchitecture::Cdna3);
        assert!(known < sibling && sibling <= stranger, "{known} {sibling} {stranger}");
    }
}
