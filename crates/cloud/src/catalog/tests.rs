//! Consistency of the embedded tables, and errors with their lines.

mod imports;
mod refreshes;
mod sources;
mod wishes;

use std::collections::BTreeSet;
use std::sync::LazyLock;

use domain::gpu::{GpuClass, GpuMemoryKind, GpuPlatform};
use domain::listing::Cloud;
use domain::region::Compliance;
use domain::{Bytes, Elapsed, Rate};
use proptest::prelude::*;

use super::*;

fn embedded() -> Catalog {
    Catalog::embedded().unwrap()
}

fn gibibytes(gibibytes: f64) -> Option<Bytes> {
    Some(Bytes((gibibytes * f64::from(1 << 30)) as u64))
}

#[test]
fn every_table_is_read() {
    let catalog = embedded();
    assert!(catalog.listings.len() > 3_800, "{}", catalog.listings.len());
    assert!(catalog.gpus.list.len() > 50);
    for cloud in [Cloud::Aws, Cloud::Azure, Cloud::Gcp, Cloud::Alibaba, Cloud::Lambda] {
        assert!(catalog.listings.iter().any(|listing| listing.cloud == cloud), "{cloud}");
    }
    let keys: BTreeSet<_> =
        catalog.listings.iter().map(|row| (row.cloud.name(), &row.region, &row.instance_type)).collect();
    assert_eq!(keys.len(), catalog.listings.len(), "a listing stands there twice");
}

#[test]
fn every_spelling_resolves_or_is_left_out_with_a_reason() {
    let catalog = embedded();
    for listing in &catalog.listings {
        let gpus = &listing.gpus;
        let whole = gpus.memory.map(|memory| Bytes(memory.0 * u64::from(gpus.slice)));
        match gpus.name.as_deref().and_then(|name| catalog.gpus.named(name)) {
            Some(gpu) => assert_eq!(
                catalog.gpu(&gpus.spelled, whole).map(|gpu| gpu.memory),
                Some(gpu.memory),
                "{} {}",
                listing.instance_type,
                gpus.spelled
            ),
            None => assert!(catalog.gpus.left_out(&gpus.spelled).is_some(), "{}", gpus.spelled),
        }
    }
}

#[test]
fn spellings_mean_one_gpu() {
    let catalog = embedded();
    let check = |spelling: &str, memory: Option<Bytes>, name: Option<&str>| {
        assert_eq!(catalog.gpu(spelling, memory).map(|gpu| gpu.name.as_str()), name, "{spelling} {memory:?}");
    };
    check("A100", None, Some("A100-SXM4-40GB"));
    check("a100", gibibytes(80.0), Some("A100-SXM4-80GB"));
    check("A100-80GB", None, Some("A100-SXM4-80GB"));
    check("NVIDIA A100-SXM4-80GB", None, Some("A100-SXM4-80GB"));
    check("A100-PCIe", gibibytes(80.0), Some("A100-PCIe-80GB"));
    check("Tesla V100", gibibytes(32.0), Some("V100-SXM2-32GB"));
    check("Quadro RTX 8000", None, Some("RTX8000"));
    check("l4", gibibytes(22.4), Some("L4"));
    check("L4-24GB", None, Some("L4"));
    check("L4", gibibytes(80.0), None);
    check("NVIDIA H100 80GB HBM3", None, Some("H100-SXM5"));
    check("H100", gibibytes(94.0), Some("H100-NVL"));
    check("b300", gibibytes(268.6), Some("B300-SXM"));
    check("RTX PRO 6000", None, Some("RTX-PRO-6000"));
    check("RTX6000", None, Some("RTX6000"));
    check("H100-96GB", None, Some("H100-SXM5-96GB"));
    check("GH200", None, Some("GH200"));
    check("gh200", gibibytes(144.0), Some("GH200-144GB"));
    check("NVIDIA GeForce RTX 5090", None, Some("RTX5090"));
    check("5070 Ti", None, Some("RTX5070Ti"));
    check("AMD Instinct MI355X", None, Some("MI355X"));
    check("K80", None, None);
    check("K9000", None, None);
    check("", None, None);
    check("é", None, None);
}

#[test]
fn gpus_are_possible() {
    for gpu in &embedded().gpus.list {
        let name = &gpu.name;
        assert!(gpu.usable < gpu.memory && gpu.usable.0 > gpu.memory.0 * 85 / 100, "{name}");
        let tensor = gpu.rates.fp16.unwrap_or(gpu.rates.fp32);
        assert!(gpu.rates.fp32 <= tensor && tensor < 3e15, "{name}");
        assert!(gpu.rates.fp8.is_none_or(|fp8| fp8 > tensor && fp8 < tensor * 2.1), "{name}");
        assert!((1e11..1e13).contains(&gpu.bandwidth) && (50.0..2000.0).contains(&gpu.power), "{name}");
        assert!(!gpu.source.is_empty(), "{name}");
    }
}

#[test]
fn columns_say_what_no_rate_does() {
    let catalog = embedded();
    let named = |is: &dyn Fn(&Gpu) -> bool| -> Vec<&str> {
        catalog.gpus.list.iter().filter(|gpu| is(gpu)).map(|gpu| gpu.name.as_str()).collect()
    };
    let is_geforce = |gpu: &Gpu| {
        let series = gpu.name.strip_prefix("RTX").and_then(|name| name.get(2..4)).and_then(|last| last.parse().ok());
        gpu.name.starts_with("GTX") || gpu.name.starts_with("Titan") || series.is_some_and(|last: u32| last >= 50)
    };
    assert_eq!(named(&|gpu| gpu.traits.class == GpuClass::Consumer), named(&is_geforce));
    // The driver lets GeForce cards read each other's memory up to Pascal.
    let expected = named(&|gpu| is_geforce(gpu) && !gpu.name.starts_with("GTX"));
    assert_eq!(named(&|gpu| !gpu.traits.peer_access), expected);
    let arm = named(&|gpu| gpu.traits.platform == GpuPlatform::CudaArm);
    assert!(arm.contains(&"T4G") && arm.contains(&"GB300") && !arm.contains(&"B300-SXM"), "{arm:?}");
    assert_eq!(named(&|gpu| gpu.traits.platform == GpuPlatform::Rocm), named(&|gpu| gpu.name.starts_with("MI")));
    assert_eq!(named(&|gpu| gpu.traits.nvlink_domain.is_some()), ["GB200", "GB300"]);
    for gpu in &catalog.gpus.list {
        // Stacked memory has more bandwidth for each multiprocessor than graphics memory, but on small graphics chips.
        let each = gpu.bandwidth / f64::from(gpu.multiprocessors);
        let is_stacked = gpu.traits.memory_kind == GpuMemoryKind::Stacked;
        assert!(!is_stacked || each > 11e9, "{}", gpu.name);
        assert!(!gpu.traits.described, "{}", gpu.name);
    }
}

#[test]
fn places_and_tariffs_are_known() {
    let catalog = embedded();
    for listing in &catalog.listings {
        assert!(catalog.region(&listing.cloud, &listing.region).is_some(), "{} {}", listing.cloud, listing.region);
    }
    let region = |name: &str| catalog.region(&Cloud::Aws, name).unwrap();
    assert!(region("eu-central-1").compliance.contains(&Compliance::Gdpr));
    assert!(!region("us-east-1").compliance.contains(&Compliance::Gdpr));
    assert_eq!(region("us-east-1").carbon.as_ref().unwrap().grams_per_kwh, 343.48);
    assert!(region("me-central-1").carbon.is_none());
    let check = |cloud: Cloud, region: Option<&str>, service: Service, micros: Option<i64>| {
        let found = catalog.tariff(&cloud, region, service).map(|tariff| tariff.price.micros());
        assert_eq!(found, micros, "{cloud} {region:?} {service:?}");
    };
    check(Cloud::Aws, None, Service::Egress, Some(90_000));
    check(Cloud::Lambda, None, Service::Egress, Some(0));
    check(Cloud::Tencent, Some("ap-shanghai"), Service::Egress, None);
    // A region's own price, and that of the cloud where a region has none.
    check(Cloud::Aws, Some("sa-east-1"), Service::SsdDisk, Some(152_000));
    check(Cloud::Aws, Some("sa-east-1"), Service::SsdIops, Some(9_500));
    check(Cloud::Aws, Some("us-east-1"), Service::SsdThroughput, Some(40_000));
    check(Cloud::Aws, Some("eu-central-1"), Service::Io2Iops, Some(78_000));
    check(Cloud::Aws, Some("sa-east-1"), Service::Io2Disk, None);
    check(Cloud::Gcp, Some("southamerica-east1"), Service::Egress, Some(190_000));
    check(Cloud::Azure, Some("francecentral"), Service::Objects, Some(17_664));
    check(Cloud::Azure, Some("japaneast"), Service::Objects, Some(18_000));
    check(Cloud::named("oci"), Some("any"), Service::SsdDisk, Some(42_500));
    check(Cloud::Aws, Some("eu-west-1"), Service::Address, Some(5_000));
    check(Cloud::Alibaba, None, Service::Address, None);
    let mut keys: Vec<_> =
        catalog.tariffs.iter().map(|one| (one.cloud.name(), &one.region, one.service.word())).collect();
    keys.sort_unstable();
    let all = keys.len();
    keys.dedup();
    assert_eq!(keys.len(), all, "a tariff stands there twice");
}

#[test]
fn prices_are_what_the_tables_say() {
    let catalog = embedded();
    let find = |cloud: Cloud, region: &str, kind: &str| {
        let mut listings = catalog.listings.iter();
        listings.find(|row| row.cloud == cloud && row.region == region && row.instance_type == kind).unwrap()
    };
    let p4d = find(Cloud::Aws, "us-east-1", "p4d.24xlarge");
    assert_eq!(p4d.on_demand.as_ref().unwrap().rate.to_string(), "$21.957642/h");
    assert_eq!(p4d.on_demand.as_ref().unwrap().dated, "2026-07-20");
    assert_eq!(p4d.reserved_1y.as_ref().unwrap().dated, "2025-05");
    assert!(p4d.spot.as_ref().unwrap().derived.is_some());
    assert_eq!(p4d.interrupted, Some((10, 15)));
    assert_eq!((p4d.gpus.count, p4d.gpus.slice, p4d.network), (8, 1, Some(400e9)));
    // Elsewhere prices are older, and those of P4 and P5 are derived.
    let g5 = find(Cloud::Aws, "eu-central-1", "g5.xlarge").on_demand.clone().unwrap();
    assert_eq!((g5.rate.to_string().as_str(), g5.dated.as_str(), g5.derived), ("$1.258/h", "2025-04-04", None));
    let p5 = find(Cloud::Aws, "us-west-2", "p5.48xlarge").on_demand.clone().unwrap();
    assert_eq!(p5.rate.to_string(), "$55.04/h");
    assert!(p5.derived.unwrap().contains("the cut of June 2025"));
    // The GPUs are part of a GCP price: cores and memory alone would be less than a dollar.
    assert!(
        find(Cloud::Gcp, "us-central1", "a2-highgpu-1g").on_demand.as_ref().unwrap().rate.micros_per_hour() > 3_000_000
    );
    // 297.476 yuan at 7.1072 a dollar.
    let yuan = find(Cloud::Alibaba, "ap-northeast-1", "ecs.ebmgn7e.32xlarge").on_demand.clone().unwrap();
    assert_eq!(yuan.rate.to_string(), "$41.855583/h");
    assert_eq!(yuan.derived.as_deref(), Some("297.476 CNY an hour at 7.1072 CNY a dollar, 2025-09-01"));
    // The source table says 0, which is not a price.
    assert!(find(Cloud::Alibaba, "us-east-1", "ecs.ebmgn7ix.32xlarge").on_demand.is_none());
    assert!(find(Cloud::Tencent, "ap-shanghai", "GN10Xp.20XLARGE320").on_demand.is_none());
    let sixth = &find(Cloud::Azure, "eastus", "Standard_NV6ads_A10_v5").gpus;
    assert_eq!((sixth.count, sixth.slice, sixth.memory), (1, 6, gibibytes(4.0)));
}

#[test]
fn a_price_is_not_a_machine() {
    use Availability::{Denied, Known, Unknown};
    use PurchaseOption::{OnDemand, Spot};
    let catalog = embedded();
    let check = |region: &str, kind: &str, terms: PurchaseOption, expected: Availability| {
        let mut listings = catalog.listings.iter();
        let listing = listings.find(|row| row.region == region && row.instance_type == kind).unwrap();
        assert_eq!(catalog.availability(listing, terms), expected, "{region} {kind}");
    };
    check("us-central1", "a3-highgpu-8g", OnDemand, Known);
    check("us-central1", "a3-highgpu-8g", Spot, Known);
    check("northamerica-northeast1", "a3-highgpu-8g", OnDemand, Denied);
    check("northamerica-northeast1", "a3-highgpu-8g", Spot, Denied);
    // Two sources contradict each other.
    check("europe-west8", "a3-highgpu-8g", OnDemand, Unknown);
    check("us-central1", "g2-standard-4", OnDemand, Known);
    check("africa-south1", "g2-standard-4", Spot, Denied);
    check("us-east-1", "p4d.24xlarge", Spot, Known);
    // Nobody states a spot market of it.
    check("us-east-1", "p6-b200.48xlarge", OnDemand, Known);
    check("us-east-1", "p6-b200.48xlarge", Spot, Unknown);
    check("eastus", "Standard_ND96isr_H100_v5", OnDemand, Unknown);
}

#[test]
fn the_longest_name_says_whether_a_machine_is_there() {
    let catalog = embedded();
    for listing in &catalog.listings {
        for terms in PurchaseOption::ALL {
            let rows = catalog.availability.get(&listing.cloud).into_iter().flatten();
            let named = rows
                .filter(|row| listing.instance_type.starts_with(&row.machines) && row.terms.contains(&terms))
                .max_by_key(|row| row.machines.len());
            assert_eq!(catalog.says(listing, terms), named, "{} {terms:?}", listing.instance_type);
        }
    }
}

#[test]
fn of_every_offer_it_is_said_whether_it_is_there() {
    let catalog = embedded();
    for listing in &catalog.listings {
        for terms in PurchaseOption::ALL.into_iter().filter(|terms| terms.price(listing).is_some()) {
            assert!(catalog.says(listing, terms).is_some(), "{} {} {terms:?}", listing.cloud, listing.instance_type);
        }
    }
}

#[test]
fn what_was_imported_is_there() {
    let mut catalog = embedded();
    let denied = |catalog: &Catalog| {
        let there = |row: &&Listing| catalog.availability(row, PurchaseOption::OnDemand) == Availability::Denied;
        catalog.listings.iter().filter(there).cloned().collect::<Vec<_>>()
    };
    let before = denied(&catalog);
    let imported = before[0].clone();
    catalog.add(import::Import { name: "mine".into(), listings: 1 }, vec![imported]);
    assert_eq!(denied(&catalog).len(), before.len() - 1);
}

#[test]
fn what_is_impossible_in_a_market_is_not_in_the_tables() {
    for row in &embedded().listings {
        let name = format!("{} {} {}", row.cloud, row.region, row.instance_type);
        let Some(on_demand) = row.on_demand.as_ref().map(|price| price.rate) else { continue };
        assert!(on_demand > Rate::default(), "{name}");
        for price in [&row.spot, &row.reserved_1y, &row.reserved_3y].into_iter().flatten() {
            assert!(price.rate > Rate::default() && price.rate < on_demand, "{name}");
        }
    }
}

/// A decimal text times an integer, in cents, rounded half up, independent of our own code.
fn cents(amount: &str, times: u64) -> i128 {
    let (whole, fraction) = amount.split_once('.').unwrap_or((amount, ""));
    let digits: i128 = format!("{whole}{fraction}").parse().unwrap();
    let unit = 10_i128.pow(fraction.len() as u32);
    (digits * i128::from(times) * 100 * 2 + unit).div_euclid(unit * 2)
}

/// Every listing with the text of its price on demand.
static ROWS: LazyLock<Vec<(Listing, String)>> = LazyLock::new(|| {
    let amounts = EMBEDDED.offers.lines().skip(1).map(|line| line.split(',').nth(3).unwrap().to_owned());
    embedded().listings.into_iter().zip(amounts).filter(|(_, amount)| !amount.is_empty()).collect()
});

proptest! {
    #[test]
    fn hours_cost_what_decimal_arithmetic_says(hours in 1_u64..20_000, pick in any::<prop::sample::Index>()) {
        let (listing, amount) = &ROWS[pick.index(ROWS.len())];
        let price = listing.on_demand.as_ref().unwrap();
        let cost = price.rate.cost(Elapsed(hours * 3_600_000_000));
        let ours = (i128::from(cost.micros()) + 5_000).div_euclid(10_000);
        if price.derived.as_ref().is_some_and(|derived| derived.contains(" CNY an hour at ")) {
            // At most one rounding of half a micro-dollar per hour.
            let yuan = cents(amount, hours) as f64 / 7.1072;
            prop_assert!((ours as f64 - yuan).abs() <= 2.0, "{amount} × {hours}: {ours} cents, not {yuan}");
        } else {
            prop_assert_eq!(ours, cents(amount, hours), "{} × {}", amount, hours);
        }
    }
}
