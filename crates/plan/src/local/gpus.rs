//! What a job of our own trainer takes on the GPUs of a node that is there already: the models of time and memory with the
//! figures that were fitted to GPUs, as for machines of clouds.

use domain::gpu::Gpu;
use domain::plan::Spread;
use domain::rank::Sample;
use domain::train::Train;
use domain::{Bytes, Offer};

use super::machine::{self, NETWORK, OnMachine, RanksMemory, SEED};
use crate::estimate::{Device, FittedCoefficients};
use crate::search::workload::trained::{self, Trained};
use crate::search::{
    Constraints, Estimates, Infeasible, JobFacts, MarketIndex, ParallelConfig, ResolvedNetwork, Search, TrainingSpec,
    forecast,
};

/// The GPUs of each of the nodes that an offer means, on which our own trainer computes.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeGpus {
    /// Their kind.
    pub gpu: Gpu,
    /// How many each node has at least.
    pub count: u32,
}

/// Estimates a job on GPUs; `None` where they are not what its ranks compute on, or no figures say how: more ranks than GPUs, a
/// network that is not counted, a number format that they lack, data that the node's own memory does not hold.
pub(super) fn on_gpus(
    (train, nodes): (&Train, u32),
    resolved: &Trained,
    offer: &Offer,
    (gpus, facts): (&NodeGpus, &JobFacts),
) -> Option<OnMachine> {
    let network = resolved.network.as_ref()?;
    let ranks = train.processes.max(1);
    if ranks > gpus.count || facts.measured_step.is_some() || !holds_data(train, resolved.sample, offer, facts) {
        return None;
    }
    let coefficients = FittedCoefficients::embedded().ok()?;
    let mut assumptions = resolved.assumptions.clone();
    assumptions.push(used(ranks, gpus));
    let share = machine::share(train, (offer.node.cores.max(1), nodes), resolved.samples, &mut assumptions);
    let spec = TrainingSpec { division: trained::division(train, nodes), ..resolved.spec.clone() };
    let listing = machine::listing(offer, ranks);
    let network_of_node = (nodes > 1).then_some(NETWORK);
    let device = Device { gpu: gpus.gpu.clone(), nodes: 1, gpus_per_node: ranks, network: network_of_node };
    let market = MarketIndex::here(&listing, device);
    let mut search = Search::new(&spec, &market, Estimates::new(network, &coefficients));
    let config = search.config(0, nodes).clone();
    let (needed, fits) = match &config {
        Ok(config) => (config.needed, true),
        Err(Infeasible::Memory { least }) => (*least, false),
        Err(Infeasible::Format | Infeasible::Batch | Infeasible::Layout) => return None,
    };
    let of_gpu = Some(gpus.gpu.memory);
    let memory =
        RanksMemory { first: needed as u64, all: (needed * f64::from(ranks)) as u64, preloaded: 0, fits, of_gpu };
    let time = match (resolved.samples, &config) {
        (Some(samples), Ok(config)) => {
            assumptions.push(format!(
                "{} steps over {} training samples, {} samples evaluated",
                spec.length.steps, samples[0], spec.length.evaluated,
            ));
            time(&mut search, (config, network), nodes, &coefficients)
        }
        (Some(_), Err(_)) => None,
        (None, _) => {
            assumptions.push(machine::UNCOUNTED.to_owned());
            None
        }
    };
    machine::note_network(nodes, &mut assumptions);
    machine::warn(train, &share, &mut assumptions);
    let fitting = match fits {
        true => None,
        false => machine::fitting(&spec, &market, Estimates::new(network, &coefficients)),
    };
    let checkpoint = Some(spec.checkpoints.state.0);
    Some(OnMachine { share: Some(share), memory: Some(memory), checkpoint, time, fitting, assumptions })
}

/// The time of the run, with the band of estimates on such GPUs.
fn time(
    search: &mut Search<'_, Estimates<'_>>,
    (config, network): (&ParallelConfig, &ResolvedNetwork),
    nodes: u32,
    coefficients: &FittedCoefficients,
) -> Option<Spread> {
    let constraints = Constraints { nodes: vec![nodes], ..Constraints::default() };
    let answer = search.answer(&constraints);
    let candidate = answer.candidates.first()?;
    let device = Device { nodes, ..search.market.hardware[0].device.clone() };
    let seconds = network.step(&config.setup(search.spec, &device), coefficients).seconds;
    let middle = seconds.middle.max(f64::MIN_POSITIVE);
    let band = (seconds.low / middle, seconds.high / middle);
    Some(forecast(search, &constraints, candidate, band, SEED).time)
}

/// Whether the node's memory holds the data that ranks keep in it.
fn holds_data(train: &Train, sample: Option<Sample>, offer: &Offer, facts: &JobFacts) -> bool {
    let (decoded, preloaded) = sample.map_or((0, 0), |sample| machine::data(train, sample, facts));
    let all = Bytes(decoded.saturating_add(preloaded).saturating_mul(u64::from(train.processes.max(1))));
    all <= offer.node.memory
}

fn used(ranks: u32, gpus: &NodeGpus) -> String {
    let NodeGpus { gpu, count } = gpus;
    let name = &gpu.name;
    match ranks == *count {
        true => format!("computed on {ranks} × {name}, as found when the node was looked at"),
        false => format!(
            "computed on {ranks} of {count} × {name}, as found when the node was looked at; `processes: {count}` uses all"
        ),
    }
}

#[cfg(test)]
mod tests {
    use domain::{Job, Plan};

    use super::super::tests::machine;
    use super::super::{NoFeasibleOffer, plans, plans_on_gpus};
    use super::*;

    const NODE: &str = "8 cores, 256 GB, 500 GB free, $1/h";

    fn a100(count: u32) -> NodeGpus {
        NodeGpus { gpu: crate::estimate::tests::a100(), count }
    }

    fn job(batch: u32, more: &str) -> Job {
        let yaml = format!(
            "train: {{model: resnet50, data: {{path: photos, size: 224}}, epochs: 3, batch: {batch}, threads: 1{more}}}\n"
        );
        Job::parse(&yaml, "job.yaml").unwrap_or_else(|problems| panic!("{problems}")).job
    }

    fn facts() -> JobFacts {
        JobFacts { samples: Some([9000, 1000, 2000]), classes: Some(10), ..JobFacts::default() }
    }

    fn planned(job: &Job, gpus: Option<&NodeGpus>) -> Plan {
        plans_on_gpus(job, &[machine(NODE)], &facts(), gpus).unwrap().remove(0)
    }

    fn says(plan: &Plan, words: &str) -> bool {
        plan.assumptions.iter().any(|sentence| sentence.contains(words))
    }

    #[test]
    fn a_node_with_gpus_is_planned_with_their_speed() {
        let job = job(128, "");
        let (on_cpu, on_gpu) = (planned(&job, None), planned(&job, Some(&a100(1))));
        assert_eq!(plans(&job, &[machine(NODE)], &facts()).unwrap()[0], on_cpu);
        let seconds = |plan: &Plan| plan.time.unwrap().middle.as_secs_f64();
        assert!(10.0 * seconds(&on_gpu) < seconds(&on_cpu), "{} of {}", seconds(&on_gpu), seconds(&on_cpu));
        assert!(on_gpu.cost.unwrap().middle < on_cpu.cost.unwrap().middle);
        assert!(on_gpu.memory.unwrap() < Bytes(79 << 30));
        assert!(says(&on_gpu, "computed on 1 × A100-SXM4-80GB") && !says(&on_gpu, "GFLOP/s"));
        assert_eq!(on_gpu.share, on_cpu.share);
        // Only so many are used as there are ranks.
        let one_of_eight = planned(&job, Some(&a100(8)));
        assert!(says(&one_of_eight, "1 of 8 × A100-SXM4-80GB") && says(&one_of_eight, "`processes: 8` uses all"));
    }

    #[test]
    fn what_gpus_do_not_hold_is_refused_with_their_memory() {
        let refused = plans_on_gpus(&job(8192, ""), &[machine(NODE)], &facts(), Some(&a100(1)));
        let NoFeasibleOffer { reasons } = refused.unwrap_err();
        let [reason] = &reasons[..] else { panic!("{reasons:?}") };
        assert!(reason.message.contains("each GPU of `this machine` has 85.9 GB of memory"), "{}", reason.message);
        assert!(reason.hint.as_deref().unwrap_or_default().contains("`accumulate: "), "{:?}", reason.hint);
    }

    #[test]
    fn more_ranks_than_gpus_and_measured_steps_are_planned_as_before() {
        let two = job(128, ", processes: 2");
        assert_eq!(planned(&two, Some(&a100(1))), planned(&two, None));
        assert!(says(&planned(&two, Some(&a100(2))), "computed on 2 × A100-SXM4-80GB"));
        let measured = JobFacts { measured_step: Some(domain::Duration::from_secs(1)), ..facts() };
        let on = |gpus: Option<&NodeGpus>| plans_on_gpus(&two, &[machine(NODE)], &measured, gpus).unwrap();
        assert_eq!(on(Some(&a100(8))), on(None));
    }
}
