//! Branches and loops. A plan needs one number of steps: of branches the one with the most nodes is taken, and the body of
//! a loop is counted once. The graph says so.

use super::super::file::{Graph, Node};
use super::super::values::{State, Value};

/// Values of a loop's body before those that it carries on: the number of the turn, and whether to go on.
const BEFORE: usize = 2;

/// What a node holds that is to be run, and where it stands; none for most nodes.
pub(super) fn inner<'a>(node: &'a Node<'a>) -> Option<&'a Graph<'a>> {
    let held = |name: &str| node.attributes.get(name).and_then(|attribute| attribute.graph.as_deref());
    match node.operator {
        "If" => {
            [held("then_branch"), held("else_branch")].into_iter().flatten().max_by_key(|branch| branch.nodes.len())
        }
        "Loop" => held("body"),
        _ => None,
    }
}

/// Runs what a node holds, each inner node by `step`. None where what goes into a loop is not known.
pub(super) fn run<'a>(
    state: &mut State<'a>,
    node: &'a Node<'a>,
    inner: &'a Graph<'a>,
    step: fn(&mut State<'a>, &'a Node<'a>),
) -> Option<()> {
    let is_loop = node.operator == "Loop";
    state.unknown(if is_loop { "Loop, counted for one turn" } else { "If, of which the longer branch is counted" });
    state.enter(inner);
    if is_loop {
        for (index, input) in inner.inputs.iter().enumerate() {
            let value = if index < BEFORE { Value::default() } else { state.at(node, index)? };
            state.name(input.name, value);
        }
    }
    for node in &inner.nodes {
        step(state, node);
    }
    // A loop's first value says whether it goes on.
    for (index, output) in inner.outputs.iter().skip(usize::from(is_loop)).enumerate() {
        // What is not known stays so; all that was counted above is counted once.
        if let Some(value) = state.get(output.name).cloned() {
            state.set(node, index, value);
        }
    }
    Some(())
}
