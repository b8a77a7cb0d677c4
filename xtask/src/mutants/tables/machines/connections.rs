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
    SourceMutant {
        name: "a-command-is-run-twice",
        harm: "a command whose connection broke at its end is run once more, although it has done its work",
        file: "crates/cloud/src/ssh/connection/verdict.rs",
        from: "TryEnd::Killed | TryEnd::Late, true) => TryVerdict::Broken,",
        to: "TryEnd::Killed | TryEnd::Late, true) => TryVerdict::Again,",
        test: CargoTest { package: "gradus-cloud", target: &["--lib"], filter: "that_has_begun" },
    },
    SourceMutant {
        name: "a-command-begins-without-being-asked",
        harm: "a command that a broken connection has started without a sign is run again over another one",
        file: "crates/cloud/src/ssh/connection/exchange.rs",
        from: "read -r go && [ \"$go\" = go ] && ",
        to: "",
        test: CargoTest { package: "gradus-cloud", target: &["--lib"], filter: "asked_to_begin_does_not_run" },
    },
    SourceMutant {
        name: "a-dying-shared-connection-fails-a-command",
        harm: "`gradus nodes add` fails without a reason right after a connection broke, and so does the start of a run",
        file: "crates/cloud/src/ssh/connection/verdict.rs",
        from: "last.is_none_or(is_of_sharing)",
        to: "last.is_some_and(is_of_sharing)",
        test: CargoTest { package: "gradus-cloud", target: &["--lib"], filter: "dying_shared_connection" },
    },
    SourceMutant {
        name: "a-killed-command-counts-as-a-broken-connection",
        harm: "a program that crashes on a machine is reported as its network, and tried again for ever",
        file: "crates/cloud/src/ssh/connection/exchange.rs",
        from: "sh -c \"$1\"; code=$?;",
        to: "exec sh -c \"$1\"; code=$?;",
        test: CargoTest { package: "gradus-cloud", target: &["--lib"], filter: "that_a_signal_has_ended" },
    },
    SourceMutant {
        name: "an-ssh-without-a-message-has-no-reason",
        harm: "`cannot connect: exit status 255` is all that a user has, and nothing shows where to look",
        file: "crates/cloud/src/ssh/connection.rs",
        from: "`ssh -v {config}{} true` shows where it stops",
        to: "{config}{}",
        test: CargoTest {
            package: "gradus-cli",
            target: &["--test", "plans"],
            filter: "has_a_reason_and_what_to_type",
        },
    },
];
