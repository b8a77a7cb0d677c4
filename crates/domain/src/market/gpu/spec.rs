//! A GPU that the catalog does not know, as its maker states it: `resources.gpu_specs` of a job, or a row of an imported
//! table. Nothing was measured on it, so that estimates have a wide band.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::units::{DescribedLink, GpuMemory, MemoryBandwidth, PeakRate, PowerLimit};
use super::{Gpu, GpuArchitecture, GpuClass, GpuMemoryKind, GpuTraits, Rates};
use crate::units::Bytes;

/// A GPU that the catalog does not know.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GpuSpec {
    /// Memory of one GPU, such as `96GB`.
    pub memory: GpuMemory,
    /// Memory bandwidth, such as `3.35TB/s`.
    pub bandwidth: MemoryBandwidth,
    /// Power limit of one GPU, such as `700W`.
    pub power: PowerLimit,
    /// Peak rate in BF16 on matrix units, dense, such as `989TFLOPS`. One of `bf16`, `fp16` and `fp32` is needed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bf16: Option<PeakRate>,
    /// The same in FP16. Default: as in BF16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp16: Option<PeakRate>,
    /// Peak rate in FP32 without matrix units. Default: a sixteenth of the rate in 16 bits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp32: Option<PeakRate>,
    /// Peak rate in TF32 on matrix units, dense. Default: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tf32: Option<PeakRate>,
    /// Peak rate in FP8 on matrix units, dense. Default: it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp8: Option<PeakRate>,
    /// How it reaches the other GPUs of its machine: `pcie`, or `bridge`, `mesh` or `switch` with its bandwidth, both directions together, such as `switch 900GB/s`. Default: `pcie`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub link: Option<DescribedLink>,
    /// Generation of PCI Express. Default: 4.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 3, max = 6))]
    pub pcie: Option<u8>,
    /// Streaming multiprocessors, or compute units. Default: 100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100_000))]
    pub multiprocessors: Option<u32>,
    /// Generation, where it is one of these: estimates then reach the shares of peak rates that were measured on others of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<GpuArchitecture>,
    /// Default: `professional`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<GpuClass>,
    /// Whether the driver lets it read another GPU's memory. Default: `true`, and `false` for consumer GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peer_access: Option<bool>,
    /// Default: `hbm` from 900 GB/s on, and `gddr` below and for consumer GPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_kind: Option<GpuMemoryKind>,
}

/// Why a description cannot be: the key, a sentence, and what to write.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImpossibleSpec {
    pub key: &'static str,
    pub message: String,
    pub hint: &'static str,
}

/// What a program can use of the stated memory: GPUs of the catalog leave 91 to 99 %. Assumed.
const USABLE: f64 = 0.95;
/// The rate in 16 bits over the one without matrix units: 14.8 of an H100, 16 of an A100.
const FP32_SHARE: f64 = 16.0;
/// GPUs of the catalog with at least so many bytes a second have stacked memory, but for few.
const STACKED: f64 = 900e9;
/// Where it is not stated; between the 72 of an A10 and the 132 of an H100.
const MULTIPROCESSORS: u32 = 100;
/// PCI Express where it is not stated.
const PCIE: u8 = 4;

impl GpuSpec {
    /// What cannot be: no rate at all, or a rate below that of a wider format.
    pub fn problems(&self) -> Vec<ImpossibleSpec> {
        let mut problems = Vec::new();
        let half = self.bf16.or(self.fp16);
        if half.or(self.fp32).is_none() {
            problems.push(ImpossibleSpec {
                key: "bf16",
                message: "a GPU without a peak rate computes nothing".to_owned(),
                hint: "add `bf16: …`, the dense rate of its matrix units, such as `989TFLOPS`",
            });
        }
        let rates =
            [("fp32", self.fp32), ("tf32", self.tf32), ("fp16", self.fp16), ("bf16", self.bf16), ("fp8", self.fp8)];
        for (place, (narrow, rate)) in rates.iter().enumerate() {
            let wider = rates[..place].iter().filter(|(wide, _)| !matches!((*wide, *narrow), ("fp16", "bf16")));
            for (wide, wider) in wider {
                if let (Some(rate), Some(wider)) = (rate, wider)
                    && rate.flops() < wider.flops()
                {
                    problems.push(ImpossibleSpec {
                        key: narrow,
                        message: format!("its rate in {narrow}, {rate}, is below the one in {wide}, {wider}"),
                        hint: "write dense rates, not sparse ones, and leave out formats that its matrix units have not",
                    });
                }
            }
        }
        problems
    }

    /// The GPU of this name, as estimates take it.
    pub fn gpu(&self, name: &str, source: &str) -> Gpu {
        let flops = |rate: Option<PeakRate>| rate.map(PeakRate::flops);
        let memory = self.memory.bytes();
        let bandwidth = self.bandwidth.bytes_per_second();
        let fp16 = flops(self.fp16.or(self.bf16));
        let class = self.class.unwrap_or(GpuClass::Professional);
        let is_professional = class == GpuClass::Professional;
        let memory_kind = match bandwidth >= STACKED && is_professional {
            true => GpuMemoryKind::Stacked,
            false => GpuMemoryKind::Graphics,
        };
        Gpu {
            name: name.to_owned(),
            architecture: self.architecture.unwrap_or(GpuArchitecture::Unlisted),
            memory,
            usable: Bytes((memory.0 as f64 * USABLE) as u64),
            bandwidth,
            rates: Rates {
                fp32: flops(self.fp32).or(fp16.map(|rate| rate / FP32_SHARE)).unwrap_or_default(),
                tf32: flops(self.tf32),
                fp16,
                bf16: flops(self.bf16),
                fp8: flops(self.fp8),
            },
            link: self.link.unwrap_or(DescribedLink::Pcie).link(),
            pcie: self.pcie.unwrap_or(PCIE),
            multiprocessors: self.multiprocessors.unwrap_or(MULTIPROCESSORS),
            power: self.power.watts(),
            source: source.to_owned(),
            traits: GpuTraits {
                class,
                peer_access: self.peer_access.unwrap_or(is_professional),
                memory_kind: self.memory_kind.unwrap_or(memory_kind),
                described: true,
                ..GpuTraits::default()
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec(rates: &[(&str, &str)]) -> GpuSpec {
        let mut keys = serde_json::json!({ "memory": "96GB", "bandwidth": "3.35TB/s", "power": 700 });
        for (key, rate) in rates {
            keys[*key] = serde_json::Value::from(*rate);
        }
        serde_json::from_value(keys).expect("a description")
    }

    #[test]
    fn what_is_not_stated_is_assumed_or_absent() {
        let gpu = spec(&[("bf16", "960TFLOPS")]).gpu("X100", "the job");
        assert_eq!((gpu.memory, gpu.bandwidth, gpu.power), (Bytes(96 << 30), 3350e9, 700.0));
        assert_eq!((gpu.rates.fp16, gpu.rates.bf16), (Some(960e12), Some(960e12)));
        assert_eq!((gpu.rates.fp32, gpu.rates.tf32, gpu.rates.fp8), (60e12, None, None));
        assert!(gpu.traits.described && gpu.traits.peer_access && gpu.usable < gpu.memory);
        assert_eq!((gpu.architecture, gpu.traits.memory_kind), (GpuArchitecture::Unlisted, GpuMemoryKind::Stacked));
        let old = spec(&[("fp16", "125TFLOPS"), ("class", "consumer")]).gpu("X1", "the job");
        assert_eq!((old.rates.bf16, old.traits.peer_access), (None, false));
        assert_eq!(old.traits.memory_kind, GpuMemoryKind::Graphics);
    }

    #[test]
    fn impossible_rates_are_refused_by_name() {
        let keys = |rates: &[(&str, &str)]| -> Vec<&str> {
            spec(rates).problems().into_iter().map(|problem| problem.key).collect()
        };
        assert_eq!(keys(&[("bf16", "989TFLOPS"), ("fp32", "67TFLOPS"), ("fp8", "1979TFLOPS")]), Vec::<&str>::new());
        assert_eq!(keys(&[("fp32", "8TFLOPS")]), Vec::<&str>::new());
        assert_eq!(keys(&[]), ["bf16"]);
        assert_eq!(keys(&[("tf32", "100TFLOPS")]), ["bf16"]);
        assert_eq!(keys(&[("bf16", "60TFLOPS"), ("fp32", "67TFLOPS")]), ["bf16"]);
        assert_eq!(keys(&[("bf16", "989TFLOPS"), ("fp8", "900TFLOPS")]), ["fp8"]);
        assert_eq!(keys(&[("bf16", "2PFLOPS"), ("fp16", "1PFLOPS")]), Vec::<&str>::new());
        let unknown = serde_json::json!({ "memory": "1GB", "bandwidth": "1TB/s", "power": 1, "bf16x": "1TFLOPS" });
        assert!(serde_json::from_value::<GpuSpec>(unknown).is_err());
    }

    #[test]
    fn descriptions_are_stored_as_they_are_read() {
        let written = spec(&[("bf16", "989.4TFLOPS"), ("link", "switch 900GB/s"), ("architecture", "hopper")]);
        let text = serde_json::to_string(&written).expect("text");
        assert_eq!(serde_json::from_str::<GpuSpec>(&text).ok(), Some(written));
    }
}
