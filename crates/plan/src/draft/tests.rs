//! Jobs and machines in, plans or reasons out.

use std::fmt::Write;

use domain::{Node, Rate};

use super::*;

/// A machine as `2 cores, 8 GB, 100 GB free, $0.36/h`.
fn machine(text: &str) -> Offer {
    let parts: Vec<&str> = text.split(", ").collect();
    let [cores, memory, disk, price] = parts[..] else { panic!("a machine has four parts: {text}") };
    let number = |part: &str, unit: &str| part.strip_suffix(unit).unwrap().trim().parse::<f64>().unwrap();
    let gigabytes = |part: &str, unit: &str| Bytes((number(part, unit) * 1e9) as u64);
    Offer {
        provider: "local".into(),
        kind: "this machine".into(),
        node: Node {
            cpu: "a processor".into(),
            cores: number(cores, "cores") as u32,
            memory: gigabytes(memory, "GB"),
            disk_free: gigabytes(disk, "GB free"),
        },
        rate: price.parse::<Rate>().unwrap(),
        price_source: "test".into(),
    }
}

fn job(yaml: &str) -> Job {
    Job::parse(yaml, "job.yaml").unwrap_or_else(|problems| panic!("{problems}")).job
}

const DIGITS: &str = "train: {model: cnn, data: {path: digits.csv.gz}, epochs: 30, batch: 64, threads: 1}\n";
const PICTURES: &str = "train: {model: resnet18, data: {path: pictures, size: 32}, epochs: 3, batch: 128}\n";
const PROGRAM: &str = "run: python train.py\n";
const SMALL: &str = "2 cores, 8 GB, 100 GB free, $0.36/h";
const FREE: &str = "2 cores, 8 GB, 100 GB free, $0/h";

const UNKNOWN: Facts = Facts { samples: None, input_shape: None, classes: None, measured_step: None };

fn samples(training: u64, validation: u64, test: u64) -> Facts {
    Facts { samples: Some([training, validation, test]), classes: Some(10), ..UNKNOWN }
}

fn short(duration: Duration) -> String {
    format!("{:.1}s", duration.as_secs_f64())
}

/// The first plan in one line, or the reasons.
fn told(yaml: &str, machines: &[&str], facts: &Facts) -> String {
    let offers: Vec<Offer> = machines.iter().map(|text| machine(text)).collect();
    let plans = match draft(&job(yaml), &offers, facts) {
        Ok(plans) => plans,
        Err(infeasible) => {
            let line =
                |reason: &Problem| format!("{}: {} ({})", reason.key, reason.message, reason.hint.clone().unwrap());
            return infeasible.reasons.iter().map(line).collect::<Vec<_>>().join("\n");
        }
    };
    let plan = &plans[0];
    let mut line = plan.offer.rate.to_string();
    if let Some(share) = plan.share {
        write!(line, "; {}×{} on {} threads", share.accumulate, share.micro_batch, share.threads).unwrap();
        share.steps.iter().for_each(|steps| write!(line, ", {steps} steps").unwrap());
    }
    plan.memory.iter().for_each(|memory| write!(line, "; {:.0} MB", memory.0 as f64 / 1e6).unwrap());
    if let Some(time) = plan.time {
        write!(line, "; {} {} {}", short(time.low), short(time.middle), short(time.high)).unwrap();
    }
    plan.cost.iter().for_each(|cost| write!(line, "; {} {} {}", cost.low, cost.middle, cost.high).unwrap());
    write!(line, "; reserve {}", plan.reserve).unwrap();
    line
}

#[track_caller]
fn check(yaml: &str, machines: &[&str], facts: &Facts, expected: &str) {
    let strip = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    assert_eq!(told(yaml, machines, facts), strip(expected.trim()), "\n{yaml}\n{machines:?}");
}

/// The plan's assumptions hold a sentence with these words, or none does.
#[track_caller]
fn check_says(yaml: &str, facts: &Facts, words: &str, is_said: bool) {
    let plans = draft(&job(yaml), &[machine(SMALL)], facts).unwrap();
    let found = plans[0].assumptions.iter().any(|sentence| sentence.contains(words));
    assert_eq!(found, is_said, "`{words}` in {:#?}", plans[0].assumptions);
}

#[test]
fn what_is_known_is_planned() {
    check(
        DIGITS,
        &[SMALL],
        &samples(1258, 359, 180),
        "$0.36/h; 1×64 on 1 threads, 600 steps; 156 MB; 4.4s 8.9s 23.6s; $0.000445 $0.000888 $0.002362; reserve $0.002362",
    );
}
