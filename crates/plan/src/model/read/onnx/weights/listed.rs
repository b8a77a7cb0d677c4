//! Weights as PyTorch's newer exporter lists them.
//!
//! `torch.onnx.export(dynamo=True)` leaves the signature of the exported program in the file, a line for each trained
//! weight and each buffer, and with each node the module that it comes from. Its optimiser stores equal weights once,
//! leaves out biases that are zero, folds normalisations and turns tables; by the list all of that can be undone: each
//! weight in it counts once, as large as what holds it or stands for it, and nothing else does. What no file can tell the
//! size of is said.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::super::file::quoted;
use super::trained::{Weights, kind};

/// Weights of one module itself that are looked at, listed weights that one of the file is made of, weights of the file
/// that are made of one: a file could claim as many as it has bytes.
const MOST_OWN: usize = 128;
const MOST_NAMES: usize = 64;
const MOST_PARTS: usize = 16;
/// Names that are shown of what could not be counted.
const SHOWN: usize = 3;
/// What those who quantise call a weight in few bits, after the weight.
const FEW: &str = "_quantized";
/// A buffer that every batch normalisation has.
const RUNNING: &str = ".running_mean";

/// The list, and what is counted of it.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Listed<'a> {
    names: BTreeMap<&'a str, Entry>,
    /// Weights of each module itself.
    modules: BTreeMap<&'a str, Vec<&'a str>>,
    buffers: BTreeSet<&'a str>,
    /// Modules that keep running statistics.
    normalised: BTreeSet<&'a str>,
    /// Listed weights that each weight of the file is made of, and whether it is counted.
    roots: BTreeMap<usize, Root<'a>>,
    /// Products and the values that they write at once, by the modules of their weights: a bias that was left out has as
    /// many.
    widths: BTreeMap<&'a str, (usize, u64)>,
    /// Products that have taken in the normalisation behind them, and its channels.
    folded: BTreeMap<usize, u64>,
    /// Weights in few bits whose names are lost.
    nameless: BTreeSet<usize>,
    /// Weights that were computed from others and whose size nothing tells.
    unsure: BTreeSet<&'a str>,
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
    /// Buffers that it is made of too.
    buffers: u64,
    /// It was computed from them, not only moved.
    computed: bool,
}

/// What is to be done to the graph for weights that the file does not hold.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Missing {
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
                    let own = listed.modules.entry(module_of(name)).or_default();
                    if own.len() < MOST_OWN {
                        own.push(name);
                    }
                }
            } else if told.starts_with("BUFFER ") {
                listed.buffers.insert(name);
                listed.normalised.extend(name.strip_suffix(RUNNING));
            }
        }
        Some(listed).filter(|listed| !listed.names.is_empty())
    }

    /// Notes a weight of the file, and what it was computed from.
    pub fn note(&mut self, index: usize, name: &'a str, origins: &'a str) {
        let whole = name.strip_suffix(FEW).filter(|whole| self.names.contains_key(whole)).unwrap_or(name);
        if let Some(entry) = self.names.get_mut(whole) {
            entry.whole.get_or_insert(index);
            self.roots.insert(index, Root { names: vec![whole], ..Root::default() });
            return;
        }
        let names: Vec<&str> =
            quoted(origins).filter(|origin| self.names.contains_key(origin)).take(MOST_NAMES).collect();
        for name in &names {
            if let Some(entry) = self.names.get_mut(name).filter(|entry| entry.parts.len() < MOST_PARTS) {
                entry.parts.push(index);
            }
        }
        if !names.is_empty() {
            let buffers = quoted(origins).filter(|origin| self.buffers.contains(origin)).count() as u64;
            let computed = self.is_computed(origins);
            self.roots.insert(index, Root { names, counted: false, buffers, computed });
        }
    }

    /// Whether a value with these origins was computed from a listed weight and something else.
    pub fn is_computed(&self, origins: &str) -> bool {
        quoted(origins).nth(1).is_some() && quoted(origins).any(|origin| self.names.contains_key(origin))
    }

    /// Whether a weight of the file was computed from a listed one and a buffer.
    pub fn has_buffers(&self, index: usize) -> bool {
        self.roots.get(&index).is_some_and(|root| root.buffers > 0)
    }

    /// Whether a weight of the file holds values of the list, however changed.
    pub fn is_listed(&self, index: usize) -> bool {
        self.roots.contains_key(&index)
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
            names.into_iter().for_each(|name| self.settle(name, operator, 0));
        }
    }

    /// Values that an operator of `module` trains in a weight of the file, beside what others already count.
    pub fn count(&mut self, weights: &Weights<'a>, index: usize, module: Option<&str>, operator: usize) -> u64 {
        if !weights.is_trained(index) {
            return 0;
        }
        let root = self.roots.get(&index).cloned().unwrap_or_default();
        let elements = self.elements(weights, index, &root);
        let is_own = root.names.iter().any(|name| Some(module_of(name)) == module);
        // One of equal weights stays, under its own name: what has none in the list is a constant.
        let may_be_another = !root.names.is_empty();
        if (root.counted || !is_own)
            && may_be_another
            && let Some(module) = module
            && let Some(name) = self.missing(module, root.names.first().copied())
        {
            // Equal weights are stored once: new vectors of ones and zeros, and copies of a layer. Other matrices are the
            // same weight under two names.
            let is_copied = root.names.iter().any(|other| kind(module_of(other)) == kind(module));
            if is_copied || weights.is_stored_for_many(index) {
                self.settle(name, operator, elements);
                // Of what is made of several the others are in it too.
                for other in root.names.iter().skip(1) {
                    let twin = format!("{module}.{}", last(other));
                    if let Some(entry) = self.names.get_mut(twin.as_str()) {
                        entry.settled = true;
                    }
                }
                return elements;
            }
            if weights.is_matrix(index) && root.names.iter().any(|other| last(other) == last(name)) {
                self.settle(name, operator, 0);
            }
        }
        if root.names.is_empty() && weights.is_in_few_bits(index) && self.nameless.insert(index) {
            return elements;
        }
        if root.counted || root.names.is_empty() {
            return 0;
        }
        if let Some(root) = self.roots.get_mut(&index) {
            root.counted = true;
        }
        let entries = || root.names.iter().filter_map(|name| self.names.get(name));
        if entries().all(|entry| entry.whole.is_some_and(|whole| whole != index)) {
            // Parts of what is there as a whole.
            return 0;
        }
        if self.is_copy(weights, index, &root.names) {
            root.names.into_iter().for_each(|name| self.settle(name, operator, 0));
            return 0;
        }
        if root.computed && weights.is_untold(index, root.buffers > 0) {
            self.unsure.extend(&root.names);
        }
        let alone = root.names.len() == 1;
        root.names.into_iter().for_each(|name| self.settle(name, operator, if alone { elements } else { 0 }));
        elements
    }

    /// Values of a weight that are trained. Where vectors were joined, buffers among them are not.
    fn elements(&self, weights: &Weights<'a>, index: usize, root: &Root<'a>) -> u64 {
        let (elements, trained) = (weights.elements(index), root.names.len() as u64);
        match root.buffers > 0 && !weights.is_matrix(index) && elements.is_multiple_of(trained + root.buffers) {
            true => elements / (trained + root.buffers) * trained,
            false => elements,
        }
    }

    fn settle(&mut self, name: &'a str, operator: usize, elements: u64) {
        if let Some(entry) = self.names.get_mut(name) {
            entry.settled = true;
            entry.placed.get_or_insert((operator, elements));
        }
    }

    /// A weight of the module that the file does not hold: the one that has the place of `like` in a layer of the same kind,
    /// else one of its own, best of the same last name.
    fn missing(&self, module: &str, like: Option<&str>) -> Option<&'a str> {
        let is_open = |entry: &Entry| !entry.settled && entry.whole.is_none() && entry.parts.is_empty();
        if let Some(like) = like.filter(|like| module_of(like) != module) {
            let (start, place) = (format!("{module}."), kind(like));
            let within = self.names.range::<str, _>((Bound::Included(start.as_str()), Bound::Unbounded));
            let mut within = within.take(MOST_OWN).take_while(|(name, _)| name.starts_with(&start));
            if let Some((name, _)) = within.find(|(name, entry)| is_open(entry) && kind(name) == place) {
                return Some(name);
            }
        }
        let is_missing = |name: &&&str| self.names.get(**name).is_some_and(&is_open);
        let own = self.modules.get(module)?.iter();
        let names: Vec<&str> = own.filter(is_missing).copied().collect();
        names.iter().find(|name| like.is_some_and(|like| last(like) == last(name))).or(names.first()).copied()
    }

    /// Whether a weight has the values of another that is counted.
    fn is_copy(&self, weights: &Weights<'a>, index: usize, names: &[&str]) -> bool {
        let counted = |other: usize| other != index && self.roots.get(&other).is_some_and(|root| root.counted);
        let mut parts = names.iter().filter_map(|name| self.names.get(name)).flat_map(|entry| &entry.parts);
        parts.any(|other| counted(*other) && weights.is_copy(index, *other)) || weights.is_turned_table(index)
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
        if !self.unsure.is_empty() {
            let unsure: Vec<&str> = self.unsure.iter().copied().collect();
            let what = "weights that were computed beforehand, counted as what was computed";
            missing.unknown.push(said(what, &unsure));
        }
        if !unknown.is_empty() {
            let what = "weights that the file lists and does not hold, taken as shared or unused";
            missing.unknown.push(said(what, &unknown));
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
        let mut sizes = alike.filter(|_| self.nameless.is_empty())?.iter();
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

/// A sentence with the first of these names and how many there are.
fn said(what: &str, names: &[&str]) -> String {
    let shown = names.iter().take(SHOWN).copied().collect::<Vec<_>>().join(", ");
    let more = if names.len() > SHOWN { ", …" } else { "" };
    format!("{what} ({shown}{more}) ×{}", names.len())
}

/// The module that a weight belongs to.
fn module_of(name: &str) -> &str {
    name.rsplit_once('.').map_or("", |(module, _)| module)
}

fn last(name: &str) -> &str {
    name.rsplit_once('.').map_or(name, |(_, last)| last)
}
