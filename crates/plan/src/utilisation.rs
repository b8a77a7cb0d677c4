//! Model FLOPs utilization: the fraction of a device's peak that a run has achieved (Chowdhery et al. 2022, "PaLM",
//! appendix B).
//!
//! Counted are the operations of the network itself, once forward and twice that backward, whatever else a program
//! computes: recomputed blocks count once. Masked attention counts fully. A peak is the vendor's figure for dense
//! products in that format; without one, there is no utilization.

use domain::gpu::Gpu;

use crate::model::Graph;

/// Returns the floating-point operations of one training step for one sample: a multiply-add is two.
pub fn flops_per_sample(graph: &Graph) -> f64 {
    3.0 * 2.0 * graph.multiply_adds() as f64
}

/// Returns the stated dense rate, in FLOP/s, of products in a format by its name in a job file; `None` if the GPU does
/// not support it, or the name is not a format.
pub fn peak(gpu: &Gpu, precision: &str) -> Option<f64> {
    match precision {
        "fp32" => Some(gpu.rates.fp32),
        "tf32" => gpu.rates.tf32,
        "bf16" => gpu.rates.bf16,
        "fp16" => gpu.rates.fp16,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use domain::Bytes;
    use domain::architecture::Architecture;
    use domain::gpu::{self, Link, Rates};
    use domain::rank::Sample;
    use domain::train::Model;

    use super::*;
    use crate::model::ours;

    #[test]
    fn a_sample_takes_six_operations_for_each_multiply_add() {
        let sample = Sample::Image { channels: 3, height: 224, width: 224 };
        let graph = ours::graph(Architecture::of(Model::Resnet50), sample, 1000).unwrap();
        // torchvision states 4.089 billion multiply-adds.
        assert!((flops_per_sample(&graph) / 6.0 / 1e9 - 4.089).abs() < 0.001);
    }

    #[test]
    fn a_peak_is_that_of_the_format() {
        let gpu = Gpu {
            name: "G".into(),
            architecture: gpu::GpuArchitecture::Turing,
            memory: Bytes(16 << 30),
            usable: Bytes(15 << 30),
            bandwidth: 320e9,
            rates: Rates { fp32: 8.1e12, fp16: Some(65e12), ..Rates::default() },
            link: Link::Pcie,
            pcie: 3,
            multiprocessors: 40,
            power: 70.0,
            source: String::new(),
            traits: gpu::GpuTraits::default(),
        };
        for (precision, expected) in
            [("fp32", Some(8.1e12)), ("fp16", Some(65e12)), ("bf16", None), ("tf32", None), ("auto", None)]
        {
            assert_eq!(peak(&gpu, precision), expected, "{precision}");
        }
    }
}
