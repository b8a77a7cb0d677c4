//! The numbers that were fitted for graphs: for all GPUs, and for each generation.

use domain::gpu::{Gpu, GpuArchitecture, GpuMemoryKind};
use serde::{Deserialize, Serialize};

/// A fitted number's bounds and where its fit begins.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FitRange {
    pub name: &'static str,
    pub low: f64,
    pub start: f64,
    pub high: f64,
}

/// Writes a struct of fitted numbers together with their bounds, in one order.
macro_rules! fitted {
    ($(#[$about:meta])* $visibility:vis struct $name:ident { $($(#[$doc:meta])* $field:ident: $low:literal < $start:literal < $high:literal,)* }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
        $visibility struct $name { $($(#[$doc])* pub $field: f64,)* }

        impl $name {
            /// Bounds of each, in the order of [`Self::values`].
            pub const BOUNDS: &'static [FitRange] = &[$(FitRange { name: stringify!($field), low: $low, start: $start, high: $high },)*];

            /// Returns all numbers.
            pub fn values(&self) -> Vec<f64> {
                vec![$(self.$field,)*]
            }

            /// Takes the next numbers from `values`; those that are missing keep where their fit begins.
            pub fn from_values(values: &mut impl Iterator<Item = f64>) -> $name {
                $name { $($field: values.next().unwrap_or($start),)* }
            }
        }

        impl Default for $name {
            fn default() -> $name {
                $name { $($field: $start,)* }
            }
        }
    };
}

fitted! {
    /// What one generation of GPUs reaches of its stated rates.
    pub struct Generation {
        /// Share of the dense 16-bit rate in large products.
        tensor: 0.15 < 0.7 < 1.0,
        /// Share of the TF32 rate.
        tensor32: 0.15 < 0.7 < 1.0,
        /// Share of the plain FP32 rate.
        plain: 0.3 < 0.8 < 1.0,
        /// What 16-bit convolutions reach of what products reach.
        convolution: 0.15 < 0.6 < 1.0,
        /// The same in TF32 and FP32; above 1 where 3×3 kernels are transformed (Winograd; Lavin and Gray 2015).
        convolution32: 0.2 < 0.7 < 1.6,
        /// Share of the memory bandwidth.
        bandwidth: 0.4 < 0.8 < 1.0,
        /// 16-bit operations a joule, in units of 10¹²: at full load clocks fall until the power fits.
        joule: 0.2 < 1.2 < 5.0,
        /// Passes that 16-bit convolutions take to turn channels-first images around and back.
        layout_transpose: 0.05 < 0.7 < 4.0,
        /// Share of the FP8 rate.
        tensor8: 0.1 < 0.4 < 1.0,
    }
}

fitted! {
    /// What holds on every GPU.
    pub struct Shared {
        /// How sharply the slower of arithmetic and memory wins: 1 adds them, many take the larger.
        sharpness: 1.0 < 2.0 < 8.0,
        /// Depth of a product at which half of the rate is reached.
        depth: 8.0 < 100.0 < 1000.0,
        /// Share of the last, incomplete wave of tiles that is waited for.
        wave: 0.05 < 0.5 < 1.0,
        /// What products of two activations reach of what products with weights reach.
        attention: 0.1 < 0.5 < 1.0,
        /// The same for flash attention.
        flash: 0.1 < 0.5 < 1.0,
        /// What backward products reach of what forward products reach.
        backward: 0.5 < 0.9 < 1.0,
        /// Passes over memory of an elementwise operator, relative to the least possible.
        elementwise: 1.0 < 1.1 < 3.0,
        /// The same of normalisations.
        norm: 1.0 < 1.2 < 4.0,
        /// The same of the scores of attention where they pass through several kernels.
        scores: 0.5 < 1.0 < 3.0,
        /// The same of convolutions.
        convolved: 1.0 < 1.2 < 5.0,
        /// Share of elementwise passes that remains in a compiled or hand-fused program.
        fused: 0.2 < 0.6 < 1.0,
        /// The same of kernels.
        fewer: 0.1 < 0.5 < 1.0,
        /// Time of the shortest kernel on the GPU, microseconds.
        kernel: 0.5 < 2.0 < 10.0,
        /// Time of the processor to start a kernel, microseconds.
        launch: 1.0 < 7.0 < 40.0,
        /// The same in a compiled program.
        launch_compiled: 0.5 < 3.0 < 40.0,
        /// The same from the modules of Hugging Face's Transformers, whose Python code runs between kernels.
        launch_modules: 4.0 < 14.0 < 60.0,
        /// Time of the processor to gather or scatter one unit of FSDP, microseconds.
        unit: 10.0 < 200.0 < 1500.0,
        /// Work of each step besides, milliseconds.
        step: 0.05 < 2.0 < 60.0,
        /// Bytes of the optimiser's pass, relative to the least possible.
        optimizer: 1.0 < 1.5 < 5.0,
        /// What grouped convolutions reach of what plain ones reach.
        grouped: 0.02 < 0.3 < 1.0,
        /// Share of the backward pass that hides the exchange of gradients.
        overlap: 0.05 < 0.6 < 1.0,
        /// Passes over what an exchange moves by which it slows the computing beside it: its kernels hold multiprocessors
        /// and memory bandwidth (Rashidi et al. 2021).
        contention: 0.5 < 4.0 < 30.0,
        /// Share of its bandwidth that an NVLink switch gives a ring.
        switch: 0.4 < 0.75 < 1.0,
        /// What programs keep of the bandwidth that NCCL by itself reached in a mesh without switch.
        mesh: 0.6 < 0.9 < 1.0,
        /// The same of a bridge between two.
        bridge: 0.2 < 0.7 < 1.0,
        /// The same of PCI Express.
        pcie: 0.05 < 0.4 < 1.0,
        /// The same where data go through the host's memory, relative to direct access.
        host: 0.1 < 0.6 < 1.0,
        /// How much each further GPU slows a ring over PCI Express.
        sharing: 0.01 < 0.1 < 1.0,
        /// Share of the network's bandwidth.
        network: 0.2 < 0.7 < 1.0,
        /// Start of one step of a ring inside a node, microseconds.
        hop: 1.0 < 6.0 < 40.0,
        /// The same between nodes.
        far_hop: 2.0 < 15.0 < 200.0,
        /// How much a step grows each time the number of nodes doubles: the slowest of many is waited for.
        straggling: 0.001 < 0.01 < 0.08,
        /// The same for GPUs of one node.
        near_straggling: 0.001 < 0.01 < 0.05,
        /// Hiding of the gathers of sharded weights behind computing.
        gather: 0.05 < 0.8 < 1.0,
        /// Time of a stage that a pipeline adds to each micro-batch, microseconds.
        stage: 1.0 < 100.0 < 3000.0,
        /// Time of the processor to begin a recomputed block, microseconds: the state of random numbers is kept.
        restart: 10.0 < 500.0 < 4000.0,
        /// The same for an exchange inside layers, each time the number of ranks that wait for each other doubles.
        issue: 2.0 < 30.0 < 600.0,
        /// What programs of 2021 and before reach of what today's do.
        aged: 0.7 < 0.92 < 1.0,
        /// Time of fp8 casts and scales, relative to the products' bytes.
        casts: 0.1 < 1.0 < 8.0,
        /// How much more of their stated rates consumer GPUs (GeForce, Titan) reach than professional ones: they are stated at a usual clock
        /// and run above it while power and cooling allow (NVIDIA's GPU Boost), and at half the rate with sums in 32 bits
        /// matrix units are kept busy more easily.
        boost: 1.0 < 1.08 < 1.4,
    }
}

/// The generation of a GPU's chip. Ampere is two: GA100, with stacked memory, and the graphics chips; they share little
/// but the name (compute capability 8.0 against 8.6). So is Blackwell (10.0 against 12.0).
pub fn die(gpu: &Gpu) -> &'static str {
    match (gpu.architecture, gpu.traits.memory_kind) {
        (GpuArchitecture::Pascal, _) => "pascal",
        (GpuArchitecture::Volta, _) => "volta",
        (GpuArchitecture::Turing, _) => "turing",
        (GpuArchitecture::Ampere, GpuMemoryKind::Stacked) => "ampere_stacked",
        (GpuArchitecture::Ampere, GpuMemoryKind::Graphics) => "ampere",
        (GpuArchitecture::Ada, _) => "ada",
        (GpuArchitecture::Hopper, _) => "hopper",
        (GpuArchitecture::Blackwell, GpuMemoryKind::Stacked) => "blackwell_stacked",
        (GpuArchitecture::Blackwell, GpuMemoryKind::Graphics) => "blackwell",
        (GpuArchitecture::Cdna3, _) => "cdna3",
        (GpuArchitecture::Cdna4, _) => "cdna4",
        (GpuArchitecture::Unlisted, _) => "unlisted",
        (GpuArchitecture::Processor, _) => "processor",
    }
}
