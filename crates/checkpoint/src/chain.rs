//! Files of links: each tensor as it is, or as its difference to the same tensor of the checkpoint before.
//!
//! The file is a safetensors file of bytes, so that its bounds are checked by the same reader: under a tensor's name
//! stand its type, its shape and its link ([`crate::delta`]). The first checkpoint of an attempt is a full one, and then
//! one of [`LONGEST_CHAIN`]; a tensor that is new, or of another shape, is full by itself.

use crate::delta::{self, HEADER, LONGEST_CHAIN, Width};
use crate::manifest::ChainEntry;
use crate::tensor::{Dtype, Tensor};

/// Types by the number that stands in a file.
const TYPES: [Dtype; 8] =
    [Dtype::F64, Dtype::I64, Dtype::F32, Dtype::I32, Dtype::BF16, Dtype::F16, Dtype::U8, Dtype::Bool];

/// The last checkpoint that was committed, on which the next one may build.
#[derive(Debug, Default)]
pub(crate) struct Base {
    /// Its chain, itself included.
    pub chain: Vec<ChainEntry>,
    pub model: Layer,
    pub training: Layer,
}

/// The tensors of one file, and the beginnings of the links that gave them.
#[derive(Debug, Default)]
pub(crate) struct Layer {
    pub tensors: Vec<Tensor>,
    pub heads: Vec<Vec<u8>>,
}

impl Base {
    /// The weights, or the state of the training.
    pub fn layer(&self, number: usize) -> &Layer {
        if number == 0 { &self.model } else { &self.training }
    }

    /// Whether the next checkpoint may build on this one.
    pub fn has_room(&self) -> bool {
        (1..usize::from(LONGEST_CHAIN)).contains(&self.chain.len())
    }
}

/// Packs tensors as links, based on those of `base` if given; also returns the heads of the links.
pub(crate) fn pack(tensors: &[Tensor], base: Option<&Layer>) -> (Vec<Tensor>, Vec<Vec<u8>>) {
    let (mut packed, mut heads) = (Vec::with_capacity(tensors.len()), Vec::with_capacity(tensors.len()));
    for (index, tensor) in tensors.iter().enumerate() {
        let before = base.and_then(|base| {
            let is_same = |other: &Tensor| {
                (&other.name, other.dtype, &other.shape) == (&tensor.name, tensor.dtype, &tensor.shape)
            };
            // A state has the same tensors in the same order, step by step.
            let at = Some(index).filter(|at| base.tensors.get(*at).is_some_and(is_same));
            let at = at.or_else(|| base.tensors.iter().position(is_same))?;
            Some((base.heads.get(at)?, &base.tensors[at]))
        });
        let link = before.and_then(|(head, before)| delta::difference(head, &before.bytes, &tensor.bytes).ok());
        let link = link.unwrap_or_else(|| delta::full(&tensor.bytes, width(tensor.dtype)));
        heads.push(link[..HEADER].to_vec());
        let mut bytes = vec![number(tensor.dtype), tensor.shape.len() as u8];
        bytes.extend(tensor.shape.iter().flat_map(|length| length.to_le_bytes()));
        bytes.extend(link);
        let shape = vec![bytes.len() as u64];
        packed.push(Tensor { name: tensor.name.clone(), dtype: Dtype::U8, shape, bytes });
    }
    (packed, heads)
}

/// Restores the tensors of a file of links on top of those before it. The error is part of a sentence.
pub(crate) fn unpack(packed: Vec<Tensor>, before: &[Tensor]) -> Result<Vec<Tensor>, String> {
    packed.into_iter().map(|Tensor { name, bytes, .. }| one(name, &bytes, before)).collect()
}

fn one(name: String, bytes: &[u8], before: &[Tensor]) -> Result<Tensor, String> {
    let broken = || format!("`{name}` in it is no difference");
    let ([kind, dimensions], rest) = bytes.split_first_chunk::<2>().ok_or_else(broken)?;
    let dtype = *TYPES.get(usize::from(*kind)).ok_or_else(broken)?;
    let (shape, link) = rest.split_at_checked(8 * usize::from(*dimensions)).ok_or_else(broken)?;
    let shape: Vec<u64> = shape.as_chunks::<8>().0.iter().map(|length| u64::from_le_bytes(*length)).collect();
    let base = before.iter().find(|tensor| tensor.name == name).map(|tensor| tensor.bytes.as_slice());
    let bytes = delta::restore(link, base).map_err(|defect| format!("`{name}` in it: {defect}"))?;
    let tensor = Tensor { name, dtype, shape, bytes };
    match tensor.expected_bytes() == Some(tensor.bytes.len() as u64) {
        true => Ok(tensor),
        false => Err(format!("`{}` in it does not fit its shape", tensor.name)),
    }
}

fn number(dtype: Dtype) -> u8 {
    TYPES.iter().position(|known| *known == dtype).unwrap_or_default() as u8
}

fn width(dtype: Dtype) -> Width {
    match dtype.bytes() {
        8 => Width::Eight,
        4 => Width::Four,
        2 => Width::Two,
        _ => Width::One,
    }
}
