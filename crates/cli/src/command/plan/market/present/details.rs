//! The details of one candidate: parallel configuration, memory, time, interruptions, cost and assumptions.

use domain::listing::{Cloud, Price};
use domain::tariff::Service;
use domain::{Money, Rate};
use plan::estimate::{ActivationCheckpointing, Class, NumericFormat, Zero};
use plan::search::{MemoryFit, ParallelConfig, PurchaseOption, UnknownTariff};

use super::super::PlanRow;
use super::super::figures::{cents, time};
use super::seconds;
use crate::figures::{counted, grouped};
use crate::local::rented::volumes::sentence;

/// The sentences, each behind a word that says what it is of; `max_price` is the most that the job pays for a machine.
pub fn details(row: &PlanRow, max_price: Option<Rate>) -> Vec<String> {
    let mut lines = vec![format!("parallel {}", configuration(&row.config))];
    lines.extend(program(row));
    lines.extend([memory(row), waits(row)]);
    lines.extend(needs(row));
    lines.extend(interruptions(row));
    lines.extend(costs(row, max_price));
    lines.extend((row.listing.cloud != Cloud::Own).then(|| quota(row)));
    lines.extend(evidence(row));
    if row.config.verdict != MemoryFit::Fits {
        let rather = "nothing surely fits here: try a step before the whole run, or take GPUs with more memory";
        lines.push(format!("note     {rather}"));
    }
    lines
}

/// What of a `workload:` keeps the configuration, what it is simpler than, and the program that is assumed to run it.
pub fn program(row: &PlanRow) -> Vec<String> {
    let layout = row.layout.as_ref().map(|layout| format!("layout   {layout}"));
    let program = row.program.as_ref().map(|program| format!("program  {program}"));
    let faster = row.faster.as_ref().map(|faster| format!("         {}", faster.sentence()));
    layout.into_iter().chain(faster).chain(program).collect()
}

fn memory(row: &PlanRow) -> String {
    let gib = |bytes: f64| bytes / f64::from(1 << 30);
    let usable = row.hardware.device.gpu.usable.0 as f64;
    format!(
        "memory   {:.1} of {:.1} GiB on each GPU ({:.1} to {:.1} in eight runs of ten): {}",
        gib(row.config.needed),
        gib(usable),
        gib(row.config.needed_low),
        gib(row.config.needed_high),
        match row.config.verdict {
            MemoryFit::Fits => "fits",
            MemoryFit::Tight => "may not fit",
            MemoryFit::TooLarge => "does not fit",
        }
    )
}

/// The time of the work, and what steps wait for.
fn waits(row: &PlanRow) -> String {
    let timeline = &row.candidate.timeline;
    let mut waits = format!("time     {} of steps and evaluation", time(seconds(timeline.work)));
    if row.candidate.nodes * row.listing.gpus.count > 1 {
        let share = 100.0 * row.step.communication / row.step.seconds.middle.max(f64::MIN_POSITIVE);
        let share = if share < 0.5 { "less than 1".to_owned() } else { format!("{share:.0}") };
        waits.push_str(&format!("; GPUs wait for each other {share} % of a step"));
    }
    if timeline.starved > 0.005 {
        let cores = row.listing.cores.map_or("its".to_owned(), |cores| cores.to_string());
        waits.push_str(&format!(
            ", and {:.0} % of it for data, which {cores} cores make ready",
            100.0 * timeline.starved
        ));
    }
    waits
}

/// The network and storage bandwidth that the job needs to run at this speed, and the disk that it is rented with.
pub fn needs(row: &PlanRow) -> Vec<String> {
    let exchange = &row.step.exchange;
    let rate = |bytes: f64| match bytes {
        large if large >= 1e9 => format!("{:.1} GB/s", large / 1e9),
        middle if middle >= 1e6 => format!("{:.1} MB/s", middle / 1e6),
        small => format!("{:.1} kB/s", small / 1e3),
    };
    let mut lines = Vec::new();
    if let Some(needed) = exchange.needed() {
        lines.push(format!(
            "exchange each GPU sends {:.2} GB a step: {} of all-reduce hide it behind computing; its links give {}",
            exchange.bytes / 1e9,
            rate(needed),
            rate(exchange.bandwidth)
        ));
    }
    let waiting = row.candidate.volume.map_or(1.0, |volume| volume.slowdown());
    let samples = row.step.samples_per_second * (1.0 - row.candidate.timeline.starved) / waiting;
    let bytes = row.sample.map(|sample| format!(", {}", rate(sample * samples))).unwrap_or_default();
    let shown = if samples < 10.0 { format!("{samples:.1}") } else { grouped(samples.round() as u64) };
    lines.push(format!("data     {shown} samples a second{bytes}"));
    lines.extend(row.candidate.volume.map(|volume| format!("disk     {}", sentence(&volume))));
    lines
}

fn interruptions(row: &PlanRow) -> Option<String> {
    let timeline = &row.candidate.timeline;
    if row.candidate.terms != PurchaseOption::Spot {
        return None;
    }
    let then = match timeline.fallen_back > 0.0 {
        true => format!("; {} of it on demand, while there are no spot machines", time(seconds(timeline.fallen_back))),
        false => "; while there are no spot machines, it waits".to_owned(),
    };
    Some(format!(
        "spot     {:.1} interruptions and a checkpoint every {}{then}",
        timeline.interruptions,
        time(seconds(timeline.interval)),
    ))
}

/// The cost of the run by part, its price, and its carbon emissions.
fn costs(row: &PlanRow, max_price: Option<Rate>) -> Vec<String> {
    let candidate = &row.candidate;
    let cost = &candidate.cost;
    let parts = [
        ("machines", cost.compute),
        ("disks", cost.storage),
        ("checkpoints", cost.checkpoints),
        ("traffic", cost.egress),
    ];
    let parts: Vec<String> = parts
        .iter()
        .filter(|(_, part)| part.micros() > 0)
        .map(|(name, part)| format!("{name} {}", cents(*part)))
        .collect();
    let mut lines = vec![match (parts.is_empty(), row.unknown_tariffs.is_empty()) {
        (true, true) => "cost     nothing: the machines are free, and nothing else is charged".to_owned(),
        (true, false) => "cost     nothing: the machines are free".to_owned(),
        (false, _) => format!("cost     {}", parts.join(", ")),
    }];
    lines.extend(row.unknown_tariffs.iter().map(|tariff| unknown_tariff(row, tariff)));
    lines.push(format!("price    {}", price(row.price)));
    if candidate.terms == PurchaseOption::Spot && domain::terms::is_far_below(row.listing) {
        let below = 100.0 * domain::terms::DISTRUSTED_SHARE;
        lines.push(format!("         below {below:.0} % of the price on demand, half of what is usual: ask the cloud before relying on it"));
    }
    if candidate.terms == PurchaseOption::Spot
        && let Some(on_demand) = &row.listing.on_demand
    {
        lines.push(format!("         {}", most_to_offer(on_demand.rate, max_price, candidate.disk)));
    }
    lines.extend(candidate.kilograms.map(|kilograms| format!("carbon   {kilograms:.1} kg CO₂")));
    lines
}

/// What to offer for a spot machine at most: `max_price` holds the price of its disk too.
fn most_to_offer(on_demand: Rate, max_price: Option<Rate>, disk: Option<Rate>) -> String {
    let cap = Money::from_micros((on_demand.micros_per_hour() as f64 * plan::search::admit::SPOT_CAP) as i64);
    let disk = disk.unwrap_or_default();
    let allowed = max_price.map(|most| Money::from_micros(most.micros_per_hour() - disk.micros_per_hour()));
    match allowed.filter(|allowed| *allowed < cap) {
        Some(allowed) if disk == Rate::default() => {
            format!("offer at most {}/h: `max_price` allows no more", cents(allowed))
        }
        Some(allowed) => format!("offer at most {}/h: with its disk, `max_price` allows no more", cents(allowed)),
        None => format!("offer at most {}/h: more than 80 % of the price on demand saves nothing", cents(cap)),
    }
}

/// What the cloud must allow the account, which new accounts often lack for GPUs.
fn quota(row: &PlanRow) -> String {
    let (nodes, listing) = (row.candidate.nodes, row.listing);
    let is_spot = row.candidate.terms == PurchaseOption::Spot;
    let gpus = counted(u64::from(nodes * listing.gpus.count), "GPU");
    let cores =
        listing.cores.map(|cores| format!("{} vCPUs", grouped(u64::from(nodes * cores)))).unwrap_or(gpus.clone());
    let (what, ask) = match listing.cloud.name() {
        "aws" => {
            let family: String = listing.instance_type.chars().take_while(char::is_ascii_alphabetic).collect();
            let family = if family == "g" || family == "vt" { "G and VT".to_owned() } else { family.to_uppercase() };
            let terms = if is_spot { "All" } else { "Running On-Demand" };
            let requests = if is_spot { "Spot Instance Requests" } else { "instances" };
            (
                format!("{cores} of \"{terms} {family} {requests}\""),
                format!("`aws service-quotas list-service-quotas --service-code ec2 --region {}`", listing.region),
            )
        }
        "gcp" => {
            let terms = if is_spot { "preemptible " } else { "" };
            (format!("{gpus}, {terms}quota"), format!("`gcloud compute regions describe {}`", listing.region))
        }
        "azure" => {
            let terms = if is_spot { "low-priority " } else { "" };
            (format!("{cores} of {terms}quota"), format!("`az vm list-usage --location {}`", listing.region))
        }
        "alibaba" => {
            let terms = if is_spot { "spot" } else { "pay-as-you-go" };
            let ask = format!("`aliyun ecs DescribeAccountAttributes --RegionId {}`", listing.region);
            (format!("{cores} of {terms} quota"), ask)
        }
        "tencent" => {
            let terms = if is_spot { "spot" } else { "pay-as-you-go" };
            let ask = format!("`tccli cvm DescribeAccountQuota --region {}`", listing.region);
            (format!("{cores} of {terms} quota"), ask)
        }
        cloud => (gpus, format!("the console of {cloud}")),
    };
    format!("quota    your account must be allowed {what} in {}: see {ask}", listing.region)
}

/// Measurements that the time of a step was fitted to or corrected by.
fn evidence(row: &PlanRow) -> Vec<String> {
    let anchor = row.step.anchor.as_ref().map(|anchor| {
        format!(
            "measured {} on {} ({}, {}), which the estimate of a step misses by {:.0} %",
            anchor.what,
            anchor.gpu,
            anchor.source,
            counted(anchor.rows as u64, "measurement"),
            100.0 * anchor.error
        )
    });
    let calibration = row.calibration.as_ref().map(|calibration| {
        format!(
            "         {} of this network corrected it by {:+.0} %; what is left is {:.0} % either way",
            counted(calibration.runs as u64, "measured step"),
            100.0 * (calibration.factor - 1.0),
            100.0 * calibration.deviation
        )
    });
    let unmeasured = anchor.is_none().then(|| {
        "measured nothing like this network on this GPU: the ranges come from how far estimates of others miss"
            .to_owned()
    });
    let other_family = match row.step.class {
        Class::Unmeasured => Some(
            "         no network with such operators (recurrent, depthwise or enlarging) was measured: the ranges are wide",
        ),
        Class::UnknownFamily => Some("         no network of this family was measured: the ranges are wide"),
        Class::KnownFamily
        | Class::Images
        | Class::ImagesTogether
        | Class::Sequences
        | Class::SequencesTogether
        | Class::SequencesOverPcie
        | Class::SequencesFar
        | Class::Experts
        | Class::EightBits => None,
    };
    let family = other_family.map(str::to_owned);
    let gpu = &row.hardware.device.gpu;
    let described = gpu.traits.described.then(|| {
        format!(
            "         a {} is known from {} only, and was never measured: the ranges are wide",
            gpu.name, gpu.source
        )
    });
    anchor.into_iter().chain(unmeasured).chain(family).chain(described).chain(calibration).collect()
}

/// An unknown tariff, and its substitute.
fn unknown_tariff(row: &PlanRow, (of_data, service, bound): &UnknownTariff) -> String {
    let what = match service {
        Service::SsdDisk | Service::PlainDisk => "disks",
        Service::Objects => "objects, which hold checkpoints",
        Service::Snapshot => "snapshots",
        Service::Address => "addresses",
        Service::Egress => "traffic to the internet",
        Service::CrossRegion => "traffic to another region",
        Service::SsdIops => "IOPS of disks",
        Service::SsdThroughput => "throughput of disks",
        Service::Io2Disk => "io2 disks",
        Service::Io2Iops => "IOPS of io2 disks",
    };
    let whose = if *of_data { "the cloud that the data lies in".to_owned() } else { row.listing.cloud.to_string() };
    match bound {
        Some(bound) => {
            let unit = unit(*service);
            format!(
                "         the tariff of {whose} for {what} is not known: counted as the dearest known, {bound} {unit}"
            )
        }
        None => format!("         the tariff of {whose} for {what} is not known, and not counted"),
    }
}

/// What a tariff is the price of.
pub fn unit(service: Service) -> &'static str {
    match service {
        Service::Egress | Service::CrossRegion => "a GiB",
        Service::SsdDisk | Service::PlainDisk | Service::Objects | Service::Snapshot | Service::Io2Disk => {
            "a GiB and month"
        }
        Service::SsdIops | Service::Io2Iops => "an IOPS and month",
        Service::SsdThroughput => "a MiB/s and month",
        Service::Address => "an hour",
    }
}

fn configuration(config: &ParallelConfig) -> String {
    let parallel = &config.parallel;
    let mut parts = vec![match parallel.replicas() * parallel.tensor * parallel.pipeline {
        1 => "1 rank".to_owned(),
        ranks => format!("{ranks} ranks"),
    }];
    if parallel.tensor > 1 {
        parts.push(format!("each layer divided by {}", parallel.tensor));
    }
    if parallel.pipeline > 1 {
        parts.push(format!("{} stages", parallel.pipeline));
    }
    if parallel.chunks > 1 {
        parts.push(format!("{} chunks of layers in each stage", parallel.chunks));
    }
    if parallel.context > 1 {
        parts.push(format!("each sequence divided by {}", parallel.context));
    }
    if parallel.expert > 1 {
        parts.push(format!("experts divided by {}", parallel.expert));
    }
    parts.push(match config.accumulate {
        1 => format!("{} samples each", config.micro_batch),
        times => format!("{times} times {} samples each", config.micro_batch),
    });
    match parallel.zero {
        Zero::None => {}
        Zero::Optimizer => parts.push("the optimizer's state divided among them (ZeRO-1)".to_owned()),
        Zero::Gradients => parts.push("state and gradients divided among them (ZeRO-2)".to_owned()),
        Zero::Parameters => parts.push("state, gradients and weights divided among them (ZeRO-3)".to_owned()),
    }
    if parallel.copies > 1 {
        parts.push(format!("{} such copies", parallel.copies));
    }
    match config.recompute {
        ActivationCheckpointing::None => {}
        ActivationCheckpointing::Selective => parts.push("cheap operators recomputed".to_owned()),
        ActivationCheckpointing::Full => parts.push("every block recomputed".to_owned()),
        ActivationCheckpointing::Every(blocks) => parts.push(format!("one block in {blocks} recomputed")),
    }
    parts.push(
        match config.precision {
            NumericFormat::Auto | NumericFormat::Fp32 => "fp32",
            NumericFormat::Tf32 => "TF32",
            NumericFormat::AmpFp16 => "autocast to fp16",
            NumericFormat::AmpBf16 => "autocast to bf16",
            NumericFormat::Bf16 => "bf16",
            NumericFormat::Fp8 => "fp8",
        }
        .to_owned(),
    );
    parts.join(", ")
}

fn price(price: &Price) -> String {
    let derived = price.derived.as_ref().map(|how| format!(", {how}")).unwrap_or_default();
    format!("{} a machine, of {} ({}{derived})", price.rate, price.dated, price.source)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offer_for_a_spot_machine_leaves_the_price_of_its_disk() {
        let rate = |text: &str| text.parse::<Rate>().unwrap();
        let check = |max_price: Option<&str>, disk: Option<&str>, expected: &str| {
            let found = most_to_offer(rate("10/h"), max_price.map(rate), disk.map(rate));
            assert!(found.starts_with(expected), "{max_price:?} {disk:?}: {found}");
        };
        check(None, Some("0.25/h"), "offer at most $8.00/h: more than 80 % ");
        check(Some("5/h"), None, "offer at most $5.00/h: `max_price` allows ");
        check(Some("5/h"), Some("0.25/h"), "offer at most $4.75/h: with its disk, `max_price` allows ");
        check(Some("8.2/h"), Some("0.25/h"), "offer at most $7.95/h: with its disk, ");
        check(Some("9/h"), Some("0.25/h"), "offer at most $8.00/h: more than 80 % ");
    }
}
