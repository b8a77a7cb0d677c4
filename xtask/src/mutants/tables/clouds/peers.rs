//! Mutants of machines of clouds that fetch programs from each other.

use crate::mutants::mutant::{CargoTest, SourceMutant};

pub(super) const PEERS: &[SourceMutant] = &[
    SourceMutant {
        name: "machines-of-a-run-do-not-wait-for-the-first",
        harm: "libtorch leaves the user's machine once per machine of a run, all at the same time, over a slow connection",
        file: "crates/cloud/src/rented/reach/gang.rs",
        from: "(is_first || can_nobody_help || has_waited)",
        to: "(is_first || !can_nobody_help || has_waited)",
        test: CargoTest { package: "gradus-cloud", target: &["--lib"], filter: "the_others_from_those" },
    },
    SourceMutant {
        name: "machines-of-a-run-wait-where-nothing-can-be-fetched",
        harm: "where ports are closed, the machines of a run get libtorch one after the other, and are given up before that",
        file: "crates/cloud/src/rented/reach/gang.rs",
        from: "let can_nobody_help = prepared > 0 && able == 0;",
        to: "let can_nobody_help = prepared > others.len() && able == 0;",
        test: CargoTest { package: "gradus-cloud", target: &["--lib"], filter: "the_others_from_those" },
    },
    SourceMutant {
        name: "programs-are-fetched-from-other-runs",
        harm: "a machine asks those of other networks, whose ports are closed, and each start waits for them",
        file: "crates/cloud/src/rented/reach/gang.rs",
        from: "**id != self.instance && member.network == self.network",
        to: "**id != self.instance && member.network.run.len() < 100",
        test: CargoTest { package: "gradus-cloud", target: &["--lib"], filter: "waits_for_the_first_one" },
    },
    SourceMutant {
        name: "programs-travel-over-public-addresses",
        harm: "machines of a cloud send libtorch to each other over the internet, which is billed by the byte",
        file: "crates/cloud/src/ssh/peers.rs",
        from: "self.private_only && !is_private(address)",
        to: "self.private_only && is_private(address)",
        test: CargoTest { package: "gradus-cloud", target: &["--lib"], filter: "read_at_private_addresses_only" },
    },
    SourceMutant {
        name: "a-rented-machine-that-sends-nothing-is-not-in-the-log",
        harm: "every start of a run in a cloud waits for libtorch from the user's own machine, and no log says why",
        file: "crates/server/src/control/calls.rs",
        from: "view.machines.iter().map(|machine| &machine.instance)",
        to: "view.machines.iter().take(0).map(|machine| &machine.instance)",
        test: CargoTest { package: "gradus-server", target: &["--lib"], filter: "goes_with_a_view_of_them" },
    },
];
