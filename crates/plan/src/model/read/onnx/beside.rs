//! Values that stand beside a file and tell what its weights stand for.
//!
//! A table that an exporter looked up beforehand repeats its rows, and only its values say how many it has. They may stand
//! in another file, which the reader does not open: [`wanted`] says which parts of it matter, and [`bring`] adds
//! them to the bytes. Other weights are never wanted, however large they are.

use std::collections::BTreeMap;

use super::file::{self, BROUGHT};
use super::weights::Listed;

/// Larger tables are not looked at, nor more bytes in all.
const LARGEST: u64 = 8 << 20;
const ALL: u64 = 64 << 20;

/// Values of one weight in a file beside the model's.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Beside {
    pub weight: String,
    /// A name in the model's folder.
    pub file: String,
    pub offset: u64,
    pub length: u64,
}

/// Says which values beside an ONNX file matter; none of what is no such file.
pub fn wanted(bytes: &[u8]) -> Vec<Beside> {
    let Ok(Some(graph)) = file::model(bytes) else { return Vec::new() };
    let Some(listed) = graph.signature.and_then(Listed::read) else { return Vec::new() };
    let origins: BTreeMap<&str, &str> = graph.infos.iter().map(|info| (info.name, info.origins)).collect();
    let mut all = 0u64;
    let mut wanted = Vec::new();
    for stored in graph.weights.iter().filter(|stored| stored.is_float()) {
        let Some((file, offset, told)) = stored.beside else { continue };
        // A length that is left out is that of the values.
        let length = if told == 0 { stored.elements().saturating_mul(width(stored.kind)) } else { told };
        let is_plain = !file.is_empty() && !file.contains(['/', '\\', ':']) && file != "..";
        if is_plain
            && length <= LARGEST
            && all + length <= ALL
            && origins.get(stored.name).is_some_and(|origins| listed.is_computed(origins))
        {
            all += length;
            wanted.push(Beside { weight: stored.name.to_owned(), file: file.to_owned(), offset, length });
        }
    }
    wanted
}

/// Bytes of a value of a type (onnx/onnx.proto).
fn width(kind: u64) -> u64 {
    match kind {
        1 => 4,
        11 => 8,
        10 | 16 => 2,
        _ => 1,
    }
}

/// Adds the values of a weight to an ONNX file's bytes.
pub fn bring(bytes: &mut Vec<u8>, weight: &str, values: &[u8]) {
    let mut message = Vec::with_capacity(values.len() + weight.len() + 16);
    field(&mut message, 8, weight.as_bytes());
    field(&mut message, 9, values);
    field(bytes, BROUGHT, &message);
}

fn field(bytes: &mut Vec<u8>, field: u64, content: &[u8]) {
    for mut number in [field << 3 | 2, content.len() as u64] {
        while number >= 0x80 {
            bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        bytes.push(number as u8);
    }
    bytes.extend_from_slice(content);
}
