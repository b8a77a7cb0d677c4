//! The update rules, using the library's fused kernels if available, with state that can be saved by name.
//!
//! A fused kernel makes one pass over weights, gradients and state. The state is in plain tensors, so a checkpoint
//! contains all of it and a resumed run continues bit for bit. [`groups`] assigns parameters to groups; the rules
//! without a library kernel are [`lamb`], [`lars`] and [`adafactor`].

mod adafactor;
mod before;
mod flag;
mod grad_scaler;
mod groups;
mod lamb;
mod lars;
pub mod schedule;

use domain::train::{Adafactor, Adamw, Lamb, Lars, Offload, Optimizer as Rule, Parameters, Sgd};
use tch::{Device, Kind, Tensor};

use before::Before;
pub use flag::UpdateFlag;
pub use grad_scaler::GradScaler;
pub(crate) use grad_scaler::check as check_scale;
pub use groups::{ParamGroup, rates, unknown_prefix};

use crate::model::{Named, Weights};
use crate::torch::{self, AdamwConstants, Error, Result, SgdConstants};

/// An update rule and its state, for the parameters of one network.
pub struct ModelOptimizer {
    rule: Rule,
    groups: Vec<ParamGroupState>,
    /// The number of updates as the kernels want it: a float32 scalar.
    updates: Tensor,
    scaler: Option<GradScaler>,
    /// Whether updates by gradients that are not finite are skipped on the device, and the host is told later.
    defers: bool,
}

/// Parameters that are treated alike, and the state that the rule keeps of them.
struct ParamGroupState {
    config: ParamGroup,
    names: Vec<String>,
    parameters: Vec<Tensor>,
    state: State,
    /// Whether the state is the host's, and the update is made there.
    is_on_host: bool,
}

enum State {
    /// None.
    Bare,
    /// One momentum a parameter.
    Momenta(Vec<Tensor>),
    /// Two moments a parameter.
    Moments { first: Vec<Tensor>, second: Vec<Tensor> },
    /// Mean squares by row and column, or by value.
    SecondMoment(Vec<adafactor::SecondMoment>),
}

/// Global reductions of ranks that update different parameters, before each update.
pub trait GlobalGradients {
    /// The global norm of all ranks' gradients, a scalar.
    fn norm(&self) -> Result<Tensor>;
    /// Makes `found` 1 if it is on any rank: a gradient there is not finite.
    fn found(&self, found: &Tensor) -> Result<()>;
}

/// All of `gradients` are known here.
struct Alone<'a>(&'a [Tensor]);

impl GlobalGradients for Alone<'_> {
    fn norm(&self) -> Result<Tensor> {
        match self.0 {
            [] => Ok(Tensor::f_zeros([0i64; 0], (Kind::Float, Device::Cpu))?),
            gradients => torch::gradient_norm(gradients),
        }
    }

    fn found(&self, _: &Tensor) -> Result<()> {
        Ok(())
    }
}

/// The kinds of state tensors that a rule stores per parameter, in the parameter's own shape; empty for a rule whose
/// state has other shapes.
pub fn kinds(rule: Rule) -> &'static [&'static str] {
    match rule {
        Rule::Sgd(Sgd { momentum: 0.0, .. }) | Rule::Adafactor(_) => &[],
        Rule::Sgd(_) | Rule::Lars(_) => &["momentum"],
        Rule::Adamw(_) | Rule::Lamb(_) => &["first", "second"],
    }
}

impl ModelOptimizer {
    /// The rule with fresh state, for all parameters alike.
    pub fn new(rule: Rule, weights: &Weights) -> Result<ModelOptimizer> {
        ModelOptimizer::with(rule, &Parameters::default(), Offload::None, weights)
    }

    /// The rule with initial state, on the host if requested; parameters without gradients are skipped.
    pub fn with(rule: Rule, keys: &Parameters, offload: Offload, weights: &Weights) -> Result<ModelOptimizer> {
        let is_on_host = offload == Offload::Optimizer;
        let rates = rates(keys, weights.in_order());
        let mut groups: Vec<ParamGroupState> = Vec::new();
        for Named { name, tensor } in weights.parameters().iter().filter(|named| named.tensor.requires_grad()) {
            let config = ParamGroup::of(keys, name, tensor.dim(), rates.get(name).copied().unwrap_or(1.0));
            let place = match groups.iter().position(|group| group.config == config) {
                Some(place) => place,
                None => {
                    let (names, parameters) = (Vec::new(), Vec::new());
                    groups.push(ParamGroupState { config, names, parameters, state: State::Bare, is_on_host });
                    groups.len() - 1
                }
            };
            groups[place].names.push(name.clone());
            groups[place].parameters.push(tensor.shallow_clone());
        }
        for group in &mut groups {
            group.state = State::fresh(rule, &group.present()?)?;
        }
        let device = match weights.parameters().first() {
            Some(named) if !is_on_host => named.tensor.device(),
            Some(_) | None => Device::Cpu,
        };
        let updates = Tensor::f_zeros([0i64; 0], (Kind::Float, device))?;
        Ok(ModelOptimizer { rule, groups, updates, scaler: None, defers: false })
    }

    /// The same, for losses that are scaled.
    pub fn scaled(self, scaler: GradScaler) -> ModelOptimizer {
        ModelOptimizer { scaler: Some(scaler), ..self }
    }

    /// From now on, has the device skip updates by gradients that are not finite, so that the host need not wait to know;
    /// where the state is on the device.
    pub fn defer(&mut self, is_asked: bool) {
        self.defers = is_asked && !self.groups.iter().any(|group| group.is_on_host);
    }

    /// Whether losses are scaled.
    pub fn is_scaled(&self) -> bool {
        self.scaler.is_some()
    }

    /// Sets the momentum of the next updates, or the first decay rate of rules with two. A rule without has none to set.
    pub fn set_momentum(&mut self, value: f64) {
        match &mut self.rule {
            Rule::Sgd(Sgd { momentum, .. }) if *momentum > 0.0 => *momentum = value,
            Rule::Adamw(Adamw { betas, .. }) => betas[0] = value,
            Rule::Lamb(Lamb { betas, .. }) => betas[0] = value,
            Rule::Lars(Lars { momentum, .. }) => *momentum = value,
            Rule::Sgd(_) | Rule::Adafactor(_) => {}
        }
    }

    /// The base learning rate, which the schedule multiplies.
    pub fn base_rate(&self) -> f64 {
        self.rule.base_rate()
    }

    /// The loss from which to go back.
    pub fn loss(&self, loss: Tensor) -> Result<Tensor> {
        match &self.scaler {
            Some(scaler) => scaler.scaled(&loss),
            None => Ok(loss),
        }
    }

    /// Clips the gradients to the norm `clip`, updates the parameters, and clears the gradients. With non-finite
    /// gradients nothing is updated, and the flag says so. Unless it [defers], synchronizes with the device once, for the
    /// norm of the gradients or for the result of [`GradScaler`].
    ///
    /// [defers]: ModelOptimizer::defer
    ///
    /// # Errors
    /// When a parameter has no gradient, or libtorch fails.
    pub fn step(&mut self, lr: f64, clip: Option<f64>) -> Result<UpdateFlag> {
        let gradients: Vec<Vec<Tensor>> = self.groups.iter().map(ParamGroupState::gradients).collect::<Result<_>>()?;
        let all: Vec<Tensor> = gradients.iter().flatten().map(Tensor::shallow_clone).collect();
        self.step_among(lr, clip, &all, None)
    }

    /// Like [`Optimizer::step`], for a subset of all parameters. `all` are the local gradients, whose norm and
    /// finiteness are checked, unless there is a global reduction to `agree` on.
    pub fn step_among(
        &mut self,
        lr: f64,
        clip: Option<f64>,
        all: &[Tensor],
        agree: Option<&dyn GlobalGradients>,
    ) -> Result<UpdateFlag> {
        let alone = Alone(all);
        let agree = agree.unwrap_or(&alone);
        let (flag, norm) = self.find(all, agree)?;
        if let (Some(longest), true) = (clip, flag.may_update()) {
            let norm = norm.map_or_else(|| agree.norm(), Ok)?;
            self::clip(all, &norm, longest)?;
        }
        if flag.may_update() {
            let _ = match flag.found() {
                Some(found) => self.updates.f_add_(&found.f_neg()?.f_add_scalar(1.0)?)?,
                None => self.updates.f_add_scalar_(1.0)?,
            };
            for group in &mut self.groups {
                group.step(self.rule, &self.updates, lr, flag.found())?;
            }
        }
        for group in &self.groups {
            torch::drop_gradients(&group.parameters)?;
        }
        Ok(flag)
    }

    /// Whether all gradients are finite; and their norm, if it was needed to know.
    fn find(&mut self, all: &[Tensor], agree: &dyn GlobalGradients) -> Result<(UpdateFlag, Option<Tensor>)> {
        if let Some(scaler) = &mut self.scaler {
            return Ok((scaler.unscale(all, agree, self.defers)?, None));
        }
        // One fused reduction, which clipping needs anyway, reads every value.
        let norm = agree.norm()?;
        let flag = match self.defers {
            true => UpdateFlag::of_norm(&norm)?,
            false => UpdateFlag::Known(norm.f_double_value(&[])?.is_finite()),
        };
        Ok((flag, Some(norm)))
    }

    /// Every tensor of the state by name, such as `momentum.fc.weight`. The handles are shared: writing to them sets
    /// the state.
    pub fn state(&self) -> Vec<Named> {
        let mut all: Vec<Named> = self.groups.iter().flat_map(ParamGroupState::state).collect();
        match self.rule {
            // Has no step counter.
            Rule::Sgd(_) | Rule::Lars(_) => {}
            Rule::Adamw(_) | Rule::Lamb(_) | Rule::Adafactor(_) => {
                all.push(Named { name: "updates".into(), tensor: self.updates.shallow_clone() });
            }
        }
        all.extend(self.scaler.iter().flat_map(GradScaler::state));
        all
    }
}

impl State {
    fn fresh(rule: Rule, parameters: &[Tensor]) -> Result<State> {
        Ok(match rule {
            Rule::Sgd(Sgd { momentum: 0.0, .. }) => State::Bare,
            Rule::Sgd(_) | Rule::Lars(_) => State::Momenta(zeros_like(parameters)?),
            Rule::Adamw(_) | Rule::Lamb(_) => {
                State::Moments { first: zeros_like(parameters)?, second: zeros_like(parameters)? }
            }
            Rule::Adafactor(_) => {
                State::SecondMoment(parameters.iter().map(adafactor::SecondMoment::of).collect::<Result<_>>()?)
            }
        })
    }
}

impl ParamGroupState {
    /// Updates the parameters by their gradients, where the state is; `updates` counts this one too. Where the device has
    /// `found` a gradient that is not finite, it changes nothing.
    fn step(&mut self, rule: Rule, updates: &Tensor, lr: f64, found: Option<&Tensor>) -> Result<()> {
        let (mut parameters, gradients) = (self.present()?, self.gradients()?);
        if !self.is_on_host {
            return self.update(rule, &mut parameters, &gradients, updates, lr, found);
        }
        let gradients: Vec<Tensor> = gradients.iter().map(to_host).collect::<Result<_>>()?;
        self.update(rule, &mut parameters, &gradients, updates, lr, None)?;
        for (parameter, new) in self.parameters.iter().zip(&parameters) {
            parameter.f_detach()?.f_copy_(new)?;
        }
        Ok(())
    }

    /// The parameters on the device of the update: on the host they are copies.
    fn present(&self) -> Result<Vec<Tensor>> {
        let parameters = self.parameters.iter();
        match self.is_on_host {
            true => parameters.map(to_host).collect(),
            false => Ok(parameters.map(Tensor::shallow_clone).collect()),
        }
    }

    fn update(
        &mut self,
        rule: Rule,
        parameters: &mut [Tensor],
        gradients: &[Tensor],
        updates: &Tensor,
        lr: f64,
        found: Option<&Tensor>,
    ) -> Result<()> {
        let lr = lr * self.config.rate;
        let decay = |weight_decay: f64| self.config.decay * weight_decay;
        match (rule, &mut self.state) {
            (Rule::Sgd(Sgd { lr: _, momentum, nesterov, weight_decay }), state) => {
                let constants = SgdConstants { lr, momentum, nesterov, weight_decay: decay(weight_decay) };
                let momenta: &[Tensor] = if let State::Momenta(momenta) = state { momenta } else { &[] };
                torch::sgd_step(parameters, gradients, momenta, constants, found)
            }
            (Rule::Adamw(Adamw { lr: _, betas, eps, weight_decay }), State::Moments { first, second }) => {
                let constants = AdamwConstants { lr, betas, eps, weight_decay: decay(weight_decay) };
                torch::adamw_step(parameters, gradients, [first, second], updates, constants, found)
            }
            (Rule::Lamb(constants), State::Moments { first, second }) => {
                let constants = Lamb { lr, weight_decay: decay(constants.weight_decay), ..constants };
                let moments = first.iter_mut().zip(second.iter_mut());
                let each = parameters.iter_mut().zip(gradients).zip(moments);
                tch::no_grad(|| {
                    each.into_iter().try_for_each(|((parameter, gradient), (first, second))| {
                        let before = Before::of(found, &[parameter, first, second])?;
                        lamb::step(parameter, gradient, (first, second), updates, constants, self.config.decays())?;
                        before.put_back()
                    })
                })
            }
            (Rule::Lars(constants), State::Momenta(momenta)) => {
                let constants = Lars { lr, weight_decay: decay(constants.weight_decay), ..constants };
                let each = parameters.iter_mut().zip(gradients).zip(momenta);
                tch::no_grad(|| {
                    each.into_iter().try_for_each(|((parameter, gradient), momenta)| {
                        let before = Before::of(found, &[parameter, momenta])?;
                        lars::step(parameter, gradient, momenta, constants, self.config.decays())?;
                        before.put_back()
                    })
                })
            }
            (Rule::Adafactor(constants), State::SecondMoment(squares)) => {
                let constants = Adafactor { lr, weight_decay: decay(constants.weight_decay), ..constants };
                let each = parameters.iter_mut().zip(gradients).zip(squares);
                tch::no_grad(|| {
                    each.into_iter().try_for_each(|((parameter, gradient), squares)| {
                        let before = Before::of(found, &[vec![&*parameter], squares.tensors()].concat())?;
                        adafactor::step(parameter, gradient, squares, updates, constants)?;
                        before.put_back()
                    })
                })
            }
            (Rule::Adamw(_) | Rule::Lamb(_) | Rule::Lars(_) | Rule::Adafactor(_), _) => {
                Err(Error::new("the optimiser's state is of another rule"))
            }
        }
    }

    fn state(&self) -> Vec<Named> {
        let named = |kind: &str, tensors: Vec<&Tensor>| -> Vec<Named> {
            let pairs = self.names.iter().zip(tensors);
            pairs.map(|(of, tensor)| Named { name: format!("{kind}.{of}"), tensor: tensor.shallow_clone() }).collect()
        };
        match &self.state {
            State::Bare => Vec::new(),
            State::Momenta(momenta) => named("momentum", momenta.iter().collect()),
            State::Moments { first, second } => {
                let mut all = named("first", first.iter().collect());
                all.extend(named("second", second.iter().collect()));
                all
            }
            State::SecondMoment(squares) => {
                let pairs = self.names.iter().zip(squares);
                pairs.flat_map(|(of, squares)| squares.named(of)).collect()
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

/// Scales gradients down to the norm `longest` if all together have a longer `norm`, as
/// torch.nn.utils.clip_grad_norm_.
fn clip(gradients: &[Tensor], norm: &Tensor, longest: f64) -> Result<()> {
    if gradients.is_empty() {
        return Ok(());
    }
    let factor = norm.f_add_scalar(1e-6)?.f_reciprocal()?.f_mul_scalar(longest)?.f_clamp_max(1.0)?;
    torch::scale(gradients, &factor)
}

/// A copy in host memory, in the same memory format, even if the tensor is on the host already.
fn to_host(tensor: &Tensor) -> Result<Tensor> {
    torch::copied(&tensor.f_detach()?.f_to_device(Device::Cpu)?)
}

fn zeros_like(tensors: &[Tensor]) -> Result<Vec<Tensor>> {
    // Of the detached values, so that the state needs no gradient; in the same memory format, as the kernels demand.
    tensors.iter().map(|tensor| Ok(tensor.f_detach()?.f_zeros_like()?)).collect()
}

#[cfg(test)]
mod tests;
