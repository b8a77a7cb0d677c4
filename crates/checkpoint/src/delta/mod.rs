//! Delta checkpoints: small, because a step changes little of a weight.
//!
//! The bits of each number are read as an integer; what is stored is the difference from the same number of the
//! previous checkpoint, with its sign folded into the lowest bit, split into byte planes and compressed with zstd level
//! 1: most high planes are zeros then. A [`DeltaHeader`] describes a full state or a delta; it names its base and its
//! result by BLAKE3, and both are verified. At most [`LONGEST_CHAIN`] links build on each other, so that a restore is
//! fast and a damaged link costs little. Read on in `planes`, and in `chain.rs`, which makes files of links.

mod planes;
#[cfg(test)]
mod tests;

/// BLAKE3 of a state.
type Id = [u8; 32];

/// Links of a chain, the full one included.
pub const LONGEST_CHAIN: u8 = 8;

/// How many bytes a number has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Width {
    /// Bytes, or numbers of several lengths.
    One = 1,
    /// fp16 and bf16.
    Two = 2,
    /// fp32.
    Four = 4,
    /// fp64 and 64-bit integers.
    Eight = 8,
}

/// Why a link is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeltaError {
    /// It is no link, or a part of one.
    #[error("the checkpoint difference is damaged: {0}")]
    Damaged(&'static str),
    /// It builds on another state than the one that was given.
    #[error("the checkpoint difference builds on another checkpoint")]
    OtherBase,
    /// Eight links build on each other already.
    #[error("eight differences build on each other already: a full checkpoint is due")]
    Long,
}

const MAGIC: &[u8; 7] = b"GRADUSD";
const SCHEMA: u8 = 1;
/// Magic, schema, width, position in the chain, length, base and result.
pub(crate) const HEADER: usize = 7 + 3 + 8 + 32 + 32;

/// The header of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeltaHeader {
    width: Width,
    /// Its position in the chain: 0 for a full state.
    pub place: u8,
    /// Bytes of the state that it gives.
    pub length: u64,
    /// The state that it builds on; zeros for a full one.
    pub base: Id,
    /// The state that it gives.
    pub result: Id,
}

/// Writes a full state, the first link of a chain.
pub fn full(state: &[u8], width: Width) -> Vec<u8> {
    let base = [0; 32];
    write(DeltaHeader { width, place: 0, length: state.len() as u64, base, result: id(state) }, None, state)
}

/// Writes the difference from `before` to `state`; `last` is the link that gave `before`.
///
/// # Errors
/// [`DeltaError::Long`] when a full state is due, [`DeltaError::OtherBase`] when `last` gave another state.
pub fn difference(last: &[u8], before: &[u8], state: &[u8]) -> Result<Vec<u8>, DeltaError> {
    let (last, _) = read(last)?;
    if last.place + 1 >= LONGEST_CHAIN {
        return Err(DeltaError::Long);
    }
    if id(before) != last.result || before.len() != state.len() {
        return Err(DeltaError::OtherBase);
    }
    let link =
        DeltaHeader { place: last.place + 1, length: state.len() as u64, base: last.result, result: id(state), ..last };
    Ok(write(link, Some(before), state))
}

/// The state that a link gives, built on `before` unless it is a full one.
///
/// # Errors
/// [`DeltaError`]; the state is the one that was written, bit for bit, or there is none.
pub fn restore(link: &[u8], before: Option<&[u8]>) -> Result<Vec<u8>, DeltaError> {
    let (header, body) = read(link)?;
    let before = match (header.place, before) {
        (0, _) => None,
        (_, Some(before)) if id(before) == header.base && before.len() as u64 == header.length => Some(before),
        (_, Some(_) | None) => return Err(DeltaError::OtherBase),
    };
    let length = usize::try_from(header.length).map_err(|_| DeltaError::Damaged("it is longer than memory"))?;
    let state = planes::unpack(body, before, length, header.width)?;
    match id(&state) == header.result {
        true => Ok(state),
        false => Err(DeltaError::Damaged("it does not give the state that it names")),
    }
}

fn id(state: &[u8]) -> Id {
    *blake3::hash(state).as_bytes()
}

fn write(link: DeltaHeader, before: Option<&[u8]>, state: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER + state.len() / 2);
    bytes.extend(MAGIC);
    bytes.extend([SCHEMA, link.width as u8, link.place]);
    bytes.extend(link.length.to_le_bytes());
    bytes.extend(link.base);
    bytes.extend(link.result);
    planes::pack(before, state, link.width, &mut bytes);
    bytes
}

/// Parses a link into its header and its body.
///
/// # Errors
/// [`DeltaError::Damaged`].
pub fn read(bytes: &[u8]) -> Result<(DeltaHeader, &[u8]), DeltaError> {
    let damaged = DeltaError::Damaged("it is cut short, or no difference at all");
    let (head, body) = bytes.split_at_checked(HEADER).ok_or(damaged.clone())?;
    if !head.starts_with(MAGIC) || head[7] != SCHEMA {
        return Err(DeltaError::Damaged("it is of another version, or no difference at all"));
    }
    let width = match head[8] {
        1 => Width::One,
        2 => Width::Two,
        4 => Width::Four,
        8 => Width::Eight,
        _ => return Err(DeltaError::Damaged("its numbers have no known width")),
    };
    if head[9] >= LONGEST_CHAIN {
        return Err(DeltaError::Long);
    }
    let id = |at: usize| -> Result<Id, DeltaError> { head[at..at + 32].try_into().map_err(|_| damaged.clone()) };
    let length = u64::from_le_bytes(head[10..18].try_into().map_err(|_| damaged.clone())?);
    Ok((DeltaHeader { width, place: head[9], length, base: id(18)?, result: id(50)? }, body))
}
