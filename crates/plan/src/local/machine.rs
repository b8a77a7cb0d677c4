//! What a job of our own trainer takes on one machine: the search of a market that has nothing else.

use domain::listing::{Cloud, Fabric, Gpus, Listing, Price};
use domain::plan::Spread;
use domain::rank::Sample;
use domain::train::{Codec, Shard, Span, Train};
use domain::{Bytes, Duration, Offer, Share};

use crate::estimate::processor::{self, DATED, FASTER, SLOWER, START_AND_END};
use crate::estimate::{Device, FittedCoefficients, Setup};
use crate::search::workload::spec::{ParallelChoice, TrainingSpec};
use crate::search::workload::trained::{self, Trained};
use crate::search::{
    CalibrationData, Constraints, Estimates, Estimator, Infeasible, JobFacts, MarketIndex, MemoryFit, RequiredMemory,
    Search, forecast,
};

/// How much faster and slower than measured one run in ten is: what differs is the machine's other work.
pub(super) const MEASURED: (f64, f64) = (1.1, 1.4);

/// A job is refused when its estimated memory times this does not fit: the estimate has an error, and so has what
/// other programs take.
pub(super) const MEMORY_MARGIN: f64 = 1.2;

/// Decoded data sets up to this size stay in memory.
const DATA_KEPT: u64 = 512 << 20;

/// What nodes exchange gradients over, in bit/s: Gigabit Ethernet, the least that is common.
pub(super) const NETWORK: f64 = 1e9;

/// Seed of the draws of spot interruptions, of which there are none here.
pub(super) const SEED: u64 = 1;

/// Why a plan has no time.
pub(super) const UNCOUNTED: &str =
    "the number of samples is not known before the data is opened, so neither are time and cost";

/// What a job takes on one machine, as far as that is known.
#[derive(Debug)]
pub(super) struct OnMachine {
    pub share: Option<Share>,
    /// Memory of the ranks at their peaks.
    pub memory: Option<RanksMemory>,
    /// Bytes of one checkpoint.
    pub checkpoint: Option<u64>,
    pub time: Option<Spread>,
    /// A number of micro-batches with which it fits, where it does not.
    pub fitting: Option<u64>,
    pub assumptions: Vec<String>,
}

/// Peak memory of ranks in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RanksMemory {
    /// Of rank 0, which writes.
    pub first: u64,
    /// Of all together.
    pub all: u64,
    /// What of that is data that was read into memory because the job says `preload`.
    pub preloaded: u64,
    /// Whether the machine has enough of it, with a margin.
    pub fits: bool,
    /// Where it is of GPUs, one for each rank: that of each.
    pub of_gpu: Option<Bytes>,
}

impl OnMachine {
    /// Of a program of the user's own nothing is known.
    pub fn of_program() -> OnMachine {
        OnMachine {
            share: None,
            memory: None,
            checkpoint: None,
            time: None,
            fitting: None,
            assumptions: vec!["how long the program takes is not known before it ends".to_owned()],
        }
    }

    /// Estimates a job of our own trainer.
    pub fn of((train, nodes): (&Train, u32), resolved: &Trained, offer: &Offer, facts: &JobFacts) -> OnMachine {
        let mut assumptions = resolved.assumptions.clone();
        let cores = offer.node.cores.max(1);
        let share = share(train, (cores, nodes), resolved.samples, &mut assumptions);
        let spec = spec(train, nodes, resolved);
        let listing = listing(offer, share.ranks);
        let coefficients = processor::coefficients();
        let estimator = || RankEstimates::of(resolved, &coefficients, facts, train, share.ranks);
        let cores_of_rank = f64::from(share.threads.saturating_mul(share.ranks).min(cores)) / f64::from(share.ranks);
        // More threads than cores wait for each other at each operator: with 64 on 2 cores a step took over 20 times as long.
        let cores_of_rank = cores_of_rank / (f64::from(share.threads) / f64::from(cores)).max(1.0);
        let device = processor::device(cores_of_rank, share.ranks, offer.node.memory);
        let network = (nodes > 1).then_some(NETWORK);
        let market = MarketIndex::here(&listing, Device { network, ..device });
        let mut search = Search::new(&spec, &market, estimator());
        let config = search.config(0, nodes).clone();
        let is_fitting = matches!(&config, Ok(config) if config.verdict == MemoryFit::Fits);
        let needed = match &config {
            Ok(config) => config.needed,
            Err(Infeasible::Memory { least }) => *least,
            Err(Infeasible::Format | Infeasible::Batch | Infeasible::Layout) => 0.0,
        };
        let memory = resolved.network.as_ref().map(|_| estimator().ranks(needed, is_fitting));
        let step = step(train, resolved, facts, &mut assumptions);
        let time = match (resolved.samples, step) {
            (Some(samples), Some(band)) => {
                assumptions.push(format!(
                    "{} steps over {} training samples, {} samples evaluated, {START_AND_END:.1} s to start and to end",
                    spec.length.steps, samples[0], spec.length.evaluated,
                ));
                let constraints = Constraints { nodes: vec![nodes], ..Constraints::default() };
                let answer = search.answer(&constraints);
                let candidate = answer.candidates.first();
                candidate.map(|candidate| forecast(&mut search, &constraints, candidate, band, SEED).time)
            }
            (Some(_), None) => None,
            (None, _) => {
                assumptions.push(UNCOUNTED.to_owned());
                None
            }
        };
        note_network(nodes, &mut assumptions);
        warn(train, &share, &mut assumptions);
        let checkpoint = resolved.network.as_ref().map(|_| spec.checkpoints.state.0);
        let fitting = match is_fitting {
            true => None,
            false => fitting(&spec, &market, estimator()),
        };
        OnMachine { share: Some(share), memory, checkpoint, time, fitting, assumptions }
    }
}

/// The training as the job divides it, on samples that are decoded beside it.
fn spec(train: &Train, nodes: u32, resolved: &Trained) -> TrainingSpec {
    let mut spec = resolved.spec.clone();
    spec.division = trained::division(train, nodes);
    spec.data.per_core = None;
    // The fused attention of processors cannot drop values out, so that scores are saved.
    spec.program.flash_attention = !trained::drops_out(train);
    if spec.program.precision == domain::format::NumericFormat::Auto {
        spec.program.precision = domain::format::NumericFormat::Fp32;
    }
    spec
}

/// A number of micro-batches per step with which the machine has memory enough.
pub(super) fn fitting(spec: &TrainingSpec, market: &MarketIndex, mut estimator: impl Estimator) -> Option<u64> {
    let ParallelChoice::Stated { parallel, accumulate, recompute } = spec.division else { return None };
    let of_rank = spec.length.batch.div_ceil(u64::from(parallel.data.max(1)));
    let doubled = std::iter::successors(accumulate.checked_mul(2), |more| more.checked_mul(2));
    for accumulate in doubled.take_while(|more| *more < 2 * of_rank) {
        let accumulate = accumulate.min(of_rank);
        let division = ParallelChoice::Stated { parallel, accumulate, recompute };
        let spec = TrainingSpec { division, ..spec.clone() };
        let found = crate::search::parallel::fastest(&spec, &market.hardware[0].device, &mut estimator);
        if found.is_ok_and(|config| config.verdict == MemoryFit::Fits) {
            return Some(accumulate);
        }
    }
    None
}

/// How a step is divided among ranks and their threads.
pub(super) fn share(
    train: &Train,
    (cores, nodes): (u32, u32),
    samples: Option<[u64; 3]>,
    assumptions: &mut Vec<String>,
) -> Share {
    let ranks = train.processes.max(1);
    let threads = train.threads.unwrap_or((cores / ranks).max(1));
    let all = threads.saturating_mul(ranks);
    if all > cores {
        let faster =
            if ranks > cores { format!("processes: {cores}") } else { format!("threads: {}", (cores / ranks).max(1)) };
        assumptions.push(format!(
            "{all} threads share {cores} cores, which makes each of them wait for the others: `{faster}` is faster"
        ));
    }
    let accumulate = train.accumulate.max(1);
    let steps = samples.map(|[training, ..]| {
        let steps_of_epoch = training.div_ceil(u64::from(train.batch.max(1)));
        u64::from(train.epochs).saturating_mul(steps_of_epoch)
    });
    // Ranks that divide the layers among them have the same samples.
    let shares = (ranks * nodes / train.parallel.tensor.max(1)).max(1);
    let micro_batch = train.batch.div_ceil(shares).div_ceil(accumulate);
    Share { batch: train.batch, ranks, accumulate, micro_batch, threads, steps }
}

/// How far from its middle one step in ten is on either side; none where nothing is known of steps.
fn step(train: &Train, resolved: &Trained, facts: &JobFacts, assumptions: &mut Vec<String>) -> Option<(f64, f64)> {
    if let Some(measured) = facts.measured_step {
        assumptions.push(format!("a step takes {}, as measured on this machine", in_digits(measured)));
        let (faster, slower) = MEASURED;
        return Some((1.0 / faster, slower));
    }
    if resolved.network.is_none() {
        let name = train.model.name();
        assumptions.push(format!(
            "what `{name}` takes is not counted yet: its memory, time and cost are not known before it runs"
        ));
        return None;
    }
    let gigaflops = processor::CORE_FLOPS / 1e9;
    assumptions.push(format!(
        "a core does {gigaflops:.0} GFLOP/s; {:.0} on one in ten, {:.0} on another (figures of {DATED})",
        gigaflops / SLOWER,
        gigaflops * FASTER,
    ));
    assumptions.push(format!(
        "a sample takes {:.2} MFLOP in the forward pass, and 3 times that with the backward pass",
        2.0 * resolved.spec.network.multiply_adds / 1e6,
    ));
    Some((1.0 / FASTER, SLOWER))
}

/// What nodes are taken to exchange gradients at.
pub(super) fn note_network(nodes: u32, assumptions: &mut Vec<String>) {
    if nodes > 1 {
        let gigabits = NETWORK / 1e9;
        assumptions.push(format!("{nodes} nodes exchange gradients at {gigabits:.0} Gbit/s; it is not measured"));
    }
}

/// What of the schedule the plan does not count on.
pub(super) fn warn(train: &Train, share: &Share, assumptions: &mut Vec<String>) {
    if let (Some(steps), Some(Span::Steps(warmup))) = (share.steps, train.schedule.warmup)
        && warmup > steps
    {
        assumptions.push(format!("the warm-up of {warmup} steps does not end within the run's {steps}"));
    }
    if train.stop.is_some_and(|stop| stop.accuracy.is_some()) {
        assumptions.push("every epoch is counted; `train.stop` may end the run sooner".to_owned());
    }
}

/// A measured step with the digits that it has: `9.7 ms`, `1.25 s`.
fn in_digits(step: Duration) -> String {
    let seconds = step.as_secs_f64();
    let (number, unit) = if seconds < 1.0 { (1e3 * seconds, "ms") } else { (seconds, "s") };
    let digits = if number < 10.0 { 2 } else { usize::from(number < 100.0) };
    format!("{number:.digits$} {unit}")
}

/// An offer as the search knows machines.
pub(super) fn listing(offer: &Offer, ranks: u32) -> Listing {
    let price = Price { rate: offer.rate, dated: String::new(), source: offer.price_source.clone(), derived: None };
    Listing {
        cloud: Cloud::Other(offer.provider.clone()),
        region: String::new(),
        instance_type: offer.kind.clone(),
        gpus: Gpus { name: None, spelled: String::new(), count: ranks, slice: 1, memory: None },
        cores: Some(offer.node.cores),
        memory: Some(offer.node.memory),
        disk: Some(offer.node.disk_free),
        network: None,
        fabric: Fabric::default(),
        link: None,
        on_demand: Some(price),
        spot: None,
        reserved_1y: None,
        reserved_3y: None,
        dedicated: None,
        interrupted: None,
        machines: None,
    }
}

/// Estimates of ranks that share one machine's memory. What was measured takes the place of the estimate of a step.
struct RankEstimates<'a> {
    estimates: Option<Estimates<'a>>,
    measured_step: Option<f64>,
    ranks: u32,
    /// Bytes of the copies that are written while training goes on.
    copies: f64,
    /// Whether each rank has its own part of them, and not rank 0 all.
    shares_copies: bool,
    /// Bytes of data that each rank has in memory: decoded, or its files.
    data: f64,
    preloaded: u64,
}

impl<'a> RankEstimates<'a> {
    fn of(
        resolved: &'a Trained,
        coefficients: &'a FittedCoefficients,
        facts: &JobFacts,
        train: &Train,
        ranks: u32,
    ) -> RankEstimates<'a> {
        let network = resolved.network.as_ref();
        let estimates = network.map(|network| Estimates::calibrated(network, coefficients, CalibrationData::default()));
        let checkpoints = &resolved.spec.checkpoints;
        let (decoded, preloaded) = resolved.sample.map_or((0, 0), |sample| data(train, sample, facts));
        RankEstimates {
            estimates,
            measured_step: facts.measured_step.map(|step| step.as_secs_f64()),
            ranks: ranks.max(1),
            copies: (checkpoints.state.0 + checkpoints.weights.0) as f64,
            shares_copies: matches!(train.parallel.shard, Shard::Gradients | Shard::Parameters)
                && train.parallel.tensor <= 1
                && train.checkpoint.codec == Codec::Full,
            data: decoded as f64 + preloaded as f64,
            preloaded,
        }
    }

    /// The memory of all ranks, of which each needs so much, copies shared out.
    fn ranks(&self, needed: f64, fits: bool) -> RanksMemory {
        let ranks = f64::from(self.ranks);
        let more = if self.shares_copies { 0.0 } else { self.copies - self.copies / ranks };
        RanksMemory {
            first: (needed + more) as u64,
            all: (needed * ranks) as u64,
            preloaded: self.preloaded.saturating_mul(u64::from(self.ranks)),
            fits,
            of_gpu: None,
        }
    }
}

impl Estimator for RankEstimates<'_> {
    fn needed(&mut self, setup: &Setup) -> RequiredMemory {
        let Some(estimates) = &mut self.estimates else { return RequiredMemory { low: 0.0, middle: 0.0, high: 0.0 } };
        let needed = estimates.needed(setup).middle + self.data + self.copies / f64::from(self.ranks);
        RequiredMemory { low: needed, middle: needed, high: MEMORY_MARGIN * needed }
    }

    fn seconds(&mut self, setup: &Setup) -> f64 {
        match (self.measured_step, &mut self.estimates) {
            (Some(measured), _) => measured,
            (None, Some(estimates)) => estimates.seconds(setup),
            (None, None) => 0.0,
        }
    }
}

/// Bytes of data that each rank keeps decoded, and of files that it reads into memory before.
pub(super) fn data(train: &Train, sample: Sample, facts: &JobFacts) -> (u64, u64) {
    let bytes = match sample {
        Sample::Image { channels, height, width } => u64::from(channels) * u64::from(height) * u64::from(width),
        Sample::Text { length, .. } => 4 * u64::from(length),
    };
    let samples = facts.samples.iter().flatten().fold(0u64, |sum, part| sum.saturating_add(*part));
    let decoded = samples.saturating_mul(bytes);
    let is_kept = decoded <= DATA_KEPT;
    // What is kept decoded needs its files no more.
    let most = train.data.preload.filter(|_| !is_kept || facts.samples.is_none()).map_or(0, |most| most.0);
    let preloaded = most.min(facts.bytes.unwrap_or(u64::MAX));
    (if is_kept { decoded } else { 0 }, preloaded)
}
