//! MLPerf's training programs on NVIDIA's GPUs: hand-fused, channels last, no padding, on Hopper from round 3.0 BERT in
//! fp8.

use super::super::program::{Program, ProgramHabits, ProgramHardware};
use super::super::row::MeasuredRow;
use crate::estimate::{Layout, OptimizerKind, Origin};
use crate::model::families::Resnet;
use crate::model::families::language::bert::{Bert, Head};
use crate::model::{Graph, ModelDescription};

/// A result of one node. Throughput of larger ones is not compared: they tune their batch to the contest.
pub fn on_one_node(row: &MeasuredRow) -> Option<Program> {
    if row.nodes != Some(1) {
        return None;
    }
    entry(row)
}

/// A result of any number of nodes.
pub fn entry(row: &MeasuredRow) -> Option<Program> {
    let gpus_per_node = row.gpus.map(|gpus| gpus.div_ceil(row.nodes.unwrap_or(1).max(1)));
    // Without a second node nothing takes it.
    let network = row.network.filter(|_| row.nodes.is_some_and(|nodes| nodes > 1));
    let fused = |what: &str, graph: Graph| Program {
        compiled: true,
        origin: Origin::Contest,
        layout: Layout::ChannelsLast,
        hardware: ProgramHardware { gpus_per_node, network, ..ProgramHardware::default() },
        ..Program::plain(what, ModelDescription::Graph(graph))
    };
    match row.model.as_str() {
        "resnet" => {
            // Weights and gradients of MXNet's float16 networks are in 16 bits, and only the optimizer keeps weights in fp32
            // (`multi_precision`; mxnet.apache.org, "Mixed precision training using float16").
            Some(Program {
                optimizer: OptimizerKind::SgdMomentum,
                habits: ProgramHabits { half: true, ..ProgramHabits::default() },
                ..fused("ResNet-50", Resnet::imagenet(50)?.graph())
            })
        }
        "bert" => {
            // Half of 512 tokens are padding, which is left out (Krell et al. 2021, figure 1).
            let graph = Bert::large(256, Head::PreTraining).graph();
            let round = row.noted("round=v").unwrap_or(0.0);
            Some(Program {
                optimizer: OptimizerKind::Lamb,
                flash: true,
                habits: ProgramHabits { first_flash: true, ..ProgramHabits::default() },
                accumulate: row.noted("steps=").unwrap_or(1.0) as u64,
                eight: round >= 3.0,
                ..fused("BERT large, masked words", graph)
            })
        }
        _ => None,
    }
}
