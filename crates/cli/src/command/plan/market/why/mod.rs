//! `--why OFFER` and `--why-not OFFER`: the calculation of an offer, the limits that it meets or exceeds, and better
//! ones.

mod asked;
mod reasons;
mod told;

use std::collections::BTreeMap;

use cloud::Catalog;
use plan::estimate::Device;
use plan::estimate::memory::{MemoryEstimate, memory_with};
use plan::search::{Candidate, Estimates, OfferOutcome, PurchaseOption, Reason, Search, SearchResult, outcomes};

use super::layout::simplified;
use super::remedies::PlanContext;
use super::{MarketPlan, PlanRow, refusal, show};
use reasons::{limit, limits, place, refused, why_infeasible};

pub use asked::{Asked, asked};
pub use told::{json, lines};

/// The report about the selected offers.
pub struct OfferReport<'a> {
    asked: &'a Asked,
    /// How many offers it means.
    offers: usize,
    /// The offers that are not compared, by the reason.
    out: BTreeMap<String, Out>,
    /// The best of those compared, or else the nearest miss.
    best: Option<Best<'a>>,
}

/// How many offers are out for one reason, and the figures of the first.
#[derive(Default)]
struct Out {
    offers: usize,
    figures: String,
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

/// The reports about each question.
pub fn reports<'a>(
    context: &PlanContext<'a>,
    catalog: &'a Catalog,
    plan: Option<&MarketPlan>,
    asked: &'a [Asked],
) -> Vec<OfferReport<'a>> {
    let estimates = Estimates::calibrated(&context.subject.network, context.coefficients, context.lessons.clone());
    let mut search = Search::new(&context.subject.spec, context.market, estimates);
    asked.iter().map(|asked| report(&mut search, context, catalog, plan, asked)).collect()
}

/// Candidates of the offers: those that are compared, and those that exceed a limit.
#[derive(Default)]
struct Found {
    compared: Vec<Candidate>,
    missed: Vec<(Reason, Candidate)>,
}

fn report<'a>(
    search: &mut Search<'a, Estimates<'a>>,
    context: &PlanContext<'a>,
    catalog: &Catalog,
    plan: Option<&MarketPlan>,
    asked: &'a Asked,
) -> OfferReport<'a> {
    let market = context.market;
    let mut report = OfferReport { asked, offers: 0, out: BTreeMap::new(), best: None };
    let wanted: Vec<PurchaseOption> =
        PurchaseOption::ALL.into_iter().filter(|terms| asked.terms.is_none_or(|wanted| wanted == *terms)).collect();
    for listing in market.unknown.iter().filter(|listing| asked.means(listing)) {
        let offers = wanted.iter().filter(|terms| terms.price(listing).is_some()).count();
        let why = match offers {
            0 => refusal::sentence(Reason::NoPrice, context.question, &SearchResult::default()),
            _ => "the catalog cannot rate its GPUs, or they are fractional".to_owned(),
        };
        report.offers += offers.max(1);
        report.out.entry(why).or_default().offers += offers.max(1);
    }
    let mut found = Found::default();
    for (index, priced) in market.listings.iter().enumerate().filter(|(_, priced)| asked.means(priced.listing)) {
        let (named, unnamed): (Vec<PurchaseOption>, Vec<PurchaseOption>) =
            wanted.iter().partition(|terms| terms.price(priced.listing).is_some());
        let each = if named.is_empty() { unnamed.into_iter().take(1).collect() } else { named };
        for terms in each {
            report.offers += 1;
            let why = found.add(search, context, catalog, (index, terms));
            if let Some((why, figures)) = why {
                report.out.entry(why).or_insert(Out { offers: 0, figures }).offers += 1;
            }
        }
    }
    report.best = found.best(plan).and_then(|(missed, candidate)| best(search, context, plan, missed, &candidate));
    report
}

impl Found {
    /// Adds an offer; returns the reason if it is not compared on any number of machines.
    fn add(
        &mut self,
        search: &mut Search<Estimates>,
        context: &PlanContext,
        catalog: &Catalog,
        (index, terms): (usize, PurchaseOption),
    ) -> Option<(String, String)> {
        let priced = &context.market.listings[index];
        let (before, mut why) = (self.compared.len(), None);
        for outcome in outcomes(search, context.question, index, terms) {
            match outcome {
                OfferOutcome::Compared { candidate } => self.compared.push(candidate),
                OfferOutcome::Missed { reason, candidate } => {
                    self.missed.push((reason, candidate));
                    why = Some((limit(context.question, reason), String::new()));
                }
                OfferOutcome::Refused { reason } => why = Some(refused(reason, priced, terms, context, catalog)),
                OfferOutcome::Infeasible { why: infeasible, .. } => {
                    why = why.or(Some((why_infeasible(&infeasible, priced, context), String::new())));
                }
            }
        }
        why.filter(|_| self.compared.len() == before)
    }

    /// The best of those compared, a recommended one first; else the nearest miss, with the limit that it exceeds.
    fn best(&self, plan: Option<&MarketPlan>) -> Option<(Option<Reason>, Candidate)> {
        let chosen = |candidate: &Candidate| {
            plan.is_some_and(|plan| plan.picks.iter().any(|(_, row)| row.candidate.is_same_offer(candidate)))
        };
        let product = |candidate: &Candidate| candidate.point().0 as f64 * candidate.point().1 as f64;
        let rank = |candidate: &Candidate| (!chosen(candidate), candidate.availability);
        let compared = self.compared.iter();
        let best =
            compared.min_by(|one, other| rank(one).cmp(&rank(other)).then(product(one).total_cmp(&product(other))));
        let nearest = self.missed.iter().min_by(|(_, one), (_, other)| product(one).total_cmp(&product(other)));
        best.map(|candidate| (None, *candidate)).or(nearest.map(|(reason, one)| (Some(*reason), *one)))
    }
}

/// Everything about a candidate, with the layout that is recommended for it.
fn best<'a>(
    search: &mut Search<'a, Estimates<'a>>,
    context: &PlanContext<'a>,
    plan: Option<&MarketPlan>,
    missed: Option<Reason>,
    candidate: &Candidate,
) -> Option<Best<'a>> {
    let picked = plan.and_then(|plan| plan.picks.iter().find(|(_, row)| row.candidate.is_same_offer(candidate)));
    let candidate = match (picked, missed) {
        (Some((_, row)), _) => row.candidate,
        (None, None) => simplified(search, context, candidate),
        (None, Some(_)) => *candidate,
    };
    let row = show(search, context.question, context.subject, context.coefficients, context.lessons, &candidate)?;
    let device = Device { nodes: candidate.nodes, ..row.hardware.device.clone() };
    let setup = row.config.setup(&context.subject.spec, &device);
    let network = &context.subject.network;
    let memory = memory_with(&network.model, &setup, &network.savings, &context.coefficients.memory);
    let limits = limits(context.question, &row);
    let place = plan.map(|plan| place(plan, &row)).unwrap_or_default();
    Some(Best { row, memory, missed, limits, place })
}
