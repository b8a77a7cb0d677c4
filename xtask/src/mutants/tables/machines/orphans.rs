//! Mutants of machines that no run has: how they are found and ended.

use crate::mutants::mutant::{CargoTest, SourceMutant};

pub(super) const ORPHANS: &[SourceMutant] = &[
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
];
