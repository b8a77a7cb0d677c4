//! The parameters of `RunInstances`, as a pure function.

use domain::{Bytes, Rate, Timestamp};

use super::AlibabaOptions;
use crate::aws::base64;
use crate::aws::wire::query::{EXPIRES_TAG, INSTANCE_TAG, OWNER_TAG, Params, params};
use crate::aws::wire::times::rfc3339;
use crate::catalog::Catalog;
use crate::rented::user_data::user_data_with_driver;
use crate::rented::{CloudFailure, LaunchOrder};

/// The newest image of Ubuntu 22.04, without a driver.
const IMAGE: &str = "acs:ubuntu_22_04_x64";

/// Disk for the system and its driver, in addition to that of the work.
const SYSTEM_GIB: u64 = 40;

/// The largest disk that a system may have.
const LARGEST_GIB: u64 = 2048;

/// Families that take no newer kind of disk.
const OLD_DISKS: [&str; 2] = ["ecs.gn5-", "ecs.gn5i-"];

/// Gibibytes of the disk of a machine with so much for its work.
pub fn disk_gib(work: Bytes) -> u64 {
    work.0.div_ceil(1 << 30) + SYSTEM_GIB
}

/// Where a machine is put, looked up in its region before it is rented.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct EcsSite {
    pub group: String,
    pub vswitch: String,
}

/// What is sent. The machine has no role, so that programs on it find no credentials.
///
/// # Errors
/// [`CloudFailure::Invalid`] where it cannot be had.
pub(super) fn run_instances(
    order: &LaunchOrder<'_>,
    site: &EcsSite,
    options: &AlibabaOptions,
    now: Timestamp,
) -> Result<Params, CloudFailure> {
    let (choice, request) = (order.choice, order.request);
    let gib = disk_gib(request.offer.node.disk_free);
    if gib > LARGEST_GIB {
        let most = LARGEST_GIB - SYSTEM_GIB;
        let why = format!("a machine of Alibaba Cloud has a disk of at most {most} GiB for its work");
        return Err(CloudFailure::Invalid(why));
    }
    let is_old = OLD_DISKS.iter().any(|family| choice.machine.starts_with(family));
    let image = options.image.as_deref().unwrap_or(IMAGE);
    let mut sent = params([
        ("RegionId", &choice.region),
        ("InstanceType", &choice.machine),
        ("Amount", "1"),
        ("ClientToken", &request.token),
        ("InstanceName", order.name),
        ("InstanceChargeType", "PostPaid"),
        (if image.starts_with("acs:") { "ImageFamily" } else { "ImageId" }, image),
        ("SecurityGroupId", &site.group),
        ("VSwitchId", &site.vswitch),
        ("InternetChargeType", "PayByTraffic"),
        ("InternetMaxBandwidthOut", "100"),
        ("SystemDisk.Category", if is_old { "cloud_ssd" } else { "cloud_essd" }),
        ("SystemDisk.Size", &gib.to_string()),
        ("UserData", &base64(user_data_with_driver(order.public_key).as_bytes())),
    ]);
    if choice.is_spot {
        let limit = price_limit(request.price_cap.unwrap_or(request.offer.rate), options)?;
        sent.extend(params([
            ("SpotStrategy", "SpotWithPriceLimit"),
            ("SpotPriceLimit", &limit),
            ("SpotInterruptionBehavior", "Terminate"),
        ]));
    }
    sent.extend(request.expires.and_then(|expires| released_at(expires, now)).map(|at| ("AutoReleaseTime".into(), at)));
    let instance = request.members.first().map(ToString::to_string).unwrap_or_default();
    let mut tags = vec![(OWNER_TAG, order.owner.to_owned()), (INSTANCE_TAG, instance)];
    tags.extend(request.expires.map(|expires| (EXPIRES_TAG, rfc3339(expires))));
    for (at, (key, value)) in tags.into_iter().enumerate() {
        sent.push((format!("Tag.{}.Key", at + 1), key.to_owned()));
        sent.push((format!("Tag.{}.Value", at + 1), value));
    }
    Ok(sent)
}

/// The most that a spot machine may cost an hour, in the currency of the account and with the three digits that Alibaba reads,
/// rounded up.
fn price_limit(rate: Rate, options: &AlibabaOptions) -> Result<String, CloudFailure> {
    let dollars = i128::from(rate.micros_per_hour());
    let micros = match options.currency.as_deref().unwrap_or("USD") {
        "USD" => dollars,
        code => {
            let catalog = Catalog::embedded().map_err(|error| CloudFailure::Invalid(error.to_string()))?;
            let known = catalog.currencies.iter().find(|currency| currency.code == code);
            let unknown = || format!("`currency` in `alibaba.json` is `{code}`; write `USD` or `CNY`");
            let known = known.ok_or_else(|| CloudFailure::Invalid(unknown()))?;
            dollars * i128::from(known.per_dollar_micros) / 1_000_000
        }
    };
    let micros = u64::try_from(micros).unwrap_or_default();
    Ok(domain::money::decimal(micros.div_ceil(1000).saturating_mul(1000), 0, 3))
}

/// Alibaba releases a machine half an hour from now at the earliest, and on the minute.
const SOONEST: i64 = 35 * MINUTE;

/// Three years, and some days less.
const LATEST: i64 = 1090 * 24 * 60 * MINUTE;

const MINUTE: i64 = 60_000_000;

/// When Alibaba itself releases a machine, whatever becomes of us; none where that is too far off.
fn released_at(expires: Timestamp, now: Timestamp) -> Option<String> {
    let at = expires.0.max(now.0.saturating_add(SOONEST));
    let minute = at.div_euclid(MINUTE) + i64::from(at.rem_euclid(MINUTE) > 0);
    (at.saturating_sub(now.0) < LATEST).then(|| rfc3339(Timestamp(minute.saturating_mul(MINUTE))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::aws::wire::times;

    #[test]
    fn a_price_limit_is_never_below_the_price() {
        let check = |currency: Option<&str>, micros: i64, expected: &str| {
            let options = AlibabaOptions { currency: currency.map(str::to_owned), ..AlibabaOptions::default() };
            assert_eq!(price_limit(Rate::from_micros_per_hour(micros), &options).unwrap(), expected);
        };
        check(None, 1_234_001, "1.235");
        check(None, 2_000_000, "2");
        check(Some("USD"), 500, "0.001");
        // At 7.1072, as the catalog has it.
        check(Some("CNY"), 1_000_000, "7.108");
        let options = AlibabaOptions { currency: Some("EUR".into()), ..AlibabaOptions::default() };
        let refused = price_limit(Rate::from_micros_per_hour(1), &options);
        assert!(matches!(refused, Err(CloudFailure::Invalid(why)) if why.contains("`EUR`; write `USD` or `CNY`")));
    }

    #[test]
    fn alibaba_ends_a_machine_that_nobody_needs_any_more() {
        let at = |text: &str| times::read(text).unwrap();
        let check = |expires: &str, expected: Option<&str>| {
            let found = released_at(at(expires), at("2026-11-27T05:00:00Z"));
            assert_eq!(found.as_deref(), expected, "{expires}");
        };
        check("2026-11-28T05:00:00Z", Some("2026-11-28T05:00:00Z"));
        // Rounded down it would be released before its time.
        check("2026-11-28T05:00:01Z", Some("2026-11-28T05:01:00Z"));
        check("2026-11-27T05:10:00Z", Some("2026-11-27T05:35:00Z"));
        check("2030-01-01T00:00:00Z", None);
    }

    #[test]
    fn a_disk_has_the_work_and_the_system() {
        assert_eq!(disk_gib(Bytes(100 << 30)), 140);
        assert_eq!(disk_gib(Bytes((100 << 30) + 1)), 141);
    }
}
