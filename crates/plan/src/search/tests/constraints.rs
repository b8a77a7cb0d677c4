//! No candidate breaks a limit of its job, whatever is offered: nor do the machines that it falls back to.

use domain::region::{Carbon, Compliance, Region};

use super::*;

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

/// What of a candidate breaks the job's limits, told by looking at its listing and figures alone.
fn broken(constraints: &Constraints, market: &MarketIndex, candidate: &Candidate) -> Vec<&'static str> {
    let admission = &constraints.admission;
    let priced = &market.listings[candidate.listing];
    let region = priced.region.expect("each listing has a region");
    let dearer = |terms: PurchaseOption| match (priced.rate(terms), admission.max_price) {
        (Some(rate), Some(most)) => rate > most,
        (Some(_), None) => false,
        (None, _) => true,
    };
    let falls_back = candidate.timeline.fallen_back > 0.0;
    let breaks = [
        ("the price of its terms", dearer(candidate.terms)),
        ("the price on demand, which it falls back to", falls_back && dearer(PurchaseOption::OnDemand)),
        ("spot only, by falling back", falls_back && admission.spot == Spot::Only),
        ("no spot", candidate.terms == PurchaseOption::Spot && admission.spot == Spot::Never),
        ("the cloud", !admission.clouds.is_empty() && !admission.clouds.contains(&priced.listing.cloud)),
        ("the region", !admission.regions.is_empty() && !admission.regions.contains(&region.country)),
        ("compliance", !admission.compliance.iter().all(|rule| region.compliance.contains(rule))),
        ("the number of machines", !constraints.nodes.contains(&candidate.nodes)),
        ("the budget", constraints.budget.is_some_and(|most| candidate.cost.total() > most)),
        ("the deadline", constraints.deadline.is_some_and(|most| candidate.timeline.wall * 1e6 > most.0 as f64 + 1.0)),
        ("carbon", constraints.max_carbon.is_some_and(|most| candidate.kilograms.is_none_or(|emitted| emitted > most))),
    ];
    breaks.into_iter().filter(|(_, is_broken)| *is_broken).map(|(limit, _)| limit).collect()
}

prop_compose! {
    fn constraints()(
        spot in prop::sample::select(vec![Spot::Auto, Spot::Auto, Spot::Only, Spot::Never]),
        max_price in prop::option::of(1_000i64..40_000_000),
        clouds in prop::sample::subsequence(vec![Cloud::Aws, Cloud::Gcp, Cloud::Azure], 0..3),
        regions in prop::sample::subsequence(vec!["DE", "US", "FR"], 0..3),
        compliance in prop::sample::subsequence(Compliance::ALL.to_vec(), 0..2),
        nodes in prop::sample::subsequence(NODES.to_vec(), 1..=5),
        budget in prop::option::of(1_000_000i64..1_000_000_000_000),
        hours in prop::option::of(1u64..5000),
        max_carbon in prop::option::of(1.0f64..10_000.0),
    ) -> Constraints {
        Constraints {
            admission: Admission {
                spot,
                max_price: max_price.map(Rate::from_micros_per_hour),
                clouds,
                regions: regions.into_iter().map(str::to_owned).collect(),
                compliance,
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

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]

    #[test]
    fn no_candidate_breaks_a_limit(
        listings in prop::collection::vec(listing(), 1..40),
        steps in 1u64..200_000,
        kept in 1e7f64..2e9,
        constraints in constraints(),
    ) {
        let (gpus, regions, tariffs): (Vec<Gpu>, _, _) = ((0..4).map(gpu).collect(), regions(), tariffs());
        let market = MarketIndex::of(
            &listings,
            |name| gpus.iter().find(|gpu| gpu.name == name),
            |listing| regions.iter().find(|region| region.name == listing.region),
            |_| None,
            &tariffs,
        );
        let spec = spec(256, steps, None, 0, true);
        let mut search = Search::new(&spec, &market, Rough { weights: 1e8, kept, again: 1.2 });
        let answer = search.answer(&constraints);
        for candidate in &answer.candidates {
            prop_assert_eq!(broken(&constraints, &market, candidate), Vec::<&str>::new(), "{:?}", candidate);
        }
    }
}

#[test]
fn a_run_does_not_fall_back_to_machines_above_its_price() {
    let priced = |micros: i64| Price {
        rate: Rate::from_micros_per_hour(micros),
        dated: "2026-01-01".into(),
        source: "drawn".into(),
        derived: None,
    };
    let listings = [Listing {
        cloud: Cloud::Aws,
        region: "region-0".into(),
        instance_type: "p4d.24xlarge".into(),
        gpus: ListedGpus { name: Some("G3".into()), spelled: String::new(), count: 8, slice: 1, memory: None },
        cores: None,
        memory: None,
        disk: None,
        network: None,
        fabric: Fabric::Ethernet,
        link: None,
        on_demand: Some(priced(29_980_000)),
        spot: Some(priced(3_500_000)),
        reserved_1y: None,
        reserved_3y: None,
        dedicated: None,
        interrupted: Some((5, 10)),
    }];
    let gpu = gpu(3);
    let market = MarketIndex::of(&listings, |_| Some(&gpu), |_| None, |_| None, &[]);
    let spec = spec(256, 1_000_000, None, 0, false);
    let fallen_back = |max_price: Option<i64>| {
        let max_price = max_price.map(Rate::from_micros_per_hour);
        let admission = Admission { max_price, ..Admission::default() };
        let constraints = Constraints { admission, nodes: vec![1], ..Constraints::default() };
        let mut search = Search::new(&spec, &market, Rough { weights: 1e8, kept: 1e7, again: 1.2 });
        let answer = search.answer(&constraints);
        let spot = answer.candidates.iter().find(|candidate| candidate.terms == PurchaseOption::Spot);
        spot.expect("a spot machine is offered").timeline.fallen_back
    };
    assert!(fallen_back(None) > 0.0);
    assert!(fallen_back(Some(30_000_000)) > 0.0);
    assert_eq!(fallen_back(Some(4_000_000)), 0.0);
}
