//! The volumes of machines: what the training needs of them, what a job states, and what they cost.

use domain::job::Needs;
use domain::tariff::Service;
use domain::volume::{DiskTier, Volume, VolumeSpeed};

use super::super::volume::{SamplesIn, VolumeChoice, disk_rate};
use super::cases::spot_listing;
use super::*;
use crate::spot::OutagePolicy;

const GIB: u64 = 1 << 30;

/// Photographs of 110 kB, so many of them per second, and 1.2 GB of state each half hour.
fn training(samples: f64) -> (TrainingSpec, RunTimeline) {
    let mut spec = spec(256, 1_000, None, 0, false);
    spec.length.evaluated = 0;
    spec.data.sample = 110e3;
    (spec, RunTimeline { work: 256_000.0 / samples, interval: 1_800.0, ..RunTimeline::default() })
}

/// A machine with so many GiB on disks inside it, and of memory.
fn machine(disk: Option<u64>, memory: u64) -> Listing {
    let memory = Some(Bytes(memory * GIB));
    Listing { disk: disk.map(|gib| Bytes(gib * GIB)), memory, ..spot_listing() }
}

fn chosen(of: &(TrainingSpec, RunTimeline), nodes: u32, listing: Listing, needs: Needs) -> Option<VolumeChoice> {
    let (listings, gpu) = ([listing], gpu(3));
    let market = MarketIndex::of(&listings, |_| Some(&gpu), |_| None, |_, _| Availability::Known, &[]);
    let priced = PricedListing { tariffs: prices(), ..market.listings[0] };
    VolumeChoice::of(&of.0, &priced, nodes, &of.1, &needs)
}

#[track_caller]
fn check(of: &(TrainingSpec, RunTimeline), nodes: u32, listing: Listing, needs: Needs, expected: &str) {
    let choice = chosen(of, nodes, listing, needs).unwrap();
    let short = if choice.is_short() { ", short" } else { "" };
    assert_eq!(format!("{} GiB of {}{short}", choice.gib, choice.volume), expected, "{choice:?}");
}

/// 140 GB of data and 7.2 GB of checkpoints are 138 GiB, and the system has 40.
const BASE: &str = "178 GiB of gp3 with 3000 IOPS and 125 MiB/s";

#[test]
fn a_volume_is_as_fast_as_samples_are_read() {
    let plain = || machine(None, 64);
    check(&training(100.0), 1, plain(), Needs::default(), BASE);
    // 4,000 × 110 kB are 420 MiB/s; with the checkpoint and a tenth more 463 MiB/s, and 4,406 IOPS.
    check(&training(4_000.0), 1, plain(), Needs::default(), "178 GiB of gp3 with 4500 IOPS and 475 MiB/s");
    // Four machines read a quarter each.
    check(&training(4_000.0), 4, plain(), Needs::default(), BASE);
    check(&training(20_000.0), 1, plain(), Needs::default(), "178 GiB of io2 with 22500 IOPS and 4000 MiB/s");
    let most = "178 GiB of io2 with 88500 IOPS and 4000 MiB/s, short";
    check(&training(80_000.0), 1, plain(), Needs::default(), most);
}

#[test]
fn io2_is_chosen_only_where_it_has_a_price_and_reaches_its_speed() {
    let of = training(20_000.0);
    let gp3 = "178 GiB of gp3 with 16000 IOPS and 1000 MiB/s, short";
    let old = Listing { instance_type: "p3.16xlarge".to_owned(), ..machine(None, 64) };
    check(&of, 1, old, Needs::default(), gp3);
    let newer = Listing { instance_type: "p3dn.24xlarge".to_owned(), ..machine(None, 64) };
    check(&of, 1, newer, Needs::default(), "178 GiB of io2 with 22500 IOPS and 4000 MiB/s");
    let (listings, gpu) = ([machine(None, 64)], gpu(3));
    let market = MarketIndex::of(&listings, |_| Some(&gpu), |_| None, |_, _| Availability::Known, &[]);
    let without = VolumeChoice::of(&of.0, &market.listings[0], 1, &of.1, &Needs::default()).unwrap();
    assert_eq!(without.volume, Volume::gp3(16_000, 1_000));
}

#[test]
fn texts_are_read_in_their_order_and_large_samples_in_pieces() {
    let mut texts = training(4_000.0);
    texts.0.data.disk = Service::PlainDisk;
    check(&texts, 1, machine(None, 64), Needs::default(), "178 GiB of gp3 with 3000 IOPS and 475 MiB/s");
    // Each of 300 kB takes two reads.
    let mut large = training(1_500.0);
    large.0.data.sample = 300e3;
    check(&large, 1, machine(None, 64), Needs::default(), "178 GiB of gp3 with 3500 IOPS and 475 MiB/s");
}

#[test]
fn data_in_memory_or_on_disks_inside_is_not_read_from_the_volume() {
    let of = training(4_000.0);
    // 140 GB are 130.4 GiB: twice as much memory holds them, and they lie on the volume all the same.
    check(&of, 1, machine(None, 261), Needs::default(), BASE);
    check(&of, 1, machine(None, 260), Needs::default(), "178 GiB of gp3 with 4500 IOPS and 475 MiB/s");
    let inside = |gib: u64| chosen(&of, 1, machine(Some(gib), 64), Needs::default()).unwrap();
    let found = inside(141);
    assert_eq!((found.volume, found.gib, found.demand.samples), (Volume::BASE, 140, SamplesIn::Inside));
    // Disks that may hold less than is free on the volume are not its cache.
    let found = inside(140);
    assert_eq!((found.volume.iops, found.gib, found.demand.samples), (4_500, 178, SamplesIn::Volume));
    // Nor are those that do not hold the data.
    let mut large = of.clone();
    large.0.data.bytes = Bytes(200 * GIB);
    let found = chosen(&large, 1, machine(Some(199), 64), Needs::default()).unwrap();
    assert_eq!((found.gib, found.demand.samples), (247, SamplesIn::Volume));
}

#[test]
fn a_checkpoint_is_written_in_half_of_the_time_between_two() {
    let mut of = training(100.0);
    of.0.checkpoints.state = Bytes(100_000_000_000);
    // 100 GB in 900 s are 106 MiB/s; with what is read and a tenth more 128.
    check(&of, 1, machine(None, 64), Needs::default(), "730 GiB of gp3 with 3000 IOPS and 150 MiB/s");
    check(&of, 2, machine(None, 64), Needs::default(), "730 GiB of gp3 with 3000 IOPS and 125 MiB/s");
    // Where disks inside are the cache, the volume stays at its base, and is short of what checkpoints need.
    for (interval, is_short) in [(1_800.0, false), (300.0, true)] {
        of.1.interval = interval;
        let found = chosen(&of, 1, machine(Some(2_000), 64), Needs::default()).unwrap();
        assert_eq!((found.volume, found.is_short()), (Volume::BASE, is_short), "{interval}");
        assert_eq!(found.seconds_to_write(100e9).round(), 763.0);
    }
}

#[test]
fn what_a_job_states_is_rented() {
    let of = training(4_000.0);
    let stated = |tier, disk| Needs { speed: VolumeSpeed { tier, ..VolumeSpeed::default() }, disk, ..Needs::default() };
    let plain = || machine(None, 64);
    let short = format!("{BASE}, short");
    check(&of, 1, plain(), stated(Some(DiskTier::Low), None), &short);
    let inside = || machine(Some(2_000), 64);
    check(&of, 1, inside(), stated(Some(DiskTier::High), None), "140 GiB of gp3 with 7000 IOPS and 437 MiB/s");
    let sized = |gib: u64| stated(None, Some(Bytes(gib * GIB)));
    check(&of, 1, plain(), sized(1), "140 GiB of gp3 with 4500 IOPS and 475 MiB/s");
    check(&of, 1, plain(), sized(500), "540 GiB of gp3 with 4500 IOPS and 475 MiB/s");
    let other = Listing { cloud: Cloud::Gcp, ..plain() };
    assert_eq!(chosen(&of, 1, other, stated(Some(DiskTier::High), None)), None);
}

/// 28 TB fit on no volume; a machine whose disks inside hold them needs none for them.
#[test]
fn a_machine_that_no_volume_is_large_enough_for_is_refused() {
    let (mut spec, _) = training(100.0);
    let mut answer = |data: u64, inside: Option<u64>, stated: Option<u64>| {
        spec.data.bytes = Bytes(data * GIB);
        let (listings, gpu) = ([machine(inside, 64)], gpu(3));
        let market = MarketIndex::of(&listings, |_| Some(&gpu), |_| None, |_, _| Availability::Known, &[]);
        let needs = Needs { disk: stated.map(|gib| Bytes(gib * GIB)), ..Needs::default() };
        let admission = Admission { needs, spot: Spot::Never, ..Admission::default() };
        let constraints = Constraints { admission, nodes: vec![1], ..Constraints::default() };
        let mut search = Search::new(&spec, &market, Rough { weights: 1e8, kept: 1e7, again: 1.2 });
        let answer = search.answer(&constraints);
        let gib = answer.missed.get(&Reason::Disk).and_then(|missed| missed.nearest.volume).map(|volume| volume.gib);
        (answer.candidates.len(), answer.ruled_out.get(&Reason::Disk).copied(), gib)
    };
    // 7.2 GB of checkpoints are 6.7 GiB, and the system has 40.
    assert_eq!(answer(16_337, None, None), (1, None, None));
    assert_eq!(answer(16_338, None, None), (0, Some(1), Some(16_385)));
    assert_eq!(answer(26_077, None, None), (0, Some(1), Some(26_124)));
    assert_eq!(answer(26_077, Some(30_000), None), (1, None, None));
    // A job that reads its data over the network states what its disk is for.
    assert_eq!(answer(26_077, None, Some(500)), (1, None, None));
    assert_eq!(answer(100, None, Some(16_345)), (0, Some(1), Some(16_385)));
}

fn prices() -> Tariffs {
    let price = |micros| Some(Money::from_micros(micros));
    Tariffs {
        ssd: price(80_000),
        ssd_iops: price(5_000),
        ssd_throughput: price(40_000),
        io2: price(125_000),
        io2_iops: price(65_000),
        ..Tariffs::default()
    }
}

#[test]
fn all_of_a_volume_is_paid_for() {
    let paid = |samples: f64| {
        let choice = chosen(&training(samples), 1, machine(None, 64), Needs::default()).unwrap();
        let services: Vec<Service> = choice.services().collect();
        (choice.rate(&prices()).to_string(), services)
    };
    // 178 GiB at $0.08 are $14.24 a month of 730 hours.
    assert_eq!(paid(100.0), ("$0.019507/h".to_owned(), vec![Service::SsdDisk]));
    // 1,500 IOPS at $0.005 and 350 MiB/s at $0.04 are $21.50 more.
    let parts = vec![Service::SsdDisk, Service::SsdIops, Service::SsdThroughput];
    assert_eq!(paid(4_000.0), ("$0.048959/h".to_owned(), parts));
    // 178 GiB at $0.125 and 22,500 IOPS at $0.065 are $1,484.75.
    assert_eq!(paid(20_000.0), ("$2.033905/h".to_owned(), vec![Service::Io2Disk, Service::Io2Iops]));
}

/// Clouds that provision no speed rent a disk by its size, and its price is the plan's as well.
#[test]
fn disks_of_other_clouds_are_paid_for_as_they_are_rented() {
    let (spec, _) = training(100.0);
    let rate = |cloud: Cloud, inside: Option<u64>, disk: Option<u64>| {
        let (listings, gpu) = ([Listing { cloud, ..machine(inside, 64) }], gpu(3));
        let market = MarketIndex::of(&listings, |_| Some(&gpu), |_| None, |_, _| Availability::Known, &[]);
        let priced = PricedListing { tariffs: prices(), ..market.listings[0].clone() };
        let needs = Needs { disk: disk.map(|gib| Bytes(gib * GIB)), ..Needs::default() };
        disk_rate(&spec, &priced, &needs, None).map(Rate::micros_per_hour)
    };
    // 100 GiB for the work and 40 for the system, at $0.08 a month.
    assert_eq!(rate(Cloud::Gcp, Some(1_000), None), Some(15_343));
    // 140 GB of data are 131 GiB.
    assert_eq!(rate(Cloud::Gcp, None, None), Some(18_740));
    assert_eq!(rate(Cloud::Gcp, None, Some(500)), Some(59_179));
    assert_eq!(rate(Cloud::Azure, None, None), Some(28_055));
    assert_eq!(rate(Cloud::Lambda, None, None), None);
}

/// A machine is admitted by what is paid for it by the hour, with its disk.
#[test]
fn the_maximum_price_is_for_the_machine_with_its_disk() {
    let (spec, _) = training(100.0);
    let (listings, gpu) = ([machine(None, 64)], gpu(3));
    let mut market = MarketIndex::of(&listings, |_| Some(&gpu), |_| None, |_, _| Availability::Known, &[]);
    market.listings[0].tariffs = prices();
    let answer = |most: i64, on_demand: u32| {
        let max_price = Some(Rate::from_micros_per_hour(most));
        let needs =
            Needs { speed: VolumeSpeed { tier: Some(DiskTier::Low), ..VolumeSpeed::default() }, ..Needs::default() };
        let admission = Admission { max_price, needs, on_demand, spot: Spot::Only, ..Admission::default() };
        let constraints = Constraints { admission, nodes: vec![2], ..Constraints::default() };
        let mut search = Search::new(&spec, &market, Rough { weights: 1e8, kept: 1e7, again: 1.2 });
        search.answer(&constraints)
    };
    // $3.50 an hour, and $0.019507 for 178 GiB.
    assert_eq!(answer(3_519_507, 0).candidates.len(), 1);
    let refused = answer(3_519_506, 0);
    assert_eq!((refused.candidates.len(), refused.ruled_out.get(&Reason::MaxPrice)), (0, Some(&1)));
    // On demand it costs $29.98.
    assert_eq!(answer(29_999_507, 1).candidates.len(), 1);
    assert_eq!(answer(29_999_506, 1).candidates.len(), 0);
}

#[test]
fn a_run_falls_back_only_to_machines_whose_price_with_the_disk_is_admitted() {
    let (listings, gpu) = ([machine(None, 64)], gpu(3));
    let market = MarketIndex::of(&listings, |_| Some(&gpu), |_| None, |_, _| Availability::Known, &[]);
    let falls_back = |most: i64| {
        let max_price = Some(Rate::from_micros_per_hour(most));
        let admission = Admission { max_price, spot: Spot::Auto, ..Admission::default() };
        let policy = timeline::policy(&admission, &market.listings[0], Some(Rate::from_micros_per_hour(19_507)));
        matches!(policy, OutagePolicy::FallBack { .. })
    };
    // On demand it costs $29.98.
    assert!(falls_back(29_999_507));
    assert!(!falls_back(29_999_506));
}

/// Two machines for a month, of which one is on demand, are paid for two volumes of a month, whatever the disks inside hold.
#[test]
fn the_cost_of_a_candidate_has_its_whole_disks() {
    let (spec, mut timeline) = training(4_000.0);
    timeline.wall = 730.0 * 3600.0;
    let (listings, gpu) = ([machine(Some(2_000), 64)], gpu(3));
    let market = MarketIndex::of(&listings, |_| Some(&gpu), |_| None, |_, _| Availability::Known, &[]);
    let priced = PricedListing { tariffs: prices(), ..market.listings[0].clone() };
    let storage = |tier| {
        let needs = Needs { speed: VolumeSpeed { tier: Some(tier), ..VolumeSpeed::default() }, ..Needs::default() };
        let disk = VolumeChoice::of(&spec, &priced, 2, &timeline, &needs).map(|volume| volume.rate(&priced.tariffs));
        let (terms, leaving) = (PurchaseOption::Spot, Egress::default());
        timeline::cost(&spec, &priced, terms, (2, 1), &timeline, &leaving, disk).storage.micros()
    };
    // Twice 140 GiB at $0.08, by hours rounded up: $0.015343.
    assert_eq!(storage(DiskTier::Low), 2 * 730 * 15_343);
    // With 4,000 IOPS at $0.005 and 312 MiB/s at $0.04.
    assert_eq!(storage(DiskTier::High), 2 * 730 * 59_836);
}

/// Steps wait for a volume that is too slow for what they read, and the run takes, costs and keeps its limits accordingly.
#[test]
fn steps_take_as_long_as_the_volume_takes_to_read_them() {
    let slowdown = |of: &(TrainingSpec, RunTimeline), listing: Listing, tier: Option<DiskTier>| {
        let needs = Needs { speed: VolumeSpeed { tier, ..VolumeSpeed::default() }, ..Needs::default() };
        (chosen(of, 1, listing, needs).unwrap().slowdown() * 1_000.0).round()
    };
    let (of, plain) = (training(4_000.0), || machine(None, 64));
    // 440 MB/s and 1.2 GB in 1,800 s through 131.1 MB/s are 3.362.
    assert_eq!(slowdown(&of, plain(), Some(DiskTier::Low)), 3_362.0);
    assert_eq!(slowdown(&of, plain(), None), 1_000.0);
    // 80,000 reads a second of 3,000, where samples are small.
    let mut small = training(80_000.0);
    small.0.data.sample = 1e3;
    small.0.checkpoints.state = Bytes(0);
    assert_eq!(slowdown(&small, plain(), Some(DiskTier::Low)), 26_667.0);
    // Checkpoints alone do not slow steps: they are further apart.
    let mut saving = training(100.0);
    saving.0.checkpoints.state = Bytes(100_000_000_000);
    saving.1.interval = 300.0;
    assert_eq!(slowdown(&saving, machine(Some(2_000), 64), None), 1_000.0);
}

/// 100 GB through 131.1 MB/s take 763 s: a checkpoint every 300 s would begin before the one before is written.
#[test]
fn checkpoints_are_as_far_apart_as_the_volume_takes_to_write_them() {
    let (mut spec, _) = training(100.0);
    (spec.checkpoints.every, spec.checkpoints.state) = (Some(300.0), Bytes(100_000_000_000));
    let interval = |listing: Listing, nodes: u32| {
        let (listings, gpu) = ([listing], gpu(3));
        let market = MarketIndex::of(&listings, |_| Some(&gpu), |_| None, |_, _| Availability::Known, &[]);
        let priced = &market.listings[0];
        let profile = RunProfile { work: 2_560.0, ..RunProfile::of(&spec, priced, &gpu, nodes, 2.56, 0.0) };
        let (terms, steady) = (PurchaseOption::OnDemand, SpotAvailability::STEADY);
        let (timeline, ..) = volume::on_disks(&spec, priced, (terms, nodes), &profile, &Admission::default(), steady);
        timeline.interval.round()
    };
    assert_eq!(interval(machine(Some(2_000), 64), 1), 764.0);
    // Four machines write a quarter each.
    assert_eq!(interval(machine(Some(2_000), 64), 4), 300.0);
    // Where the volume is not the base, it is as fast as they need.
    assert_eq!(interval(machine(None, 64), 1), 300.0);
}

#[test]
fn a_run_on_a_slow_volume_takes_longer() {
    let (mut spec, _) = training(4_000.0);
    spec.checkpoints.every = Some(1_800.0);
    let (listings, gpu) = ([machine(None, 64)], gpu(3));
    let market = MarketIndex::of(&listings, |_| Some(&gpu), |_| None, |_, _| Availability::Known, &[]);
    let priced = &market.listings[0];
    // 256,000 samples in 64 s.
    let mut profile = RunProfile::of(&spec, priced, &gpu, 1, 0.064, 0.0);
    profile.work = 64.0;
    let timeline = |tier: Option<DiskTier>| {
        let needs = Needs { speed: VolumeSpeed { tier, ..VolumeSpeed::default() }, ..Needs::default() };
        let (admission, steady) = (Admission { needs, ..Admission::default() }, SpotAvailability::STEADY);
        volume::on_disks(&spec, priced, (PurchaseOption::OnDemand, 1), &profile, &admission, steady).0
    };
    let (fast, slow) = (timeline(None), timeline(Some(DiskTier::Low)));
    assert_eq!((fast.work, (slow.work * 10.0).round()), (64.0, 2_152.0));
    assert_eq!((slow.wall - fast.wall).round(), (slow.work - fast.work).round());
}
