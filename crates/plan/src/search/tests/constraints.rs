//! No candidate and no remedy breaks a limit of its job, whatever is offered, and nothing that keeps to them is missing:
//! held against brute force, which looks at listings and figures alone. The draws are seeded; what fails names its seed.

use std::collections::BTreeSet;

use domain::region::{Carbon, Compliance, Region};
use proptest::test_runner::{Config, RngAlgorithm, TestError, TestRng, TestRunner};

use super::*;

/// Seed of the draws.
pub(super) const SEED: u64 = 20_261_123;

/// Draws of each property.
pub(super) const CASES: u32 = 256;

/// A region of each cloud that [`listing`] draws: one that attests everything on a clean grid, one that attests nothing, and
/// one of which nothing is known.
fn regions() -> Vec<Region> {
    let region = |place: u8, cloud: Cloud, country: &str, compliance: &[Compliance], carbon: Option<f64>| Region {
        cloud,
        name: format!("region-{place}"),
        country: country.to_owned(),
        place: String::new(),
        compliance: compliance.to_vec(),
        carbon: carbon.map(|grams_per_kwh| Carbon { grams_per_kwh, dated: "2026".into(), source: "drawn".into() }),
    };
    vec![
        region(0, Cloud::Aws, "DE", &Compliance::ALL, Some(50.0)),
        region(1, Cloud::Gcp, "US", &[], Some(400.0)),
        region(2, Cloud::Azure, "FR", &[Compliance::Gdpr], None),
    ]
}

/// Whether a drawn listing is there: as odd as its price.
pub(super) fn there(listing: &Listing, terms: PurchaseOption) -> Availability {
    let price = terms.price(listing).map_or(0, |price| price.rate.micros_per_hour());
    [Availability::Known, Availability::Known, Availability::Unknown, Availability::Denied][(price % 4) as usize]
}

/// What of a candidate breaks the job's limits, told by looking at its listing and figures alone.
fn broken(constraints: &Constraints, market: &MarketIndex, candidate: &Candidate) -> Vec<&'static str> {
    let admission = &constraints.admission;
    let priced = &market.listings[candidate.listing];
    let region = priced.region.expect("each listing has a region");
    let price = |terms: PurchaseOption| terms.price(priced.listing).map(|price| price.rate);
    let is_denied = |terms| there(priced.listing, terms) == Availability::Denied;
    let dearer = |terms: PurchaseOption| match (price(terms), admission.max_price) {
        (Some(rate), Some(most)) => with_disk(rate, candidate.disk) > most,
        (Some(_), None) => false,
        (None, _) => true,
    };
    let falls_back = candidate.timeline.fallen_back > 0.0;
    let is_spot = candidate.terms == PurchaseOption::Spot;
    let share = price(PurchaseOption::Spot)
        .zip(price(PurchaseOption::OnDemand))
        .map(|(spot, on_demand)| spot.micros_per_hour() as f64 / (on_demand.micros_per_hour() as f64).max(1.0));
    let is_unknown = there(priced.listing, PurchaseOption::Spot) == Availability::Unknown;
    let is_derived = priced.listing.spot.as_ref().is_some_and(|price| price.derived.is_some());
    let (gpus, needs) = (&priced.listing.gpus, &admission.needs);
    let is_one = |wanted: &GpuRequirement| {
        wanted.names.as_ref().is_none_or(|names| gpus.name.as_ref().is_some_and(|name| names.contains(name)))
            && wanted.count.is_none_or(|count| count == gpus.count)
    };
    let breaks = [
        ("denied", is_denied(candidate.terms)),
        ("denied on demand, which it falls back to", falls_back && is_denied(PurchaseOption::OnDemand)),
        ("the price of its terms", dearer(candidate.terms)),
        ("the price on demand, which it falls back to", falls_back && dearer(PurchaseOption::OnDemand)),
        ("spot only, by falling back", falls_back && admission.spot == Spot::Only),
        ("spot only", candidate.terms == PurchaseOption::OnDemand && admission.spot == Spot::Only),
        ("no spot", is_spot && admission.spot == Spot::Never),
        (
            "a spot price that saves little",
            is_spot && admission.spot == Spot::Auto && share.is_none_or(|share| share > 0.8),
        ),
        (
            "a spot price that is not trusted",
            is_spot && (is_unknown || is_derived) && share.is_some_and(|share| share < 0.2),
        ),
        ("the GPU", !admission.gpus.iter().all(is_one)),
        ("the machine", admission.instance_type.as_ref().is_some_and(|kind| *kind != priced.listing.instance_type)),
        ("other customers", admission.dedicated != (candidate.terms == PurchaseOption::Dedicated)),
        ("the cloud", !admission.clouds.is_empty() && !admission.clouds.contains(&priced.listing.cloud)),
        ("the region", !admission.regions.is_empty() && !admission.regions.contains(&region.country)),
        ("compliance", !admission.compliance.iter().all(|rule| region.compliance.contains(rule))),
        ("cores", needs.cores.is_some_and(|needed| priced.listing.cores.is_none_or(|cores| cores < needed))),
        ("memory", needs.memory.is_some_and(|needed| priced.listing.memory.is_none_or(|memory| memory < needed))),
        ("the number of machines", !constraints.nodes.contains(&candidate.nodes)),
        ("as many as exist", priced.listing.machines.is_some_and(|machines| machines < candidate.nodes)),
        ("the budget", constraints.budget.is_some_and(|most| candidate.cost.total() > most)),
        ("the deadline", constraints.deadline.is_some_and(|most| candidate.timeline.wall * 1e6 > most.0 as f64 + 1.0)),
        ("carbon", constraints.max_carbon.is_some_and(|most| candidate.kilograms.is_none_or(|emitted| emitted > most))),
    ];
    breaks.into_iter().filter(|(_, is_broken)| *is_broken).map(|(limit, _)| limit).collect()
}

prop_compose! {
    fn constraints()(
        spot in prop::sample::select(vec![Spot::Auto, Spot::Auto, Spot::Only, Spot::Never]),
        dedicated in prop::bool::weighted(0.2),
        max_price in prop::option::of(1_000i64..40_000_000),
        clouds in prop::sample::subsequence(vec![Cloud::Aws, Cloud::Gcp, Cloud::Azure], 0..3),
        regions in prop::sample::subsequence(vec!["DE", "US", "FR"], 0..3),
        compliance in prop::sample::subsequence(Compliance::ALL.to_vec(), 0..2),
        (cores, memory) in (prop::option::weighted(0.3, 4u32..96), prop::option::weighted(0.2, 16u64..512)),
        (kind, count, machine) in (
            prop::option::weighted(0.2, 0u8..4),
            prop::option::weighted(0.2, prop::sample::select(vec![1u32, 2, 4, 8])),
            prop::option::weighted(0.1, prop::sample::select(vec!["1x0", "8x1", "4x2", "8x3"])),
        ),
        nodes in prop::sample::subsequence(NODES.to_vec(), 1..=5),
        budget in prop::option::of(1_000_000i64..1_000_000_000_000),
        hours in prop::option::of(1u64..5000),
        max_carbon in prop::option::of(1.0f64..10_000.0),
    ) -> Constraints {
        Constraints {
            admission: Admission {
                spot,
                dedicated,
                max_price: max_price.map(Rate::from_micros_per_hour),
                clouds,
                regions: regions.into_iter().map(str::to_owned).collect(),
                compliance,
                gpus: (kind.is_some() || count.is_some())
                    .then(|| GpuRequirement { names: kind.map(|kind| vec![gpu(kind).name]), memory: None, count })
                    .into_iter()
                    .collect(),
                instance_type: machine.map(str::to_owned),
                needs: domain::job::Needs {
                    cores,
                    memory: memory.map(|gibibytes| Bytes(gibibytes << 30)),
                    ..domain::job::Needs::default()
                },
                ..Admission::default()
            },
            nodes,
            budget: budget.map(Money::from_micros),
            deadline: hours.map(|hours| Elapsed(hours * 3_600_000_000)),
            max_carbon,
            data_at: Some((Cloud::Aws, Some("region-0".into()))),
            ..Constraints::default()
        }
    }
}

/// A job, and what is offered.
pub(super) type Case = (Vec<Listing>, u64, f64, Constraints);

/// Draws cases from the seed and checks each; returns what the first wrong one breaks.
pub(super) fn first_wrong(check: impl Fn(&Case) -> Result<(), String>) -> Option<String> {
    let mut seed = [0; 32];
    seed[..8].copy_from_slice(&SEED.to_le_bytes());
    let config = Config { cases: CASES, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let cases = (prop::collection::vec(listing(), 1..40), 1u64..200_000, 1e7f64..2e9, constraints());
    let found = runner.run(&cases, |case| check(&case).map_err(TestCaseError::fail));
    match found {
        Ok(()) => None,
        Err(TestError::Fail(why, case)) => Some(format!("seed {SEED}: {why}\n{:?}", case.3)),
        Err(TestError::Abort(why)) => Some(format!("seed {SEED}: {why}")),
    }
}

/// The market of drawn listings. `availability` is what the search is told.
pub(super) fn with_market<T>(
    case: &Case,
    availability: impl Fn(&Listing, PurchaseOption) -> Availability,
    then: impl FnOnce(&mut Search<Rough>) -> T,
) -> T {
    let (gpus, regions, tariffs): (Vec<Gpu>, _, _) = ((0..4).map(gpu).collect(), regions(), tariffs());
    let market = MarketIndex::of(
        &case.0,
        |name| gpus.iter().find(|gpu| gpu.name == name),
        |listing| regions.iter().find(|region| region.name == listing.region),
        availability,
        &tariffs,
    );
    let spec = spec(256, case.1, None, 0, true);
    then(&mut Search::new(&spec, &market, Rough { weights: 1e8, kept: case.2, again: 1.2 }))
}

/// The price of a machine with the disk that is rented with it.
fn with_disk(rate: Rate, disk: Option<Rate>) -> Rate {
    Rate::from_micros_per_hour(rate.micros_per_hour() + disk.map_or(0, Rate::micros_per_hour))
}

type Key = (usize, PurchaseOption, u32);

/// Every listing under all terms on every number of machines that keeps to the limits, one by one, without asking what
/// the search admits.
fn feasible(search: &mut Search<Rough>, constraints: &Constraints) -> BTreeSet<Key> {
    let mut found = BTreeSet::new();
    let (market, spec) = (search.market, search.spec);
    for (listing, priced) in market.listings.iter().enumerate() {
        for (terms, nodes) in PurchaseOption::ALL.into_iter().flat_map(|terms| NODES.map(|nodes| (terms, nodes))) {
            let Ok(config) = search.config(priced.hardware, nodes) else { continue };
            let gpu = &market.hardware[priced.hardware].device.gpu;
            let on_demand = PurchaseOption::OnDemand;
            let availability = match terms {
                PurchaseOption::Spot => constraints.availability_of(priced, nodes),
                PurchaseOption::OnDemand | PurchaseOption::Dedicated => SpotAvailability::STEADY,
            };
            let profile = RunProfile::of(spec, priced, gpu, nodes, config.step, config.start);
            let (_, volume, disk) =
                volume::on_disks(spec, priced, (terms, nodes), &profile, &constraints.admission, availability);
            let most = constraints.admission.max_price.unwrap_or(Rate::from_micros_per_hour(i64::MAX));
            let may_fall_back = constraints.admission.spot == Spot::Auto
                && there(priced.listing, on_demand) != Availability::Denied
                && on_demand.price(priced.listing).is_some_and(|price| with_disk(price.rate, disk) <= most);
            let policy = match may_fall_back {
                true => crate::spot::OutagePolicy::FallBack { patience: assumed::PATIENCE, hold: assumed::HOLD },
                false => crate::spot::OutagePolicy::Wait,
            };
            let slowed = volume.map_or(profile, |volume| volume.slowed(spec, nodes, profile));
            let timeline = slowed.timeline(spec, terms, policy, availability);
            let leaving = constraints.leaving(priced);
            let candidate = Candidate {
                listing,
                terms,
                availability: there(priced.listing, terms),
                nodes,
                timeline,
                cost: timeline::cost(spec, priced, terms, (nodes, 0), &timeline, &leaving, disk),
                volume,
                disk,
                kilograms: timeline::emitted(priced, nodes, gpu.power, &timeline).map(|carbon| carbon.kilograms),
                verdict: config.verdict,
                simpler: None,
            };
            if broken(constraints, market, &candidate).is_empty() {
                found.insert((listing, terms, nodes));
            }
        }
    }
    found
}

fn keys(answer: &SearchResult) -> BTreeSet<Key> {
    answer.candidates.iter().map(|candidate| (candidate.listing, candidate.terms, candidate.nodes)).collect()
}

/// Whether candidates are those of brute force, and what is on the front is known to be there where anything is.
pub(super) fn agrees(
    search: &mut Search<Rough>,
    constraints: &Constraints,
    answer: &SearchResult,
) -> Result<(), String> {
    for candidate in &answer.candidates {
        let breaks = broken(constraints, search.market, candidate);
        if !breaks.is_empty() {
            return Err(format!("{breaks:?}: {candidate:?}"));
        }
    }
    let by_force = feasible(search, constraints);
    if keys(answer) != by_force {
        let missing: Vec<_> = by_force.difference(&keys(answer)).copied().collect();
        return Err(format!("missing: {missing:?}"));
    }
    let any_is_known = answer.candidates.iter().any(|candidate| candidate.availability == Availability::Known);
    let unknown = answer.front.iter().find(|index| answer.candidates[**index].availability != Availability::Known);
    match unknown {
        Some(index) if any_is_known => Err(format!("nobody knows of {:?}", answer.candidates[*index])),
        _ => Ok(()),
    }
}

#[test]
fn no_candidate_breaks_a_limit_and_none_is_missing() {
    let wrong = first_wrong(|case| {
        with_market(case, there, |search| {
            let answer = search.answer(&case.3);
            agrees(search, &case.3, &answer)
        })
    });
    assert_eq!(wrong, None);
}

/// Each offer that is asked about comes to what the search made of it.
#[test]
fn why_says_what_the_search_did() {
    let wrong = first_wrong(|case| {
        with_market(case, there, |search| {
            let answer = search.answer(&case.3);
            let mut compared = Vec::new();
            for listing in 0..search.market.listings.len() {
                for terms in PurchaseOption::ALL {
                    let outcomes = outcomes(search, &case.3, listing, terms);
                    compared.extend(outcomes.iter().filter_map(|outcome| match outcome {
                        OfferOutcome::Compared { candidate } => Some(*candidate),
                        OfferOutcome::Refused { .. }
                        | OfferOutcome::Infeasible { .. }
                        | OfferOutcome::Missed { .. } => None,
                    }));
                }
            }
            match compared == answer.candidates {
                true => Ok(()),
                false => Err(format!("{compared:?}\n{:?}", answer.candidates)),
            }
        })
    });
    assert_eq!(wrong, None);
}

#[test]
fn no_pick_breaks_a_limit() {
    let wrong = first_wrong(|case| {
        with_market(case, there, |search| {
            let answer = search.answer(&case.3);
            let known = answer.candidates.iter().any(|candidate| candidate.availability == Availability::Known);
            for pick in choose(&answer, &case.3, |_| false) {
                let candidate = &answer.candidates[pick.candidate];
                let breaks = broken(&case.3, search.market, candidate);
                if !breaks.is_empty() || (known && candidate.availability != Availability::Known) {
                    return Err(format!("{breaks:?}: {pick:?}"));
                }
            }
            Ok(())
        })
    });
    assert_eq!(wrong, None);
}

/// Whether a drawn candidate may well miss its limits: as odd as its listing and number of machines.
fn odd(candidate: &Candidate) -> bool {
    !(7 * candidate.listing + candidate.nodes as usize).is_multiple_of(3)
}

/// What is recommended is the best of all that keep the limits in nine runs of ten, not only of those that nothing beats in
/// the middle of their forecasts.
#[test]
fn the_recommended_is_the_best_of_all_that_are_safe() {
    let wrong = first_wrong(|case| {
        with_market(case, there, |search| {
            let answer = search.answer(&case.3);
            let Some(pick) = choose(&answer, &case.3, odd).into_iter().next() else { return Ok(()) };
            let chosen = &answer.candidates[pick.candidate];
            let ranked = |one: &&Candidate| answer.is_ranked_first(one);
            let any_is_sure = answer.candidates.iter().filter(ranked).any(Candidate::is_sure);
            let may = |one: &&Candidate| ranked(one) && (one.is_sure() || !any_is_sure);
            let limited = case.3.deadline.is_some() || case.3.budget.is_some();
            let worth = |one: &Candidate| match case.3.deadline {
                Some(_) => one.point().1 as f64,
                None => one.point().0 as f64 * one.point().1 as f64,
            };
            let safe = answer.candidates.iter().filter(may).filter(|one| !limited || !odd(one));
            let best = safe.min_by(|one, other| worth(one).total_cmp(&worth(other)));
            match best {
                Some(best) if worth(best) < worth(chosen) || limited && odd(chosen) => {
                    Err(format!("{best:?} is better than {chosen:?}: {}", pick.why))
                }
                None if !pick.why.contains("none ") => Err(format!("none is safe: {}", pick.why)),
                _ => Ok(()),
            }
        })
    });
    assert_eq!(wrong, None);
}

/// A remedy leaves one thing out and obeys the rest; where brute force finds one, it is told.
#[test]
fn no_remedy_breaks_another_limit() {
    let wrong = first_wrong(|case| {
        with_market(case, there, |search| {
            for change in Change::WISHES.into_iter().chain(Change::LIMITS) {
                let Some(without) = change.of(&case.3) else { continue };
                match remedy(search, &case.3, change) {
                    Some((_, answer)) => {
                        agrees(search, &without, &answer).map_err(|why| format!("{change:?} {why}"))?
                    }
                    None if feasible(search, &without).is_empty() => {}
                    None => return Err(format!("{change:?} is enough, and is not told")),
                }
                if change == Change::MaxPrice
                    && let Some((_, answer)) = remedy(search, &case.3, change)
                {
                    let least = least_price(search, &case.3, &answer).ok_or("no price is told")?;
                    let mut priced = case.3.clone();
                    priced.admission.max_price = Some(least);
                    let again = search.answer(&priced);
                    if again.front.is_empty() {
                        return Err(format!("{least} a machine leaves nothing"));
                    }
                    agrees(search, &priced, &again)?;
                }
            }
            Ok(())
        })
    });
    assert_eq!(wrong, None);
}
