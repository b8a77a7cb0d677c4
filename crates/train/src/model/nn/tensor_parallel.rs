//! Tensor parallelism: each rank has a part of every transformer layer, some of the heads and some of the hidden features
//! (Shoeybi et al. 2019, "Megatron-LM").
//!
//! The input of a part is the same on all ranks ([`Pass::fork`]), and the outputs of all parts are summed over the ranks
//! ([`Pass::join`]): two all-reduces per layer in the forward pass, and two in the backward pass. The code of a layer is
//! the same whether it is divided or not; which of its tensors are divided, and how, is decided in [`crate::ranks`].

use std::rc::Rc;

use tch::{Device, Kind, Tensor};

use super::Pass;
use crate::torch::group::ProcessGroup;
use crate::torch::{self, Result};

/// The ranks that divide the layers among them.
#[derive(Debug)]
pub struct TensorParallel {
    group: Rc<ProcessGroup>,
}

impl TensorParallel {
    /// One part of each layer per rank of `group`.
    pub fn of(group: Rc<ProcessGroup>) -> TensorParallel {
        TensorParallel { group }
    }
}

impl Pass {
    /// Returns `x`; in the backward pass, sums the gradients of all ranks' parts: Megatron's operator f.
    pub(in crate::model) fn fork(&self, x: &Tensor) -> Result<Tensor> {
        match &self.tensor_parallel {
            Some(parts) => parts.group.sum_backward(x),
            None => Ok(x.shallow_clone()),
        }
    }

    /// `whole()` for an undivided layer, otherwise the sum of every rank's `part()`, plus `bias`: Megatron's operator
    /// g.
    pub(in crate::model) fn join(
        &self,
        whole: impl FnOnce() -> Result<Tensor>,
        part: impl FnOnce() -> Result<Tensor>,
        bias: &Tensor,
    ) -> Result<Tensor> {
        let Some(parts) = &self.tensor_parallel else { return whole() };
        let part = part()?;
        // Summed in 32 bits, whatever the data type of the matrix products.
        let sum = parts.group.sum_forward(&part.f_to_kind(Kind::Float)?)?;
        Ok(sum.f_add(bias)?.f_to_kind(part.kind())?)
    }

    /// The embeddings of `tokens`, `samples × length × width`. `vectors` are those of the full `vocabulary`, or this
    /// rank's rows of them; the token `padding` gets no gradient.
    pub(in crate::model) fn look_up(
        &self,
        vectors: &Tensor,
        tokens: &Tensor,
        vocabulary: i64,
        padding: i64,
    ) -> Result<Tensor> {
        let (rows, _) = vectors.size2()?;
        let Some(parts) = self.tensor_parallel.as_ref().filter(|_| rows < vocabulary) else {
            return Ok(Tensor::f_embedding(vectors, tokens, padding, false, false)?);
        };
        let first = rows * i64::from(parts.group.rank());
        let place = tokens.f_sub_scalar(first)?;
        let is_here = place.f_ge(0)?.f_logical_and(&place.f_lt(rows)?)?;
        let padding = if (first..first + rows).contains(&padding) { padding - first } else { -1 };
        let found = Tensor::f_embedding(vectors, &place.f_clamp(0, rows - 1)?, padding, false, false)?;
        parts.group.sum_forward(&found.f_mul(&is_here.f_unsqueeze(-1)?.f_to_kind(found.kind())?)?)
    }

    /// `x · vectorsᵀ + bias`: the logits of all `count` tokens or classes, on every rank, whether it has all vectors or
    /// a part of them.
    pub(in crate::model) fn logits(
        &self,
        x: &Tensor,
        vectors: &Tensor,
        bias: Option<&Tensor>,
        count: i64,
    ) -> Result<Tensor> {
        let rows = vectors.size()[0];
        let Some(parts) = self.tensor_parallel.as_ref().filter(|_| rows < count) else {
            return Ok(x.f_linear(vectors, bias)?);
        };
        let first = rows * i64::from(parts.group.rank());
        let own = parts.group.sum_backward(x)?.f_linear(vectors, bias)?.f_to_kind(Kind::Float)?;
        // Zero at the positions of the other ranks, so that the sum is the concatenation.
        parts.group.sum_forward(&own.f_constant_pad_nd([first, count - rows - first])?)
    }

    /// Runs `work`, on values like `x`, with a different random seed on each rank, so that the parts do not drop the
    /// same positions; afterwards all ranks draw the same numbers again. The seeds are derived from the generator's
    /// state alone, so that a pass that is repeated from that state drops the same values.
    pub(in crate::model) fn with_rank_dropout(
        &self,
        dropout: f64,
        x: &Tensor,
        work: impl FnOnce() -> Result<Tensor>,
    ) -> Result<Tensor> {
        let Some(parts) = self.tensor_parallel.as_ref().filter(|_| dropout > 0.0) else { return work() };
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
