//! What to choose from the front, and why: one candidate for each of four wishes.

use serde::Serialize;

use super::{Answer, Candidate, Question, Terms};

/// What a candidate is chosen for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    Recommended,
    Cheapest,
    Fastest,
    /// Nobody takes its machines away.
    Robust,
}

impl Role {
    pub fn word(self) -> &'static str {
        match self {
            Role::Recommended => "recommended",
            Role::Cheapest => "cheapest",
            Role::Fastest => "fastest",
            Role::Robust => "most robust",
        }
    }
}

/// A candidate that is chosen.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Pick {
    pub role: Role,
    /// Index in [`Answer::candidates`].
    pub candidate: usize,
    /// Why, as a sentence without a capital and without a full stop.
    pub why: String,
}

/// Chooses. `late` says whether a candidate may well miss the deadline: one run in ten or more.
pub fn choose(answer: &Answer, question: &Question, mut is_risky: impl FnMut(&Candidate) -> bool) -> Vec<Pick> {
    let (Some(fastest), Some(cheapest)) = (answer.front.first().copied(), answer.front.last().copied()) else {
        return Vec::new();
    };
    let at = |index: usize| &answer.candidates[index];
    let mut picks = Vec::new();
    let (recommended, why) = match (question.deadline, question.budget) {
        (Some(_), _) => {
            let by_cost = answer.front.iter().rev().copied();
            match by_cost.clone().find(|index| !is_risky(at(*index))) {
                Some(safe) => (safe, "the cheapest that nine runs in ten finish before the deadline".to_owned()),
                None => (fastest, "the fastest: none finishes before the deadline in nine runs of ten".to_owned()),
            }
        }
        (None, Some(_)) => (fastest, "the fastest within the budget".to_owned()),
        (None, None) => {
            let product = |index: &usize| {
                let (time, cost) = at(*index).point();
                time as f64 * cost as f64
            };
            let knee = answer.front.iter().copied().min_by(|one, other| product(one).total_cmp(&product(other)));
            (
                knee.unwrap_or(cheapest),
                "the least of cost times time: what is faster costs more than it gains".to_owned(),
            )
        }
    };
    picks.push(Pick { role: Role::Recommended, candidate: recommended, why });
    picks.push(Pick { role: Role::Cheapest, candidate: cheapest, why: "nothing costs less".to_owned() });
    picks.push(Pick { role: Role::Fastest, candidate: fastest, why: "nothing is faster".to_owned() });
    // The knee among machines that nobody takes away.
    let steady = answer.candidates.iter().enumerate().filter(|(_, candidate)| candidate.terms != Terms::Spot);
    let product = |candidate: &Candidate| {
        let (time, cost) = candidate.point();
        time as f64 * cost as f64
    };
    let robust = steady.min_by(|(_, one), (_, other)| match question.budget.is_some() || question.deadline.is_none() {
        true => product(one).total_cmp(&product(other)),
        false => one.point().1.cmp(&other.point().1),
    });
    if let Some((candidate, _)) = robust {
        let why = "nobody takes its machines away, so its time is the surest".to_owned();
        picks.push(Pick { role: Role::Robust, candidate, why });
    }
    picks
}
