//! What no model changes, and the few figures that were fitted to measurements.

use domain::gpu::GpuArchitecture;
use serde::{Deserialize, Serialize};

use crate::estimate::Setup;

const MIB: f64 = 1024.0 * 1024.0;
const GIB: f64 = 1024.0 * MIB;

/// Figures that no document states, fitted by `cargo xtask fit` to rows that state an exact peak and to batches of which it
/// is known whether they fit. They stand in `catalog/fitted.json`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MemoryCoefficients {
    /// Share of what changes during a step that the allocator holds beside it, for want of blocks of the right size.
    pub fragmentation: f64,
    /// What of that share it cannot give back either before a step fails: parts of blocks that are in use.
    pub stuck: f64,
    /// Bytes kept for each value that a convolution or linear layer writes, over the width of a value in the
    /// computing type, where only totals are known.
    pub kept_of_totals: f64,
    /// Relative standard deviation of an estimate from a graph, and from totals.
    pub deviation: f64,
    pub deviation_of_totals: f64,
}

impl Default for MemoryCoefficients {
    /// Where a fit begins.
    fn default() -> MemoryCoefficients {
        MemoryCoefficients {
            fragmentation: 0.2,
            stuck: 0.07,
            kept_of_totals: 2.6,
            deviation: 0.06,
            deviation_of_totals: 0.25,
        }
    }
}

/// The driver's context with the libraries' code, by architecture. Only Volta's figure is measured: 1,343 MB of 2²⁰
/// bytes (Hugging Face, `perf_train_gpu_one`, on a V100). All others are rounded guesses that nothing here was measured
/// for: of the same size or less, because newer drivers load code only when it is called for.
pub fn context(architecture: GpuArchitecture) -> f64 {
    match architecture {
        GpuArchitecture::Pascal => 700.0 * MIB,
        GpuArchitecture::Volta => 1343.0 * MIB,
        GpuArchitecture::Turing => 1000.0 * MIB,
        GpuArchitecture::Ampere => 1000.0 * MIB,
        GpuArchitecture::Ada => 700.0 * MIB,
        GpuArchitecture::Hopper | GpuArchitecture::Blackwell => 800.0 * MIB,
        GpuArchitecture::Cdna3 | GpuArchitecture::Cdna4 | GpuArchitecture::Unlisted => 1000.0 * MIB,
        // A rank before it has a network: executable, libtorch, its threads' buffers. Measured 2026-11.
        GpuArchitecture::Processor => 140.0 * MIB,
    }
}

/// What the collectives' library takes: about 0.3 GiB in one node and more between nodes, where it also keeps buffers
/// for each channel to the network.
pub fn collectives(setup: &Setup) -> f64 {
    if setup.device.is_processor() {
        return 0.0;
    }
    let gpus = setup.device.nodes.saturating_mul(setup.device.gpus_per_node);
    match (gpus, setup.device.nodes) {
        (0 | 1, _) => 0.0,
        (_, 0 | 1) => 0.3 * GIB,
        (_, 2..) => 0.6 * GIB,
    }
}

/// What cuBLAS and cuDNN take while they compute: PyTorch gives cuBLAS 32 MiB on Hopper and 8 MiB before, for each
/// stream (`CUBLAS_WORKSPACE_CONFIG` in its documentation).
pub fn workspace(architecture: GpuArchitecture) -> f64 {
    match architecture {
        GpuArchitecture::Hopper | GpuArchitecture::Blackwell | GpuArchitecture::Unlisted => 32.0 * MIB,
        GpuArchitecture::Pascal
        | GpuArchitecture::Volta
        | GpuArchitecture::Turing
        | GpuArchitecture::Ampere
        | GpuArchitecture::Ada
        | GpuArchitecture::Cdna3
        | GpuArchitecture::Cdna4 => 8.0 * MIB,
        GpuArchitecture::Processor => 0.0,
    }
}
