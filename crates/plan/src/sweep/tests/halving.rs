//! Promotion: rungs, the best share of each, and failures.

use domain::Sweep;
use domain::sweep::{Asha, Goal, Method};

use super::{asha, sweep};
use crate::sweep::{Move, Stand, Standing, next, rungs};
use crate::world::Measured;

#[test]
fn rungs_are_powers_and_end_at_the_last_epoch() {
    let check = |method, epochs, expected: &[u32]| assert_eq!(rungs(&sweep(method, None), epochs), expected);
    check(asha(1, 3), 9, &[1, 3, 9]);
    check(asha(1, 3), 10, &[1, 3, 9, 10]);
    check(asha(2, 4), 100, &[2, 8, 32, 100]);
    check(asha(5, 2), 5, &[5]);
    check(Method::Random, 7, &[7]);
    check(Method::Asha(Asha { min_epochs: 1, max_epochs: Some(4), reduction_factor: 2 }), 9, &[1, 2, 4]);
}

fn rested(target: u32, values: &[(u32, f64)]) -> Standing {
    let measured = |(epochs, value): &(u32, f64)| Measured { epochs: *epochs, value: Some(*value), is_enough: false };
    let results = values.iter().map(measured).collect();
    Standing { target, results, state: Stand::Rested }
}

#[test]
fn the_best_third_goes_on_from_the_highest_rung_first() {
    let halving = sweep(asha(1, 3), Some(9));
    let at_one = |values: &[f64]| -> Vec<Standing> { values.iter().map(|value| rested(1, &[(1, *value)])).collect() };
    let check = |trials: &[Standing], expected| assert_eq!(next(&halving, 9, trials, 0), expected, "{trials:?}");
    check(&[], Move::Begin(1));
    check(&at_one(&[0.5, 0.6]), Move::Begin(3));
    check(&at_one(&[0.5, 0.6, 0.4]), Move::Resume(2, 3));
    let mut trials = at_one(&[0.5, 0.6, 0.4]);
    trials[1] = rested(3, &[(1, 0.6), (3, 0.7)]);
    check(&trials, Move::Begin(4));
    // Of six the best two may go on; one of them has.
    trials.extend(at_one(&[0.65, 0.7, 0.1]));
    check(&trials, Move::Resume(5, 3));
    trials[4] = rested(3, &[(1, 0.7), (3, 0.9)]);
    // Now two have, as many as may, though another one is better than the first of them was.
    check(&trials, Move::Begin(7));
    trials.extend(at_one(&[0.2, 0.3, 0.1]));
    check(&trials, Move::Resume(4, 3));
    trials[3] = rested(3, &[(1, 0.65), (3, 0.8)]);
    check(&trials, Move::Resume(5, 9));
    trials[4] = rested(9, &[(1, 0.7), (3, 0.9), (9, 0.95)]);
    check(&trials, Move::Over);
    // What is not a number never goes on, and less can be better.
    let mut unknown = at_one(&[0.5, 0.6, 0.4]);
    unknown[1].results[0].value = None;
    check(&unknown, Move::Begin(4));
    let least = Sweep { goal: Goal::Minimize, ..halving.clone() };
    assert_eq!(next(&least, 9, &at_one(&[0.5, 0.6, 0.4]), 0), Move::Resume(3, 3));
}

#[test]
fn a_trial_that_is_good_enough_keeps_its_place_and_does_not_go_on() {
    let halving = sweep(asha(1, 2), Some(4));
    let check = |trials: &[Standing], expected| assert_eq!(next(&halving, 4, trials, 0), expected, "{trials:?}");
    let mut trials: Vec<Standing> = [0.5, 0.9].iter().map(|value| rested(1, &[(1, *value)])).collect();
    check(&trials, Move::Resume(2, 2));
    trials[1].results[0].is_enough = true;
    check(&trials, Move::Begin(3));
    trials.extend([0.6, 0.4].iter().map(|value| rested(1, &[(1, *value)])));
    // Two of four may go on, and one of the two is good enough.
    check(&trials, Move::Resume(3, 2));
    trials[2] = rested(2, &[(1, 0.6), (2, 0.95)]);
    trials[2].results[1].is_enough = true;
    check(&trials, Move::Over);
}

fn enough(mut trial: Standing) -> Standing {
    trial.results.last_mut().unwrap().is_enough = true;
    trial
}

#[test]
fn a_trial_that_is_good_enough_takes_no_place_on_rungs_that_it_did_not_reach() {
    let halving = sweep(asha(1, 3), Some(18));
    let mut trials = vec![enough(rested(1, &[(1, 0.99)]))];
    trials.extend((1..=5).map(|at| {
        let value = 0.8 + f64::from(at) / 100.0;
        rested(3, &[(1, value), (3, value)])
    }));
    trials.extend((0..12).map(|at| rested(1, &[(1, f64::from(at) / 100.0)])));
    // Six of eighteen are the share of the first rung, and all of it is taken; one of five may go on from the second.
    assert_eq!(next(&halving, 9, &trials, 0), Move::Resume(6, 9));
    trials[5] = rested(9, &[(1, 0.85), (3, 0.85), (9, 0.9)]);
    assert_eq!(next(&halving, 9, &trials, 0), Move::Over);
}

#[test]
fn a_trial_that_is_good_enough_takes_no_place_behind_the_best() {
    // By loss, which need not go with accuracy.
    let halving = Sweep { goal: Goal::Minimize, ..sweep(asha(1, 3), Some(3)) };
    let mut trials: Vec<Standing> = [0.9, 0.5, 0.4].iter().map(|value| rested(1, &[(1, *value)])).collect();
    trials[0] = enough(trials[0].clone());
    assert_eq!(next(&halving, 9, &trials, 0), Move::Resume(3, 3), "the worst blocks nobody");
    trials[0].results[0].value = None;
    trials.push(rested(1, &[(1, 0.6)]));
    let more = Sweep { trials: Some(4), ..halving.clone() };
    assert_eq!(next(&more, 9, &trials, 0), Move::Resume(3, 3), "nor does one without a value");
    trials[2] = enough(trials[2].clone());
    assert_eq!(next(&more, 9, &trials, 0), Move::Over, "the best one keeps its place");
}

#[test]
fn failures_are_borne_up_to_a_number() {
    let random = sweep(Method::Random, Some(8));
    let failed = Standing { target: 9, results: Vec::new(), state: Stand::Failed };
    let trials = vec![failed; 4];
    assert_eq!(next(&random, 9, &trials[..3], 0), Move::Begin(4));
    assert_eq!(next(&random, 9, &trials, 0), Move::TooManyFailed);
    assert_eq!(next(&random, 9, &trials, 4), Move::Begin(5), "what was forgiven does not count");
}
