//! Operators that were priced before.
//!
//! What an operator costs depends on the GPU, the program and the samples of a micro-batch, but neither on how many ranks there
//! are nor on what they shard, so a search asks for the same costs again and again.

use std::collections::BTreeMap;

use crate::estimate::machine::{Machine, ProgramStyle};
use crate::estimate::operator::OperatorCost;
use crate::estimate::ops::OpGroup;

/// What one micro-batch costs on each machine that was asked for, operator by operator; of one network and one set of fitted
/// numbers.
#[derive(Debug, Clone, Default)]
pub struct OperatorCosts {
    known: BTreeMap<MachineKey, Vec<OperatorCost>>,
}

/// The bits of all figures that the costs depend on.
type MachineKey = ([u64; 13], [bool; 5], ProgramStyle);

impl OperatorCosts {
    /// The costs of `groups` on `machine` for so many samples, in their order.
    pub(super) fn of(&mut self, groups: &[OpGroup], machine: &Machine, samples: f64) -> &[OperatorCost] {
        let price = || groups.iter().map(|group| machine.cost(group, samples)).collect();
        self.known.entry(key(machine, samples)).or_insert_with(price)
    }
}

/// Names each field, so that a new one is not forgotten.
fn key(machine: &Machine, samples: f64) -> MachineKey {
    let Machine {
        shared: _,
        products,
        convolutions,
        plain,
        eight,
        bandwidth,
        multiprocessors,
        width,
        cast,
        casts,
        layout_transpose,
        tensor,
        expert,
        style,
        flash,
        flash_rate,
        fused_kernels,
        compiled,
    } = *machine;
    let figures = [
        samples,
        products,
        tensor,
        bandwidth,
        convolutions,
        plain,
        eight.unwrap_or(0.0),
        multiprocessors,
        width,
        cast,
        layout_transpose,
        expert,
        flash_rate,
    ];
    let flags = [eight.is_some(), casts, flash, fused_kernels, compiled];
    (figures.map(f64::to_bits), flags, style)
}
