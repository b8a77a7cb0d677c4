//! `--why OFFER` and `--why-not OFFER`: the arithmetic of an offer, the limits that it keeps or breaks, and what is better.

use std::collections::{BTreeMap, BTreeSet};

use cloud::Catalog;
use domain::accelerators::{AcceleratorKind, Accelerators};
use domain::file::nearest::nearest;
use domain::listing::{Cloud, Listing};
use plan::estimate::Device;
use plan::estimate::memory::{MemoryEstimate, memory};
use plan::search::{
    Availability, Candidate, Constraints, Estimates, Infeasible, Outcome, PricedListing, PurchaseOption, Reason,
    Recommendation, Search, SearchResult, outcomes,
};
use serde_json::{Value, json};

use super::figures::{cents, step, time};
use super::present::{machines, needs, row as row_json};
use super::remedies::PlanContext;
use super::{MarketPlan, PlanRow, refusal, show};
use crate::error::Error;
use crate::figures::{day_of, grouped};

/// Offers that are asked about: those that agree with every part.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Asked {
    text: String,
    /// Whether the question is why not.
    not: bool,
    cloud: Option<Cloud>,
    region: Option<String>,
    kind: Option<String>,
    gpus: Option<(Vec<String>, Option<u32>)>,
    terms: Option<PurchaseOption>,
}

/// What is known of the offers that are asked about.
pub struct Report<'a> {
    asked: &'a Asked,
    /// How many offers it means.
    offers: usize,
    /// Of them that are not compared, by the sentence that says why.
    out: BTreeMap<String, usize>,
    /// The best of what is compared, or else of what came nearest.
    best: Option<Best<'a>>,
}

struct Best<'a> {
    row: PlanRow<'a>,
    memory: MemoryEstimate,
    /// The limit that it breaks.
    missed: Option<Reason>,
    /// Limits, and how it stands to them.
    limits: Vec<String>,
    place: String,
}

/// Reads what is asked about.
///
/// # Errors
/// [`Error::Usage`] for words that nothing in the catalog has, and parts that no offer has together.
pub fn asked(why: &[String], why_not: &[String], catalog: &Catalog) -> Result<Vec<Asked>, Error> {
    let each = why.iter().map(|text| (text, false)).chain(why_not.iter().map(|text| (text, true)));
    each.map(|(text, not)| read(text, not, catalog)).collect()
}

fn read(text: &str, not: bool, catalog: &Catalog) -> Result<Asked, Error> {
    let mut asked = Asked { text: text.to_owned(), not, ..Asked::default() };
    let listings = &catalog.listings;
    for part in text.split('/').map(str::trim) {
        let word = part.to_lowercase().replace(['-', ' '], "_");
        let terms = PurchaseOption::ALL.into_iter().find(|terms| terms.key() == word);
        let kind = listings.iter().find(|listing| listing.instance_type.eq_ignore_ascii_case(part));
        let gpus = part.parse::<Accelerators>().ok().and_then(|wanted| match &wanted.kind {
            AcceleratorKind::Named(name) => {
                let names: Vec<String> = catalog.gpus_named(name).into_iter().map(str::to_owned).collect();
                (!names.is_empty()).then_some((names, wanted.count))
            }
            AcceleratorKind::Memory { .. } => None,
        });
        if let Some(terms) = terms {
            asked.terms = Some(terms);
        } else if let Some(listing) = kind {
            asked.kind = Some(listing.instance_type.clone());
        } else if listings.iter().any(|listing| listing.cloud == Cloud::named(part)) {
            asked.cloud = Some(Cloud::named(part));
        } else if let Some(listing) = listings.iter().find(|listing| listing.region.eq_ignore_ascii_case(part)) {
            asked.region = Some(listing.region.clone());
        } else if let Some(gpus) = gpus {
            asked.gpus = Some(gpus);
        } else {
            return Err(unknown(part, catalog));
        }
    }
    let means = |listing: &&Listing| asked.means(listing);
    if !listings.iter().any(|listing| means(&listing)) {
        let elsewhere = Asked { region: None, terms: None, ..asked.clone() };
        let places: BTreeSet<String> = listings
            .iter()
            .filter(|listing| elsewhere.means(listing))
            .map(|listing| format!("`{}/{}`", listing.cloud, listing.region))
            .collect();
        let hint = match places.len() {
            0 => "`gradus offers` lists what there is".to_owned(),
            _ => format!("it is offered in {}", places.into_iter().take(6).collect::<Vec<_>>().join(", ")),
        };
        return Err(Error::Usage { message: format!("no offer is `{text}`"), hint });
    }
    Ok(asked)
}

/// The error for a word that is no part of an offer, with the nearest names.
fn unknown(part: &str, catalog: &Catalog) -> Error {
    let of = |names: BTreeSet<&str>| -> Vec<String> {
        let first = nearest(part, names.iter().copied()).map(str::to_owned);
        let start: String = part.to_lowercase().chars().take(3).collect();
        let alike = names.iter().filter(|name| name.to_lowercase().starts_with(&start) && start.len() == 3);
        let mut found: Vec<String> = first.into_iter().collect();
        found.extend(alike.take(4).map(|name| (*name).to_owned()));
        found
    };
    let listings = &catalog.listings;
    let mut near = of(listings.iter().map(|listing| listing.instance_type.as_str()).collect());
    near.extend(of(listings.iter().map(|listing| listing.region.as_str()).collect()));
    near.extend(of(catalog.gpus.list.iter().map(|gpu| gpu.name.as_str()).collect()));
    let mut seen = BTreeSet::new();
    near.retain(|name| seen.insert(name.clone()));
    let near: Vec<String> = near.iter().take(6).map(|name| format!("`{name}`")).collect();
    let hint = match near.is_empty() {
        true => "write a machine type, or parts such as `aws/us-east-1/p4d.24xlarge/spot`; `gradus offers` lists them"
            .to_owned(),
        false => format!("known are {} and more: `gradus offers --all` lists them", near.join(", ")),
    };
    Error::Usage { message: format!("no offer has `{part}`: it is no machine type, cloud, region, GPU or terms"), hint }
}

impl Asked {
    fn means(&self, listing: &Listing) -> bool {
        let gpus = |(names, count): &(Vec<String>, Option<u32>)| {
            listing.gpus.name.as_ref().is_some_and(|name| names.contains(name))
                && count.is_none_or(|count| count == listing.gpus.count)
        };
        self.cloud.as_ref().is_none_or(|cloud| *cloud == listing.cloud)
            && self.region.as_ref().is_none_or(|region| *region == listing.region)
            && self.kind.as_ref().is_none_or(|kind| *kind == listing.instance_type)
            && self.gpus.as_ref().is_none_or(gpus)
    }
}

/// What there is to say about each question.
pub fn reports<'a>(
    context: &PlanContext<'a>,
    catalog: &'a Catalog,
    plan: Option<&MarketPlan>,
    asked: &'a [Asked],
) -> Vec<Report<'a>> {
    let estimates = Estimates::calibrated(&context.subject.network, context.coefficients, context.lessons.clone());
    let mut search = Search::new(&context.subject.spec, context.market, estimates);
    asked.iter().map(|asked| report(&mut search, context, catalog, plan, asked)).collect()
}

fn report<'a>(
    search: &mut Search<'a, Estimates<'a>>,
    context: &PlanContext<'a>,
    catalog: &Catalog,
    plan: Option<&MarketPlan>,
    asked: &'a Asked,
) -> Report<'a> {
    let market = context.market;
    let mut report = Report { asked, offers: 0, out: BTreeMap::new(), best: None };
    let (mut compared, mut missed): (Vec<Candidate>, Vec<(Reason, Candidate)>) = (Vec::new(), Vec::new());
    let terms = |terms: &PurchaseOption| asked.terms.is_none_or(|wanted| wanted == *terms);
    for listing in market.unknown.iter().filter(|listing| asked.means(listing)) {
        let priced = PurchaseOption::ALL.into_iter().filter(terms).filter(|terms| terms.price(listing).is_some());
        let offers = priced.count();
        let why = match offers {
            0 => refusal::sentence(Reason::NoPrice, context.question, &SearchResult::default()),
            _ => "the catalog cannot rate its GPUs, or they are parts of one".to_owned(),
        };
        report.offers += offers.max(1);
        *report.out.entry(why).or_default() += offers.max(1);
    }
    for (index, priced) in market.listings.iter().enumerate().filter(|(_, priced)| asked.means(priced.listing)) {
        let wanted = PurchaseOption::ALL.into_iter().filter(terms);
        let (named, unnamed): (Vec<_>, Vec<_>) = wanted.partition(|terms| terms.price(priced.listing).is_some());
        let each = if named.is_empty() { unnamed.into_iter().take(1).collect() } else { named };
        for terms in each {
            report.offers += 1;
            let outcomes = outcomes(search, context.question, index, terms);
            let (before, mut why) = (compared.len(), None);
            for outcome in &outcomes {
                match outcome {
                    Outcome::Compared { candidate } => compared.push(*candidate),
                    Outcome::Missed { reason, candidate } => {
                        missed.push((*reason, *candidate));
                        why = Some(limit(context.question, *reason));
                    }
                    Outcome::Refused { reason } => why = Some(refused(*reason, priced, terms, context, catalog)),
                    Outcome::NoWay { infeasible, .. } => why = why.or(Some(no_way(infeasible, priced, context))),
                }
            }
            if let (true, Some(why)) = (compared.len() == before, why) {
                *report.out.entry(why).or_default() += 1;
            }
        }
    }
    let chosen =
        |candidate: &Candidate| plan.is_some_and(|plan| plan.picks.iter().any(|(_, row)| row.candidate == *candidate));
    let product = |candidate: &Candidate| candidate.point().0 as f64 * candidate.point().1 as f64;
    let rank = |candidate: &Candidate| (!chosen(candidate), candidate.availability);
    let best =
        compared.iter().min_by(|one, other| rank(one).cmp(&rank(other)).then(product(one).total_cmp(&product(other))));
    let nearest = missed.iter().min_by(|(_, one), (_, other)| product(one).total_cmp(&product(other)));
    let found = best.map(|candidate| (None, *candidate)).or(nearest.map(|(reason, one)| (Some(*reason), *one)));
    report.best = found.and_then(|(missed, candidate)| {
        let row = show(search, context.question, context.subject, context.coefficients, context.lessons, &candidate)?;
        let device = Device { nodes: candidate.nodes, ..row.hardware.device.clone() };
        let setup = row.way.setup(&context.subject.spec, &device);
        let memory = memory(&context.subject.network.model, &setup, &context.coefficients.memory);
        let limits = limits(context.question, &row);
        let place = plan.map(|plan| place(plan, &row)).unwrap_or_default();
        Some(Best { row, memory, missed, limits, place })
    });
    report
}

/// Why a job does not admit an offer, with its figures.
fn refused(
    reason: Reason,
    priced: &PricedListing,
    terms: PurchaseOption,
    context: &PlanContext,
    catalog: &Catalog,
) -> String {
    let listing = priced.listing;
    let rate = terms.price(listing).map(|price| price.rate.to_string()).unwrap_or_default();
    let gib = |bytes: Option<domain::Bytes>| {
        bytes.map_or("unknown".to_owned(), |bytes| format!("{:.0} GiB", bytes.0 as f64 / f64::from(1 << 30)))
    };
    let needs = &context.question.admission.needs;
    let general = refusal::sentence(reason, context.question, &SearchResult::default());
    match reason {
        Reason::NotStocked => {
            let source = catalog.says(listing, terms).map_or("", |row| row.source.as_str());
            format!("{general} ({source})")
        }
        Reason::MaxPrice => format!("{general}: it costs {rate}"),
        Reason::SpotSavesLittle | Reason::SpotDistrusted => {
            let on_demand = listing.on_demand.as_ref().map_or("unknown".to_owned(), |price| price.rate.to_string());
            format!("{general}: {rate} against {on_demand}")
        }
        Reason::Cores => {
            let has = listing.cores.map_or("unknown".to_owned(), |cores| cores.to_string());
            format!("{general}: {has} of {}", needs.cores.unwrap_or_default())
        }
        Reason::Memory => format!("{general}: {} of {}", gib(listing.memory), gib(needs.memory)),
        _ => general,
    }
}

fn no_way(infeasible: &Infeasible, priced: &PricedListing, context: &PlanContext) -> String {
    let gpu = &context.market.hardware[priced.hardware].device.gpu;
    let gib = |bytes: f64| bytes / f64::from(1 << 30);
    match infeasible {
        Infeasible::Format => format!("{} has no `{}`", gpu.name, context.subject.spec.program.precision.word()),
        Infeasible::Batch => {
            format!("a batch of {} does not divide into whole samples for its GPUs", context.subject.spec.length.batch)
        }
        Infeasible::Memory { least } => format!(
            "memory: {:.1} GiB are needed on each GPU at least, however the work is divided; {} has {:.1} GiB",
            gib(*least),
            gpu.name,
            gib(gpu.usable.0 as f64)
        ),
    }
}

fn limit(question: &Constraints, reason: Reason) -> String {
    match reason {
        Reason::Budget => format!("above the budget of {}", question.budget.map(cents).unwrap_or_default()),
        Reason::Deadline => {
            let most = question.deadline.map(|most| time(domain::Duration::from_micros(most.0))).unwrap_or_default();
            format!("later than the deadline of {most}")
        }
        Reason::Carbon => {
            format!("emits more than {} kg CO₂, or nobody knows", question.max_carbon.unwrap_or_default())
        }
        other => refusal::sentence(other, question, &SearchResult::default()),
    }
}

/// Every limit that the job sets, and how a candidate stands to it.
fn limits(question: &Constraints, row: &PlanRow) -> Vec<String> {
    let candidate = &row.candidate;
    let keeps = |is_kept: bool| if is_kept { "keeps" } else { "breaks" };
    let mut lines = Vec::new();
    if let Some(most) = question.budget {
        let total = candidate.cost.total();
        lines.push(format!("{} the budget: {} of {}", keeps(total <= most), cents(total), cents(most)));
    }
    if let Some(most) = question.deadline {
        let wall = domain::Duration::from_micros(candidate.point().0);
        let most = domain::Duration::from_micros(most.0);
        lines.push(format!("{} the deadline: {} of {}", keeps(wall <= most), time(wall), time(most)));
    }
    if let Some(most) = question.max_carbon {
        let emitted = candidate.kilograms.map_or("unknown".to_owned(), |kilograms| format!("{kilograms:.1}"));
        let is_kept = candidate.kilograms.is_some_and(|kilograms| kilograms <= most);
        lines.push(format!("{} the limit of carbon: {emitted} of {most} kg CO₂", keeps(is_kept)));
    }
    if let Some(most) = question.admission.max_price {
        lines.push(format!("keeps the price: {} of {most} a machine", row.price.rate));
    }
    if lines.is_empty() {
        lines.push("the job sets none of money, time, carbon or price".to_owned());
    }
    lines
}

/// Where a candidate stands among all.
fn place(plan: &MarketPlan, row: &PlanRow) -> String {
    let roles: Vec<String> = plan
        .picks
        .iter()
        .filter(|(_, other)| other.candidate == row.candidate)
        .map(|(pick, _)| format!("{}: {}", pick.role.word(), pick.why))
        .collect();
    if !roles.is_empty() {
        return format!("chosen as {}", roles.join("; as "));
    }
    let told = |other: &PlanRow| {
        let where_to = format!("{} {}, {}", other.listing.cloud, other.listing.region, other.candidate.terms.word());
        let (wall, total) = (time(other.forecast.time.middle), cents(other.forecast.cost.middle));
        format!("{} in {where_to}: {wall} for {total}", machines(other))
    };
    let (wall, total) = row.candidate.point();
    let better = plan.front.iter().find(|other| {
        let point = other.candidate.point();
        point.0 <= wall && point.1 <= total && other.candidate != row.candidate
    });
    let recommended = plan.picks.iter().find(|(pick, _)| pick.role == Recommendation::Recommended);
    match (better, row.candidate.availability) {
        (Some(better), _) => format!("not chosen: faster and cheaper is {}", told(better)),
        (None, Availability::Unknown) => {
            "not chosen: no source says that it is there, and what is known to be comes first".to_owned()
        }
        (None, _) => match recommended {
            Some((pick, other)) => {
                format!("on the front, nothing is faster and cheaper; recommended is {}: {}", told(other), pick.why)
            }
            None => "on the front, nothing is faster and cheaper".to_owned(),
        },
    }
}

/// Lines for people.
pub fn lines(reports: &[Report]) -> Vec<String> {
    let mut lines = Vec::new();
    for report in reports {
        let word = if report.asked.not { "why not" } else { "why" };
        lines.push(format!("{word} {}: {} offers", report.asked.text, grouped(report.offers as u64)));
        let mut out: Vec<_> = report.out.iter().collect();
        out.sort_by_key(|(_, offers)| std::cmp::Reverse(**offers));
        for (why, offers) in out {
            lines.push(format!("  ruled out {:>5}  {why}", grouped(*offers as u64)));
        }
        if let Some(best) = &report.best {
            lines.extend(arithmetic(best).into_iter().map(|line| format!("  {line}")));
        }
    }
    lines
}

/// The parts of memory, time and cost, and the limits.
fn arithmetic(best: &Best) -> Vec<String> {
    let row = &best.row;
    let place = format!("{} {}, {}", row.listing.cloud, row.listing.region, row.candidate.terms.word());
    let head = if best.missed.is_some() { "nearest  " } else { "best     " };
    let mut lines = vec![format!("{head}{} in {place}", machines(row))];
    if best.missed.is_none() && !best.place.is_empty() {
        lines.push(format!("place    {}", best.place));
    }
    lines.extend(best.limits.iter().map(|limit| format!("limit    {limit}")));
    lines.push(format!(
        "memory   {}",
        sum(&memory_parts(&best.memory), |bytes| format!("{:.1}", bytes / f64::from(1 << 30)), "GiB")
    ));
    let usable = row.hardware.device.gpu.usable.0 as f64 / f64::from(1 << 30);
    let high = row.way.needed_high / f64::from(1 << 30);
    lines.push(format!("         {usable:.1} GiB can be used; one run in ten needs more than {high:.1}"));
    lines.push(format!("step     {}", sum(&step_parts(row), step, "")));
    lines.push(format!(
        "time     {}",
        sum(&time_parts(row), |seconds| time(domain::Duration::from_micros((seconds * 1e6) as u64)), "")
    ));
    let cost = &row.candidate.cost;
    let parts = [
        ("machines", cost.compute),
        ("disks", cost.storage),
        ("checkpoints", cost.checkpoints),
        ("traffic", cost.egress),
    ];
    let parts: Vec<String> = parts.iter().map(|(name, part)| format!("{name} {}", cents(*part))).collect();
    lines.push(format!("cost     {} = {}", cents(cost.total()), parts.join(" + ")));
    lines.push(format!("price    {} a machine × {}, of {}", row.price.rate, row.candidate.nodes, row.price.dated));
    lines.extend(needs(row));
    lines
}

/// `70.2 GiB = weights 14.9 + …`; parts that are nothing are left out.
fn sum(parts: &[(&str, f64)], tell: impl Fn(f64) -> String, unit: &str) -> String {
    let whole: f64 = parts.iter().map(|(_, part)| part).sum();
    let told = parts.iter().filter(|(_, part)| part.abs() > 0.0005 * whole);
    let told: Vec<String> = told.map(|(name, part)| format!("{name} {}", tell(*part))).collect();
    let unit = if unit.is_empty() { String::new() } else { format!(" {unit}") };
    format!("{}{unit} = {}", tell(whole), told.join(" + "))
}

/// The parts of what each GPU must have; what is beside them is what the allocator cannot give back.
fn memory_parts(memory: &MemoryEstimate) -> Vec<(&'static str, f64)> {
    let parts = vec![
        ("weights", memory.weights),
        ("gradients", memory.gradients),
        ("optimizer", memory.optimizer),
        ("activations", memory.activations),
        ("workspace", memory.workspace),
        ("exchange", memory.communication),
        ("context", memory.context),
    ];
    let known: f64 = parts.iter().map(|(_, part)| part).sum();
    let rest = ("fragmentation", (memory.required - known).max(0.0));
    parts.into_iter().chain([rest]).collect()
}

/// The parts of a step that add up to it.
fn step_parts(row: &PlanRow) -> Vec<(&'static str, f64)> {
    let step = &row.step;
    let overhead = (step.seconds.middle - step.compute - step.communication).max(0.0);
    vec![("computing", step.compute), ("waiting for other GPUs", step.communication), ("optimizer and rest", overhead)]
}

/// The parts of the run that add up to it.
fn time_parts(row: &PlanRow) -> Vec<(&'static str, f64)> {
    let timeline = &row.candidate.timeline;
    let boot = plan::search::assumed::BOOT.min(timeline.wall);
    let rest = (timeline.wall - boot - timeline.work).max(0.0);
    vec![
        ("boot", boot),
        ("steps and evaluation", timeline.work),
        ("fetching data, checkpoints and interruptions", rest),
    ]
}

/// Everything for programs.
pub fn json(reports: &[Report]) -> Value {
    let today = day_of(jiff::Timestamp::now());
    let each = reports.iter().map(|report| {
        json!({
            "offer": report.asked.text,
            "question": if report.asked.not { "why_not" } else { "why" },
            "offers": report.offers,
            "ruled_out": report.out.iter().map(|(why, offers)| json!({ "why": why, "offers": offers })).collect::<Vec<_>>(),
            "best": report.best.as_ref().map(|best| {
                let mut value = row_json(&best.row, today);
                value["missed"] = json!(best.missed);
                value["limits"] = json!(best.limits);
                value["place"] = json!(best.place);
                value["memory_bytes"] = json!(best.memory);
                value["step_parts_seconds"] = parts(&step_parts(&best.row));
                value["step_terms_seconds"] = json!(best.row.step.terms);
                value["time_parts_seconds"] = parts(&time_parts(&best.row));
                value
            }),
        })
    });
    Value::Array(each.collect())
}

fn parts(parts: &[(&'static str, f64)]) -> Value {
    parts.iter().map(|(name, part)| ((*name).to_owned(), json!(part))).collect::<serde_json::Map<_, _>>().into()
}
