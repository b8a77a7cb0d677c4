//! A plan over everything that is offered, for people and as JSON.

pub mod chart;
mod details;
mod json;
pub mod page;
mod plot;

use std::collections::BTreeSet;

use cloud::prices::CLOUDS;
use domain::Duration;
use plan::money::reserved::{ReservationComparison, Term, compare};
use plan::search::{Availability, PurchaseOption, Recommendation};

use super::{MarketPlan, PlanRow, refusal};
use crate::figures::{OLD_DAYS, grouped};
use crate::table;

pub use details::{needs, program};
pub use json::{json, row};

use super::figures::{cents, short, step, time};
use details::details;

/// What stands in the columns P10–P90.
const EIGHT_OF_TEN: &str =
    "P10–P90: eight runs of ten end between the two; time and cost count booting, interruptions and restarts";

/// Lines for people; `width` is that of the terminal, where there is one.
pub fn lines(plan: &MarketPlan, width: Option<usize>) -> Vec<String> {
    let mut lines = head(plan);
    lines.push(String::new());
    lines.extend(choices(plan, width));
    lines.push(EIGHT_OF_TEN.to_owned());
    lines.push(String::new());
    for (pick, row) in plan.picks.iter().filter(|(pick, _)| pick.role == Recommendation::Recommended) {
        lines.push(format!("recommended: {}", pick.why));
        lines.extend(details(row, plan.question.admission.max_price).into_iter().map(|line| format!("  {line}")));
    }
    for (pick, _) in plan.picks.iter().filter(|(pick, _)| pick.role != Recommendation::Recommended) {
        lines.push(format!("{}: {}", pick.role.word(), pick.why));
    }
    lines.extend(old(plan));
    lines.extend(unconfirmed(plan));
    if let Some(plot) = width.and_then(|width| plot::lines(plan, width)) {
        lines.push(String::new());
        lines.extend(plot);
    }
    lines.push(String::new());
    lines.extend(ruled_out(plan));
    if let (Some(row), Some(_)) = (&plan.reservable, plan.horizon) {
        let at = format!("{} {}", row.listing.cloud, row.listing.region);
        lines.push(format!("reserved: {} in {at}, the least of cost times time that can be", machines(row)));
    }
    lines.extend(reservations(plan).iter().map(reservation));
    if let (None, Some(_)) = (&plan.reservable, plan.horizon) {
        lines.push("reserved: no reservation is known for what this job can use".to_owned());
    }
    lines.extend(assumptions(plan).into_iter().map(|line| format!("assumed  {line}")));
    lines.extend(plan.timings.map(|timings| {
        format!(
            "took     {:.1} ms of processor time to search, {:.1} ms again, {:.1} ms the process until then; {} estimates",
            1e3 * timings.search,
            1e3 * timings.again,
            1e3 * timings.process,
            plan.estimated
        )
    }));
    lines
}

fn head(plan: &MarketPlan) -> Vec<String> {
    let task = &plan.subject.spec;
    let network = &plan.subject.network;
    let trained = match network.savings.adapters {
        Some(_) => format!(" and {} in adapters, which are trained", short(network.ops.parameters)),
        None => String::new(),
    };
    let mut work = format!("{} steps of {} samples", grouped(task.length.steps), grouped(task.length.batch));
    if let Some(samples) = plan.subject.samples {
        let epochs = task.length.steps as f64 * task.length.batch as f64 / samples.max(1) as f64;
        work.push_str(&format!(": {} samples, {epochs:.1} times", grouped(samples)));
    }
    let (from, to) = dates(plan);
    let mut lines = vec![
        format!("job      {}", plan.job.name),
        format!(
            "model    {} weights{trained}, {} multiply-adds a sample forwards",
            short(network.weights),
            short(task.network.multiply_adds)
        ),
        format!("work     {work}"),
        format!(
            "offers   {} compared, on {}; prices of {from} to {to}, see `gradus catalog info`",
            grouped((plan.answer.offers - plan.answer.ruled_out.values().sum::<usize>()) as u64),
            plan.numbers(),
        ),
    ];
    let mut limits = Vec::new();
    limits.extend(plan.question.deadline.map(|most| format!("at most {}", time(Duration::from_micros(most.0)))));
    limits.extend(plan.question.budget.map(|most| format!("at most {}", cents(most))));
    limits.extend(plan.question.max_carbon.map(|most| format!("at most {most} kg CO₂")));
    if !limits.is_empty() {
        lines.push(format!("limits   {}", limits.join(", ")));
    }
    lines
}

fn choices(plan: &MarketPlan, width: Option<usize>) -> Vec<String> {
    // What is chosen for several wishes stands once.
    let mut rows: Vec<(Vec<Recommendation>, &PlanRow)> = Vec::new();
    for (pick, row) in &plan.picks {
        match rows.iter_mut().find(|(_, other)| other.candidate == row.candidate) {
            Some((roles, _)) => roles.push(pick.role),
            None => rows.push((vec![pick.role], row)),
        }
    }
    let rows: Vec<Vec<String>> = rows
        .into_iter()
        .map(|(roles, row)| {
            let forecast = &row.forecast;
            vec![
                roles.into_iter().map(Recommendation::word).collect::<Vec<_>>().join(", "),
                machines(row),
                format!("{} {}", row.listing.cloud, row.listing.region),
                row.candidate.terms.word().to_owned(),
                step(row.step.seconds.middle),
                time(forecast.time.middle),
                format!("{}–{}", time(forecast.time.low), time(forecast.time.high)),
                cents(forecast.cost.middle),
                format!("{}–{}", cents(forecast.cost.low), cents(forecast.cost.high)),
            ]
        })
        .collect();
    let lines = table::lines(&["", "machines", "where", "terms", "step", "time", "P10–P90", "cost", "P10–P90"], &rows);
    let fits = |width: usize| lines.iter().all(|line| line.chars().count() <= width);
    if width.is_none_or(fits) {
        return lines;
    }
    // On a narrow terminal each choice has lines of its own.
    let stacked = rows.iter().flat_map(|row| match &row[..] {
        [roles, machines, place, terms, step, time, times, cost, costs] => vec![
            format!("{roles}:"),
            format!("  {machines}"),
            format!("  {place}, {terms}"),
            format!("  {time} ({times}), {step} per step"),
            format!("  {cost} ({costs})"),
        ],
        _ => Vec::new(),
    });
    stacked.collect()
}

/// Whether a price is older than [`OLD_DAYS`], or its age is unknown.
pub fn is_old(price: &domain::listing::Price, today: i64) -> bool {
    crate::figures::is_old(&price.dated, today)
}

/// A warning if the recommendation depends on old prices, and how to get current ones.
fn old(plan: &MarketPlan) -> Option<String> {
    let rows = plan.picks.iter().map(|(_, row)| row).chain(&plan.front);
    let rows: Vec<&PlanRow> = rows.filter(|row| is_old(row.price, plan.today)).collect();
    let oldest = rows.iter().map(|row| row.price.dated.as_str()).min()?;
    let whose: BTreeSet<String> =
        rows.iter().map(|row| format!("{} {}", row.listing.cloud, row.candidate.terms.word())).collect();
    let whose = whose.into_iter().collect::<Vec<_>>().join(", ");
    // What the user has imported is not refreshed.
    let can_be_read = |row: &&PlanRow| CLOUDS.contains(&row.listing.cloud) && !plan.catalog.is_imported(row.listing);
    let (read, others): (Vec<&PlanRow>, Vec<&PlanRow>) = rows.into_iter().partition(can_be_read);
    let clouds: BTreeSet<&str> = read.iter().map(|row| row.listing.cloud.name()).collect();
    let commands: Vec<String> = clouds.into_iter().map(|cloud| format!("`gradus catalog refresh {cloud}`")).collect();
    let read = (!commands.is_empty()).then(|| format!("read current ones with {}", commands.join(" and ")));
    let import = (!others.is_empty()).then(|| "import newer ones with `gradus catalog import`".to_owned());
    let remedies: Vec<String> = read.into_iter().chain(import).collect();
    Some(format!(
        "old: prices here are more than {OLD_DAYS} days old, the oldest of {oldest} ({whose}); {}",
        remedies.join(", ")
    ))
}

/// Unconfirmed recommendations, and what would be recommended if more were confirmed.
fn unconfirmed(plan: &MarketPlan) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let why = |row: &PlanRow| {
        let says = plan.catalog.says(row.listing, row.candidate.terms);
        says.map_or("no source lists it", |says| says.source.as_str()).to_owned()
    };
    let mut told = BTreeSet::new();
    for (_, row) in plan.picks.iter().filter(|(_, row)| row.candidate.availability == Availability::Unknown) {
        if told.insert((&row.listing.cloud, &row.listing.region, &row.listing.instance_type)) {
            let (cloud, region, terms) = (&row.listing.cloud, &row.listing.region, row.candidate.terms.word());
            let kind = &row.listing.instance_type;
            lines.push(format!("unknown: whether {cloud} has {kind} in {region} {terms}: {}", why(row)));
        }
    }
    // The last is the cheapest.
    if let Some(row) = plan.unconfirmed.last() {
        let (total, shortest) = (cents(row.forecast.cost.middle), time(row.forecast.time.middle));
        let place = format!("{} {}, {}", row.listing.cloud, row.listing.region, row.candidate.terms.word());
        lines.push(format!(
            "unknown: {} more would be chosen from if they are there, such as {} in {place}: {shortest} for {total}; {}",
            plan.answer.unconfirmed.len(),
            machines(row),
            why(row)
        ));
    }
    lines
}

fn ruled_out(plan: &MarketPlan) -> Vec<String> {
    let total: usize = plan.answer.ruled_out.values().sum();
    if total == 0 {
        return Vec::new();
    }
    let mut lines =
        vec![format!("ruled out: {} of {} offers", grouped(total as u64), grouped(plan.answer.offers as u64))];
    let rows: Vec<Vec<String>> = plan
        .answer
        .ruled_out
        .iter()
        .map(|(reason, offers)| {
            vec![format!("  {}", grouped(*offers as u64)), refusal::sentence(*reason, plan.question, &plan.answer)]
        })
        .collect();
    let widest = rows.iter().map(|row| row[0].len()).max().unwrap_or(0);
    lines.extend(rows.into_iter().map(|row| format!("{:>widest$}  {}", row[0].trim(), row[1])));
    lines
}

/// Reservations compared with renting by the hour.
fn reservations(plan: &MarketPlan) -> Vec<ReservationComparison> {
    let Some((hours, runs)) = plan.horizon else { return Vec::new() };
    let Some(row) = &plan.reservable else { return Vec::new() };
    let Some(on_demand) = &row.listing.on_demand else { return Vec::new() };
    let work = row.candidate.timeline.wall / 3600.0 * f64::from(runs);
    let terms = [(Term::OneYear, &row.listing.reserved_1y), (Term::ThreeYears, &row.listing.reserved_3y)];
    let compared = terms.iter().filter_map(|(term, price)| {
        let rate = price.as_ref()?.rate;
        // Constraints on the hourly price apply to reservations too.
        if plan.question.admission.max_price.is_some_and(|most| rate > most) {
            return None;
        }
        Some(compare(*term, on_demand.rate, rate, row.candidate.nodes, work, hours))
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

fn assumptions(plan: &MarketPlan) -> Vec<String> {
    use plan::search::assumed;
    let mut lines = plan.subject.assumptions.clone();
    lines.push(format!(
        "a machine boots in {}, and starts again in {} after it was taken away",
        time(seconds(assumed::BOOT)),
        time(seconds(assumed::RESTART))
    ));
    let on_demand = plan.question.admission.on_demand;
    if on_demand > 0 {
        lines.push(format!(
            "beside spot machines, {on_demand} on demand are paid for from start to end; only the others are interrupted"
        ));
    }
    if plan.picks.iter().any(|(_, row)| row.candidate.terms == PurchaseOption::Spot)
        && plan.question.availability.is_none()
    {
        lines.push(
            "how long spot machines stay follows from the clouds' bands of interruptions and public traces; give your own with `--spot-trace`"
                .to_owned(),
        );
    }
    if plan.question.data_at.is_none() {
        lines.push(
            "the data lies where the machines are; say `data: {at: aws/us-east-1}` to count what leaves there"
                .to_owned(),
        );
    }
    lines
}

/// The days of the oldest and the newest price.
pub fn dates(plan: &MarketPlan) -> (String, String) {
    let dates: BTreeSet<&str> = plan
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

/// How many of which machine, with its GPUs: `2 × p4d.24xlarge (8 A100-40GB)`.
pub fn machines(row: &PlanRow) -> String {
    let gpus = &row.listing.gpus;
    let gpu = &row.hardware.device.gpu;
    let family = plan::search::admit::other_family(gpu).map(|family| format!(", {family}")).unwrap_or_default();
    format!("{} × {} ({} {}{family})", row.candidate.nodes, row.listing.instance_type, gpus.count, gpu.name)
}

fn seconds(seconds: f64) -> Duration {
    Duration::from_micros((seconds * 1e6) as u64)
}
