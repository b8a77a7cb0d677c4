//! The disk of a machine: its size, and how fast it is.

use super::super::keys::{DiskKeys, Resources};
use super::clash;
use crate::problem::Problem;
use crate::units::Bytes;
use crate::volume::{VolumeSpeed, too_large};

/// The size and the speed that `disk`, `disk_size` and `disk_tier` state. Keys that say the same thing twice, and differently,
/// and a size (where only machines of AWS are asked for, `is_aws`) or a speed that no volume has, are problems.
pub(super) fn disk(resources: &Resources, is_aws: bool, problems: &mut Vec<Problem>) -> (Option<Bytes>, VolumeSpeed) {
    let DiskKeys { size, iops, throughput, tier } = resources.disk.unwrap_or_default();
    if let (Some(one), Some(other)) = (size, resources.disk_size)
        && one != other
    {
        let message = "`disk.size` and `disk_size` contradict each other";
        clash(problems, "resources.disk.size", message, "keep one of the two");
    }
    if let (Some(one), Some(other)) = (tier, resources.disk_tier)
        && one != other
    {
        let message = "`disk.tier` and `disk_tier` contradict each other";
        clash(problems, "resources.disk.tier", message, "keep one of the two");
    }
    let speed = VolumeSpeed { iops, throughput, tier: tier.or(resources.disk_tier) };
    if let Err(wrong) = speed.volume() {
        clash(problems, &format!("resources.disk.{}", wrong.key), &wrong.message, &wrong.hint);
    }
    let (key, name) = match size {
        Some(_) => ("resources.disk.size", "size"),
        None => ("resources.disk_size", "disk_size"),
    };
    let size = size.or(resources.disk_size).map(|size| size.0);
    if size == Some(Bytes(0)) {
        let hint = format!("write for example `{name}: 500` (GB), or leave it out: the plan chooses");
        clash(problems, key, "a disk of 0 GB holds nothing", &hint);
    }
    if let Some(wrong) = size.filter(|_| is_aws).and_then(too_large) {
        clash(problems, key, &wrong.message, &wrong.hint);
    }
    (size, speed)
}
