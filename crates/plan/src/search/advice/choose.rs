//! What to choose from the front, and why: one candidate for each of four wishes.

use serde::Serialize;

use crate::search::{Candidate, Constraints, PurchaseOption, SearchResult};

/// What a candidate is chosen for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Recommendation {
    Recommended,
    Cheapest,
    Fastest,
    /// Nobody takes its machines away.
    Robust,
}

impl Recommendation {
    /// The role as plans print it.
    pub fn word(self) -> &'static str {
        match self {
            Recommendation::Recommended => "recommended",
            Recommendation::Cheapest => "cheapest",
            Recommendation::Fastest => "fastest",
            Recommendation::Robust => "most robust",
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

/// Chooses. `is_risky` says whether a candidate may well miss the deadline: one run in ten or more. What is recommended
/// surely fits, unless nothing does.
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
    let front = sure_front(answer);
    let recommended = match (constraints.deadline, constraints.budget) {
        (Some(_), _) => {
            let by_cost = front.iter().rev().copied();
            match by_cost.clone().find(|index| !is_risky(at(*index))) {
                Some(safe) => Some((safe, "the cheapest that nine runs in ten finish before the deadline")),
                None => front
                    .first()
                    .map(|first| (*first, "the fastest: none finishes before the deadline in nine runs of ten")),
            }
        }
        (None, Some(_)) => front.first().map(|first| (*first, "the fastest within the budget")),
        (None, None) => {
            let knee = front.iter().copied().min_by(|one, other| product(at(*one)).total_cmp(&product(at(*other))));
            knee.map(|knee| (knee, "the least of cost times time: what is faster costs more than it gains"))
        }
    };
    if let Some((candidate, why)) = recommended {
        picks.push(Pick { role: Recommendation::Recommended, candidate, why: doubt(candidate, why) });
    }
    picks.push(Pick {
        role: Recommendation::Cheapest,
        candidate: cheapest,
        why: doubt(cheapest, "nothing costs less"),
    });
    picks.push(Pick { role: Recommendation::Fastest, candidate: fastest, why: doubt(fastest, "nothing is faster") });
    // The knee among machines that nobody takes away, and that surely fit where any do.
    let is_steady =
        |candidate: &Candidate| candidate.terms != PurchaseOption::Spot && answer.is_ranked_first(candidate);
    let any_is_sure = answer.candidates.iter().any(|candidate| is_steady(candidate) && candidate.is_sure());
    let steady = answer.candidates.iter().enumerate();
    let steady = steady.filter(|(_, candidate)| is_steady(candidate) && (candidate.is_sure() || !any_is_sure));
    let robust =
        steady.min_by(|(_, one), (_, other)| match constraints.budget.is_some() || constraints.deadline.is_none() {
            true => product(one).total_cmp(&product(other)),
            false => one.point().1.cmp(&other.point().1),
        });
    if let Some((candidate, _)) = robust {
        let why = doubt(candidate, "nobody takes its machines away, so its time is the surest");
        picks.push(Pick { role: Recommendation::Robust, candidate, why });
    }
    picks
}

/// Cost times time.
fn product(candidate: &Candidate) -> f64 {
    let (time, cost) = candidate.point();
    time as f64 * cost as f64
}

/// The front of what surely fits; the whole front where nothing does.
fn sure_front(answer: &SearchResult) -> Vec<usize> {
    if answer.front.iter().all(|index| answer.candidates[*index].is_sure()) {
        return answer.front.clone();
    }
    let sure = answer.front_of(|candidate| candidate.is_sure() && answer.is_ranked_first(candidate));
    if sure.is_empty() { answer.front.clone() } else { sure }
}
