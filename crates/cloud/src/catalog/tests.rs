//! The embedded tables hold what they promise, and what is wrong is said with its line.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use domain::listing::Cloud;
use domain::region::Compliance;
use domain::{Bytes, Elapsed, Rate};
use proptest::prelude::*;

use super::import::Defaults;
use super::wanted::{Market, Wanted};
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
    assert!(catalog.listings.len() > 3_500, "{}", catalog.listings.len());
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
        match catalog.gpu_of(listing) {
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
    let price = |cloud, service| catalog.tariff(&cloud, service).map(|tariff| tariff.price.to_string());
    assert_eq!(price(Cloud::Aws, Service::Egress).as_deref(), Some("$0.09"));
    assert_eq!(price(Cloud::Lambda, Service::Egress).as_deref(), Some("$0.00"));
    assert_eq!(price(Cloud::Tencent, Service::Egress), None);
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
    // The GPUs are part of a GCP price: cores and memory alone would be less than a dollar.
    assert!(
        find(Cloud::Gcp, "us-central1", "a2-highgpu-1g").on_demand.as_ref().unwrap().rate.micros_per_hour() > 3_000_000
    );
    // 297.476 yuan at 7.1072 a dollar.
    let yuan = find(Cloud::Alibaba, "ap-northeast-1", "ecs.ebmgn7e.32xlarge").on_demand.clone().unwrap();
    assert_eq!(yuan.rate.to_string(), "$41.855583/h");
    assert_eq!(yuan.derived.as_deref(), Some("297.476 CNY an hour at 7.1072 CNY a dollar, 2025-09-01"));
    // The table it came from says 0, which is no price.
    assert!(find(Cloud::Alibaba, "us-east-1", "ecs.ebmgn7ix.32xlarge").on_demand.is_none());
    assert!(find(Cloud::Tencent, "ap-shanghai", "GN10Xp.20XLARGE320").on_demand.is_none());
    let sixth = &find(Cloud::Azure, "eastus", "Standard_NV6ads_A10_v5").gpus;
    assert_eq!((sixth.count, sixth.slice, sixth.memory), (1, 6, gibibytes(4.0)));
}

#[test]
fn a_price_is_not_a_machine() {
    let catalog = embedded();
    let check = |region: &str, kind: &str, expected: Option<bool>| {
        let mut listings = catalog.listings.iter();
        let listing = listings.find(|row| row.region == region && row.instance_type == kind).unwrap();
        assert_eq!(catalog.stocked(listing), expected, "{region} {kind}");
    };
    check("us-central1", "a3-highgpu-8g", Some(true));
    check("northamerica-northeast1", "a3-highgpu-8g", Some(false));
    check("europe-west8", "a3-highgpu-1g", Some(true));
    check("europe-west8", "a3-highgpu-8g", Some(false));
    check("us-central1", "g2-standard-4", None);
    check("us-east-1", "p4d.24xlarge", None);
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

/// A decimal text times a whole number, in cents, rounded half up; nothing of ours is used.
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
        if listing.cloud == Cloud::Alibaba {
            // One rounding of half a micro-dollar an hour at most.
            let yuan = cents(amount, hours) as f64 / 7.1072;
            prop_assert!((ours as f64 - yuan).abs() <= 2.0, "{amount} × {hours}: {ours} cents, not {yuan}");
        } else {
            prop_assert_eq!(ours, cents(amount, hours), "{} × {}", amount, hours);
        }
    }
}

/// How many listings are wanted, or what is wrong with the wish.
fn wanted(gpu: &str, change: impl FnOnce(&mut Wanted)) -> Result<usize, String> {
    let catalog = embedded();
    let mut wanted = Wanted { gpu: Some(gpu.parse()?), ..Wanted::default() };
    change(&mut wanted);
    wanted.check(&catalog).map_err(|unknown| format!("{unknown}; {}", unknown.hint()))?;
    let found = catalog.listings.iter().filter(|row| wanted.admits(&catalog, row) && wanted.affords(row));
    Ok(found.count())
}

#[test]
fn wishes_are_held_against_listings() {
    let check = |gpu: &str, change: fn(&mut Wanted), least: usize, most: usize| {
        let count = wanted(gpu, change).unwrap();
        assert!((least..=most).contains(&count), "{gpu}: {count}");
    };
    let all = wanted("A100", |_| {}).unwrap();
    check("A100:8", |_| {}, 100, all - 1);
    check("A100-80GB", |_| {}, 100, all - 1);
    check("80GB+:8", |_| {}, 300, 600);
    check("80GB:8", |_| {}, 200, wanted("80GB+:8", |_| {}).unwrap() - 1);
    check("A10:1", |_| {}, 50, 200);
    check("A100:8", |wanted| wanted.regions = vec!["us-east-1".into()], 2, 20);
    check("A100:8", |wanted| wanted.regions = vec!["DE".into()], 1, 20);
    check("A100:8", |wanted| wanted.regions = vec!["europe-*".into()], 5, 40);
    check("A100:8", |wanted| wanted.compliance = vec![Compliance::Gdpr], 10, 80);
    check("A100:8", |wanted| wanted.market = Market::Spot, 10, all);
    check("A100:8", |wanted| wanted.max_price = "0.01/h".parse().ok(), 0, 0);
    check("H100:8", |wanted| wanted.clouds = vec!["AWS".into()], 1, 5);
}

#[test]
fn unknown_words_name_known_ones() {
    let check = |gpu: &str, change: fn(&mut Wanted), expected: &str| {
        let error = wanted(gpu, change).unwrap_err();
        assert!(error.contains(expected), "{error}");
    };
    check("A1000", |_| {}, "no GPU `A1000` is known");
    check("RTX4091", |_| {}, "`RTX4090`");
    check("V10", |_| {}, "`V100-PCIe-16GB`");
    check("K800", |_| {}, "no GPU `K800`");
    check("T4", |wanted| wanted.clouds = vec!["awz".into()], "`aws`");
    check("T4", |wanted| wanted.regions = vec!["us-eest-1".into()], "`us-east-1`");
    check("T4", |wanted| wanted.regions = vec!["mars".into()], "no region `mars`");
    check("A100:0", |_| {}, "asks for none");
}

/// Imports a text and shows its listings, or what is wrong.
fn imported(text: &str, cloud: Option<&str>) -> String {
    let defaults =
        Defaults { cloud: cloud.map(str::to_owned), dated: "2026-11-01".into(), source: "imported from t.csv".into() };
    let catalog = embedded();
    match import::read("t.csv", text, &catalog, &defaults) {
        Err(error) => error.to_string(),
        Ok(read) => {
            let again = import::own::text(&read.listings);
            let kept = import::own::read("kept", &again, &catalog, &Defaults::default()).unwrap();
            assert_eq!(kept.listings, read.listings, "what is kept is what was read:\n{again}");
            let price = |price: &Option<domain::listing::Price>| {
                price.as_ref().map_or("-".to_owned(), |price| price.rate.to_string())
            };
            let line = |row: &Listing| {
                let gpus = &row.gpus;
                let name = gpus.name.as_ref().unwrap_or(&gpus.spelled);
                let [on_demand, spot] = [&row.on_demand, &row.spot].map(price);
                format!(
                    "{} {} {} {}/{} {name} {on_demand} {spot}",
                    row.cloud, row.region, row.instance_type, gpus.count, gpus.slice
                )
            };
            let mut lines: Vec<String> = read.listings.iter().map(line).collect();
            lines.extend(read.left_out.iter().map(|(why, count)| format!("left out {count}: {why}")));
            lines.join("\n")
        }
    }
}

#[test]
fn our_own_tables_are_read() {
    let check = |text: &str, expected: &str| assert_eq!(imported(text, None), expected);
    check(
        "cloud,region,instance_type,gpu,gpu_count,vcpu,mem_gib,on_demand\nown,cellar,big-box,RTX 4090,2,32,128,0.35\nown,,old-box,GTX 1080 Ti,1,8,32,0\n",
        "own cellar big-box 2/1 RTX4090 $0.35/h -\nown - old-box 1/1 GTX1080Ti $0.00/h -",
    );
    check(
        "\u{feff}instance_type,gpu,gpu_count,cloud,currency,on_demand,spot,interrupted,dated,source,network_gbps,fabric,link\nbig,A100,8,scp,CNY,71.072,,5-10,2026-10,\"a, b\",400,roce,switch 600\n",
        "scp - big 8/1 A100-SXM4-40GB $10.00/h -",
    );
    check("instance_type,gpu,gpu_count,cloud,on_demand\nodd,Z9000,1,x,1\n", "x - odd 1/1 Z9000 $1.00/h -");
    assert_eq!(
        imported("instance_type,gpu,gpu_count,on_demand\nbox,T4,1,0.1\n", Some("own")),
        "own - box 1/1 T4 $0.10/h -"
    );
}

const SKYPILOT: &str =
    "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice\n";

#[test]
fn skypilot_tables_are_read() {
    let check = |cloud: &str, rows: &str, expected: &str| {
        assert_eq!(imported(&format!("{SKYPILOT}{rows}"), Some(cloud)), expected);
    };
    check(
        "aws",
        "p4d.24xlarge,96.0,1152.0,A100,8.0,\"{'Gpus': [{'Name': 'A100', 'MemoryInfo': {'SizeInMiB': 40960}}], 'TotalGpuMemoryInMiB': 327680}\",us-east-1,us-east-1a,21.5,9.5\n\
         p4d.24xlarge,96.0,1152.0,A100,8.0,,us-east-1,us-east-1b,21.5,8.25\n\
         m5.large,2.0,8.0,,,,us-east-1,us-east-1a,0.096,0.03\n\
         g6f.large,2.0,8.0,L4,0.125,,us-east-1,us-east-1a,0.202,\n",
        "aws us-east-1 p4d.24xlarge 8/1 A100-SXM4-40GB $21.50/h $8.25/h\naws us-east-1 g6f.large 1/8 L4 $0.202/h -\nleft out 1: a machine without GPUs that are known here",
    );
    // The trap: the price of the GPUs stands in another row.
    check(
        "gcp",
        "a2-highgpu-1g,12.0,85.0,,,,us-central1,us-central1-a,0.73948,0.36975\n\
         a3-megagpu-8g,208,1872,,,,us-central1,us-central1-a,9,3\n\
         n1-highmem-8,8.0,52.0,,,,us-central1,us-central1-a,0.47321,0.09962\n\
         ,,,A100,1.0,,us-central1,us-central1-a,2.934,1.1\n\
         ,,,H100,8.0,,us-central1,us-central1-a,80,30\n\
         ,,,tpu-v6e-64,1,tpu-v6e-64,us-central1,us-central1-a,172.8,700\n",
        "gcp us-central1 a2-highgpu-1g 1/1 A100-SXM4-40GB $3.67348/h $1.46975/h\nleft out 1: a machine without GPUs that are known here\n\
         left out 1: the price of its GPUs is missing; the row holds cores and memory only",
    );
}

#[test]
fn wrong_imports_say_what_is_wrong() {
    let check = |text: &str, cloud: Option<&str>, expected: &str| {
        let error = imported(text, cloud);
        assert!(error.contains(expected), "{error}\nexpected: {expected}");
    };
    let own = "instance_type,gpu,gpu_count,cloud,on_demand\n";
    check("", None, "`t.csv`: it is empty");
    check("\n\n", None, "it is empty");
    check(own, None, "it has no rows");
    check("a,b\n1,2\n", None, "names neither `instance_type` (our form) nor `InstanceType` (SkyPilot's)");
    check("instance_type,gpu\nx,T4\n", None, "line 1 of `t.csv`: no column `gpu_count`");
    check(&format!("{own}x,T4,1,aws,NaN\n"), None, "line 2 of `t.csv`: `on_demand`: `NaN` is no amount");
    check(&format!("{own}x,T4,1,aws,-3\n"), None, "`-3` is no amount");
    check(&format!("{own}x,T4,1,aws,0\n"), None, "a price of 0 is no price");
    check(&format!("{own}x,T4,some,aws,1\n"), None, "`gpu_count`: `some` is no number");
    check(&format!("{own}x,T4,1.5,aws,1\n"), None, "`1.5` is no whole number");
    check(&format!("{own}x,T4,1,,1\n"), None, "`cloud` is empty");
    check(&format!("{own},T4,1,aws,1\n"), None, "`instance_type` is empty");
    check(&format!("{own}x,T4,1,aws,1\ny,T4\n"), None, "line 3 of `t.csv`: the row has 2 cells and the first line 5");
    check(SKYPILOT, None, "do not say of which cloud");
    check(SKYPILOT, Some("aws"), "it has no rows");
    check("InstanceType,Price\nx,1\n", Some("aws"), "no column `AcceleratorName`, `AcceleratorCount`, `Region`");
    check(&format!("{SKYPILOT}x,1,1,T4,1,,r,z,inf,\n"), Some("aws"), "`Price`: `inf` is no amount");
    check(
        &format!("{SKYPILOT}m5.large,2,8,,,,r,z,0.1,\n"),
        Some("aws"),
        "no row can be used: 1 × a machine without GPUs that are known here",
    );
}

#[test]
fn imports_are_kept_and_stand_above_ours() {
    let home = tempfile::tempdir().unwrap();
    let read = |text: &str| import::read("t.csv", text, &embedded(), &Defaults::default()).unwrap().listings;
    let head = "cloud,region,instance_type,gpu,gpu_count,on_demand\n";
    let cheap = read(&format!("{head}aws,us-east-1,p4d.24xlarge,A100,8,1.5\nown,cellar,box,T4,1,0.1\n"));
    import::keep(home.path(), "My prices", &cheap).unwrap();
    let price = |kind: &str| {
        let catalog = Catalog::open(home.path()).unwrap();
        let mut found = catalog.listings.iter().filter(|row| row.instance_type == kind && row.on_demand.is_some());
        let rate = found.next().map(|row| row.on_demand.as_ref().unwrap().rate.to_string());
        assert!(found.next().is_none(), "{kind} stands there twice");
        rate
    };
    assert_eq!(price("p4d.24xlarge").as_deref(), Some("$1.50/h"));
    assert_eq!(price("box").as_deref(), Some("$0.10/h"));
    import::keep(home.path(), "other", &read(&format!("{head}own,cellar,box,T4,1,0.2\n"))).unwrap();
    assert_eq!(price("box").as_deref(), Some("$0.20/h"));
    // The same name again replaces what it held, and is the newest.
    import::keep(home.path(), "My prices", &read(&format!("{head}own,cellar,box,T4,1,0.3\n"))).unwrap();
    assert_eq!(price("box").as_deref(), Some("$0.30/h"));
    assert_eq!(price("p4d.24xlarge").as_deref(), Some("$21.957642/h"));
    assert!(import::forget(home.path(), "my-prices").unwrap());
    assert!(!import::forget(home.path(), "my-prices").unwrap());
    assert_eq!(price("box").as_deref(), Some("$0.20/h"));
    // A kept file that cannot be read says how to be rid of it, with number and ending or without.
    for (bytes, typed) in [(&b"a,b\n1,2\n"[..], "0009-bad.csv"), (b"a,b\n1,2\n", "bad"), (b"\xFF\xFE", "0009-bad")] {
        std::fs::write(home.path().join(import::FOLDER).join("0009-bad.csv"), bytes).unwrap();
        let error = Catalog::open(home.path()).unwrap_err();
        assert!(error.hint().unwrap().starts_with("`gradus catalog forget bad`"), "{error}");
        assert!(import::forget(home.path(), typed).unwrap(), "{typed}");
    }
    assert_eq!(price("box").as_deref(), Some("$0.20/h"));
}

#[test]
fn what_a_user_says_of_a_price_is_kept() {
    let head = "cloud,instance_type,gpu,gpu_count,slice,gpu_mem_gib,currency,on_demand,derived\n";
    let read = |row: &str| {
        let text = format!("{head}{row}\n");
        import::read("t.csv", &text, &embedded(), &Defaults::default()).unwrap().listings.remove(0)
    };
    let derived = |row: &str| read(row).on_demand.unwrap().derived.unwrap_or_default();
    assert_eq!(derived("own,box,T4,1,1,,USD,1,half of a pair"), "half of a pair");
    assert!(derived("own,box,T4,1,1,,CNY,8,half of a pair").starts_with("half of a pair; at "));
    assert!(derived("own,box,T4,1,1,,CNY,8,").starts_with("at "));
    // More memory than there are numbers for is no GPU that is known, and no panic.
    assert_eq!(read("own,box,T4,1,4294967295,9e9,USD,1,").gpus.name, None);
}
