//! Mutants of hang detection.

use crate::mutants::mutant::{CargoTest, SourceMutant};

pub(super) const HANGS: &[SourceMutant] = &[
    SourceMutant {
        name: "a-save-is-taken-for-a-hang",
        harm: "a rank whose checkpoint takes minutes is killed before it is durable, again and again",
        file: "crates/agent/src/attempt/watchdog.rs",
        from: "let writes = self.saving.is_some() ||",
        to: "let writes = self.saving.is_none() &&",
        test: CargoTest { package: "gradus-agent", target: &["--lib"], filter: "a_checkpoint_takes_longer" },
    },
    SourceMutant {
        name: "a-slow-step-is-taken-for-a-hang",
        harm: "ranks whose steps are of unequal length are killed during a long one",
        file: "crates/agent/src/attempt/watchdog/limits.rs",
        from: "least.max(pace.p99.saturating_mul(SLOWEST))",
        to: "least.max(pace.p99.min(pace.median).saturating_mul(SLOWEST))",
        test: CargoTest { package: "gradus-agent", target: &["--lib"], filter: "follows_the_slowest_usual_ones" },
    },
    SourceMutant {
        name: "a-cut-network-is-taken-for-a-hang",
        harm: "ranks on several nodes are killed while they recover from a cut that their nodes survive",
        file: "crates/agent/src/lib.rs",
        from: "step: Duration::from_secs(120),",
        to: "step: Duration::from_secs(60),",
        test: CargoTest { package: "gradus-agent", target: &["--lib"], filter: "a_network_that_was_cut_is_waited_for" },
    },
    SourceMutant {
        name: "long-steps-have-a-short-limit",
        harm: "ranks whose steps take long are killed while a disk or a network holds one of them up",
        file: "crates/agent/src/attempt/watchdog/limits.rs",
        from: ".max(pace.median.saturating_mul(MEDIANS))",
        to: ".max(pace.median.min(least / MEDIANS).saturating_mul(MEDIANS))",
        test: CargoTest { package: "gradus-agent", target: &["--lib"], filter: "follows_the_slowest_usual_ones" },
    },
    SourceMutant {
        name: "a-resumed-evaluation-is-taken-for-a-hang",
        harm: "a run whose evaluation takes an hour is killed in it each time that it resumes with it",
        file: "crates/agent/src/attempt/watchdog/limits.rs",
        from: "StepPace::of(recent, self.set_up / UNKNOWN)",
        to: "StepPace::of(recent, (self.set_up / UNKNOWN).min(Duration::ZERO))",
        test: CargoTest { package: "gradus-agent", target: &["--lib"], filter: "may_evaluate_before_it_makes_a_step" },
    },
    SourceMutant {
        name: "stated-limits-on-silence-are-ignored",
        harm: "a run whose steps are of very unequal length is killed as hung, although its job allows them more time",
        file: "crates/agent/src/attempt/watchdog/limits.rs",
        from: "self.stated.step.map_or_else(",
        to: "self.stated.step.filter(|_| false).map_or_else(",
        test: CargoTest { package: "gradus-agent", target: &["--lib"], filter: "holds_in_place_of_the_pace" },
    },
    SourceMutant {
        name: "programs-are-not-held-to-stated-limits",
        harm: "a program that hangs is paid for as long as it says itself, although its job states a shorter limit",
        file: "crates/agent/src/attempt/program/link.rs",
        from: "Some(limit) => time_of(limit),",
        to: "Some(limit) if self.moved.is_zero() => time_of(limit),\n            Some(_) => Duration::MAX,",
        test: CargoTest { package: "gradus-agent", target: &["--lib"], filter: "in_place_of_the_program_s_limit" },
    },
    SourceMutant {
        name: "limits-on-silence-may-be-nothing",
        harm: "a job that states a second as its limit is killed before its first step, again and again",
        file: "crates/domain/src/file/sense/hangs.rs",
        from: "after.micros() < SHORTEST",
        to: "after.micros() < SHORTEST / 30",
        test: CargoTest { package: "gradus-domain", target: &["--lib"], filter: "limits_on_silence_are_stated" },
    },
];
