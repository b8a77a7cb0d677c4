//! Changes that make an infeasible job feasible: single changes, each verified by a search, so that suggestions work.

use std::collections::BTreeSet;

use domain::{Duration, Money, Rate};
use plan::estimate::{ActivationCheckpointing, FittedCoefficients};
use plan::search::{
    CalibrationData, Candidate, Change, Constraints, Estimates, MarketIndex, ParallelChoice, ResolvedWorkload, Search,
    SearchResult, admit, least_price, remedy,
};

use super::show;

/// A change, and its result.
pub struct Remedy {
    /// What to write.
    pub write: String,
    pub cheapest: Likely,
    pub fastest: Likely,
}

/// A candidate with what it takes in all but one run of ten.
#[derive(Clone, Copy)]
pub struct Likely {
    pub candidate: Candidate,
    /// One run in ten takes longer.
    pub time: Duration,
    /// One run in ten costs more.
    pub cost: Money,
}

/// The inputs of a plan.
#[derive(Clone, Copy)]
pub struct PlanContext<'a> {
    pub subject: &'a ResolvedWorkload,
    pub market: &'a MarketIndex<'a>,
    pub question: &'a Constraints,
    pub coefficients: &'a FittedCoefficients,
    pub lessons: &'a CalibrationData,
}

/// Numbers of machines beyond those that are looked at by themselves.
const MORE_NODES: [u32; 4] = [32, 64, 128, 256];

/// Numbers of GPUs that a refusal lists.
const MOST_LISTED: usize = 12;

impl PlanContext<'_> {
    /// The answer to a question about a subject.
    fn ask(&self, subject: &ResolvedWorkload, question: &Constraints) -> Option<(Likely, Likely)> {
        let estimates = Estimates::calibrated(&subject.network, self.coefficients, self.lessons.clone());
        let mut search = Search::new(&subject.spec, self.market, estimates);
        let answer: SearchResult = search.answer(question);
        let mut at = |index: Option<&usize>| {
            let candidate = answer.candidates[*index?];
            let shown = show(&mut search, question, subject, self.coefficients, self.lessons, &candidate)?;
            let (time, cost) = (shown.forecast.time.high, shown.forecast.cost.high);
            Some(Likely { candidate, time, cost: cost.max(candidate.cost.total()) })
        };
        let fastest = at(answer.front.first())?;
        Some((fastest, at(answer.front.last())?))
    }

    fn remedy(&self, write: &str, subject: &ResolvedWorkload, question: &Constraints) -> Option<Remedy> {
        let (fastest, cheapest) = self.ask(subject, question)?;
        Some(Remedy { write: write.to_owned(), cheapest, fastest })
    }

    /// How the work may be divided, behind what a GPU needs at least.
    pub fn divided(&self) -> &'static str {
        match &self.subject.spec.division {
            ParallelChoice::Requested(request) if !request.parallel.is_empty() => "divided as `workload.parallel` says",
            ParallelChoice::Search | ParallelChoice::Requested(_) | ParallelChoice::Stated { .. } => {
                "however the work is divided"
            }
        }
    }

    /// Why no number of GPUs divides as the job's `parallel` says, and which are there.
    pub fn wrong_layout(&self) -> (String, String) {
        let spec = &self.subject.spec;
        let needs = match &spec.division {
            ParallelChoice::Requested(request) if request.is_exact(&spec.network) => {
                format!("{} GPUs", request.product())
            }
            ParallelChoice::Requested(request) => format!("a multiple of {} GPUs", request.product()),
            ParallelChoice::Search | ParallelChoice::Stated { .. } => "another number of GPUs".to_owned(),
        };
        let admitted = admit(self.market, &self.question.admission).offers;
        let each = admitted.iter().map(|(listing, _)| self.market.listings[*listing].listing.gpus.count);
        let each: BTreeSet<u32> = each.collect();
        let all = each.iter().flat_map(|gpus| self.question.nodes.iter().map(move |nodes| gpus.saturating_mul(*nodes)));
        let all: BTreeSet<u32> = all.collect();
        let more = if all.len() > MOST_LISTED { " and more" } else { "" };
        let all: Vec<String> = all.iter().take(MOST_LISTED).map(u32::to_string).collect();
        let all = all.join(", ");
        let message = format!("`workload.parallel` is for {needs}, and machines that remain have {all}{more} in all");
        let hint = "change its degrees, leave one of them out, or write `resources: {nodes: …}` so that machines times GPUs fit";
        (message, hint.to_owned())
    }

    /// Changes that give a network that fits nowhere memory enough.
    pub fn for_memory(&self) -> Vec<Remedy> {
        let mut remedies = Vec::new();
        if !self.subject.spec.program.recompute {
            let mut again = self.subject.clone();
            again.spec.program.recompute = true;
            remedies.extend(self.remedy("`recompute: true` under `workload`", &again, self.question));
        }
        let mut freed = self.subject.clone();
        if let ParallelChoice::Requested(request) = &mut freed.spec.division
            && !request.parallel.is_empty()
        {
            request.parallel = domain::workload::WorkloadParallel::default();
            remedies.extend(self.remedy("`parallel: {}` under `workload`", &freed, self.question));
        }
        let mut again = self.subject.clone();
        if let ParallelChoice::Requested(request) = &mut again.spec.division
            && request.recompute == Some(ActivationCheckpointing::Selective)
        {
            request.recompute = Some(ActivationCheckpointing::Full);
            remedies.extend(self.remedy("`recompute: full` under `workload`", &again, self.question));
        }
        remedies.extend(self.other_gpus());
        let most = self.question.nodes.iter().copied().max().unwrap_or(1);
        let usual = plan::search::NODES.into_iter().chain(MORE_NODES);
        for nodes in usual.filter(|nodes| *nodes > most) {
            let more = Constraints { nodes: vec![nodes], ..self.question.clone() };
            if let Some(remedy) = self.remedy(&format!("`nodes: {nodes}` under `resources`"), self.subject, &more) {
                remedies.push(remedy);
                break;
            }
        }
        remedies
    }

    /// Other GPUs than the job asks for: eight large ones, else those of the cheapest machine that its limits leave.
    fn other_gpus(&self) -> Option<Remedy> {
        if self.question.admission.gpus.is_empty() {
            return None;
        }
        let mut any = self.question.clone();
        for text in ["80GB+:8", "140GB+:8"] {
            let Ok(wanted) = text.parse::<domain::accelerators::Accelerators>() else { continue };
            let domain::accelerators::AcceleratorKind::Memory { memory, or_more } = wanted.kind else { continue };
            any.admission.gpus = vec![plan::search::GpuRequirement {
                names: None,
                memory: Some((memory, or_more)),
                count: wanted.count,
            }];
            if let Some(remedy) = self.remedy(&format!("`accelerators: {text}`"), self.subject, &any) {
                return Some(remedy);
            }
        }
        any.admission.gpus.clear();
        let mut remedy = self.remedy("", self.subject, &any)?;
        let gpus = &self.market.listings[remedy.cheapest.candidate.listing].listing.gpus;
        remedy.write = format!("`accelerators: {}:{}`", gpus.name.as_ref()?, gpus.count);
        Some(remedy)
    }

    /// The constraints without some limits; `None` if that is not enough.
    pub fn without(&self, change: Change) -> Option<Remedy> {
        self.remedy("", self.subject, &change.of(self.question)?)
    }

    /// The search result without a requirement; for a price also the lowest that leaves a result. `None` if that is not
    /// enough.
    pub fn leaving_out(&self, change: Change) -> Option<(SearchResult, Option<Rate>)> {
        let estimates = Estimates::calibrated(&self.subject.network, self.coefficients, self.lessons.clone());
        let mut search = Search::new(&self.subject.spec, self.market, estimates);
        let (_, answer) = remedy(&mut search, self.question, change)?;
        let least = (change == Change::MaxPrice).then(|| least_price(&mut search, self.question, &answer)).flatten();
        Some((answer, least))
    }
}
