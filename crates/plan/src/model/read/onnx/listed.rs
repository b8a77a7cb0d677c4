//! Weights as PyTorch's newer exporter lists them.
//!
//! `torch.onnx.export(dynamo=True)` leaves the signature of the exported program in the file, a line for each trained
//! weight and each buffer, and with each node the module that it comes from. Its optimiser stores equal weights once,
//! leaves out biases that are zero, folds normalisations and turns tables; by the list all of that can be undone: each
//! weight in it counts once, as large as what holds it or stands for it, and nothing else does. What no file can tell the
//! size of is said.

use std::collections::{BTreeMap, BTreeSet};

use super::messages::quoted;
use super::weights::{Weights, kind};

/// Weights of one module itself that are looked at.
const MOST_OWN: usize = 1 << 10;
/// Names that are shown of what could not be counted.
const SHOWN: usize = 3;
/// What those who quantise call a weight in few bits, after the weight.
const FEW: &str = "_quantized";
/// A buffer that every batch normalisation has.
const RUNNING: &str = ".running_mean";

/// The list, and what is counted of it.
#[derive(Debug, Clone, Default)]
pub(super) struct Listed<'a> {
    names: BTreeMap<&'a str, Entry>,
    /// Weights of each module itself.
    modules: BTreeMap<&'a str, Vec<&'a str>>,
    /// Modules that keep running statistics.
    normalised: BTreeSet<&'a str>,
    /// Listed weights that each weight of the file is made of, and whether it is counted.
    roots: BTreeMap<usize, Root<'a>>,
    /// Products and the values that they write at once, by the modules of their weights: a bias that was left out has as
    /// many.
    widths: BTreeMap<&'a str, (usize, u64)>,
    /// Products that have taken in the normalisation behind them, and its channels.
    folded: BTreeMap<usize, u64>,
}

#[derive(Debug, Clone, Default)]
struct Entry {
    /// Counted, or the same as one that is.
    settled: bool,
    /// Values, and the operator that counts them.
    placed: Option<(usize, u64)>,
    /// The weight of the file that has its name.
    whole: Option<usize>,
    /// Weights of the file that are made of it.
    parts: Vec<usize>,
}

#[derive(Debug, Clone, Default)]
struct Root<'a> {
    names: Vec<&'a str>,
    counted: bool,
}

/// What is to be done to the graph for weights that the file does not hold.
#[derive(Debug, Clone, Default)]
pub(super) struct Missing {
    /// Values to add to operators.
    pub more: Vec<(usize, u64)>,
    /// Products that have taken in the normalisation behind them, and its channels.
    pub folded: BTreeMap<usize, u64>,
    /// What could not be found out.
    pub unknown: Vec<String>,
}

impl<'a> Listed<'a> {
    /// Reads the signature; none where it lists no weight.
    pub fn read(signature: &'a str) -> Option<Listed<'a>> {
        let mut listed = Listed::default();
        for line in signature.lines() {
            let Some((_, told)) = line.split_once(": ") else { continue };
            let Some(name) = quoted(told).next() else { continue };
            if told.starts_with("PARAMETER ") {
                if listed.names.insert(name, Entry::default()).is_none() {
                    listed.modules.entry(module_of(name)).or_default().push(name);
                }
            } else if let (true, Some(module)) = (told.starts_with("BUFFER "), name.strip_suffix(RUNNING)) {
                listed.normalised.insert(module);
            }
        }
        Some(listed).filter(|listed| !listed.names.is_empty())
    }

    /// Notes a weight of the file, and what it was computed from.
    pub fn note(&mut self, index: usize, name: &'a str, origins: &'a str) {
        let whole = name.strip_suffix(FEW).filter(|whole| self.names.contains_key(whole)).unwrap_or(name);
        if let Some(entry) = self.names.get_mut(whole) {
            entry.whole.get_or_insert(index);
            self.roots.insert(index, Root { names: vec![whole], counted: false });
            return;
        }
        let names: Vec<&str> = quoted(origins).filter(|origin| self.names.contains_key(origin)).collect();
        for name in &names {
            if let Some(entry) = self.names.get_mut(name) {
                entry.parts.push(index);
            }
        }
        if !names.is_empty() {
            self.roots.insert(index, Root { names, counted: false });
        }
    }

    /// Whether a weight of the file has the values of one in the list, unchanged.
    pub fn is_whole(&self, index: usize) -> bool {
        let root = self.roots.get(&index).map(|root| root.names.as_slice());
        matches!(root, Some([name]) if self.names.get(name).is_some_and(|entry| entry.whole == Some(index)))
    }

    /// Notes a product with `weight` that writes `width` values at once. One that comes from a normalisation with running
    /// statistics has taken it in.
    pub fn product(&mut self, operator: usize, module: Option<&'a str>, weight: Option<usize>, width: u64) {
        let root = weight.and_then(|weight| self.roots.get(&weight)?.names.first().copied());
        if let Some(root) = root {
            self.widths.entry(module_of(root)).or_insert((operator, width));
        }
        if let Some(module) = module.filter(|module| self.normalised.contains(module))
            && self.folded.insert(operator, width).is_none()
        {
            let names = self.modules.get(module).cloned().unwrap_or_default();
            names.into_iter().take(MOST_OWN).for_each(|name| self.settle(name, operator, 0));
        }
    }

    /// Values that an operator of `module` trains in a weight of the file, beside what others already count.
    pub fn count(&mut self, weights: &Weights<'a>, index: usize, module: Option<&str>, operator: usize) -> u64 {
        if !weights.is_trained(index) {
            return 0;
        }
        let elements = weights.elements(index);
        let root = self.roots.get(&index).cloned().unwrap_or_default();
        let is_own = root.names.iter().any(|name| Some(module_of(name)) == module);
        if (root.counted || !is_own)
            && let Some(module) = module
            && let Some(name) = self.missing(module, root.names.first().copied())
        {
            // Equal weights are stored once: new vectors of ones and zeros, and copies of a layer. Other matrices are the
            // same weight under two names.
            let is_copied = root.names.iter().any(|other| kind(module_of(other)) == kind(module));
            if is_copied || weights.is_stored_for_many(index) {
                self.settle(name, operator, elements);
                return elements;
            }
            if weights.is_matrix(index) && root.names.iter().any(|other| last(other) == last(name)) {
                self.settle(name, operator, 0);
            }
        }
        if root.counted || root.names.is_empty() || self.is_counted_elsewhere(weights, index, &root.names) {
            return 0;
        }
        if let Some(root) = self.roots.get_mut(&index) {
            root.counted = true;
        }
        let names = root.names.into_iter();
        names.enumerate().for_each(|(at, name)| self.settle(name, operator, if at == 0 { elements } else { 0 }));
        elements
    }

    fn settle(&mut self, name: &'a str, operator: usize, elements: u64) {
        if let Some(entry) = self.names.get_mut(name) {
            entry.settled = true;
            entry.placed.get_or_insert((operator, elements));
        }
    }

    /// A weight of the module itself that the file does not hold, best of the same last name as `like`.
    fn missing(&self, module: &str, like: Option<&str>) -> Option<&'a str> {
        let is_missing = |name: &&&str| {
            let entry = self.names.get(**name);
            entry.is_some_and(|entry| !entry.settled && entry.whole.is_none() && entry.parts.is_empty())
        };
        let own = self.modules.get(module)?.iter().take(MOST_OWN);
        let names: Vec<&str> = own.filter(is_missing).copied().collect();
        names.iter().find(|name| like.is_some_and(|like| last(like) == last(name))).or(names.first()).copied()
    }

    /// Whether what a weight is made of is counted in another: in the whole that it is a part of, or in a copy of it.
    fn is_counted_elsewhere(&self, weights: &Weights<'a>, index: usize, names: &[&str]) -> bool {
        let entries = || names.iter().filter_map(|name| self.names.get(name));
        let is_part = entries().all(|entry| entry.whole.is_some_and(|whole| whole != index));
        let counted = |other: &usize| self.roots.get(other).is_some_and(|root| root.counted);
        let is_copy =
            entries().flat_map(|entry| &entry.parts).any(|other| counted(other) && weights.is_copy(index, *other));
        is_part || is_copy || weights.is_turned_table(index)
    }

    /// Finds out what is left: weights that no operator was seen to compute with, biases that were left out because they
    /// are zero, and weights of the size that those of the same kind have.
    pub fn rest(mut self, weights: &Weights<'a>) -> Missing {
        let mut missing = Missing { folded: std::mem::take(&mut self.folded), ..Missing::default() };
        let open: Vec<&str> = self.names.iter().filter(|(_, entry)| !entry.settled).map(|(name, _)| *name).collect();
        let mut unknown = Vec::new();
        let mut sizes: BTreeMap<String, BTreeSet<u64>> = BTreeMap::new();
        for (name, entry) in &self.names {
            sizes
                .entry(kind(name))
                .or_default()
                .extend(entry.placed.map(|(_, elements)| elements).filter(|elements| *elements > 0));
        }
        for name in open {
            let (operator, elements) = match self.found(weights, name, sizes.get(&kind(name))) {
                Some(found) => found,
                None => {
                    unknown.push(name);
                    continue;
                }
            };
            missing.more.push((operator, elements));
            self.settle(name, operator, elements);
        }
        if !unknown.is_empty() {
            let shown = unknown.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
            let more = if unknown.len() > SHOWN { ", …" } else { "" };
            missing.unknown.push(format!(
                "weights that the file lists and does not hold, taken as shared or unused ({shown}{more}) ×{}",
                unknown.len()
            ));
        }
        missing
    }

    /// Values of a listed weight that is not counted yet, and the operator that they belong to.
    fn found(&mut self, weights: &Weights<'a>, name: &'a str, alike: Option<&BTreeSet<u64>>) -> Option<(usize, u64)> {
        let module = module_of(name);
        let entry = self.names.get(name)?;
        let held: Vec<usize> = entry.whole.map_or(entry.parts.clone(), |whole| vec![whole]);
        if !held.is_empty() {
            let open: Vec<usize> = held
                .into_iter()
                .filter(|index| {
                    self.roots.get_mut(index).is_some_and(|root| !std::mem::replace(&mut root.counted, true))
                })
                .collect();
            let elements = open.iter().map(|index| weights.elements(*index)).fold(0, u64::saturating_add);
            return Some((self.beside(name), elements));
        }
        let weight = format!("{module}.weight");
        if last(name) == "bias"
            && self.names.contains_key(weight.as_str())
            && let Some(found) = self.widths.get(module)
        {
            return Some(*found);
        }
        let mut sizes = alike?.iter();
        match (sizes.next(), sizes.next()) {
            (Some(elements), None) => Some((self.beside(name), *elements)),
            _ => None,
        }
    }

    /// The operator whose weights stand nearest in the list.
    fn beside(&self, name: &'a str) -> usize {
        let operator = |(_, entry): (&&str, &Entry)| entry.placed.map(|(operator, _)| operator);
        let before = self.names.range(..name).rev().take(1 << 10).find_map(operator);
        before.or_else(|| self.names.range(name..).take(1 << 10).find_map(operator)).unwrap_or(0)
    }
}

/// The module that a weight belongs to.
fn module_of(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(module, _)| module)
}

fn last(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, last)| last)
}
