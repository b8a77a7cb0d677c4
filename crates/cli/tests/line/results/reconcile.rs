//! A provider's bill is compared with what runs have cost, and accepted once.

use std::fs::File;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use serde_json::Value;

use crate::home::{Home, text};

/// A run that is billed: its machine, the day on which that was rented, and its cost.
struct Billed {
    instance: String,
    started: i64,
    micros: i64,
}

fn billed(home: &Home) -> Vec<Billed> {
    let said = home.gradus(&["cost", "--json"]);
    let runs = said.out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let of = |run: Value| Billed {
        instance: run["bill"]["lines"][0]["instance"].as_str().unwrap().to_owned(),
        started: run["bill"]["lines"][0]["usage"]["started"].as_i64().unwrap(),
        micros: run["cost_micro_usd"].as_i64().unwrap(),
    };
    runs.map(of).collect()
}

fn day(micros: i64) -> String {
    jiff::Timestamp::from_microsecond(micros).unwrap().to_string()[..10].to_owned()
}

/// A file of the provider, written so many days from now.
fn bill(home: &Home, lines: &[(&str, &str, i64)], days: u64) -> PathBuf {
    let line = |(resource, day, micros): &(&str, &str, i64)| {
        format!("{resource},{day},{}.{:06}\n", micros / 1_000_000, micros % 1_000_000)
    };
    let path = home.job("bill.csv", &format!("resource,day,usd\n{}", lines.iter().map(line).collect::<String>()));
    let written = SystemTime::now() + Duration::from_secs(days * 86_400);
    File::options().write(true).open(&path).unwrap().set_modified(written).unwrap();
    path
}

/// The sum of all costs, and the part of it that is adjustments.
fn sums(home: &Home) -> (i64, i64) {
    let sum = home.gradus(&["cost", "--by", "provider", "--json"]).last();
    (sum["total_micro_usd"].as_i64().unwrap(), sum["adjusted_micro_usd"].as_i64().unwrap())
}

#[test]
fn a_bill_is_accepted_once_and_costs_are_its_sum_from_then_on() {
    let home = Home::new();
    for name in ["one", "two", "three"] {
        let job = home.job("job.yaml", &format!("name: {name}\nrun: echo hi\n"));
        let said = home.gradus(&["run", text(&job), "--yes", "--price", "3.60/h"]);
        assert_eq!(said.code, Some(0), "{}", said.err);
    }
    let runs = billed(&home);
    let all: i64 = runs.iter().map(|run| run.micros).sum();
    assert_eq!(sums(&home), (all, 0));
    let days: Vec<String> = runs.iter().map(|run| day(run.started)).collect();
    // A run may have gone over midnight, so that the bill has the day after it too.
    let after = day(runs[2].started + 86_400_000_000);
    let (equal, more, less) = (runs[0].micros, runs[1].micros + 250_000, runs[2].micros - 1);
    let lines = [
        (&*runs[0].instance, &*days[0], equal),
        (&*runs[1].instance, &*days[1], runs[1].micros),
        (&*runs[1].instance, &*days[1], 250_000),
        (&*runs[2].instance, &*days[2], less),
        ("someone-else", &*after, 7),
    ];
    let early = bill(&home, &lines, 0);
    let said = home.gradus(&["cost", "reconcile", text(&early)]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    for part in ["billed more", "may come: exports lag up to 48 h", "1 line is not ours"] {
        assert!(said.out.contains(part), "{part}: {}", said.out);
    }
    assert_eq!(sums(&home), (all, 0), "looking changes nothing");
    let path = bill(&home, &lines, 3);
    let said = home.gradus(&["cost", "reconcile", text(&path), "--accept"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out.contains("billed less") && said.out.contains("2 runs adjusted by $0.249999"), "{}", said.out);
    assert_eq!(sums(&home), (equal + more + less, 249_999));
    let said = home.gradus(&["cost", "reconcile", text(&path), "--accept", "--json"]);
    assert_eq!(said.last()["accepted_runs"], 0, "{}", said.out);
    assert_eq!(sums(&home), (equal + more + less, 249_999));
    let shown = home.gradus(&["cost"]);
    assert!(shown.out.contains("adjusted to the provider's bill"), "{}", shown.out);
    assert!(home.gradus(&["cost", "--by", "day"]).out.contains("adjusted to the provider's bill"));
    assert!(home.gradus(&["events"]).out.contains("adjusted by $0.25 to the provider's bill"));
}

#[test]
fn a_file_that_is_no_bill_is_refused() {
    let home = Home::new();
    let check = |text_of: &str, parts: &[&str]| {
        let path = home.job("bill.csv", text_of);
        let said = home.gradus(&["cost", "reconcile", text(&path)]);
        assert_eq!(said.code, Some(2), "{}", said.err);
        parts.iter().for_each(|part| assert!(said.err.contains(part), "{part}: {}", said.err));
    };
    check("a,b\n1,2\n", &["line 1", "no known export", "hint: "]);
    let azure = "Date,MeterCategory,ResourceId,CostInBillingCurrency,BillingCurrency\n2026-11-01,Bandwidth,a,1,EUR\n";
    check(azure, &["line 2", "in EUR", "hint: "]);
    let one = home.job("one.csv", "resource,day,usd\ni-01,2026-11-01,1\n");
    let copy = home.job("copy.csv", "resource,day,usd\ni-01,2026-11-01,1\n");
    let twice = home.gradus(&["cost", "reconcile", text(&one), text(&copy)]);
    assert_eq!(twice.code, Some(2), "{}", twice.err);
    assert!(twice.err.contains("copy.csv` are the same file"), "{}", twice.err);
    let keys = r#"{"Key": "RESOURCE_ID"}, {"Key": "USAGE_TYPE"}"#;
    let explorer = home.job("explorer.json", &format!(r#"{{"GroupDefinitions": [{keys}], "ResultsByTime": []}}"#));
    assert_eq!(home.gradus(&["cost", "reconcile", text(&explorer)]).code, Some(0));
    let accepted = home.gradus(&["cost", "reconcile", text(&explorer), "--accept"]);
    assert_eq!(accepted.code, Some(2), "{}", accepted.err);
    assert!(accepted.err.contains("would lack all disks"), "{}", accepted.err);
    let missing = home.gradus(&["cost", "reconcile", "nowhere.csv"]);
    assert!(missing.err.contains("cannot read `nowhere.csv`"), "{}", missing.err);
}
