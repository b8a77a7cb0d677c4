//! The front of the search against brute force, over drawn markets, tasks and limits.

mod calibration;
mod cases;
mod constraints;
mod filters;
mod simplest;
mod volumes;

use domain::gpu::{Gpu, GpuArchitecture, GpuMemoryKind, GpuTraits, Link, Rates};
use domain::listing::{Cloud, Fabric, Gpus as ListedGpus, Listing, Price};
use domain::wants::Spot;
use domain::{Bytes, Elapsed, Money, Rate};
use proptest::prelude::*;

use super::workload::{CheckpointFigures, DataDemand, NetworkFigures, ParallelChoice, ProgramOptions, RunLength};
use super::*;
use crate::estimate::{ActivationCheckpointing, Layout, NumericFormat, OptimizerKind, Setup, Zero};

/// Estimates that are simple, and awkward enough: nothing is smooth or monotone but what the search relies on, that
/// computing again takes longer and that fewer samples take less memory.
#[derive(Clone, Copy)]
struct Rough {
    weights: f64,
    kept: f64,
    again: f64,
}

impl Estimator for Rough {
    fn needed(&mut self, setup: &Setup) -> RequiredMemory {
        let ranks = f64::from(setup.parallel.tensor * setup.parallel.pipeline);
        let data = f64::from(setup.parallel.data);
        let shards = match setup.parallel.zero {
            Zero::None => 16.0,
            Zero::Optimizer => 8.0 + 8.0 / data,
            Zero::Gradients => 4.0 + 12.0 / data,
            Zero::Parameters => 16.0 / data,
        };
        let share = match setup.recompute {
            ActivationCheckpointing::None => 1.0,
            ActivationCheckpointing::Selective => 0.6,
            ActivationCheckpointing::Full | ActivationCheckpointing::Every(_) => 0.1,
        };
        let middle = self.weights * shards / ranks + self.kept * share * setup.micro_batch as f64 / ranks;
        RequiredMemory { low: 0.8 * middle, middle, high: 1.2 * middle }
    }

    fn seconds(&mut self, setup: &Setup) -> f64 {
        let again = match setup.recompute {
            ActivationCheckpointing::None => 1.0,
            ActivationCheckpointing::Selective => 1.05,
            ActivationCheckpointing::Full | ActivationCheckpointing::Every(_) => self.again,
        };
        let gpus = f64::from(setup.device.nodes * setup.device.gpus_per_node);
        let odd = 1.0 + 0.3 * ((setup.micro_batch * 7 + setup.accumulate * 3) % 5) as f64;
        let exchanged = f64::from(setup.parallel.data.ilog2() * (1 + setup.parallel.zero as u32)) * 0.01;
        let divided = 1.0 + 0.05 * f64::from(setup.parallel.tensor + setup.parallel.pipeline);
        let samples = setup.micro_batch as f64 * setup.accumulate as f64 * f64::from(setup.parallel.data);
        samples * again * odd * divided * 1e13 / (setup.device.gpu.rates.fp32 * gpus)
            + exchanged
            + 0.001 * setup.accumulate as f64
    }
}

fn gpu(kind: u8) -> Gpu {
    let speed = [8e12, 15e12, 19e12, 60e12][usize::from(kind % 4)];
    let memory = Bytes([16u64, 32, 40, 80][usize::from(kind % 4)] << 30);
    Gpu {
        name: format!("G{}", kind % 4),
        architecture: GpuArchitecture::Ampere,
        memory,
        usable: Bytes(memory.0 / 10 * 9),
        bandwidth: 1e12,
        rates: Rates { fp32: speed, tf32: None, fp16: Some(4.0 * speed), bf16: None, fp8: None },
        link: Link::Pcie,
        pcie: 4,
        multiprocessors: 80,
        power: 300.0,
        source: "drawn".into(),
        traits: GpuTraits { memory_kind: GpuMemoryKind::Graphics, ..GpuTraits::default() },
    }
}

prop_compose! {
    fn listing()(
        kind in 0u8..4,
        count in prop::sample::select(vec![1u32, 2, 4, 8]),
        region in 0u8..3,
        price in prop::option::weighted(0.9, 1_000i64..40_000_000),
        (spot, is_derived) in (prop::option::of(1i64..100), prop::bool::weighted(0.3)),
        dedicated in prop::option::weighted(0.2, 100i64..200),
        (cores, memory) in (prop::option::of(4u32..96), prop::option::of(16u64..512)),
        network in prop::option::of(prop::sample::select(vec![10e9, 100e9])),
        band in prop::sample::select(vec![None, Some((0u8, 5u8)), Some((20, 100))]),
        machines in prop::option::weighted(0.2, 1u32..16),
    ) -> Listing {
        let priced = |micros: i64| Price {
            rate: Rate::from_micros_per_hour(micros),
            dated: "2026-01-01".into(),
            source: "drawn".into(),
            derived: None,
        };
        Listing {
            cloud: [Cloud::Aws, Cloud::Gcp, Cloud::Azure][usize::from(region)].clone(),
            region: format!("region-{region}"),
            instance_type: format!("{count}x{kind}"),
            gpus: ListedGpus { name: Some(gpu(kind).name), spelled: String::new(), count, slice: 1, memory: None },
            cores,
            memory: memory.map(|gibibytes| Bytes(gibibytes << 30)),
            disk: None,
            network,
            fabric: Fabric::Ethernet,
            link: None,
            on_demand: price.map(priced),
            spot: price.zip(spot).map(|(price, percent)| Price {
                derived: is_derived.then(|| "drawn".to_owned()),
                ..priced(price * percent / 100)
            }),
            reserved_1y: None,
            reserved_3y: None,
            dedicated: price.zip(dedicated).map(|(price, percent)| priced(price * percent / 100)),
            interrupted: band,
            machines,
        }
    }
}

fn spec(batch: u64, steps: u64, per_core: Option<f64>, heads: u32, recompute: bool) -> TrainingSpec {
    TrainingSpec {
        length: RunLength { batch, steps, evaluated: 1000 },
        data: DataDemand {
            per_core,
            bytes: Bytes(140_000_000_000),
            sample: 0.0,
            disk: domain::tariff::Service::SsdDisk,
        },
        checkpoints: CheckpointFigures {
            state: Bytes(1_200_000_000),
            weights: Bytes(400_000_000),
            keep: 3,
            every: None,
        },
        network: NetworkFigures {
            multiply_adds: 4e9,
            blocks: 24,
            heads,
            key_heads: heads,
            ..NetworkFigures::default()
        },
        program: ProgramOptions {
            precision: NumericFormat::Auto,
            optimizer: OptimizerKind::Adam,
            layout: Layout::ChannelsLast,
            flash_attention: true,
            compiled: false,
            recompute,
            averages: false,
        },
        division: ParallelChoice::Search,
    }
}

fn tariffs() -> Vec<domain::tariff::Tariff> {
    use domain::tariff::{Service, Tariff};
    let tariff = |cloud: Cloud, service, micros| Tariff {
        cloud,
        region: None,
        service,
        price: Money::from_micros(micros),
        dated: "2026".into(),
        source: "drawn".into(),
    };
    vec![
        tariff(Cloud::Aws, Service::SsdDisk, 80_000),
        tariff(Cloud::Aws, Service::Egress, 90_000),
        tariff(Cloud::Gcp, Service::SsdDisk, 170_000),
        tariff(Cloud::Gcp, Service::Objects, 20_000),
    ]
}

/// Every configuration that is worth using and surely fits, else every one that may, each micro-batch tried in turn.
fn every_config(spec: &TrainingSpec, device: &crate::estimate::Device, estimator: &mut Rough) -> Vec<ParallelConfig> {
    let sure = every_config_of(MemoryFit::Fits, spec, device, estimator);
    if sure.is_empty() { every_config_of(MemoryFit::Tight, spec, device, estimator) } else { sure }
}

fn every_config_of(
    verdict: MemoryFit,
    spec: &TrainingSpec,
    device: &crate::estimate::Device,
    estimator: &mut Rough,
) -> Vec<ParallelConfig> {
    let mut found = Vec::new();
    let Some(mut setup) = parallel::start(spec, device) else { return found };
    for parallel in parallel::layouts::layouts(spec, device.nodes, device.gpus_per_node) {
        setup.parallel = parallel;
        let data = u64::from(parallel.data);
        for level in parallel::levels(spec) {
            setup.recompute = *level;
            let share = spec.length.batch / data;
            if !spec.length.batch.is_multiple_of(data) || share == 0 {
                continue;
            }
            let cuts = (0..64).map(|power| 1u64 << power).take_while(|cut| share.is_multiple_of(*cut)).chain([share]);
            for cut in cuts {
                (setup.accumulate, setup.micro_batch) = (cut, share / cut);
                let needed = estimator.needed(&setup);
                let has = device.gpu.usable.0 as f64;
                if needed.high <= has || (verdict == MemoryFit::Tight && needed.low <= has) {
                    found.push(ParallelConfig {
                        precision: setup.precision,
                        parallel,
                        micro_batch: setup.micro_batch,
                        accumulate: cut,
                        recompute: *level,
                        step: estimator.seconds(&setup),
                        needed: needed.middle,
                        needed_low: needed.low,
                        needed_high: needed.high,
                        verdict,
                        start: crate::estimate::limits::start_up(&setup, 0.0, 1.0),
                        simpler: Vec::new(),
                    });
                    break;
                }
            }
        }
        if found.iter().any(parallel::is_whole) {
            break;
        }
    }
    found
}

/// Points of every offer on every number of machines in every configuration that fits, one by one.
fn by_force(spec: &TrainingSpec, market: &MarketIndex, estimator: Rough, constraints: &Constraints) -> Vec<(u64, i64)> {
    let mut points = Vec::new();
    for (index, terms) in admit(market, &constraints.admission).offers {
        let priced = &market.listings[index];
        let exist = |nodes: &&u32| priced.listing.machines.is_none_or(|machines| **nodes <= machines);
        for nodes in constraints.nodes.iter().filter(exist) {
            let device = crate::estimate::Device { nodes: *nodes, ..market.hardware[priced.hardware].device.clone() };
            for config in every_config(spec, &device, &mut estimator.clone()) {
                let availability = constraints.availability_of(priced, *nodes);
                let profile = RunProfile::of(spec, priced, &device.gpu, *nodes, config.step, config.start);
                let (timeline, volume, disk) =
                    volume::on_disks(spec, priced, (terms, *nodes), &profile, &constraints.admission, availability);
                let candidate = Candidate {
                    listing: index,
                    terms,
                    availability: priced.availability(terms),
                    nodes: *nodes,
                    timeline,
                    cost: timeline::cost(
                        spec,
                        priced,
                        terms,
                        (*nodes, 0),
                        &timeline,
                        &constraints.leaving(priced),
                        disk,
                    ),
                    volume,
                    disk,
                    kilograms: None,
                    verdict: config.verdict,
                    simpler: None,
                };
                if constraints.misses(priced, &candidate).is_none() {
                    points.push(candidate.point());
                }
            }
        }
    }
    front(&points).into_iter().map(|index| points[index]).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn the_front_equals_brute_force(
        listings in prop::collection::vec(listing(), 1..40),
        batch in prop::sample::select(vec![64u64, 96, 256, 1024]),
        steps in 1u64..200_000,
        per_core in prop::option::of(10.0f64..500.0),
        heads in prop::sample::select(vec![0u32, 12, 16]),
        recompute in any::<bool>(),
        weights in 1e7f64..5e9,
        kept in 1e7f64..2e9,
        again in 1.05f64..1.4,
        budget in prop::option::of(1_000_000i64..1_000_000_000_000),
        hours in prop::option::of(1u64..5000),
        spot in prop::sample::select(vec![Spot::Auto, Spot::Only, Spot::Never]),
    ) {
        let gpus: Vec<Gpu> = (0..4).map(gpu).collect();
        let tariffs = tariffs();
        let market = MarketIndex::of(&listings, |name| gpus.iter().find(|gpu| gpu.name == name), |_| None, |_, _| Availability::Unknown, &tariffs);
        let spec = spec(batch, steps, per_core, heads, recompute);
        let rough = Rough { weights, kept, again };
        let constraints = Constraints {
            admission: Admission { spot, ..Admission::default() },
            nodes: NODES.to_vec(),
            budget: budget.map(Money::from_micros),
            deadline: hours.map(|hours| Elapsed(hours * 3_600_000_000)),
            data_at: Some((Cloud::Aws, Some("region-0".into()))),
            ..Constraints::default()
        };
        let mut search = Search::new(&spec, &market, rough);
        let answer = search.answer(&constraints);
        let found: Vec<(u64, i64)> = answer.front.iter().map(|index| answer.candidates[*index].point()).collect();
        prop_assert_eq!(&found, &by_force(&spec, &market, rough, &constraints));
        // Asked again, it answers the same without estimating anything.
        let estimated = search.estimated();
        let again = search.answer(&constraints);
        prop_assert_eq!(again.candidates, answer.candidates.clone());
        prop_assert_eq!(search.estimated(), estimated);
        // Estimated ahead, each by an estimator of its own, it answers the same.
        let mut prepared = Search::new(&spec, &market, rough);
        let ones = prepared.unestimated(&constraints).into_iter().flatten();
        prepared.learn(ones.map(|one| (one, ahead::estimate(&spec, &market, one, &mut { rough }))).collect());
        prop_assert_eq!(prepared.estimated(), estimated);
        prop_assert_eq!(prepared.answer(&constraints).candidates, answer.candidates.clone());
        prop_assert_eq!(prepared.estimated(), estimated);
        // Every offer is compared or ruled out, for one reason.
        let kept: std::collections::BTreeSet<(usize, PurchaseOption)> =
            answer.candidates.iter().map(|candidate| (candidate.listing, candidate.terms)).collect();
        prop_assert_eq!(kept.len() + answer.ruled_out.values().sum::<usize>(), answer.offers);
    }
}

#[test]
fn machines_that_a_region_does_not_have_are_not_planned_with() {
    let listing = |region: &str| Listing {
        cloud: Cloud::Gcp,
        region: region.into(),
        instance_type: "a2-megagpu-16g".into(),
        gpus: ListedGpus { name: Some("G0".into()), spelled: String::new(), count: 1, slice: 1, memory: None },
        cores: None,
        memory: None,
        disk: None,
        network: None,
        fabric: Fabric::Ethernet,
        link: None,
        on_demand: Some(Price {
            rate: Rate::from_micros_per_hour(1_000_000),
            dated: "2026-01-01".into(),
            source: "drawn".into(),
            derived: None,
        }),
        spot: None,
        reserved_1y: None,
        reserved_3y: None,
        dedicated: None,
        interrupted: None,
        machines: None,
    };
    let listings = [listing("there"), listing("not-there"), listing("nobody-says")];
    let availability = |listing: &Listing, _| match listing.region.as_str() {
        "there" => Availability::Known,
        "not-there" => Availability::Denied,
        _ => Availability::Unknown,
    };
    let gpu = gpu(0);
    let market = MarketIndex::of(&listings, |_| Some(&gpu), |_| None, availability, &[]);
    let admitted = admit(&market, &Admission::default());
    assert_eq!(admitted.offers, [(0, PurchaseOption::OnDemand), (2, PurchaseOption::OnDemand)]);
    assert_eq!(admitted.ruled_out, BTreeMap::from([(Reason::NotStocked, 1)]));
}
