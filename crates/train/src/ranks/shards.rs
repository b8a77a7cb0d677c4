//! Sharded state: gathered to be saved, scattered to be resumed.
//!
//! Saved tensors are complete and named, so they are independent of the number of ranks, and any number resumes them.
//! If parameters are divided ([`super::division`]), so is their optimizer state; if only the optimizer is sharded, each
//! rank has the state of complete tensors.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use tch::{Device, Kind, Tensor};

use super::{ParamSet, Ranks};
use crate::error::Error;
use crate::model::Named;
use crate::torch::{self, Result};

/// A rank's description of a tensor that it has.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    name: String,
    shape: Vec<i64>,
    dtype: String,
}

/// State tensors of parameters: of each kind one per parameter, named `KIND.PARAMETER`.
#[derive(Debug, Clone, Copy)]
pub struct StateKeys<'a> {
    /// Their names.
    pub names: &'a [&'a str],
    /// Of which parameters they are.
    pub of: ParamSet,
}

impl StateKeys<'_> {
    /// Whether the name is that of a parameter's state, rather than global state.
    fn has(self, name: &str) -> bool {
        self.names.iter().any(|kind| name.strip_prefix(kind).is_some_and(|rest| rest.starts_with('.')))
    }
}

/// Calls `each` on the first rank with all that the ranks keep, one tensor after another.
pub fn gather(
    own: &[Named],
    kinds: StateKeys,
    ranks: &Ranks,
    each: &mut dyn FnMut(&Named) -> std::result::Result<(), Error>,
) -> std::result::Result<(), Error> {
    if let Some(division) = ranks.division() {
        let mut failed = None;
        for kind in kinds.names {
            let find = |of: &str| {
                let name = format!("{kind}.{of}");
                own.iter().find(|named| named.name == name).map(|named| named.tensor.shallow_clone())
            };
            division.each_whole(kinds.of, &find, &mut |of, tensor| {
                if failed.is_none() {
                    failed = each(&Named { name: format!("{kind}.{of}"), tensor }).err();
                }
                Ok(())
            })?;
        }
        failed.map_or(Ok(()), Err)?;
        let mut others = own.iter().filter(|named| ranks.is_first() && !kinds.has(&named.name));
        return others.try_for_each(each);
    }
    if ranks.is_first() {
        own.iter().try_for_each(&mut *each)?;
    }
    let Some(group) = ranks.group.as_ref().filter(|_| ranks.owners.is_some()) else { return Ok(()) };
    let mut known: BTreeSet<String> = own.iter().map(|named| named.name.clone()).collect();
    for root in 1..ranks.size() {
        for Entry { name, shape, dtype } in entries(own, ranks, root)? {
            let tensor = match own.iter().find(|named| ranks.rank() == root && named.name == name) {
                // On the CPU like the others', so that all use the same backend.
                Some(named) => {
                    let tensor = named.tensor.f_detach().and_then(|tensor| tensor.f_to_device(Device::Cpu));
                    tensor.and_then(|tensor| tensor.f_contiguous())
                }
                None => Tensor::f_empty(&shape, (kind(&dtype)?, Device::Cpu)),
            };
            let tensor = tensor.map_err(torch::Error::from)?;
            group.broadcast(&tensor, root)?;
            if ranks.is_first() && known.insert(name.clone()) {
                each(&Named { name, tensor })?;
            }
        }
    }
    Ok(())
}

/// Restores the state of each rank from what the first one has `saved`; state that is not in it is unchanged.
pub fn scatter(
    own: &[Named],
    kinds: StateKeys,
    saved: &dyn Fn(&str) -> std::result::Result<Option<Tensor>, Error>,
    ranks: &Ranks,
) -> std::result::Result<(), Error> {
    let fill = |named: &Named| -> std::result::Result<(), Error> {
        match saved(&named.name)? {
            Some(values) if ranks.is_first() => copy_into(named, &values),
            Some(_) | None => Ok(()),
        }
    };
    if let (Some(division), Some(group)) = (ranks.division(), &ranks.group) {
        for kind in kinds.names {
            let name = |of: &str| format!("{kind}.{of}");
            let missing = |of: &str| torch::Error::new(format!("`{}` is missing in what was saved", name(of)));
            division.scatter_whole(
                group,
                |_, is_trained| kinds.of == ParamSet::All || is_trained,
                |of| saved(&name(of))?.ok_or_else(|| Error::from(missing(of))),
                |of| own.iter().find(|named| named.name == name(of)).map(|named| named.tensor.shallow_clone()),
            )?;
        }
        let others = || own.iter().filter(|named| !kinds.has(&named.name));
        if ranks.is_first() {
            others().try_for_each(fill)?;
        }
        return Ok(ranks.broadcast(others())?);
    }
    let Some(group) = ranks.group.as_ref().filter(|_| ranks.owners.is_some()) else {
        if ranks.is_first() {
            own.iter().try_for_each(fill)?;
        }
        return Ok(ranks.broadcast(own)?);
    };
    for root in 0..ranks.size() {
        for Entry { name, shape, dtype } in entries(own, ranks, root)? {
            let here = own.iter().find(|named| named.name == name);
            let tensor = match (ranks.is_first(), here) {
                (true, here) => match (saved(&name)?, here) {
                    (Some(values), _) => values,
                    (None, Some(named)) => {
                        let tensor = named.tensor.f_detach().and_then(|tensor| tensor.f_to_device(Device::Cpu));
                        tensor.map_err(torch::Error::from)?
                    }
                    (None, None) => {
                        return Err(torch::Error::new(format!("`{name}` is missing in what was saved")).into());
                    }
                },
                (false, _) => Tensor::f_empty(&shape, (kind(&dtype)?, Device::Cpu)).map_err(torch::Error::from)?,
            };
            group.broadcast(&tensor, 0)?;
            if let Some(named) = here.filter(|_| ranks.rank() == root) {
                copy_into(named, &tensor)?;
            }
        }
    }
    Ok(())
}

fn copy_into(named: &Named, values: &Tensor) -> std::result::Result<(), Error> {
    if values.size() != named.tensor.size() || values.kind() != named.tensor.kind() {
        return Err(torch::Error::new(format!("the checkpoint holds `{}` in another shape", named.name)).into());
    }
    let mut target = named.tensor.f_detach().map_err(torch::Error::from)?;
    Ok(target.f_copy_(values).map_err(torch::Error::from)?)
}

/// The tensors of the rank `root`.
fn entries(own: &[Named], ranks: &Ranks, root: u32) -> Result<Vec<Entry>> {
    let wrong =
        |error: serde_json::Error| torch::Error::new(format!("the shards of rank {root} cannot be described: {error}"));
    let entry = |named: &Named| Entry {
        name: named.name.clone(),
        shape: named.tensor.size(),
        dtype: format!("{:?}", named.tensor.kind()),
    };
    let own: Vec<Entry> = own.iter().map(entry).collect();
    let text = ranks.broadcast_text(root, &serde_json::to_string(&own).map_err(wrong)?)?;
    serde_json::from_str(&text).map_err(wrong)
}

/// The data type of this name; state uses few of them.
fn kind(name: &str) -> Result<Kind> {
    let known = [Kind::Float, Kind::Double, Kind::BFloat16, Kind::Half, Kind::Int64, Kind::Int, Kind::Uint8];
    let found = known.into_iter().find(|kind| format!("{kind:?}") == name);
    found.ok_or_else(|| torch::Error::new(format!("a rank keeps numbers of the unknown format `{name}`")))
}
