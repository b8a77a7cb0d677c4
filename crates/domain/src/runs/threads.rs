//! The environment in which the OpenMP threads of a rank compute: how many there are, and how they wait for each other.
//!
//! libtorch's wheel brings GNU libgomp, which reads these variables once, when it is loaded. At the end of each parallel
//! region a thread first spins, then sleeps until the next region begins. libgomp's default spins 300,000 times, which
//! was 15 ms and more on Intel processors; `OMP_WAIT_POLICY=passive` sleeps at once. A step has thousands of regions a
//! few microseconds apart: sleeping at once pays for a wake-up in each of them, and spinning for long takes the core
//! from whoever else could use it, most often the thread that is waited for.

/// Spins before a waiting thread sleeps: about 0.2 ms where a `pause` takes 140 cycles (Intel since Skylake), 0.05 ms
/// elsewhere.
///
/// Median step times relative to `passive`, bert_mini and gpt_tiny with 2 threads on 2 cores of a Xeon: 0.83 to 0.90 on a
/// quiet machine, where the default has 0.73 to 0.88; 0.98 beside compilers that kept both cores busy, where the default
/// has 2.9 to 3.2. `docs/benchmarks.md` has the table.
const SPINS: u32 = 3_000;

/// The threads of the ranks that compute on one machine at the same time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Threads {
    /// Threads of each rank.
    pub per_rank: u32,
    /// Ranks on this machine.
    pub ranks: u32,
    /// Cores that they may run on.
    pub cores: u32,
}

impl Threads {
    /// The variables that a rank is started with.
    pub fn environment(self) -> [(&'static str, String); 3] {
        [
            ("OMP_NUM_THREADS", self.per_rank.to_string()),
            // For what is not said by the count: with more threads than cores libgomp then does not spin at all.
            ("OMP_WAIT_POLICY", "passive".to_owned()),
            ("GOMP_SPINCOUNT", self.spins().to_string()),
        ]
    }

    /// How often a waiting thread looks again before it sleeps. Where threads outnumber cores, the one that is waited
    /// for may need the core of the one that waits, so none spins.
    fn spins(self) -> u32 {
        let is_core_shared = u64::from(self.per_rank) * u64::from(self.ranks) > u64::from(self.cores);
        if is_core_shared { 0 } else { SPINS }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_spin_for_a_bounded_time_where_each_has_a_core() {
        let check = |[per_rank, ranks, cores]: [u32; 3], spins: &str| {
            let environment = Threads { per_rank, ranks, cores }.environment();
            let threads = per_rank.to_string();
            let expected =
                [("OMP_NUM_THREADS", threads.as_str()), ("OMP_WAIT_POLICY", "passive"), ("GOMP_SPINCOUNT", spins)];
            assert_eq!(environment.each_ref().map(|(name, value)| (*name, value.as_str())), expected);
        };
        check([2, 1, 2], "3000");
        check([1, 2, 2], "3000");
        check([4, 1, 16], "3000");
        check([2, 2, 2], "0");
        check([3, 1, 2], "0");
        check([u32::MAX, u32::MAX, 2], "0");
    }
}
