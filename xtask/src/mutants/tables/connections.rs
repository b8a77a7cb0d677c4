//! Mutants of SSH connections that break.

use crate::mutants::mutant::{CargoTest, SourceMutant};

pub(super) const CONNECTIONS: &[SourceMutant] = &[
    SourceMutant {
        name: "a-gradus-that-was-cut-short-is-installed",
        harm: "a connection that breaks leaves half a program, and the machine cannot be used until somebody deletes it there",
        file: "crates/cloud/src/ssh/bootstrap.rs",
        from: "[ \\\"$(wc -c < $part)\\\" -eq {length} ]",
        to: "[ {length} -ge 0 ]",
        test: CargoTest { package: "gradus-cloud", target: &["--lib"], filter: "not_taken_for_a_whole_one" },
    },
    SourceMutant {
        name: "a-gradus-that-an-earlier-version-cut-short-is-used",
        harm: "a machine on which an earlier version has left half a program stays unusable, and the reason is not shown",
        file: "crates/cloud/src/ssh/bootstrap.rs",
        from: "[ -x \"$gradus\" ] && [ \"$(wc -c < \"$gradus\")\" -eq \"$length\" ]; }",
        to: "[ -x \"$gradus\" ]; }",
        test: CargoTest { package: "gradus-cloud", target: &["--lib"], filter: "not_taken_for_a_whole_one" },
    },
];
