//! Mutants of clouds: what keeps a machine from being rented twice, and from being left behind.

use super::mutant::{CargoTest, SourceMutant};

pub(super) const CLOUDS: &[SourceMutant] = &[
    SourceMutant {
        name: "a-stopped-machine-is-deleted",
        harm: "the end of a run deletes the disk of a machine that its user has stopped to keep it",
        file: "crates/cloud/src/rented/kept.rs",
        from: "Some(kept) if kept.stopped().is_some() => MachineEnd::Stop,",
        to: "Some(kept) if kept.stopped().is_some() => MachineEnd::Delete,",
        test: CargoTest { package: "gradus-cloud", target: &["--lib"], filter: "only_a_run_that_has_a_machine" },
    },
    SourceMutant {
        name: "a-bid-below-the-zone-s-price",
        harm: "spot machines are asked for at less than they cost in their zone, and refused",
        file: "crates/cloud/src/aws/bid.rs",
        from: "most.unwrap_or(price).max(price)",
        to: "most.unwrap_or(price)",
        test: CargoTest { package: "gradus-cloud", target: &["--lib"], filter: "a_bid_is_what_the_plan_promised" },
    },
    SourceMutant {
        name: "other-accounts-are-taken-for-this-one",
        harm: "a machine of an account that was used before counts as gone while it costs money",
        file: "crates/cloud/src/rented/account.rs",
        from: "(of != now).then_some(of)",
        to: "(of.is_empty() && of != now).then_some(of)",
        test: CargoTest { package: "gradus-cloud", target: &["--lib"], filter: "another_account_is_neither_gone" },
    },
    SourceMutant {
        name: "azure-changes-a-machine-that-is-there",
        harm: "a request that is sent again changes a machine that trains, instead of being refused",
        file: "crates/cloud/src/azure/wire.rs",
        from: "let headers = [(\"content-type\", \"application/json\"), (\"if-none-match\", \"*\")];",
        to: "let headers = [(\"content-type\", \"application/json\")];",
        test: CargoTest { package: "gradus-cloud", target: &["--lib"], filter: "of_two_requests_for_one_name" },
    },
    SourceMutant {
        name: "azure-leaves-what-it-could-not-place",
        harm: "a machine that Azure had no place for is left behind, with a disk and an address that cost money",
        file: "crates/cloud/src/azure/mod.rs",
        from: "Err(failure) if failure.refusal().is_some() => match self.delete(name) {",
        to: "Err(failure) if failure.refusal().is_some() => match Ok::<(), CloudFailure>(()) {",
        test: CargoTest { package: "gradus-cloud", target: &["--lib"], filter: "what_could_not_be_placed" },
    },
    SourceMutant {
        name: "azure-tells-its-token-to-anybody",
        harm: "an answer that names another server has it told the token, with which machines can be rented",
        file: "crates/cloud/src/azure/wire.rs",
        from: "rest.is_some_and(|rest| rest.starts_with('/'))",
        to: "rest.is_some() || url.starts_with(\"http\")",
        test: CargoTest { package: "gradus-cloud", target: &["--lib"], filter: "told_to_the_resource_manager_only" },
    },
];
