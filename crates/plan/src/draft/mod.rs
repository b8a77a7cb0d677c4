//! Drafts: which of the offers can run a job, how the work is divided there, how long it takes and what it costs.
//!
//! One [`Plan`] for each offer that fits, or every reason why none does. Nothing is measured here: what was measured
//! is passed in as [`Facts`], the rest is counted ([`network`]) or [`assumed`], and the plan says which in sentences.

mod assumed;
mod fit;
mod network;
mod subject;
#[cfg(test)]
mod tests;

use domain::plan::{CostSpread, Spread};
use domain::problem::Problem;
use domain::rank::Sample;
use domain::train::{Shard, Span, Train};
use domain::{Bytes, Command, Duration, Elapsed, Job, Money, Offer, Plan, Rate, Share, Work};

pub(crate) use assumed::AROUND;
use network::Network;

/// What is known about the data and the machine before anything runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Facts {
    /// Samples of training, validation and test.
    pub samples: Option<[u64; 3]>,
    /// Channels, height and width of a picture.
    pub input_shape: Option<[u32; 3]>,
    /// Number of classes.
    pub classes: Option<u32>,
    /// Bytes of the files of the data.
    pub bytes: Option<u64>,
    /// What one optimiser step took on this machine, where it was measured.
    pub measured_step: Option<Duration>,
}

/// Why no offer can run the job: every reason, each with what to change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Infeasible {
    /// At least one.
    pub reasons: Vec<Problem>,
}

/// Drafts one plan for each offer that can run the job: the cheapest first, then the fastest, then the first offered.
///
/// # Errors
/// Every reason why no offer can.
pub fn draft(job: &Job, offers: &[Offer], facts: &Facts) -> Result<Vec<Plan>, Infeasible> {
    let mut reasons: Vec<Problem> = too_large(job, facts).into_iter().collect();
    let mut plans = Vec::new();
    for offer in offers.iter().filter(|_| too_large(job, facts).is_none()) {
        let estimate = Estimate::new(job, offer, facts);
        let found = fit::reasons(job, offer, &estimate);
        if found.is_empty() {
            plans.push(plan(job, offer, estimate));
        }
        let new: Vec<Problem> = found.into_iter().filter(|reason| !reasons.contains(reason)).collect();
        reasons.extend(new);
    }
    if !plans.is_empty() {
        // A stable sort: equals stay in the order in which they were offered. What is not known comes last.
        plans.sort_by_key(|plan| {
            let (cost, time) = (plan.cost.map(|cost| cost.middle), plan.time.map(|time| time.middle));
            (cost.is_none(), cost, time.is_none(), time, plan.offer.rate)
        });
        return Ok(plans);
    }
    if reasons.is_empty() {
        let none = Problem::at("", "no machine is offered");
        reasons.push(none.hint("leave `resources` out, so that this machine is enough"));
    }
    Err(Infeasible { reasons })
}

/// Why no machine can make a batch: there are fewer samples than that.
fn too_large(job: &Job, facts: &Facts) -> Option<Problem> {
    let domain::Work::Train(train) = &job.work else { return None };
    let [training, ..] = facts.samples?;
    if u64::from(train.batch) <= training {
        return None;
    }
    let message = format!("a batch of {} is more than the {training} training samples", train.batch);
    Some(Problem::at("train.batch", message).hint(format!("write `batch: {training}` or less")))
}

/// What a job takes on one machine, as far as that is known.
struct Estimate {
    share: Option<Share>,
    /// Memory of the ranks at their peaks.
    memory: Option<Memory>,
    /// Bytes of one checkpoint.
    checkpoint: Option<u64>,
    time: Option<Spread>,
    assumptions: Vec<String>,
}

impl Estimate {
    fn new(job: &Job, offer: &Offer, facts: &Facts) -> Estimate {
        match &job.work {
            Work::Train(train) => Estimate::train(train, offer, facts),
            Work::Command(Command { .. }) => Estimate {
                share: None,
                memory: None,
                checkpoint: None,
                time: None,
                assumptions: vec!["how long the program takes is not known before it ends".to_owned()],
            },
        }
    }

    fn train(train: &Train, offer: &Offer, facts: &Facts) -> Estimate {
        let mut assumptions = Vec::new();
        let cores = offer.node.cores.max(1);
        let share = share(train, cores, facts, &mut assumptions);
        let sample = subject::sample(train, facts, &mut assumptions);
        let network = sample.and_then(|sample| subject::count(train, sample, facts, &mut assumptions));
        let step = step(
            train,
            network.as_ref(),
            share.threads.saturating_mul(share.ranks).min(cores),
            facts,
            &mut assumptions,
        );
        let time = match (facts.samples, step) {
            (Some(samples), Some(step)) => Some(time(train, samples, &share, step, &mut assumptions)),
            (Some(_), None) => None,
            (None, _) => {
                let unknown =
                    "the number of samples is not known before the data is opened, so neither are time and cost";
                assumptions.push(unknown.to_owned());
                None
            }
        };
        if let (Some(steps), Some(Span::Steps(warmup))) = (share.steps, train.schedule.warmup)
            && warmup > steps
        {
            assumptions.push(format!("the warm-up of {warmup} steps does not end within the run's {steps}"));
        }
        if train.stop.is_some_and(|stop| stop.accuracy.is_some()) {
            assumptions.push("every epoch is counted; `train.stop` may end the run sooner".to_owned());
        }
        let memory = network.zip(sample).map(|(network, sample)| memory(train, &network, sample, &share, facts));
        let checkpoint = network.map(|network| 4 * (network.parameters * (1 + moments(train)) + network.buffers));
        Estimate { share: Some(share), memory, checkpoint, time, assumptions }
    }
}

fn share(train: &Train, cores: u32, facts: &Facts, assumptions: &mut Vec<String>) -> Share {
    let ranks = train.processes.max(1);
    let threads = train.threads.unwrap_or((cores / ranks).max(1));
    let all = threads.saturating_mul(ranks);
    if all > cores {
        assumptions.push(format!("{all} threads share {cores} cores, which makes each of them wait for the others"));
    }
    let accumulate = train.accumulate.max(1);
    let steps = facts.samples.map(|[training, ..]| {
        let steps_an_epoch = training.div_ceil(u64::from(train.batch.max(1)));
        u64::from(train.epochs).saturating_mul(steps_an_epoch)
    });
    // Ranks that divide the layers among them have the same samples.
    let shares = (ranks / train.parallel.tensor.max(1)).max(1);
    let micro_batch = train.batch.div_ceil(shares).div_ceil(accumulate);
    Share { batch: train.batch, ranks, accumulate, micro_batch, threads, steps }
}

/// Values that the optimiser keeps for each weight.
fn moments(train: &Train) -> u64 {
    match train.optimizer {
        domain::train::Optimizer::Sgd(sgd) => u64::from(sgd.momentum != 0.0),
        domain::train::Optimizer::Lars(_) => 1,
        domain::train::Optimizer::Adamw(_) | domain::train::Optimizer::Lamb(_) => 2,
        // Rows and columns, next to nothing.
        domain::train::Optimizer::Adafactor(_) => 0,
    }
}

/// Peak memory of ranks in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Memory {
    /// Of rank 0, which writes.
    first: u64,
    /// Of all together.
    all: u64,
    /// What of that is data that was read into memory because the job says `preload`.
    preloaded: u64,
}

/// Peak memory; `docs/estimate.md` has the formula with its terms explained and measured.
///
/// Base, model states and activations add up as in Rajbhandari et al. 2020 (ZeRO), section 3. To that come the copies
/// that are being written, at rank 0, and, as `largest`, the gradients of the layer at work: of its output and of its
/// input.
fn memory(train: &Train, network: &Network, sample: Sample, share: &Share, facts: &Facts) -> Memory {
    // A mean of the weights is kept and saved as the optimiser's values are.
    let moments = moments(train) + u64::from(train.average.is_some());
    let states = 4 * shared(train, network, moments) + 4 * network.buffers;
    let copies = 4 * network.parameters * (1 + moments) + 4 * network.parameters;
    let activations = u64::from(share.micro_batch) * network.sample_bytes(train.precision);
    let bytes = match sample {
        Sample::Picture { channels, height, width } => u64::from(channels) * u64::from(height) * u64::from(width),
        Sample::Text { length, .. } => 4 * u64::from(length),
    };
    let samples = facts.samples.iter().flatten().fold(0u64, |sum, part| sum.saturating_add(*part));
    let decoded = samples.saturating_mul(bytes);
    let is_kept = decoded <= assumed::DATA_KEPT;
    // What is kept decoded needs its files no more.
    let most = train.data.preload.filter(|_| !is_kept || facts.samples.is_none()).map_or(0, |most| most.0);
    let preloaded = most.min(facts.bytes.unwrap_or(u64::MAX));
    let data = if is_kept { decoded } else { 0 };
    let each = (assumed::RANK_BYTES + states + activations + data).saturating_add(preloaded);
    let ranks = u64::from(share.ranks);
    Memory {
        first: each.saturating_add(copies),
        all: each.saturating_mul(ranks).saturating_add(copies),
        preloaded: preloaded.saturating_mul(ranks),
    }
}

/// Values that each rank has of weights, gradients and so many `moments`: whole ones, or its part and, of the block at
/// work and of what stands around the blocks, what was gathered (Rajbhandari et al. 2020, figure 1). Ranks that divide
/// the layers have their part of these before anything else is shared.
///
/// To that comes what the C library's allocator keeps on processors, from where blocks below 32 MiB never go back: buckets
/// of gradients that are laid out anew after the first step; the whole network that a rank begins with; and, with
/// `parameters`, all that was ever gathered.
fn shared(train: &Train, network: &Network, moments: u64) -> u64 {
    let ranks = u64::from((train.processes / train.parallel.tensor.max(1)).max(1));
    let all = network.here();
    let part = all.div_ceil(ranks);
    // A gradient, the same laid out to be sent, and what is being sent.
    let at_work = 3 * network.block.max(all - network.blocks);
    let kept = if ranks > 1 { all } else { 0 };
    match train.parallel.shard {
        Shard::None => all * (2 + moments) + kept,
        Shard::Optimizer => all * 2 + part * moments + kept,
        Shard::Gradients => all + part * (1 + moments) + at_work + kept,
        Shard::Parameters => all + part * (2 + moments) + at_work + kept,
    }
}

/// Time of one optimiser step, and how far from it one run in ten is on either side.
struct Step {
    seconds: f64,
    faster: f64,
    slower: f64,
}

/// The measured step, else 3 · multiply-adds · batch ÷ (speed of a core · threads) + what starting the operators
/// takes; none where neither is known.
fn step(
    train: &Train,
    network: Option<&Network>,
    threads: u32,
    facts: &Facts,
    assumptions: &mut Vec<String>,
) -> Option<Step> {
    if let Some(measured) = facts.measured_step {
        assumptions.push(format!("a step takes {}, as measured on this machine", in_digits(measured)));
        let (faster, slower) = (assumed::MEASURED_FASTER, assumed::MEASURED_SLOWER);
        return Some(Step { seconds: measured.as_secs_f64(), faster, slower });
    }
    let multiply_adds = network?.multiply_adds as f64;
    let speed = assumed::MULTIPLY_ADDS_A_CORE * f64::from(threads);
    let arithmetic = assumed::PASSES * multiply_adds * f64::from(train.batch) / speed;
    let gigaflops = 2.0 * assumed::MULTIPLY_ADDS_A_CORE / 1e9;
    assumptions.push(format!(
        "a core does {gigaflops:.0} GFLOP/s; {:.0} on one in ten, {:.0} on another (figures of {})",
        gigaflops / assumed::SLOWER,
        gigaflops * assumed::FASTER,
        assumed::DATED,
    ));
    assumptions.push(format!(
        "a sample takes {:.2} MFLOP forwards, and {:.0} times that with the backward pass",
        2.0 * multiply_adds / 1e6,
        assumed::PASSES,
    ));
    let overhead = assumed::STEP_OVERHEAD * f64::from(train.accumulate);
    Some(Step { seconds: arithmetic + overhead, faster: assumed::FASTER, slower: assumed::SLOWER })
}

/// A measured step with the digits that it has: `9.7 ms`, `1.25 s`.
fn in_digits(step: Duration) -> String {
    let seconds = step.as_secs_f64();
    let (number, unit) = if seconds < 1.0 { (1e3 * seconds, "ms") } else { (seconds, "s") };
    let digits = if number < 10.0 { 2 } else { usize::from(number < 100.0) };
    format!("{number:.digits$} {unit}")
}

/// Time from rent to release.
fn time(
    train: &Train,
    [training, validation, test]: [u64; 3],
    share: &Share,
    step: Step,
    assumptions: &mut Vec<String>,
) -> Spread {
    // A run that stops before its last epoch has fewer steps than the learning rate moves over.
    let (epochs, all) = (train.last_epoch(), train.epochs.max(1));
    let steps = share.steps.unwrap_or(0) / u64::from(all) * u64::from(epochs);
    let evaluated = f64::from(epochs) * validation as f64 + test as f64;
    // A sample that is only evaluated takes the forward pass.
    let evaluation = evaluated / f64::from(train.batch.max(1)) / assumed::PASSES;
    let work = (steps as f64 + evaluation) * step.seconds;
    assumptions.push(format!(
        "{steps} steps over {training} training samples, {evaluated} samples evaluated, {:.1} s to start and to end",
        assumed::AROUND,
    ));
    let at = |work: f64| Duration::from_micros(((assumed::AROUND + work) * 1e6).round() as u64);
    Spread { low: at(work / step.faster), middle: at(work), high: at(work * step.slower) }
}

fn plan(job: &Job, offer: &Offer, estimate: Estimate) -> Plan {
    let Estimate { share, memory, time, mut assumptions, .. } = estimate;
    let memory = memory.map(|memory| memory.first);
    let cost = cost(offer.rate, time);
    let reserve = match (job.budget, cost, job.deadline) {
        (Some(budget), _, _) => budget.max,
        (None, Some(cost), _) => cost.high,
        (None, None, Some(deadline)) => price(offer.rate, deadline),
        (None, None, None) => {
            assumptions
                .push("nothing is set aside, because neither a budget nor a deadline bounds the cost".to_owned());
            Money::default()
        }
    };
    if let (Some(deadline), Some(time)) = (job.deadline, time)
        && deadline < time.low
    {
        assumptions.push(format!(
            "the deadline of {deadline} is shorter than the fastest run in ten ({}): the run will likely be stopped before its end",
            time.low
        ));
    }
    if let (Some(budget), Some(cost)) = (job.budget, cost)
        && budget.max < cost.low
    {
        assumptions.push(format!(
            "the budget of {} is less than the cheapest run in ten ({}): the run will likely be stopped before its end",
            budget.max, cost.low
        ));
    }
    Plan { offer: offer.clone(), share, memory: memory.map(Bytes), time, cost, reserve, assumptions }
}

/// What the time costs; nothing, however long it is, on a machine that costs nothing.
fn cost(rate: Rate, time: Option<Spread>) -> Option<CostSpread> {
    match time {
        Some(time) => Some(CostSpread {
            low: price(rate, time.low),
            middle: price(rate, time.middle),
            high: price(rate, time.high),
        }),
        None if rate == Rate::default() => {
            Some(CostSpread { low: Money::default(), middle: Money::default(), high: Money::default() })
        }
        None => None,
    }
}

fn price(rate: Rate, time: Duration) -> Money {
    rate.cost(Elapsed(time.micros()))
}
