//! Mutants of the disks that machines are rented with: how large they are, and what is refused for them.

use crate::mutants::mutant::{CargoTest, SourceMutant};

pub(super) const DISKS: &[SourceMutant] = &[
    SourceMutant {
        name: "disks-of-other-clouds-are-the-least",
        harm: "a run on Google Cloud, Azure, Alibaba Cloud or Tencent Cloud has a disk smaller than its data, and ends when it is full",
        file: "crates/cli/src/local/rented/clouds.rs",
        from: "let (disk, _) = volumes.disk(&offer, needs);",
        to: "let (disk, _) = (needs.disk, volumes);",
        test: CargoTest {
            package: "gradus-cli",
            target: &["--bin", "gradus"],
            filter: "holds_the_data_on_every_cloud",
        },
    },
    SourceMutant {
        name: "disks-without-a-plan-are-the-least",
        harm: "a run that no plan is left for has a disk smaller than its data, and ends when it is full",
        file: "crates/cli/src/local/rented/volumes.rs",
        from: "self.work(offer).or(needs.disk)",
        to: "self.work(offer).and(needs.disk)",
        test: CargoTest { package: "gradus-cli", target: &["--bin", "gradus"], filter: "that_no_plan_recommends" },
    },
    SourceMutant {
        name: "machines-refused-for-their-disk-are-rented",
        harm: "where what a plan recommends cannot be rented, a run is rented the cheapest machine, whose disk its data fills",
        file: "crates/cli/src/local/rented/volumes.rs",
        from: "= too_large(answer, needs) else",
        to: "= too_large(answer, needs).filter(|_| answer.candidates.is_empty()) else",
        test: CargoTest {
            package: "gradus-cli",
            target: &["--bin", "gradus"],
            filter: "machines_refused_for_their_disk",
        },
    },
    SourceMutant {
        name: "a-stated-disk-is-blamed-on-the-data",
        harm: "a job whose `disk_size` is larger than any volume is refused for its data, with the hint to write `disk_size`",
        file: "crates/cli/src/local/rented/volumes.rs",
        from: "if needs.disk.is_some() {",
        to: "if needs.disk.is_some_and(|disk| disk < Volume::MOST_WORK) {",
        test: CargoTest { package: "gradus-cli", target: &["--bin", "gradus"], filter: "is_refused_with_its_cause" },
    },
    SourceMutant {
        name: "the-disk-hides-the-price",
        harm: "a job whose `max_price` excludes the machines with enough disk is refused for its data alone",
        file: "crates/cli/src/command/plan/market/refusal.rs",
        from: "!is_limited && !is_too_expensive",
        to: "!is_limited || !is_too_expensive",
        test: CargoTest { package: "gradus-cli", target: &["--test", "plans"], filter: "with_enough_disk_is_named" },
    },
    SourceMutant {
        name: "the-disk-is-not-in-the-offer",
        harm: "a user offers for a spot machine all that `max_price` allows, and pays more with its disk",
        file: "crates/cli/src/command/plan/market/present/details.rs",
        from: "most.micros_per_hour() - disk.micros_per_hour()",
        to: "most.micros_per_hour() + disk.micros_per_hour()",
        test: CargoTest { package: "gradus-cli", target: &["--bin", "gradus"], filter: "leaves_the_price_of_its_disk" },
    },
];
