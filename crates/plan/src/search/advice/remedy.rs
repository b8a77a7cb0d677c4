//! Changes that make a job feasible if nothing remains: one constraint is dropped, and the same search is repeated, so
//! that every suggestion meets all other constraints.

use std::collections::BTreeSet;

use domain::Rate;
use domain::job::Needs;
use domain::wants::Spot;

use crate::search::parallel::Estimator;
use crate::search::{Constraints, PurchaseOption, Search, SearchResult};

/// The constraint that is dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    Budget,
    Deadline,
    Carbon,
    /// Budget and deadline.
    MoneyAndTime,
    /// Budget, deadline and carbon.
    Limits,
    Gpus,
    InstanceType,
    Cloud,
    Region,
    Compliance,
    MaxPrice,
    Spot,
    Dedicated,
    Needs,
}

impl Change {
    /// Every requirement of a job on machines, in the order of suggestions.
    pub const WISHES: [Change; 9] = [
        Change::Gpus,
        Change::InstanceType,
        Change::Cloud,
        Change::Region,
        Change::Compliance,
        Change::MaxPrice,
        Change::Spot,
        Change::Dedicated,
        Change::Needs,
    ];

    /// Limits of the run, alone and combined.
    pub const LIMITS: [Change; 5] =
        [Change::Budget, Change::Deadline, Change::Carbon, Change::MoneyAndTime, Change::Limits];

    /// The key of a requirement under `resources`; `None` for a limit.
    pub fn key(self) -> Option<&'static str> {
        Some(match self {
            Change::Budget | Change::Deadline | Change::Carbon | Change::MoneyAndTime | Change::Limits => return None,
            Change::Gpus => "accelerators",
            Change::InstanceType => "instance_type",
            Change::Cloud => "cloud",
            Change::Region => "region",
            Change::Compliance => "compliance",
            Change::MaxPrice => "max_price",
            Change::Spot => "spot",
            Change::Dedicated => "dedicated",
            Change::Needs => "cpus` and `memory",
        })
    }

    /// The constraints without this one; `None` if they do not contain it.
    pub fn of(self, constraints: &Constraints) -> Option<Constraints> {
        let mut without = constraints.clone();
        let wishes = &mut without.admission;
        match self {
            Change::Budget => without.budget = None,
            Change::Deadline => without.deadline = None,
            Change::Carbon => without.max_carbon = None,
            Change::MoneyAndTime => (without.budget, without.deadline) = (None, None),
            Change::Limits => (without.budget, without.deadline, without.max_carbon) = (None, None, None),
            Change::Gpus => wishes.gpus.clear(),
            Change::InstanceType => wishes.instance_type = None,
            Change::Cloud => wishes.clouds.clear(),
            Change::Region => wishes.regions.clear(),
            Change::Compliance => wishes.compliance.clear(),
            Change::MaxPrice => wishes.max_price = None,
            Change::Spot => wishes.spot = Spot::Auto,
            Change::Dedicated => wishes.dedicated = false,
            Change::Needs => wishes.needs = Needs::default(),
        }
        (without != *constraints).then_some(without)
    }
}

/// The result without it; `None` if that is not enough, or nothing was dropped.
pub fn remedy<E: Estimator>(
    search: &mut Search<E>,
    constraints: &Constraints,
    change: Change,
) -> Option<(Constraints, SearchResult)> {
    let without = change.of(constraints)?;
    let answer = search.answer(&without);
    (!answer.front.is_empty()).then_some((without, answer))
}

/// The lowest price of one machine with its disk that leaves candidates. A spot machine whose on-demand price is above it
/// cannot fall back, so each price is tried.
pub fn least_price<E: Estimator>(
    search: &mut Search<E>,
    constraints: &Constraints,
    answer: &SearchResult,
) -> Option<Rate> {
    let market = search.market;
    let rates: BTreeSet<Rate> = answer
        .candidates
        .iter()
        .flat_map(|candidate| {
            let disk = candidate.disk.unwrap_or_default();
            let rate = |terms| market.listings[candidate.listing].rate(terms).map(|rate| rate.plus(disk));
            [candidate.terms, PurchaseOption::OnDemand].map(rate)
        })
        .flatten()
        .collect();
    rates.into_iter().find(|rate| {
        let mut priced = constraints.clone();
        priced.admission.max_price = Some(*rate);
        !search.answer(&priced).front.is_empty()
    })
}
