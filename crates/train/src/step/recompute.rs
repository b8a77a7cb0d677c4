//! Activation checkpointing: activations of blocks are dropped in the forward pass and recomputed in the backward pass
//! (Chen et al. 2016, "Training Deep Nets with Sublinear Memory Cost"): less memory for a third more computation, with
//! bit-identical results.
//!
//! The random numbers that dropout draws and the running statistics of batch normalizations must be the same in both
//! passes.

use std::sync::Arc;

use domain::train::Recompute;
use tch::{Device, Tensor};

use crate::model::{BatchNormMode, ModelBlock, Network, Pass};
use crate::ranks::Ranks;
use crate::step::StepConfig;
use crate::step::precision::ComputeFormat;
use crate::torch::{self, Result};

/// The network's output, computed according to the config; a backward pass follows.
pub fn forward(network: &Network, values: &Tensor, pass: &Pass, config: &StepConfig, ranks: &Ranks) -> Result<Tensor> {
    if let Some(shards) = ranks.shards() {
        shards.begin()?;
    }
    network.forward_through(values, pass, blocks(config, ranks))
}

/// The same up to the head, for a network whose parameters are not sharded.
pub fn hidden(network: &Network, values: &Tensor, pass: &Pass, config: &StepConfig, ranks: &Ranks) -> Result<Tensor> {
    network.hidden_through(values, pass, blocks(config, ranks))
}

/// Calls each block in turn.
fn blocks(config: &StepConfig, ranks: &Ranks) -> impl FnMut(&Arc<ModelBlock>, &Tensor, &Pass) -> Result<Tensor> {
    let mut place = 0;
    move |block, x, pass| {
        let is_chosen = chosen(config.recompute, place as u32);
        let work = |x: &Tensor| if is_chosen { checkpointed(block, x, pass, config) } else { block.forward(x, pass) };
        let out = match ranks.shards() {
            Some(shards) => shards.around(place, x, work),
            None => work(x),
        };
        place += 1;
        out
    }
}

/// The same without a backward pass: no block recomputes anything.
pub fn forward_alone(
    network: &Network,
    values: &Tensor,
    pass: &Pass,
    config: &StepConfig,
    ranks: &Ranks,
) -> Result<Tensor> {
    let config = StepConfig { recompute: Recompute::None, ..*config };
    let scores = forward(network, values, pass, &config, ranks)?;
    if let Some(shards) = ranks.shards() {
        shards.forget()?;
    }
    Ok(scores)
}

/// Whether block number `place`, from 0, recomputes its activations.
fn chosen(recompute: Recompute, place: u32) -> bool {
    match recompute {
        Recompute::None => false,
        Recompute::Blocks => true,
        Recompute::Every(step) => place.is_multiple_of(step.max(1)),
    }
}

fn checkpointed(block: &Arc<ModelBlock>, x: &Tensor, pass: &Pass, config: &StepConfig) -> Result<Tensor> {
    let (block, there) = (Arc::clone(block), pass.clone());
    let back = Pass { running: BatchNormMode::KeepRunning, ..pass.clone() };
    let (format, device) = (config.format, config.device);
    let before = RngState::now(device)?;
    // Autograd needs an input that requires a gradient, and after a frozen stem the values require none.
    let x = if x.requires_grad() { x.shallow_clone() } else { x.f_detach()?.f_set_requires_grad(true)? };
    torch::recompute(&x, move |x, is_again| {
        if !is_again {
            return block.forward(x, &there);
        }
        let now = RngState::now(device)?;
        before.set(device)?;
        let out = second(&block, x, &back, format, device);
        now.set(device)?;
        out
    })
}

/// Runs outside the forward pass, so autocast has to be entered again.
fn second(block: &ModelBlock, x: &Tensor, pass: &Pass, format: ComputeFormat, device: Device) -> Result<Tensor> {
    format.scope(device, || block.forward(x, pass))
}

/// The state of the generator that dropout draws from.
struct RngState(Tensor);

impl RngState {
    fn now(device: Device) -> Result<RngState> {
        Ok(RngState(torch::random_state(device)?))
    }

    fn set(&self, device: Device) -> Result<()> {
        torch::set_random_state(device, &self.0)
    }
}
