//! Operators of each stage of a pipeline, and how often a recomputed one runs.

use super::Micro;
use crate::estimate::collective::Ring;
use crate::estimate::machine::Machine;
use crate::estimate::operator::OperatorCost;
use crate::estimate::ops::{BlockPosition, OpGroup, OpProfile};
use crate::estimate::setup::{ActivationCheckpointing, Setup, Zero};
use crate::model::graph::OpKind;

/// Share of an exchange that computing beside it hides; both want the same multiprocessors. Assumed.
const HIDDEN: f64 = 0.5;

/// Share of an exchange inside layers that is waited for where it is cut into pieces that run beside the product next to it
/// (Transformer Engine's userbuffers, `tp_comm_overlap`): the first of four pieces.
const OVERLAPPED: f64 = 0.25;

/// The heaviest stage of a pipeline, and all of them together, from what each group costs for a micro-batch.
pub(super) fn stages(
    (groups, costs): (&[OpGroup], &[OperatorCost]),
    work: &OpProfile,
    setup: &Setup,
    machine: &Machine,
    exchange: &Ring,
) -> (Micro, Micro) {
    let pipeline = f64::from(setup.parallel.pipeline.max(1));
    let samples = setup.micro_batch as f64;
    let [mut before, mut blocks, mut after] = [Micro::default(); 3];
    let bytes = samples * setup.precision.compute_bytes();
    let launch = machine.launch();
    for (group, cost) in groups.iter().zip(costs) {
        let to = match group.place {
            BlockPosition::Before => &mut before,
            BlockPosition::Block => &mut blocks,
            BlockPosition::After => &mut after,
        };
        let runs_again = runs_again(group, work, setup);
        to.add(group, cost, runs_again, launch);
        if setup.parallel.tensor > 1 {
            let [forward, backward] =
                group.exchanged.map(|values| if values > 0.0 { exchange.all_reduce(values * bytes) } else { 0.0 });
            let exchanges = group.exchanged.map(|values| if values > 0.0 { 1.0 } else { 0.0 });
            let issue = issue(work, setup, machine);
            to.started += group.count * (exchanges[0] * (1.0 + runs_again) + exchanges[1]) * issue;
            // Beside sequence parallelism the gradient of a product's input is scattered while that of its weight is computed,
            // which is half of its backward pass (Korthikanti et al. 2022, section 4.2.2).
            let hidden = if setup.parallel.sequence { HIDDEN * backward.min(0.5 * cost.backward) } else { 0.0 };
            let exposed = if work.style.overlapped_layers { OVERLAPPED } else { 1.0 };
            to.tensor += group.count * (forward * (1.0 + runs_again) + backward - hidden) * exposed;
        }
    }
    if setup.parallel.zero == Zero::Parameters && setup.parallel.replicas() > 1 {
        blocks.started += units(groups, work)
            * if setup.recompute == ActivationCheckpointing::None { 3.0 } else { 4.0 }
            * machine.shared.unit
            * 1e-6;
    }
    if setup.recompute == ActivationCheckpointing::Full {
        blocks.started += f64::from(work.blocks) * machine.shared.restart * 1e-6;
    }
    if pipeline <= 1.0 {
        let all = before.and(&blocks).and(&after);
        return (all, all);
    }
    if work.balanced_stages {
        return balanced(groups, [before, blocks, after], f64::from(work.blocks.max(1)), pipeline);
    }
    let share = (f64::from(work.blocks.max(1)) / pipeline).ceil() / f64::from(work.blocks.max(1));
    let ends = if before.seconds() > after.seconds() { before } else { after };
    (blocks.times(share).and(&ends), before.and(&blocks.times(share * pipeline)).and(&after))
}

/// Units that FSDP gathers and scatters one by one: blocks, and with PEFT's `fsdp_auto_wrap_policy` both matrices of each
/// adapter.
fn units(groups: &[OpGroup], work: &OpProfile) -> f64 {
    let adapted = groups.iter().filter(|group| group.adapters.is_some()).map(|group| group.count).sum::<f64>();
    f64::from(work.blocks) + if work.style.adapters_are_units { 2.0 * adapted } else { 0.0 }
}

/// Stages that are equal in arithmetic rather than in blocks: each takes blocks until it has passed its share, in which the
/// scores behind the last block count as blocks (nanotron, torchtitan).
fn balanced(groups: &[OpGroup], parts: [Micro; 3], count: f64, pipeline: f64) -> (Micro, Micro) {
    let [before, blocks, after] = parts;
    let arithmetic = |place: BlockPosition| -> f64 {
        let products =
            groups.iter().filter(|group| group.place == place && matches!(group.kind, OpKind::Linear { .. }));
        products.map(|group| group.count * group.kind.multiply_adds() as f64).sum()
    };
    let behind = arithmetic(BlockPosition::After) * count / arithmetic(BlockPosition::Block).max(1.0);
    let share = (count + behind) / pipeline;
    let first = |stage: f64| if stage <= 0.0 { 0.0 } else { ((stage * share).floor() + 1.0).min(count) };
    let held = |stage: f64| first(stage + 1.0) - first(stage);
    let middle = (0..pipeline as u32 - 1).map(|stage| held(f64::from(stage))).fold(0.0, f64::max);
    let last = count - first(pipeline - 1.0);
    let each = |stage: f64| blocks.times(stage / count);
    let (starts, ends) = (each(first(1.0)).and(&before), each(last).and(&after));
    let heaviest =
        [starts, each(middle), ends].into_iter().max_by(|one, other| one.seconds().total_cmp(&other.seconds()));
    (heaviest.unwrap_or(blocks), before.and(&blocks).and(&after))
}

/// Seconds in which nanotron's Python code starts an exchange inside layers, and more beside a pipeline between nodes for each
/// rank that takes part. Fitted to its sweep: with micro-batches of one sequence a block of two to eight ranks takes 3.7 to
/// 4.3 ms, whatever its width, and 8.5, 13 and 21 ms of two, four and eight ranks where stages are on several nodes.
const ISSUED_BY_PYTHON: [f64; 2] = [0.86e-3, 0.45e-3];

/// Seconds in which the processor starts an exchange inside layers. The slowest of all processors is waited for; the largest
/// of n grows about as log n.
fn issue(work: &OpProfile, setup: &Setup, machine: &Machine) -> f64 {
    let ranks = f64::from(setup.parallel.tensor);
    let beside = if setup.parallel.pipeline > 1 && setup.device.nodes > 1 { ranks } else { 0.0 };
    match work.exchanged_by_python {
        true => ISSUED_BY_PYTHON[0] + ISSUED_BY_PYTHON[1] * beside,
        false => machine.shared.issue * 1e-6 * ranks.log2(),
    }
}

/// How often an operator of a group is computed again in the backward pass, on average.
fn runs_again(group: &OpGroup, work: &OpProfile, setup: &Setup) -> f64 {
    match setup.recompute {
        ActivationCheckpointing::None => 0.0,
        ActivationCheckpointing::Selective => match (group.place, &group.kind) {
            (BlockPosition::Block, _) if setup.flash_attention => {
                1.0 - group.saved_by_selective_checkpointing / group.count
            }
            (_, OpKind::Attention { .. }) => 1.0,
            _ => 0.0,
        },
        ActivationCheckpointing::Every(blocks) => match group.place {
            BlockPosition::Block => (1.0 - group.ends / group.count) / f64::from(blocks.max(1)),
            BlockPosition::Before | BlockPosition::After => 0.0,
        },
        ActivationCheckpointing::Full => match group.place {
            BlockPosition::Block if work.recomputed_whole => 1.0,
            BlockPosition::Block => 1.0 - group.ends / group.count,
            BlockPosition::Before | BlockPosition::After => 0.0,
        },
    }
}
