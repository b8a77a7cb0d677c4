//! Recommendations from the front, with reasons: one candidate for each of four goals.

use serde::Serialize;

use crate::search::{Candidate, Constraints, PurchaseOption, SearchResult};

/// The goal of a recommendation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Recommendation {
    Recommended,
    Cheapest,
    Fastest,
    /// On machines that are not interrupted.
    Robust,
    /// On one machine, without a network between GPUs.
    OneMachine,
    /// The recommended machines under the other terms: on demand instead of spot.
    SameOnDemand,
    /// The recommended machines under the other terms: spot instead of on demand.
    SameSpot,
}

impl Recommendation {
    /// The role as plans print it.
    pub fn word(self) -> &'static str {
        match self {
            Recommendation::Recommended => "recommended",
            Recommendation::Cheapest => "cheapest",
            Recommendation::Fastest => "fastest",
            Recommendation::Robust => "most robust",
            Recommendation::OneMachine => "best on one machine",
            Recommendation::SameOnDemand => "the same on demand",
            Recommendation::SameSpot => "the same as spot",
        }
    }
}

/// A candidate that is chosen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pick {
    pub role: Recommendation,
    /// Index in [`SearchResult::candidates`].
    pub candidate: usize,
    /// Why, as a sentence without a capital and without a full stop.
    pub why: String,
}

/// Chooses. With a deadline, the cheapest that nine runs in ten keep deadline and budget with; without one, the knee of the
/// front: the least of cost times time. `is_risky` says whether a candidate may well miss one of them: one run in ten or
/// more. What is recommended surely fits, unless nothing does.
pub fn choose(
    answer: &SearchResult,
    constraints: &Constraints,
    mut is_risky: impl FnMut(&Candidate) -> bool,
) -> Vec<Pick> {
    let (Some(fastest), Some(cheapest)) = (answer.front.first().copied(), answer.front.last().copied()) else {
        return Vec::new();
    };
    let at = |index: usize| &answer.candidates[index];
    let doubt = |index: usize, why: &str| match at(index).is_sure() {
        true => why.to_owned(),
        false => format!("{why}, but it may not fit the GPUs' memory"),
    };
    let mut picks = Vec::new();
    let recommended = recommended(answer, constraints, &mut is_risky);
    if let Some((candidate, why)) = recommended {
        picks.push(Pick { role: Recommendation::Recommended, candidate, why: doubt(candidate, why) });
    }
    let chosen = recommended.map(|(chosen, _)| chosen);
    picks.push(Pick {
        role: Recommendation::Cheapest,
        candidate: cheapest,
        why: doubt(cheapest, "nothing costs less"),
    });
    let nothing_faster =
        if constraints.budget.is_some() { "nothing within the budget is faster" } else { "nothing is faster" };
    picks.push(Pick { role: Recommendation::Fastest, candidate: fastest, why: doubt(fastest, nothing_faster) });
    if let Some(candidate) = on_one_machine(answer, constraints) {
        let why = doubt(candidate, "no network between machines is needed, and one machine is easier to get");
        picks.push(Pick { role: Recommendation::OneMachine, candidate, why });
    }
    // The knee among machines that nobody takes away, and that surely fit where any do.
    let is_steady =
        |candidate: &Candidate| candidate.terms != PurchaseOption::Spot && answer.is_ranked_first(candidate);
    let any_is_sure = answer.candidates.iter().any(|candidate| is_steady(candidate) && candidate.is_sure());
    let steady = answer.candidates.iter().enumerate();
    let steady = steady.filter(|(_, candidate)| is_steady(candidate) && (candidate.is_sure() || !any_is_sure));
    let is_knee = constraints.budget.is_some() || constraints.deadline.is_none();
    if let Some(candidate) = least(steady, is_knee) {
        let why = doubt(candidate, "nobody takes its machines away, so its time is the surest");
        picks.push(Pick { role: Recommendation::Robust, candidate, why });
    }
    picks.extend(chosen.and_then(|chosen| under_other_terms(answer, chosen)));
    picks
}

/// What is recommended, and by which rule.
fn recommended(
    answer: &SearchResult,
    constraints: &Constraints,
    is_risky: &mut impl FnMut(&Candidate) -> bool,
) -> Option<(usize, &'static str)> {
    let at = |index: usize| &answer.candidates[index];
    let has_budget = constraints.budget.is_some();
    // Not only the front: what is beaten in the middle may be what is still in time in nine runs of ten.
    let mut all = eligible(answer);
    if constraints.deadline.is_some() {
        all.sort_by_cached_key(|index| (at(*index).point().1, at(*index).point().0));
        let safe = all.iter().copied().find(|index| !is_risky(at(*index)));
        return match (safe, has_budget) {
            (Some(safe), false) => Some((safe, "the cheapest that nine runs in ten finish before the deadline")),
            (Some(safe), true) => {
                Some((safe, "the cheapest that nine runs in ten finish before the deadline and within the budget"))
            }
            (None, _) => {
                let why = "the fastest: none keeps deadline and budget in nine runs of ten";
                all.iter().min_by_key(|index| at(**index).point()).map(|first| (*first, why))
            }
        };
    }
    let mut all: Vec<(f64, usize)> = all.into_iter().map(|index| (product(at(index)), index)).collect();
    if !has_budget {
        let knee = all.into_iter().min_by(|(one, _), (other, _)| one.total_cmp(other));
        return knee.map(|(_, knee)| {
            (knee, "the least of cost times time: what is faster costs more than it gains; with a `deadline`, the cheapest in time")
        });
    }
    all.sort_by(|(one, _), (other, _)| one.total_cmp(other));
    match all.iter().find(|(_, index)| !is_risky(at(*index))) {
        Some((_, knee)) => Some((*knee, "the least of cost times time that nine runs in ten finish within the budget")),
        None => {
            let why = "the cheapest: none stays within the budget in nine runs of ten";
            answer.front.last().map(|last| (*last, why))
        }
    }
}

/// The best of one machine: the cheapest in time with a deadline, else the least of cost times time.
fn on_one_machine(answer: &SearchResult, constraints: &Constraints) -> Option<usize> {
    let is_one = |candidate: &Candidate| candidate.nodes == 1 && answer.is_ranked_first(candidate);
    let any_is_sure = answer.candidates.iter().any(|candidate| is_one(candidate) && candidate.is_sure());
    let ones = answer.candidates.iter().enumerate();
    let ones = ones.filter(|(_, candidate)| is_one(candidate) && (candidate.is_sure() || !any_is_sure));
    least(ones, constraints.deadline.is_none())
}

/// The index of the first candidate with the least of cost times time, or of cost.
fn least<'a>(candidates: impl Iterator<Item = (usize, &'a Candidate)>, is_knee: bool) -> Option<usize> {
    let measured = candidates.map(|(index, candidate)| match is_knee {
        true => (product(candidate), 0, index),
        false => (0.0, candidate.point().1, index),
    });
    let best = measured.min_by(|one, other| one.0.total_cmp(&other.0).then(one.1.cmp(&other.1)));
    best.map(|(_, _, index)| index)
}

/// The same machines under the other terms, where that is allowed and keeps the limits.
fn under_other_terms(answer: &SearchResult, chosen: usize) -> Option<Pick> {
    let ours = &answer.candidates[chosen];
    let (role, terms, why) = match ours.terms {
        PurchaseOption::Spot => {
            (Recommendation::SameOnDemand, PurchaseOption::OnDemand, "what nobody taking the machines away costs")
        }
        PurchaseOption::OnDemand => {
            (Recommendation::SameSpot, PurchaseOption::Spot, "the recommended machines where they may be taken away")
        }
        PurchaseOption::Dedicated => return None,
    };
    let is_same = |other: &Candidate| (other.listing, other.nodes, other.terms) == (ours.listing, ours.nodes, terms);
    let candidate = answer.candidates.iter().position(|other| is_same(other) && answer.is_ranked_first(other))?;
    Some(Pick { role, candidate, why: why.to_owned() })
}

/// Cost times time.
fn product(candidate: &Candidate) -> f64 {
    let (time, cost) = candidate.point();
    time as f64 * cost as f64
}

/// The candidates that are as sure to be there as any, and of those the ones that surely fit, where any do.
fn eligible(answer: &SearchResult) -> Vec<usize> {
    let is_ranked = |index: &usize| answer.is_ranked_first(&answer.candidates[*index]);
    let ranked: Vec<usize> = (0..answer.candidates.len()).filter(is_ranked).collect();
    let sure: Vec<usize> = ranked.iter().copied().filter(|index| answer.candidates[*index].is_sure()).collect();
    if sure.is_empty() { ranked } else { sure }
}
