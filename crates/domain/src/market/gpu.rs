//! GPUs: the specifications of a kind of GPU, as stated by its vendor. Rates are dense; nothing here is fitted or
//! measured.

mod spec;
mod units;

pub use spec::{GpuSpec, ImpossibleSpec};
pub use units::{DescribedLink, GpuMemory, MemoryBandwidth, PeakRate, PowerLimit};

use serde::{Deserialize, Serialize};

use crate::units::Bytes;

/// One kind of GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Gpu {
    /// The one name it has here, such as `A100-SXM4-80GB`; other spellings are aliases in the catalog.
    pub name: String,
    pub architecture: GpuArchitecture,
    /// Memory of one GPU, as its name states it.
    pub memory: Bytes,
    /// The memory available to a program: the total that CUDA's allocator reports, without driver and ECC overhead.
    pub usable: Bytes,
    /// Memory bandwidth in bytes a second.
    pub bandwidth: f64,
    /// Peak dense rates.
    pub rates: Rates,
    /// How it reaches the other GPUs of its node.
    pub link: Link,
    /// Generation of PCI Express, such as 4 for `4.0 x16`.
    pub pcie: u8,
    /// Streaming multiprocessors, or compute units.
    pub multiprocessors: u32,
    /// Thermal design power in watts.
    pub power: f64,
    /// Where the figures come from, and whether they were confirmed there.
    pub source: String,
    /// What else an estimate depends on.
    #[serde(default)]
    pub traits: GpuTraits,
}

/// Facts of a kind of GPU that no rate says, from the columns of `catalog/gpus.csv`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct GpuTraits {
    pub class: GpuClass,
    /// Whether the driver lets it read another GPU's memory, over PCI Express or a bridge; exchanges go through the
    /// host's memory where it does not.
    pub peer_access: bool,
    pub memory_kind: GpuMemoryKind,
    pub platform: GpuPlatform,
    /// GPUs that NVLink connects beyond one machine, such as 72 of an NVL72 rack.
    pub nvlink_domain: Option<u32>,
    /// The user describes it: nothing was measured on it, whatever its generation.
    pub described: bool,
}

impl Default for GpuTraits {
    /// Those of a GPU for data centres.
    fn default() -> GpuTraits {
        GpuTraits {
            class: GpuClass::Professional,
            peer_access: true,
            memory_kind: GpuMemoryKind::Stacked,
            platform: GpuPlatform::Cuda,
            nvlink_domain: None,
            described: false,
        }
    }
}

/// Who a GPU is made for. Rates of consumer GPUs are stated at a usual clock, which boost exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GpuClass {
    /// GeForce and Titan.
    Consumer,
    /// Data centres and workstations.
    Professional,
}

/// The kind of a GPU's memory, which tells apart the chips that one generation has for data centres and for graphics.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
pub enum GpuMemoryKind {
    /// HBM of any generation.
    #[serde(rename = "hbm")]
    Stacked,
    /// GDDR of any generation.
    #[serde(rename = "gddr")]
    Graphics,
}

/// What a program for a GPU is built for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum GpuPlatform {
    /// CUDA on x86-64.
    Cuda,
    /// CUDA on the Arm processor that it is soldered to or rented with.
    CudaArm,
    /// ROCm on x86-64.
    Rocm,
}

/// Peak dense rates in FLOP/s; `None` for unsupported types.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Rates {
    pub fp32: f64,
    pub tf32: Option<f64>,
    pub fp16: Option<f64>,
    pub bf16: Option<f64>,
    pub fp8: Option<f64>,
}

/// A vendor's generation of GPUs. Fitted parameters are per generation, never per model of GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GpuArchitecture {
    /// NVIDIA, 2016: P100, GTX 10.
    Pascal,
    /// NVIDIA, 2017: V100.
    Volta,
    /// NVIDIA, 2018: T4, RTX 20.
    Turing,
    /// NVIDIA, 2020: A100, A10, RTX 30.
    Ampere,
    /// NVIDIA, 2022: L4, L40S, RTX 40.
    Ada,
    /// NVIDIA, 2022: H100, H200.
    Hopper,
    /// NVIDIA, 2024: B200, RTX 50.
    Blackwell,
    /// AMD, 2023: MI300X, MI325X.
    Cdna3,
    /// AMD, 2025: MI350X, MI355X.
    Cdna4,
    /// None of these: a GPU that a user describes.
    #[schemars(skip)]
    Unlisted,
    /// No GPU: cores of a processor, as far as one rank has them.
    #[schemars(skip)]
    Processor,
}

/// How a GPU reaches the others of its node.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Link {
    /// Through the host only.
    Pcie,
    /// A bridge between two GPUs: bytes a second, both directions together.
    Bridge(f64),
    /// A mesh without a switch, as in the DGX-1: bytes a second and GPU, both directions together.
    Mesh(f64),
    /// Every GPU with every other at full rate: bytes a second and GPU, both directions together.
    Switch(f64),
}
