//! Time of one operator on one GPU, forwards and backwards: the roofline of Williams et al. 2009 with shapes.
//!
//! A product of matrices reaches its rate only when its tiles fill the GPU evenly and its depth covers their start; all
//! other operators move memory. Backward passes of layers with weights compute twice what forward passes do.

use super::machine::{EagerModules, Machine};
use super::ops::{BlockPosition, OpGroup};
use super::savings::{Adapters, NF4};
use crate::model::graph::{Norm, OpKind, Steps};

/// Edge of the tiles that products are computed in.
const TILE: f64 = 128.0;
/// The smallest part of such a tile that is computed for a narrow product.
const NARROW: f64 = 32.0;

/// Tokens of a causal sequence at which flash attention reaches half of what it reaches on endless ones: tiles on the
/// diagonal are half masked, and each starts anew. From Dao 2023 (FlashAttention-2), figure 4: on an A100 some 90, 155, 175
/// and 190 TFLOP/s at 512, 2,048, 4,096 and 16,384 tokens; without mask a quarter of it.
const FLASH_DEPTH: f64 = 512.0;

/// Seconds on the GPU, and how many kernels are started.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct OperatorCost {
    pub forward: f64,
    pub backward: f64,
    pub kernels: [f64; 2],
}

impl OperatorCost {
    fn and(&self, other: &OperatorCost) -> OperatorCost {
        OperatorCost {
            forward: self.forward + other.forward,
            backward: self.backward + other.backward,
            kernels: [0, 1].map(|pass: usize| self.kernels[pass] + other.kernels[pass]),
        }
    }
}

/// A product of `rows` × `inner` by `inner` × `columns`, `batch` times.
#[derive(Debug, Clone, Copy)]
struct MatmulShape {
    batch: f64,
    rows: f64,
    inner: f64,
    columns: f64,
}

impl Machine {
    /// Returns what one operator of `group` costs for `samples` samples.
    pub fn cost(&self, group: &OpGroup, samples: f64) -> OperatorCost {
        let part = if group.divided { 1.0 / self.tensor } else { 1.0 };
        // Values that stay in 32 bits are twice as long.
        let longer = if self.casts { 1.0 + group.fp32_fraction } else { 1.0 };
        let cost = match group.kind {
            OpKind::Linear { .. }
            | OpKind::Convolution { .. }
            | OpKind::Attention { .. }
            | OpKind::Product { .. }
            | OpKind::Recurrent { .. } => self.products(group, samples, part),
            OpKind::Norm { .. }
            | OpKind::Activation { .. }
            | OpKind::Elementwise { .. }
            | OpKind::Softmax { .. }
            | OpKind::Dropout { .. } => self.each_value(group, samples, part, longer),
            OpKind::Embedding { .. }
            | OpKind::Pool { .. }
            | OpKind::Resize { .. }
            | OpKind::Copy { .. }
            | OpKind::View
            | OpKind::Loss { .. } => self.moves(group, samples, part, longer),
        };
        OperatorCost {
            forward: cost.forward + cost.kernels[0] * self.shared.kernel * 1e-6 * self.kernels(),
            backward: cost.backward + cost.kernels[1] * self.shared.kernel * 1e-6 * self.kernels(),
            kernels: cost.kernels.map(|kernels| kernels * self.kernels()),
        }
    }

    /// Operators that multiply matrices; `part` is the share of one tensor-parallel rank.
    fn products(&self, group: &OpGroup, samples: f64, part: f64) -> OperatorCost {
        match group.kind {
            OpKind::Linear { rows, inner, columns, split: _ } => {
                // Experts that this rank holds, each with its share of the rows.
                let copies = group.copies();
                let held = (copies / self.expert).max(1.0);
                let shape = self.share(group, samples * rows as f64 / held, inner as f64, columns as f64);
                let shape = MatmulShape { batch: held, ..shape };
                let read = held * shape.rows * shape.inner;
                let cost = self.weighted(group, shape, self.eight.unwrap_or(self.products), shape.bytes(), read);
                let kernels = if self.style.loops_over_experts { held } else { 1.0 };
                OperatorCost { kernels: cost.kernels.map(|each| each * kernels), ..cost }
            }
            OpKind::Convolution { positions, inner, columns, groups, kernel } => {
                self.convolution(group, samples * positions as f64, inner as f64, columns as f64, groups as f64, kernel)
            }
            OpKind::Attention { heads, key_heads, width, value_width, queries, keys, causal, dropout } => {
                let heads = samples * heads as f64 * part;
                let key_share = key_heads as f64 * part / heads.max(1.0) * samples;
                let widths = [width as f64, value_width as f64];
                self.attention(heads, key_share, widths, [queries as f64, keys as f64], [causal, dropout])
            }
            OpKind::Product { batch, rows, inner, columns } => {
                let shape = MatmulShape {
                    batch: samples * batch as f64 * part,
                    rows: rows as f64,
                    inner: inner as f64,
                    columns: columns as f64,
                };
                let forward = self.product(shape, self.products * self.shared.attention, shape.bytes());
                OperatorCost { forward, backward: 2.0 * forward / self.shared.backward, kernels: [1.0, 2.0] }
            }
            OpKind::Recurrent { steps, inner, hidden, gates, directions } => {
                let (steps, inner, hidden) = (steps as f64, inner as f64, hidden as f64);
                let columns = gates as f64 * hidden;
                let all = MatmulShape { batch: 1.0, rows: samples * steps, inner, columns };
                let each = MatmulShape { batch: 1.0, rows: samples, inner: hidden, columns };
                let step = self.product(each, self.products, each.bytes()) + self.shared.kernel * 2e-6;
                let forward = (self.product(all, self.products, all.bytes()) + steps * step) * directions as f64;
                OperatorCost { forward, backward: 2.0 * forward, kernels: [2.0, 4.0] }
            }
            _ => OperatorCost::default(),
        }
    }

    /// Operators that read and write each value; those in 32 bits are so much `longer`.
    fn each_value(&self, group: &OpGroup, samples: f64, part: f64, longer: f64) -> OperatorCost {
        match group.kind {
            OpKind::Norm { norm, elements, groups: _ } => {
                if norm == Norm::Rms && self.writes_out() {
                    let elements = samples * elements as f64 * part * self.shared.elementwise * longer;
                    return self.passes(elements, 15.0, 30.0, [6.0, 12.0]);
                }
                // Statistics first, then values, where a group does not fit a multiprocessor.
                let [forward, backward] = match norm {
                    Norm::Batch => [3.0, 5.0],
                    Norm::Group => [3.0, 5.0],
                    Norm::Layer | Norm::Rms => [2.0, 3.0],
                };
                self.passes(samples * elements as f64 * part * self.shared.norm * longer, forward, backward, [1.0, 2.0])
            }
            OpKind::Activation { function, elements, in_place: _ } => {
                let elements = samples * elements as f64 * part * longer;
                match function.steps().filter(|_| !self.compiled) {
                    Some(Steps { passes: [forward, backward], kernels }) => {
                        self.passes(elements * self.shared.elementwise, forward, backward, kernels)
                    }
                    None => self.plain(elements, 2.0, 3.0),
                }
            }
            OpKind::Elementwise { elements, inputs: 1, product: false } if self.writes_out() => {
                self.passes(samples * elements as f64 * part * self.shared.elementwise * longer, 9.0, 11.0, [5.0, 7.0])
            }
            OpKind::Elementwise { elements, inputs, product } => {
                // Where two paths part, their gradients are summed; a product reads its factors again.
                let inputs = f64::from(inputs);
                let backward = if product { 2.0 * inputs + 1.0 } else { inputs + 1.0 };
                self.plain(samples * elements as f64 * part * longer, inputs + 1.0, backward)
            }
            OpKind::Softmax { elements } => self.plain(samples * elements as f64 * part * longer, 2.0, 3.0),
            // Before a residual sum its mask is all that a joint kernel writes beside that.
            OpKind::Dropout { elements } if self.fused_kernels && group.place == BlockPosition::Block => {
                let cost = self.plain(samples * elements as f64 * part, 0.5, 2.5);
                OperatorCost { kernels: [0.0, 1.0], ..cost }
            }
            OpKind::Dropout { elements } => self.plain(samples * elements as f64 * part * longer, 2.5, 2.5),
            _ => OperatorCost::default(),
        }
    }

    /// Operators that look up, move or reduce values.
    fn moves(&self, group: &OpGroup, samples: f64, part: f64, longer: f64) -> OperatorCost {
        match group.kind {
            OpKind::Embedding { rows, vocabulary, width, split: _ } => {
                let moved = samples * rows as f64 * width as f64;
                // The gradient of the whole table is written, mostly zeros.
                let table = vocabulary as f64 * width as f64 * part * 4.0;
                let forward = self.pass(2.0 * moved * self.width * longer);
                OperatorCost { forward, backward: forward + self.pass(moved * 4.0 + table), kernels: [1.0, 3.0] }
            }
            OpKind::Pool { maximum, inputs, outputs } => {
                let (inputs, outputs) = (samples * inputs as f64, samples * outputs as f64);
                let indices = if maximum { 8.0 * outputs } else { 0.0 };
                let moved = self.pass((inputs + outputs) * self.width * longer + indices) * self.shared.elementwise;
                OperatorCost { forward: moved, backward: 1.5 * moved, kernels: [1.0, 1.0] }
            }
            OpKind::Resize { elements } | OpKind::Copy { elements } => {
                self.plain(samples * elements as f64 * part * longer, 2.0, 2.0)
            }
            OpKind::View => OperatorCost::default(),
            OpKind::Loss { rows, classes } => {
                // In 32 bits in all programs. Scores in 16 bits are copied before, and their gradient back; `log_softmax` reads
                // them twice and writes as much. Backward, the loss's gradient is filled with zeros, and `log_softmax` reads
                // it and its own output and writes. A compiler fuses the copies and the zeros with that.
                let values = samples * rows as f64 * classes as f64 * part;
                let moved = self.pass(values * 4.0);
                match self.compiled || self.width >= 4.0 {
                    true => OperatorCost { forward: 3.0 * moved, backward: 2.0 * moved, kernels: [3.0, 2.0] },
                    false => OperatorCost { forward: 4.5 * moved, backward: 5.5 * moved, kernels: [3.0, 4.0] },
                }
            }
            _ => OperatorCost::default(),
        }
    }

    /// The share of a divided product that one rank computes: fewer columns, or less depth.
    fn share(&self, group: &OpGroup, rows: f64, inner: f64, columns: f64) -> MatmulShape {
        let shape = MatmulShape { batch: 1.0, rows, inner, columns };
        match group.kind {
            OpKind::Linear { split: crate::model::graph::WeightSplit::Columns, .. } => {
                MatmulShape { columns: columns / self.tensor, ..shape }
            }
            OpKind::Linear { split: crate::model::graph::WeightSplit::Rows, .. } => {
                MatmulShape { inner: inner / self.tensor, ..shape }
            }
            _ if group.divided => MatmulShape { columns: columns / self.tensor, ..shape },
            _ => shape,
        }
    }

    /// A layer with weights: forwards once, backwards for its input, of `read` values, and for its weight.
    fn weighted(&self, group: &OpGroup, shape: MatmulShape, rate: f64, values: f64, read: f64) -> OperatorCost {
        let weight = shape.batch * shape.inner * shape.columns;
        let cast = self.pass(weight * self.cast);
        let back = rate * self.shared.backward;
        let casts = match self.eight {
            Some(_) => self.pass(values * self.width) * self.cast_passes(),
            None => 0.0,
        };
        // An input in 32 bits is cast for each product that reads it, and so is its gradient in the backward pass.
        let narrowed = match self.casts && group.fp32_fraction > 0.0 {
            true => self.pass(read * 6.0) * self.shared.elementwise,
            false => 0.0,
        };
        let forward = self.product(shape, rate, values) + cast + casts + narrowed;
        let input = MatmulShape { inner: shape.columns, columns: shape.inner, ..shape };
        let own = MatmulShape { rows: shape.inner, inner: shape.rows, ..shape };
        let of_input = if group.first { 0.0 } else { self.product(input, back, values) };
        let of_weight = if group.frozen { 0.0 } else { self.product(own, back, values) };
        let backward = of_input + of_weight + cast + casts + if group.first { 0.0 } else { narrowed };
        let casting = if self.cast > 0.0 { 1.0 } else { 0.0 } + if narrowed > 0.0 { 1.0 } else { 0.0 };
        let own = OperatorCost { forward, backward, kernels: [1.5 + casting, 2.5 + casting] };
        match group.adapters {
            Some(adapters) => own.and(&self.adapted(shape, rate, adapters)),
            None => own,
        }
    }

    /// What adapters add to a product: two thin products forwards and four backwards, which read and write as much as the
    /// product itself, and sums of what both write. Weights in 4 bits are written out in 16 for each pass.
    fn adapted(&self, shape: MatmulShape, rate: f64, adapters: Adapters) -> OperatorCost {
        let rank = adapters.rank as f64;
        let down = MatmulShape { columns: rank, ..shape };
        let up = MatmulShape { inner: rank, ..shape };
        let thin = |shape: MatmulShape| self.product(shape, rate, shape.bytes());
        let [read, written] = [shape.inner, shape.columns].map(|side| self.plain(shape.rows * side, 3.0, 0.0).forward);
        let written_out = match adapters.quantized {
            true => self.pass((NF4 + 2.0) * shape.inner * shape.columns) * self.shared.elementwise,
            false => 0.0,
        };
        let products = thin(down) + thin(up);
        let forward = products + written + written_out;
        OperatorCost {
            forward,
            backward: 2.0 * products + read + written_out,
            kernels: self.kernels_of_adapter(adapters),
        }
    }

    /// Kernels that an adapter starts. PEFT casts its input and both matrices, draws a mask and scales besides; bitsandbytes
    /// dequantises the scales of blocks, then the weight.
    fn kernels_of_adapter(&self, adapters: Adapters) -> [f64; 2] {
        match (self.style.modules, adapters.quantized) {
            (EagerModules::Plain, _) => [4.0, 6.0],
            (EagerModules::FusedTransformers | EagerModules::Transformers, false) => [9.0, 12.0],
            (EagerModules::FusedTransformers | EagerModules::Transformers, true) => [12.0, 15.0],
        }
    }

    fn convolution(
        &self,
        group: &OpGroup,
        positions: f64,
        inner: f64,
        columns: f64,
        groups: f64,
        kernel: u32,
    ) -> OperatorCost {
        let area = f64::from(kernel * kernel);
        let values = (positions * groups * (inner / area + columns) + inner * columns * groups) * self.shared.convolved;
        if columns <= 1.0 || inner <= area {
            // One channel a group: no product of matrices, and mostly memory.
            let arithmetic = 2.0 * positions * inner * columns * groups / (self.plain * self.shared.grouped);
            let forward = self.both(arithmetic, self.pass(values * self.width));
            return OperatorCost { forward, backward: 2.5 * forward, kernels: [1.0, 2.0] };
        }
        let rate = self.convolutions * if groups > 1.0 { self.shared.grouped } else { 1.0 };
        let shape = MatmulShape { batch: groups, rows: positions, inner, columns };
        let mut cost = self.weighted(group, shape, rate, values, positions * groups * inner / area);
        if self.layout_transpose > 0.0 {
            let turned =
                self.pass(positions * groups * (inner / area + columns) * self.width * 2.0) * self.layout_transpose;
            cost.forward += turned;
            cost.backward += 2.0 * turned;
        }
        cost
    }

    #[allow(clippy::too_many_arguments)]
    fn attention(
        &self,
        heads: f64,
        key_share: f64,
        [width, value]: [f64; 2],
        [queries, keys]: [f64; 2],
        [causal, dropout]: [bool; 2],
    ) -> OperatorCost {
        let mean = 0.5 * (width + value);
        let inputs = heads * mean * (2.0 * queries + 2.0 * keys * key_share.min(1.0));
        if self.flash {
            let seen = if causal { 0.5 } else { 1.0 };
            let flops = 4.0 * heads * queries * keys * mean * seen;
            let rate = self.flash_rate * keys / (keys + FLASH_DEPTH * if causal { 1.0 } else { 0.25 });
            let forward = self.both(flops / rate, self.pass(inputs * self.width));
            // Backwards the scores are computed again: five products for two.
            let backward = self.both(2.5 * flops / rate, self.pass(2.0 * inputs * self.width));
            return OperatorCost { forward, backward, kernels: [4.0, 6.0] };
        }
        let rate = self.products * self.shared.attention;
        let scores = MatmulShape { batch: heads, rows: queries, inner: width, columns: keys };
        let mixed = MatmulShape { batch: heads, rows: queries, inner: keys, columns: value };
        let matrix = heads * queries * keys;
        let products = self.product(scores, rate, scores.bytes()) + self.product(mixed, rate, mixed.bytes());
        // Scaled and masked, softmax, dropout; each reads and writes the matrix of scores.
        let dropped = if dropout { 2.5 } else { 0.0 };
        // Megatron's kernel for both takes matrices by four; where their number does not go into that, they are computed
        // one after the other in 32 bits (`FusedScaleMaskSoftmax.is_kernel_available`).
        let ([scale, softmax], kernels, repeated) = match (self.compiled, self.fused_kernels) {
            (true, _) => ([0.0, 2.0], [6.0, 10.0], self.shared.scores),
            // One kernel that reads and writes the matrix once reaches the bandwidth; so does a plain row of those in 32 bits.
            (false, true) if heads % 4.0 == 0.0 => ([0.0, 2.0], [8.0, 11.0], 1.0),
            (false, true) => ([16.0, 2.0], [18.0, 20.0], 1.0),
            (false, false) => ([3.0, 2.0], [10.0, 13.0], self.shared.scores),
        };
        // Autocast adds the mask, normalises and leaves out in 32 bits.
        let width = if self.casts { 4.0 } else { self.width };
        let passes = self.pass(matrix * width * repeated);
        let moved = self.pass(inputs * self.width * 2.0);
        OperatorCost {
            forward: products + passes * (scale + softmax + dropped) + moved,
            backward: 2.0 * products / self.shared.backward
                + passes * (scale * 0.7 + softmax + 1.0 + dropped)
                + 2.0 * moved,
            kernels,
        }
    }

    /// Time of a product at `rate`, moving `values` values.
    fn product(&self, shape: MatmulShape, rate: f64, values: f64) -> f64 {
        let MatmulShape { batch, rows, inner, columns } = shape;
        let edge = |side: f64| ((side / NARROW).ceil() * NARROW).max(NARROW) / side.max(1.0);
        let mut tiles = batch * (rows / TILE).ceil() * (columns / TILE).ceil();
        if tiles < self.multiprocessors {
            // What does not fill the GPU is divided along its depth.
            tiles *= (self.multiprocessors / tiles).floor().min((inner / (2.0 * TILE)).floor()).max(1.0);
        }
        let waves = tiles / self.multiprocessors;
        let waiting = 1.0 + self.shared.wave * (waves.ceil() / waves - 1.0);
        let starting = 1.0 + self.shared.depth / inner.max(1.0);
        let flops = 2.0 * batch * rows * inner * columns;
        self.both(flops / rate * edge(rows) * edge(columns) * waiting * starting, self.pass(values * self.width))
    }

    fn plain(&self, elements: f64, forward: f64, backward: f64) -> OperatorCost {
        self.passes(elements * self.shared.elementwise, forward, backward, [1.0, 1.0])
    }

    fn passes(&self, elements: f64, forward: f64, backward: f64, kernels: [f64; 2]) -> OperatorCost {
        let pass = self.pass(elements * self.width) * if self.compiled { self.shared.fused } else { 1.0 };
        OperatorCost { forward: forward * pass, backward: backward * pass, kernels }
    }

    /// Normalisations by the root mean square and rotations are written out in eager modules of Transformers, an operator for
    /// each sign: a normalisation casts to fp32, squares, averages, multiplies twice and casts back; a rotation negates,
    /// concatenates, multiplies twice and adds (`LlamaRMSNorm`, `rotate_half`).
    fn writes_out(&self) -> bool {
        self.style.modules == EagerModules::Transformers && !self.compiled
    }

    /// Share of kernels that is left when small operators are fused.
    fn kernels(&self) -> f64 {
        if self.compiled { self.shared.fewer } else { 1.0 }
    }
}

impl MatmulShape {
    /// Values that a product reads and writes.
    fn bytes(&self) -> f64 {
        self.batch * (self.rows * self.inner + self.inner * self.columns + self.rows * self.columns)
    }
}
