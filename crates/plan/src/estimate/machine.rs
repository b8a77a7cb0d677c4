//! One GPU as an estimate sees it: stated rates times what its generation reaches of them.

use domain::gpu::{Gpu, GpuClass, Rates};

use super::fitted::rates::{Generation, Shared};
use super::setup::{Layout, NumericFormat, Setup};

/// How a program runs a network, as far as time depends on it; by default as PyTorch's own modules do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct ProgramStyle {
    pub modules: EagerModules,
    /// What passes between blocks is in fp32 beside weights in 16 bits, and is cast for each product.
    pub fp32_between_blocks: bool,
    /// Exchanges inside layers run beside the products next to them, in pieces.
    pub overlapped_layers: bool,
    /// FSDP shards each matrix of an adapter as a unit of its own.
    pub adapters_are_units: bool,
    /// Experts run one after the other, each as kernels of its own.
    pub loops_over_experts: bool,
    /// The kernels before a product in fp8 write what it reads in fp8 (Transformer Engine).
    pub fused_casts: bool,
}

/// Whose code the modules of a network are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum EagerModules {
    /// PyTorch's own, or like them.
    #[default]
    Plain,
    /// Those of Hugging Face's Transformers, with fused kernels for normalisations, rotations and the loss (Liger Kernel,
    /// Unsloth).
    FusedTransformers,
    /// Those of Transformers.
    Transformers,
}

/// Share of the casts to fp8 that is left where normalisations and activations write fp8 themselves (Transformer Engine's
/// `LayerNormLinear` and `LayerNormMLP`): those of gradients, one of three tensors. Assumed.
const FUSED_CASTS: f64 = 0.33;

/// Rates that are reached, and the form of the program.
#[derive(Debug, Clone, PartialEq)]
pub struct Machine {
    pub shared: Shared,
    /// FLOP/s of large products with weights.
    pub products: f64,
    /// The same of convolutions.
    pub convolutions: f64,
    /// FLOP/s without matrix units.
    pub plain: f64,
    /// The same in fp8, where products are computed in it.
    pub eight: Option<f64>,
    /// Bytes per second.
    pub bandwidth: f64,
    pub multiprocessors: f64,
    /// Bytes of an activation's value.
    pub width: f64,
    /// Bytes that a weight's conversion moves in each pass, 0 without autocast.
    pub cast: f64,
    /// Autocast casts operator by operator: sums and normalisations stay in 32 bits, and no compiler joins the casts with
    /// what is beside them.
    pub casts: bool,
    /// Passes to turn 16-bit images around for each convolution; 0 where they lie as they should.
    pub layout_transpose: f64,
    /// Ranks that share one layer.
    pub tensor: f64,
    /// Ranks among which experts are divided.
    pub expert: f64,
    pub style: ProgramStyle,
    pub flash: bool,
    /// FLOP/s of flash attention on endless sequences.
    pub flash_rate: f64,
    /// One kernel scales, masks and normalises scores of attention, one leaves values out and adds the residual.
    pub fused_kernels: bool,
    pub compiled: bool,
}

impl Machine {
    /// Returns the GPU of a setup as a generation of these figures reaches its rates.
    pub fn of(setup: &Setup, generation: &Generation, shared: Shared) -> Machine {
        let gpu = &setup.device.gpu;
        let boost = match gpu.traits.class {
            GpuClass::Consumer => shared.boost,
            GpuClass::Professional => 1.0,
        };
        let rate = Reached::of(gpu, generation, setup.precision, boost);
        let half = setup.precision.compute_bytes() < 4.0;
        let cast = if setup.precision.is_autocast() { 6.0 } else { 0.0 };
        Machine {
            products: rate.products,
            convolutions: rate.products * if rate.half { generation.convolution } else { generation.convolution32 },
            plain: gpu.rates.fp32 * generation.plain * boost,
            eight: rate.eight,
            bandwidth: gpu.bandwidth * generation.bandwidth,
            multiprocessors: f64::from(gpu.multiprocessors.max(1)),
            width: setup.precision.compute_bytes(),
            cast,
            casts: cast > 0.0 && !setup.compiled,
            layout_transpose: match half && rate.half && setup.layout == Layout::ChannelsFirst {
                true => generation.layout_transpose,
                false => 0.0,
            },
            tensor: f64::from(setup.parallel.tensor.max(1)),
            expert: f64::from(setup.parallel.expert.max(1)),
            style: ProgramStyle::default(),
            flash: setup.flash_attention,
            flash_rate: rate.products * shared.flash,
            fused_kernels: false,
            compiled: setup.compiled,
            shared,
        }
    }

    /// Passes over what a product in fp8 reads and writes that casts take.
    pub fn cast_passes(&self) -> f64 {
        self.shared.casts * if self.style.fused_casts { FUSED_CASTS } else { 1.0 }
    }

    /// Seconds in which the processor starts a kernel.
    pub fn launch(&self) -> f64 {
        let microseconds = match (self.compiled, self.style.modules) {
            (true, _) => self.shared.launch_compiled,
            (false, EagerModules::Plain) => self.shared.launch,
            (false, EagerModules::Transformers | EagerModules::FusedTransformers) => self.shared.launch_modules,
        };
        microseconds * 1e-6
    }

    /// Time of one pass over `bytes`.
    pub fn pass(&self, bytes: f64) -> f64 {
        bytes / self.bandwidth
    }

    /// Time of an operator that computes for `arithmetic` and moves memory for `memory` at the same time.
    pub fn both(&self, arithmetic: f64, memory: f64) -> f64 {
        let (large, small) = if arithmetic > memory { (arithmetic, memory) } else { (memory, arithmetic) };
        if large <= 0.0 {
            return 0.0;
        }
        let sharpness = self.shared.sharpness;
        large * (1.0 + (small / large).powf(sharpness)).powf(1.0 / sharpness)
    }
}

/// FLOP/s of large products.
struct Reached {
    products: f64,
    eight: Option<f64>,
    /// In 16 bits on matrix units.
    half: bool,
}

impl Reached {
    fn of(gpu: &Gpu, generation: &Generation, precision: NumericFormat, boost: f64) -> Reached {
        let Rates { fp32, tf32, fp16, bf16, fp8 } = gpu.rates;
        let fp32 = fp32 * boost;
        let [tf32, fp16, bf16, fp8] = [tf32, fp16, bf16, fp8].map(|rate| rate.map(|rate| rate * boost));
        let power = gpu.power.max(1.0) * generation.joule * 1e12;
        let plain = fp32 * generation.plain;
        let half = |rate: Option<f64>| match rate.filter(|rate| *rate > 2.5 * fp32 || tf32.is_some()) {
            Some(rate) => Reached { products: limited(rate * generation.tensor, power), eight: None, half: true },
            None => Reached { products: plain, eight: None, half: false },
        };
        match precision {
            NumericFormat::Auto | NumericFormat::Fp32 => Reached { products: plain, eight: None, half: false },
            NumericFormat::Tf32 => match tf32 {
                Some(rate) => {
                    let products = limited(rate * generation.tensor32, power / 2.0).max(plain);
                    Reached { products, eight: None, half: false }
                }
                None => Reached { products: plain, eight: None, half: false },
            },
            NumericFormat::AmpFp16 => half(fp16),
            NumericFormat::AmpBf16 | NumericFormat::Bf16 => half(bf16),
            NumericFormat::Fp8 => {
                let base = half(bf16);
                let eight = fp8.map(|rate| limited(rate * generation.tensor8, power * 2.0).max(base.products));
                Reached { eight, ..base }
            }
        }
    }
}

/// The smaller of two rates, rounded where they meet.
fn limited(rate: f64, limit: f64) -> f64 {
    rate / (1.0 + (rate / limit).powi(4)).powf(0.25)
}
