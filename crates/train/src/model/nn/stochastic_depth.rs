//! Stochastic depth: the branch of a residual block is left out for some samples of a batch (Huang et al. 2016).

use tch::Tensor;

use super::Pass;
use crate::torch::Result;

/// `torchvision.ops.stochastic_depth(x, probability, mode="row")`: each sample's values are zero with this probability, and
/// scaled up otherwise.
pub(in crate::model) fn stochastic_depth(x: Tensor, probability: f64, pass: &Pass) -> Result<Tensor> {
    if !pass.train || probability == 0.0 {
        return Ok(x);
    }
    let survival = 1.0 - probability;
    let mut size = vec![1; x.dim()];
    size[0] = x.size()[0];
    let mut noise = Tensor::f_empty(&size, (x.kind(), x.device()))?;
    let _ = noise.f_bernoulli_float_(survival)?;
    if survival > 0.0 {
        let _ = noise.f_div_scalar_(survival)?;
    }
    Ok(x.f_mul(&noise)?)
}
