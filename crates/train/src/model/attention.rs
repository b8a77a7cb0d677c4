//! Attention of several heads, over the library's fused kernel (Vaswani et al. 2017).

use tch::Tensor;

use crate::torch::Result;

/// Softmax of queries · keysᵀ / √width, times the values; each `samples × length × (heads · width)`.
pub(super) fn attend([queries, keys, values]: [&Tensor; 3], heads: i64) -> Result<Tensor> {
    let apart = |x: &Tensor| -> Result<Tensor> {
        let (samples, length, width) = x.size3()?;
        Ok(x.f_view([samples, length, heads, width / heads])?.f_transpose(1, 2)?)
    };
    let (queries, keys, values) = (apart(queries)?, apart(keys)?, apart(values)?);
    let none = None::<&Tensor>;
    let out = Tensor::f_scaled_dot_product_attention(&queries, &keys, &values, none, 0.0, false, None, false)?;
    Ok(out.f_transpose(1, 2)?.f_flatten(2, 3)?)
}
