//! `gradus offers` and `gradus catalog`, as they are typed.

mod alibaba;
mod azure;
mod clouds;
mod refresh;
mod tencent;

use crate::home::{Home, text};

#[test]
fn offers_are_listed_with_price_date_and_source() {
    let home = Home::new();
    let said = home.gradus(&["offers", "--gpu", "A100:8", "--cloud", "aws"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(
        said.out,
        "\
cloud  region         machine        GPUs                memory  cores  price    per GPU  spot    stock  date
aws    us-east-1 +11  p4d.24xlarge   8 × A100-SXM4-40GB  40 GiB  96     21.9576  2.7447   7.2460  known  2026-07-20
aws    us-east-1 +4   p4de.24xlarge  8 × A100-SXM4-80GB  80 GiB  96     27.4471  3.4309   9.6065  known  2026-07-20
"
    );
    assert!(said.err.contains("aws 2026-07-20: aws/karpenter-provider-aws@1d92708"), "{}", said.err);
    assert!(said.err.contains("1 more without a price; show them with `--all`"), "{}", said.err);
    let other = home.gradus(&["offers", "T4G", "--limit", "1"]);
    assert!(other.out.contains("1 × T4G (Arm)"), "programs for x86-64 do not run there: {}", other.out);
    let said = home.gradus(&["offers", "--gpu", "A100-80GB:8", "--sort", "gpu-price", "--limit", "1", "--json"]);
    let offer = said.last();
    assert_eq!(offer["gpu"], "A100-SXM4-80GB");
    assert!(offer["on_demand"]["micro_usd_per_hour"].as_u64().unwrap() > 1_000_000);
    assert!(offer["on_demand"]["dated"].as_str().unwrap().starts_with("202"));
    let spot =
        home.gradus(&["offers", "--gpu", "H100:8", "--spot", "--compliance", "gdpr", "--sort", "memory", "--json"]);
    assert!(spot.out.lines().count() > 5, "{}", spot.err);
    assert_eq!(spot.last()["compliance"][0], "gdpr");
}

#[test]
fn a_machine_has_one_row_however_many_regions_offer_it() {
    let home = Home::new();
    let names = |more: &[&str]| -> Vec<String> {
        let said = home.gradus(&[&["offers", "--gpu", "T4:1"], more].concat());
        assert_eq!(said.code, Some(0), "{}", said.err);
        let machine = |line: &str| {
            let cells: Vec<&str> = line.split("  ").filter(|cell| !cell.is_empty()).map(str::trim).collect();
            format!("{} {}", cells[0], cells[2])
        };
        said.out.lines().skip(1).map(machine).collect()
    };
    let (grouped, all) = (names(&["--limit", "1000"]), names(&["--all"]));
    let distinct = |names: &[String]| names.iter().collect::<std::collections::BTreeSet<_>>().len();
    assert_eq!(distinct(&grouped), grouped.len(), "{grouped:?}");
    assert!(all.len() > grouped.len(), "{} {}", all.len(), grouped.len());
    let said = home.gradus(&["offers", "--gpu", "T4:1"]);
    assert!(
        said.err.contains("one region per machine, the first in this order; list every region with `--all`"),
        "{}",
        said.err
    );
}

#[test]
fn parts_of_gpus_are_told_only_with_all() {
    let home = Home::new();
    let parts = |more: &[&str]| {
        let said = home.gradus(&[&["offers", "--gpu", "A10", "--json"], more].concat());
        assert!(!said.out.is_empty(), "{}", said.err);
        said.out.lines().filter(|line| !line.contains("\"gpu_slice\":1,")).count()
    };
    assert_eq!(parts(&[]), 0);
    assert!(parts(&["--all"]) > 0);
}

#[test]
fn wrong_words_are_answered() {
    let home = Home::new();
    let check = |arguments: &[&str], code: i32, expected: &[&str]| {
        let said = home.gradus(&[&["offers"], arguments].concat());
        assert_eq!(said.code, Some(code), "{arguments:?}: {}{}", said.out, said.err);
        for part in expected {
            assert!(said.err.contains(part), "{arguments:?}: {}", said.err);
        }
    };
    check(&["--gpu", "RTX4091"], 2, &["error: no GPU `RTX4091` is known", "hint: known are `RTX4090`"]);
    check(&["--gpu", "A100:x"], 2, &["what follows `:` is how many", "`40GB+:8`"]);
    check(&["--region", "us-eest-1"], 2, &["no region `us-eest-1`", "`us-east-1`"]);
    check(&["--cloud", "amazon"], 2, &["no cloud `amazon`", "`aws`, `aws-cn`, `aws-gov`, `azure`"]);
    check(&["--compliance", "gpdr"], 2, &["`gdpr`, `hipaa`, `iso27001` and `soc2`"]);
    check(&["--max-price", "cheap"], 2, &["`cheap` is no price"]);
    check(
        &["--gpu", "H100:8", "--max-price", "1/h"],
        0,
        &["no offer matches", "the cheapest is $", "raise `--max-price`"],
    );
    check(&["--gpu", "MI300X:8", "--cloud", "aws"], 0, &["no offer matches", "without `--cloud`: "]);
    let refreshed = "`gradus catalog refresh tencent` reads prices of tencent";
    check(&["--gpu", "T4:4", "--cloud", "tencent"], 0, &["3 machines without a price", refreshed]);
    check(&["--gpu", "P100-SXM2"], 0, &["no offer matches", "no machine in the catalog has this GPU"]);
    check(&["--gpu", "A100:99"], 0, &["machines have 1, 2, 4, 8, 16 of this GPU: use one"]);
    check(&["--limit", "0"], 2, &["expected a whole number from 1"]);
}

#[test]
fn what_hints_name_lists_all() {
    let home = Home::new();
    let lines = |words: &[&str]| home.gradus(words).out.lines().count();
    assert_eq!(lines(&["offers"]), 21);
    let all = lines(&["offers", "--all"]);
    assert_eq!(all, lines(&["offers", "--all", "--json"]) + 1);
    let info: serde_json::Value = home.gradus(&["catalog", "info", "--json"]).last();
    assert_eq!(info["offers"], all - 1);
    let gpus = home.gradus(&["catalog", "gpus"]);
    assert!(
        gpus.out.contains("A100-SXM4-80GB") && lines(&["catalog", "gpus"]) as u64 == info["gpus"].as_u64().unwrap() + 1
    );
    let regions = home.gradus(&["catalog", "regions", "--json"]);
    let first: serde_json::Value = serde_json::from_str(regions.out.lines().next().unwrap()).unwrap();
    assert!(first["cloud"].is_string() && first["region"].is_string() && first["offers"].as_u64() > Some(0), "{first}");
}

#[test]
fn a_run_is_planned_on_as_many_own_machines_as_there_are() {
    let home = Home::new();
    let job = |lines: &str| {
        let yaml = format!(
            "run: python train.py\ndata: {{samples: 1281167, bytes: 147 GB}}\nresources: {{infra: own}}\n\
             workload: {{model: {{config: {{model_type: resnet, layer_type: bottleneck, depths: [3, 4, 6, 3]}}}}, \
             image: 224, batch: 1024, epochs: 90, optimizer: sgd_momentum}}\n{lines}"
        );
        home.job("job.yaml", &yaml)
    };
    let import = |machines: &str| {
        let table = format!(
            "cloud,region,instance_type,gpu,gpu_count,vcpu,mem_gib,network_gbps,on_demand,machines\n\
             own,cellar,big-box,RTX4090,4,64,256,100,0.35,{machines}\n"
        );
        let said = home.gradus(&["catalog", "import", text(&home.job("mine.csv", &table))]);
        assert_eq!(said.code, Some(0), "{}", said.err);
    };
    let planned = |lines: &str| {
        let said = home.gradus(&["plan", text(&job(lines))]);
        assert_eq!(said.code, Some(0), "{}", said.err);
        let counts = [1, 2, 4, 8, 16].into_iter().filter(|count| said.out.contains(&format!("{count} × big-box")));
        (counts.collect::<Vec<u32>>(), said.out)
    };
    import("");
    let (counts, out) = planned("");
    assert_eq!(counts, [1], "{out}");
    assert!(!out.contains("your account must be allowed"), "{out}");
    let refused = home.gradus(&["plan", text(&job("num_nodes: 2\n"))]);
    assert!(refused.code == Some(2) && refused.err.contains("fewer machines than the job runs on"), "{}", refused.err);
    import("4");
    let (counts, out) = planned("");
    assert!(counts.contains(&4) && !counts.contains(&8), "{out}");
    let said = home.gradus(&[
        "catalog",
        "import",
        text(&home.job("none.csv", "cloud,instance_type,gpu,gpu_count,machines\nown,box,T4,1,0\n")),
    ]);
    assert!(said.code == Some(2) && said.err.contains("`machines` is 0"), "{}", said.err);
}

#[test]
fn own_machines_are_imported_and_forgotten() {
    let home = Home::new();
    let table =
        "cloud,region,instance_type,gpu,gpu_count,vcpu,mem_gib,on_demand\nown,cellar,big-box,RTX4090,2,32,128,0.35\n";
    let file = home.job("my machines.csv", table);
    let said = home.gradus(&["catalog", "import", text(&file), "--dated", "2026-11-01"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(said.out, "1 offer imported as `my-machines`, replacing 0 of the built-in catalog\n");
    let offers = home.gradus(&["offers", "--cloud", "own"]);
    assert_eq!(
        offers.out,
        "\
cloud  region  machine  GPUs         memory  cores  price   per GPU  spot  stock  date
own    cellar  big-box  2 × RTX4090  24 GiB  32     0.3500  0.1750   -     known  2026-11-01
"
    );
    let info = home.gradus(&["catalog", "info"]);
    assert!(info.out.contains("imported: `my-machines`, 1 offers"), "{}", info.out);
    assert!(info.out.contains("no price: 84 offers of tencent"), "{}", info.out);
    assert!(info.out.contains("GPU `K80`"), "{}", info.out);
    assert_eq!(home.gradus(&["catalog", "forget", "my-machines"]).code, Some(0));
    let again = home.gradus(&["catalog", "forget", "my-machines"]);
    assert_eq!(again.code, Some(2));
    assert!(again.err.contains("no import `my-machines`"), "{}", again.err);
    assert_eq!(home.gradus(&["offers", "--cloud", "own"]).code, Some(2));
}

#[test]
fn wrong_imports_are_refused() {
    let home = Home::new();
    let check = |text_: &str, more: &[&str], expected: &str| {
        let file = home.job("wrong.csv", text_);
        let said = home.gradus(&[&["catalog", "import", text(&file)], more].concat());
        assert_eq!(said.code, Some(2), "{text_}: {}{}", said.out, said.err);
        assert!(said.err.contains(expected), "{text_}: {}", said.err);
    };
    check("", &[], "it is empty");
    check("a,b\n", &[], "hint: write for example a first line");
    check("instance_type,gpu,gpu_count,cloud,on_demand\nx,T4,1,own,NaN\n", &[], "`NaN` is no amount");
    check("InstanceType,Price\nx,1\n", &[], "--cloud aws");
    check("instance_type,gpu,gpu_count,cloud\nx,T4,1,own\n", &["--dated", "yesterday"], "`yesterday` is not a date");
    assert_eq!(home.gradus(&["catalog", "import", "/nowhere/at-all.csv"]).code, Some(2));
    assert!(!home.gradus(&["catalog", "info"]).out.contains("imported:"));
}
