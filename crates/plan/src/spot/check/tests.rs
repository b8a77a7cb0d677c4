use super::*;

const HOUR: f64 = 3600.0;
const OVERHEAD: CheckpointOverhead = CheckpointOverhead { stall: 2.0, lag: 60.0, restart: 300.0 };
const FALL_BACK: OutagePolicy = OutagePolicy::FallBack { patience: 1800.0, hold: HOUR };

/// A trace of 40 days of `machines`, which are away for `down` of every `of` hours on average.
fn trace(machines: u32, down: f64, of: f64, seed: u64) -> Trace {
    let mut draws = Draws::new(seed);
    let (mut at, mut steps) = (0.0, Vec::new());
    while at < 960.0 * HOUR {
        let mut take = |mean: f64, count: u32| {
            steps.push((at, count));
            at += -mean * HOUR * (1.0 - draws.share()).ln();
        };
        take(of - down, machines);
        take(down, 0);
    }
    Trace { steps, end: at }
}

fn question(nodes: u32, policy: OutagePolicy) -> Replay {
    Replay { nodes, work: 6.0 * HOUR, costs: OVERHEAD, policy, price: 0.4, seed: 1 }
}

#[test]
fn the_split_and_its_cost_are_those_of_the_replays() {
    for (nodes, down, of) in [(1, 1.0, 5.0), (4, 2.0, 4.0), (16, 0.5, 12.0)] {
        for policy in [OutagePolicy::Wait, FALL_BACK] {
            let checked = check(&trace(nodes, down, of, 7), &question(nodes, policy)).expect("an answer");
            let cost = checked.cost;
            let off = cost.split_error.expect("machines were there");
            assert!(off.abs() < 0.12, "{nodes} × {down} of {of}, {policy:?}: {off} {cost:?}");
            let paid = cost.split.spot + cost.split.on_demand;
            assert!((paid / checked.paid - 1.0).abs() < 1e-9, "{cost:?}");
            // Nothing changes between the halves but the luck of the draws.
            assert!(cost.error.abs() < 0.3, "{cost:?}");
            let now = checked.from_now.and_then(|now| now.cost_error).expect("runs end");
            assert!(now.abs() < 0.25, "{now}");
        }
    }
}

#[test]
fn a_run_that_waits_pays_spot_prices_only_and_prices_move() {
    let checked = check(&trace(1, 1.0, 5.0, 3), &question(1, OutagePolicy::Wait)).expect("an answer");
    assert_eq!(checked.cost.split.on_demand, 0.0);
    let price = checked.cost.paid / checked.paid;
    assert!((0.3..0.5).contains(&price) && (price - 0.4).abs() > 1e-6, "{price}");
    let free = Replay { price: 0.0, ..question(1, OutagePolicy::Wait) };
    assert_eq!(check(&trace(1, 1.0, 5.0, 3), &free).expect("an answer").cost.paid, 0.0);
}

#[test]
fn the_same_seed_gives_the_same_answer() {
    let at = |seed: u64| check(&trace(2, 1.0, 4.0, 5), &Replay { seed, ..question(2, FALL_BACK) }).expect("an answer");
    assert_eq!(at(1), at(1));
    assert_ne!(at(1).cost.paid, at(2).cost.paid);
}
