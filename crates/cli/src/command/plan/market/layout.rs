//! The layouts of recommendations: the simplest that is as good as the fastest, and what it is preferred to.

use plan::search::{
    Candidate, Estimates, LAYOUT_MARGIN, ParallelConfig, Pick, Recommendation, Search, SearchResult, layout_words,
    simplest,
};

use super::remedies::PlanContext;
use super::{PlanRow, show};

/// The fastest layout of an offer whose simpler one is recommended.
#[derive(Clone)]
pub struct FasterLayout {
    /// What to write under `workload:` for it.
    pub layout: String,
    /// Seconds of a step.
    pub seconds: f64,
    /// By what share of the simpler one's its step is shorter.
    pub gain: f64,
}

impl FasterLayout {
    /// The fastest layout of the offer of a candidate that runs `config`; `None` if that is it.
    pub fn of(search: &mut Search<Estimates>, candidate: &Candidate, config: &ParallelConfig) -> Option<FasterLayout> {
        candidate.simpler?;
        let spec = search.spec;
        let fastest = search.config_of(&Candidate { simpler: None, ..*candidate })?;
        let layout = layout_words(fastest, &spec.network);
        let gain = 1.0 - fastest.step / config.step.max(f64::MIN_POSITIVE);
        Some(FasterLayout { layout, seconds: fastest.step, gain })
    }

    /// Why it is not recommended.
    pub fn sentence(&self) -> String {
        let percent = 100.0 * self.gain;
        let gain = if percent < 0.5 { "less than 1".to_owned() } else { format!("{percent:.0}") };
        let margin = 100.0 * LAYOUT_MARGIN;
        format!(
            "simpler than `{}`, whose step is estimated to be {gain} % shorter; what is more complex must be more than {margin:.0} % better",
            self.layout
        )
    }
}

/// The candidate with the simplest layout that may be recommended instead of the fastest.
pub fn simplified(search: &mut Search<Estimates>, context: &PlanContext, fastest: &Candidate) -> Candidate {
    let simpler = search.simpler(context.question, fastest);
    simplest(fastest, &simpler, |candidate| {
        let row = show(search, context.question, context.subject, context.coefficients, context.lessons, candidate);
        row.is_none_or(|row| context.question.is_risky(&row.forecast))
    })
}

/// Recommendations with their rows. The cheapest and the fastest keep the layout that makes them so.
pub fn rows<'a>(
    search: &mut Search<'a, Estimates>,
    context: &PlanContext,
    answer: &SearchResult,
    picks: Vec<Pick>,
) -> Vec<(Pick, PlanRow<'a>)> {
    let mut rows: Vec<(Pick, PlanRow)> = Vec::new();
    for mut pick in picks {
        let fastest = &answer.candidates[pick.candidate];
        let candidate = match pick.role {
            Recommendation::Cheapest | Recommendation::Fastest => *fastest,
            Recommendation::Recommended
            | Recommendation::Robust
            | Recommendation::OneMachine
            | Recommendation::SameOnDemand
            | Recommendation::SameSpot => simplified(search, context, fastest),
        };
        let is_recommended = |(_, row): &(Pick, PlanRow)| row.candidate.is_same_offer(&candidate);
        if rows.first().is_some_and(|first| is_recommended(first) && first.1.candidate != candidate) {
            pick.why.push_str("; the recommended machines with their fastest layout");
        }
        let row = show(search, context.question, context.subject, context.coefficients, context.lessons, &candidate);
        rows.extend(row.map(|row| (pick, row)));
    }
    rows
}
