//! State of which each rank keeps a part: gathered where it is saved, handed out where it is resumed.
//!
//! Parts are whole tensors with names, so what is saved does not show how many ranks there were, and any number of
//! them resumes it.

use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

use super::Ranks;
use crate::error::Error;
use crate::model::Named;
use crate::torch::{self, Result};

/// What one rank tells the others of a tensor that it keeps.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    name: String,
    shape: Vec<i64>,
    dtype: String,
}

/// What other ranks keep and this one does not, on the first rank; nothing on the others.
pub fn gather(own: &[Named], ranks: &Ranks) -> std::result::Result<Vec<Named>, Error> {
    let Some(group) = ranks.group.as_ref().filter(|_| ranks.owners.is_some()) else { return Ok(Vec::new()) };
    let mut others: Vec<Named> = Vec::new();
    for root in 1..ranks.size() {
        for entry in entries(own, ranks, root)? {
            let tensor = match own.iter().find(|named| ranks.rank() == root && named.name == entry.name) {
                Some(named) => named.tensor.f_detach().and_then(|tensor| tensor.f_contiguous()),
                None => Tensor::f_empty(&entry.shape, (kind(&entry.dtype)?, Device::Cpu)),
            };
            let tensor = tensor.map_err(torch::Error::from)?;
            group.broadcast(&tensor, root)?;
            let is_known = own.iter().chain(&others).any(|named| named.name == entry.name);
            if ranks.is_first() && !is_known {
                others.push(Named { name: entry.name, tensor });
            }
        }
    }
    Ok(others)
}

/// Fills what each rank keeps with what the first one has saved of it.
pub fn scatter(
    own: &[Named],
    saved: impl Fn(&str) -> std::result::Result<Tensor, Error>,
    ranks: &Ranks,
) -> std::result::Result<(), Error> {
    let Some(group) = ranks.group.as_ref().filter(|_| ranks.owners.is_some()) else {
        return Ok(ranks.spread(own)?);
    };
    for root in 0..ranks.size() {
        for entry in entries(own, ranks, root)? {
            let tensor = match ranks.is_first() {
                true => saved(&entry.name)?,
                false => {
                    Tensor::f_empty(&entry.shape, (kind(&entry.dtype)?, Device::Cpu)).map_err(torch::Error::from)?
                }
            };
            group.broadcast(&tensor, 0)?;
            if let Some(named) = own.iter().find(|named| ranks.rank() == root && named.name == entry.name) {
                let mut target = named.tensor.f_detach().map_err(torch::Error::from)?;
                target.f_copy_(&tensor).map_err(torch::Error::from)?;
            }
        }
    }
    Ok(())
}

/// What the rank `root` keeps.
fn entries(own: &[Named], ranks: &Ranks, root: u32) -> Result<Vec<Entry>> {
    let wrong = |error: serde_json::Error| torch::Error::new(format!("what rank {root} keeps is not told: {error}"));
    let entry = |named: &Named| Entry {
        name: named.name.clone(),
        shape: named.tensor.size(),
        dtype: format!("{:?}", named.tensor.kind()),
    };
    let own: Vec<Entry> = own.iter().map(entry).collect();
    let text = ranks.spread_text(root, &serde_json::to_string(&own).map_err(wrong)?)?;
    serde_json::from_str(&text).map_err(wrong)
}

/// The number format of this name; state is kept in one of few.
fn kind(name: &str) -> Result<Kind> {
    let known = [Kind::Float, Kind::Double, Kind::BFloat16, Kind::Half, Kind::Int64, Kind::Int, Kind::Uint8];
    let found = known.into_iter().find(|kind| format!("{kind:?}") == name);
    found.ok_or_else(|| torch::Error::new(format!("a rank keeps numbers of the unknown format `{name}`")))
}
