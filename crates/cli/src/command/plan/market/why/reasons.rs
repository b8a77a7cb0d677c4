//! Why an offer is not compared, the limits of a candidate, and where it stands among all.

use cloud::Catalog;
use plan::search::{
    Availability, Constraints, Infeasible, PricedListing, PurchaseOption, Reason, Recommendation, SearchResult,
};

use super::super::figures::{cents, time};
use super::super::present::machines;
use super::super::remedies::PlanContext;
use super::super::{MarketPlan, PlanRow, refusal};

/// Why a job does not admit an offer, and its figures.
pub fn refused(
    reason: Reason,
    priced: &PricedListing,
    terms: PurchaseOption,
    context: &PlanContext,
    catalog: &Catalog,
) -> (String, String) {
    let listing = priced.listing;
    let rate = terms.price(listing).map(|price| price.rate.to_string()).unwrap_or_default();
    let gib = |bytes: Option<domain::Bytes>| {
        bytes.map_or("unknown".to_owned(), |bytes| format!("{:.0} GiB", bytes.0 as f64 / f64::from(1 << 30)))
    };
    let needs = &context.question.admission.needs;
    let general = refusal::sentence(reason, context.question, &SearchResult::default());
    let figures = match reason {
        Reason::NotStocked => catalog.says(listing, terms).map_or(String::new(), |row| row.source.clone()),
        Reason::MaxPrice => format!("it costs {rate}"),
        Reason::SpotSavesLittle | Reason::SpotDistrusted => {
            let on_demand = listing.on_demand.as_ref().map_or("unknown".to_owned(), |price| price.rate.to_string());
            format!("{rate} against {on_demand}")
        }
        Reason::Cores => {
            let has = listing.cores.map_or("unknown".to_owned(), |cores| cores.to_string());
            format!("{has} of {}", needs.cores.unwrap_or_default())
        }
        Reason::Memory => format!("{} of {}", gib(listing.memory), gib(needs.memory)),
        _ => String::new(),
    };
    (general, figures)
}

/// Why no parallel configuration can train on an offer.
pub fn why_infeasible(infeasible: &Infeasible, priced: &PricedListing, context: &PlanContext) -> String {
    let gpu = &context.market.hardware[priced.hardware].device.gpu;
    let gib = |bytes: f64| bytes / f64::from(1 << 30);
    match infeasible {
        Infeasible::Format => format!("{} has no `{}`", gpu.name, context.subject.spec.program.precision.word()),
        Infeasible::Batch => {
            format!("a batch of {} does not divide into whole samples for its GPUs", context.subject.spec.length.batch)
        }
        Infeasible::Layout => refusal::sentence(Reason::Layout, context.question, &SearchResult::default()),
        Infeasible::Memory { least } => format!(
            "memory: {:.1} GiB are needed on each GPU at least, {}; {} has {:.1} GiB",
            gib(*least),
            context.divided(),
            gpu.name,
            gib(gpu.usable.0 as f64)
        ),
    }
}

/// The limit that a candidate exceeds.
pub fn limit(question: &Constraints, reason: Reason) -> String {
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
pub fn limits(question: &Constraints, row: &PlanRow) -> Vec<String> {
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
        let (rate, disk) = match candidate.disk {
            Some(disk) => (row.price.rate.plus(disk), " with its disk"),
            None => (row.price.rate, ""),
        };
        lines.push(format!("{} the price: {rate} of {most} a machine{disk}", keeps(rate <= most)));
    }
    if lines.is_empty() {
        lines.push("the job sets none of money, time, carbon or price".to_owned());
    }
    lines
}

/// Where a candidate stands among all.
pub fn place(plan: &MarketPlan, row: &PlanRow) -> String {
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
    // Offers are compared with their fastest layouts, and the row may have a simpler one.
    let compared = plan.answer.candidates.iter().find(|other| other.is_same_offer(&row.candidate));
    let (wall, total) = compared.unwrap_or(&row.candidate).point();
    let better = plan.front.iter().find(|other| {
        let point = other.candidate.point();
        point.0 <= wall && point.1 <= total && !other.candidate.is_same_offer(&row.candidate)
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
