//! What is asked for: one machine, with the disk, the network interface and the address that go when it goes.

use std::collections::BTreeMap;

use domain::boot_disk::BootDisk;
use domain::{Bytes, Rate};
use serde_json::{Value, json};

use super::AzureOptions;
use crate::aws::base64;
use crate::aws::wire::query::{EXPIRES_TAG, INSTANCE_TAG, OWNER_TAG};
use crate::aws::wire::times::rfc3339;
use crate::rented::user_data::user_data;
use crate::rented::{CloudFailure, LaunchOrder};

/// The version of the network's API with which an interface is made along with its machine.
const NETWORK_VERSION: &str = "2022-11-01";

/// Microsoft's image for GPUs: Ubuntu 22.04 with NVIDIA's driver.
const IMAGE: &str = "microsoft-dsvm:ubuntu-hpc:2204:latest";

/// The largest disk that a system may have.
const LARGEST_GIB: u64 = 4095;

/// Endings of machine types with GPUs of NVIDIA that the image's driver runs, and processors that are x86-64.
const DRIVEN: [&str; 6] = ["as_T4_v3", "_A100_v4", "_H100_v5", "_H200_v5", "asr_v4", "s_v2"];

/// Whether gradus rents machines of this type. Not those with a part of a GPU or for graphics (NV), which need another
/// driver, FPGAs (NP), GPUs of AMD (NG, MI300X), confidential ones (NCC), ARM (GB200), and V100 of NC, which Azure retired
/// in September 2025.
pub(super) fn is_driven(machine: &str) -> bool {
    let family = ["Standard_NC", "Standard_ND"].iter().find_map(|family| machine.strip_prefix(family));
    family.is_some_and(|rest| {
        rest.starts_with(|first: char| first.is_ascii_digit()) && DRIVEN.iter().any(|end| rest.ends_with(end))
    })
}

/// Gibibytes of the disk of a machine with so much for its work. Azure bills disks by sizes that double.
pub fn disk_gib(work: Bytes) -> u64 {
    BootDisk::AZURE.gib(work)
}

/// The machine as the Resource Manager wants it. It has no identity, so that programs on it find no credentials.
///
/// # Errors
/// [`CloudFailure::Invalid`] where it cannot be had.
pub(super) fn machine(order: &LaunchOrder<'_>, subnet: &str, options: &AzureOptions) -> Result<Value, CloudFailure> {
    let (choice, request) = (order.choice, order.request);
    let gib = disk_gib(request.offer.node.disk_free);
    if gib > LARGEST_GIB + 1 {
        let most = LARGEST_GIB - BootDisk::AZURE.system_gib;
        return Err(CloudFailure::Invalid(format!("a machine of Azure has a disk of at most {most} GiB for its work")));
    }
    let user = "azureuser";
    let key = json!({ "path": format!("/home/{user}/.ssh/authorized_keys"), "keyData": order.public_key.trim() });
    let mut properties = json!({
        "hardwareProfile": { "vmSize": choice.machine },
        "storageProfile": {
            "imageReference": image(options.image.as_deref().unwrap_or(IMAGE))?,
            "osDisk": {
                "createOption": "FromImage",
                "deleteOption": "Delete",
                "diskSizeGB": gib.min(LARGEST_GIB),
                "managedDisk": { "storageAccountType": "Premium_LRS" },
            },
        },
        "osProfile": {
            "computerName": order.name,
            "adminUsername": user,
            "customData": base64(user_data(order.public_key).as_bytes()),
            "linuxConfiguration": { "disablePasswordAuthentication": true, "ssh": { "publicKeys": [key] } },
        },
        "networkProfile": network(order.name, subnet),
    });
    if choice.is_spot {
        properties["priority"] = "Spot".into();
        properties["evictionPolicy"] = "Delete".into();
        properties["billingProfile"] = json!({ "maxPrice": dollars(request.price_cap.unwrap_or(request.offer.rate)) });
    }
    let mut machine = json!({ "location": choice.region, "tags": tags(order), "properties": properties });
    if let Some(zone) = &choice.zone {
        machine["zones"] = json!([zone]);
    }
    Ok(machine)
}

fn tags(order: &LaunchOrder<'_>) -> BTreeMap<&'static str, String> {
    let instance = order.request.members.first().map(ToString::to_string).unwrap_or_default();
    let mut tags = BTreeMap::from([(OWNER_TAG, order.owner.to_owned()), (INSTANCE_TAG, instance)]);
    tags.extend(order.request.expires.map(|expires| (EXPIRES_TAG, rfc3339(expires))));
    tags
}

/// One interface with one address, both made along with the machine and deleted along with it.
fn network(name: &str, subnet: &str) -> Value {
    json!({
        "networkApiVersion": NETWORK_VERSION,
        "networkInterfaceConfigurations": [{
            "name": name,
            "properties": {
                "primary": true,
                "deleteOption": "Delete",
                "ipConfigurations": [{
                    "name": name,
                    "properties": {
                        "primary": true,
                        "subnet": { "id": subnet },
                        "publicIPAddressConfiguration": {
                            "name": name,
                            "sku": { "name": "Standard", "tier": "Regional" },
                            "properties": { "deleteOption": "Delete", "publicIPAllocationMethod": "Static" },
                        },
                    },
                }],
            },
        }],
    })
}

/// An image by its address, or as `PUBLISHER:OFFER:SKU:VERSION`.
fn image(text: &str) -> Result<Value, CloudFailure> {
    if text.starts_with('/') {
        return Ok(json!({ "id": text }));
    }
    match text.split(':').collect::<Vec<_>>()[..] {
        [publisher, offer, sku, version] => {
            Ok(json!({ "publisher": publisher, "offer": offer, "sku": sku, "version": version }))
        }
        _ => Err(CloudFailure::Invalid(format!(
            "`{text}` in `azure.json` is no image; write `PUBLISHER:OFFER:SKU:VERSION`, or `/subscriptions/…`"
        ))),
    }
}

/// Dollars an hour, with the five digits that Azure reads, rounded up.
fn dollars(rate: Rate) -> Value {
    let micros = rate.micros_per_hour().unsigned_abs().div_ceil(10).saturating_mul(10);
    domain::money::decimal(micros, 2, 6).parse::<f64>().map_or(Value::Null, Value::from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::Catalog;

    #[test]
    fn only_machines_that_the_image_runs_are_rented() {
        let check = |machine: &str, expected: bool| assert_eq!(is_driven(machine), expected, "{machine}");
        for machine in ["NC4as_T4_v3", "NC96ads_A100_v4", "ND96amsr_A100_v4", "ND96asr_v4", "ND40rs_v2"] {
            check(&format!("Standard_{machine}"), true);
        }
        for machine in ["NC40ads_H100_v5", "NC80adis_H100_v5", "ND96isr_H100_v5", "ND96isr_H200_v5"] {
            check(&format!("Standard_{machine}"), true);
        }
        for machine in ["NV36ads_A10_v5", "NV12s_v2", "NP10s", "NG8ads_V620_v1", "ND96isr_MI300X_v5", "NC6s_v3"] {
            check(&format!("Standard_{machine}"), false);
        }
        for machine in ["NCC40ads_H100_v5", "ND128isr_NDR_GB200_v6", "NC24_Promo", "NC36ds_xl_RTXPRO6000BSE_v6"] {
            check(&format!("Standard_{machine}"), false);
        }
        let catalog = Catalog::embedded().unwrap();
        let of_azure = catalog.listings.iter().filter(|listing| listing.cloud == domain::listing::Cloud::Azure);
        assert!(of_azure.filter(|listing| is_driven(&listing.instance_type)).count() > 100);
    }

    #[test]
    fn disks_have_sizes_that_are_billed() {
        assert_eq!(disk_gib(Bytes(64 << 30)), 128);
        assert_eq!(disk_gib(Bytes((64 << 30) + 1)), 256);
        assert_eq!(disk_gib(Bytes(1 << 40)), 2048);
    }

    #[test]
    fn images_are_named_or_addressed() {
        assert_eq!(image(IMAGE).unwrap()["offer"], "ubuntu-hpc");
        assert_eq!(image("/subscriptions/s/i").unwrap(), json!({ "id": "/subscriptions/s/i" }));
        assert!(matches!(image("ubuntu"), Err(CloudFailure::Invalid(why)) if why.contains("`ubuntu`")));
    }

    #[test]
    fn a_price_limit_is_never_below_the_price() {
        assert_eq!(dollars(Rate::from_micros_per_hour(1_234_567)), json!(1.23457));
        assert_eq!(dollars(Rate::from_micros_per_hour(2_000_000)), json!(2.0));
    }
}
