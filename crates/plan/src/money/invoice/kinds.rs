//! What lines of providers' bills are for, by the providers' own words.

use domain::run::BilledKind;

/// By AWS' usage type, such as `USE1-BoxUsage:p4d.24xlarge`.
pub fn of_aws(usage: &str) -> BilledKind {
    let has = |parts: &[&str]| parts.iter().any(|part| usage.contains(part));
    if has(&["BoxUsage", "SpotUsage", "DedicatedUsage", "InstanceUsage", "UnusedDed"]) {
        BilledKind::Machine
    } else if has(&["Snapshot"]) {
        BilledKind::Snapshot
    } else if has(&["EBS:"]) {
        BilledKind::Disk
    } else if has(&["Bytes", "DataTransfer", "PublicIPv4", "ElasticIP", "NatGateway", "DataXfer"]) {
        BilledKind::Traffic
    } else {
        BilledKind::Other
    }
}

/// By Google Cloud's description of a SKU, such as `A2 Instance Core running in Americas`.
pub fn of_gcp(sku: &str) -> BilledKind {
    let sku = sku.to_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| sku.contains(part));
    if has(&["snapshot", "image"]) {
        BilledKind::Snapshot
    } else if has(&["egress", "ingress", "data transfer", "external ip", "network", " ip "]) {
        BilledKind::Traffic
    } else if has(&["core", " ram", "gpu", "local ssd", "local storage", "instance"]) {
        BilledKind::Machine
    } else if has(&["pd capacity", "disk", "hyperdisk"]) {
        BilledKind::Disk
    } else {
        BilledKind::Other
    }
}

/// By Azure's category and name of a meter.
pub fn of_azure(category: &str, meter: &str) -> BilledKind {
    let (category, meter) = (category.to_lowercase(), meter.to_lowercase());
    match &*category {
        "virtual machines" | "virtual machines licenses" => BilledKind::Machine,
        "storage" if meter.contains("snapshot") => BilledKind::Snapshot,
        "storage" => BilledKind::Disk,
        "bandwidth" | "virtual network" | "nat gateway" | "load balancer" => BilledKind::Traffic,
        _ => BilledKind::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn providers_words_have_a_kind() {
        let aws = |usage| of_aws(usage).word();
        assert_eq!(aws("BoxUsage:g5.xlarge"), "machine");
        assert_eq!(aws("USW2-SpotUsage:p4d.24xlarge"), "machine");
        assert_eq!(aws("EBS:VolumeUsage.gp3"), "disk");
        assert_eq!(aws("EBS:VolumeP-IOPS.gp3"), "disk");
        assert_eq!(aws("USW2-EBS:VolumeP-Throughput.gp3"), "disk");
        assert_eq!(aws("EBS:SnapshotUsage"), "snapshot");
        assert_eq!(aws("DataTransfer-Out-Bytes"), "traffic");
        assert_eq!(aws("USE1-USW2-AWS-Out-Bytes"), "traffic");
        assert_eq!(aws("PublicIPv4:InUseAddress"), "traffic");
        assert_eq!(aws("Requests-Tier1"), "other");
        let gcp = |sku| of_gcp(sku).word();
        assert_eq!(gcp("A2 Instance Core running in Americas"), "machine");
        assert_eq!(gcp("Nvidia Tesla A100 GPU attached to Spot Preemptible VMs running in Iowa"), "machine");
        assert_eq!(gcp("Storage PD Capacity"), "disk");
        assert_eq!(gcp("Storage PD Snapshot in US"), "snapshot");
        assert_eq!(gcp("Network Internet Data Transfer Out from Americas to EMEA"), "traffic");
        assert_eq!(gcp("External IP Charge on a Spot Preemptible VM"), "traffic");
        assert_eq!(gcp("Support"), "other");
        let azure = |category, meter| of_azure(category, meter).word();
        assert_eq!(azure("Virtual Machines", "NC24ads A100 v4 Spot"), "machine");
        assert_eq!(azure("Storage", "P30 LRS Disk"), "disk");
        assert_eq!(azure("Storage", "LRS Snapshots"), "snapshot");
        assert_eq!(azure("Bandwidth", "Standard Data Transfer Out"), "traffic");
        assert_eq!(azure("Key Vault", "Operations"), "other");
    }
}
