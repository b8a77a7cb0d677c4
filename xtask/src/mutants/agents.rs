//! Mutants of agents and of what they use of a machine.

use super::mutant::{CargoTest, SourceMutant};

pub(super) const AGENTS: &[SourceMutant] = &[
    SourceMutant {
        name: "set-up-counts-whatever-it-made",
        harm: "a recovery leaves out a set-up that has made files in the working folder of the attempt before, and fails",
        file: "crates/agent/src/attempt/events.rs",
        from: "if is_over && SetupKey::of(&self.start, command, &folder.join(\"workdir\")).as_ref() == Some(key) {",
        to: "if is_over || SetupKey::of(&self.start, command, &folder.join(\"workdir\")).as_ref() == Some(key) {",
        test: CargoTest { package: "gradus-agent", target: &["--test", "agent"], filter: "changes_only_the_machine" },
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
        name: "stopped-programs-are-told-twice",
        harm: "a second SIGTERM ends what the handler of a stopped program has started to save with",
        file: "crates/agent/src/attempt/mod.rs",
        from: "None => process.terminate(&self.start.attempt),",
        to: "None => {\n                        process.terminate(&self.start.attempt);\n                        self.signal_tagged(Signal::TERM);\n                    }",
        test: CargoTest { package: "gradus-agent", target: &["--test", "agent"], filter: "what_the_handler" },
    },
    SourceMutant {
        name: "limits-where-they-do-nothing",
        harm: "a program is moved to a control group that cannot limit it, and its user believes that it is limited",
        file: "crates/node/src/oom/limits.rs",
        from: "let mut able = groups.iter().filter(has).peekable();",
        to: "let mut able = groups.iter().filter(|group| has(group) || true).peekable();",
        test: CargoTest { package: "gradus-node", target: &["--lib"], filter: "the_nearest_group_that_passes_on" },
    },
    SourceMutant {
        name: "values-in-command-lines",
        harm: "everybody on a machine reads the secrets of a program in a container with `ps`",
        file: "crates/agent/src/attempt/program/container/line.rs",
        from: "line.push(if of_runtime {",
        to: "line.push(if true {",
        test: CargoTest { package: "gradus-agent", target: &["--lib"], filter: "values_are_in_no_command_line" },
    },
    SourceMutant {
        name: "a-suspended-machine-is-idle",
        harm: "a program that works is stopped when a laptop wakes up",
        file: "crates/agent/src/attempt/program/idle.rs",
        from: "now.saturating_sub(at).min(2 * self.pause())",
        to: "now.saturating_sub(at)",
        test: CargoTest { package: "gradus-agent", target: &["--lib"], filter: "idle" },
    },
    SourceMutant {
        name: "processes-vanish-while-they-execute",
        harm: "a process in the middle of `execve` is not found: it outlives its attempt, or a set-up that left it is left out",
        file: "crates/node/src/processes/mod.rs",
        from: "                EnvironmentPlace::Moving => {}",
        to: "                EnvironmentPlace::Moving => return environment,",
        test: CargoTest { package: "gradus-node", target: &["--lib"], filter: "replaces_itself" },
    },
    SourceMutant {
        name: "variables-of-a-job-act-as-root",
        harm: "a job whose program must not be root has its `LD_PRELOAD` loaded by root, before the program's user is set",
        file: "crates/agent/src/attempt/program/user.rs",
        from: "Some(value) => command.env(named(PREFIX, name), value),",
        to: "Some(value) => command.env(name, value),",
        test: CargoTest { package: "gradus-agent", target: &["--lib"], filter: "no_variable_of_a_job" },
    },
];
