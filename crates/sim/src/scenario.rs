//! The parameters of a schedule, drawn from its seed: behaviour of the cloud, the network and the users, and durations.

use domain::Elapsed;
use domain::random::{Draws, key};
use domain::rental::ProviderTraits;

/// One second, in microseconds.
pub(crate) const SECOND: u64 = 1_000_000;

/// The parameters of a schedule. Probabilities are in percent.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// How long faults happen, in microseconds.
    pub storm: u64,
    /// Runs that are submitted.
    pub runs: u32,
    /// Machines that each of them needs.
    pub nodes: u32,
    /// Other kinds of machine that each run may be given.
    pub alternatives: u32,
    /// Machines that the cloud has while faults happen; none where there are always more.
    pub capacity: Option<usize>,
    /// The provider's traits, which it keeps.
    pub traits: ProviderTraits,
    /// How long a machine takes to boot, at most, in microseconds.
    pub boot: u64,
    /// A request or its reply is lost.
    pub loss: u64,
    /// A message takes up to so long, in microseconds.
    pub delay: u64,
    /// A message arrives twice.
    pub repeat: u64,
    /// A launch is refused for want of capacity.
    pub refusal: u64,
    /// A request is throttled.
    pub throttle: u64,
    /// A view is incomplete and misses machines.
    pub partial: u64,
    /// The loop crashes between two outputs, in tenths of a percent.
    pub crash: u64,
    /// Probability per machine and ten seconds of a fault.
    pub machine_fault: u64,
    /// Every ten seconds, a user stops or resumes a run.
    pub user: u64,
    /// The wall clock is set back and forth.
    pub is_skewed: bool,
    /// Nothing fails: bills are within budgets to the micro-dollar.
    pub is_calm: bool,
    /// Whether runs have a budget that does not suffice, or hardly so.
    pub is_budgeted: bool,
    /// The loop never restarts after its first crash.
    pub is_abandoned: bool,
    /// The log is restored from a backup once.
    pub is_restored: bool,
    /// The cloud has a machine with our tag that was never in the log, and whose agent is dead.
    pub has_leftover: bool,
}

impl Scenario {
    /// The scenario of a seed. One in four has no faults but delays, so that exact promises can be checked.
    pub fn draw(seed: u64) -> Scenario {
        let mut draws = Draws::new(key(seed, [1]));
        let is_calm = draws.below(4) == 0;
        let mut chance = |most: u64| if is_calm { 0 } else { draws.below(most + 1) };
        let (loss, repeat, refusal, throttle) = (chance(15), chance(10), chance(20), chance(10));
        let (partial, crash, machine_fault, user) = (chance(20), chance(20), chance(8), chance(10));
        let is_skewed = chance(1) == 1;
        let has_tokens = draws.below(4) > 0;
        let boot = 10 * SECOND + draws.below(230 * SECOND);
        let mut gangs = Draws::new(key(seed, [4]));
        let nodes = if gangs.below(4) == 0 { 2 + gangs.below(3) as u32 } else { 1 };
        let capacity = (nodes > 1 && !is_calm && gangs.below(4) == 0).then_some(nodes as usize - 1);
        // Some list a machine at once, though a request may take its time.
        let is_prompt = Draws::new(key(seed, [3])).below(4) == 0;
        Scenario {
            storm: 240 * SECOND + draws.below(600 * SECOND),
            runs: 1 + draws.below(2) as u32,
            nodes,
            // Not in the draws of before, so that their seeds stay what they were.
            alternatives: Draws::new(key(seed, [6])).below(2) as u32 * 5,
            capacity,
            traits: ProviderTraits {
                visible_within: Elapsed(if is_prompt { 0 } else { draws.below(60 * SECOND) }),
                effective_within: Elapsed(2 * SECOND + draws.below(20 * SECOND)),
                boots_within: Elapsed(boot + 30 * SECOND),
                // A lifetime so short that it runs out in some schedules; or none.
                token_lifetime: has_tokens.then(|| Elapsed(600 * SECOND + draws.below(86_400 * SECOND))),
                observe_every: Elapsed(5 * SECOND),
                billing_step: Elapsed(0),
                places: None,
                abandoned_within: None,
                keeps_events: true,
                concurrency: 4,
            },
            boot,
            loss,
            delay: 10_000 + draws.below(SECOND),
            repeat,
            refusal,
            throttle,
            partial,
            crash,
            machine_fault,
            user,
            is_skewed,
            is_calm,
            is_budgeted: if is_calm { draws.below(2) == 0 } else { Draws::new(key(seed, [5])).below(4) == 0 },
            is_abandoned: !is_calm && draws.below(12) == 0,
            is_restored: !is_calm && draws.below(12) == 0,
            has_leftover: draws.below(12) == 0,
        }
    }
}
