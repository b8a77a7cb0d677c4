//! What of a GPU's memory a measurement saw.

use crate::estimate::memory::MemoryEstimate;

/// What a measurement of memory sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryMetric {
    /// Tensors: PyTorch's `max_memory_allocated`, or peak of active blocks.
    Allocated,
    /// What PyTorch's allocator holds.
    Reserved,
    /// All that the process holds, as `nvidia-smi` tells it.
    All,
}

impl MemoryMetric {
    /// Reads the words of a table's column `memory_kind`.
    pub fn of(words: &str) -> MemoryMetric {
        match words {
            words if words.contains("reserved") => MemoryMetric::Reserved,
            words if words.contains("smi") => MemoryMetric::All,
            _ => MemoryMetric::Allocated,
        }
    }

    /// That part of an estimate.
    pub fn of_estimate(self, memory: &MemoryEstimate) -> f64 {
        match self {
            MemoryMetric::Allocated => memory.allocated(),
            MemoryMetric::Reserved => memory.reserved(),
            MemoryMetric::All => memory.middle,
        }
    }
}
