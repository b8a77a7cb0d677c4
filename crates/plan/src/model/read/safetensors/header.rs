//! The header: eight bytes of length, then a JSON object of tensors (<https://github.com/huggingface/safetensors>).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use domain::problem::Problem;
use serde::de::{Deserialize, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

/// Bytes of the longest header; that of 100,000 tensors is shorter.
const LONGEST: u64 = 64 << 20;
/// Tensors, and dimensions of one.
const MOST_TENSORS: usize = 400_000;
const MOST_DIMS: usize = 64;
/// No table or layer is larger, and no network has more layers.
const LARGEST: u64 = 1 << 24;
const MOST_LAYERS: usize = 4096;

/// Masks and tables of positions that some programs store and nothing trains.
const BUFFERS: [&str; 7] =
    ["attn.bias", "masked_bias", "position_ids", "inv_freq", "running_mean", "running_var", "num_batches_tracked"];

/// One tensor.
#[derive(serde::Deserialize)]
struct Entry {
    dtype: String,
    shape: Vec<u64>,
}

/// The tensors of one file, by name.
pub(super) struct Header {
    tensors: BTreeMap<String, Entry>,
}

impl<'de> Deserialize<'de> for Header {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Header, D::Error> {
        deserializer.deserialize_map(Tensors)
    }
}

struct Tensors;

impl<'de> Visitor<'de> for Tensors {
    type Value = Header;

    fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
        formatter.write_str("an object of tensors")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Header, A::Error> {
        let mut tensors = BTreeMap::new();
        while let Some(name) = map.next_key::<String>()? {
            if name == "__metadata__" {
                map.next_value::<IgnoredAny>()?;
                continue;
            }
            let entry: Entry = map.next_value()?;
            if entry.shape.len() > MOST_DIMS || tensors.len() >= MOST_TENSORS {
                return Err(A::Error::custom("it claims more than any network has"));
            }
            tensors.insert(name, entry);
        }
        Ok(Header { tensors })
    }
}

impl Header {
    /// Reads the header of a safetensors file: eight bytes with its length, then JSON.
    ///
    /// # Errors
    /// The header is longer than the file or than any network needs, or is no such JSON.
    pub fn read(bytes: &[u8]) -> Result<Header, Problem> {
        let wrong = |why: String| {
            Problem::at("", format!("the file cannot be read as safetensors: {why}")).hint("download it again")
        };
        let (length, rest) = bytes.split_first_chunk::<8>().ok_or_else(|| wrong("it ends too early".to_owned()))?;
        let length = u64::from_le_bytes(*length);
        if length > LONGEST {
            return Err(wrong(format!("its header would be {length} bytes long, and {LONGEST} are the most")));
        }
        let header = usize::try_from(length).ok().and_then(|length| rest.get(..length));
        let header = header
            .ok_or_else(|| wrong(format!("its header should be {length} bytes long, and {} follow", rest.len())))?;
        serde_json::from_slice(header).map_err(|error| wrong(error.to_string()))
    }

    /// Name of the first tensor.
    pub fn first(&self) -> Option<&str> {
        self.tensors.keys().next().map(String::as_str)
    }

    /// The dimensions of the tensor with this name, whatever stands before it; each within bounds.
    pub fn shape(&self, name: &str) -> Option<&[u64]> {
        // The shortest: `conv1.weight` rather than that of a block.
        let called = self.tensors.iter().filter(|(full, _)| is_called(full, name));
        let found = called.min_by_key(|(full, _)| full.len())?;
        bounded(&found.1.shape)
    }

    /// Whether a tensor has this name, whatever stands before it.
    pub fn has(&self, name: &str) -> bool {
        self.shape(name).is_some()
    }

    /// How many layers of `list` have a `part`, and its dimensions; none unless they are numbered from 0 and alike.
    pub fn layers(&self, list: &str, part: &str) -> Option<(u64, &[u64])> {
        let mut numbers = BTreeSet::new();
        let mut first: Option<&[u64]> = None;
        for (full, entry) in &self.tensors {
            let Some(number) = number(full, list, part) else { continue };
            if first.is_some_and(|first| first != entry.shape) || !numbers.insert(number) {
                return None;
            }
            first = Some(&entry.shape);
        }
        let contiguous = numbers.len() <= MOST_LAYERS && numbers.last().is_some_and(|last| *last + 1 == numbers.len());
        contiguous.then_some((numbers.len() as u64, bounded(first?)?))
    }

    /// Values that training changes.
    pub fn weights(&self) -> u64 {
        // Tied to the table of words, which GPT-2 always does.
        let gpt2 = self.has("wte.weight");
        let trained = self.tensors.iter().filter(|(name, entry)| {
            let tied = is_called(name, "cls.predictions.decoder.weight")
                || is_called(name, "cls.predictions.decoder.bias")
                || is_called(name, "lm_head.decoder.weight")
                || is_called(name, "lm_head.decoder.bias")
                || gpt2 && is_called(name, "lm_head.weight");
            let is_float = entry.dtype.starts_with('F') || entry.dtype.starts_with("BF");
            is_float && !tied && !BUFFERS.iter().any(|buffer| is_called(name, buffer))
        });
        let elements = |shape: &[u64]| shape.iter().fold(1, |product: u64, side| product.saturating_mul(*side));
        trained.fold(0, |sum, (_, entry)| sum.saturating_add(elements(&entry.shape)))
    }
}

fn is_called(full: &str, name: &str) -> bool {
    full.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// The layer that a tensor belongs to: 3 for `a.layers.3.part`.
fn number(full: &str, list: &str, part: &str) -> Option<usize> {
    let before = full.strip_suffix(part)?.strip_suffix('.')?;
    let (lists, number) = before.rsplit_once('.')?;
    is_called(lists, list).then(|| number.parse().ok().filter(|number| *number < MOST_LAYERS))?
}

fn bounded(shape: &[u64]) -> Option<&[u64]> {
    shape.iter().all(|side| (1..=LARGEST).contains(side)).then_some(shape)
}
