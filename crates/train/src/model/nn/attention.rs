//! Multi-head attention over libtorch's fused kernel (Vaswani et al. 2017).

use tch::Tensor;

use crate::torch::Result;

/// The attention mask.
#[derive(Debug, Clone, Copy)]
pub(in crate::model) enum AttentionMask<'a> {
    /// All positions.
    Full,
    /// Itself and the positions before it.
    Causal,
    /// Those where the tensor is true: boolean, `samples × 1 × 1 × length` or `samples × 1 × length × length`.
    Boolean(&'a Tensor),
}

/// `softmax(queries · keysᵀ / √width) · values`; each is `samples × length × (heads · width)`, of all heads or of those
/// of this rank. `dropout` is the dropout probability of the softmax.
pub(in crate::model) fn attention(
    [queries, keys, values]: [&Tensor; 3],
    width: i64,
    mask: AttentionMask,
    dropout: f64,
) -> Result<Tensor> {
    let split_heads = |x: &Tensor| -> Result<Tensor> {
        let (_, length, all) = x.size3()?;
        // Not the number of samples: a trace would take it for a constant.
        Ok(x.f_view([-1, length, all / width, width])?.f_transpose(1, 2)?)
    };
    let (mask, causal) = match mask {
        AttentionMask::Full => (None, false),
        AttentionMask::Causal => (None, true),
        AttentionMask::Boolean(mask) => (Some(mask), false),
    };
    let (queries, keys, values) = (split_heads(queries)?, split_heads(keys)?, split_heads(values)?);
    let out = Tensor::f_scaled_dot_product_attention(&queries, &keys, &values, mask, dropout, causal, None, false)?;
    Ok(out.f_transpose(1, 2)?.f_flatten(2, 3)?)
}
