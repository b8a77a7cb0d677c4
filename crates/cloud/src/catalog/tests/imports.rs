//! The user's tables: read, refused with their line, preferred to ours, and removed.

use domain::listing::Price;

use super::embedded;
use crate::catalog::import::{self, Defaults};
use crate::catalog::{Catalog, Listing};

/// Imports a text and prints its listings, or the error.
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
            let price = |price: &Option<Price>| price.as_ref().map_or("-".to_owned(), |price| price.rate.to_string());
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
fn columns_that_nothing_is_read_from_are_told() {
    let check = |head: &str, row: &str, expected: &[(&str, Option<&str>)]| {
        let defaults = Defaults { cloud: Some("own".to_owned()), ..Defaults::default() };
        let read = import::read("t.csv", &format!("{head}\n{row}\n"), &embedded(), &defaults).unwrap();
        let told: Vec<_> = read.unread.iter().map(|(name, meant)| (name.as_str(), meant.as_deref())).collect();
        assert_eq!(told, expected, "{head}");
    };
    check("cloud,instance_type,gpu,gpu_count,on_demand", "own,box,T4,1,0.1", &[]);
    check(
        "cloud,instance_type,gpu,gpu_count,price,vcpus,memory_gib",
        "own,box,T4,1,0.1,8,32",
        &[("memory_gib", Some("mem_gib")), ("price", None), ("vcpus", Some("vcpu"))],
    );
    check(
        "gpu,memory_gib,bandwidth_gbs,watts,bf16_tflops,fp8_tflop",
        "X100,96,3350,700,989,1978",
        &[("fp8_tflop", Some("fp8_tflops"))],
    );
    // SkyPilot's tables have columns that are of no use here.
    check("InstanceType,AcceleratorName,AcceleratorCount,Region,Price,Generation", "x,T4,1,r,0.1,1", &[]);
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
        let is_here = |row: &&Listing| ["us-east-1", "cellar"].contains(&&*row.region) && row.instance_type == kind;
        let mut found = catalog.listings.iter().filter(is_here).filter(|row| row.on_demand.is_some());
        let rate = found.next().map(|row| row.on_demand.as_ref().unwrap().rate.to_string());
        assert!(found.next().is_none(), "{kind} stands there twice");
        rate
    };
    assert_eq!(price("p4d.24xlarge").as_deref(), Some("$1.50/h"));
    assert_eq!(price("box").as_deref(), Some("$0.10/h"));
    import::keep(home.path(), "other", &read(&format!("{head}own,cellar,box,T4,1,0.2\n"))).unwrap();
    assert_eq!(price("box").as_deref(), Some("$0.20/h"));
    // The same name again replaces the earlier import, and becomes the newest.
    import::keep(home.path(), "My prices", &read(&format!("{head}own,cellar,box,T4,1,0.3\n"))).unwrap();
    assert_eq!(price("box").as_deref(), Some("$0.30/h"));
    assert_eq!(price("p4d.24xlarge").as_deref(), Some("$21.957642/h"));
    assert!(import::forget(home.path(), "my-prices").unwrap());
    assert!(!import::forget(home.path(), "my-prices").unwrap());
    assert_eq!(price("box").as_deref(), Some("$0.20/h"));
    // The error of an unreadable import says how to remove it, with or without number and extension.
    for (bytes, typed) in [(&b"a,b\n1,2\n"[..], "0009-bad.csv"), (b"a,b\n1,2\n", "bad"), (b"\xFF\xFE", "0009-bad")] {
        std::fs::write(home.path().join(import::FOLDER).join("0009-bad.csv"), bytes).unwrap();
        let error = Catalog::open(home.path()).unwrap_err();
        assert!(error.hint().unwrap().starts_with("`gradus catalog forget bad`"), "{error}");
        assert!(import::forget(home.path(), typed).unwrap(), "{typed}");
    }
    assert_eq!(price("box").as_deref(), Some("$0.20/h"));
}

#[test]
fn gpus_are_imported_as_prices_are() {
    let home = tempfile::tempdir().unwrap();
    let read = |text: &str| import::read("t.csv", text, &embedded(), &Defaults::default());
    let prices = "cloud,region,instance_type,gpu,gpu_count,on_demand\nown,cellar,box,X100,8,1\n";
    import::keep_read(home.path(), "prices", &read(prices).unwrap()).unwrap();
    let name = || {
        let catalog = Catalog::open(home.path()).unwrap();
        catalog.listings.iter().find(|row| row.instance_type == "box").unwrap().gpus.name.clone()
    };
    assert_eq!(name(), None);
    let gpus = "gpu,memory_gib,bandwidth_gbs,watts,bf16_tflops\nX100,96,3350,700,989\n";
    import::keep_read(home.path(), "gpus", &read(gpus).unwrap()).unwrap();
    assert_eq!(name().as_deref(), Some("X100"));
    import::keep_read(home.path(), "prices", &read(prices).unwrap()).unwrap();
    assert_eq!(name().as_deref(), Some("X100"), "prices that are imported after it");
    let error = read("gpu,memory_gib,bandwidth_gbs\nX,1,1\n").unwrap_err().to_string();
    assert!(error.contains("no column `watts`"), "{error}");
    // A later version that knows the GPU refuses the description, and says how to remove it.
    let ours = gpus.replace("X100", "A100");
    import::keep_read(home.path(), "gpus", &read(&ours).unwrap()).unwrap();
    let error = Catalog::open(home.path()).unwrap_err();
    assert!(error.hint().unwrap().starts_with("`gradus catalog forget gpus`"), "{error}");
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
