//! Layers with weights, initialised as PyTorch does by default unless a model says otherwise.

use std::rc::Rc;

use tch::{Device, Kind, Tensor};

use super::{BatchNormMode, Pass, Weights};
use crate::torch::cuda::norm::FusedBatchNorm;
use crate::torch::group::ProcessGroup;
use crate::torch::{Error, Result};

/// A fully connected layer.
#[derive(Debug)]
pub struct Linear {
    weight: Tensor,
    bias: Tensor,
}

impl Linear {
    /// `nn.Linear(inputs, outputs)`: weight and bias uniform in ±1/√inputs.
    ///
    /// # Errors
    /// When libtorch cannot make the tensors.
    pub fn new(weights: &mut Weights, name: &str, inputs: i64, outputs: i64) -> Result<Linear> {
        let bound = 1.0 / (inputs as f64).sqrt();
        weights.mark_cast(format!("{name}.weight"));
        Ok(Linear {
            weight: weights.uniform(format!("{name}.weight"), &[outputs, inputs], bound)?,
            bias: weights.uniform(format!("{name}.bias"), &[outputs], bound)?,
        })
    }

    /// Like [`Linear::new`], with weights drawn from a normal distribution around zero and a bias of zeros.
    pub fn normal(weights: &mut Weights, name: &str, [inputs, outputs]: [i64; 2], deviation: f64) -> Result<Linear> {
        weights.mark_cast(format!("{name}.weight"));
        let weight = weights.normal(format!("{name}.weight"), &[outputs, inputs], deviation)?;
        Ok(Linear { weight, bias: weights.zeros(format!("{name}.bias"), &[outputs])? })
    }

    /// A layer over tensors that exist: `outputs × inputs` and `outputs`.
    pub fn of(weight: Tensor, bias: Tensor) -> Linear {
        Linear { weight, bias }
    }

    /// `x · weightᵀ + bias`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.f_linear(&self.weight, Some(&self.bias))?)
    }

    /// The outputs of three layers for the same `x`. On a CUDA device by one product: `x` is converted to the format of
    /// products once instead of three times, and its gradient is added up within the product.
    pub fn three([first, second, third]: [&Linear; 3], x: &Tensor) -> Result<[Tensor; 3]> {
        if !x.device().is_cuda() {
            return Ok([first.forward(x)?, second.forward(x)?, third.forward(x)?]);
        }
        let weight = Tensor::f_cat(&[&first.weight, &second.weight, &third.weight], 0)?;
        let bias = Tensor::f_cat(&[&first.bias, &second.bias, &third.bias], 0)?;
        let sizes = [first, second, third].map(|layer| layer.bias.numel() as i64);
        let outputs = x.f_linear(&weight, Some(&bias))?.f_split_with_sizes(sizes, -1)?;
        outputs.try_into().map_err(|_| Error::new("a product of three layers has fewer parts"))
    }

    /// The same where the outputs, `count` in all, may be divided among ranks.
    pub fn logits(&self, x: &Tensor, count: i64, pass: &Pass) -> Result<Tensor> {
        pass.logits(x, &self.weight, Some(&self.bias), count)
    }

    /// Like `forward`, for an `x` whose width may be divided among ranks.
    pub fn join(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        pass.join(|| self.forward(x), || Ok(x.f_linear(&self.weight, None::<&Tensor>)?), &self.bias)
    }
}

/// The window of a convolution; its padding is half the kernel, so that a stride of 1 preserves the image's size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConvWindow {
    /// Height and width, in pixels.
    pub kernel: i64,
    /// Pixels from one window to the next.
    pub stride: i64,
    /// Groups of channels, each convolved into its own outputs, as `nn.Conv2d(groups=…)`.
    pub groups: i64,
}

impl ConvWindow {
    /// One group.
    pub fn new(kernel: i64, stride: i64) -> ConvWindow {
        ConvWindow { kernel, stride, groups: 1 }
    }
}

/// A convolution over the last two dimensions.
#[derive(Debug)]
pub struct Conv {
    weight: Tensor,
    bias: Option<Tensor>,
    window: ConvWindow,
}

impl Conv {
    /// `nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2)` with a bias: uniform in ±1/√(inputs · kernel²).
    pub fn with_bias(weights: &mut Weights, name: &str, [inputs, outputs]: [i64; 2], kernel: i64) -> Result<Conv> {
        let bound = 1.0 / ((inputs * kernel * kernel) as f64).sqrt();
        weights.mark_cast(format!("{name}.weight"));
        let weight = weights.uniform(format!("{name}.weight"), &[outputs, inputs, kernel, kernel], bound)?;
        let bias = Some(weights.uniform(format!("{name}.bias"), &[outputs], bound)?);
        Ok(Conv { weight, bias, window: ConvWindow::new(kernel, 1) })
    }

    /// A convolution before a batch normalisation, so without a bias; normal by fan-out for ReLU (He et al. 2015,
    /// "Delving Deep into Rectifiers"), as torchvision initialises its residual and mobile networks.
    pub fn residual(weights: &mut Weights, name: &str, channels: [i64; 2], window: ConvWindow) -> Result<Conv> {
        let weight = by_fan_out(weights, name, channels, window)?;
        Ok(Conv { weight, bias: None, window })
    }

    /// `nn.Conv2d(…, padding=kernel // 2, bias=False)`: uniform in ±1/√(inputs · kernel²), as PyTorch does by default.
    pub fn plain(weights: &mut Weights, name: &str, channels: [i64; 2], window: ConvWindow) -> Result<Conv> {
        let ([inputs, outputs], ConvWindow { kernel, groups, .. }) = (channels, window);
        let bound = 1.0 / ((inputs / groups * kernel * kernel) as f64).sqrt();
        let shape = [outputs, inputs / groups, kernel, kernel];
        weights.mark_cast(format!("{name}.weight"));
        Ok(Conv { weight: weights.uniform(format!("{name}.weight"), &shape, bound)?, bias: None, window })
    }

    /// A 1×1 convolution whose bias starts at `value`.
    pub fn constant_bias(weights: &mut Weights, name: &str, [inputs, outputs]: [i64; 2], value: f64) -> Result<Conv> {
        let mut conv = Conv::plain(weights, name, [inputs, outputs], ConvWindow::new(1, 1))?;
        let bias = Tensor::f_full([outputs], value, (Kind::Float, Device::Cpu))?;
        conv.bias = Some(weights.parameter(format!("{name}.bias"), bias)?);
        Ok(conv)
    }

    /// A 1×1 convolution that no normalisation follows: as [`Conv::residual`], with a bias of zeros.
    pub fn pointwise(weights: &mut Weights, name: &str, channels: [i64; 2]) -> Result<Conv> {
        let window = ConvWindow::new(1, 1);
        let weight = by_fan_out(weights, name, channels, window)?;
        Ok(Conv { weight, bias: Some(weights.zeros(format!("{name}.bias"), &[channels[1]])?), window })
    }

    /// `samples × inputs × height × width` to `samples × outputs × height/stride × width/stride`.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        let ConvWindow { kernel, stride, groups } = self.window;
        Ok(x.f_conv2d(&self.weight, self.bias.as_ref(), [stride; 2], [kernel / 2; 2], [1, 1], groups)?)
    }
}

fn by_fan_out(weights: &mut Weights, name: &str, [inputs, outputs]: [i64; 2], window: ConvWindow) -> Result<Tensor> {
    let ConvWindow { kernel, groups, .. } = window;
    let deviation = (2.0 / (outputs * kernel * kernel) as f64).sqrt();
    weights.mark_cast(format!("{name}.weight"));
    weights.normal(format!("{name}.weight"), &[outputs, inputs / groups, kernel, kernel], deviation)
}

/// The activation after a normalisation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// The values as they are.
    None,
    /// `max(x, 0)`.
    Relu,
    /// `min(max(x, 0), 6)`.
    Relu6,
    /// `x · min(max(x + 3, 0), 6) / 6` (Howard et al. 2019).
    HardSwish,
    /// `x · sigmoid(x)`.
    Silu,
}

impl Activation {
    /// Applies it.
    pub fn of(self, x: Tensor) -> Result<Tensor> {
        match self {
            Activation::None => Ok(x),
            Activation::Relu => relu(x),
            Activation::Relu6 => Ok(x.f_relu6()?),
            // Not in place: its derivative needs the input, which no other operation saves.
            Activation::HardSwish => Ok(x.f_hardswish()?),
            Activation::Silu => Ok(x.f_silu()?),
        }
    }

    /// Its number in the fused kernels.
    fn number(self) -> i32 {
        match self {
            Activation::None => 0,
            Activation::Relu => 1,
            Activation::Relu6 => 2,
            Activation::HardSwish => 3,
            Activation::Silu => 4,
        }
    }
}

/// Batch normalisation over samples, height and width (Ioffe and Szegedy 2015).
#[derive(Debug)]
pub struct BatchNorm {
    weight: Tensor,
    bias: Tensor,
    running_mean: Tensor,
    running_var: Tensor,
    num_batches_tracked: Tensor,
    momentum: f64,
    eps: f64,
    /// Ranks whose samples count as one batch, as `nn.SyncBatchNorm`.
    sync: Option<Rc<ProcessGroup>>,
}

impl BatchNorm {
    /// `nn.BatchNorm2d(channels)`: momentum 0.1, eps 1e-5.
    pub fn new(weights: &mut Weights, name: &str, channels: i64) -> Result<BatchNorm> {
        BatchNorm::with(weights, name, channels, [0.1, 1e-5])
    }

    /// Like [`BatchNorm::new`], with another `[momentum, eps]`.
    pub fn with(weights: &mut Weights, name: &str, channels: i64, [momentum, eps]: [f64; 2]) -> Result<BatchNorm> {
        weights.normalises(name, eps);
        let float = (Kind::Float, Device::Cpu);
        let count = Tensor::f_zeros([0i64; 0], (Kind::Int64, Device::Cpu))?;
        Ok(BatchNorm {
            weight: weights.ones(format!("{name}.weight"), &[channels])?,
            bias: weights.zeros(format!("{name}.bias"), &[channels])?,
            running_mean: weights.buffer(format!("{name}.running_mean"), Tensor::f_zeros([channels], float)?)?,
            running_var: weights.buffer(format!("{name}.running_var"), Tensor::f_ones([channels], float)?)?,
            num_batches_tracked: weights.buffer(format!("{name}.num_batches_tracked"), count)?,
            momentum,
            eps,
            sync: weights.sync_batch_norm(),
        })
    }

    /// Normalizes by the batch's statistics in training mode, otherwise by the running ones.
    pub fn forward(&self, x: &Tensor, pass: &Pass) -> Result<Tensor> {
        self.activated(x, None, Activation::None, pass)
    }

    /// The activation of the normalized `x`, to which a `shortcut` of its shape is added before. On a CUDA device all of it
    /// is one pass over memory, where the kernels take it.
    pub fn activated(
        &self,
        x: &Tensor,
        shortcut: Option<&Tensor>,
        activation: Activation,
        pass: &Pass,
    ) -> Result<Tensor> {
        let (mean, var) = (Some(&self.running_mean), Some(&self.running_var));
        let (mean, var, share) = match pass.running {
            BatchNormMode::KeepRunning if pass.train => (None, None, self.momentum),
            BatchNormMode::UpdateRunning | BatchNormMode::KeepRunning => (mean, var, self.momentum),
            BatchNormMode::Blend(share) => (mean, var, share),
        };
        if pass.train && mean.is_some() {
            let _ = self.num_batches_tracked.shallow_clone().f_add_scalar_(1)?;
        }
        let mut out = match &self.sync {
            Some(group) if pass.train => self.forward_synced(x, group, mean.map(|_| share))?,
            Some(_) | None => {
                let (weight, bias, eps) = (&self.weight, &self.bias, self.eps);
                let running = mean.zip(var).map(|(mean, var)| (mean, var, share));
                let activation = activation.number();
                let fused = FusedBatchNorm { weight, bias, running, eps, residual: shortcut, activation };
                if let Some(out) = if pass.train { fused.forward(x)? } else { None } {
                    return Ok(out);
                }
                x.f_batch_norm(Some(weight), Some(bias), mean, var, pass.train, share, eps, true)?
            }
        };
        if let Some(shortcut) = shortcut {
            out = out.f_add_(shortcut)?;
        }
        activation.of(out)
    }
}

impl BatchNorm {
    /// Normalizes by the statistics of all ranks' samples in 32 bits; the running ones move by `share` towards them.
    /// The variance is computed after the mean: as the difference of two large numbers it would lose precision. The number
    /// of values is summed beside them, as in `nn.SyncBatchNorm`, so that no host waits for the others' to know it.
    fn forward_synced(&self, x: &Tensor, group: &ProcessGroup, share: Option<f64>) -> Result<Tensor> {
        let kind = x.kind();
        let wide = x.f_to_kind(Kind::Float)?;
        let channels = self.weight.numel() as i64;
        let shape = [1, channels, 1, 1];
        let over = [0i64, 2, 3].as_slice();
        let own = |values: &Tensor| values.f_sum_dim_intlist(over, false, Kind::Float);
        let count = Tensor::f_full([1], (x.numel() as i64 / channels) as f64, (Kind::Float, x.device()))?;
        let sums = group.sum_both_ways(&Tensor::f_cat(&[own(&wide)?, count], 0)?)?;
        let count = sums.f_narrow(0, channels, 1)?.f_detach()?;
        let mean = sums.f_narrow(0, 0, channels)?.f_div(&count)?;
        let centred = wide.f_sub(&mean.f_view(shape)?)?;
        let variance = group.sum_both_ways(&own(&centred.f_square()?)?)?.f_div(&count)?;
        let scale = variance.f_add_scalar(self.eps)?.f_rsqrt()?.f_mul(&self.weight)?;
        let out = centred.f_mul(&scale.f_view(shape)?)?.f_add(&self.bias.f_view(shape)?)?;
        let Some(share) = share else { return Ok(out.f_to_kind(kind)?) };
        tch::no_grad(|| -> Result<()> {
            let others = count.f_sub_scalar(1.0)?.f_clamp_min(1.0)?;
            let unbiased = variance.f_detach()?.f_mul(&count.f_div(&others)?)?;
            for (running, new) in [(&self.running_mean, mean.f_detach()?), (&self.running_var, unbiased)] {
                let _ = running.shallow_clone().f_lerp_(&new, share)?;
            }
            Ok(())
        })?;
        Ok(out.f_to_kind(kind)?)
    }
}

/// Normalisation of each position over its channels (Ba et al. 2016).
#[derive(Debug)]
pub struct LayerNorm {
    weight: Tensor,
    bias: Tensor,
    eps: f64,
}

impl LayerNorm {
    /// `nn.LayerNorm(width, eps=eps)`.
    pub fn new(weights: &mut Weights, name: &str, width: i64, eps: f64) -> Result<LayerNorm> {
        Ok(LayerNorm {
            weight: weights.ones(format!("{name}.weight"), &[width])?,
            bias: weights.zeros(format!("{name}.bias"), &[width])?,
            eps,
        })
    }

    /// The factor of each channel.
    pub fn weight(&self) -> &Tensor {
        &self.weight
    }

    /// What is added to each channel.
    pub fn bias(&self) -> &Tensor {
        &self.bias
    }

    /// Normalises over the last dimension.
    pub fn forward(&self, x: &Tensor) -> Result<Tensor> {
        Ok(x.f_layer_norm(self.weight.size(), Some(&self.weight), Some(&self.bias), self.eps, true)?)
    }
}

/// The mean over height and width, `samples × channels`.
pub fn global_average(x: &Tensor) -> Result<Tensor> {
    Ok(x.f_adaptive_avg_pool2d([1, 1])?.f_flatten(1, -1)?)
}

/// Largest value of each `kernel × kernel` window.
pub fn max_pool(x: &Tensor, kernel: i64, stride: i64, padding: i64) -> Result<Tensor> {
    Ok(x.f_max_pool2d([kernel; 2], [stride; 2], [padding; 2], [1, 1], false)?)
}

/// `max(x, 0)`, in place: neither convolution nor normalization saves its output for the backward pass.
pub fn relu(mut x: Tensor) -> Result<Tensor> {
    Ok(x.f_relu_()?)
}

#[cfg(test)]
mod tests;
