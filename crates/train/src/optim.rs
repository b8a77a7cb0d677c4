//! The update rules, over the library's fused kernels, with state that can be saved by name.
//!
//! A fused kernel makes one pass over weights, gradients and state. The state is plain tensors of our own, so a
//! checkpoint holds all of it and a resumed run goes on bit for bit.

use domain::train::{Adamw, Optimizer as Rule, Sgd};
use tch::{Device, Kind, Tensor};

use crate::model::{Named, Weights};
use crate::torch::{self, AdamwConstants, Error, Result, SgdConstants};

/// An update rule and its state, for the parameters of one network.
pub struct Optimizer {
    names: Vec<String>,
    parameters: Vec<Tensor>,
    state: State,
}

enum State {
    /// One momentum a parameter; none when the momentum is 0.
    Sgd { constants: Sgd, momenta: Vec<Tensor> },
    /// Two moments a parameter, and the number of updates as the kernels want it: a float32 scalar.
    Adamw { constants: Adamw, first: Vec<Tensor>, second: Vec<Tensor>, step: Tensor },
}

impl Optimizer {
    /// The rule with fresh state.
    pub fn new(rule: Rule, weights: &Weights) -> Result<Optimizer> {
        let names = weights.parameters().iter().map(|named| named.name.clone()).collect();
        let parameters: Vec<Tensor> = weights.parameters().iter().map(|named| named.tensor.shallow_clone()).collect();
        let state = match rule {
            Rule::Sgd(constants) if constants.momentum == 0.0 => State::Sgd { constants, momenta: Vec::new() },
            Rule::Sgd(constants) => State::Sgd { constants, momenta: zeros_like(&parameters)? },
            Rule::Adamw(constants) => State::Adamw {
                constants,
                first: zeros_like(&parameters)?,
                second: zeros_like(&parameters)?,
                step: Tensor::f_zeros(
                    [0i64; 0],
                    (Kind::Float, parameters.first().map_or(Device::Cpu, Tensor::device)),
                )?,
            },
        };
        Ok(Optimizer { names, parameters, state })
    }

    /// The learning rate that the schedule multiplies.
    pub fn base_rate(&self) -> f64 {
        match &self.state {
            State::Sgd { constants, .. } => constants.lr,
            State::Adamw { constants, .. } => constants.lr,
        }
    }

    /// Scales the gradients down to the norm `clip` if they are longer, updates the parameters, and forgets the
    /// gradients. Nothing here waits for the device.
    pub fn step(&mut self, lr: f64, clip: Option<f64>) -> Result<()> {
        let gradients = self.gradients()?;
        if let Some(longest) = clip {
            self::clip(&gradients, longest)?;
        }
        match &mut self.state {
            State::Sgd { constants, momenta } => {
                let Sgd { lr: _, momentum, nesterov, weight_decay } = *constants;
                let constants = SgdConstants { lr, momentum, nesterov, weight_decay };
                torch::sgd_step(&self.parameters, &gradients, momenta, constants)?;
            }
            State::Adamw { constants, first, second, step } => {
                let Adamw { lr: _, betas, eps, weight_decay } = *constants;
                let constants = AdamwConstants { lr, betas, eps, weight_decay };
                let _ = step.f_add_scalar_(1.0)?;
                torch::adamw_step(&self.parameters, &gradients, [first, second], step, constants)?;
            }
        }
        torch::drop_gradients(&self.parameters)
    }

    /// Every tensor of the state by name, such as `momentum.fc.weight`. The handles are shared: writing to them sets
    /// the state.
    pub fn state(&self) -> Vec<Named> {
        let named = |kind: &str, tensors: &[Tensor]| -> Vec<Named> {
            let name = |name: &String| format!("{kind}.{name}");
            let pairs = self.names.iter().zip(tensors);
            pairs.map(|(of, tensor)| Named { name: name(of), tensor: tensor.shallow_clone() }).collect()
        };
        match &self.state {
            State::Sgd { momenta, .. } => named("momentum", momenta),
            State::Adamw { first, second, step, .. } => {
                let mut all = named("first", first);
                all.extend(named("second", second));
                all.push(Named { name: "updates".into(), tensor: step.shallow_clone() });
                all
            }
        }
    }

    fn gradients(&self) -> Result<Vec<Tensor>> {
        let mut gradients = Vec::with_capacity(self.parameters.len());
        for (name, parameter) in self.names.iter().zip(&self.parameters) {
            let gradient = parameter.f_grad()?;
            if !gradient.defined() {
                return Err(Error::new(format!("`{name}` has no gradient: the loss does not depend on it")));
            }
            gradients.push(gradient);
        }
        Ok(gradients)
    }
}

/// Scales gradients down to the norm `longest` if all together are longer, as torch.nn.utils.clip_grad_norm_.
pub fn clip(gradients: &[Tensor], longest: f64) -> Result<()> {
    let norm = torch::gradient_norm(gradients)?;
    let factor = norm.f_add_scalar(1e-6)?.f_reciprocal()?.f_mul_scalar(longest)?.f_clamp_max(1.0)?;
    torch::scale(gradients, &factor)
}

fn zeros_like(tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    // Of the detached values, so that the state needs no gradient; in the same memory format, as the kernels demand.
    tensors.iter().map(|tensor| Ok(tensor.f_detach()?.f_zeros_like()?)).collect()
}
