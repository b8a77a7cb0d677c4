//! Simpler layouts of what is recommended: never beyond a limit, nor beyond the margin.

use super::cases::spot_listing;
use super::*;

/// Tensor-parallel ranks take a share less; four samples fit at once, so no rank's whole share does.
#[derive(Clone, Copy)]
struct Divided {
    gain: f64,
}

impl Estimator for Divided {
    fn needed(&mut self, setup: &Setup) -> RequiredMemory {
        let bytes = 15e9 * setup.micro_batch as f64;
        RequiredMemory { low: bytes, middle: bytes, high: bytes }
    }

    fn seconds(&mut self, setup: &Setup) -> f64 {
        if setup.parallel.tensor > 1 { 10.0 * (1.0 - self.gain) } else { 10.0 }
    }
}

/// The fastest candidate under some terms without limits, the simpler ones of its offer under `constraints`, and the
/// tensor-parallel ranks of each.
fn simpler(
    gain: f64,
    terms: PurchaseOption,
    constraints: impl Fn((u64, i64)) -> Constraints,
) -> (Candidate, Vec<Candidate>, Vec<u32>) {
    let (listings, gpu) = ([spot_listing()], gpu(3));
    let market = MarketIndex::of(&listings, |_| Some(&gpu), |_| None, |_, _| Availability::Known, &[]);
    let spec = spec(256, 100_000, None, 16, false);
    let mut search = Search::new(&spec, &market, Divided { gain });
    let answer = search.answer(&Constraints { nodes: vec![1], ..Constraints::default() });
    let fastest = answer.candidates.into_iter().find(|candidate| candidate.terms == terms).expect("a candidate");
    let found = search.simpler(&constraints(fastest.point()), &fastest);
    let tensor = |candidate: &Candidate| search.config_of(candidate).expect("it fits").parallel.tensor;
    let tensors = std::iter::once(&fastest).chain(&found).map(tensor).collect();
    (fastest, found, tensors)
}

fn without_limits(_: (u64, i64)) -> Constraints {
    Constraints { nodes: vec![1], ..Constraints::default() }
}

#[test]
fn a_simpler_layout_takes_and_costs_at_most_the_margin_more() {
    for terms in [PurchaseOption::OnDemand, PurchaseOption::Spot] {
        let mut before = usize::MAX;
        for percent in 0..30 {
            let (fastest, found, tensors) = simpler(f64::from(percent) / 100.0, terms, without_limits);
            let ((least_time, least_cost), most) = (fastest.point(), 1.0 + LAYOUT_MARGIN);
            for candidate in &found {
                let (time, cost) = candidate.point();
                assert!(time as f64 <= most * least_time as f64, "{percent} %: {candidate:?}");
                assert!(cost as f64 <= most * least_cost as f64, "{percent} %: {candidate:?}");
                assert!(candidate.is_same_offer(&fastest) && candidate.verdict == fastest.verdict, "{candidate:?}");
            }
            assert!(tensors[1..].iter().all(|tensor| *tensor == 1), "{tensors:?}");
            // The more the complex layout gains, the less is a simpler one taken instead.
            assert!(percent == 0 || found.len() <= before, "{percent} %");
            match percent {
                // Equal layouts: the simplest is the fastest.
                0 => assert!(found.is_empty()),
                1..=8 => assert!(!found.is_empty(), "{percent} %"),
                9 => {}
                _ => assert!(found.is_empty(), "{percent} %"),
            }
            before = if percent == 0 { usize::MAX } else { found.len() };
        }
    }
}

#[test]
fn a_simpler_layout_keeps_the_limits() {
    let terms = PurchaseOption::OnDemand;
    let (fastest, found, _) = simpler(0.05, terms, without_limits);
    let between = |one: i64, other: i64| one + (other - one) / 2;
    let simple = found[0].point();
    let late = |least: (u64, i64)| {
        let most = between(least.0 as i64, simple.0 as i64) as u64;
        Constraints { deadline: Some(Elapsed(most)), ..without_limits(least) }
    };
    let expensive = |least: (u64, i64)| {
        let most = between(least.1, simple.1);
        Constraints { budget: Some(Money::from_micros(most)), ..without_limits(least) }
    };
    let loose = |least: (u64, i64)| {
        let (time, cost) = simple;
        Constraints { deadline: Some(Elapsed(time)), budget: Some(Money::from_micros(cost)), ..without_limits(least) }
    };
    assert!(fastest.point().0 < simple.0 && fastest.point().1 < simple.1, "{fastest:?} {simple:?}");
    assert!(simpler(0.05, terms, late).1.is_empty() && simpler(0.05, terms, expensive).1.is_empty());
    assert_eq!(simpler(0.05, terms, loose).1, found);
}

#[test]
fn what_may_well_miss_a_limit_keeps_its_fastest_layout() {
    let (fastest, found, _) = simpler(0.05, PurchaseOption::OnDemand, without_limits);
    assert_eq!(simplest(&fastest, &found, |_| false), found[0]);
    assert_eq!(simplest(&fastest, &found, |candidate| candidate.simpler == Some(0)), found[1]);
    assert_eq!(simplest(&fastest, &found, |_| true), fastest);
    assert_eq!(simplest(&fastest, &[], |_| false), fastest);
}
