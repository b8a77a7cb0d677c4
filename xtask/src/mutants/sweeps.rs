//! Mutants of sweeps, the budget that their trials share, and of schedules.

use super::mutant::{CargoTest, SourceMutant};

pub(super) const SWEEPS: &[SourceMutant] = &[
    SourceMutant {
        name: "due-times-are-settled-twice",
        harm: "a due time of a schedule is run, and paid for, twice",
        file: "crates/plan/src/world/schedules.rs",
        from: "if due <= known.settled {",
        to: "if due < known.settled {",
        test: CargoTest { package: "gradus-plan", target: &["--test", "schedules"], filter: "submitted_once" },
    },
    SourceMutant {
        name: "what-is-left-out-is-never-due",
        harm: "the nightly run is lost in the night in which clocks are set forward",
        file: "crates/domain/src/jobs/schedule/due.rs",
        from: "to_ambiguous_timestamp(shown).compatible()",
        to: "to_ambiguous_timestamp(shown).unambiguous()",
        test: CargoTest { package: "gradus-domain", target: &["--lib"], filter: "left_out_is_due_as_much_later" },
    },
    SourceMutant {
        name: "trials-start-before-costs-are-known",
        harm: "after a restart a trial is started from a budget that others have spent while nobody listened",
        file: "crates/plan/src/reconcile.rs",
        from: "if !trials::may_start(world, facts, run) {",
        to: "if !trials::may_start(world, facts, run) && run.job.nodes() == 0 {",
        test: CargoTest { package: "gradus-plan", target: &["--lib"], filter: "no_attempt_of_a_trial_starts" },
    },
    SourceMutant {
        name: "trials-are-looked-at-alone",
        harm: "a trial that waits for money stays idle on a paid machine until something happens to itself",
        file: "crates/plan/src/reconcile/scope.rs",
        from: "sweep.filter(|sweep| sweep.job.budget.is_some())",
        to: "sweep.filter(|sweep| sweep.job.budget.is_some() && false)",
        test: CargoTest { package: "gradus-plan", target: &["--lib"], filter: "are_looked_at_together" },
    },
    SourceMutant {
        name: "agents-of-trials-wake-nobody",
        harm: "a sweep is stopped up to half a second of all of its machines too late",
        file: "crates/control/src/controller/hear.rs",
        from: "plan::budget_of(&self.world, run).is_some();",
        to: "run.job.budget.is_some();",
        test: CargoTest { package: "gradus-control", target: &["--test", "trials"], filter: "" },
    },
    SourceMutant {
        name: "trials-are-given-the-same-money",
        harm: "two trials that have lost their machines at once are rented others from money that pays for one",
        file: "crates/plan/src/reconcile/room.rs",
        from: "sweep.is_some() && self.added.iter().any(|taken| taken.sweep == sweep)",
        to: "sweep.is_some() && self.added.iter().any(|taken| taken.sweep != sweep)",
        test: CargoTest { package: "gradus-plan", target: &["--lib"], filter: "are_rented_for_one_at_a_time" },
    },
    SourceMutant {
        name: "least-bills-are-forgotten",
        harm: "trials that have just begun and are ended together are billed for a minute each: the sweep exceeds its budget",
        file: "crates/plan/src/reconcile/trials.rs",
        from: "let least = facts.billed(instance, Elapsed(1)).0;",
        to: "let least = facts.billed(instance, Elapsed(0)).0;",
        test: CargoTest { package: "gradus-plan", target: &["--lib"], filter: "the_least_that_is_billed" },
    },
    SourceMutant {
        name: "what-others-are-refused-delays-a-start",
        harm: "machines that are up and paid for wait while every kind is refused to another run",
        file: "crates/plan/src/reconcile/choice.rs",
        from: "if run.plan.alternatives.is_empty() || is_any_up() {",
        to: "if run.plan.alternatives.is_empty() || is_any_up() && false {",
        test: CargoTest { package: "gradus-plan", target: &["--test", "failover"], filter: "whatever_is_refused" },
    },
    SourceMutant {
        name: "leases-of-trials-are-unlimited",
        harm: "trials whose loop is away train on for 30 min, whatever the budget of their sweep pays for",
        file: "crates/plan/src/reconcile/lease.rs",
        from: "_ => budget.into_iter().chain(deadline).chain(of_sweep).min(),",
        to: "_ => budget.into_iter().chain(deadline).chain(of_sweep.filter(|_| false)).min(),",
        test: CargoTest { package: "gradus-plan", target: &["--lib"], filter: "agents_of_trials_leave" },
    },
];
