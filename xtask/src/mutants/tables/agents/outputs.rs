//! Mutants of what is sent of a run's output, and of how it is shown.

use crate::mutants::mutant::{CargoTest, SourceMutant};

pub(super) const OUTPUTS: &[SourceMutant] = &[
    SourceMutant {
        name: "what-a-log-has-dropped-is-sent-as-zeros",
        harm: "a machine whose program has ended is paid for while gigabytes of zeros are sent from it",
        file: "crates/agent/src/travel/upload/files.rs",
        from: "if left == 0 || !takes_holes {",
        to: "if left == 0 || !takes_holes || length > 0 {",
        test: CargoTest { package: "gradus-agent", target: &["--lib"], filter: "only_the_length_is_sent" },
    },
    SourceMutant {
        name: "a-loop-that-knows-no-holes-lacks-the-rest-of-a-log",
        harm: "a server of an earlier version never gets what a program has written last",
        file: "crates/agent/src/travel/upload/files.rs",
        from: "if hole > 0 && received.bytes == offset {",
        to: "if hole > 0 && received.bytes == offset {\n                break;\n            }\n            if false {",
        test: CargoTest { package: "gradus-agent", target: &["--lib"], filter: "only_the_length_is_sent" },
    },
    SourceMutant {
        name: "a-hole-of-a-log-cuts-off-what-is-there",
        harm: "an agent that was started again and has dropped more of a log deletes its end on the server",
        file: "crates/server/src/files/receive.rs",
        from: "true => file.set_len(end.max(length)),",
        to: "true => file.set_len(end),",
        test: CargoTest { package: "gradus-server", target: &["--lib"], filter: "hole_of_a_log_takes_no_space" },
    },
    SourceMutant {
        name: "what-is-left-to-send-is-not-reported",
        harm: "nobody sees why a machine is paid for after its program has ended",
        file: "crates/agent/src/travel/upload/left.rs",
        from: "if left >= LEAST_REPORTED {",
        to: "if left > u64::MAX - LEAST_REPORTED {",
        test: CargoTest { package: "gradus-agent", target: &["--lib"], filter: "left_to_send_at_the_end" },
    },
    SourceMutant {
        name: "status-hides-what-is-still-sent",
        harm: "`gradus status` shows a run that waits for its output like one that trains",
        file: "crates/cli/src/command/runs/status/one.rs",
        from: "if text.starts_with(STILL_SENDING) => Some(text.clone()),",
        to: "if text == STILL_SENDING => Some(text.clone()),",
        test: CargoTest { package: "gradus-cli", target: &["--bin", "gradus"], filter: "says_what_it_still_sends" },
    },
    SourceMutant {
        name: "a-pause-costs-lines-of-output",
        harm: "`gradus attach` leaves out what a program has written while the server was away for seconds",
        file: "crates/cli/src/follow/output/pace.rs",
        from: "const BURST: usize = 2_000;",
        to: "const BURST: usize = 40;",
        test: CargoTest { package: "gradus-cli", target: &["--bin", "gradus"], filter: "printed_after_a_pause" },
    },
    SourceMutant {
        name: "a-stop-prints-the-whole-backlog",
        harm: "`gradus stop` of a program that writes fast prints thousands of old lines before its result",
        file: "crates/cli/src/follow/output/pace.rs",
        from: "            self.allowed = 0;\n",
        to: "            self.allowed = PER_POLL;\n",
        test: CargoTest { package: "gradus-cli", target: &["--bin", "gradus"], filter: "skipped_and_counted_once" },
    },
    SourceMutant {
        name: "the-end-of-a-log-is-neither-printed-nor-counted",
        harm: "what a fast program has written last is not shown when its run ends, and nothing says so",
        file: "crates/cli/src/follow/output/mod.rs",
        from: "if !all || end == 0 || self.read >= length {",
        to: "if !all || end < usize::MAX {",
        test: CargoTest { package: "gradus-cli", target: &["--bin", "gradus"], filter: "reads_a_log_to_its_end" },
    },
];
