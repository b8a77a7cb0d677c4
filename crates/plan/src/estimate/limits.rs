//! What a run takes besides its steps: data that arrives too slowly, evaluation, checkpoints and start-up.
//!
//! Each is a function of stated figures; whoever plans adds them up. Figures of how fast samples are prepared are
//! measured by `gradus data bench` and given as arguments; [`PreprocessingRate`] holds those of the kinds of samples that are
//! usual, with their source.

use domain::gpu::Gpu;
use serde::Serialize;

use super::collective::lanes;
use super::ops::OpProfile;
use super::processor::START_AND_END;
use super::savings::Savings;
use super::setup::{OptimizerKind, Setup};

/// How many samples a core prepares, and how many bytes each has where it is read from.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct PreprocessingRate {
    /// Samples a second and core.
    pub per_core: f64,
    /// Bytes of a stored sample.
    pub bytes: f64,
}

/// Kinds of samples whose preparation is known. Speeds are those of one core of a Xeon with AVX-512, November 2026.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SampleKind {
    /// JPEG photographs of about 110 kB, cropped to 224 × 224.
    Photographs,
    /// The same, made smaller beforehand: 256 pixels on the short side, 42 kB.
    SmallPhotographs,
    /// 256 × 256 pixels as they are, cropped to 224 × 224.
    Pixels,
    /// Numbers of tokens, two bytes each; the figure is of sequences of 1,024.
    Tokens,
}

/// Photographs that one core prepares with PyTorch's `DataLoader` and torchvision's transforms: ours over 5.6, the ratio that
/// was measured for JPEG files (docs/benchmarks.md, "Data loading compared with other loaders").
pub const PHOTOGRAPHS_BY_PYTORCH: f64 = 160.0;

impl SampleKind {
    /// What one core prepares.
    pub fn preparation(self) -> PreprocessingRate {
        match self {
            SampleKind::Photographs => PreprocessingRate { per_core: 900.0, bytes: 110e3 },
            SampleKind::SmallPhotographs => PreprocessingRate { per_core: 1700.0, bytes: 42e3 },
            SampleKind::Pixels => PreprocessingRate { per_core: 9000.0, bytes: 197e3 },
            SampleKind::Tokens => PreprocessingRate { per_core: 200e3, bytes: 2048.0 },
        }
    }
}

/// Where samples come from, on each node.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Supply {
    pub nodes: u32,
    /// Cores that prepare samples.
    pub cores: f64,
    /// Bytes a second from the disk; none where samples stay in memory.
    pub disk: Option<f64>,
    /// Bytes a second from the network; none where they are on the node.
    pub network: Option<f64>,
}

/// The most samples a second that can arrive, and what limits them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct DataLimit {
    pub samples_per_second: f64,
    pub by: Limit,
}

/// What limits the arrival of samples.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Limit {
    Cores,
    Disk,
    Network,
}

/// How many samples a second all nodes together can prepare.
pub fn data_limit(preparation: PreprocessingRate, supply: Supply) -> DataLimit {
    let nodes = f64::from(supply.nodes.max(1));
    let limits = [
        (Some(supply.cores * preparation.per_core), Limit::Cores),
        (supply.disk.map(|disk| disk / preparation.bytes.max(1.0)), Limit::Disk),
        (supply.network.map(|network| network / preparation.bytes.max(1.0)), Limit::Network),
    ];
    let least = limits.into_iter().filter_map(|(limit, by)| Some((limit? * nodes, by)));
    let (samples_per_second, by) =
        least.min_by(|left, right| left.0.total_cmp(&right.0)).unwrap_or((f64::INFINITY, Limit::Cores));
    DataLimit { samples_per_second, by }
}

/// Seconds of a step whose samples arrive beside it: the longer of both, and a little of the shorter where they are
/// close, because neither is even.
pub fn step_with_data(step: f64, samples: f64, limit: DataLimit) -> f64 {
    let arriving = samples / limit.samples_per_second;
    let (long, short) = if step > arriving { (step, arriving) } else { (arriving, step) };
    if long <= 0.0 || !long.is_finite() {
        return step;
    }
    long * (1.0 + (short / long).powi(8)).powf(0.125)
}

/// Seconds to evaluate `samples`: forward passes only, a third of a step's computing (Kaplan et al. 2020, appendix B).
pub fn evaluation(samples: f64, samples_per_second: f64) -> f64 {
    samples / (3.0 * samples_per_second)
}

/// Seconds that training stands still for a checkpoint of `bytes` on each GPU: they are copied to the host's memory
/// over PCI Express, half of whose rate pinned copies reach; the rest happens beside training.
pub fn checkpoint_stall(bytes_per_gpu: f64, gpu: &Gpu) -> f64 {
    bytes_per_gpu / (lanes(gpu) * 0.5)
}

/// Seconds until a checkpoint of `bytes` in all is where it outlives the machine.
pub fn checkpoint_write(bytes: f64, bytes_per_second: f64) -> f64 {
    bytes / bytes_per_second.max(1.0)
}

/// Seconds from the start of processes to the first usual step: the driver and libraries load, ranks find each other,
/// weights are read, the first steps try algorithms, and a compiler works where there is one.
pub fn start_up(setup: &Setup, weights: f64, read: f64) -> f64 {
    if setup.device.is_processor() {
        return START_AND_END;
    }
    let ranks = f64::from(setup.gpus());
    let meeting = if ranks > 1.0 { MEETING[0] + MEETING[1] * ranks.log2() } else { 0.0 };
    let compiler = if setup.compiled { COMPILER } else { 0.0 };
    LIBRARIES + meeting + weights / read.max(1.0) + compiler + TRYING
}

/// Seconds to load the driver's and PyTorch's libraries. Assumed, like the three below: rounded guesses of 2026-11 that
/// nothing here was measured for; a run of hours does not notice them.
const LIBRARIES: f64 = 12.0;
/// Seconds until ranks have found each other, and more each time their number doubles.
const MEETING: [f64; 2] = [4.0, 1.5];
/// Seconds that a compiler works.
const COMPILER: f64 = 60.0;
/// Seconds by which the first steps are slower together: algorithms are tried.
const TRYING: f64 = 5.0;

/// Bytes a second that a node's processors move between memory and themselves: eight channels of DDR4-3200.
const HOST_BANDWIDTH: f64 = 205e9;

/// Seconds of a step that weights and states in the host's memory add: weights go to the GPU for both passes and
/// gradients back, and the processors update what lies there.
pub fn offloaded(work: &OpProfile, setup: &Setup, savings: &Savings) -> f64 {
    // Each copy of a hybrid sharding is updated by the ranks that share it.
    let ranks = f64::from(setup.gpus()) / f64::from(setup.parallel.copies.max(1));
    let weights = work.parameters / ranks;
    let passes = if savings.offload_weights { 3.0 * setup.accumulate as f64 } else { 1.0 };
    let here = f64::from(setup.device.gpus_per_node.max(1));
    // Pages of 8-bit states come and go at once, both in turn with what is computed (bitsandbytes' paged optimisers). The
    // one that was used longest ago goes, and as they are used in the same order each time, that is the next one wanted.
    if savings.offload_optimizer && setup.optimizer == OptimizerKind::Adam8bit && !savings.offload_weights {
        return 2.0 * weights / (lanes(&setup.device.gpu) * 0.5);
    }
    // Weight, gradient and two moments are read, all but the gradient written.
    let updated = 7.0 * setup.precision.weight_bytes() * weights * here / HOST_BANDWIDTH;
    match savings.offload_weights || savings.offload_optimizer {
        true => passes * 2.0 * weights / (lanes(&setup.device.gpu) * 0.5) + updated,
        false => 0.0,
    }
}

/// Seconds of a step of `computed` seconds that copies of recomputed blocks' inputs to the host's memory and back add: what
/// computing beside them does not hide. Each GPU has its own lanes, and all of a node share the host's memory.
pub fn offloaded_activations(work: &OpProfile, setup: &Setup, computed: f64) -> f64 {
    let parallel = &setup.parallel;
    let divided = f64::from(parallel.context.max(1)) * f64::from(parallel.pipeline.max(1));
    let divided = divided * if parallel.sequence { f64::from(parallel.tensor.max(1)) } else { 1.0 };
    let samples = setup.micro_batch as f64 * setup.accumulate.max(1) as f64;
    let bytes = samples * work.boundary * f64::from(work.blocks) * setup.precision.compute_bytes() / divided;
    let here = f64::from(setup.device.gpus_per_node.max(1));
    let rate = (lanes(&setup.device.gpu) * 0.5).min(HOST_BANDWIDTH / here);
    (2.0 * bytes / rate - computed).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_part_of_the_way_limits_data() {
        let supply = Supply { nodes: 2, cores: 10.0, disk: Some(1e9), network: None };
        let limit = data_limit(PreprocessingRate { per_core: 900.0, bytes: 110e3 }, supply);
        assert_eq!((limit.samples_per_second, limit.by), (18_000.0, Limit::Cores));
        let slow = data_limit(PreprocessingRate { per_core: 900.0, bytes: 1e6 }, supply);
        assert_eq!((slow.samples_per_second, slow.by), (2000.0, Limit::Disk));
    }

    #[test]
    fn a_step_waits_for_data_only_when_data_is_slower() {
        let limit = DataLimit { samples_per_second: 1000.0, by: Limit::Cores };
        assert!((step_with_data(1.0, 100.0, limit) - 1.0).abs() < 1e-6);
        assert!((step_with_data(0.01, 100.0, limit) - 0.1).abs() < 1e-6);
        assert!((1.0..1.1).contains(&step_with_data(1.0, 1000.0, limit)));
    }

    #[test]
    fn evaluation_costs_a_third_of_training() {
        assert_eq!(evaluation(3000.0, 1000.0), 1.0);
    }
}
