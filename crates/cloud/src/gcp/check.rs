//! What an identity must be allowed in a project of Google Cloud, and the role that allows it.

use serde_json::{Value, json};

/// Where permissions of a project are asked for.
pub(super) const PROJECTS: &str = "https://cloudresourcemanager.googleapis.com";

/// What a run and an audit need.
pub(super) const PERMISSIONS: [&str; 21] = [
    "compute.addresses.delete",
    "compute.addresses.list",
    "compute.disks.create",
    "compute.disks.delete",
    "compute.disks.list",
    "compute.disks.setLabels",
    "compute.images.list",
    "compute.instances.create",
    "compute.instances.delete",
    "compute.instances.get",
    "compute.instances.list",
    "compute.instances.setLabels",
    "compute.instances.setMetadata",
    "compute.instances.setTags",
    "compute.instances.start",
    "compute.instances.stop",
    "compute.regions.get",
    "compute.snapshots.list",
    "compute.subnetworks.use",
    "compute.subnetworks.useExternalIp",
    "compute.zoneOperations.get",
];

/// What an account of Google's is allowed.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct GcpReport {
    pub project: String,
    /// Machines of the owner.
    pub machines: usize,
    /// Permissions that are not there.
    pub missing: Vec<&'static str>,
    /// Why permissions are not known.
    pub unknown: Option<String>,
}

/// The least role with which jobs can be run, as `gcloud iam roles create --file` reads it.
pub fn role() -> Value {
    json!({ "title": "gradus", "stage": "GA", "includedPermissions": PERMISSIONS })
}
