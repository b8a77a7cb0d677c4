//! Mutants of the disks that machines are rented with: how large they are, and what is refused for them.

use crate::mutants::mutant::{CargoTest, SourceMutant};

pub(super) const DISKS: &[SourceMutant] = &[
    SourceMutant {
        name: "disks-of-other-clouds-are-the-least",
        harm: "a run on Google Cloud, Azure, Alibaba Cloud or Tencent Cloud has a disk smaller than its data, and ends when it is full",
        file: "crates/cli/src/local/rented/clouds.rs",
        from: "let (disk, _) = volumes.disk(&offer, needs);",
        to: "let (disk, _) = (needs.disk, volumes);",
        test: CargoTest { package: "gradus-cli", target: &["--bin", "gradus"], filter: "holds_the_data_on_every_cloud" },
    },
    SourceMutant {
        name: "disks-without-a-plan-are-the-least",
        harm: "a run that no plan is left for has a disk smaller than its data, and ends when it is full",
        file: "crates/cli/src/local/rented/volumes.rs",
        from: "self.work(offer).or(needs.disk)",
        to: "self.work(offer).and(needs.disk)",
        test: CargoTest { package: "gradus-cli", target: &["--bin", "gradus"], filter: "that_no_plan_recommends" },
    },
];
