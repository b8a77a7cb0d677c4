//! Network volumes: the disk that a cloud rents with a machine, how fast it is, and what its price is made of.
//!
//! Only AWS provisions speed here: gp3 up to its limits, io2 beyond them. The limits are those of `EbsBlockDevice` in the
//! reference of the EC2 API (gp3: 3,000 to 16,000 IOPS, 125 to 1,000 MiB/s; io2: 100 to 256,000 IOPS) and of "Amazon EBS volume
//! types" in the EC2 user guide (ratios, sizes, and the 4,000 MiB/s of io2). What AWS may allow beyond them is not used. The
//! disks of the other clouds are in [`crate::boot_disk`].

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::money::{Money, Rate};
use crate::tariff::Service;
use crate::units::Bytes;

/// The kind of a network volume, by AWS's name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VolumeKind {
    /// Its size, and the IOPS and MiB/s above the base, are paid for.
    Gp3,
    /// Its size and all of its IOPS are paid for; its throughput follows from them.
    Io2,
}

impl VolumeKind {
    /// AWS's name.
    pub fn word(self) -> &'static str {
        match self {
            VolumeKind::Gp3 => "gp3",
            VolumeKind::Io2 => "io2",
        }
    }
}

/// A network volume, apart from its size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    pub kind: VolumeKind,
    /// Reads and writes per second.
    pub iops: u32,
    /// MiB/s.
    pub throughput: u32,
}

/// The most that gp3 has.
const GP3_MOST: Volume = Volume { kind: VolumeKind::Gp3, iops: 16_000, throughput: 1_000 };
/// The fewest and the most IOPS of io2.
const IO2_IOPS: (u32, u32) = (100, 256_000);
/// The most MiB/s of io2, on machines of the Nitro System.
const IO2_THROUGHPUT: u32 = 4_000;
/// IOPS that a MiB/s needs: gp3 has at most 0.25 MiB/s per IOPS, and io2 as much at 256 KiB each.
const IOPS_PER_MIB: u32 = 4;
/// The most IOPS per GiB.
const GP3_IOPS_PER_GIB: u32 = 500;
const IO2_IOPS_PER_GIB: u32 = 1_000;
/// Families of machines outside the Nitro System (Amazon EC2 user guide, "Xen-based instances").
const XEN: [&str; 23] = [
    "c1", "c3", "c4", "d2", "f1", "g2", "g3", "g3s", "h1", "i2", "i3", "m1", "m2", "m3", "m4", "p2", "p3", "r3", "r4",
    "t1", "t2", "x1", "x1e",
];
/// GiB for the system and copied files, in addition to those of the work.
const SYSTEM_GIB: u64 = 40;

/// Whether a machine of that type is of the Nitro System, on which io2 is as fast as is provisioned.
pub fn is_nitro(instance_type: &str) -> bool {
    let family = instance_type.split('.').next().unwrap_or_default();
    !XEN.contains(&family)
}

/// A month, as clouds bill disks.
const MONTH_HOURS: i64 = 730;

/// What costs so much in a month, by the hour, rounded up.
pub fn hourly(month: Money) -> Rate {
    Rate::from_micros_per_hour(month.micros().saturating_add(MONTH_HOURS - 1) / MONTH_HOURS)
}

/// GiB of a volume with so much for the work of its machine.
pub fn whole_gib(work: Bytes) -> u64 {
    work.0.div_ceil(1 << 30) + SYSTEM_GIB
}

impl Volume {
    /// gp3 as its size alone pays for it.
    pub const BASE: Volume = Volume { kind: VolumeKind::Gp3, iops: 3_000, throughput: 125 };
    /// The largest that a volume is, in GiB.
    pub const MOST_GIB: u64 = 16 << 10;
    /// The least that a machine has for its work.
    pub const LEAST_WORK: Bytes = Bytes(100 << 30);
    /// The most that the largest volume has for the work of its machine.
    pub const MOST_WORK: Bytes = Bytes((Volume::MOST_GIB - SYSTEM_GIB) << 30);

    /// The cheapest with so many IOPS and MiB/s: gp3 within its limits, else io2, at most as fast as io2 is.
    pub fn at_least(iops: u32, throughput: u32) -> Volume {
        let iops = iops.max(throughput.saturating_mul(IOPS_PER_MIB));
        if iops <= GP3_MOST.iops && throughput <= GP3_MOST.throughput {
            return Volume::gp3(iops, throughput);
        }
        Volume::io2(iops)
    }

    /// A gp3 volume with so many IOPS and MiB/s, within its limits.
    pub fn gp3(iops: u32, throughput: u32) -> Volume {
        let (base, most) = (Volume::BASE, GP3_MOST);
        let throughput = throughput.clamp(base.throughput, most.throughput);
        let iops = iops.max(throughput.saturating_mul(IOPS_PER_MIB));
        Volume { iops: iops.clamp(base.iops, most.iops), throughput, ..base }
    }

    /// An io2 volume with so many IOPS, within its limits.
    pub fn io2(iops: u32) -> Volume {
        let iops = iops.clamp(IO2_IOPS.0, IO2_IOPS.1);
        Volume { kind: VolumeKind::Io2, iops, throughput: (iops / IOPS_PER_MIB).min(IO2_THROUGHPUT) }
    }

    /// GiB of such a volume with so much for the work of its machine, and at least as many as its IOPS need.
    pub fn gib(self, work: Bytes) -> u64 {
        whole_gib(work).max(self.least_gib())
    }

    /// The least size in GiB that may have so many IOPS.
    fn least_gib(self) -> u64 {
        let per_gib = match self.kind {
            VolumeKind::Gp3 => GP3_IOPS_PER_GIB,
            VolumeKind::Io2 => IO2_IOPS_PER_GIB,
        };
        u64::from(self.iops.div_ceil(per_gib)).max(4)
    }

    /// What is paid for each month, and how much of it.
    pub fn parts(self, gib: u64) -> [(Service, u64); 3] {
        let above = |has: u32, base: u32| u64::from(has.saturating_sub(base));
        match self.kind {
            VolumeKind::Gp3 => [
                (Service::SsdDisk, gib),
                (Service::SsdIops, above(self.iops, Volume::BASE.iops)),
                (Service::SsdThroughput, above(self.throughput, Volume::BASE.throughput)),
            ],
            VolumeKind::Io2 => {
                [(Service::Io2Disk, gib), (Service::Io2Iops, u64::from(self.iops)), (Service::SsdThroughput, 0)]
            }
        }
    }

    /// What it costs in a month at these prices. A part without a price counts nothing.
    pub fn month(self, gib: u64, price: impl Fn(Service) -> Option<Money>) -> Money {
        let part = |(service, count): (Service, u64)| {
            let micros = price(service).map_or(0, Money::micros);
            Money::from_micros(micros.saturating_mul(i64::try_from(count).unwrap_or(i64::MAX)))
        };
        self.parts(gib).into_iter().filter(|(_, count)| *count > 0).map(part).sum()
    }
}

/// `gp3 with 7000 IOPS and 437 MiB/s`.
impl fmt::Display for Volume {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {} IOPS and {} MiB/s", self.kind.word(), self.iops, self.throughput)
    }
}

/// The speed of a disk by name, as SkyPilot has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DiskTier {
    /// gp3 at its base speed: 3000 IOPS and 125 MiB/s; nothing slower is rented.
    Low,
    /// gp3 with 3500 IOPS and 218 MiB/s.
    Medium,
    /// gp3 with 7000 IOPS and 437 MiB/s.
    High,
    /// io2 with 20000 IOPS, which is several times as expensive.
    Ultra,
    /// The fastest gp3: 16000 IOPS and 1000 MiB/s. SkyPilot means `ultra` by it.
    Best,
}

impl DiskTier {
    /// The volume of that name. The figures of the middle ones are SkyPilot's (`sky/clouds/aws.py`).
    pub fn volume(self) -> Volume {
        match self {
            DiskTier::Low => Volume::BASE,
            DiskTier::Medium => Volume::at_least(3_500, 218),
            DiskTier::High => Volume::at_least(7_000, 437),
            DiskTier::Ultra => Volume::io2(20_000),
            DiskTier::Best => GP3_MOST,
        }
    }
}

/// How fast a job states that its disk is. What is left out is for the plan to choose, unless something is stated: then it is
/// that of the tier, or of the base.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct VolumeSpeed {
    /// Reads and writes per second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub iops: Option<u32>,
    /// MiB/s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throughput: Option<u32>,
    /// By name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tier: Option<DiskTier>,
}

/// Why no volume is so large: what a job states must fit on one with the system.
pub fn too_large(work: Bytes) -> Option<NoVolume> {
    let most = Volume::MOST_WORK;
    (work > most).then(|| NoVolume {
        key: "size",
        message: format!("a volume has {} GiB at most, {SYSTEM_GIB} of them for the system", Volume::MOST_GIB),
        hint: format!("write {} (GB) or less, or divide the data among several machines", most.0 / 1_000_000_000),
    })
}

/// Why what is stated is no volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoVolume {
    /// The key that is wrong: `size`, `iops` or `throughput`.
    pub key: &'static str,
    pub message: String,
    pub hint: String,
}

impl VolumeSpeed {
    /// Whether the job leaves all of it to the plan.
    pub fn is_open(&self) -> bool {
        *self == VolumeSpeed::default()
    }

    /// The volume that is stated; `None` where the plan chooses.
    ///
    /// # Errors
    /// What no volume has.
    pub fn volume(&self) -> Result<Option<Volume>, NoVolume> {
        if self.is_open() {
            return Ok(None);
        }
        if self.tier == Some(DiskTier::Ultra) {
            return self.io2().map(Some);
        }
        let usual = self.tier.map_or(Volume::BASE, DiskTier::volume);
        let (iops, throughput) = (self.iops.unwrap_or(usual.iops), self.throughput.unwrap_or(usual.throughput));
        let base = Volume::BASE;
        if iops < base.iops {
            return Err(NoVolume {
                key: "iops",
                message: format!("a gp3 volume has {} IOPS at least, which its size pays for", base.iops),
                hint: format!("write `iops: {}` or more, or leave it out", base.iops),
            });
        }
        if throughput < base.throughput {
            return Err(NoVolume {
                key: "throughput",
                message: format!("a gp3 volume has {} MiB/s at least, which its size pays for", base.throughput),
                hint: format!("write `throughput: {}` or more, or leave it out", base.throughput),
            });
        }
        if iops > IO2_IOPS.1 || throughput > IO2_THROUGHPUT {
            return Err(NoVolume {
                key: if iops > IO2_IOPS.1 { "iops" } else { "throughput" },
                message: format!("no volume has more than {} IOPS and {IO2_THROUGHPUT} MiB/s", IO2_IOPS.1),
                hint: "take a machine with disks inside, or divide the data among several machines".to_owned(),
            });
        }
        Ok(Some(Volume::at_least(iops, throughput)))
    }

    /// The io2 volume that is stated.
    fn io2(&self) -> Result<Volume, NoVolume> {
        if self.throughput.is_some() {
            return Err(NoVolume {
                key: "throughput",
                message: "the throughput of `tier: ultra`, an io2 volume, follows from its IOPS".to_owned(),
                hint: format!("write `iops: …` alone, {IOPS_PER_MIB} for each MiB/s"),
            });
        }
        let iops = self.iops.unwrap_or(DiskTier::Ultra.volume().iops);
        if !(IO2_IOPS.0..=IO2_IOPS.1).contains(&iops) {
            return Err(NoVolume {
                key: "iops",
                message: format!("an io2 volume has from {} to {} IOPS", IO2_IOPS.0, IO2_IOPS.1),
                hint: "write for example `iops: 20000`".to_owned(),
            });
        }
        Ok(Volume::io2(iops))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cheapest_volume_that_is_fast_enough_keeps_aws_s_limits() {
        let check = |iops: u32, throughput: u32, expected: &str, gib: u64| {
            let volume = Volume::at_least(iops, throughput);
            assert_eq!((volume.to_string().as_str(), volume.least_gib()), (expected, gib), "{iops} {throughput}");
        };
        check(0, 0, "gp3 with 3000 IOPS and 125 MiB/s", 6);
        check(3_001, 126, "gp3 with 3001 IOPS and 126 MiB/s", 7);
        // A MiB/s needs 4 IOPS.
        check(0, 750, "gp3 with 3000 IOPS and 750 MiB/s", 6);
        check(0, 1_000, "gp3 with 4000 IOPS and 1000 MiB/s", 8);
        check(16_000, 1_000, "gp3 with 16000 IOPS and 1000 MiB/s", 32);
        check(16_001, 0, "io2 with 16001 IOPS and 4000 MiB/s", 17);
        check(0, 1_001, "io2 with 4004 IOPS and 1001 MiB/s", 5);
        check(u32::MAX, u32::MAX, "io2 with 256000 IOPS and 4000 MiB/s", 256);
    }

    #[test]
    fn a_month_is_the_sum_of_what_aws_bills() {
        let price = |service: Service| {
            let micros = match service {
                Service::SsdDisk => 80_000,
                Service::SsdIops => 5_000,
                Service::SsdThroughput => 40_000,
                Service::Io2Disk => 125_000,
                Service::Io2Iops => 65_000,
                _ => return None,
            };
            Some(Money::from_micros(micros))
        };
        let check = |volume: Volume, expected: &str| {
            assert_eq!(volume.month(140, price).to_string(), expected, "{volume}");
        };
        check(Volume::BASE, "$11.20");
        // 140 GiB, 4,000 IOPS and 312 MiB/s beyond the base.
        check(DiskTier::High.volume(), "$43.68");
        // All IOPS of io2 are paid for: 140 × $0.125 and 20,000 × $0.065.
        check(DiskTier::Ultra.volume(), "$1317.50");
        assert_eq!(Volume::BASE.month(140, |_| None), Money::default());
    }

    #[test]
    fn a_volume_is_as_large_as_its_work_and_its_iops_need() {
        assert_eq!(Volume::BASE.gib(Volume::LEAST_WORK), 140);
        assert_eq!(Volume::BASE.gib(Bytes((100 << 30) + 1)), 141);
        assert_eq!(Volume::io2(256_000).gib(Volume::LEAST_WORK), 256);
    }

    #[test]
    fn a_stated_speed_is_a_volume_or_says_what_to_write() {
        let check = |iops: Option<u32>, throughput: Option<u32>, tier: Option<DiskTier>, expected: &str| {
            let shown = match (VolumeSpeed { iops, throughput, tier }).volume() {
                Ok(Some(volume)) => volume.to_string(),
                Ok(None) => "open".to_owned(),
                Err(wrong) => format!("{}: {} ({})", wrong.key, wrong.message, wrong.hint),
            };
            assert_eq!(shown, expected, "{iops:?} {throughput:?} {tier:?}");
        };
        check(None, None, None, "open");
        check(None, None, Some(DiskTier::Low), "gp3 with 3000 IOPS and 125 MiB/s");
        check(None, None, Some(DiskTier::Medium), "gp3 with 3500 IOPS and 218 MiB/s");
        check(None, None, Some(DiskTier::High), "gp3 with 7000 IOPS and 437 MiB/s");
        check(None, None, Some(DiskTier::Best), "gp3 with 16000 IOPS and 1000 MiB/s");
        check(None, None, Some(DiskTier::Ultra), "io2 with 20000 IOPS and 4000 MiB/s");
        check(Some(1_000), None, Some(DiskTier::Ultra), "io2 with 1000 IOPS and 250 MiB/s");
        check(Some(6_000), None, None, "gp3 with 6000 IOPS and 125 MiB/s");
        check(None, Some(500), None, "gp3 with 3000 IOPS and 500 MiB/s");
        check(Some(8_000), None, Some(DiskTier::High), "gp3 with 8000 IOPS and 437 MiB/s");
        check(Some(40_000), None, None, "io2 with 40000 IOPS and 4000 MiB/s");
        let least = "a gp3 volume has 3000 IOPS at least, which its size pays for";
        check(Some(2_999), None, None, &format!("iops: {least} (write `iops: 3000` or more, or leave it out)"));
        let least = "a gp3 volume has 125 MiB/s at least, which its size pays for";
        let hint = "(write `throughput: 125` or more, or leave it out)";
        check(None, Some(100), None, &format!("throughput: {least} {hint}"));
        let most = "no volume has more than 256000 IOPS and 4000 MiB/s";
        let hint = "(take a machine with disks inside, or divide the data among several machines)";
        check(Some(256_001), None, None, &format!("iops: {most} {hint}"));
        check(None, Some(4_001), None, &format!("throughput: {most} {hint}"));
        let follows = "the throughput of `tier: ultra`, an io2 volume, follows from its IOPS";
        let hint = "(write `iops: …` alone, 4 for each MiB/s)";
        check(None, Some(500), Some(DiskTier::Ultra), &format!("throughput: {follows} {hint}"));
        let range = "an io2 volume has from 100 to 256000 IOPS";
        check(Some(99), None, Some(DiskTier::Ultra), &format!("iops: {range} (write for example `iops: 20000`)"));
    }

    #[test]
    fn a_speed_that_is_not_stated_is_not_written() {
        assert_eq!(serde_json::to_string(&VolumeSpeed::default()).unwrap(), "{}");
        let high = VolumeSpeed { tier: Some(DiskTier::High), ..VolumeSpeed::default() };
        assert_eq!(serde_json::to_string(&high).unwrap(), r#"{"tier":"high"}"#);
        assert_eq!(serde_json::from_str::<VolumeSpeed>("{}").unwrap(), VolumeSpeed::default());
    }
}
