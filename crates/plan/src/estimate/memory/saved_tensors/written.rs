//! What is saved of functions that are written out in several operators, and of products that hold several things.

use super::{Rules, SavedTensors, Storage};
use crate::model::{Function, Graph, OpKind, Operator, TensorId};

impl Storage {
    /// What a function saves that is written out in several operators.
    pub(super) fn steps(
        &self,
        graph: &Graph,
        operator: &Operator,
        function: Function,
        rules: &Rules,
        saved: &mut SavedTensors,
    ) {
        let written = self.bytes_of(graph, operator.output);
        match function {
            // Autocast takes the power in fp32, and with it all that follows: what is cubed, the tanh, and one more than
            // that; half of the input stays as narrow as it was.
            Function::GeluNew if rules.casts() => saved.own += written / rules.wide() * (12.0 + rules.narrow()),
            Function::GeluNew | Function::QuickGelu => {
                for input in &operator.inputs {
                    self.save(graph, *input, rules, saved);
                }
                // Half of the input, the tanh, and one more than that; or the sigmoid.
                saved.own += written * if function == Function::GeluNew { 3.0 } else { 1.0 };
            }
            // What ReLU leaves.
            Function::SquaredRelu => saved.own += written,
            Function::Relu
            | Function::Gelu
            | Function::Silu
            | Function::HardSwish
            | Function::Sigmoid
            | Function::Tanh
            | Function::Other => {}
        }
    }

    /// The input of `operator` that was computed from a part of `tensor`, another of its inputs: queries and keys that were
    /// turned, of a product that holds values too.
    pub(super) fn made_of(&self, graph: &Graph, operator: &Operator, tensor: TensorId) -> Option<TensorId> {
        let elements = |tensor: TensorId| graph.tensors[tensor.0 as usize];
        operator.inputs.iter().copied().filter(|input| elements(*input) < elements(tensor)).find(|input| {
            let writer = self.writer[input.0 as usize].map(|index| &graph.operators[index as usize]);
            writer.is_some_and(|writer| {
                matches!(writer.kind, OpKind::Elementwise { .. }) && writer.inputs.contains(&tensor)
            })
        })
    }
}
