//! Mutants of a server whose disk is full, and of what frees disk space.

use super::mutant::{CargoTest, SourceMutant};

pub(super) const SPACE: &[SourceMutant] = &[
    SourceMutant {
        name: "a-full-disk-ends-the-server",
        harm: "a server whose disk is full for a moment ends with the first event, and machines are billed until a person sees it",
        file: "crates/server/src/control.rs",
        from: ".filter(|error| self.lacks_space(error))",
        to: ".filter(|error| self.lacks_space(error) && false)",
        test: CargoTest { package: "gradus-server", target: &["--lib"], filter: "a_full_disk_ends_no_loop" },
    },
    SourceMutant {
        name: "files-are-refused-in-silence",
        harm: "a server whose disk is full says that it is ready while runs wait with their results and are billed",
        file: "crates/server/src/files/mod.rs",
        from: "=> space.refused(stored, place, why, clock::now()),",
        to: "=> drop((stored, place, why)),",
        test: CargoTest { package: "gradus-server", target: &["--lib"], filter: "until_that_file_is_here" },
    },
    SourceMutant {
        name: "a-log-that-fits-ends-a-shortage",
        harm: "the log of a server whose disk is nearly full has two lines for each try to send a checkpoint",
        file: "crates/server/src/home/space.rs",
        from: "shortage.stored == *stored && shortage.place == place",
        to: "shortage.stored == *stored && place.len() < 1000",
        test: CargoTest { package: "gradus-server", target: &["--lib"], filter: "a_refusal_is_said_once" },
    },
    SourceMutant {
        name: "what-is-refused-needs-disk-space",
        harm: "`gradus status` shows nothing of a full disk, because nothing can be written about it",
        file: "crates/server/src/home/space.rs",
        from: "text.resize(FILE, b' ');",
        to: "text.resize(text.len(), b' ');",
        test: CargoTest { package: "gradus-server", target: &["--lib"], filter: "read_what_is_refused_while_it_is" },
    },
    SourceMutant {
        name: "what-a-server-refuses-is-not-said",
        harm: "whoever follows a run of a server sees it stand still, and nothing that is printed says for what it waits",
        file: "crates/cli/src/follow/refused.rs",
        from: "(None, Some(shortages)) => self.take(shortages, THERE),",
        to: "(None, Some(_)) => Vec::new(),",
        test: CargoTest { package: "gradus-cli", target: &["--bin", "gradus"], filter: "a_server_refuses_is_said" },
    },
    SourceMutant {
        name: "a-wait-for-space-is-productive",
        harm: "a run whose files wait for the server's full disk is shown as 100 % productive",
        file: "crates/plan/src/world/goodput.rs",
        from: "take(steps.ended.map_or(0, |ended| passed.until.since(ended).0))",
        to: "take(steps.ended.map_or(0, |_| 0))",
        test: CargoTest { package: "gradus-plan", target: &["--test", "goodput"], filter: "waits_to_be_sent" },
    },
    SourceMutant {
        name: "a-wait-for-space-is-not-said",
        harm: "a run waits for ten minutes with all of its files, and nothing that it prints says for what",
        file: "crates/agent/src/travel/upload/mod.rs",
        from: "if !is_waiting {",
        to: "if is_waiting {",
        test: CargoTest { package: "gradus-agent", target: &["--lib"], filter: "deleted_checkpoints_make_room" },
    },
    SourceMutant {
        name: "an-upload-of-a-schedule-is-garbage",
        harm: "`gradus gc` deletes a file that was uploaded for a schedule, and each of its later runs fails",
        file: "crates/cli/src/command/gc.rs",
        from: "|| world.schedules.values().any(|schedule| asks(&schedule.request))",
        to: "",
        test: CargoTest { package: "gradus-cli", target: &["--test", "line"], filter: "gc_keeps_an_uploaded_file" },
    },
];
