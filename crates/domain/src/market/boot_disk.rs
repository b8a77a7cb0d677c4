//! The disk that gradus rents with each machine of a cloud that provisions no speed: how large it is for the work that it holds.
//!
//! A plan counts what the cloud's launch asks for, so both take the sizes from here.

use crate::listing::Cloud;
use crate::units::Bytes;

/// The disk of a machine, with the system on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BootDisk {
    /// What a machine has for its work unless the job asks for more.
    pub least_work: Bytes,
    /// GiB for the system and its driver, in addition to that.
    pub system_gib: u64,
    /// In which sizes it is sold.
    pub sizes: DiskSizes,
}

/// The sizes in which a cloud sells its disks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskSizes {
    /// Every number of GiB.
    Each,
    /// Tens of GiB.
    Tens,
    /// Powers of two.
    Doubling,
}

impl BootDisk {
    /// Google Cloud's.
    pub const GCP: BootDisk = BootDisk { least_work: Bytes(100 << 30), system_gib: 40, sizes: DiskSizes::Each };
    /// Azure's. Its image has 64 GiB; with them the least fills a disk that is billed.
    pub const AZURE: BootDisk = BootDisk { least_work: Bytes(192 << 30), system_gib: 64, sizes: DiskSizes::Doubling };
    /// Alibaba Cloud's.
    pub const ALIBABA: BootDisk = BootDisk { least_work: Bytes(160 << 30), system_gib: 40, sizes: DiskSizes::Each };
    /// Tencent Cloud's.
    pub const TENCENT: BootDisk = BootDisk { least_work: Bytes(160 << 30), system_gib: 40, sizes: DiskSizes::Tens };

    /// That of a cloud; `None` where disks have a speed of their own, machines hold their disks, or none are rented.
    pub fn of(cloud: &Cloud) -> Option<BootDisk> {
        match cloud {
            Cloud::Gcp => Some(BootDisk::GCP),
            Cloud::Azure => Some(BootDisk::AZURE),
            Cloud::Alibaba => Some(BootDisk::ALIBABA),
            Cloud::Tencent => Some(BootDisk::TENCENT),
            Cloud::Aws | Cloud::Lambda | Cloud::Own | Cloud::Other(_) => None,
        }
    }

    /// GiB of the disk of a machine with so much for its work.
    pub fn gib(self, work: Bytes) -> u64 {
        let gib = work.0.div_ceil(1 << 30) + self.system_gib;
        match self.sizes {
            DiskSizes::Each => gib,
            DiskSizes::Tens => gib.next_multiple_of(10),
            DiskSizes::Doubling => gib.next_power_of_two(),
        }
    }
}

/// GiB of the disk that gradus rents with a machine of a cloud for so much work, of which it has at least the usual; `None` as
/// for [`BootDisk::of`].
pub fn boot_disk_gib(cloud: &Cloud, work: Bytes) -> Option<u64> {
    BootDisk::of(cloud).map(|disk| disk.gib(work.max(disk.least_work)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_holds_the_system_and_at_least_the_usual_work_in_a_size_that_is_sold() {
        const GIB: u64 = 1 << 30;
        let check = |cloud: Cloud, expected: [u64; 4]| {
            let found = [0, 192 * GIB, 192 * GIB + 1, 1_000 * GIB].map(|work| boot_disk_gib(&cloud, Bytes(work)));
            assert_eq!(found, expected.map(Some), "{cloud}");
        };
        check(Cloud::Gcp, [140, 232, 233, 1_040]);
        check(Cloud::Azure, [256, 256, 512, 2_048]);
        check(Cloud::Alibaba, [200, 232, 233, 1_040]);
        check(Cloud::Tencent, [200, 240, 240, 1_040]);
        assert_eq!(boot_disk_gib(&Cloud::Aws, Bytes(GIB)), None);
    }
}
