//! The choice in about ten lines that a person understands.

use domain::Duration;
use plan::search::{Availability, PurchaseOption, Recommendation};

use super::figures::{cents, short, time};
use super::present::{is_old, machines, needs};
use super::{MarketPlan, PlanRow, refusal};
use crate::figures::{counted, grouped};

/// The lines; empty if there is no recommendation.
pub fn lines(plan: &MarketPlan) -> Vec<String> {
    let pick = |role: Recommendation| plan.picks.iter().find(|(pick, _)| pick.role == role);
    let Some((chosen, row)) = pick(Recommendation::Recommended) else { return Vec::new() };
    let mut lines = vec![wanted(plan), compared(plan)];
    let place = format!("{} in {}, {}", row.listing.cloud, row.listing.region, row.candidate.terms.word());
    let faster = row.faster.as_ref();
    let layout = faster.map_or(String::new(), |faster| format!("; its layout is {}", faster.sentence()));
    lines.push(format!("Chosen: {} of {place}: {}{layout}.", machines(row), chosen.why));
    lines.push(fits(row));
    lines.push(limited(row));
    lines.push(costs(plan, row));
    lines.push(risk(row));
    let others =
        [Recommendation::Cheapest, Recommendation::Fastest, Recommendation::OneMachine, Recommendation::Robust];
    for role in others {
        lines.extend(pick(role).and_then(|(_, other)| instead(role, row, other)));
    }
    lines.push(doubts(plan, row));
    lines
}

fn wanted(plan: &MarketPlan) -> String {
    let length = &plan.subject.spec.length;
    let limits: Vec<String> = [
        plan.question.deadline.map(|most| format!("within {}", time(Duration::from_micros(most.0)))),
        plan.question.budget.map(|most| format!("for {} at most", cents(most))),
        plan.question.max_carbon.map(|most| format!("with {most} kg CO₂ at most")),
    ]
    .into_iter()
    .flatten()
    .collect();
    let limits = if limits.is_empty() { String::new() } else { format!(", {}", limits.join(", ")) };
    format!(
        "Wanted: {} steps of {} samples with {} weights{limits}.",
        grouped(length.steps),
        grouped(length.batch),
        short(plan.subject.network.weights)
    )
}

fn compared(plan: &MarketPlan) -> String {
    let mut reasons: Vec<_> = plan.answer.ruled_out.iter().collect();
    reasons.sort_by_key(|(_, offers)| std::cmp::Reverse(**offers));
    let reasons: Vec<String> = reasons
        .into_iter()
        .take(3)
        .map(|(reason, offers)| {
            format!("{} {}", grouped(*offers as u64), refusal::sentence(*reason, plan.question, &plan.answer))
        })
        .collect();
    let out: usize = plan.answer.ruled_out.values().sum();
    let left = grouped((plan.answer.offers - out) as u64);
    match reasons.is_empty() {
        true => format!("Offers: all {left} can do it."),
        false => format!(
            "Offers: {left} of {} can do it; most others are: {}.",
            grouped(plan.answer.offers as u64),
            reasons.join("; ")
        ),
    }
}

fn fits(row: &PlanRow) -> String {
    let gib = |bytes: f64| bytes / f64::from(1 << 30);
    let usable = row.hardware.device.gpu.usable.0 as f64;
    let program =
        row.program.as_ref().map_or(String::new(), |program| format!("; the program is taken to be {program}"));
    format!(
        "Memory: each GPU needs {:.1} of its {:.1} GiB, {:.1} at worst{program}.",
        gib(row.config.needed),
        gib(usable),
        gib(row.config.needed_high)
    )
}

/// The bottleneck.
fn limited(row: &PlanRow) -> String {
    let whole = row.step.seconds.middle.max(f64::MIN_POSITIVE);
    let share = |seconds: f64| 100.0 * seconds / whole;
    let starved = row.candidate.timeline.starved;
    let slowdown = row.candidate.volume.map_or(1.0, |volume| volume.slowdown());
    let what = match (share(row.step.communication), starved) {
        _ if slowdown > 1.25 => "the disk, which is slower than what is read and written",
        (_, starved) if starved > 0.2 => "processor cores that make data ready",
        (exchange, _) if exchange > 30.0 => "exchange between GPUs",
        _ => "computing",
    };
    let said = |line: &String| {
        let (word, rest) = line.split_once(' ')?;
        let whose = if word == "disk" { "each machine has a disk of " } else { "" };
        Some(format!("{whose}{}", rest.trim()))
    };
    let needs: Vec<String> = needs(row).iter().filter_map(said).collect();
    format!(
        "Time: {}, mostly {what} ({:.0} % of a step computes, {:.0} % exchanges); {}.",
        time(row.forecast.time.middle),
        share(row.step.compute),
        share(row.step.communication),
        needs.join("; ")
    )
}

fn costs(plan: &MarketPlan, row: &PlanRow) -> String {
    let cost = &row.candidate.cost;
    let beside = cost.storage + cost.checkpoints + cost.egress;
    let old = if is_old(row.price, plan.today) { ", which is old" } else { "" };
    format!(
        "Cost: {}, of which {} is for machines at {} each (price of {}{old}) and {} for disks, checkpoints and traffic.",
        cents(cost.total()),
        cents(cost.compute),
        row.price.rate,
        row.price.dated,
        cents(beside)
    )
}

fn risk(row: &PlanRow) -> String {
    let (low, high) = (&row.forecast.time.low, &row.forecast.time.high);
    let spot = match row.candidate.terms {
        PurchaseOption::OnDemand | PurchaseOption::Dedicated => "nobody takes the machines away".to_owned(),
        PurchaseOption::Spot => {
            format!("the cloud may take them back, {:.1} times on average", row.candidate.timeline.interruptions)
        }
    };
    format!(
        "Risk: eight runs in ten take {} to {} and cost {} to {}; {spot}.",
        time(*low),
        time(*high),
        cents(row.forecast.cost.low),
        cents(row.forecast.cost.high)
    )
}

/// The gain and the loss of another recommendation.
fn instead(role: Recommendation, row: &PlanRow, other: &PlanRow) -> Option<String> {
    if other.candidate == row.candidate {
        return None;
    }
    let place = format!("{}, {}", other.listing.region, other.candidate.terms.word());
    let layout = if other.candidate.is_same_offer(&row.candidate) { " with their fastest layout" } else { "" };
    Some(format!(
        "Instead, {}: {}{layout} in {place}, {} for {}.",
        role.word(),
        machines(other),
        time(other.forecast.time.middle),
        cents(other.forecast.cost.middle)
    ))
}

fn doubts(plan: &MarketPlan, row: &PlanRow) -> String {
    let there = match row.candidate.availability {
        Availability::Known => "a source says that the region has such machines, nobody that some are free now",
        Availability::Unknown | Availability::Denied => {
            "no source says that the region has such machines: ask the cloud"
        }
    };
    let more = match plan.answer.unconfirmed.len() {
        0 => String::new(),
        1 => "; 1 offer that looks better is left out because no source says that it is there".to_owned(),
        more => format!("; {more} offers that look better are left out because no source says that they are there"),
    };
    let assumed = counted(plan.subject.assumptions.len() as u64 + 1, "assumption");
    format!("Doubts: {there}{more}; {assumed} (`gradus plan JOB` lists them).")
}
