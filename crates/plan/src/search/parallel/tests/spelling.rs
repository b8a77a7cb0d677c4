//! A layout and its program in words.

use super::{config, requested, spec};
use crate::estimate::memory::Savings;
use crate::estimate::{ParallelDegrees, Zero};
use crate::search::parallel::layouts::layouts;
use crate::search::parallel::words::{layout_words, program_words};
use crate::search::workload::ParallelChoice;

/// Whoever writes what a plan prints gets that layout, and no other.
#[test]
fn words_of_a_layout_are_read_as_it() {
    let mut all = layouts(&spec(64, ParallelChoice::Search), 4, 8);
    for degrees in
        ["data: 2, fsdp: 16", "fsdp: 4, tensor: 2, pipeline: 4", "fsdp: 4, context: 8", "data: 16, tensor: 2"]
    {
        all.extend(layouts(&requested(&format!("parallel: {{{degrees}}}")), 4, 8));
    }
    assert!(all.len() > 12, "{all:?}");
    for parallel in all {
        let network = requested("recompute: none").network;
        let words = layout_words(&config(parallel), &network).replace(", recompute: none", "\n  recompute: none");
        assert_eq!(layouts(&requested(&words), 4, 8), [parallel], "{words}");
        // On twice as many GPUs it would be another layout, and is none.
        assert!(layouts(&requested(&words), 8, 8).is_empty(), "{words}");
    }
}

#[test]
fn the_program_is_said_as_todays_pytorch() {
    let words = |parallel: ParallelDegrees, savings: Savings| {
        program_words(&spec(64, ParallelChoice::Search), &savings, &config(parallel))
    };
    let sharded = ParallelDegrees { data: 8, zero: Zero::Parameters, ..ParallelDegrees::default() };
    assert_eq!(
        words(sharded, Savings::default()),
        "PyTorch FSDP2, autocast to bf16 beside fp32 weights, eager, flash attention"
    );
    let chunked = Savings { chunked_loss: true, offload_optimizer: true, ..Savings::default() };
    assert_eq!(
        words(ParallelDegrees { data: 8, ..ParallelDegrees::default() }, chunked),
        "PyTorch DDP, autocast to bf16 beside fp32 weights, eager, flash attention, optimizer state on the host, loss in chunks"
    );
}
