//! Jobs and machines in, plans or reasons out.

use std::fmt::Write;

use domain::Node;
use proptest::prelude::*;

use super::*;

/// A machine as `2 cores, 8 GB, 100 GB free, $0.36/h`.
pub(super) fn machine(text: &str) -> Offer {
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
            volume: None,
        },
        rate: price.parse::<Rate>().unwrap(),
        price_source: "test".into(),
    }
}

fn job(yaml: &str) -> Job {
    Job::parse(yaml, "job.yaml").unwrap_or_else(|problems| panic!("{problems}")).job
}

const DIGITS: &str = "train: {model: cnn, data: {path: digits.csv.gz}, epochs: 30, batch: 64, threads: 1}\n";
const IMAGES: &str = "train: {model: resnet18, data: {path: pictures, size: 32}, epochs: 3, batch: 128}\n";
const PROGRAM: &str = "run: python train.py\n";
const SMALL: &str = "2 cores, 8 GB, 100 GB free, $0.36/h";
const FREE: &str = "2 cores, 8 GB, 100 GB free, $0/h";

const UNKNOWN: JobFacts =
    JobFacts { samples: None, input_shape: None, classes: None, bytes: None, measured_step: None, program: None };

fn samples(samples: [u64; 3]) -> JobFacts {
    JobFacts { samples: Some(samples), classes: Some(10), ..UNKNOWN }
}

fn short(duration: Duration) -> String {
    format!("{:.1}s", duration.as_secs_f64())
}

/// The first plan in one line, or the reasons.
fn told(yaml: &str, machines: &[&str], facts: &JobFacts) -> String {
    let offers: Vec<Offer> = machines.iter().map(|text| machine(text)).collect();
    let plans = match plans(&job(yaml), &offers, facts) {
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
fn check(yaml: &str, machines: &[&str], facts: &JobFacts, expected: &str) {
    let strip = |text: &str| text.lines().map(str::trim).collect::<Vec<_>>().join("\n");
    assert_eq!(told(yaml, machines, facts), strip(expected.trim()), "\n{yaml}\n{machines:?}");
}

/// The plan's assumptions hold a sentence with these words, or none does.
#[track_caller]
fn check_says(yaml: &str, facts: &JobFacts, words: &str, is_said: bool) {
    let plans = plans(&job(yaml), &[machine(SMALL)], facts).unwrap();
    let found = plans[0].assumptions.iter().any(|sentence| sentence.contains(words));
    assert_eq!(found, is_said, "`{words}` in {:#?}", plans[0].assumptions);
}

const DIGITS_SAMPLES: [u64; 3] = [1258, 359, 180];
const IMAGES_SAMPLES: [u64; 3] = [9000, 1000, 2000];

#[test]
fn what_is_known_is_planned() {
    let check = |yaml: &str, machine: &str, facts: &JobFacts, expected: &str| check(yaml, &[machine], facts, expected);
    let digits = samples(DIGITS_SAMPLES);
    // Measured on two busy cores: 600 steps, 150 MiB, 7.8 to 9.1 s.
    check(
        DIGITS,
        SMALL,
        &digits,
        "$0.36/h; 1×64 on 1 threads, 600 steps; 155 MB; 4.5s 9.0s 24.0s; $0.000451 $0.000902 $0.002404; reserve $0.002404",
    );
    check(DIGITS, SMALL, &UNKNOWN, "$0.36/h; 1×64 on 1 threads; 155 MB; reserve $0.00");
    let measured = JobFacts { measured_step: Some(Duration::from_micros(10_000)), ..digits };
    check(
        DIGITS,
        SMALL,
        &measured,
        "$0.36/h; 1×64 on 1 threads, 600 steps; 155 MB; 7.5s 8.1s 10.7s; $0.000748 $0.000808 $0.00107; reserve $0.00107",
    );
    check(
        &DIGITS.replace("64", "1024"),
        SMALL,
        &digits,
        "$0.36/h; 1×1024 on 1 threads, 60 steps; 207 MB; 6.0s 12.6s 34.9s; $0.000596 $0.001265 $0.003494; reserve $0.003494",
    );
    let no_cores = "0 cores, 8 GB, 100 GB free, $0/h";
    check(
        &DIGITS.replace(", threads: 1", ""),
        no_cores,
        &digits,
        "$0.00/h; 1×64 on 1 threads, 600 steps; 155 MB; 4.5s 9.0s 24.0s; $0.00 $0.00 $0.00; reserve $0.00",
    );
    // More threads than cores wait for each other: four on two cores do no more than one.
    check(
        &DIGITS.replace("threads: 1", "threads: 4"),
        FREE,
        &digits,
        "$0.00/h; 1×64 on 4 threads, 600 steps; 155 MB; 4.5s 9.0s 24.0s; $0.00 $0.00 $0.00; reserve $0.00",
    );
}

#[test]
fn every_network_has_a_memory_and_a_time() {
    let images = samples(IMAGES_SAMPLES);
    let check = |from: &str, to: &str, facts: &JobFacts, expected: &str| {
        check(
            &IMAGES.replace(from, to),
            &[FREE],
            facts,
            &format!("$0.00/h; {expected}; $0.00 $0.00 $0.00; reserve $0.00"),
        );
    };
    // Measured peaks of the first four, on one thread: 873 MiB without a checkpoint being written, 379, 335 and 189 MiB.
    check("", "", &images, "1×128 on 2 threads, 213 steps; 1156 MB; 394.7s 984.5s 2950.7s");
    check("resnet18", "resnet20", &images, "1×128 on 2 threads, 213 steps; 392 MB; 40.0s 97.7s 290.1s");
    check("resnet18", "cnn", &images, "1×128 on 2 threads, 213 steps; 362 MB; 17.3s 41.1s 120.3s");
    check("resnet18", "mlp", &images, "1×128 on 2 threads, 213 steps; 199 MB; 1.7s 2.1s 3.4s");
    check("", "", &UNKNOWN, "1×128 on 2 threads; 1135 MB");
    check(", size: 32", "", &UNKNOWN, "1×128 on 2 threads; 3390 MB");
    check(
        "batch: 128",
        "batch: 128, accumulate: 3",
        &images,
        "3×43 on 2 threads, 213 steps; 748 MB; 400.0s 997.8s 2990.5s",
    );
    check(
        "batch: 128",
        "batch: 128, precision: bf16",
        &images,
        "1×128 on 2 threads, 213 steps; 851 MB; 391.2s 975.7s 2924.4s",
    );
    check(
        "batch: 128",
        "batch: 128, optimizer: {sgd: {lr: 0.1, momentum: 0}}",
        &images,
        "1×128 on 2 threads, 213 steps; 977 MB; 394.5s 984.0s 2949.1s",
    );
    check("resnet18", "mobilenet_v2", &images, "1×128 on 2 threads, 213 steps; 415 MB; 8.3s 18.5s 52.6s");
    // What is not counted is stated, and nothing is guessed.
    let module = IMAGES.replace("resnet18", "{torchscript: m.pt}").replace("epochs", "loss: cross_entropy, epochs");
    check_says(&module, &images, "what `m.pt` takes is not counted yet", true);
    // A measured step takes the place of the estimated one.
    let measured = JobFacts { measured_step: Some(Duration::from_secs(1)), ..images };
    check("", "", &measured, "1×128 on 2 threads, 213 steps; 1156 MB; 207.0s 227.5s 317.9s");
}

#[test]
fn programs_are_planned_by_their_bounds() {
    check(PROGRAM, &[SMALL], &UNKNOWN, "$0.36/h; reserve $0.00");
    check(PROGRAM, &[FREE], &UNKNOWN, "$0.00/h; $0.00 $0.00 $0.00; reserve $0.00");
    check(&format!("{PROGRAM}deadline: 10h"), &[SMALL], &UNKNOWN, "$0.36/h; reserve $3.60");
    check(&format!("{PROGRAM}deadline: 10h\nbudget: {{max: $2}}"), &[SMALL], &UNKNOWN, "$0.36/h; reserve $2.00");
}

#[test]
fn what_does_not_fit_says_why() {
    let needs = |needs: &str| format!("{PROGRAM}resources: {{{needs}}}");
    check(&needs("cpus: 2, memory: 8, disk_size: 100"), &[SMALL], &UNKNOWN, "$0.36/h; reserve $0.00");
    check(
        &needs("cpus: 8, memory: 64, disk_size: 500"),
        &[SMALL],
        &UNKNOWN,
        "resources.cpus: `this machine` has 2 cores; the job asks for 8 (write `cpus: 2` or less, or leave it out)
         resources.memory: `this machine` has 8.0 GB of memory; the job asks for 64.0 GB (write `memory: 8` or less, or leave it out)
         resources.disk_size: `this machine` has 100.0 GB of free disk; the job asks for 500.0 GB (free some, or write `disk_size: 100` or less)",
    );
    check(
        &needs("cpus: 8"),
        &[SMALL, SMALL, "4 cores, 8 GB, 1 GB free, $1/h"],
        &UNKNOWN,
        "resources.cpus: `this machine` has 2 cores; the job asks for 8 (write `cpus: 2` or less, or leave it out)
         resources.cpus: `this machine` has 4 cores; the job asks for 8 (write `cpus: 4` or less, or leave it out)",
    );
    check(&needs("cpus: 4"), &[SMALL, "4 cores, 8 GB, 1 GB free, $1/h"], &UNKNOWN, "$1.00/h; reserve $0.00");
    check(PROGRAM, &[], &UNKNOWN, ": no machine is offered (leave `resources` out, so that this machine is enough)");
    let small = "2 cores, 1 GB, 100 GB free, $0/h";
    check(
        IMAGES,
        &[small],
        &UNKNOWN,
        "train.batch: `this machine` has 1.0 GB of memory; training takes about 1.1 GB, 128 samples at a time (split each step into more micro-batches: write `accumulate: 2`)",
    );
    check(
        &IMAGES.replace("batch: 128", "batch: 128, accumulate: 4"),
        &[small],
        &UNKNOWN,
        "$0.00/h; 4×32 on 2 threads; 674 MB; $0.00 $0.00 $0.00; reserve $0.00",
    );
    check(
        &IMAGES.replace("128", "1"),
        &["2 cores, 0.4 GB, 100 GB free, $0/h"],
        &UNKNOWN,
        "train.batch: `this machine` has 400.0 MB of memory; training takes about 525.5 MB, 1 samples at a time (take a smaller network or smaller images (`train.data.size`))",
    );
    check(
        IMAGES,
        &["2 cores, 8 GB, 0.5 GB free, $0/h"],
        &UNKNOWN,
        "train.checkpoint.keep: `this machine` has 500.0 MB of free disk; 6 files of the state take about 841.1 MB (free some, or keep fewer checkpoints)",
    );
}

#[test]
fn cheapest_comes_first_then_the_fastest_then_the_first() {
    let order = |yaml: &str, machines: &[&str], facts: &JobFacts| {
        let offers: Vec<Offer> = machines.iter().map(|text| machine(text)).collect();
        let plans = plans(&job(yaml), &offers, facts).unwrap();
        let place = |plan: &Plan| offers.iter().position(|offer| *offer == plan.offer).unwrap();
        plans.iter().map(place).collect::<Vec<_>>()
    };
    let digits = samples(DIGITS_SAMPLES);
    let threads = DIGITS.replace(", threads: 1", "");
    assert_eq!(order(DIGITS, &[SMALL, FREE, "2 cores, 8 GB, 100 GB free, $0.1/h"], &digits), [1, 2, 0]);
    // Twice the cores at twice the price: the shorter run pays less for its start.
    assert_eq!(order(&threads, &[SMALL, "4 cores, 8 GB, 100 GB free, $0.5/h"], &digits), [1, 0]);
    assert_eq!(order(&threads, &[FREE, "4 cores, 8 GB, 100 GB free, $0/h"], &digits), [1, 0]);
    // What costs nothing comes before what costs nobody knows what.
    assert_eq!(order(PROGRAM, &["4 cores, 8 GB, 100 GB free, $1/h", SMALL, FREE], &UNKNOWN), [2, 1, 0]);
    // Equals, told apart only by their memory, keep their order.
    assert_eq!(order(PROGRAM, &["2 cores, 9 GB, 1 GB free, $1/h", "2 cores, 8 GB, 1 GB free, $1/h"], &UNKNOWN), [0, 1]);
}

#[test]
fn plans_say_what_they_rest_on() {
    let digits = samples(DIGITS_SAMPLES);
    check_says(DIGITS, &digits, "a core does 50 GFLOP/s; 17 on one in ten, 125 on another", true);
    check_says(
        DIGITS,
        &digits,
        "a sample takes 2.66 MFLOP in the forward pass, and 3 times that with the backward pass",
        true,
    );
    check_says(DIGITS, &digits, "600 steps over 1258 training samples, 10950 samples evaluated", true);
    let measured = JobFacts { measured_step: Some(Duration::from_micros(10_000)), ..digits };
    check_says(DIGITS, &measured, "a step takes 10.0 ms, as measured on this machine", true);
    check_says(DIGITS, &measured, "GFLOP/s", false);
    check_says(DIGITS, &UNKNOWN, "the number of samples is not known", true);
    check_says(DIGITS, &UNKNOWN, "nothing is set aside", true);
    check_says(DIGITS, &JobFacts { classes: None, ..digits }, "10 classes are assumed", true);
    check_says(IMAGES, &UNKNOWN, "RGB images of 32×32 pixels are assumed", true);
    check_says(&IMAGES.replace(", size: 32", ""), &UNKNOWN, "RGB images of 224×224 pixels are assumed", true);
    check_says(&DIGITS.replace("threads: 1", "threads: 4"), &digits, "4 threads share 2 cores", true);
    check_says(&DIGITS.replace("threads: 1", "processes: 8"), &digits, "others: `processes: 2` is faster", true);
    check_says(PROGRAM, &UNKNOWN, "how long the program takes is not known", true);
    let with = |key: &str| DIGITS.replace("threads: 1", key);
    check_says(&with("stop: {accuracy: 98%}"), &digits, "`train.stop` may end the run sooner", true);
    check_says(&with("schedule: {warmup: 601 steps}"), &digits, "the warm-up of 601 steps does not end", true);
    check_says(&with("schedule: {warmup: 600 steps}"), &digits, "warm-up", false);
    check_says(&format!("{DIGITS}deadline: 4s"), &digits, "the deadline of 4s is shorter", true);
    check_says(&format!("{DIGITS}deadline: 5s"), &digits, "the deadline", false);
    check_says(&format!("{DIGITS}budget: {{max: 0.0004}}"), &digits, "the budget of $0.0004 is less", true);
    check_says(&format!("{DIGITS}budget: {{max: 0.0005}}"), &digits, "the budget", false);
}

proptest! {
    /// Whatever is passed in, low ≤ middle ≤ high, and the same again gives the same.
    #[test]
    fn spreads_are_in_order(
        counts in any::<[u64; 3]>(),
        side in 8u32..2048,
        step in proptest::option::of(any::<u64>()),
        rate in 0i64..1_000_000_000_000,
        model in proptest::sample::select(vec!["mlp", "cnn", "resnet20", "resnet18"]),
    ) {
        let facts = JobFacts {
            samples: Some(counts),
            input_shape: Some([3, side, side]),
            classes: Some(10),
            bytes: None,
            measured_step: step.map(Duration::from_micros),
            program: None,
        };
        let mut offer = machine("64 cores, 100000 GB, 100000 GB free, $0/h");
        offer.rate = Rate::from_micros_per_hour(rate);
        let job = job(&IMAGES.replace("resnet18", model).replace(", size: 32", ""));
        let planned = plans(&job, std::slice::from_ref(&offer), &facts).unwrap();
        let (time, cost) = (planned[0].time.unwrap(), planned[0].cost.unwrap());
        prop_assert!(time.low <= time.middle && time.middle <= time.high);
        prop_assert!(cost.low <= cost.middle && cost.middle <= cost.high);
        prop_assert_eq!(planned[0].reserve, cost.high);
        prop_assert_eq!(plans(&job, &[offer], &facts).unwrap(), planned);
    }
}

#[test]
fn a_batch_of_more_than_there_is_is_refused() {
    let job = Job::parse("train: {model: mlp, data: {path: x.csv}, epochs: 1, batch: 200}\n", "job.yaml").unwrap().job;
    let facts = JobFacts { samples: Some([128, 10, 10]), ..UNKNOWN };
    let refused = plans(&job, &[], &facts).unwrap_err();
    assert_eq!(refused.reasons[0].message, "a batch of 200 is more than the 128 training samples");
    assert_eq!(refused.reasons[0].hint.as_deref(), Some("write `batch: 128` or less"));
}

/// Each rank has its own copy of the files: all of them, or as much as it may take where they are not known.
#[test]
fn what_ranks_preload_is_counted() {
    let yaml = IMAGES.replace("batch: 128", "batch: 128, processes: 2").replace("size: 32", "size: 224, preload: 4 GB");
    let facts = JobFacts { bytes: Some(1_000_000_000), ..samples(IMAGES_SAMPLES) };
    let large = machine("2 cores, 100 GB, 100 GB free, $0/h");
    let memory = |yaml: &str, facts: &JobFacts| {
        plans(&job(yaml), std::slice::from_ref(&large), facts).unwrap()[0].memory.unwrap().0
    };
    let without = memory(&yaml.replace(", preload: 4 GB", ""), &facts);
    assert_eq!(memory(&yaml, &facts), without + 1_000_000_000);
    assert_eq!(memory(&yaml, &JobFacts { bytes: None, ..facts }), without + 4_000_000_000);
    // Decoded they are small enough to stay.
    let few = JobFacts { samples: Some([128, 10, 10]), ..facts };
    assert_eq!(memory(&yaml, &few), memory(&yaml.replace(", preload: 4 GB", ""), &few));
    let yaml = yaml.replace("4 GB", "64 GB");
    let refused = plans(&job(&yaml), &[large], &JobFacts { bytes: None, ..facts }).unwrap_err();
    let [reason] = &refused.reasons[..] else { panic!("{refused:?}") };
    assert!(reason.key == "train.data.preload" && reason.message.contains("of which 128.0 GB"), "{reason:?}");
}

#[test]
fn transformers_have_a_memory_also_where_their_layers_are_divided() {
    let gpt = |parallel: &str| {
        format!(
            "train: {{model: gpt2, data: {{path: t.txt, text: {{length: 64, vocabulary: 2000}}}}, epochs: 1, batch: 4, processes: 2, dropout: 0, optimizer: {{adamw: {{lr: 1e-4}}}}, parallel: {{{parallel}}}}}\n"
        )
    };
    let memory = |parallel: &str| {
        let planned = plans(&job(&gpt(parallel)), &[machine(SMALL)], &UNKNOWN).unwrap();
        planned[0].memory.unwrap().0 as f64 / 1e6
    };
    // The higher of two ranks' peaks as measured (`docs/parallel.md`), and so many in a hundred that the plan may be below
    // and above.
    for (parallel, measured, below, above) in [
        ("", 3_443.0, 4.0, 2.0),
        ("shard: optimizer", 3_091.0, 4.0, 2.0),
        ("shard: gradients", 2_367.0, 7.0, 2.0),
        ("shard: parameters", 2_490.0, 7.0, 2.0),
        ("tensor: 2", 2_328.0, 2.0, 3.0),
    ] {
        let off = (memory(parallel) / measured - 1.0) * 100.0;
        assert!((-below..above).contains(&off), "{parallel}: {:.0} MB, {off:.1} % off", memory(parallel));
    }
    let divided = memory("tensor: 2");
    assert!(memory("tensor: 2, shard: none") == divided);
    check_says(&gpt(""), &UNKNOWN, "a vocabulary of 2000 tokens, the most that is learned, is assumed", true);
    check_says(&gpt(""), &UNKNOWN, "is not counted yet", false);
}

#[test]
fn an_image_size_that_the_network_cannot_take_is_refused_with_one_that_it_can() {
    let yaml = "train: {model: vit_s_16, data: {path: images, size: 28}, epochs: 1, batch: 8}\n";
    let facts = JobFacts { input_shape: Some([3, 28, 28]), ..samples([100, 10, 10]) };
    check(
        yaml,
        &[SMALL],
        &facts,
        "train.data.size: `vit_s_16` cuts images into patches of 16 × 16 pixels, and 28 × 28 is no multiple of it \
         (write `size: 32` under `train.data`)",
    );
}
