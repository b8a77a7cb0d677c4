//! A plan over everything that is offered, for people and as JSON.

mod json;
pub mod page;
mod plot;

use std::collections::BTreeSet;

use domain::listing::Price;
use domain::{Duration, Money};
use plan::estimate::{ActivationCheckpointing, NumericFormat, Zero};
use plan::money::reserved::{ReservationComparison, Term, compare};
use plan::search::{MemoryFit, ParallelConfig, PurchaseOption, Recommendation};

use super::{Found, Shown, refusal};
use crate::figures::{counted, grouped};
use crate::table;

pub use json::json;

use super::figures::{cents, short, step, time};

/// Lines for people; `width` is that of the terminal, where there is one.
pub fn lines(found: &Found, width: Option<usize>) -> Vec<String> {
    let mut lines = head(found);
    lines.push(String::new());
    lines.extend(choices(found));
    lines.push(String::new());
    for (pick, shown) in found.picks.iter().filter(|(pick, _)| pick.role == Recommendation::Recommended) {
        lines.push(format!("recommended: {}", pick.why));
        lines.extend(details(shown).into_iter().map(|line| format!("  {line}")));
    }
    for (pick, _) in found.picks.iter().filter(|(pick, _)| pick.role != Recommendation::Recommended) {
        lines.push(format!("{}: {}", pick.role.word(), pick.why));
    }
    if let Some(plot) = width.and_then(|width| plot::lines(found, width)) {
        lines.push(String::new());
        lines.extend(plot);
    }
    lines.push(String::new());
    lines.extend(ruled_out(found));
    if let (Some(shown), Some(_)) = (&found.reservable, found.horizon) {
        let at = format!("{} {}", shown.listing.cloud, shown.listing.region);
        lines.push(format!("reserved: {} in {at}, the least of cost times time that can be", machines(shown)));
    }
    lines.extend(reservations(found).iter().map(reservation));
    if let (None, Some(_)) = (&found.reservable, found.horizon) {
        lines.push("reserved: no reservation is known for what this job can use".to_owned());
    }
    lines.extend(assumptions(found).into_iter().map(|line| format!("assumed  {line}")));
    lines.extend(found.timings.map(|timings| {
        format!(
            "took     {:.1} ms of processor time to search, {:.1} ms again, {:.1} ms the process until then; {} estimates",
            1e3 * timings.search,
            1e3 * timings.again,
            1e3 * timings.process,
            found.estimated
        )
    }));
    lines
}

fn head(found: &Found) -> Vec<String> {
    let task = &found.subject.spec;
    let weights = found.subject.network.ops.parameters;
    let mut work = format!("{} steps of {} samples", grouped(task.length.steps), grouped(task.length.batch));
    if let Some(samples) = found.subject.samples {
        let epochs = task.length.steps as f64 * task.length.batch as f64 / samples.max(1) as f64;
        work.push_str(&format!(": {} samples, {epochs:.1} times", grouped(samples)));
    }
    let (from, to) = dates(found);
    let mut lines = vec![
        format!("job      {}", found.job.name),
        format!(
            "model    {} weights, {} multiply-adds a sample forwards",
            short(weights),
            short(task.network.multiply_adds)
        ),
        format!("work     {work}"),
        format!(
            "offers   {} compared, on {}; prices of {from} to {to}, see `gradus catalog info`",
            grouped((found.answer.offers - found.answer.ruled_out.values().sum::<usize>()) as u64),
            found.numbers(),
        ),
    ];
    let mut limits = Vec::new();
    limits.extend(found.question.deadline.map(|most| format!("at most {}", time(Duration::from_micros(most.0)))));
    limits.extend(found.question.budget.map(|most| format!("at most {}", cents(most))));
    limits.extend(found.question.max_carbon.map(|most| format!("at most {most} kg CO₂")));
    if !limits.is_empty() {
        lines.push(format!("limits   {}", limits.join(", ")));
    }
    lines
}

fn choices(found: &Found) -> Vec<String> {
    // What is chosen for several wishes stands once.
    let mut rows: Vec<(Vec<Recommendation>, &Shown)> = Vec::new();
    for (pick, shown) in &found.picks {
        match rows.iter_mut().find(|(_, other)| other.candidate == shown.candidate) {
            Some((roles, _)) => roles.push(pick.role),
            None => rows.push((vec![pick.role], shown)),
        }
    }
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|(roles, shown)| {
            let forecast = &shown.forecast;
            vec![
                roles.into_iter().map(Recommendation::word).collect::<Vec<_>>().join(", "),
                machines(shown),
                format!("{} {}", shown.listing.cloud, shown.listing.region),
                shown.candidate.terms.word().to_owned(),
                step(shown.step.seconds.middle),
                time(forecast.time.middle),
                format!("{}–{}", time(forecast.time.low), time(forecast.time.high)),
                cents(forecast.cost.middle),
                format!("{}–{}", cents(forecast.cost.low), cents(forecast.cost.high)),
            ]
        })
        .collect();
    table::lines(&["", "machines", "where", "terms", "step", "time", "P10–P90", "cost", "P10–P90"], &rows)
}

/// The sentences about one candidate.
fn details(shown: &Shown) -> Vec<String> {
    let candidate = &shown.candidate;
    let course = &candidate.timeline;
    let gib = |bytes: f64| bytes / f64::from(1 << 30);
    let usable = shown.hardware.device.gpu.usable.0 as f64;
    let mut lines = vec![
        format!("way      {}", way(&shown.way)),
        format!(
            "memory   {:.1} of {:.1} GiB on each GPU ({:.1} to {:.1} in eight runs of ten): {}",
            gib(shown.way.needed),
            gib(usable),
            gib(shown.way.needed_low),
            gib(shown.way.needed_high),
            match shown.way.verdict {
                MemoryFit::Fits => "fits",
                MemoryFit::Tight => "may not fit",
                MemoryFit::TooLarge => "does not fit",
            }
        ),
    ];
    let mut waits = format!("time     {} of steps and evaluation", time(seconds(course.work)));
    if candidate.nodes * shown.listing.gpus.count > 1 {
        let share = 100.0 * shown.step.communication / shown.step.seconds.middle.max(f64::MIN_POSITIVE);
        let share = if share < 0.5 { "less than 1".to_owned() } else { format!("{share:.0}") };
        waits.push_str(&format!("; GPUs wait for each other {share} % of a step"));
    }
    if course.starved > 0.005 {
        let cores = shown.listing.cores.map_or("its".to_owned(), |cores| cores.to_string());
        waits
            .push_str(&format!(", and {:.0} % of it for data, which {cores} cores make ready", 100.0 * course.starved));
    }
    lines.push(waits);
    if candidate.terms == PurchaseOption::Spot {
        let then = match course.fallen_back > 0.0 {
            true => {
                format!("; {} of it on demand, while there are no spot machines", time(seconds(course.fallen_back)))
            }
            false => "; while there are no spot machines, it waits".to_owned(),
        };
        lines.push(format!(
            "spot     {:.1} interruptions and a checkpoint every {}{then}",
            course.interruptions,
            time(seconds(course.interval)),
        ));
    }
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
    lines.push(format!("cost     {}", parts.join(", ")));
    lines.push(format!("price    {}", price(shown.price)));
    if candidate.terms == PurchaseOption::Spot
        && let Some(on_demand) = &shown.listing.on_demand
    {
        let cap = Money::from_micros((on_demand.rate.micros_per_hour() as f64 * plan::search::admit::SPOT_CAP) as i64);
        lines.push(format!(
            "         offer at most {}/h: more than 80 % of the price on demand saves nothing",
            cents(cap)
        ));
    }
    if let Some(kilograms) = candidate.kilograms {
        lines.push(format!("carbon   {kilograms:.1} kg CO₂"));
    }
    if let Some(anchor) = &shown.step.anchor {
        lines.push(format!(
            "measured {} on {} ({}, {}), which the estimate of a step misses by {:.0} %",
            anchor.what,
            anchor.gpu,
            anchor.source,
            counted(anchor.rows as u64, "measurement"),
            100.0 * anchor.error
        ));
    }
    if let Some(calibration) = &shown.calibration {
        lines.push(format!(
            "         {} of this network corrected it by {:+.0} %; what is left is {:.0} % either way",
            counted(calibration.runs as u64, "measured step"),
            100.0 * (calibration.factor - 1.0),
            100.0 * calibration.deviation
        ));
    }
    if shown.way.verdict != MemoryFit::Fits {
        let rather = "nothing surely fits here: try a step before the whole run, or take GPUs with more memory";
        lines.push(format!("note     {rather}"));
    }
    lines
}

fn ruled_out(found: &Found) -> Vec<String> {
    let total: usize = found.answer.ruled_out.values().sum();
    if total == 0 {
        return Vec::new();
    }
    let mut lines =
        vec![format!("ruled out: {} of {} offers", grouped(total as u64), grouped(found.answer.offers as u64))];
    let rows: Vec<Vec<String>> = found
        .answer
        .ruled_out
        .iter()
        .map(|(reason, offers)| {
            vec![format!("  {}", grouped(*offers as u64)), refusal::sentence(*reason, found.question, &found.answer)]
        })
        .collect();
    let widest = rows.iter().map(|row| row[0].len()).max().unwrap_or(0);
    lines.extend(rows.into_iter().map(|row| format!("{:>widest$}  {}", row[0].trim(), row[1])));
    lines
}

/// Reservations beside renting by the hour.
fn reservations(found: &Found) -> Vec<ReservationComparison> {
    let Some((hours, runs)) = found.horizon else { return Vec::new() };
    let Some(shown) = &found.reservable else { return Vec::new() };
    let Some(on_demand) = &shown.listing.on_demand else { return Vec::new() };
    let work = shown.candidate.timeline.wall / 3600.0 * f64::from(runs);
    let terms = [(Term::OneYear, &shown.listing.reserved_1y), (Term::ThreeYears, &shown.listing.reserved_3y)];
    let compared = terms.iter().filter_map(|(term, price)| {
        let rate = price.as_ref()?.rate;
        Some(compare(*term, on_demand.rate, rate, shown.candidate.nodes, work, hours))
    });
    compared.collect()
}

fn reservation(comparison: &ReservationComparison) -> String {
    let term = match comparison.term {
        Term::OneYear => "1 year",
        Term::ThreeYears => "3 years",
    };
    format!(
        "  for {term}: {} against {} by the hour for {:.0} h of work; pays from {:.0} % of the time on",
        cents(comparison.reserved),
        cents(comparison.by_the_hour),
        comparison.hours,
        100.0 * comparison.breaks_even_at,
    )
}

fn assumptions(found: &Found) -> Vec<String> {
    use plan::search::assumed;
    let mut lines = found.subject.assumptions.clone();
    lines.push(format!(
        "a machine boots in {}, and starts again in {} after it was taken away",
        time(seconds(assumed::BOOT)),
        time(seconds(assumed::RESTART))
    ));
    if found.picks.iter().any(|(_, shown)| shown.candidate.terms == PurchaseOption::Spot)
        && found.question.availability.is_none()
    {
        lines.push(
            "how long spot machines stay follows from the clouds' bands of interruptions and public traces; give your own with `--spot-trace`"
                .to_owned(),
        );
    }
    if found.question.data_at.is_none() {
        lines.push(
            "the data lies where the machines are; say `data: {at: aws/us-east-1}` to count what leaves there"
                .to_owned(),
        );
    }
    lines
}

/// The days of the oldest and the newest price.
pub fn dates(found: &Found) -> (String, String) {
    let dates: BTreeSet<&str> = found
        .catalog
        .listings
        .iter()
        .flat_map(|listing| [&listing.on_demand, &listing.spot])
        .flatten()
        .map(|price| price.dated.as_str())
        .collect();
    let day = |day: Option<&&str>| day.map_or("an unknown day".to_owned(), |day| (*day).to_owned());
    (day(dates.first()), day(dates.last()))
}

pub fn machines(shown: &Shown) -> String {
    let gpus = &shown.listing.gpus;
    format!(
        "{} × {} ({} {})",
        shown.candidate.nodes, shown.listing.instance_type, gpus.count, shown.hardware.device.gpu.name
    )
}

fn way(way: &ParallelConfig) -> String {
    let parallel = &way.parallel;
    let mut parts = vec![match parallel.data * parallel.tensor * parallel.pipeline {
        1 => "1 rank".to_owned(),
        ranks => format!("{ranks} ranks"),
    }];
    if parallel.tensor > 1 {
        parts.push(format!("each layer divided by {}", parallel.tensor));
    }
    if parallel.pipeline > 1 {
        parts.push(format!("{} stages", parallel.pipeline));
    }
    parts.push(match way.accumulate {
        1 => format!("{} samples each", way.micro_batch),
        times => format!("{times} times {} samples each", way.micro_batch),
    });
    match parallel.zero {
        Zero::None => {}
        Zero::Optimizer => parts.push("the optimiser's state divided among them (ZeRO-1)".to_owned()),
        Zero::Gradients => parts.push("state and gradients divided among them (ZeRO-2)".to_owned()),
        Zero::Parameters => parts.push("state, gradients and weights divided among them (ZeRO-3)".to_owned()),
    }
    match way.recompute {
        ActivationCheckpointing::None => {}
        ActivationCheckpointing::Selective => parts.push("attention recomputed".to_owned()),
        ActivationCheckpointing::Full => parts.push("every block recomputed".to_owned()),
        ActivationCheckpointing::Every(blocks) => parts.push(format!("one block in {blocks} recomputed")),
    }
    parts.push(
        match way.precision {
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

fn seconds(seconds: f64) -> Duration {
    Duration::from_micros((seconds * 1e6) as u64)
}
