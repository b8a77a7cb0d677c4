//! The volumes of machines: what the training needs of them, what a job states, and what they cost.

use domain::job::Needs;
use domain::tariff::Service;
use domain::volume::{DiskTier, Volume, VolumeSpeed};

use super::super::volume::{SamplesIn, VolumeChoice};
use super::cases::spot_listing;
use super::*;

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
    let mut huge = of.clone();
    huge.0.data.bytes = Bytes(100 << 40);
    assert_eq!(chosen(&huge, 1, plain(), Needs::default()).unwrap().gib, Volume::MOST_GIB, "no volume is larger");
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
fn what_is_provisioned_is_paid_for_beyond_the_base() {
    let paid = |samples: f64| {
        let choice = chosen(&training(samples), 1, machine(None, 64), Needs::default()).unwrap();
        let services: Vec<Service> = choice.services().collect();
        (choice.provisioned(&prices()).to_string(), services)
    };
    assert_eq!(paid(100.0), ("$0.00".to_owned(), Vec::new()));
    // 1,500 IOPS and 350 MiB/s.
    assert_eq!(paid(4_000.0), ("$21.50".to_owned(), vec![Service::SsdIops, Service::SsdThroughput]));
    // 22,500 IOPS, and 178 GiB at $0.045 more.
    assert_eq!(paid(20_000.0), ("$1470.51".to_owned(), vec![Service::Io2Disk, Service::Io2Iops]));
}

/// Two machines for a month, of which one is on demand, are paid for two volumes of a month.
#[test]
fn the_cost_of_a_candidate_has_what_is_provisioned() {
    let (spec, mut timeline) = training(4_000.0);
    timeline.wall = 730.0 * 3600.0;
    let (listings, gpu) = ([machine(None, 64)], gpu(3));
    let market = MarketIndex::of(&listings, |_| Some(&gpu), |_| None, |_, _| Availability::Known, &[]);
    let priced = PricedListing { tariffs: prices(), ..market.listings[0].clone() };
    let needs = Needs { disk: Some(Bytes(0)), ..Needs::default() };
    let stated = |speed| VolumeChoice::of(&spec, &priced, 2, &timeline, &Needs { speed, ..needs });
    let storage = |speed| {
        let provisioned = stated(speed).unwrap().provisioned(&priced.tariffs);
        let (terms, leaving) = (PurchaseOption::Spot, Egress::default());
        timeline::cost(&spec, &priced, terms, (2, 1), &timeline, &leaving, provisioned).storage
    };
    let tier = |tier| VolumeSpeed { tier: Some(tier), ..VolumeSpeed::default() };
    let more = storage(tier(DiskTier::High)).micros() - storage(tier(DiskTier::Low)).micros();
    // Twice 4,000 IOPS at $0.005 and 312 MiB/s at $0.04.
    assert_eq!(more, 2 * (20_000_000 + 12_480_000));
}
