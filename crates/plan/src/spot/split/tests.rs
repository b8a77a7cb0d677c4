use domain::random::Draws;

use super::super::{interval, walk};
use super::*;

const COSTS: CheckpointOverhead = CheckpointOverhead { stall: 2.0, lag: 60.0, restart: 300.0 };
const HOUR: f64 = 3600.0;
const FALL_BACK: OutagePolicy = OutagePolicy::FallBack { patience: 1800.0, hold: HOUR };

/// Exponentially distributed intervals without end, from a moment when machines are there as often as on average.
fn path(availability: SpotAvailability, draws: &mut Draws) -> impl Iterator<Item = UptimeInterval> + '_ {
    let mut is_up = draws.share() < availability.fraction();
    std::iter::repeat_with(move || {
        let mean = if is_up { availability.up } else { availability.down };
        let interval = UptimeInterval { is_up, seconds: -mean * (1.0 - draws.share()).ln() };
        is_up = !is_up;
        interval
    })
}

/// Mean of 1,500 simulated runs, with the first start.
fn simulated(availability: SpotAvailability, work: f64, every: f64, policy: OutagePolicy) -> TimeSplit {
    const RUNS: u32 = 1500;
    let mut draws = Draws::new(3);
    let mut mean = TimeSplit::default();
    for _ in 0..RUNS {
        let ended = walk(path(availability, &mut draws).take(100_000), work, every, &COSTS, policy).expect("it ends");
        mean.spot += ended.spot / f64::from(RUNS);
        mean.on_demand += ended.on_demand / f64::from(RUNS);
        mean.waiting += (ended.wall - ended.paid()) / f64::from(RUNS);
    }
    mean
}

/// Compares the split with simulated runs, the cost at 0.35 of the on-demand price within `within`.
#[track_caller]
fn check(up: f64, down: f64, hours: f64, policy: OutagePolicy, within: f64) {
    let availability = SpotAvailability { up: up * HOUR, down: down * HOUR };
    let (work, every) = (hours * HOUR, interval(availability.up, &COSTS));
    let split = OutageProfile::exponential(availability, policy).split(work, every, &COSTS).with_start(COSTS.restart);
    let simulated = simulated(availability, work, every, policy);
    let off = split.cost(0.35) / simulated.cost(0.35) - 1.0;
    assert!(off.abs() < within, "{up} h, {down} h, {hours} h of work: {off}, {split:?}, {simulated:?}");
    let waited = (split.waiting - simulated.waiting).abs() / (0.1 * work + 0.1 * simulated.waiting);
    assert!(waited < 1.0, "{up} h, {down} h, {hours} h of work: {split:?}, {simulated:?}");
}

#[test]
fn the_cost_of_runs_that_fall_back_is_that_of_simulated_ones() {
    for hours in [4.0, 12.0, 48.0] {
        check(2.0, 1.2, hours, FALL_BACK, 0.06);
        check(8.0, 1.2, hours, FALL_BACK, 0.06);
        check(2.0, 4.0, hours, FALL_BACK, 0.06);
        check(20.0, 1.0, hours, FALL_BACK, 0.06);
    }
    // Where machines hardly stay, the mean over checkpoints is rougher.
    check(0.7, 0.3, 12.0, FALL_BACK, 0.1);
}

#[test]
fn the_cost_of_runs_of_minutes_is_that_of_simulated_ones() {
    for minutes in [5.0, 12.0, 30.0] {
        check(2.0, 1.2, minutes / 60.0, FALL_BACK, 0.1);
        check(8.0, 1.2, minutes / 60.0, FALL_BACK, 0.1);
    }
}

#[test]
fn a_run_that_waits_pays_for_spot_machines_only() {
    let availability = SpotAvailability { up: 2.0 * HOUR, down: HOUR };
    let split = OutageProfile::exponential(availability, OutagePolicy::Wait).split(12.0 * HOUR, 300.0, &COSTS);
    assert_eq!((split.on_demand, split.starts_on_demand), (0.0, 0.0));
    let alone = paid(12.0 * HOUR, 300.0, availability, &COSTS);
    assert!((split.spot / alone - 1.0).abs() < 1e-9, "{split:?}");
    // A third of the time is an outage: so much is waited, and an hour more by a third of the runs before they start.
    assert!((split.waiting / (alone / 2.0 + HOUR / 3.0) - 1.0).abs() < 1e-9, "{split:?}");
}

#[test]
fn machines_that_stay_cost_what_the_work_takes() {
    for availability in [SpotAvailability::STEADY, SpotAvailability { up: 1e12, down: 0.0 }] {
        let split = OutageProfile::exponential(availability, FALL_BACK).split(HOUR, 600.0, &COSTS);
        assert!((split.spot / (HOUR * 602.0 / 600.0) - 1.0).abs() < 1e-3, "{split:?}");
        assert_eq!((split.on_demand, split.waiting), (0.0, 0.0));
    }
}

#[test]
fn a_run_that_never_ends_takes_for_ever_and_one_without_work_no_time() {
    // Checkpoints are 12 h apart, and machines stay for a minute.
    let availability = SpotAvailability { up: 60.0, down: HOUR };
    let split =
        |policy: OutagePolicy| OutageProfile::exponential(availability, policy).split(48.0 * HOUR, 12.0 * HOUR, &COSTS);
    assert_eq!((split(OutagePolicy::Wait).wall(), split(OutagePolicy::Wait).on_demand), (f64::INFINITY, 0.0));
    let falls_back = split(FALL_BACK);
    assert!(falls_back.wall() < 200.0 * HOUR && falls_back.on_demand > 40.0 * HOUR, "{falls_back:?}");
    assert_eq!(OutageProfile::exponential(availability, FALL_BACK).split(0.0, HOUR, &COSTS), TimeSplit::default());
}

#[test]
fn observed_outages_count_by_their_lengths() {
    let seen = |hours: &[f64]| -> Vec<UptimeInterval> {
        let interval = |(index, hours): (usize, &f64)| UptimeInterval { is_up: index % 2 == 0, seconds: hours * HOUR };
        hours.iter().enumerate().map(interval).collect()
    };
    let of = |hours: &[f64]| OutageProfile::observed(&seen(hours), FALL_BACK).expect("machines");
    // Outages of 20 minutes are waited for, whatever their share of the time.
    let short = of(&[1.0, 1.0 / 3.0, 1.0, 1.0 / 3.0]).split(12.0 * HOUR, 300.0, &COSTS);
    assert_eq!(short.on_demand, 0.0);
    // One outage of ten hours and nine of six minutes last as long as ten of 1.09 h, of which less than half is waited for.
    let uneven: Vec<f64> = (0..10).flat_map(|index| [5.0, if index == 0 { 10.0 } else { 0.1 }]).collect();
    let even = [5.0, 1.09].repeat(10);
    let (uneven, even) = (of(&uneven).split(48.0 * HOUR, 300.0, &COSTS), of(&even).split(48.0 * HOUR, 300.0, &COSTS));
    assert!(even.waiting > 1.5 * uneven.waiting, "{even:?} {uneven:?}");
    assert!(of(&[1.0]).split(HOUR, 300.0, &COSTS).waiting == 0.0);
    assert_eq!(OutageProfile::observed(&[UptimeInterval { is_up: false, seconds: 1.0 }], FALL_BACK), None);
}
