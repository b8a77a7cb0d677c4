//! What newer decoders have beside a plain block: feed-forward parts to choose from, and attention through a narrow
//! middle.

use domain::problem::Problem;

use super::fields::ConfigFields;
use crate::model::families::DecoderOnly;
use crate::model::families::block::Experts;
use crate::model::families::latent::Latent;

/// No network has more parts to choose from.
const MOST: u64 = 4096;

/// The narrow middle of attention, and the width of a head's key, of types that have one.
pub(super) fn latent(figures: &ConfigFields) -> Result<Option<(Latent, u64)>, Problem> {
    let Some(keys) = figures.positive_or_usual("kv_lora_rank")? else { return Ok(None) };
    let turned = figures.number(&["qk_rope_head_dim"])?;
    let latent = Latent {
        queries: figures.positive_or_usual("q_lora_rank")?.unwrap_or(0),
        keys,
        turned,
        value: figures.number(&["v_head_dim"])?,
    };
    Ok(Some((latent, turned + figures.number(&["qk_nope_head_dim"])?)))
}

/// Gives a decoder its parts to choose from, where the file or its type has some.
pub(super) fn choose(figures: &ConfigFields, decoder: &mut DecoderOnly) -> Result<(), Problem> {
    let experts = ["num_local_experts", "num_experts", "n_routed_experts"];
    let mut count = 0;
    for key in experts {
        count = if count == 0 { figures.positive_or_usual(key)?.unwrap_or(0).min(MOST) } else { count };
    }
    if count > 0 {
        let active = figures.or(&["num_experts_per_tok", "num_experts_per_token"], 2.min(count))?;
        if active > count {
            let message = format!("each token passes through {active} parts, and there are {count}");
            return Err(Problem::at("num_experts_per_tok", message).hint(format!("at most {count}")));
        }
        // Some blocks may have no choice: all but every nth, the first few, or those that are named.
        let every = figures.small(&["decoder_sparse_step"], 1)?;
        let first = figures.positive_or_usual("first_k_dense_replace")?.unwrap_or(0);
        let named = figures.indices("mlp_only_layers");
        let is_plain = |layer: &u64| *layer < first || !(layer + 1).is_multiple_of(every) || named.contains(layer);
        decoder.plain = ((0..decoder.layers).filter(is_plain).count() as u64, decoder.block.feed.width);
        decoder.block.feed.width = figures.or(&["moe_intermediate_size"], decoder.block.feed.width)?;
        // A part that every token passes through has a width of its own, or is as wide as several to choose from.
        let weighed = figures.positive_or_usual("shared_expert_intermediate_size")?.is_some();
        let shared = match figures.positive_or_usual("shared_expert_intermediate_size")? {
            Some(width) => width,
            None => match figures.positive_or_usual("n_shared_experts")? {
                Some(count) => count.min(64) * decoder.block.feed.width,
                None => 0,
            },
        };
        decoder.block.feed.experts = Some(Experts { count, active, shared, weighed });
    }
    Ok(())
}
