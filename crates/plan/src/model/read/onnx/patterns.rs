//! What exporters write out in small pieces, and a trainer computes in one: functions of each value (GELU as division,
//! erf, sum and products; SiLU as a product with a sigmoid) and normalisations.
//!
//! Pieces that compute each value from one value of one tensor and single numbers are one function of it, whatever
//! they are. A normalisation is a mean, differences from it, the mean of their squares, and a division by its root.

use std::collections::{BTreeMap, BTreeSet};

use super::file::{Graph, Node};
use crate::model::{Function, Norm};

/// What becomes of a node.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Role<'a> {
    /// A later node does its work, if `of` is an activation and not a constant.
    Skip { of: &'a str },
    /// Nothing happens to `of`.
    Same { of: &'a str },
    /// A function of each value of `of`.
    Function { function: Function, of: &'a str },
    /// A normalisation of `of`, with weights where it has them.
    Norm { norm: Norm, of: &'a str, weights: Vec<&'a str> },
}

struct Nodes<'a> {
    nodes: &'a [Node<'a>],
    writers: BTreeMap<&'a str, usize>,
    readers: BTreeMap<&'a str, Vec<usize>>,
    fixed: BTreeSet<&'a str>,
    scalars: BTreeSet<&'a str>,
}

/// Finds the nodes that are not what they seem.
pub(super) fn find<'a>(graph: &'a Graph<'a>) -> BTreeMap<usize, Role<'a>> {
    let mut nodes = Nodes {
        nodes: &graph.nodes,
        writers: BTreeMap::new(),
        readers: BTreeMap::new(),
        fixed: graph.weights.iter().map(|stored| stored.name).collect(),
        scalars: graph.weights.iter().filter(|stored| stored.elements() == 1).map(|stored| stored.name).collect(),
    };
    for (index, node) in graph.nodes.iter().enumerate() {
        for output in &node.outputs {
            nodes.writers.insert(output, index);
        }
        for input in &node.inputs {
            nodes.readers.entry(input).or_default().push(index);
        }
        nodes.note_constant(node);
    }
    for output in &graph.outputs {
        // Read from outside, so never only within a pattern.
        nodes.readers.entry(output.name).or_default().push(usize::MAX);
    }
    let mut roles = BTreeMap::new();
    for index in 0..graph.nodes.len() {
        nodes.norm(index, &mut roles);
        nodes.no_number(index, &mut roles);
    }
    nodes.functions(&mut roles);
    roles
}

impl<'a> Nodes<'a> {
    fn note_constant(&mut self, node: &'a Node<'a>) {
        let Some(output) = node.outputs.first() else { return };
        if node.operator == "Constant" {
            self.fixed.insert(output);
            let many = node.attributes.get("value").and_then(|attribute| attribute.tensor.as_ref());
            let many = many.is_some_and(|stored| stored.elements() != 1) || node.attributes.contains_key("value_ints");
            if !many {
                self.scalars.insert(output);
            }
        } else if !node.inputs.is_empty() && node.inputs.iter().all(|input| self.fixed.contains(input)) {
            self.fixed.insert(output);
            if node.inputs.iter().all(|input| self.scalars.contains(input)) {
                self.scalars.insert(output);
            }
        }
    }

    /// The only node that reads what `index` writes, if it is one of `operators`.
    fn only_reader(&self, index: usize, operators: &[&str]) -> Option<usize> {
        match self.readers.get(self.output(index)?)?.as_slice() {
            [reader] => self.is(*reader, operators).then_some(*reader),
            _ => None,
        }
    }

    fn is(&self, index: usize, operators: &[&str]) -> bool {
        self.nodes.get(index).is_some_and(|node| operators.contains(&node.operator))
    }

    fn output(&self, index: usize) -> Option<&'a str> {
        self.nodes[index].outputs.first().copied()
    }

    fn first_input(&self, index: usize) -> Option<&'a str> {
        self.nodes[index].inputs.first().copied()
    }

    /// What is no number is replaced, as after the softmax of scores that may all be masked.
    fn no_number(&self, index: usize, roles: &mut BTreeMap<usize, Role<'a>>) {
        if !self.is(index, &["IsNaN"]) {
            return;
        }
        let (Some(of), Some(chosen)) = (self.first_input(index), self.only_reader(index, &["Where"])) else { return };
        if let [condition, instead, otherwise] = self.nodes[chosen].inputs[..]
            && Some(condition) == self.output(index)
            && otherwise == of
            && self.scalars.contains(instead)
        {
            roles.insert(index, Role::Skip { of });
            roles.insert(chosen, Role::Same { of });
        }
    }

    /// A normalisation that begins with the mean, or with the squares, at `index`.
    fn norm(&self, index: usize, roles: &mut BTreeMap<usize, Role<'a>>) {
        if roles.contains_key(&index) {
            return;
        }
        let found = match self.nodes[index].operator {
            "ReduceMean" => self.layer_norm(index),
            "Pow" | "Mul" => self.rms_norm(index),
            _ => None,
        };
        let Some((norm, of, mut within, mut last)) = found else { return };
        let mut weights = Vec::new();
        for operator in ["Mul", "Add"] {
            // A cast back to the type of the weights may stand between.
            let cast = self.only_reader(last, &["Cast"]);
            let Some(next) = self.only_reader(cast.unwrap_or(last), &[operator]) else { break };
            let weight = self.nodes[next].inputs.iter().find(|input| self.fixed.contains(*input));
            let Some(weight) = weight.filter(|weight| !self.scalars.contains(*weight)) else { break };
            weights.push(*weight);
            within.extend(cast);
            within.push(last);
            last = next;
        }
        roles.extend(within.into_iter().map(|index| (index, Role::Skip { of })));
        roles.insert(last, Role::Norm { norm, of, weights });
    }

    fn layer_norm(&self, mean: usize) -> Option<(Norm, &'a str, Vec<usize>, usize)> {
        let of = self.first_input(mean)?;
        let mut within = vec![mean];
        let differences: Vec<usize> = self.readers.get(self.output(mean)?)?.clone();
        if differences.is_empty() || !differences.iter().all(|index| self.is(*index, &["Sub"])) {
            return None;
        }
        within.extend(&differences);
        let mut last = None;
        for difference in &differences {
            for reader in self.readers.get(self.output(*difference)?)? {
                match self.is(*reader, &["Pow", "Mul", "Cast"]) {
                    true => {
                        let (inner, _) = self.root_of_mean(*reader)?;
                        within.extend(inner);
                    }
                    false if self.is(*reader, &["Div"]) => last = Some(*reader),
                    false => return None,
                }
            }
        }
        within.sort_unstable();
        within.dedup();
        Some((Norm::Layer, of, within, last?))
    }

    fn rms_norm(&self, squares: usize) -> Option<(Norm, &'a str, Vec<usize>, usize)> {
        let of = self.first_input(squares)?;
        let (mut within, root) = self.root_of_mean(squares)?;
        let last = match self.only_reader(root, &["Reciprocal"]) {
            Some(reciprocal) => {
                within.push(reciprocal);
                self.only_reader(reciprocal, &["Mul"])?
            }
            None => self.only_reader(root, &["Div"])?,
        };
        self.nodes[last].inputs.contains(&of).then_some((Norm::Rms, of, within, last))
    }

    /// From squares to the root of their mean: the nodes on the way, and the last.
    fn root_of_mean(&self, squares: usize) -> Option<(Vec<usize>, usize)> {
        let mut at = squares;
        let mut within = vec![at];
        if self.is(at, &["Cast"]) {
            at = self.only_reader(at, &["Pow", "Mul"])?;
            within.push(at);
        }
        for operators in [&["ReduceMean"], &["Add"], &["Sqrt"]] {
            at = self.only_reader(at, operators)?;
            within.push(at);
        }
        Some((within, at))
    }

    fn functions(&self, roles: &mut BTreeMap<usize, Role<'a>>) {
        // The tensor each value is a function of, value by value.
        let mut origin: BTreeMap<&str, &'a str> = BTreeMap::new();
        let mut regions: BTreeMap<&'a str, Vec<usize>> = BTreeMap::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let Some(output) = self.output(index) else { continue };
            if roles.contains_key(&index) || !is_elementwise(node.operator) || self.fixed.contains(output) {
                continue;
            }
            let varying = node.inputs.iter().filter(|input| !input.is_empty() && !self.scalars.contains(*input));
            let origins: BTreeSet<&'a str> = varying.map(|input| *origin.get(input).unwrap_or(input)).collect();
            let mut origins = origins.into_iter();
            if let (Some(one), None) = (origins.next(), origins.next())
                && !self.fixed.contains(one)
            {
                origin.insert(output, one);
                regions.entry(one).or_default().push(index);
            }
        }
        for (of, region) in regions {
            let inside: BTreeSet<usize> = region.iter().copied().collect();
            let operators: BTreeSet<&str> = region.iter().map(|index| self.nodes[*index].operator).collect();
            if region.len() < 2 {
                continue;
            }
            for index in &region {
                let readers = self.output(*index).and_then(|output| self.readers.get(output));
                let leaves = readers.is_none_or(|readers| readers.iter().any(|reader| !inside.contains(reader)));
                let role = if leaves { Role::Function { function: named(&operators), of } } else { Role::Skip { of } };
                roles.insert(*index, role);
            }
        }
    }
}

fn is_elementwise(operator: &str) -> bool {
    matches!(
        operator,
        "Add"
            | "Sub"
            | "Mul"
            | "Div"
            | "Pow"
            | "Erf"
            | "Tanh"
            | "Sigmoid"
            | "HardSigmoid"
            | "Clip"
            | "Sqrt"
            | "Exp"
            | "Log"
            | "Neg"
            | "Softplus"
            | "Relu"
            | "Reciprocal"
            | "Min"
            | "Max"
            | "Cast"
    )
}

fn named(operators: &BTreeSet<&str>) -> Function {
    let has = |name: &str| operators.contains(name);
    match () {
        () if has("Erf") || has("Tanh") && has("Pow") => Function::Gelu,
        () if has("Sigmoid") && has("Mul") => Function::Silu,
        () if (has("HardSigmoid") || has("Clip")) && has("Mul") => Function::HardSwish,
        () if has("Sigmoid") => Function::Sigmoid,
        () if has("Tanh") && !has("Softplus") => Function::Tanh,
        () if has("Relu") && !has("Mul") => Function::Relu,
        () => Function::Other,
    }
}
