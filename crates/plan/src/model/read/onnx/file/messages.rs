//! The messages of an ONNX file that matter here (onnx/onnx.proto), as slices of the file.

mod stored;

use std::collections::BTreeMap;

use super::Broken;
use super::wire::{Fields, Wire, number};

/// No network has more nodes or weights; an empty one takes two bytes of a file and many of memory.
const MOST: usize = 400_000;
/// No node has more attributes.
const MOST_ATTRIBUTES: usize = 64;
/// Branches within branches.
const DEEPEST: usize = 8;
/// No tensor has more dimensions: PyTorch's and NumPy's limit.
pub(in super::super) const MOST_DIMS: usize = 64;
/// No node writes more; each gets the node's name, of which so many bytes are kept.
const MOST_OUTPUTS: usize = 4096;
const LONGEST_NAME: usize = 256;
/// Keys of remarks that PyTorch's newer exporter and its optimiser leave: the weights and buffers of a network, the
/// modules around a node from the outermost to the node itself, and what a value was computed from.
const SIGNATURE: &str = "pkg.torch.export.ExportedProgram.graph_signature";
const SCOPES: &str = "pkg.torch.onnx.name_scopes";
const ORIGINS: &str = "pkg.onnxscript.optimizer.folded_from";
/// The field of a model's message under which [`bring`](super::super::beside::bring) adds values: none that ONNX has.
pub(in super::super) const BROUGHT: u64 = 7000;
/// Values of a tensor that are looked at: shapes and axes are short.
pub(in super::super) const MOST_VALUES: usize = 256;

#[derive(Debug, Clone, Default)]
pub(in super::super) struct Graph<'a> {
    pub nodes: Vec<Node<'a>>,
    pub weights: Vec<Stored<'a>>,
    pub inputs: Vec<Info<'a>>,
    pub outputs: Vec<Info<'a>>,
    pub infos: Vec<Info<'a>>,
    /// The lines in which PyTorch's newer exporter lists weights, buffers and inputs.
    pub signature: Option<&'a str>,
}

#[derive(Debug, Clone, Default)]
pub(in super::super) struct Node<'a> {
    pub inputs: Vec<&'a str>,
    pub outputs: Vec<&'a str>,
    pub name: &'a str,
    pub operator: &'a str,
    /// The module that it comes from, by its full name, where the file says so.
    pub module: Option<&'a str>,
    pub attributes: BTreeMap<&'a str, Attribute<'a>>,
}

#[derive(Debug, Clone, Default)]
pub(in super::super) struct Attribute<'a> {
    pub float: Option<f32>,
    pub int: Option<i64>,
    pub text: &'a [u8],
    pub tensor: Option<Stored<'a>>,
    /// A branch, or the body of a loop.
    pub graph: Option<Box<Graph<'a>>>,
    pub ints: Vec<i64>,
    pub floats: Vec<f32>,
}

/// A tensor that stands in the file, or beside it.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Stored<'a> {
    pub name: &'a str,
    pub dims: Vec<u64>,
    pub kind: u64,
    raw: &'a [u8],
    numbers: Vec<f64>,
    /// Where its values stand, if not in this file: a file beside it, where they begin there, and how many bytes they are.
    pub beside: Option<(&'a str, u64, u64)>,
}

/// Name, type and dimensions of a value; a dimension may be a symbol or not be told.
#[derive(Debug, Clone, Default)]
pub(in super::super) struct Info<'a> {
    pub name: &'a str,
    pub kind: u64,
    pub dims: Option<Vec<Dimension<'a>>>,
    /// Values that an exporter computed it from, as a list in Python's spelling.
    pub origins: &'a str,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(in super::super) enum Dimension<'a> {
    Size(u64),
    Symbol(&'a str),
}

/// Reads a model and returns its graph.
pub(in super::super) fn model(bytes: &[u8]) -> Result<Option<Graph<'_>>, Broken> {
    let mut graph = None;
    let mut brought = BTreeMap::new();
    let mut fields = Fields::of(bytes);
    while let Some((field, wire)) = fields.next()? {
        match (field, wire) {
            (7, Wire::Bytes(bytes)) => graph = Some(read_graph(bytes, 0)?),
            (BROUGHT, Wire::Bytes(bytes)) => {
                let stored = read_stored(bytes)?;
                brought.insert(stored.name, stored.raw);
            }
            _ => {}
        }
    }
    for stored in graph.iter_mut().flat_map(|graph: &mut Graph| &mut graph.weights) {
        if let (Some(raw), true) = (brought.get(stored.name), stored.beside.is_some()) {
            stored.raw = raw;
        }
    }
    Ok(graph)
}

fn read_graph(bytes: &[u8], depth: usize) -> Result<Graph<'_>, Broken> {
    if depth > DEEPEST {
        return Err(Broken::TooMuch);
    }
    let mut graph = Graph::default();
    let mut fields = Fields::of(bytes);
    while let Some((field, wire)) = fields.next()? {
        let Wire::Bytes(bytes) = wire else { continue };
        match field {
            1 => graph.nodes.push(read_node(bytes, depth)?),
            5 => graph.weights.push(read_stored(bytes)?),
            11 => graph.inputs.push(read_info(bytes)?),
            12 => graph.outputs.push(read_info(bytes)?),
            13 => graph.infos.push(read_info(bytes)?),
            16 => {
                if let (SIGNATURE, value) = read_remark(bytes)? {
                    graph.signature = Some(value);
                }
            }
            _ => {}
        }
        let largest =
            [graph.nodes.len(), graph.weights.len(), graph.inputs.len(), graph.outputs.len(), graph.infos.len()];
        if largest.iter().any(|count| *count > MOST) {
            return Err(Broken::TooMuch);
        }
    }
    Ok(graph)
}

fn read_node(bytes: &[u8], depth: usize) -> Result<Node<'_>, Broken> {
    let mut node = Node::default();
    let mut fields = Fields::of(bytes);
    while let Some((field, wire)) = fields.next()? {
        let Wire::Bytes(bytes) = wire else { continue };
        match field {
            1 => node.inputs.push(text(bytes)?),
            2 => node.outputs.push(text(bytes)?),
            3 => node.name = text(bytes).map(short)?,
            4 => node.operator = text(bytes)?,
            5 => {
                let (name, attribute) = read_attribute(bytes, depth)?;
                node.attributes.insert(name, attribute);
            }
            9 => {
                if let (SCOPES, value) = read_remark(bytes)? {
                    node.module = quoted(value).rev().nth(1);
                }
            }
            _ => {}
        }
        if node.attributes.len() > MOST_ATTRIBUTES || node.inputs.len() > MOST {
            return Err(Broken::TooMuch);
        }
        if node.outputs.len() > MOST_OUTPUTS {
            return Err(Broken::TooMuch);
        }
    }
    Ok(node)
}

/// A remark on a part of a file: its key and its value.
fn read_remark(bytes: &[u8]) -> Result<(&str, &str), Broken> {
    let (mut key, mut value) = ("", "");
    let mut fields = Fields::of(bytes);
    while let Some((field, wire)) = fields.next()? {
        match (field, wire) {
            (1, Wire::Bytes(bytes)) => key = text(bytes)?,
            (2, Wire::Bytes(bytes)) => value = text(bytes)?,
            _ => {}
        }
    }
    Ok((key, value))
}

/// The beginning of a name.
fn short(name: &str) -> &str {
    &name[..name.floor_char_boundary(LONGEST_NAME)]
}

fn read_attribute(bytes: &[u8], depth: usize) -> Result<(&str, Attribute<'_>), Broken> {
    let mut name = "";
    let mut attribute = Attribute::default();
    let mut fields = Fields::of(bytes);
    while let Some((field, wire)) = fields.next()? {
        match (field, wire) {
            (1, Wire::Bytes(bytes)) => name = text(bytes)?,
            (2, Wire::Word(bits)) => attribute.float = Some(f32::from_bits(bits)),
            (3, Wire::Number(number)) => attribute.int = Some(number as i64),
            (4, Wire::Bytes(bytes)) => attribute.text = bytes,
            (5, Wire::Bytes(bytes)) => attribute.tensor = Some(read_stored(bytes)?),
            (6, Wire::Bytes(bytes)) => attribute.graph = Some(Box::new(read_graph(bytes, depth + 1)?)),
            (7, Wire::Word(bits)) => attribute.floats.push(f32::from_bits(bits)),
            (7, Wire::Bytes(bytes)) => {
                let words = bytes.chunks_exact(4).take(MOST_VALUES);
                attribute.floats.extend(words.filter_map(|word| word.try_into().ok()).map(f32::from_le_bytes));
            }
            (8, Wire::Number(number)) => attribute.ints.push(number as i64),
            (8, Wire::Bytes(bytes)) => numbers(bytes, |number| attribute.ints.push(number as i64))?,
            _ => {}
        }
        if attribute.ints.len() > MOST || attribute.floats.len() > MOST {
            return Err(Broken::TooMuch);
        }
    }
    Ok((name, attribute))
}

fn read_stored(bytes: &[u8]) -> Result<Stored<'_>, Broken> {
    let mut stored = Stored::default();
    let mut dims = Vec::new();
    let mut fields = Fields::of(bytes);
    while let Some((field, wire)) = fields.next()? {
        match (field, wire) {
            (1, Wire::Number(number)) => dims.push(number),
            (1, Wire::Bytes(bytes)) => numbers(bytes, |number| dims.push(number))?,
            (2, Wire::Number(number)) => stored.kind = number,
            (5 | 7, Wire::Number(number)) => stored.push(number as i64 as f64),
            (5 | 7, Wire::Bytes(bytes)) => numbers(bytes, |number| stored.push(number as i64 as f64))?,
            (4, Wire::Word(bits)) => stored.push(f64::from(f32::from_bits(bits))),
            (4, Wire::Bytes(bytes)) => {
                let words = bytes.chunks_exact(4).take(MOST_VALUES).filter_map(|word| word.try_into().ok());
                words.for_each(|word| stored.push(f64::from(f32::from_le_bytes(word))));
            }
            (8, Wire::Bytes(bytes)) => stored.name = text(bytes)?,
            (9, Wire::Bytes(bytes)) => stored.raw = bytes,
            (13, Wire::Bytes(bytes)) => {
                let (file, offset, length) = stored.beside.unwrap_or_default();
                let (key, value) = read_remark(bytes)?;
                let number = || value.parse::<u64>().unwrap_or_default();
                stored.beside = Some(match key {
                    "location" => (value, offset, length),
                    "offset" => (file, number(), length),
                    "length" => (file, offset, number()),
                    _ => (file, offset, length),
                });
            }
            _ => {}
        }
        if dims.len() > MOST_DIMS {
            return Err(Broken::TooMuch);
        }
    }
    stored.dims = dims;
    Ok(stored)
}

fn read_info(bytes: &[u8]) -> Result<Info<'_>, Broken> {
    let mut info = Info::default();
    let mut fields = Fields::of(bytes);
    while let Some((field, wire)) = fields.next()? {
        match (field, wire) {
            (1, Wire::Bytes(bytes)) => info.name = text(bytes)?,
            (4, Wire::Bytes(bytes)) => {
                if let (ORIGINS, value) = read_remark(bytes)? {
                    info.origins = value;
                }
            }
            (2, Wire::Bytes(kind)) => {
                let Some(tensor) = inner(kind, 1)? else { continue };
                let mut fields = Fields::of(tensor);
                while let Some((field, wire)) = fields.next()? {
                    match (field, wire) {
                        (1, Wire::Number(number)) => info.kind = number,
                        (2, Wire::Bytes(shape)) => info.dims = Some(read_dims(shape)?),
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    Ok(info)
}

fn read_dims(bytes: &[u8]) -> Result<Vec<Dimension<'_>>, Broken> {
    let mut dims = Vec::new();
    let mut fields = Fields::of(bytes);
    while let Some((field, wire)) = fields.next()? {
        let (1, Wire::Bytes(bytes)) = (field, wire) else { continue };
        let mut dimension = Dimension::Symbol("");
        let mut fields = Fields::of(bytes);
        while let Some((field, wire)) = fields.next()? {
            match (field, wire) {
                (1, Wire::Number(size)) => dimension = Dimension::Size(size),
                (2, Wire::Bytes(symbol)) => dimension = Dimension::Symbol(text(symbol)?),
                _ => {}
            }
        }
        dims.push(dimension);
        if dims.len() > MOST_ATTRIBUTES {
            return Err(Broken::TooMuch);
        }
    }
    Ok(dims)
}

/// The last field of that number.
fn inner(bytes: &[u8], wanted: u64) -> Result<Option<&[u8]>, Broken> {
    let mut found = None;
    let mut fields = Fields::of(bytes);
    while let Some((field, wire)) = fields.next()? {
        if let (true, Wire::Bytes(bytes)) = (field == wanted, wire) {
            found = Some(bytes);
        }
    }
    Ok(found)
}

fn numbers(bytes: &[u8], mut each: impl FnMut(u64)) -> Result<(), Broken> {
    let mut rest = bytes;
    for _ in 0..MOST_VALUES {
        if rest.is_empty() {
            return Ok(());
        }
        each(number(&mut rest)?);
    }
    Ok(())
}

fn text(bytes: &[u8]) -> Result<&str, Broken> {
    std::str::from_utf8(bytes).map_err(|_| Broken::Strange)
}

/// The texts of a list in Python's spelling: `['one', 'other']`. No module's name has a quote in it.
pub(in super::super) fn quoted(list: &str) -> impl DoubleEndedIterator<Item = &str> {
    list.split('\'')
        .enumerate()
        .filter(|(index, _)| index % 2 == 1)
        .map(|(_, text)| text)
        .collect::<Vec<_>>()
        .into_iter()
}
