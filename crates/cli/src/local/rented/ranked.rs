//! In which order machines of a cloud are asked for: as the search of `gradus plan` ranks them, where it knows what is trained.

use std::collections::BTreeMap;
use std::path::Path;

use cloud::Catalog;
use cloud::rented::MachineChoice;
use domain::wants::Spot;
use domain::{Job, Money, Offer};
use plan::estimate::{Device, FittedCoefficients};
use plan::search::{
    Candidate, Estimates, Forecast, MarketIndex, PurchaseOption, Recommendation, Search, SearchResult, choose,
    forecast, resolve, simplest,
};

use super::constraints::{market, question};
use super::cores::estimate_ahead;
use super::volumes::{Volumes, refuse_too_large};
use crate::error::Error;

/// Offers in their order, and what is known of the first one.
pub struct Ranked {
    /// The plan's choice first.
    pub offers: Vec<Offer>,
    /// Time and cost on the first one, why it is chosen, and what was assumed; none where nothing says what is trained.
    pub chosen: Option<Chosen>,
    /// The volumes that the search chose.
    pub volumes: Volumes,
}

/// What the search says of its choice.
pub struct Chosen {
    pub forecast: Forecast,
    /// What of the cost is for disks.
    pub storage: Money,
    pub assumptions: Vec<String>,
}

/// Seed of the courses that spot bands are read from.
const SEED: u64 = 1;

/// Ranks what a job may be rented. Without a search, spot machines stay out unless nothing else is asked for, and the
/// cheapest is the first. `offered` is what there is, with volumes that the search has chosen.
///
/// # Errors
/// [`Error::Usage`] for words that nothing in the catalog has, [`Error::Infeasible`] where no disk holds the work.
pub fn ranked(job: &Job, catalog: &Catalog, offered: impl Fn(&Volumes) -> Vec<Offer>) -> Result<Ranked, Error> {
    let unranked = |volumes: Volumes| {
        let mut offers = offered(&volumes);
        let is_meant = |choice: MachineChoice| !choice.is_spot || job.wants.spot == Spot::Only;
        offers.retain(|offer| offer.kind.parse().is_ok_and(is_meant));
        Ok(Ranked { offers, chosen: None, volumes })
    };
    let bytes = plan::search::workload::model_file(job).and_then(|path| std::fs::read(Path::new(path)).ok());
    let Ok(subject) = resolve(job, bytes.as_deref()) else { return unranked(Volumes::default()) };
    let Ok(coefficients) = FittedCoefficients::embedded() else { return unranked(Volumes::default()) };
    let mut question = question(job, catalog, None)?;
    question.nodes = vec![job.nodes()];
    let market = market(catalog);
    let estimator = || Estimates::new(&subject.network, &coefficients);
    let mut search = Search::new(&subject.spec, &market, estimator());
    estimate_ahead(&mut search, &question, estimator);
    let answer = search.answer(&question);
    let sized = |volumes: Volumes| volumes.sized(&subject.spec, &job.needs, &catalog.listings);
    let forecast_of = |search: &mut Search<Estimates>, candidate: &Candidate| {
        let priced = &market.listings[candidate.listing];
        let config = search.config_of(candidate)?.clone();
        let device = Device { nodes: candidate.nodes, ..market.hardware[priced.hardware].device.clone() };
        let step = subject.network.step(&config.setup(&subject.spec, &device), &coefficients);
        let middle = step.seconds.middle.max(f64::MIN_POSITIVE);
        let band = (step.seconds.low / middle, step.seconds.high / middle);
        Some(forecast(search, &question, candidate, band, SEED))
    };
    let risky = |forecast: Forecast| question.is_risky(&forecast);
    let is_risky =
        |search: &mut Search<Estimates>, candidate: &Candidate| forecast_of(search, candidate).is_none_or(risky);
    let picks = choose(&answer, &question, |candidate| is_risky(&mut search, candidate));
    let Some(pick) = picks.into_iter().find(|pick| pick.role == Recommendation::Recommended) else {
        refuse_too_large(&answer, &job.needs)?;
        return unranked(sized(Volumes::of(&market, &answer.candidates)));
    };
    let fastest = &answer.candidates[pick.candidate];
    let simpler = search.simpler(&question, fastest);
    let chosen = simplest(fastest, &simpler, |candidate| is_risky(&mut search, candidate));
    let volumes = sized(Volumes::of(&market, std::iter::once(&chosen).chain(&answer.candidates)));
    let known = compared(&answer, &market, pick.candidate, offered(&volumes));
    // What is recommended may be a machine that gradus cannot rent.
    let Some(best) = known.first().map(|(rank, _)| *rank) else {
        refuse_too_large(&answer, &job.needs)?;
        return unranked(volumes);
    };
    let why = format!("`gradus plan` recommends this machine: {}", pick.why);
    let (storage, chosen) = (chosen.cost.storage, forecast_of(&mut search, &chosen).filter(|_| best == 0));
    let assumptions = subject.assumptions.iter().cloned().chain([why]).collect();
    let chosen = chosen.map(|forecast| Chosen { forecast, storage, assumptions });
    Ok(Ranked { offers: known.into_iter().map(|(_, offer)| offer).collect(), chosen, volumes })
}

/// Offers that the search has compared, each with its rank, in that order.
fn compared(answer: &SearchResult, market: &MarketIndex, chosen: usize, offers: Vec<Offer>) -> Vec<(usize, Offer)> {
    let mut ranks: BTreeMap<(&str, &str, bool), usize> = BTreeMap::new();
    for (rank, index) in order(answer, chosen).into_iter().enumerate() {
        let candidate = &answer.candidates[index];
        let listing = market.listings[candidate.listing].listing;
        let is_spot = candidate.terms == PurchaseOption::Spot;
        ranks.entry((&listing.region, &listing.instance_type, is_spot)).or_insert(rank);
    }
    let rank = |offer: &Offer| {
        let choice = offer.kind.parse::<MachineChoice>().ok()?;
        ranks.get(&(choice.region.as_str(), choice.machine.as_str(), choice.is_spot)).copied()
    };
    let mut known: Vec<(usize, Offer)> = offers.into_iter().filter_map(|offer| Some((rank(&offer)?, offer))).collect();
    known.sort_by_key(|(rank, _)| *rank);
    known
}

/// All candidates: the plan's choice, then the others by cost times time.
fn order(answer: &SearchResult, chosen: usize) -> Vec<usize> {
    let product = |index: &usize| {
        let (time, cost) = answer.candidates[*index].point();
        time as f64 * cost as f64
    };
    let mut others: Vec<usize> = (0..answer.candidates.len()).collect();
    others.sort_by(|one, other| product(one).total_cmp(&product(other)));
    std::iter::once(chosen).chain(others).collect()
}

#[cfg(test)]
mod tests {
    use domain::{Bytes, Elapsed};
    use plan::money::rent;

    use super::*;

    const RESNET: &str = "
run: python train.py
num_nodes: 2
workload:
  model: {config: {model_type: resnet, layer_type: bottleneck, embedding_size: 64, depths: [3, 4, 6, 3], \
    hidden_sizes: [256, 512, 1024, 2048], num_labels: 1000}}
  image: 224
  batch: 1024
  epochs: 9
  optimizer: sgd_momentum
data: {samples: 1281167, bytes: 147 GB}
";

    /// A job with these lines and so much data.
    fn resnet(lines: &str, data: &str) -> Job {
        Job::parse(&format!("{lines}{}", RESNET.replace("147 GB", data)), "job.yaml").unwrap().job
    }

    /// What AWS offers a job.
    fn of_aws(job: &Job, catalog: &Catalog, volumes: &Volumes) -> Vec<Offer> {
        let with_disk = |offer: Offer| {
            let (disk, volume) = volumes.disk(&offer, &job.needs);
            cloud::aws::with_disk(catalog, offer, disk, volume)
        };
        cloud::aws::offers(catalog, &job.wants).into_iter().map(with_disk).collect()
    }

    /// What `gradus plan` counts for disks is what `gradus run` pays for them: the whole volume of each machine.
    #[test]
    fn a_plan_and_a_run_count_the_same_for_disks() {
        let catalog = Catalog::embedded().unwrap();
        for machine in ["g5.12xlarge", "p4d.24xlarge"] {
            let resources = format!("resources: {{infra: aws/us-east-1, instance_type: {machine}, use_spot: false}}");
            let job = resnet(&resources, "147 GB");
            let offered = |volumes: &Volumes| of_aws(&job, &catalog, volumes);
            let Ranked { offers, chosen, .. } = ranked(&job, &catalog, offered).unwrap();
            let chosen = chosen.unwrap();
            let disk = cloud::aws::disk_rate(&catalog, Some("us-east-1"), &offers[0].node);
            let paid = rent(disk, 2, Elapsed(chosen.forecast.time.middle.micros()));
            // Times are rounded to microseconds.
            assert!(paid.micros() > 0 && paid.micros().abs_diff(chosen.storage.micros()) <= 2, "{machine}: {paid}");
        }
    }

    /// 28 TB fit on no volume. The disks inside a p5 hold them, and there is none to rent.
    #[test]
    fn machines_refused_for_their_disk_are_not_rented_instead_of_what_is_recommended() {
        let catalog = Catalog::embedded().unwrap();
        let resources = "infra: aws/us-east-1, accelerators: ['A10G:8', 'H100:8'], use_spot: false";
        let [large, small] = ["28 TB", "1 TB"].map(|data| resnet(&format!("resources: {{{resources}}}"), data));
        let rented = |job: &Job| {
            let without = |volumes: &Volumes| {
                let mut offers = of_aws(job, &catalog, volumes);
                offers.retain(|offer| !offer.kind.contains("/p5"));
                offers
            };
            ranked(job, &catalog, without).map(|ranked| ranked.offers)
        };
        assert!(!of_aws(&large, &catalog, &Volumes::default()).is_empty());
        let Err(Error::Infeasible { reasons }) = rented(&large) else { panic!("a machine is rented") };
        assert!(reasons[0].contains("the largest volume") && reasons[1].contains("cannot rent"), "{reasons:?}");
        assert!(rented(&small).is_ok_and(|offers| !offers.is_empty()));
    }

    /// Where no plan is left, because each exceeds the budget, a run is still rented a disk for its data. The disks inside this
    /// machine hold 3.8 TB.
    #[test]
    fn machines_that_no_plan_recommends_have_disks_for_the_data() {
        let catalog = Catalog::embedded().unwrap();
        let resources = "resources: {infra: aws/us-east-1, instance_type: g5.12xlarge, use_spot: false}";
        let job = resnet(&format!("budget: {{max: $1}}\n{resources}"), "5 TB");
        let offered = |volumes: &Volumes| of_aws(&job, &catalog, volumes);
        let Ranked { offers, chosen, .. } = ranked(&job, &catalog, offered).unwrap();
        assert!(chosen.is_none() && !offers.is_empty());
        for offer in offers {
            assert!(offer.node.disk_free > Bytes(5_000_000_000_000), "{offer:?}");
        }
    }
}
