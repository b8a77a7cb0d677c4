//! What is assumed where nothing was measured: figures of machines and of the tensor library, each with its source
//! and date. A measured step time replaces the first three.

/// Multiply-adds a second of one core in 32-bit floats, in the middle: 25 G, which is 50 GFLOP/s. Measured 2026-11 on
/// two cloud cores with AVX-512: `cnn` on 8×8 pictures 57 GFLOP/s, one thread.
pub(super) const MULTIPLY_ADDS_A_CORE: f64 = 25e9;

/// How much faster one run in ten is: a modern core that has its caches for itself.
pub(super) const FASTER: f64 = 2.5;

/// How much slower one run in ten is: an old core, or one that is shared.
pub(super) const SLOWER: f64 = 3.0;

/// The same where a step was measured: what differs is the machine's other work, not the machine.
pub(super) const MEASURED_FASTER: f64 = 1.1;
pub(super) const MEASURED_SLOWER: f64 = 1.4;

/// A training step costs a forward pass and a backward pass of twice the work (Kaplan et al. 2020, appendix B).
pub(super) const PASSES: f64 = 3.0;

/// Seconds of a step that are no arithmetic: starting some hundred operators, at about 10 µs each.
pub(super) const STEP_OVERHEAD: f64 = 1e-3;

/// Seconds from rent to the first step and from the last step to release: starting processes, loading the tensor
/// library, reading the data, writing the model. Measured 2026-11: `mlp`, 71 steps, 1.2 s in all.
pub(crate) const AROUND: f64 = 1.5;

/// Bytes of a rank before it has a network: executable, tensor library, its threads' buffers. Measured 2026-11.
pub(super) const RANK_BYTES: u64 = 140 << 20;

/// Decoded data sets up to this size stay in memory.
pub(super) const DATA_KEPT: u64 = 512 << 20;

/// A job is refused when its estimated memory times this does not fit: the estimate has an error, and so has what
/// other programs take.
pub(super) const MEMORY_MARGIN: f64 = 1.2;

/// The day of the figures above.
pub(super) const DATED: &str = "2026-11";
