//! Mutants of audits: what keeps them from deleting what somebody needs, and from leaving what costs money.

use super::mutant::{CargoTest, SourceMutant};

const VERDICT: &str = "crates/cloud/src/rented/audit/verdict.rs";

const fn decision(filter: &'static str) -> CargoTest {
    CargoTest { package: "gradus-cloud", target: &["--lib"], filter }
}

pub(super) const AUDITS: &[SourceMutant] = &[
    SourceMutant {
        name: "audits-delete-disks-of-other-homes",
        harm: "a server deletes the disks that another home of gradus has made in the same account",
        file: VERDICT,
        from: "Some(_) => return ResourceVerdict::OtherHome,",
        to: "Some(_) => true,",
        test: decision("only_what_carries_the_tag"),
    },
    SourceMutant {
        name: "audits-take-a-name-for-proof",
        harm: "a server deletes a disk without its tag, because somebody has given it a name like those of gradus",
        file: VERDICT,
        from: "(ResourceUse::Nothing, _) if !is_tagged =>",
        to: "(ResourceUse::Nothing, _) if !is_tagged && self.grace.micros() == 1 =>",
        test: decision("only_what_carries_the_tag"),
    },
    SourceMutant {
        name: "audits-know-only-the-first-of-several-machines",
        harm: "a server deletes the disk of the second machine of a job whose first one has ended",
        file: VERDICT,
        from: "resource.tags.instances().any(",
        to: "resource.tags.instance.clone().into_iter().any(",
        test: decision("what_a_run_has_is_not_ended"),
    },
    SourceMutant {
        name: "audits-delete-what-is-held",
        harm: "a server tries to delete the disk of a machine that is stopped to keep it",
        file: VERDICT,
        from: "(ResourceUse::HeldBy(_), _) => ResourceVerdict::InUse,",
        to: "(ResourceUse::HeldBy(_), _) => ResourceVerdict::Orphaned,",
        test: decision("what_something_has_is_not_ended"),
    },
    SourceMutant {
        name: "audits-delete-snapshots",
        harm: "a server deletes the snapshots that its user has taken of machines",
        file: VERDICT,
        from: "ResourceKind::Snapshot | ResourceKind::Image => return ResourceVerdict::ByHand,",
        to: "ResourceKind::Snapshot | ResourceKind::Image => return ResourceVerdict::Orphaned,",
        test: decision("what_holds_data_that_gradus"),
    },
    SourceMutant {
        name: "a-grace-counts-from-the-making-of-a-disk",
        harm: "a disk that was detached a moment ago, to attach it to another machine, is deleted at once",
        file: VERDICT,
        from: "resource.unused_since.or_else(noted).unwrap_or(self.now)",
        to: "resource.unused_since.or_else(noted).or(resource.created).unwrap_or(self.now)",
        test: decision("the_grace_counts_from_when"),
    },
    SourceMutant {
        name: "a-region-that-does-not-answer-restarts-the-grace",
        harm: "where one region fails at times, what is left in it is never old enough to be deleted, and costs money for good",
        file: VERDICT,
        from: "!is_complete && !found.contains",
        to: "is_complete && !found.contains",
        test: decision("an_audit_notes_what"),
    },
    SourceMutant {
        name: "addresses-are-deleted-before-their-interfaces",
        harm: "an address that an interface has is refused, although that goes a moment later",
        file: VERDICT,
        from: "orphaned.sort_by_key(|resource| resource.kind);",
        to: "orphaned.sort_by_key(|resource| std::cmp::Reverse(resource.kind));",
        test: decision("an_orphan_that_cannot_be_ended_keeps"),
    },
    SourceMutant {
        name: "an-unknown-price-is-free",
        harm: "an audit says that a disk of which the catalog has no price costs nothing",
        file: "crates/cloud/src/rented/audit/price.rs",
        from: "(None, _) => ResourcePrice::Unknown,",
        to: "(None, _) => ResourcePrice::Free,",
        test: decision("a_price_is_that_of_the_tariff"),
    },
    SourceMutant {
        name: "a-volume-that-is-being-attached-is-unused",
        harm: "a server deletes a disk that is on its way to a machine",
        file: "crates/cloud/src/aws/wire/resources.rs",
        from: "\"available\" | \"error\" => held.unwrap_or_default(),",
        to: "\"available\" | \"error\" | \"creating\" | \"in-use\" => held.unwrap_or_default(),",
        test: decision("volumes_are_read"),
    },
    SourceMutant {
        name: "a-disk-of-a-deallocated-machine-is-unused",
        harm: "a server deletes the disk of a machine of Azure that is stopped to keep it",
        file: "crates/cloud/src/azure/resources.rs",
        from: "(ResourceKind::Disk, _, _) => held.unwrap_or(ResourceUse::Changing),",
        to: "(ResourceKind::Disk, _, _) => ResourceUse::Nothing,",
        test: decision("disks_are_read"),
    },
    SourceMutant {
        name: "what-a-machine-of-azure-leaves-has-no-tags",
        harm: "the address of a machine of Azure that is left behind is never known to be gradus's, and costs money for good",
        file: "crates/cloud/src/azure/mod.rs",
        from: "let _ = self.tag_network(name, value(params, \"body\"));",
        to: "let _ = name.is_empty() && self.tag_network(name, value(params, \"body\")).is_ok();",
        test: decision("the_interface_and_the_address"),
    },
    SourceMutant {
        name: "only-the-first-page-of-addresses-is-audited",
        harm: "addresses of Alibaba Cloud beyond the first hundred are never found, and cost money for good",
        file: "crates/cloud/src/alibaba/resources.rs",
        from: "(AcsService::Vpc, _) if !is_empty && found.len() < total =>",
        to: "(AcsService::Vpc, _) if !is_empty && found.len() > total =>",
        test: decision("in_all_regions_and_ends"),
    },
    SourceMutant {
        name: "disks-of-google-have-no-label",
        harm: "a disk that is left behind in Google Cloud is never known to be gradus's, and costs money for good",
        file: "crates/cloud/src/gcp/mod.rs",
        from: "\"labels\": { OWNER_LABEL: owner_label(order.owner) },\n                },",
        to: "},",
        test: decision("the_disk_of_a_machine_carries_the_label"),
    },
    SourceMutant {
        name: "a-zone-that-does-not-answer-has-no-disks",
        harm: "an audit of Google Cloud reports that nothing is left while it has not looked everywhere",
        file: "crates/cloud/src/gcp/resources.rs",
        from: "if !list.unreachables.is_empty() {",
        to: "if list.unreachables.len() > 99 {",
        test: decision("a_place_that_does_not_answer"),
    },
    SourceMutant {
        name: "audits-list-everybodys-public-snapshots",
        harm: "`gradus cloud audit aws --all` lists the public snapshots of all other accounts, for hours",
        file: "crates/cloud/src/aws/wire/resources.rs",
        from: "[\"DescribeSnapshots\", \"DescribeImages\"].contains(&action)",
        to: "[\"DescribeImages\"].contains(&action)",
        test: decision("each_list_is_that_of_an_owner"),
    },
    SourceMutant {
        name: "a-sum-leaves-out-what-has-no-price",
        harm: "an audit shows what everything costs together, and leaves out without a word what has no known price",
        file: "crates/cli/src/command/nodes/cloud/audit.rs",
        from: "unknown => format!(\"{sum}, and {unknown} of unknown price\"),",
        to: "_ => sum.to_string(),",
        test: CargoTest { package: "gradus-cli", target: &["--bin", "gradus"], filter: "what_has_no_known_price" },
    },
];
