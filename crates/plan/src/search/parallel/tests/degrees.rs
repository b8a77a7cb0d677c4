//! The layouts of a job: the degrees that it has, and those that the search adds.

use domain::workload::WorkloadParallel;
use proptest::prelude::*;

use super::{config, request, requested, spec};
use crate::estimate::{ParallelDegrees, Zero};
use crate::search::parallel::layouts::layouts;
use crate::search::parallel::words::layout_words;
use crate::search::workload::{LayoutRequest, NetworkFigures, ParallelChoice, TrainingSpec};

/// The layouts in words, without what they recompute.
fn found(spec: &TrainingSpec, nodes: u32, gpus_per_node: u32) -> Vec<String> {
    let words = |parallel| {
        let words = layout_words(&config(parallel), &spec.network);
        let end = words.find('}').expect("degrees");
        words["parallel: {".len()..end].to_owned()
    };
    layouts(spec, nodes, gpus_per_node).into_iter().map(words).collect()
}

#[test]
fn a_job_is_laid_out_as_it_says() {
    let check = |degrees: &str, nodes: u32, expected: &[&str]| {
        assert_eq!(found(&requested(&format!("parallel: {{{degrees}}}")), nodes, 8), expected, "{degrees} on {nodes}");
    };
    check("fsdp: 8", 1, &["data: 1, fsdp: 8, tensor: 1, pipeline: 1, zero: 3"]);
    check("data: 4, fsdp: 8", 4, &["data: 4, fsdp: 8, tensor: 1, pipeline: 1, zero: 3"]);
    check("data: 4, fsdp: 8", 2, &[]);
    check("fsdp: 8, zero: 2, tensor: 1, pipeline: 1", 2, &["data: 2, fsdp: 8, tensor: 1, pipeline: 1, zero: 2"]);
    check(
        "fsdp: 8",
        2,
        &[
            "data: 2, fsdp: 8, tensor: 1, pipeline: 1, zero: 3",
            "data: 1, fsdp: 8, tensor: 2, sequence: true, pipeline: 1, zero: 3",
            "data: 1, fsdp: 8, tensor: 1, pipeline: 2, schedule: 1f1b, zero: 3",
        ],
    );
    check(
        "data: 8",
        1,
        &[
            "data: 8, tensor: 1, pipeline: 1, zero: 0",
            "data: 8, tensor: 1, pipeline: 1, zero: 1",
            "data: 1, fsdp: 8, tensor: 1, pipeline: 1, zero: 2",
            "data: 1, fsdp: 8, tensor: 1, pipeline: 1, zero: 3",
        ],
    );
    check("data: 8, zero: 1", 1, &["data: 8, tensor: 1, pipeline: 1, zero: 1"]);
    check("data: 4, zero: 0", 1, &["data: 4, tensor: 2, sequence: true, pipeline: 1, zero: 0"]);
    check("data: 1, tensor: 8", 1, &["data: 1, tensor: 8, sequence: true, pipeline: 1"]);
    check("data: 1, tensor: 8, sequence: false", 1, &["data: 1, tensor: 8, sequence: false, pipeline: 1"]);
    check(
        "data: 1, tensor: 8, pipeline: 2, virtual_stages: 4",
        2,
        &["data: 1, tensor: 8, sequence: true, pipeline: 2, schedule: interleaved, virtual_stages: 4"],
    );
    check("fsdp: 2, context: 4", 1, &["data: 1, fsdp: 2, tensor: 1, pipeline: 1, context: 4, zero: 3"]);
    check("fsdp: 8, expert: 8", 1, &["data: 1, fsdp: 8, tensor: 1, pipeline: 1, expert: 8, zero: 3"]);
    check("tensor: 3, data: 1", 1, &[]);
}

/// Experts are left to the search as well: those of a machine, and no more than there are.
#[test]
fn experts_are_divided() {
    let dividing = |experts: u32, nodes: u32, gpus_per_node: u32| -> Vec<u32> {
        let plain = spec(64, ParallelChoice::Search);
        let spec = TrainingSpec { network: NetworkFigures { experts, ..plain.network }, ..plain };
        let all = layouts(&spec, nodes, gpus_per_node);
        let mut degrees: Vec<u32> = all.iter().map(|one| one.expert).filter(|degree| *degree > 1).collect();
        assert!(all.iter().all(|one| one.replicas().is_multiple_of(one.expert)), "{all:?}");
        degrees.sort_unstable();
        degrees.dedup();
        degrees
    };
    assert!(dividing(0, 4, 8).is_empty() && dividing(8, 1, 1).is_empty());
    // Beside eight tensor-parallel ranks there are four replicas.
    assert_eq!(dividing(8, 4, 8), [4, 8]);
    assert_eq!(dividing(256, 4, 8), [4, 8, 16, 32]);
    assert_eq!(dividing(60, 1, 8), [2, 4], "sixty do not divide among eight");
}

/// The search takes no more tensor-parallel ranks than there are heads of keys and values; a job may ask for them.
#[test]
fn tensor_parallel_ranks_have_heads_of_keys_each() {
    let of = |division: ParallelChoice| {
        let plain = spec(64, division);
        let spec = TrainingSpec { network: NetworkFigures { key_heads: 4, ..plain.network }, ..plain };
        layouts(&spec, 1, 8).into_iter().map(|one| one.tensor).max()
    };
    assert_eq!(of(ParallelChoice::Search), Some(4));
    assert_eq!(of(ParallelChoice::Requested(request("parallel: {tensor: 8}"))), Some(8));
}

/// Ranks of tensor parallelism divide the sequence as well, as today's programs do, unless it is short or odd.
#[test]
fn tensor_parallel_ranks_divide_the_sequence() {
    let of = |tokens: u64| {
        let plain = spec(64, ParallelChoice::Search);
        let spec = TrainingSpec { network: NetworkFigures { tokens, ..plain.network }, ..plain };
        let all = layouts(&spec, 4, 8);
        let tensor: Vec<bool> = all.iter().filter(|one| one.tensor > 1).map(|one| one.sequence).collect();
        assert!(tensor.len() > 6 && all.iter().all(|one| one.tensor > 1 || !one.sequence), "{all:?}");
        tensor
    };
    assert!(of(4096).into_iter().all(|divides| divides));
    assert!(of(512).into_iter().chain(of(4095)).all(|divides| !divides));
}

/// Long sequences are left to the search as well, in every way that divides them equally; what it prints keeps the layout.
#[test]
fn long_sequences_are_divided() {
    let of = |tokens: u64| {
        let short = spec(8, ParallelChoice::Search);
        TrainingSpec { network: NetworkFigures { tokens, ..short.network }, ..short }
    };
    let dividing = |tokens: u64| -> Vec<ParallelDegrees> {
        layouts(&of(tokens), 4, 8).into_iter().filter(|one| one.context > 1).collect()
    };
    assert!(dividing(16_384).is_empty() && dividing(32_769).is_empty(), "short, or of odd length");
    let found = dividing(131_072);
    for (tensor, context, zero) in [(1, 8, Zero::Parameters), (2, 4, Zero::Gradients), (8, 2, Zero::Optimizer)] {
        let is_so = |one: &ParallelDegrees| (one.tensor, one.context, one.zero) == (tensor, context, zero);
        assert!(found.iter().any(is_so), "tensor {tensor}, context {context}: {found:?}");
    }
    assert!(found.len() <= 64, "{}", found.len());
    for parallel in found {
        assert_eq!(parallel.replicas() * parallel.tensor, 32, "{parallel:?}");
        assert_eq!(parallel.sequence, parallel.tensor > 1, "{parallel:?}");
        let words = layout_words(&config(parallel), &of(131_072).network);
        let request = request(&words.replace(", recompute: none", ""));
        let asked = TrainingSpec { division: ParallelChoice::Requested(request), ..of(131_072) };
        assert_eq!(layouts(&asked, 4, 8), [parallel], "{words}");
    }
}

/// Experts and long sequences are divided beside degrees that the job has, and what a plan prints leaves none of them open.
#[test]
fn degrees_that_a_job_leaves_out_are_chosen_and_printed() {
    for (experts, tokens) in [(8, 4096), (0, 131_072)] {
        let of = |division: ParallelChoice| {
            let plain = spec(64, division);
            TrainingSpec { network: NetworkFigures { experts, tokens, ..plain.network }, ..plain }
        };
        let is_divided = |one: &ParallelDegrees| one.expert > 1 || one.context > 1;
        let beside = layouts(&of(ParallelChoice::Requested(request("parallel: {tensor: 2}"))), 4, 8);
        assert!(beside.iter().any(is_divided) && beside.iter().all(|one| one.tensor == 2), "{beside:?}");
        let all = layouts(&of(ParallelChoice::Search), 4, 8);
        assert!(all.iter().any(is_divided) && !all.iter().all(is_divided), "{all:?}");
        for parallel in all {
            let words = layout_words(&config(parallel), &of(ParallelChoice::Search).network);
            let asked = of(ParallelChoice::Requested(request(&words.replace(", recompute: none", ""))));
            assert_eq!(layouts(&asked, 4, 8), [parallel], "{words}");
            assert!(layouts(&asked, 8, 8).is_empty(), "{words}");
        }
    }
}

proptest! {
    /// A layout has the degrees that the job has, uses all GPUs, and there are few of them.
    #[test]
    fn layouts_keep_to_the_degrees_of_the_job(
        data in prop::option::of(prop::sample::select(vec![1u32, 2, 4, 8])),
        fsdp in prop::option::of(prop::sample::select(vec![1u32, 2, 4, 8])),
        tensor in prop::option::of(prop::sample::select(vec![1u32, 2, 8, 16])),
        pipeline in prop::option::of(prop::sample::select(vec![1u32, 2, 4])),
        context in prop::option::of(prop::sample::select(vec![1u32, 2, 4])),
        expert in prop::option::of(prop::sample::select(vec![1u32, 2, 8])),
        zero in prop::option::of(2u8..=3),
        nodes in prop::sample::select(vec![1u32, 2, 4, 8]),
    ) {
        let rest = WorkloadParallel::default();
        let parallel = WorkloadParallel { data, fsdp, tensor, pipeline, context, expert, zero, ..rest };
        let request = LayoutRequest { parallel, zeros: [true; 4], recompute: None, is_whole: false };
        let all = layouts(&spec(64, ParallelChoice::Requested(request)), nodes, 8);
        prop_assert!(all.len() <= 64);
        for found in all {
            let is_kept = |asked: Option<u32>, found: u32| asked.is_none_or(|asked| asked == found);
            prop_assert_eq!(found.replicas() * found.tensor * found.pipeline, 8 * nodes);
            prop_assert!(is_kept(tensor, found.tensor) && is_kept(pipeline, found.pipeline), "{:?}", found);
            prop_assert!(is_kept(context, found.context) && is_kept(expert, found.expert), "{:?}", found);
            let is_sharded = fsdp.is_some_and(|ranks| ranks > 1);
            prop_assert!(is_kept(data, if is_sharded { found.copies } else { found.data }), "{:?}", found);
            prop_assert!(!is_sharded || is_kept(fsdp, found.data / found.copies), "{:?}", found);
            prop_assert!(found.replicas() == 1 || zero.is_none_or(|stage| stage == found.zero as u8), "{:?}", found);
            prop_assert!((found.replicas() * found.tensor).is_multiple_of(found.expert), "{:?}", found);
        }
    }
}

/// What a program does when it updates excludes stages of ZeRO and pipelines, before anything is estimated.
#[test]
fn layouts_go_with_how_the_program_updates() {
    let of = |zeros, is_whole| {
        let request = LayoutRequest { zeros, is_whole, ..request("recompute: true") };
        layouts(&spec(64, ParallelChoice::Requested(request)), 4, 8)
    };
    let all = layouts(&spec(64, ParallelChoice::Search), 4, 8);
    assert_eq!(of([true; 4], false), all);
    let adapted = of([true, false, false, true], true);
    assert!(adapted.iter().all(|one| one.pipeline == 1 && matches!(one.zero, Zero::None | Zero::Parameters)));
    assert!(adapted.len() < all.len());
    let offloaded = of([false, true, true, true], false);
    assert!(offloaded.iter().all(|one| one.zero >= Zero::Optimizer || one.replicas() == 1));
}
