//! Tensors of the library as plain memory, and back.

use checkpoint::Dtype;
use domain::finding::{Cause, Finding};
use tch::{Kind, Tensor};

use crate::error::Error;
use crate::model::Named;
use crate::torch;

/// Tensors in plain memory, each in C order whatever its memory format.
pub(super) struct HostCopies {
    pub(super) made: Vec<checkpoint::Tensor>,
    /// Memory of earlier copies, most often in the same order.
    spare: Vec<checkpoint::Tensor>,
}

impl HostCopies {
    /// None yet; `spare` is memory for them.
    pub(super) fn over(mut spare: Vec<checkpoint::Tensor>) -> HostCopies {
        spare.reverse();
        HostCopies { made: Vec::new(), spare }
    }

    pub(super) fn add(&mut self, named: &Named) -> Result<(), Error> {
        let tensor = &named.tensor;
        let dtype =
            dtype(tensor.kind()).ok_or_else(|| state_mismatch(&format!("`{}` is {:?}", named.name, tensor.kind())))?;
        let length = tensor.numel() * dtype.bytes() as usize;
        let old = self.spare.iter().rposition(|old| old.name == named.name).map(|place| self.spare.remove(place));
        let mut bytes = old.map(|old| old.bytes).unwrap_or_default();
        bytes.resize(length, 0);
        torch::copy_to_bytes(tensor, &mut bytes)?;
        let shape = tensor.size().into_iter().map(i64::unsigned_abs).collect();
        self.made.push(checkpoint::Tensor { name: named.name.clone(), dtype, shape, bytes });
        Ok(())
    }
}

impl HostCopies {
    /// As [`HostCopies::add`], as a tensor of one dimension.
    pub(super) fn add_flat(&mut self, named: &Named) -> Result<(), Error> {
        self.add(named)?;
        if let Some(made) = self.made.last_mut() {
            made.shape = vec![made.shape.iter().product()];
        }
        Ok(())
    }
}

/// Copies tensors to plain memory.
pub(crate) fn copy<'a>(tensors: impl IntoIterator<Item = &'a Named>) -> Result<Vec<checkpoint::Tensor>, Error> {
    let mut copies = HostCopies::over(Vec::new());
    tensors.into_iter().try_for_each(|named| copies.add(named))?;
    Ok(copies.made)
}

/// Writes saved values into tensors of the same names.
pub(super) fn fill<'a>(
    tensors: impl IntoIterator<Item = &'a Named>,
    saved: &[checkpoint::Tensor],
) -> Result<(), Error> {
    for named in tensors {
        let values = to_tensor(find(saved, &named.name)?)?;
        if values.size() != named.tensor.size() || values.kind() != named.tensor.kind() {
            return Err(state_mismatch(&format!("`{}` has another shape", named.name)));
        }
        let mut target = named.tensor.f_detach().map_err(torch::Error::from)?;
        target.f_copy_(&values).map_err(torch::Error::from)?;
    }
    Ok(())
}

/// Writes saved values into a tensor with as many of the same type, of whatever shape.
pub(super) fn copy_values(named: &Named, saved: &checkpoint::Tensor) -> Result<(), Error> {
    let values = to_tensor(saved)?;
    if values.numel() != named.tensor.numel() || values.kind() != named.tensor.kind() {
        return Err(state_mismatch(&format!("`{}` has another shape", named.name)));
    }
    let copied = || -> Result<(), tch::TchError> {
        let mut target = named.tensor.f_detach()?;
        target.f_copy_(&values.f_view(named.tensor.size().as_slice())?)
    };
    Ok(copied().map_err(torch::Error::from)?)
}

/// The tensor of this name in a list that is sorted by name.
pub(super) fn find<'a>(saved: &'a [checkpoint::Tensor], name: &str) -> Result<&'a checkpoint::Tensor, Error> {
    let missing = || state_mismatch(&format!("`{name}` is missing"));
    saved.iter().find(|tensor| tensor.name == name).ok_or_else(missing)
}

pub(crate) fn to_tensor(saved: &checkpoint::Tensor) -> Result<Tensor, Error> {
    let shape: Vec<i64> = saved.shape.iter().map(|length| *length as i64).collect();
    Ok(Tensor::f_from_data_size(&saved.bytes, &shape, kind(saved.dtype)).map_err(torch::Error::from)?)
}

fn kind(dtype: Dtype) -> Kind {
    match dtype {
        Dtype::F64 => Kind::Double,
        Dtype::I64 => Kind::Int64,
        Dtype::F32 => Kind::Float,
        Dtype::I32 => Kind::Int,
        Dtype::BF16 => Kind::BFloat16,
        Dtype::F16 => Kind::Half,
        Dtype::U8 => Kind::Uint8,
        Dtype::Bool => Kind::Bool,
    }
}

fn dtype(of: Kind) -> Option<Dtype> {
    use Dtype::*;
    [F64, I64, F32, I32, BF16, F16, U8, Bool].into_iter().find(|dtype| kind(*dtype) == of)
}

/// A verified checkpoint of this very job that does not fit is our own mistake.
pub(super) fn state_mismatch(why: &str) -> Error {
    let finding = Finding::new(Cause::Internal, format!("the saved state does not fit this job: {why}"));
    finding.hint("start the run over, and report this with the rank's log").into()
}
