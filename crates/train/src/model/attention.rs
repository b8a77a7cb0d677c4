//! Attention of several heads, over the library's fused kernel (Vaswani et al. 2017).

use tch::Tensor;

use crate::torch::Result;

/// Which positions a position sees.
#[derive(Debug, Clone, Copy)]
pub(super) enum Sight<'a> {
    /// All.
    All,
    /// Itself and those before it.
    Before,
    /// Those whose mask is true; `samples × 1 × 1 × length`, or with as many rows as there are positions, boolean.
    Masked(&'a Tensor),
}

/// Softmax of queries · keysᵀ / √width, times the values; each `samples × length × (heads · width)`, of all heads or of
/// those that are here. `dropout` is the share of the softmax that is left out.
pub(super) fn attend([queries, keys, values]: [&Tensor; 3], width: i64, sight: Sight, dropout: f64) -> Result<Tensor> {
    let apart = |x: &Tensor| -> Result<Tensor> {
        let (samples, length, all) = x.size3()?;
        Ok(x.f_view([samples, length, all / width, width])?.f_transpose(1, 2)?)
    };
    let (mask, causal) = match sight {
        Sight::All => (None, false),
        Sight::Before => (None, true),
        Sight::Masked(mask) => (Some(mask), false),
    };
    let (queries, keys, values) = (apart(queries)?, apart(keys)?, apart(values)?);
    let out = Tensor::f_scaled_dot_product_attention(&queries, &keys, &values, mask, dropout, causal, None, false)?;
    Ok(out.f_transpose(1, 2)?.f_flatten(2, 3)?)
}
