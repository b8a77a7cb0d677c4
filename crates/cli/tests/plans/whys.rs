//! Why an offer is chosen or is not, the choice in words, and what of prices is old or unknown.

use serde_json::Value;

use crate::jobs::{llama, resnet};
use crate::workdir::{Said, Workdir};

fn said(yaml: &str, words: &[&str]) -> Said {
    let workdir = Workdir::new();
    workdir.file("job.yaml", yaml);
    workdir.gradus(&[&["plan", "job.yaml"], words].concat())
}

/// The figures of a sum add up to what stands before it.
#[track_caller]
fn adds_up(parts: &Value, whole: f64) {
    let sum: f64 = parts.as_object().unwrap().values().map(|part| part.as_f64().unwrap()).sum();
    assert!((sum / whole - 1.0).abs() < 1e-6, "{parts} is not {whole}");
}

#[test]
fn the_parts_of_a_chosen_offer_add_up() {
    let workdir = Workdir::new();
    let plan = workdir.plan(&resnet("budget: {max: $400}\n"), &["--why", "p5en.48xlarge/spot"]);
    let why = &plan["why"][0];
    let best = &why["best"];
    assert_eq!((why["question"].as_str(), best["instance_type"].as_str()), (Some("why"), Some("p5en.48xlarge")));
    assert_eq!((best["terms"].as_str(), best["availability"].as_str()), (Some("spot"), Some("known")));
    adds_up(&best["time_parts_seconds"], best["course_seconds"]["wall"].as_f64().unwrap());
    adds_up(&best["step_parts_seconds"], best["step_seconds"]["middle"].as_f64().unwrap());
    assert!(best["memory_bytes"]["activations"].as_f64().unwrap() > 1e9);
    assert!(best["limits"][0].as_str().unwrap().starts_with("keeps the budget: $"), "{best}");
    assert!(best["exchange"]["needed_bytes_per_second"].as_f64().unwrap() > 1e8);
    assert!(best["data_bytes_per_second"].as_f64().unwrap() > 1e9);
}

/// The disks inside a p4d hold 8 TB: what is more is read from its volume, whose speed is chosen, said and paid for.
#[test]
fn the_disk_of_a_machine_is_chosen_and_explained() {
    let large = |resources: &str| {
        let job = resnet(&format!("resources: {{cloud: aws, nodes: 1{resources}}}\n"));
        job.replace("samples: 1281167, bytes: 147 GB", "samples: 90000000, bytes: 10 TB")
    };
    let offer = ["--why", "aws/us-east-1/p4d.24xlarge/on_demand"];
    let workdir = Workdir::new();
    let of = |job: &str| workdir.plan(job, &offer)["why"][0]["best"].clone();
    let [inside, chosen, low] = [of(&resnet("")), of(&large("")), of(&large(", disk_tier: low"))];
    assert_eq!((&inside["disk"]["demand"]["samples"], &inside["disk"]["iops"]), (&"inside".into(), &3_000.into()));
    let disk = &chosen["disk"];
    assert_eq!((&disk["demand"]["samples"], &disk["is_short"]), (&"volume".into(), &false.into()), "{disk}");
    assert!(disk["iops"].as_u64() > Some(3_000) && disk["gib"].as_u64() > Some(9_313), "{disk}");
    assert!(disk["why"].as_str().unwrap().contains(": samples are read from it at "), "{disk}");
    assert_eq!((&low["disk"]["iops"], &low["disk"]["is_short"]), (&3_000.into(), &true.into()), "{low}");
    let wall = |best: &Value| best["course_seconds"]["wall"].as_f64().unwrap();
    let storage = |best: &Value| best["cost_micro_usd"]["storage"].as_f64().unwrap() / wall(best);
    assert!(storage(&chosen) > storage(&low), "{chosen} {low}");
    // Steps wait for a slow disk.
    assert!(wall(&low) > 2.0 * wall(&chosen), "{chosen} {low}");
    assert!(low["disk"]["why"].as_str().unwrap().ends_with(" times as long, which the time counts"), "{low}");
    let said = said(&large(""), &offer);
    assert!(said.out.contains("  disk     ") && said.out.contains(" GiB of "), "{}", said.out);
}

#[test]
fn why_and_why_not_are_said_in_words() {
    let said = said(&resnet(""), &["--why", "aws/us-east-1/p5en.48xlarge", "--why-not", "T4:1"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    for part in [
        "why aws/us-east-1/p5en.48xlarge: 2 offers",
        "why not T4:1: ",
        " = weights ",
        " + activations ",
        "step     ",
        "= computing ",
        "time     ",
        "= boot ",
        "exchange each GPU sends ",
        "samples a second, ",
        "not chosen: ",
        "the job sets none of money, time, carbon or price",
    ] {
        assert!(said.out.contains(part), "{part}\n{}", said.out);
    }
}

#[test]
fn why_not_names_the_limit() {
    let check = |yaml: &str, offer: &str, part: &str| {
        let said = said(yaml, &["--why-not", offer]);
        assert!(said.out.contains(part), "{part}\n{}{}", said.out, said.err);
    };
    let denied = "priced in a region that has no such machines; for example cloudpilot-ai/";
    check(&resnet(""), "gcp/northamerica-northeast1/a3-highgpu-8g", denied);
    check(
        &resnet("resources: {max_price: $4/h}\n"),
        "p5.48xlarge/on_demand",
        "dearer than $4.00/h a machine with its disk; for example it costs $",
    );
    check(&resnet("resources: {region: DE}\n"), "p5.48xlarge", "other regions");
    check(&resnet("resources: {compliance: [gdpr]}\n"), "p5.48xlarge", "not known to comply with gdpr");
    check(
        &resnet("resources: {cpus: 100+}\n"),
        "g4dn.xlarge",
        "too few processor cores, or a number that is not known; for example 4 of 100",
    );
    check(&resnet("budget: {max: $30}\n"), "p4d.24xlarge/on_demand", "above the budget of $30.00");
    check(&llama(""), "g4dn.xlarge/spot", "memory: ");
    check(&resnet(""), "Standard_ND96isr_H100_v5/eastus", "not chosen: ");
    // Nothing can be chosen at all, and the question is answered all the same.
    check(&resnet("deadline: 5m\n"), "p5.48xlarge", "breaks the deadline: ");
}

#[test]
fn an_offer_that_is_not_known_names_the_nearest() {
    let check = |offer: &str, message: &str, hint: &str| {
        let said = said(&resnet(""), &["--why", offer]);
        assert_eq!((said.code, &*said.out), (Some(2), ""), "{}", said.err);
        assert!(said.err.contains(message) && said.err.contains(hint), "{}", said.err);
    };
    check("p4de.24xlareg", "error: no offer has `p4de.24xlareg`", "hint: known are `p4de.24xlarge`, ");
    check("aws/us-eats-1", "error: no offer has `us-eats-1`", "`us-east-1`");
    check("H10O:8", "error: no offer has `H10O:8`", "hint: ");
    check(
        "aws/europe-west4/p4d.24xlarge",
        "error: no offer is `aws/europe-west4/p4d.24xlarge`",
        "it is offered in `aws/",
    );
    check("", "error: no offer has ``", "hint: write a machine type");
}

#[test]
fn the_choice_is_explained_in_about_ten_lines() {
    let said = said(&resnet("deadline: 3h\nbudget: {max: $100}\n"), &["--explain"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let lines: Vec<&str> = said.out.lines().collect();
    assert!((7..=12).contains(&lines.len()), "{}", said.out);
    let starts = ["Wanted: ", "Offers: ", "Chosen: ", "Memory: ", "Time: ", "Cost: ", "Risk: "];
    for (line, start) in lines.iter().zip(starts) {
        assert!(line.starts_with(start), "{line}");
    }
    assert!(lines[0].contains("within 3h, for $100.00 at most"), "{}", lines[0]);
    assert!(lines.last().unwrap().starts_with("Doubts: "), "{}", said.out);
}

/// Whoever writes the printed layout below `workload:` gets it on every machine that is chosen then.
#[test]
fn a_layout_is_printed_as_the_keys_that_keep_it() {
    let workdir = Workdir::new();
    let plan = workdir.plan(&llama(""), &[]);
    let layout = plan["picks"][0]["layout"].as_str().unwrap();
    let (degrees, recompute) = layout.split_once(", recompute: ").unwrap();
    assert!(degrees.starts_with("parallel: {data: "), "{layout}");
    let kept = workdir.plan(&llama(&format!("  {degrees}\n  recompute: {recompute}\n")), &[]);
    let layouts: Vec<&str> =
        kept["picks"].as_array().unwrap().iter().map(|pick| pick["layout"].as_str().unwrap()).collect();
    assert!(layouts.iter().all(|kept| *kept == layout), "{layout}: {layouts:?}");
    let said = workdir.gradus(&["plan", "job.yaml"]);
    for part in ["  layout   parallel: {data: ", "  program  PyTorch"] {
        assert!(said.out.contains(part), "{part}\n{}", said.out);
    }
}

#[test]
fn degrees_that_no_machines_have_name_the_numbers_that_there_are() {
    let job = llama("  parallel: {data: 64, tensor: 64, pipeline: 1}\nresources: {accelerators: H100:8, nodes: 1}\n");
    let said = said(&job, &[]);
    let told = "`workload.parallel` is for 4096 GPUs, and machines that remain have 8 in all";
    assert!(said.code != Some(0) && said.err.contains(told), "{}", said.err);
    let asked = llama("  parallel: {tensor: 3}\n");
    let said = self::said(&asked, &[]);
    let told = "`workload.parallel.tensor`: `tensor: 3` does not divide the network's 64 attention heads";
    assert!(said.code != Some(0) && said.err.contains(told), "{}", said.err);
}

/// A table of one's own machine, priced on a day.
fn with_prices_of(day: &str) -> (Workdir, Value) {
    let workdir = Workdir::new();
    let table = format!(
        "cloud,region,instance_type,gpu,gpu_count,vcpu,mem_gib,on_demand,dated\nown,cellar,big-box,RTX4090,2,32,128,0.35,{day}\n"
    );
    workdir.file("mine.csv", table);
    let imported = workdir.gradus(&["catalog", "import", "mine.csv"]);
    assert_eq!(imported.code, Some(0), "{}", imported.err);
    let plan = workdir.plan(&resnet("resources: {cloud: own}\n"), &[]);
    (workdir, plan)
}

#[test]
fn prices_older_than_sixty_days_are_marked() {
    let day = |days: i64| jiff::Timestamp::now() - jiff::SignedDuration::from_hours(24 * days);
    for (days, is_old) in [(1, false), (59, false), (62, true), (500, true)] {
        let (workdir, plan) = with_prices_of(&day(days).strftime("%Y-%m-%d").to_string());
        assert_eq!(plan["picks"][0]["price"]["is_old"], is_old, "{days} days");
        let said = workdir.gradus(&["plan", "job.yaml"]);
        assert_eq!(
            said.out.contains("old: prices here are more than 60 days old"),
            is_old,
            "{days} days: {}",
            said.out
        );
    }
}

#[test]
fn unknown_tariffs_are_said_and_counted_as_the_dearest() {
    let workdir = Workdir::new();
    let plan = workdir.plan(&resnet("resources: {cloud: lambda, nodes: 1}\n"), &[]);
    let row = &plan["front"][0];
    assert!(row["cost_micro_usd"]["checkpoints"].as_i64().unwrap() > 0, "{row}");
    let unknown: Vec<&str> =
        row["unknown_tariffs"].as_array().unwrap().iter().map(|one| one["service"].as_str().unwrap()).collect();
    assert_eq!(unknown, ["objects"]);
    let said = workdir.gradus(&["plan", "job.yaml"]);
    let told =
        "the tariff of lambda for objects, which hold checkpoints is not known: counted as the dearest known, $0.035";
    assert!(said.out.contains(told), "{}", said.out);
    // One's own machine has no tariffs.
    let (_, own) = with_prices_of("2026-11-01");
    assert_eq!(own["front"][0]["unknown_tariffs"].as_array().unwrap().len(), 0);
}
