//! A transformer's layer of which each rank has a part: some of the heads, and some of the hidden values (Shoeybi et
//! al. 2019, "Megatron-LM").
//!
//! What goes into a part is the same on all ranks ([`Pass::fork`]), and what its last product comes to is added up over
//! them ([`Pass::join`]): two sums a layer on the way there, and two on the way back. A layer reads the same whether it
//! is divided or not; which of its tensors are cut, and how, is decided in [`crate::ranks`].

use std::rc::Rc;

use tch::{Device, Kind, Tensor};

use super::Pass;
use crate::torch::group::ProcessGroup;
use crate::torch::{self, Result};

/// The ranks that have parts of the same layers.
#[derive(Debug)]
pub struct TensorParallel {
    group: Rc<ProcessGroup>,
}

impl TensorParallel {
    /// One at each rank of the group.
    pub fn of(group: Rc<ProcessGroup>) -> TensorParallel {
        TensorParallel { group }
    }
}

impl Pass {
    /// What heads or hidden values are computed from; its gradient is the sum of what each part makes of it.
    pub(super) fn fork(&self, x: &Tensor) -> Result<Tensor> {
        match &self.parts {
            Some(parts) => parts.group.sum_backward(x),
            None => Ok(x.shallow_clone()),
        }
    }

    /// `whole`, or the sum of every rank's `part` and the `bias`.
    pub(super) fn join(
        &self,
        whole: impl FnOnce() -> Result<Tensor>,
        part: impl FnOnce() -> Result<Tensor>,
        bias: &Tensor,
    ) -> Result<Tensor> {
        let Some(parts) = &self.parts else { return whole() };
        let part = part()?;
        // Added up in 32 bits, whatever the products were computed in.
        let sum = parts.group.sum_forward(&part.f_to_kind(Kind::Float)?)?;
        Ok(sum.f_add(bias)?.f_to_kind(part.kind())?)
    }

    /// The vectors of words, `samples × length × width`. `vectors` are those of the whole `vocabulary`, or this rank's
    /// rows of them; the word `padding` has no gradient.
    pub(super) fn look_up(&self, vectors: &Tensor, tokens: &Tensor, vocabulary: i64, padding: i64) -> Result<Tensor> {
        let (rows, _) = vectors.size2()?;
        let Some(parts) = self.parts.as_ref().filter(|_| rows < vocabulary) else {
            return Ok(Tensor::f_embedding(vectors, tokens, padding, false, false)?);
        };
        let first = rows * i64::from(parts.group.rank());
        let place = tokens.f_sub_scalar(first)?;
        let is_here = place.f_ge(0)?.f_logical_and(&place.f_lt(rows)?)?;
        let padding = if (first..first + rows).contains(&padding) { padding - first } else { -1 };
        let found = Tensor::f_embedding(vectors, &place.f_clamp(0, rows - 1)?, padding, false, false)?;
        parts.group.sum_forward(&found.f_mul(&is_here.f_unsqueeze(-1)?.f_to_kind(found.kind())?)?)
    }

    /// `x · vectorsᵀ + bias`: of each of `all` words or classes a score, at every rank, whether it has all vectors or
    /// some of them.
    pub(super) fn scores(&self, x: &Tensor, vectors: &Tensor, bias: Option<&Tensor>, all: i64) -> Result<Tensor> {
        let rows = vectors.size()[0];
        let Some(parts) = self.parts.as_ref().filter(|_| rows < all) else {
            return Ok(x.f_linear(vectors, bias)?);
        };
        let first = rows * i64::from(parts.group.rank());
        let own = parts.group.sum_backward(x)?.f_linear(vectors, bias)?.f_to_kind(Kind::Float)?;
        // The others' places are zero here, so that the sum is all scores side by side.
        parts.group.sum_forward(&own.f_constant_pad_nd([first, all - rows - first])?)
    }

    /// Has `work`, on values like `x`, draw other random numbers in each part, so that parts do not leave out the same
    /// places; afterwards all ranks draw the same ones again. What is drawn follows from the generator alone, so that a
    /// pass that is repeated from its state draws the same.
    pub(super) fn with_rank_dropout(
        &self,
        dropout: f64,
        x: &Tensor,
        work: impl FnOnce() -> Result<Tensor>,
    ) -> Result<Tensor> {
        let Some(parts) = self.parts.as_ref().filter(|_| dropout > 0.0) else { return work() };
        let number = Tensor::f_randint(i64::MAX, [1], (Kind::Int64, Device::Cpu))?.f_int64_value(&[0])?;
        let mut devices = vec![Device::Cpu];
        if x.device().is_cuda() {
            devices.push(x.device());
        }
        let states = devices.iter().map(|device| torch::random_state(*device)).collect::<Result<Vec<Tensor>>>()?;
        torch::seed(number as u64 ^ (u64::from(parts.group.rank()) + 1))?;
        let out = work();
        for (device, state) in devices.iter().zip(&states) {
            torch::set_random_state(*device, state)?;
        }
        out
    }
}
