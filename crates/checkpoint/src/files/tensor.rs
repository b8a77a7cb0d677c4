//! Tensors as plain values, and their file format, safetensors.
//!
//! Writing has its own implementation, because the bytes of a file must depend on nothing but its tensors (the model's
//! SHA-256 is compared between runs) and no second copy may be made; it follows
//! <https://github.com/huggingface/safetensors>. Reading uses that project's crate, which checks every bound.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use safetensors::tensor::Metadata;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::Error;
use crate::disk::{Disk, Sink, file_name, hexadecimal};
use crate::error::Defect;
use crate::manifest::FileEntry;

/// The longest header that safetensors readers accept.
const LONGEST_HEADER: u64 = 100_000_000;

/// A named array of numbers, outside libtorch.
#[derive(Debug, Clone, PartialEq)]
pub struct Tensor {
    /// Unique in its file, such as `layer1.0.conv1.weight`.
    pub name: String,
    /// The type of each element.
    pub dtype: Dtype,
    /// The length of each dimension; empty for a single number.
    pub shape: Vec<u64>,
    /// The elements, little-endian, the last dimension changing fastest (C order), without gaps.
    pub bytes: Vec<u8>,
}

/// Types of elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Dtype {
    /// 64-bit floating point.
    F64,
    /// 64-bit signed integer.
    I64,
    /// 32-bit floating point.
    F32,
    /// 32-bit signed integer.
    I32,
    /// bfloat16.
    BF16,
    /// 16-bit floating point.
    F16,
    /// Unsigned byte.
    U8,
    /// One byte, 0 or 1.
    Bool,
}

impl Tensor {
    /// Whether no element is infinite or NaN; of integers always.
    pub fn is_finite(&self) -> bool {
        self.dtype.is_finite(&self.bytes)
    }
}

impl Dtype {
    /// Bytes of one element.
    pub fn bytes(self) -> u64 {
        match self {
            Dtype::F64 | Dtype::I64 => 8,
            Dtype::F32 | Dtype::I32 => 4,
            Dtype::BF16 | Dtype::F16 => 2,
            Dtype::U8 | Dtype::Bool => 1,
        }
    }

    /// Whether no element among these is infinite or NaN; of integers always.
    pub(crate) fn is_finite(self, bytes: &[u8]) -> bool {
        // Infinities and NaN, and only these, have all exponent bits set.
        let all_below = |size: usize, exponent: u64| {
            bytes.chunks_exact(size).all(|element| {
                let bits = element.iter().rev().fold(0, |bits, byte| bits << 8 | u64::from(*byte));
                bits & exponent != exponent
            })
        };
        match self {
            Dtype::F64 => all_below(8, 0x7ff0_0000_0000_0000),
            Dtype::F32 => all_below(4, 0x7f80_0000),
            Dtype::BF16 => all_below(2, 0x7f80),
            Dtype::F16 => all_below(2, 0x7c00),
            Dtype::I64 | Dtype::I32 | Dtype::U8 | Dtype::Bool => true,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Dtype::F64 => "F64",
            Dtype::I64 => "I64",
            Dtype::F32 => "F32",
            Dtype::I32 => "I32",
            Dtype::BF16 => "BF16",
            Dtype::F16 => "F16",
            Dtype::U8 => "U8",
            Dtype::Bool => "BOOL",
        }
    }

    /// `None` for the types that safetensors has and this program does not use.
    pub(crate) fn known(dtype: safetensors::Dtype) -> Option<Dtype> {
        match dtype {
            safetensors::Dtype::F64 => Some(Dtype::F64),
            safetensors::Dtype::I64 => Some(Dtype::I64),
            safetensors::Dtype::F32 => Some(Dtype::F32),
            safetensors::Dtype::I32 => Some(Dtype::I32),
            safetensors::Dtype::BF16 => Some(Dtype::BF16),
            safetensors::Dtype::F16 => Some(Dtype::F16),
            safetensors::Dtype::U8 => Some(Dtype::U8),
            safetensors::Dtype::BOOL => Some(Dtype::Bool),
            // That enum is not closed.
            _ => None,
        }
    }
}

impl Tensor {
    /// Bytes required by its shape and type; `None` on overflow.
    pub(crate) fn expected_bytes(&self) -> Option<u64> {
        self.shape.iter().try_fold(self.dtype.bytes(), |product, length| product.checked_mul(*length))
    }
}

/// Writes a safetensors file at `path`, atomically and synced.
///
/// `metadata` becomes the header's `__metadata__`, in this order; PyTorch's tools expect `("format", "pt")`. The same
/// tensors, in any order, and the same metadata give the same bytes.
///
/// # Errors
/// If the folder is missing, full or read-only, a name is not unique, or a tensor's bytes do not match its shape.
pub fn write_tensors(path: &Path, tensors: &[Tensor], metadata: &[(&str, &str)]) -> Result<FileEntry, Error> {
    let disk = Disk::default();
    let staged = disk.stage(path, file_name(path), "", |sink| write_to(sink, tensors, metadata))?;
    disk.publish_synced(staged)
}

/// Writes the safetensors form of `tensors`: widest elements first, so that each is aligned, then by name.
pub(crate) fn write_to(sink: &mut Sink, tensors: &[Tensor], metadata: &[(&str, &str)]) -> Result<(), Error> {
    let mut sorted: Vec<&Tensor> = tensors.iter().collect();
    sorted.sort_by_key(|tensor| order(&tensor.name, tensor.dtype));
    for tensor in &sorted {
        let bytes = tensor.bytes.len() as u64;
        if tensor.expected_bytes() != Some(bytes) {
            let Tensor { name, dtype, shape, .. } = tensor;
            let why = format!("{bytes} bytes do not match the shape {shape:?} of {dtype:?}");
            return Err(Error::Tensor { name: name.clone(), why });
        }
    }
    let heads = sorted.iter().map(|tensor| (tensor.name.as_str(), tensor.dtype, tensor.shape.as_slice()));
    sink.write(&header(heads, metadata)?)?;
    for tensor in sorted {
        sink.write(&tensor.bytes)?;
    }
    Ok(())
}

/// In which order tensors stand in a file: widest elements first, then by name.
pub(crate) fn order(name: &str, dtype: Dtype) -> (std::cmp::Reverse<u64>, String) {
    (std::cmp::Reverse(dtype.bytes()), name.to_owned())
}

/// The length of the JSON, the JSON, and spaces up to a multiple of 8; of tensors in the order of the file.
pub(crate) fn header<'a>(
    tensors: impl Iterator<Item = (&'a str, Dtype, &'a [u64])>,
    metadata: &[(&str, &str)],
) -> Result<Vec<u8>, Error> {
    let mut entries = Map::new();
    if !metadata.is_empty() {
        let pairs = metadata.iter().map(|(key, value)| (key.to_string(), json!(value)));
        entries.insert("__metadata__".into(), Value::Object(pairs.collect()));
    }
    let mut offset = 0_u64;
    for (name, dtype, shape) in tensors {
        let wrong = |why: &str| Error::Tensor { name: name.to_owned(), why: why.to_owned() };
        let bytes = shape.iter().try_fold(dtype.bytes(), |product, length| product.checked_mul(*length));
        let end = bytes.and_then(|bytes| offset.checked_add(bytes)).ok_or_else(|| wrong("no memory could hold it"))?;
        let entry = json!({ "dtype": dtype.name(), "shape": shape, "data_offsets": [offset, end] });
        if entries.insert(name.to_owned(), entry).is_some() {
            return Err(wrong("its name is not unique"));
        }
        offset = end;
    }
    let mut json = Value::Object(entries).to_string().into_bytes();
    json.resize(json.len().next_multiple_of(8), b' ');
    let mut header = (json.len() as u64).to_le_bytes().to_vec();
    header.append(&mut json);
    Ok(header)
}

/// Reads every tensor of a safetensors file, sorted by name. The file may be untrusted.
///
/// # Errors
/// If the file cannot be read or is not a safetensors file.
pub fn read_tensors(path: &Path) -> Result<Vec<Tensor>, Error> {
    let failed = |defect| match defect {
        Defect::Damaged(why) => Error::Damaged { path: path.to_owned(), why },
        Defect::Unreadable(source) => Error::Unreadable { path: path.to_owned(), source },
    };
    let file = File::open(path).map_err(|source| Error::File { doing: "open", path: path.to_owned(), source })?;
    Ok(read_from(file).map_err(failed)?.0)
}

/// The tensors of an open file, sorted by name, and the SHA-256 of all its bytes.
pub(crate) fn read_from(mut file: File) -> Result<(Vec<Tensor>, String), Defect> {
    let length = file.metadata()?.len();
    let mut hash = Sha256::new();
    let mut take = |bytes: u64| -> Result<Vec<u8>, Defect> {
        let mut buffer = Vec::new();
        let size = usize::try_from(bytes).map_err(|_| "it is larger than memory")?;
        // The size is at most that of the file, so a failure means that memory is short.
        buffer.try_reserve_exact(size).map_err(|_| io::Error::from(io::ErrorKind::OutOfMemory))?;
        (&mut file).take(bytes).read_to_end(&mut buffer)?;
        if buffer.len() != size {
            return Err("it is cut short".into());
        }
        hash.update(&buffer);
        Ok(buffer)
    };

    let (metadata, _) = read_metadata(length, &mut take)?;
    let mut tensors = Vec::new();
    for name in metadata.offset_keys() {
        // Every key has its entry; the crate's interface just does not say so.
        let info = metadata.info(&name).ok_or("its header is not valid")?;
        let dtype =
            Dtype::known(info.dtype).ok_or_else(|| format!("`{name}` is of the unknown type {}", info.dtype))?;
        // The header was checked: ranges are contiguous and match shape and type.
        let bytes = take((info.data_offsets.1 - info.data_offsets.0) as u64)?;
        let shape = info.shape.iter().map(|length| *length as u64).collect();
        tensors.push(Tensor { name, dtype, shape, bytes });
    }
    tensors.sort_by(|left, right| left.name.cmp(&right.name));
    Ok((tensors, hexadecimal(&hash.finalize())))
}

/// Parses the header of a file of `length` bytes, read through `take`; also returns where the values begin.
pub(crate) fn read_metadata(
    length: u64,
    take: &mut dyn FnMut(u64) -> Result<Vec<u8>, Defect>,
) -> Result<(Metadata, u64), Defect> {
    if length < 8 {
        return Err("it is cut short".into());
    }
    let start: [u8; 8] = take(8)?.try_into().map_err(|_| "it is cut short")?;
    let header_length = u64::from_le_bytes(start);
    if header_length > LONGEST_HEADER.min(length - 8) {
        return Err("its header is longer than the file, or than any header may be".into());
    }
    let header = take(header_length)?;
    let metadata: Metadata =
        serde_json::from_slice(&header).map_err(|error| format!("its header is not valid: {error}"))?;
    if metadata.data_len() as u64 != length - 8 - header_length {
        return Err("its header does not match its length".into());
    }
    Ok((metadata, 8 + header_length))
}
