//! Some thousand schedules, and each rule broken. `cargo xtask sim` runs more; `cargo xtask test` runs 200,000,
//! with `--long` a million.

use sim::{Rule, Scenario, ScheduleStats, check, shrink};

#[test]
fn no_schedule_leaks_a_machine_or_loses_a_run_or_money() {
    let schedules = 2_000;
    let mut total = ScheduleStats::default();
    for seed in 0..schedules {
        match check(seed, None) {
            Ok(stats) => total.add(&stats),
            Err(failure) => panic!("seed {seed}: {}; `cargo xtask sim --explain {seed}` tells more", failure.why),
        }
    }
    assert!(total.crashes > schedules / 2, "the storm was a breeze: {total:?}");
}

#[test]
fn some_schedules_submit_runs_and_some_sweeps() {
    let drawn: Vec<Scenario> = (0..2_000).map(Scenario::draw).filter(|drawn| drawn.schedule.every > 0).collect();
    let of_sweeps = drawn.iter().filter(|drawn| drawn.schedule.sweep.trials > 0).count();
    assert!((20..drawn.len() - 20).contains(&of_sweeps), "{of_sweeps} of {}", drawn.len());
}

#[test]
fn large_gangs_have_up_to_64_machines() {
    let nodes: Vec<u32> = (0..2_000).map(|seed| Scenario::draw_large(seed).nodes).collect();
    assert_eq!((nodes.iter().min(), nodes.iter().max()), (Some(&5), Some(&64)));
}

#[test]
fn each_rule_is_needed() {
    for rule in Rule::ALL {
        let found = (0..20_000).find_map(|seed| check(seed, Some(rule)).err());
        let failure = found.unwrap_or_else(|| panic!("nothing fails without {rule:?}"));
        println!("without {rule:?}: seed {} fails: {}", failure.seed, failure.why);
    }
}

#[test]
fn a_schedule_is_the_same_every_time_and_a_failing_one_is_made_simpler() {
    assert_eq!(check(7, None).unwrap(), check(7, None).unwrap());
    let rule = Some(Rule::OneToken);
    let seed = (0..1_000).find(|seed| check(*seed, rule).is_err()).expect("one fails");
    assert_eq!(check(seed, rule).unwrap_err().why, check(seed, rule).unwrap_err().why);
    let simple = shrink(seed, rule).expect("it fails");
    assert!(simple.storm <= Scenario::draw(seed).storm);
    assert!(sim::run(seed, simple, rule, true).is_err_and(|failure| !failure.trace.is_empty()));
    assert!(shrink(seed, None).is_none(), "nothing is to be made simpler");
}
