//! Why offers are rejected, in sentences; and what to change if none remains.

use std::collections::BTreeSet;

use domain::Money;
use domain::listing::{Cloud, Listing};
use domain::volume::Volume;
use plan::search::{
    Admission, Candidate, Change, Constraints, MarketGap, MarketIndex, PurchaseOption, Reason, SearchResult, market_gap,
};

use super::figures::{cents, emissions, time};
use super::missing;
use super::remedies::{Likely, PlanContext};
use crate::figures::counted;
use crate::local::rented::volumes::{least_disk, too_large};

/// A reason, as it stands behind the number of offers that it rules out.
pub fn sentence(reason: Reason, question: &Constraints, answer: &SearchResult) -> String {
    let admission = &question.admission;
    match reason {
        Reason::UnknownGpu => "GPUs that the catalog cannot rate, or fractional GPUs".to_owned(),
        Reason::Accelerators => "other GPUs than the job asks for, or another number of them".to_owned(),
        Reason::OtherFamily => {
            "GPUs whose programs are built for ROCm or Arm; name them in `accelerators` to compare them".to_owned()
        }
        Reason::InstanceType => "other machines than the job asks for".to_owned(),
        Reason::Cloud => "other clouds".to_owned(),
        Reason::Region => "other regions".to_owned(),
        Reason::Compliance => {
            let words: Vec<&str> = admission.compliance.iter().map(|rule| rule.word()).collect();
            format!("not known to comply with {}", words.join(", "))
        }
        Reason::NoPrice => "no price is known".to_owned(),
        Reason::NotStocked => "priced in a region that has no such machines".to_owned(),
        Reason::NoSpot => "spot machines, and the job wants none".to_owned(),
        Reason::OnlySpot => "machines on demand, and the job wants spot machines only".to_owned(),
        Reason::Shared => match admission.dedicated {
            true => "machines that other customers share".to_owned(),
            false => "dedicated machines, which the job does not ask for".to_owned(),
        },
        Reason::MaxPrice => match admission.max_price {
            Some(most) => format!("dearer than {most} a machine with its disk"),
            None => "too dear a machine".to_owned(),
        },
        Reason::SpotDistrusted => format!(
            "spot prices below {:.0} % of the price on demand, derived or where no source says that there are machines: not trusted",
            100.0 * domain::terms::DISTRUSTED_SHARE
        ),
        Reason::SpotSavesLittle => "spot machines that save less than a fifth of the price on demand".to_owned(),
        Reason::Cores => "too few processor cores, or a number that is not known".to_owned(),
        Reason::Memory => "too little memory, or an amount that is not known".to_owned(),
        Reason::Disk => match least_disk(answer) {
            Some(needed) => format!("a disk of {needed} GiB is needed; the largest volume has {}", Volume::MOST_GIB),
            None if admission.needs.disk.is_some() => "no volume is as large as `disk_size`".to_owned(),
            None => "no volume is as large as the work needs, and the disks inside the machine are smaller".to_owned(),
        },
        Reason::Machines => "fewer machines than the job runs on".to_owned(),
        Reason::Format => "GPUs without the number format".to_owned(),
        Reason::Batch => "the batch does not divide into whole samples for so many GPUs".to_owned(),
        Reason::Layout => "numbers of GPUs that do not divide as `workload.parallel` says".to_owned(),
        Reason::GpuMemory => match answer.short_of_memory {
            Some((least, _)) => format!("the GPU's memory is too small: {} are needed at least", gib(least)),
            None => "the GPU's memory is too small".to_owned(),
        },
        Reason::Budget => missed(answer, reason, |nearest| {
            format!("above the budget; the cheapest costs {}", cents(nearest.cost.total()))
        }),
        Reason::Deadline => missed(answer, reason, |nearest| format!("too late; the fastest takes {}", wall(nearest))),
        Reason::Carbon => missed(answer, reason, |nearest| match nearest.kilograms {
            Some(kilograms) => format!("emit too much; the cleanest {kilograms:.1} kg CO₂"),
            None => "emit too much, or nobody knows how much".to_owned(),
        }),
    }
}

fn missed(answer: &SearchResult, reason: Reason, tell: impl Fn(&Candidate) -> String) -> String {
    answer.missed.get(&reason).map_or("beyond a limit".to_owned(), |missed| tell(&missed.nearest))
}

/// Why no offer remains, each reason with a hint.
pub fn reasons(context: &PlanContext, answer: &SearchResult) -> Vec<String> {
    let subject = context.subject;
    let mut told: Vec<(String, String)> = limits(context, answer);
    let is_limited = !told.is_empty();
    told.extend(missing::too_few_machines(answer).filter(|_| !is_limited));
    // Where machines with enough disk exceed `max_price`, it is not the disk that is to change.
    let is_too_expensive = answer.missed.contains_key(&Reason::MaxPrice);
    told.extend(too_large(answer, &context.question.admission.needs).filter(|_| !is_limited && !is_too_expensive));
    let mut tell = |message: String, hint: String| told.push((message, hint));
    // If offers failed on limits alone, memory is not the problem.
    if !is_limited
        && answer.ruled_out.contains_key(&Reason::GpuMemory)
        && let Some((least, has)) = answer.short_of_memory
    {
        let message = format!(
            "training needs {} on each GPU at least, {}; the largest GPU that is too small has {}",
            gib(least),
            context.divided(),
            gib(has)
        );
        let remedies: Vec<String> = context
            .for_memory()
            .iter()
            .map(|remedy| {
                let cheapest = &remedy.cheapest.candidate;
                format!("write {}: {} for {}", remedy.write, wall(cheapest), cents(cheapest.cost.total()))
            })
            .collect();
        let smaller =
            "take a smaller network, or a shorter `sequence`: neither larger GPUs nor more machines are enough";
        tell(message, if remedies.is_empty() { smaller.to_owned() } else { remedies.join("; or ") });
    }
    // A change of batch or format is suggested only if no limit is exceeded: it alone may not be enough then.
    if !is_limited && answer.ruled_out.contains_key(&Reason::Batch) {
        let message = format!(
            "a batch of {} does not divide into whole samples for the GPUs that remain",
            subject.spec.length.batch
        );
        let hint = "write a `batch` that is a multiple of their number: of the machines times the GPUs of each";
        tell(message, hint.to_owned());
    }
    if !is_limited && answer.ruled_out.contains_key(&Reason::Layout) {
        let (message, hint) = context.wrong_layout();
        tell(message, hint);
    }
    if !is_limited && answer.ruled_out.contains_key(&Reason::Format) {
        let word = subject.spec.program.precision.word();
        let message = format!("the GPUs that remain have no `{word}`");
        tell(message, "write `precision: auto`, or ask for other GPUs".to_owned());
    }
    if told.is_empty() {
        told = alone(context);
    }
    told.into_iter().map(|(message, hint)| format!("  {message}\n    hint: {hint}")).collect()
}

/// Limits that are too tight. Where a change of one alone is enough, it is told with what the others leave; where not,
/// limits are told that hold together.
fn limits(context: &PlanContext, answer: &SearchResult) -> Vec<(String, String)> {
    let exceeds = |reason: &Reason| answer.missed.contains_key(reason);
    if ![Reason::Budget, Reason::Deadline, Reason::Carbon].iter().any(exceeds) {
        return Vec::new();
    }
    let each = [budget(context), too_tight(context), carbon(context, answer)];
    let told: Vec<_> = each.into_iter().flatten().collect();
    if told.is_empty() { together(context).into_iter().collect() } else { told }
}

/// The budget, where another one alone is enough.
fn budget(context: &PlanContext) -> Option<(String, String)> {
    let most = context.question.budget?;
    let cheapest = context.without(Change::Budget)?.cheapest;
    let message = format!(
        "the budget of {} is too small: the cheapest, {}, costs {} and takes {}",
        cents(most),
        machine(context, &cheapest.candidate),
        cents(cheapest.candidate.cost.total()),
        wall(&cheapest.candidate)
    );
    Some((message, one_change(&budget_of(&cheapest))))
}

/// The deadline, where another one alone is enough.
fn too_tight(context: &PlanContext) -> Option<(String, String)> {
    let most = context.question.deadline?;
    let fastest = context.without(Change::Deadline)?.fastest;
    let message = format!(
        "the deadline of {} is too tight: the fastest, {}, takes {} and costs {}",
        time(domain::Duration::from_micros(most.0)),
        machine(context, &fastest.candidate),
        wall(&fastest.candidate),
        cents(fastest.candidate.cost.total())
    );
    Some((message, one_change(&deadline_of(&fastest))))
}

/// The limit of emissions, where one is set.
fn carbon(context: &PlanContext, answer: &SearchResult) -> Option<(String, String)> {
    context.question.max_carbon?;
    let missed = answer.missed.get(&Reason::Carbon)?;
    let nearest = &missed.nearest;
    Some(match nearest.kilograms {
        Some(kilograms) => (
            format!(
                "every offer emits more than allowed: the cleanest, {}, {kilograms:.3} kg CO₂",
                machine(context, nearest)
            ),
            format!("write `max_carbon: {}` or more", emissions(kilograms)),
        ),
        None => (
            "nobody knows what the regions that remain emit".to_owned(),
            "leave `max_carbon` out, or name regions whose grid is known: `gradus catalog info` lists the others"
                .to_owned(),
        ),
    })
}

/// All limits together, if changing a single one is not enough. The emission limit is kept if possible.
fn together(context: &PlanContext) -> Option<(String, String)> {
    let (remedy, is_clean) = match context.without(Change::MoneyAndTime) {
        Some(remedy) => (remedy, true),
        None => (context.without(Change::Limits)?, false),
    };
    let (cheapest, fastest) = (&remedy.cheapest, &remedy.fastest);
    let message = format!(
        "the limits are too tight, each of them: the cheapest, {}, costs {} and takes {}; the fastest, {}, takes {} and costs {}",
        machine(context, &cheapest.candidate),
        cents(cheapest.candidate.cost.total()),
        wall(&cheapest.candidate),
        machine(context, &fastest.candidate),
        wall(&fastest.candidate),
        cents(fastest.candidate.cost.total())
    );
    let mut writes = vec![budget_of(cheapest), deadline_of(cheapest)];
    let mut rest = "or more of each: 9 of 10 runs stay within them".to_owned();
    if let (false, Some(_)) = (is_clean, context.question.max_carbon) {
        match cheapest.candidate.kilograms {
            Some(kilograms) => writes.push(format!("`max_carbon: {}`", emissions(kilograms))),
            None => rest.push_str("; and leave `max_carbon` out: nobody knows what it emits"),
        }
    }
    Some((message, format!("write {}, {rest}", writes.join(" and "))))
}

fn machine(context: &PlanContext, candidate: &Candidate) -> String {
    let listing = context.market.listings[candidate.listing].listing;
    format!("{} × {} in {}, {}", candidate.nodes, listing.instance_type, listing.region, candidate.terms.word())
}

// The estimate is a median; the suggestion holds in nine runs of ten.

fn budget_of(likely: &Likely) -> String {
    format!("`budget: {{max: ${}}}`", dollars(likely.cost))
}

fn deadline_of(likely: &Likely) -> String {
    format!("`deadline: {}`", deadline(likely.time))
}

fn one_change(write: &str) -> String {
    format!("write {write} or more, which 9 of 10 runs stay within, or train for fewer steps")
}

/// Which requirement excludes all offers: each is dropped in turn, and the number of feasible offers without it. Clouds that
/// the job leaves out are no remedy while anything else is.
fn alone(context: &PlanContext) -> Vec<(String, String)> {
    let market = context.market;
    let gap = market_gap(market, &context.question.admission);
    let mut told: Vec<(String, String)> = gap.iter().map(missing::told).collect();
    // Other machines and regions are named where those that the job asks for are not there, and nowhere else.
    if gap.is_some_and(|gap| !matches!(gap, MarketGap::Stock(_))) {
        return told;
    }
    for change in Change::WISHES.into_iter().filter(|change| *change != Change::Cloud) {
        let Some(key) = change.key() else { continue };
        let Some((answer, least)) = context.leaving_out(change) else { continue };
        let left: BTreeSet<(usize, PurchaseOption)> =
            answer.candidates.iter().map(|candidate| (candidate.listing, candidate.terms)).collect();
        let first = answer.candidates[*answer.front.last().unwrap_or(&0)];
        let listing = market.listings[first.listing].listing;
        let message = format!(
            "nothing is offered with `resources.{key}` as it is; {} offers are left without it, such as `{}` of {} in {}, {}",
            left.len(),
            listing.instance_type,
            listing.cloud,
            listing.region,
            first.terms.word()
        );
        let instead = match least {
            Some(least) => Some(format!("`max_price: {least}` or more")),
            None => instead(market, change, &context.question.admission, &answer, listing),
        };
        let write = instead.map_or(format!("change `{key}`"), |instead| format!("write {instead}"));
        told.push((message, format!("{write}, or leave it out")));
    }
    if told.is_empty() {
        told.extend(other_clouds(context));
    }
    if told.is_empty() {
        let message =
            "nothing is offered that meets all of `resources`, and leaving out one key alone is not enough".to_owned();
        told.push((
            message,
            "leave out all but `accelerators`, then narrow it down; `gradus offers` lists what there is".to_owned(),
        ));
    }
    told
}

/// What the clouds of the job lack, where only other clouds have it. None of these is named: the job left them out.
fn other_clouds(context: &PlanContext) -> Option<(String, String)> {
    let (answer, _) = context.leaving_out(Change::Cloud)?;
    let clouds: Vec<&str> = context.question.admission.clouds.iter().map(Cloud::name).collect();
    let left: BTreeSet<(usize, PurchaseOption)> =
        answer.candidates.iter().map(|candidate| (candidate.listing, candidate.terms)).collect();
    let message = format!(
        "nothing of {} is all that the rest of `resources` asks for; clouds that the job leaves out have {}",
        clouds.join(" or "),
        counted(left.len() as u64, "offer")
    );
    let listed: Vec<String> = clouds.iter().map(|cloud| format!("`gradus offers --cloud {cloud}`")).collect();
    Some((message, format!("ask for less: {} lists what there is; or leave `cloud` out", listed.join(" or "))))
}

/// The replacement for a requirement, if known: with it, some of the remaining offers are admitted. Offers known to be
/// available come first; `best` is the cheapest of them.
fn instead(
    market: &MarketIndex,
    change: Change,
    admission: &Admission,
    answer: &SearchResult,
    best: &Listing,
) -> Option<String> {
    let ranked = answer.candidates.iter().filter(|candidate| answer.is_ranked_first(candidate));
    let left: Vec<&Listing> = ranked.map(|candidate| market.listings[candidate.listing].listing).collect();
    match change {
        Change::Region => {
            let wanted = admission.regions.first()?;
            let near = domain::file::nearest::nearest(wanted, left.iter().map(|listing| listing.region.as_str()));
            Some(format!("`region: {}`", near.unwrap_or(&best.region)))
        }
        Change::InstanceType => {
            let wanted = admission.instance_type.as_deref()?;
            let types: BTreeSet<&str> = left.iter().map(|listing| listing.instance_type.as_str()).collect();
            let near = domain::file::nearest::nearest(wanted, types.iter().copied());
            Some(format!("`instance_type: {}`", near.or(types.first().copied())?))
        }
        Change::Gpus => {
            let wanted = admission.gpus.iter().find_map(|gpus| gpus.names.as_ref().filter(|_| gpus.count.is_some()))?;
            let counts: BTreeSet<u32> = left
                .iter()
                .filter(|listing| listing.gpus.name.as_ref().is_some_and(|name| wanted.contains(name)))
                .map(|listing| listing.gpus.count)
                .collect();
            let counts: Vec<String> = counts.iter().map(u32::to_string).collect();
            (!counts.is_empty())
                .then(|| format!("one of the numbers of this GPU that are offered: {}", counts.join(", ")))
        }
        Change::Budget
        | Change::Deadline
        | Change::Carbon
        | Change::MoneyAndTime
        | Change::Limits
        | Change::Cloud
        | Change::Compliance
        | Change::MaxPrice
        | Change::Spot
        | Change::Dedicated
        | Change::Needs => None,
    }
}

fn wall(candidate: &Candidate) -> String {
    time(domain::Duration::from_micros((candidate.timeline.wall * 1e6) as u64))
}

/// The next round duration: full minutes up to two hours, then full hours.
fn deadline(time: domain::Duration) -> String {
    let minutes = time.as_secs_f64() / 60.0;
    match minutes {
        few if few <= 120.0 => format!("{:.0}m", few.ceil()),
        many => format!("{:.0}h", (many / 60.0).ceil()),
    }
}

fn gib(bytes: f64) -> String {
    format!("{:.1} GiB", bytes / f64::from(1 << 30))
}

/// The next amount that a person would write.
fn dollars(money: Money) -> String {
    let micros = money.micros();
    let unit = match micros {
        0..1_000_000 => 10_000,
        1_000_000..100_000_000 => 1_000_000,
        _ => 10_000_000,
    };
    let rounded = (micros + unit - 1).div_euclid(unit) * unit;
    match rounded % 1_000_000 {
        0 => (rounded / 1_000_000).to_string(),
        rest => format!("{}.{:02}", rounded / 1_000_000, rest / 10_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_rounded_up_to_what_one_would_write() {
        let check = |micros: i64, text: &str| assert_eq!(dollars(Money::from_micros(micros)), text);
        check(123_456, "0.13");
        check(12_345_678, "13");
        check(1_234_567_890, "1240");
        check(1_000_000, "1");
    }

    #[test]
    fn times_are_rounded_up_to_what_one_would_write() {
        let check = |time: &str, text: &str| assert_eq!(deadline(time.parse().unwrap()), text);
        check("20s", "1m");
        check("17m1s", "18m");
        check("2h", "120m");
        check("2h1m", "3h");
    }
}
