//! An all-reduce by itself, as `gradus doctor` measures it between nodes: what `gradus-rank all-reduce` is asked and answers.

use serde::{Deserialize, Serialize};

/// One rank's part in an all-reduce that is measured.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllReduceRequest {
    /// Rank of this process, from 0.
    pub rank: u32,
    /// Number of ranks, of which each is on a machine of its own.
    pub size: u32,
    /// Name or address of rank 0's machine; empty for rank 0 until it has chosen.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub host: String,
    /// Port there; 0 until rank 0 has chosen.
    #[serde(default)]
    pub port: u16,
}

/// Which library exchanged the values, as `torch.distributed` names its backends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CollectiveBackend {
    /// Through the memory of the host.
    Gloo,
    /// From GPU to GPU.
    Nccl,
}

impl CollectiveBackend {
    /// Its name as its authors write it.
    pub fn name(self) -> &'static str {
        match self {
            CollectiveBackend::Gloo => "Gloo",
            CollectiveBackend::Nccl => "NCCL",
        }
    }
}

/// What one rank has measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllReduceFigures {
    /// What the ranks used.
    pub backend: CollectiveBackend,
    /// Number of ranks.
    pub size: u32,
    /// Bytes that were summed at a time.
    pub bytes: u64,
    /// How often.
    pub rounds: u32,
    /// Median time of one sum, in microseconds.
    pub micros: u64,
}

impl AllReduceFigures {
    /// Bytes per second that each rank sends and receives: the `busbw` of nccl-tests, which a link of that speed allows
    /// for any number of ranks.
    pub fn bus_rate(&self) -> u64 {
        let size = u128::from(self.size.max(1));
        let moved = 2 * (size - 1) * u128::from(self.bytes) * 1_000_000;
        u64::try_from(moved / (size * u128::from(self.micros.max(1)))).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_a_link_whatever_the_number_of_ranks() {
        let rate = |size, bytes, micros| {
            AllReduceFigures { backend: CollectiveBackend::Gloo, size, bytes, rounds: 1, micros }.bus_rate()
        };
        assert_eq!(rate(2, 25_000_000, 250_000), 100_000_000);
        assert_eq!(rate(4, 20_000_000, 300_000), 100_000_000);
        assert_eq!((rate(1, 25, 1), rate(2, 0, 0)), (0, 0));
    }
}
