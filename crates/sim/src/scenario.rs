//! The parameters of a schedule, drawn from its seed: behaviour of the cloud, the network and the users, and durations.

use domain::random::{Draws, key};
use domain::rental::{BillingRule, ProviderTraits};
use domain::schedule::{CatchUpPolicy, JobSchedule, OverlapPolicy};
use domain::{Elapsed, Rate};

use crate::job::rate;

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
    /// Ranks fail by themselves: probability per step.
    pub rank_fault: u64,
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
    /// An agent crashes between two outputs, in hundredths of a percent.
    pub agent_crash: u64,
    /// A launch is refused because the account may not have more machines.
    pub quota: u64,
    /// Machines are nodes that were there before: what ends their agent ends their rent, and nobody else proves an end.
    pub is_remote: bool,
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
    /// That machine's agent is alive and calls, and the cloud does not list it.
    pub is_leftover_alive: bool,
    /// Only machines fail: every request and reply arrives, and the loop lives.
    pub is_clear: bool,
    /// The loop is a server's, which grants long leases.
    pub is_served: bool,
    /// Ranks on several machines do not notice by themselves that others are missing.
    pub are_deaf: bool,
    /// Of some machines that are gone, nothing can be read any more.
    pub has_lost_disks: bool,
    /// Machines beyond those that a run computes on.
    pub spares: u32,
    /// The fewest machines that a run can do with.
    pub least: u32,
    /// Steps take long: what was replaced may still work for a long time.
    pub is_slow: bool,
    /// The clocks of machines all begin at the same time.
    pub are_clocks_alike: bool,
    /// What its kinds of machine cost, and when there are any.
    pub market: SimulatedMarket,
    /// The sweep that is submitted too.
    pub sweep: SimulatedSweep,
    /// Whether runs that wait take over the machines of runs that have ended.
    pub hands_over: bool,
    /// Of the machines that a run computes on, those that it rents on demand beside spot machines.
    pub on_demand: u32,
    /// The schedule that is added too.
    pub schedule: SimulatedSchedule,
    /// What is trained.
    pub work: SimulatedWork,
}

/// What a run trains. Times are in microseconds.
#[derive(Debug, Clone, Copy)]
pub struct SimulatedWork {
    /// Steps of a run.
    pub steps: u64,
    /// After how many steps its state is saved.
    pub save_every: u64,
    /// How long a step takes; none where that is drawn.
    pub step: Option<u64>,
    /// How much longer one takes after which the state is saved.
    pub stall: u64,
    /// How long after that the state is durable.
    pub lag: u64,
    /// One of its machines ends without a word once in so long, on average; none where nothing is measured.
    pub failures: Option<u64>,
}

/// A sweep.
#[derive(Debug, Clone, Copy, Default)]
pub struct SimulatedSweep {
    /// Its trials; 0 where there is no sweep.
    pub trials: u32,
    /// How many of them may be open at the same time.
    pub parallel: u32,
    /// Whether it has a budget.
    pub is_budgeted: bool,
}

/// A schedule.
#[derive(Debug, Clone, Copy, Default)]
pub struct SimulatedSchedule {
    /// Minutes between two due times; 0 where there is no schedule.
    pub every: u64,
    /// Which due times are made up for.
    pub catch_up: CatchUpPolicy,
    /// What happens at a due time while the run before has not ended.
    pub overlap: OverlapPolicy,
    /// The sweep that is submitted at each due time; a single run where it has no trials.
    pub sweep: SimulatedSweep,
}

impl SimulatedSchedule {
    /// One in eight scenarios has one.
    fn draw(seed: u64) -> SimulatedSchedule {
        let mut draws = Draws::new(key(seed, [17]));
        if draws.below(8) > 0 {
            return SimulatedSchedule::default();
        }
        SimulatedSchedule {
            every: 1 + draws.below(5),
            catch_up: [CatchUpPolicy::None, CatchUpPolicy::Latest, CatchUpPolicy::All][draws.below(3) as usize],
            overlap: [OverlapPolicy::Skip, OverlapPolicy::Queue, OverlapPolicy::Replace][draws.below(3) as usize],
            sweep: SimulatedSchedule::draw_sweep(seed),
        }
    }

    /// One in three schedules submits sweeps.
    fn draw_sweep(seed: u64) -> SimulatedSweep {
        let mut draws = Draws::new(key(seed, [18]));
        if draws.below(3) > 0 {
            return SimulatedSweep::default();
        }
        let (trials, parallel) = (1 + draws.below(2) as u32, 1 + draws.below(2) as u32);
        SimulatedSweep { trials, parallel, is_budgeted: false }
    }

    /// Its `schedule:`.
    pub(crate) fn times(&self) -> JobSchedule {
        let cron = format!("*/{} * * * *", self.every.max(1));
        JobSchedule { catch_up: self.catch_up, overlap: self.overlap, ..JobSchedule::at(cron, None) }
    }
}

/// Prices and capacity by kind and time.
#[derive(Debug, Clone, Copy, Default)]
pub struct SimulatedMarket {
    /// Seed of the draws.
    pub seed: u64,
    /// In how many of a hundred minutes a kind is sold out.
    pub sold_out: u64,
    /// How much more each kind costs than the one before, in micro-dollars an hour.
    pub step: i64,
    /// By how much prices rise and fall from minute to minute at most, likewise.
    pub drift: u64,
}

impl SimulatedMarket {
    fn draw(seed: u64, is_calm: bool) -> SimulatedMarket {
        let mut draws = Draws::new(key(seed, [14]));
        let (is_priced, is_short) = (draws.below(3) == 0, draws.below(3) == 0);
        SimulatedMarket {
            seed,
            sold_out: if is_short && !is_calm { 20 + draws.below(60) } else { 0 },
            step: if is_priced { draws.below(400_000) as i64 } else { 0 },
            drift: if is_priced { 1 + draws.below(300_000) } else { 0 },
        }
    }

    /// Draws for a kind, such as `m3`, in the minute of this time.
    fn minute(&self, kind: &str, now: u64, what: u64) -> Draws {
        Draws::new(key(self.seed, [14, what, number(kind), now / (60 * SECOND)]))
    }

    /// Whether no machine of a kind can be had now.
    pub(crate) fn is_sold_out(&self, kind: &str, now: u64) -> bool {
        let what = if is_anchor(kind) { 3 } else { 1 };
        self.sold_out > 0 && self.minute(kind, now, what).below(100) < self.sold_out
    }

    /// The price of a kind now.
    pub(crate) fn price(&self, kind: &str, now: u64) -> Rate {
        let drift = if self.drift > 0 { self.minute(kind, now, 2).below(self.drift) as i64 } else { 0 };
        let more = self.step.saturating_mul(number(kind).saturating_sub(1) as i64);
        let anchored = if is_anchor(kind) { ON_DEMAND } else { 0 };
        Rate::from_micros_per_hour(rate().micros_per_hour() + more + drift + anchored)
    }
}

/// By how much a machine on demand costs more than the same as a spot machine, in micro-dollars an hour.
const ON_DEMAND: i64 = 2_345_679;

fn number(kind: &str) -> u64 {
    kind.trim_start_matches(['m', 'a']).parse().unwrap_or(0)
}

/// Whether a kind of machine is on demand, beside spot machines: `a3` is the same as `m3`.
pub(crate) fn is_anchor(kind: &str) -> bool {
    kind.starts_with('a')
}

impl Default for SimulatedWork {
    fn default() -> SimulatedWork {
        SimulatedWork { steps: 24, save_every: 4, step: None, stall: 0, lag: 0, failures: None }
    }
}

/// The traits of a provider whose machines take `boot` microseconds to boot.
fn traits(draws: &mut Draws, is_prompt: bool, has_tokens: bool, boot: u64) -> ProviderTraits {
    ProviderTraits {
        visible_within: Elapsed(if is_prompt { 0 } else { draws.below(60 * SECOND) }),
        effective_within: Elapsed(2 * SECOND + draws.below(20 * SECOND)),
        boots_within: Elapsed(boot + 30 * SECOND),
        // A lifetime so short that it runs out in some schedules; or none.
        token_lifetime: has_tokens.then(|| Elapsed(600 * SECOND + draws.below(86_400 * SECOND))),
        observe_every: Elapsed(5 * SECOND),
        rents_together: false,
        billing: BillingRule::EXACT,
        places: None,
        abandoned_within: None,
        keeps_events: true,
        concurrency: 4,
    }
}

/// Machines of a run, and how many there are while faults happen if they are limited: one too few, or none.
fn gang(seed: u64, is_calm: bool) -> (u32, Option<usize>) {
    let mut draws = Draws::new(key(seed, [4]));
    let nodes = if draws.below(4) == 0 { 2 + draws.below(3) as u32 } else { 1 };
    let is_outage = !is_calm && nodes == 1 && draws.below(12) == 0;
    let is_short = nodes > 1 && !is_calm && draws.below(4) == 0;
    let capacity = if is_outage { Some(0) } else { is_short.then(|| nodes as usize - 1) };
    (nodes, capacity)
}

/// How rent is counted: exactly, or as clouds do.
fn billing(mut draws: Draws) -> BillingRule {
    let (step, least) = [(0, 0), (0, 0), (SECOND, 60 * SECOND), (60 * SECOND, 60 * SECOND)][draws.below(4) as usize];
    BillingRule { step: Elapsed(step), least: Elapsed(least) }
}

/// The same provider with machines that are there already, as those of `infra: ssh`: one that nobody reaches any more
/// counts as gone after five minutes.
fn remote(traits: ProviderTraits) -> ProviderTraits {
    ProviderTraits {
        abandoned_within: Some(Elapsed(300 * SECOND)),
        token_lifetime: Some(Elapsed(86_400 * 365 * SECOND)),
        ..traits
    }
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
        let (nodes, capacity) = gang(seed, is_calm);
        // Some list a machine at once, though a request may take its time.
        let is_prompt = Draws::new(key(seed, [3])).below(4) == 0;
        let mut kinds = Draws::new(key(seed, [6]));
        let is_clear = !is_calm && kinds.below(6) == 0;
        let scenario = Scenario {
            storm: 240 * SECOND + draws.below(600 * SECOND),
            runs: 1 + draws.below(2) as u32,
            nodes,
            // Not in the draws of before, so that their seeds stay what they were.
            alternatives: Draws::new(key(seed, [7])).below(2) as u32 * 5,
            capacity,
            traits: traits(&mut draws, is_prompt, has_tokens, boot),
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
            is_leftover_alive: kinds.below(2) == 0,
            is_clear,
            is_served: kinds.below(3) == 0,
            are_deaf: nodes > 1 && kinds.below(3) == 0,
            has_lost_disks: !is_calm && kinds.below(4) == 0,
            spares: if kinds.below(6) == 0 { 1 + kinds.below(2) as u32 } else { 0 },
            least: if kinds.below(2) == 0 { nodes } else { 1 + kinds.below(u64::from(nodes)) as u32 },
            is_slow: !is_calm && kinds.below(4) == 0,
            are_clocks_alike: kinds.below(3) == 0,
            agent_crash: 0,
            quota: 0,
            is_remote: false,
            rank_fault: 0,
            market: SimulatedMarket::default(),
            sweep: SimulatedSweep::default(),
            hands_over: Draws::new(key(seed, [15])).below(2) == 0,
            on_demand: 0,
            schedule: SimulatedSchedule::default(),
            work: SimulatedWork::default(),
        };
        if is_clear { scenario.with_later_draws(seed).cleared() } else { scenario.with_later_draws(seed) }
    }

    /// What was added later has draws of its own, so that seeds stay what they were.
    fn with_later_draws(mut self, seed: u64) -> Scenario {
        self.traits.billing = billing(Draws::new(key(seed, [8])));
        self.traits.rents_together = Draws::new(key(seed, [10])).below(2) == 0;
        self.market = SimulatedMarket::draw(seed, self.is_calm);
        let mut sweeps = Draws::new(key(seed, [11]));
        if sweeps.below(6) == 0 {
            let (trials, parallel) = (2 + sweeps.below(4) as u32, 1 + sweeps.below(3) as u32);
            self.sweep = SimulatedSweep { trials, parallel, is_budgeted: sweeps.below(2) == 0 };
        }
        let mut anchors = Draws::new(key(seed, [16]));
        if self.nodes > 1 && anchors.below(2) == 0 {
            self.on_demand = 1 + anchors.below(u64::from(self.nodes) - 1) as u32;
        }
        self.schedule = SimulatedSchedule::draw(seed);
        // Schedules are kept by servers.
        self.is_served |= self.schedule.every > 0;
        let mut draws = Draws::new(key(seed, [9]));
        let (is_remote, has_quota) = (draws.below(6) == 0, draws.below(6) == 0);
        if self.is_calm {
            return self;
        }
        let mut ranks = Draws::new(key(seed, [13]));
        self.rank_fault = if ranks.below(4) == 0 { 1 + ranks.below(5) } else { 0 };
        self.agent_crash = draws.below(20);
        self.quota = if has_quota { draws.below(6) } else { 0 };
        self.is_remote = is_remote;
        if is_remote {
            self.traits = remote(self.traits);
        }
        self
    }

    /// The same where nothing but machines fails.
    pub(crate) fn cleared(self) -> Scenario {
        Scenario {
            capacity: None,
            loss: 0,
            repeat: 0,
            refusal: 0,
            throttle: 0,
            partial: 0,
            crash: 0,
            agent_crash: 0,
            rank_fault: 0,
            market: SimulatedMarket { sold_out: 0, ..self.market },
            quota: 0,
            user: 0,
            is_skewed: false,
            is_abandoned: false,
            is_restored: false,
            has_lost_disks: false,
            ..self
        }
    }
}
