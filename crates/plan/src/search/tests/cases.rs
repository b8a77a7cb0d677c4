//! Single offers: what a run falls back to, what a price is trusted for, and what bytes cost where nobody knows.

use super::*;

pub(super) fn spot_listing() -> Listing {
    let priced = |micros: i64| Price {
        rate: Rate::from_micros_per_hour(micros),
        dated: "2026-01-01".into(),
        source: "drawn".into(),
        derived: None,
    };
    Listing {
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
        machines: None,
    }
}

/// The spot candidate of [`spot_listing`], where it is one.
fn spot_candidate(
    max_price: Option<i64>,
    there: impl Fn(&Listing, PurchaseOption) -> Availability,
) -> Option<Candidate> {
    let (listings, gpu) = ([spot_listing()], gpu(3));
    let market = MarketIndex::of(&listings, |_| Some(&gpu), |_| None, there, &[]);
    let spec = spec(256, 1_000_000, None, 0, false);
    let max_price = max_price.map(Rate::from_micros_per_hour);
    let admission = Admission { max_price, ..Admission::default() };
    let constraints = Constraints { admission, nodes: vec![1], ..Constraints::default() };
    let mut search = Search::new(&spec, &market, Rough { weights: 1e8, kept: 1e7, again: 1.2 });
    let answer = search.answer(&constraints);
    answer.candidates.into_iter().find(|candidate| candidate.terms == PurchaseOption::Spot)
}

#[test]
fn a_run_does_not_fall_back_to_machines_above_its_price() {
    let fallen_back = |max_price| spot_candidate(max_price, |_, _| Availability::Known).unwrap().timeline.fallen_back;
    assert!(fallen_back(None) > 0.0);
    assert!(fallen_back(Some(30_000_000)) > 0.0);
    assert_eq!(fallen_back(Some(4_000_000)), 0.0);
}

#[test]
fn a_run_does_not_fall_back_to_machines_that_are_not_there() {
    let only_spot = |_: &Listing, terms: PurchaseOption| match terms {
        PurchaseOption::Spot => Availability::Known,
        PurchaseOption::OnDemand | PurchaseOption::Dedicated => Availability::Denied,
    };
    assert_eq!(spot_candidate(None, only_spot).unwrap().timeline.fallen_back, 0.0);
}

/// $3.50 against $29.98 on demand is a ninth: where nobody says that there are such machines, it is no offer.
#[test]
fn a_spot_price_too_good_to_be_true_is_not_trusted() {
    assert!(spot_candidate(None, |_, _| Availability::Known).is_some());
    assert_eq!(spot_candidate(None, |_, _| Availability::Unknown), None);
    // Derived from other figures it is not trusted anywhere.
    let mut derived = spot_listing();
    assert!(!domain::terms::is_distrusted(&derived, Availability::Known));
    derived.spot.as_mut().unwrap().derived = Some("from an advisor's savings".into());
    assert!(domain::terms::is_distrusted(&derived, Availability::Known));
}

/// A cloud whose tariffs nobody knows is counted as dear as the dearest, and it is said.
#[test]
fn unknown_tariffs_are_bounded_and_told() {
    use domain::tariff::Service;
    let spec = spec(256, 1_000, None, 0, false);
    let gpu = gpu(3);
    let figures = |cloud: Cloud| {
        let listings = [Listing { cloud, ..spot_listing() }];
        let tariffs = tariffs();
        let market = MarketIndex::of(&listings, |_| Some(&gpu), |_| None, |_, _| Availability::Known, &tariffs);
        let told = unknown_tariffs(&spec, &market.listings[0], &Egress::default(), &[]);
        let mut search = Search::new(&spec, &market, Rough { weights: 1e8, kept: 1e7, again: 1.2 });
        let answer = search.answer(&Constraints { nodes: vec![1], ..Constraints::default() });
        (told, answer.candidates[0].cost)
    };
    let dollars = |micros| Some(Money::from_micros(micros));
    let (told, cost) = figures(Cloud::Lambda);
    let expected = [(Service::SsdDisk, 170_000), (Service::Objects, 20_000), (Service::Egress, 90_000)];
    assert_eq!(told, expected.map(|(service, micros)| (false, service, dollars(micros))));
    assert!(cost.storage.micros() > 0 && cost.checkpoints.micros() > 0 && cost.egress.micros() > 0, "{cost:?}");
    let (told, _) = figures(Cloud::Aws);
    assert_eq!(told, [(false, Service::Objects, dollars(20_000))]);
    let (told, cost) = figures(Cloud::Own);
    assert_eq!((told, cost.storage, cost.egress), (Vec::new(), Money::default(), Money::default()));
}

/// Runs of minutes too: machines are waited for longer than such a run takes, and a band about the mean would begin before
/// its steps can end.
#[test]
fn no_forecast_ends_before_its_steps_can_end() {
    let (listings, gpu) = ([spot_listing()], gpu(3));
    let market = MarketIndex::of(&listings, |_| Some(&gpu), |_| None, |_, _| Availability::Known, &[]);
    let pace = (0.8, 1.3);
    let check = |steps: u64, max_price: Option<i64>, before: f64| {
        let spec = spec(256, steps, None, 0, false);
        let admission = Admission { max_price: max_price.map(Rate::from_micros_per_hour), ..Admission::default() };
        let constraints = Constraints { admission, nodes: vec![1], ..Constraints::default() };
        let mut search = Search::new(&spec, &market, Rough { weights: 1e8, kept: 1e7, again: 1.2 });
        let candidates = search.answer(&constraints).candidates;
        for candidate in &candidates {
            let told = forecast(&mut search, &constraints, candidate, pace, 1);
            let (time, cost) = (&told.time, &told.cost);
            let fastest = before + pace.0 * candidate.timeline.work;
            assert!(time.low.as_secs_f64() > fastest - 1e-3, "{steps} steps: {fastest} s, {told:?}");
            let times = [&time.low, &time.middle, &time.high].map(|time| time.micros());
            assert!(times.is_sorted(), "{told:?}");
            assert!(cost.low <= cost.middle && cost.middle <= cost.high, "{told:?}");
            let price = if candidate.terms == PurchaseOption::Spot { 3.5 * 0.8 } else { 29.98 };
            let least = price / 3600.0 * fastest;
            assert!(cost.low.micros() as f64 / 1e6 > least - 1e-3, "{steps} steps: ${least}, {told:?}");
        }
        let on_demand = candidates.iter().find(|candidate| candidate.terms == PurchaseOption::OnDemand);
        on_demand.map(|candidate| candidate.timeline)
    };
    // One step ends before the first checkpoint, so that nothing but the start is left.
    let alone = check(1, None, 0.0).expect("a machine on demand");
    for steps in [1, 20, 200, 20_000] {
        check(steps, None, alone.wall - alone.work);
        // At $4 an hour it may not fall back, and waits.
        check(steps, Some(4_000_000), alone.wall - alone.work);
    }
}

/// The spot candidate of [`spot_listing`] on four machines, some of them on demand, with its forecast.
fn mixed(on_demand: u32, listing: Listing, max_price: Option<i64>) -> Option<(Candidate, Forecast)> {
    let (listings, gpu) = ([listing], gpu(3));
    let market = MarketIndex::of(&listings, |_| Some(&gpu), |_| None, |_, _| Availability::Known, &[]);
    let spec = spec(256, 1_000_000, None, 0, false);
    let max_price = max_price.map(Rate::from_micros_per_hour);
    let admission = Admission { on_demand, spot: Spot::Only, max_price, ..Admission::default() };
    let constraints = Constraints { admission, nodes: vec![4], ..Constraints::default() };
    let mut search = Search::new(&spec, &market, Rough { weights: 1e8, kept: 1e7, again: 1.2 });
    let candidate = search.answer(&constraints).candidates.into_iter().next()?;
    let told = forecast(&mut search, &constraints, &candidate, (0.9, 1.1), 1);
    Some((candidate, told))
}

#[test]
fn machines_on_demand_are_paid_for_at_their_price_and_are_not_interrupted() {
    let [none, one, three] = [0, 1, 3].map(|on_demand| mixed(on_demand, spot_listing(), None).expect("a spot offer"));
    assert_eq!(one.0.terms, PurchaseOption::Spot);
    let interruptions = [&none, &one, &three].map(|(candidate, _)| candidate.timeline.interruptions);
    assert!(interruptions.is_sorted_by(|more, fewer| more > fewer), "{interruptions:?}");
    // Fewer spot machines stay together for longer, so that the run takes less time.
    assert!(one.0.timeline.wall < none.0.timeline.wall && three.0.timeline.wall < one.0.timeline.wall);
    for ((candidate, told), anchors) in [(&none, 0.0), (&one, 1.0), (&three, 3.0)] {
        let timeline = &candidate.timeline;
        assert_eq!(timeline.fallen_back, 0.0);
        let expected = ((4.0 - anchors) * timeline.rented * 3.5 + anchors * timeline.wall * 29.98) / 3600.0;
        let compute = candidate.cost.compute.micros() as f64 / 1e6;
        assert!((compute / expected - 1.0).abs() < 1e-6, "{anchors} on demand: ${compute} for ${expected}");
        assert!(told.cost.low <= told.cost.middle && told.cost.middle <= told.cost.high, "{told:?}");
        // What is on demand costs as much on every sample path that takes as long.
        let least = anchors * told.time.low.as_secs_f64() * 29.98 / 3600.0;
        assert!(told.cost.low.micros() as f64 / 1e6 > least, "{anchors} on demand: {told:?}");
    }
}

#[test]
fn spot_machines_that_none_on_demand_can_be_rented_beside_are_no_offer() {
    assert!(mixed(1, spot_listing(), Some(30_000_000)).is_some());
    assert!(mixed(1, spot_listing(), Some(20_000_000)).is_none());
    assert!(mixed(0, spot_listing(), Some(20_000_000)).is_some());
    let unpriced = Listing { on_demand: None, ..spot_listing() };
    assert!(mixed(0, unpriced.clone(), None).is_some());
    assert!(mixed(1, unpriced, None).is_none());
}

/// Machines without a price, and GPUs that no machine has, are what is missing; a limit is not.
#[test]
fn what_the_market_lacks_is_told_apart_from_limits() {
    let unpriced = Listing { on_demand: None, spot: None, ..spot_listing() };
    let (listings, gpu) = ([unpriced, Listing { cloud: Cloud::Gcp, ..spot_listing() }], gpu(3));
    let market = MarketIndex::of(&listings, |_| Some(&gpu), |_| None, |_, _| Availability::Known, &[]);
    let of = |clouds: &[Cloud]| market_gap(&market, &Admission { clouds: clouds.to_vec(), ..Admission::default() });
    assert_eq!(of(&[Cloud::Aws]), Some(MarketGap::Prices([(Cloud::Aws, 1)].into())));
    assert_eq!(of(&[Cloud::Aws, Cloud::Gcp]), None, "one of them has a price");
    assert_eq!(of(&[Cloud::Azure]), None, "there is no machine to name a price of");
    let denied = MarketIndex::of(&listings[1..], |_| Some(&gpu), |_| None, |_, _| Availability::Denied, &[]);
    assert_eq!(
        market_gap(&denied, &Admission::default()),
        Some(MarketGap::Stock([(Cloud::Gcp, 1)].into())),
        "it has a price, and the region has none of it"
    );
    let named = |names: &[&str]| {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let gpus = vec![GpuRequirement { names: Some(names), memory: None, count: Some(64) }];
        market_gap(&market, &Admission { gpus, ..Admission::default() })
    };
    assert_eq!(named(&["X100"]), Some(MarketGap::Gpus(vec!["X100".to_owned()])));
    assert_eq!(named(&["X100", "G3"]), None, "in another number it is offered");
    assert_eq!(named(&[]), Some(MarketGap::Figures));
}
