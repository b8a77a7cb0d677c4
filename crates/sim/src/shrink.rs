//! Shrinks a failing schedule: kinds of faults are removed one at a time, as long as it still fails.

use crate::rule::Rule;
use crate::scenario::{SECOND, Scenario, SimulatedMarket, SimulatedSchedule};
use crate::verdict::run;

/// The simplest scenario in which the schedule of a seed still fails; `None` if it does not fail.
pub fn shrink(seed: u64, rule: Option<Rule>) -> Option<Scenario> {
    let fails = |scenario: &Scenario| run(seed, scenario.clone(), rule, false).is_err();
    let mut scenario = Scenario::draw(seed);
    if !fails(&scenario) {
        return None;
    }
    let simpler: [fn(&mut Scenario); 25] = [
        |scenario| scenario.market = SimulatedMarket::default(),
        |scenario| scenario.hands_over = false,
        |scenario| scenario.rank_fault = 0,
        |scenario| scenario.sweep.trials = 0,
        |scenario| scenario.runs = 1,
        |scenario| scenario.schedule = SimulatedSchedule::default(),
        |scenario| scenario.on_demand = 0,
        |scenario| (scenario.nodes, scenario.least, scenario.on_demand) = (1, 1, 0),
        |scenario| scenario.alternatives = 0,
        |scenario| scenario.spares = 0,
        |scenario| scenario.least = scenario.nodes,
        |scenario| scenario.capacity = None,
        |scenario| scenario.loss = 0,
        |scenario| scenario.repeat = 0,
        |scenario| scenario.refusal = 0,
        |scenario| scenario.throttle = 0,
        |scenario| scenario.partial = 0,
        |scenario| scenario.crash = 0,
        |scenario| scenario.agent_crash = 0,
        |scenario| scenario.quota = 0,
        |scenario| scenario.machine_fault = 0,
        |scenario| scenario.user = 0,
        |scenario| scenario.is_skewed = false,
        |scenario| scenario.is_restored = false,
        |scenario| scenario.storm = (scenario.storm / 2).max(30 * SECOND),
    ];
    // Twice, for faults that were needed only because of another one.
    for change in simpler.iter().chain(&simpler) {
        let mut calmer = scenario.clone();
        change(&mut calmer);
        if fails(&calmer) {
            scenario = calmer;
        }
    }
    Some(scenario)
}
