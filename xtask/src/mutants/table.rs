//! The mutants: for each failure that once lost work or money, the line that prevents it, and the test that must notice.
//!
//! Text is replaced, not code: a mutant stays readable beside what it changes, and the tests here check that its text is
//! still found exactly once.

/// A deliberate bug, and the test that must fail with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SourceMutant {
    /// Its name on the command line.
    pub name: &'static str,
    /// What a user would lose.
    pub harm: &'static str,
    /// The file to change, below the root.
    pub file: &'static str,
    /// Text that occurs once in it.
    pub from: &'static str,
    /// What replaces that text.
    pub to: &'static str,
    /// What must fail.
    pub test: CargoTest,
}

/// Tests of one executable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct CargoTest {
    pub package: &'static str,
    /// What cargo builds of the package: `--lib`, or `--test` and a name.
    pub target: &'static [&'static str],
    /// Part of the names of the tests to run.
    pub filter: &'static str,
}

/// All of them, in the order of the crates.
pub(super) const MUTANTS: &[SourceMutant] = &[
    SourceMutant {
        name: "unreadable-is-damaged",
        harm: "a checkpoint that cannot be read now is passed over, and the run resumes from an older one",
        file: "crates/checkpoint/src/restore.rs",
        from: "Err(Rejected::Unreadable(error)) => return Err(error),\n        }\n    }\n    Ok((None, passed_over))",
        to: "Err(Rejected::Unreadable(error)) => passed_over.push(error.to_string()),\n        }\n    }\n    Ok((None, passed_over))",
        test: CargoTest { package: "gradus-checkpoint", target: &["--test", "full_disk"], filter: "" },
    },
    SourceMutant {
        name: "poisoned-state-is-saved",
        harm: "weights that are not finite are saved as a good checkpoint",
        file: "crates/train/src/run/training.rs",
        from: "if context.options.omitted.finite_check { Ok(true) } else { trainer.is_finite(ranks) }",
        to: "{ let _ = (trainer, context, ranks); Ok(true) }",
        test: CargoTest { package: "gradus-train", target: &["--test", "ranks"], filter: "finite::" },
    },
    SourceMutant {
        name: "labels-of-one-rank-are-scored",
        harm: "the best of several models is chosen by the samples of one rank, for samples with several labels",
        file: "crates/train/src/run/evaluate/targets.rs",
        from: "    ranks.sum(&mut all)?;\n    Ok(all)",
        to: "    Ok(all)",
        test: CargoTest { package: "gradus-train", target: &["--test", "ranks"], filter: "several_labels" },
    },
    SourceMutant {
        name: "number-of-one-batch-is-traced",
        harm: "a model that is exported as TorchScript takes batches of one size only",
        file: "crates/train/src/model/nn/attention.rs",
        from: "x.f_view([-1, length, all / width, width])",
        to: "x.f_view([x.size()[0], length, all / width, width])",
        test: CargoTest { package: "gradus-train", target: &["--lib"], filter: "fold::torchscript" },
    },
    SourceMutant {
        name: "poisoned-state-is-skipped",
        harm: "training continues from a state that is not finite",
        file: "crates/train/src/run/guard.rs",
        from: "StepHealth { has_finite_state: false, .. } => Reaction::RollBack,",
        to: "StepHealth { has_finite_state: false, .. } => Reaction::Skip,",
        test: CargoTest { package: "gradus-train", target: &["--lib"], filter: "run::guard" },
    },
    SourceMutant {
        name: "poisoned-checkpoint-is-resumed",
        harm: "a checkpoint with values that are not finite is resumed, and every attempt fails",
        file: "crates/train/src/run/newest.rs",
        from: "weights.iter().chain(&loaded.training).find(|tensor| !tensor.is_finite())",
        to: "weights.iter().chain(&loaded.training).find(|_| false)",
        test: CargoTest { package: "gradus-train", target: &["--test", "run"], filter: "finite" },
    },
    SourceMutant {
        name: "cut-checkpoint-of-a-framework-is-offered",
        harm: "a program is given a checkpoint that a kill cut short, and fails in every attempt",
        file: "crates/checkpoint/src/frameworks/mod.rs",
        from: "match found.verify() {",
        to: "match Ok::<(), String>(()) {",
        test: CargoTest { package: "gradus-checkpoint", target: &["--lib"], filter: "cut_short_is_passed_over" },
    },
    SourceMutant {
        name: "program-that-reports-is-observed-too",
        harm: "steps of a program that reports itself come twice, and a checkpoint of another framework counts as its own",
        file: "crates/agent/src/attempt/events.rs",
        from: "if !link.as_ref().is_some_and(ProgramLink::has_reported)",
        to: "if true",
        test: CargoTest { package: "gradus-agent", target: &["--test", "agent"], filter: "uses_gradus_reports" },
    },
    SourceMutant {
        name: "samples-are-not-verified",
        harm: "a flipped bit in a shard becomes a wrong pixel",
        file: "crates/data/src/shard/read.rs",
        from: "if long(blake3::hash(bytes).as_bytes(), 0) != entry.hash {",
        to: "if false {",
        test: CargoTest { package: "gradus-data", target: &["--lib"], filter: "a_flipped_bit_is_an_error" },
    },
    SourceMutant {
        name: "samples-are-verified-once",
        harm: "a bit that flips in a shard after the first epoch becomes a wrong pixel",
        file: "crates/data/src/shard/read.rs",
        from: "verified.load(Ordering::Relaxed) != checksum {",
        to: "verified.load(Ordering::Relaxed) == 0 {",
        test: CargoTest { package: "gradus-data", target: &["--lib"], filter: "a_flipped_bit_is_an_error" },
    },
    SourceMutant {
        name: "tokens-are-stored-twice",
        harm: "an interrupted tokenization resumes at the wrong text, and other tokens are trained on",
        file: "crates/data/src/texts/encode.rs",
        from: "first: writer.records() as usize,",
        to: "first: 0,",
        test: CargoTest { package: "gradus-data", target: &["--lib"], filter: "texts::" },
    },
    SourceMutant {
        name: "deletions-do-not-wait",
        harm: "`push --delete` removes what a reader of the older version still needs",
        file: "crates/store/src/dataset/deletions.rs",
        from: "if is_marked && now - since >= grace {",
        to: "if is_marked {",
        test: CargoTest { package: "gradus-store", target: &["--lib"], filter: "deletions" },
    },
    SourceMutant {
        name: "recent-objects-are-deleted",
        harm: "an object that the version before still named is deleted without a grace period",
        file: "crates/store/src/dataset/deletions.rs",
        from: ".filter(|_| !lately.contains(&object.name))",
        to: "",
        test: CargoTest { package: "gradus-store", target: &["--lib"], filter: "deletions" },
    },
    SourceMutant {
        name: "crowds-count-as-objects",
        harm: "mAP differs from pycocotools' where annotations are crowds",
        file: "crates/train/src/detect/average.rs",
        from: "coco_overlap(one.bbox, other.bbox, other.is_crowd)",
        to: "coco_overlap(one.bbox, other.bbox, false)",
        test: CargoTest { package: "gradus-train", target: &["--lib"], filter: "precisions_are_those_of_pycocotools" },
    },
    SourceMutant {
        name: "buckets-are-rebuilt",
        harm: "a run of four or more ranks that was killed ends with other bits",
        file: "crates/train/src/torch/group.cpp",
        from: "    has_rebuilt_bucket_ = true;\n",
        to: "",
        test: CargoTest {
            package: "gradus-train",
            target: &["--test", "ranks"],
            filter: "a_kill_among_any_number_of_ranks",
        },
    },
    SourceMutant {
        name: "changed-data-is-trained-on",
        harm: "a run resumes on other data, and test images become training images",
        file: "crates/data/src/identity/provenance.rs",
        from: "(Some(_), Some(change)) if !self.accepts || !change.can_be_accepted() => {",
        to: "(Some(_), Some(change)) if self.accepts && !change.can_be_accepted() => {",
        test: CargoTest { package: "gradus-train", target: &["--test", "run"], filter: "changed" },
    },
    SourceMutant {
        name: "other-work-has-the-same-step",
        harm: "a step of 32-pixel images prices a job with 224 pixels",
        file: "crates/plan/src/local/same_step.rs",
        from: "optimizer(one) == optimizer(other) && step_of(one) == step_of(other)",
        to: "optimizer(one) == optimizer(other) && step_of(one) == step_of(one)",
        test: CargoTest { package: "gradus-plan", target: &["--lib"], filter: "a_step_of_other_work_is_another_step" },
    },
    SourceMutant {
        name: "mistakes-spin",
        harm: "a wrong decision is taken again and again without a wait",
        file: "crates/control/src/controller/mistake.rs",
        from: "const WAIT: u64 = 1_000_000;",
        to: "const WAIT: u64 = 0;",
        test: CargoTest { package: "gradus-control", target: &["--test", "operations"], filter: "" },
    },
    SourceMutant {
        name: "measurements-block-the-end",
        harm: "a finished run never ends, and is billed, while its measurements cannot be stored",
        file: "crates/server/src/control.rs",
        from: "reply.measured = Some(if kept.is_ok() { reply.acknowledged } else { 0 });",
        to: "if kept.is_err() { reply.acknowledged = 0; }\n            reply.measured = Some(reply.acknowledged);",
        test: CargoTest { package: "gradus-server", target: &["--test", "acknowledgement"], filter: "" },
    },
    SourceMutant {
        name: "warmup-cannot-be-turned-off",
        harm: "`average: {ema: {warmup: false}}` is not the average of `torch.optim.swa_utils`",
        file: "crates/train/src/state/average.rs",
        from: "if warmup { decay.min((1.0 + before) / (10.0 + before)) } else { decay }",
        to: "if warmup { decay } else { decay.min((1.0 + before) / (10.0 + before)) }",
        test: CargoTest { package: "gradus-train", target: &["--lib"], filter: "without_warmup_it_is_that_of_pytorch" },
    },
    SourceMutant {
        name: "pairs-are-not-separated",
        harm: "a pair of texts is not encoded as the tokenizers library encodes pairs",
        file: "crates/formats/src/tokenizer.rs",
        from: "self.0.encode_batch_fast(pairs.to_vec(), true)",
        to: "self.0.encode_batch_fast(pairs.to_vec(), false)",
        test: CargoTest { package: "gradus-data", target: &["--lib"], filter: "pairs_of_texts_are_encoded_as_pairs" },
    },
    SourceMutant {
        name: "closures-are-dropped-anywhere",
        harm: "autograd drops what a closure holds on a thread that it does not belong to, and memory is corrupted",
        file: "crates/train/src/torch/bridge.rs",
        from: "Some(waiting) => waiting.push(work),",
        to: "Some(_) => drop(work),",
        test: CargoTest {
            package: "gradus-train",
            target: &["--lib"],
            filter: "a_closure_is_dropped_where_it_was_made",
        },
    },
    SourceMutant {
        name: "words-are-divided-between-spaces",
        harm: "a text gets other tokens than its tokenizer gives it",
        file: "crates/formats/src/words.rs",
        from: "last.is_some_and(|last| !last.is_whitespace())",
        to: "last.is_some()",
        test: CargoTest { package: "gradus-formats", target: &["--lib"], filter: "ids_are_those_of_the_library" },
    },
    SourceMutant {
        name: "memory-is-handed-over-twice",
        harm: "`x.add_(1)` on a tensor of a batch in Python changes another tensor of it",
        file: "crates/data/src/loader/handover.rs",
        from: "self.is_done.swap(true, Ordering::AcqRel)",
        to: "self.is_done.load(Ordering::Acquire)",
        test: CargoTest { package: "gradus-data", target: &["--lib"], filter: "handed_over_once" },
    },
    SourceMutant {
        name: "any-cuda-library-is-used",
        harm: "a `libgradus-cuda.so` of another version or for another PyTorch is used, and crashes or computes wrongly",
        file: "crates/train/src/torch/load.rs",
        from: "if found.as_ref() != Some(&wanted) {",
        to: "if found.is_none() {",
        test: CargoTest { package: "gradus-train", target: &["--lib"], filter: "a_library_for_cuda_says" },
    },
    SourceMutant {
        name: "less-is-reserved-than-granted",
        harm: "a budget reserves 5 s for saving, and the agent is granted a minute: the bill exceeds the budget",
        file: "crates/plan/src/reconcile/limits.rs",
        from: "Elapsed(wind_down(policy, run.job.budget, run.rate()).0.saturating_add(wait)",
        to: "Elapsed(SHORTEST.0.saturating_add(wait)",
        test: CargoTest { package: "gradus-plan", target: &["--test", "limits"], filter: "what_is_reserved" },
    },
    SourceMutant {
        name: "more-is-granted-than-reserved",
        harm: "an agent may save for longer than its budget pays for",
        file: "crates/plan/src/orders.rs",
        from: "    if matches!(run.state, RunState::Stopping { .. }) {\n        let within = Some(Duration::from_micros(wind_down(policy, run.job.budget, run.rate()).0));",
        to: "    if matches!(run.state, RunState::Stopping { .. }) {\n        let within = Some(Duration::from_micros(policy.saving.0));",
        test: CargoTest { package: "gradus-plan", target: &["--test", "limits"], filter: "what_is_reserved" },
    },
    SourceMutant {
        name: "rent-is-not-rounded",
        harm: "bills leave out what a cloud adds to whole minutes",
        file: "crates/plan/src/reconcile.rs",
        from: "let usage = Usage { elapsed: facts.billed(instance, usage.elapsed), ..usage };",
        to: "let _ = facts.billed(instance, usage.elapsed);",
        test: CargoTest { package: "gradus-plan", target: &["--test", "billing"], filter: "" },
    },
    SourceMutant {
        name: "the-least-rent-is-not-admitted",
        harm: "a machine is rented whose first minute costs more than the budget",
        file: "crates/plan/src/reconcile/limits.rs",
        from: "let least = least.max(billed.unwrap_or(0));",
        to: "let _ = billed;",
        test: CargoTest { package: "gradus-plan", target: &["--test", "billing"], filter: "" },
    },
    SourceMutant {
        name: "machines-of-one-request-are-asked-for-one-by-one",
        harm: "machines are paid for that wait for others which are not to be had",
        file: "crates/plan/src/reconcile/order.rs",
        from: "true => (run.job.least_nodes() as usize).saturating_sub(usable).clamp(1, chosen.len()),",
        to: "true => 1,",
        test: CargoTest { package: "gradus-plan", target: &["--test", "orders"], filter: "" },
    },
    SourceMutant {
        name: "a-machine-that-ended-early-was-never-rented",
        harm: "machines of the same request run on, and nobody looks for them",
        file: "crates/control/src/controller/act.rs",
        from: "known.any(|instance| instance.was_refused)",
        to: "known.any(|instance| !instance.is_accepted && instance.state != InstanceState::Intended)",
        test: CargoTest { package: "gradus-control", target: &["--test", "together"], filter: "" },
    },
    SourceMutant {
        name: "a-handle-that-comes-late-is-dropped",
        harm: "nobody gets onto a machine whose agent was faster than its provider's answer",
        file: "crates/control/src/controller/answer.rs",
        from: "is_some_and(Instance::lacks_handle)",
        to: "is_some_and(|_| false)",
        test: CargoTest { package: "gradus-control", target: &["--test", "handles"], filter: "" },
    },
    SourceMutant {
        name: "spares-are-rented-before-what-is-needed",
        harm: "spares are paid for that stand by for machines which are not to be had",
        file: "crates/plan/src/reconcile/order.rs",
        from: "0 if granted < least => 0,",
        to: "0 if granted < least => missing,",
        test: CargoTest { package: "gradus-plan", target: &["--test", "orders"], filter: "" },
    },
    SourceMutant {
        name: "machines-are-given-back-before-a-job-shrinks",
        harm: "machines are rented and given back again and again, and the run never begins",
        file: "crates/plan/src/reconcile/gang.rs",
        from: "Elapsed(boots.saturating_mul(2).max(shrinks))",
        to: "Elapsed(boots.saturating_mul(2).max(shrinks.min(0)))",
        test: CargoTest { package: "gradus-plan", target: &["--test", "fleet"], filter: "" },
    },
    SourceMutant {
        name: "what-was-never-there-is-billed",
        harm: "a request that nobody answered is billed half an hour of rent",
        file: "crates/plan/src/reconcile/lost.rs",
        from: "map_or(Elapsed(0), |until_now|",
        to: "map_or(policy.lease, |until_now|",
        test: CargoTest { package: "gradus-plan", target: &["--test", "unreachable"], filter: "" },
    },
    SourceMutant {
        name: "idle-providers-are-not-listed",
        harm: "a machine that no run has is billed for ever, because nobody asks its provider",
        file: "crates/control/src/controller/due.rs",
        from: "            STRANGERS_EVERY\n",
        to: "            u64::MAX\n",
        test: CargoTest { package: "gradus-control", target: &["--test", "orphans"], filter: "" },
    },
    SourceMutant {
        name: "orphans-are-not-ended",
        harm: "a machine that no run has is reported, and billed for ever",
        file: "crates/control/src/controller/act.rs",
        from: "let is_old = now.0.saturating_sub(stranger.since.0) >= grace.0;",
        to: "let is_old = now.0.saturating_sub(stranger.since.0) > now.0.max(grace.0);",
        test: CargoTest { package: "gradus-control", target: &["--test", "orphans"], filter: "" },
    },
    SourceMutant {
        name: "orphans-have-no-grace",
        harm: "the machine of a home that was restored from a backup is ended before anybody can look",
        file: "crates/control/src/controller/act.rs",
        from: "now.0.saturating_sub(stranger.since.0) >= grace.0;",
        to: "now.0.saturating_sub(stranger.since.0) >= 1;",
        test: CargoTest { package: "gradus-control", target: &["--test", "orphans"], filter: "" },
    },
    SourceMutant {
        name: "audits-end-machines-of-runs",
        harm: "an audit ends the machine of a run that trains",
        file: "crates/cloud/src/rented/audit.rs",
        from: "(Some(_), _) => AuditVerdict::Rented,",
        to: "(Some(_), None) => AuditVerdict::Orphaned,\n            (Some(_), _) => AuditVerdict::Rented,",
        test: CargoTest { package: "gradus-cloud", target: &["--lib"], filter: "audit" },
    },
    SourceMutant {
        name: "submissions-spend-the-same-money",
        harm: "runs that are submitted over the API at the same time spend more than the month's budget",
        file: "crates/server/src/api/runs.rs",
        from: "        Ok(admitted) => admitted,\n",
        to: "        Ok(admitted) => drop(admitted),\n",
        test: CargoTest { package: "gradus-cli", target: &["--test", "line"], filter: "budgets" },
    },
    SourceMutant {
        name: "what-is-resumed-is-not-admitted",
        harm: "a run that is resumed over the API spends what was promised to others",
        file: "crates/server/src/api/resume.rs",
        from: "let admitted = admit(&api, &world, &id, &event).await?;",
        to: "let admitted = admit(&api, &world, &id, &event).await.unwrap_or_default();",
        test: CargoTest { package: "gradus-cli", target: &["--test", "line"], filter: "budgets" },
    },
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    #[test]
    fn what_a_mutant_changes_is_found_exactly_once() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the checkout");
        for SourceMutant { name, file, from, to, .. } in MUTANTS {
            let text =
                std::fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{name}: {file}: {error}"));
            assert_eq!(text.matches(from).count(), 1, "{name}: `{from}` in {file}");
            assert_ne!(from, to, "{name}");
        }
    }

    #[test]
    fn mutants_have_names_of_their_own() {
        let names: BTreeSet<&str> = MUTANTS.iter().map(|mutant| mutant.name).collect();
        assert_eq!(names.len(), MUTANTS.len());
    }
}
