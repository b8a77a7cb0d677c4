//! The volumes of rented machines: those that the search has chosen, why, and what they add to the cost of a plan.

use std::collections::BTreeMap;

use cloud::rented::MachineChoice;
use domain::job::Needs;
use domain::listing::Listing;
use domain::volume::Volume;
use domain::{Bytes, Duration, Elapsed, Money, Offer, Rate};
use plan::search::{
    Candidate, MarketIndex, PurchaseOption, Reason, SamplesIn, SearchResult, TrainingSpec, VolumeChoice, disk_work,
};

use crate::error::Error;
use crate::figures::size;

/// The disks that machines are rented with, where a search knows what they are for.
#[derive(Debug, Default)]
pub struct Volumes {
    /// The volumes of the machines that it has compared, by region, type, and whether it is a spot machine.
    chosen: BTreeMap<(String, String, bool), VolumeChoice>,
    /// How much of its disk every machine needs for its work, by region and type.
    work: BTreeMap<(String, String), Bytes>,
}

impl Volumes {
    /// Those of candidates: of several for one machine that of the first, because its layout decides how fast samples are read.
    pub fn of<'c>(market: &MarketIndex, candidates: impl IntoIterator<Item = &'c Candidate>) -> Volumes {
        let mut chosen = BTreeMap::new();
        for candidate in candidates {
            let listing = market.listings[candidate.listing].listing;
            let is_spot = candidate.terms == PurchaseOption::Spot;
            let key = (listing.region.clone(), listing.instance_type.clone(), is_spot);
            if let Some(volume) = candidate.volume {
                chosen.entry(key).or_insert(volume);
            }
        }
        Volumes { chosen, work: BTreeMap::new() }
    }

    /// The same, and how large the disk of each of these machines is, also of those that the search has not compared.
    pub fn sized(self, spec: &TrainingSpec, needs: &Needs, listings: &[Listing]) -> Volumes {
        let key = |listing: &Listing| (listing.region.clone(), listing.instance_type.clone());
        let sizes = listings.iter().filter_map(|listing| Some((key(listing), disk_work(spec, listing, needs)?)));
        Volumes { work: sizes.collect(), ..self }
    }

    /// That of an offer; where the search has not compared it, that of the same machine on the other terms.
    fn choice(&self, offer: &Offer) -> Option<&VolumeChoice> {
        let choice = offer.kind.parse::<MachineChoice>().ok()?;
        let of = |is_spot: bool| self.chosen.get(&(choice.region.clone(), choice.machine.clone(), is_spot));
        of(choice.is_spot).or_else(|| of(!choice.is_spot))
    }

    /// How much of its disk the work of an offer's machine needs, where a search has found that.
    fn work(&self, offer: &Offer) -> Option<Bytes> {
        let choice = offer.kind.parse::<MachineChoice>().ok()?;
        self.work.get(&(choice.region, choice.machine)).copied()
    }

    /// How much of a disk an offer's machine has for its work, and how fast it is: as the search chose, or as the job states.
    pub fn disk(&self, offer: &Offer, needs: &Needs) -> (Option<Bytes>, Option<Volume>) {
        match self.choice(offer) {
            Some(choice) => (Some(choice.work), Some(choice.volume)),
            // What a job states was checked when it was read.
            None => (self.work(offer).or(needs.disk), needs.speed.volume().ok().flatten()),
        }
    }

    /// Why the volume of an offer is as it is, where the search chose it.
    pub fn reason(&self, offer: &Offer) -> Option<String> {
        self.choice(offer).map(|choice| format!("disk of {}", sentence(choice)))
    }
}

/// A volume, and what of the training it is for.
pub fn sentence(choice: &VolumeChoice) -> String {
    let demand = &choice.demand;
    let speed = |bytes: f64| format!("{}/s", size(bytes.round() as u64));
    let read = match demand.samples {
        SamplesIn::Volume => format!("samples are read from it at {}", speed(demand.read)),
        SamplesIn::Inside => "samples are read from the disks inside the machine".to_owned(),
        SamplesIn::Memory => "samples are read from memory".to_owned(),
    };
    let written = match demand.write > 0.0 {
        true => format!(", and checkpoints are written at {}, in half of the time between two", speed(demand.write)),
        false => String::new(),
    };
    let stated = if choice.is_stated { ", as the job states" } else { "" };
    format!("{} GiB of {}{stated}: {read}{written}{}", choice.gib, choice.volume, short(choice))
}

/// What a volume lacks of what the training needs.
fn short(choice: &VolumeChoice) -> String {
    if !choice.is_short() {
        return String::new();
    }
    let (iops, throughput) = (choice.demand.iops, choice.demand.throughput);
    let hint = match choice.demand.samples == SamplesIn::Inside && !choice.is_stated {
        true => {
            let (iops, throughput) = (iops.max(Volume::BASE.iops), throughput.max(Volume::BASE.throughput));
            format!(", unless the job states `disk: {{iops: {iops}, throughput: {throughput}}}`")
        }
        false => String::new(),
    };
    let slowdown = choice.slowdown();
    let waits = match slowdown >= 1.05 {
        true => format!("steps take {slowdown:.1} times as long, which the time counts"),
        false => "steps or checkpoints may wait for it".to_owned(),
    };
    format!("; that needs {iops} IOPS and {throughput} MiB/s: {waits}{hint}")
}

/// GiB of the smallest volume that an offer needs and that is larger than any.
pub fn least_disk(answer: &SearchResult) -> Option<u64> {
    answer.missed.get(&Reason::Disk)?.nearest.volume.map(|volume| volume.gib)
}

/// That the work fits on no disk, or that the job states a disk larger than any, where a search has found so, and what to do.
pub fn too_large(answer: &SearchResult, needs: &Needs) -> Option<(String, String)> {
    let (needed, most) = (least_disk(answer)?, Volume::MOST_GIB);
    let largest = Volume::MOST_WORK.0 / 1_000_000_000;
    if needs.disk.is_some() {
        let message = format!(
            "with the system, `disk_size` needs a disk of {needed} GiB on each machine; the largest volume has {most} GiB"
        );
        let hint = format!("write `disk_size: {largest}` (GB) or less, or leave it out: the plan chooses the size");
        return Some((message, hint));
    }
    let message = format!(
        "data and checkpoints need a disk of {needed} GiB, with the system, on each machine whose own disks do not hold the \
         data; the largest volume has {most} GiB"
    );
    let hint = format!(
        "take machines with more disk inside; or, if not all of the data is stored on the machine, write `disk_size: …`, in GB, \
         {largest} at most"
    );
    Some((message, hint))
}

/// What excludes the machines with enough disk, where a search has found any, and what to do.
fn other_limits(answer: &SearchResult) -> Vec<(String, String)> {
    let limits = [
        (Reason::MaxPrice, "max_price"),
        (Reason::Budget, "budget"),
        (Reason::Deadline, "deadline"),
        (Reason::Carbon, "max_carbon"),
    ];
    let exceeded = limits.into_iter().filter(|(reason, _)| answer.missed.contains_key(reason));
    let mut others: Vec<(String, String)> = exceeded
        .map(|(_, key)| {
            let hint = format!("raise `{key}`; `gradus plan` shows which value is enough");
            (format!("machines with enough disk exceed `{key}`"), hint)
        })
        .collect();
    if !answer.candidates.is_empty() {
        let message = "gradus cannot rent the machines with enough disk: no source confirms that the cloud has them, or \
                       their processors are not supported";
        let hint = "rent one yourself and add it with `gradus nodes add`, or ask for other machines";
        others.push((message.to_owned(), hint.to_owned()));
    }
    others
}

/// Where nothing that a search has found can be rented, refuses to rent other machines instead if some of them are ruled out
/// for their disk.
///
/// # Errors
/// [`Error::Infeasible`] then, with whatever excludes the machines with enough disk.
pub fn refuse_too_large(answer: &SearchResult, needs: &Needs) -> Result<(), Error> {
    let Some(disk) = too_large(answer, needs) else { return Ok(()) };
    let all = std::iter::once(disk).chain(other_limits(answer));
    Err(Error::Infeasible { reasons: all.map(|(message, hint)| format!("  {message}\n    hint: {hint}")).collect() })
}

/// A cost of the search with the price of the whole disks, in place of what the search has counted for them in a run of the time
/// `usual`.
pub fn with_disks(cost: Money, counted: Money, disks: Rate, (time, usual): (Duration, Duration)) -> Money {
    if disks == Rate::default() {
        return cost;
    }
    let share = i128::from(counted.micros()) * i128::from(time.micros()) / i128::from(usual.micros().max(1));
    let rest = cost.micros().saturating_sub(i64::try_from(share).unwrap_or(i64::MAX)).max(0);
    Money::from_micros(rest) + disks.cost(Elapsed(time.micros()))
}

#[cfg(test)]
mod tests {
    use cloud::Catalog;
    use domain::boot_disk::boot_disk_gib;
    use domain::listing::Cloud;
    use plan::money::Cost;
    use plan::search::{Availability, MemoryFit, NearMiss, RunTimeline, VolumeDemand};

    use super::super::constraints::market;
    use super::*;

    fn choice(samples: SamplesIn, volume: Volume, (iops, throughput): (u32, u32), is_stated: bool) -> VolumeChoice {
        let read = if samples == SamplesIn::Volume { 440e6 } else { 0.0 };
        let demand = VolumeDemand { samples, read, reads: read / 110e3, write: 1.33e6, iops, throughput };
        VolumeChoice { volume, gib: 178, work: Volume::LEAST_WORK, is_stated, demand }
    }

    #[test]
    fn a_volume_says_what_it_is_for_and_what_it_lacks() {
        let check = |choice: VolumeChoice, expected: &str| assert_eq!(sentence(&choice), expected);
        let written = "and checkpoints are written at 1.33 MB/s, in half of the time between two";
        let fast = Volume::at_least(4_500, 475);
        check(
            choice(SamplesIn::Volume, fast, (4_500, 475), false),
            &format!("178 GiB of gp3 with 4500 IOPS and 475 MiB/s: samples are read from it at 440 MB/s, {written}"),
        );
        let base = "178 GiB of gp3 with 3000 IOPS and 125 MiB/s";
        check(
            choice(SamplesIn::Memory, Volume::BASE, (500, 25), false),
            &format!("{base}: samples are read from memory, {written}"),
        );
        let waits = "steps take 3.4 times as long, which the time counts";
        check(
            choice(SamplesIn::Inside, Volume::BASE, (3_000, 700), false),
            &format!(
                "{base}: samples are read from the disks inside the machine, {written}; that needs 3000 IOPS and \
                 700 MiB/s: steps or checkpoints may wait for it, unless the job states `disk: {{iops: 3000, throughput: 700}}`"
            ),
        );
        check(
            choice(SamplesIn::Volume, Volume::BASE, (4_500, 475), true),
            &format!(
                "{base}, as the job states: samples are read from it at 440 MB/s, {written}; that needs 4500 IOPS and \
                 475 MiB/s: {waits}"
            ),
        );
    }

    #[test]
    fn an_offer_has_the_volume_of_its_machine_or_what_the_job_states() {
        let fast = choice(SamplesIn::Volume, Volume::at_least(4_500, 475), (4_500, 475), false);
        let key = ("us-east-1".to_owned(), "p3.16xlarge".to_owned(), true);
        let volumes = Volumes { chosen: BTreeMap::from([(key, fast)]), ..Volumes::default() };
        let needs = |disk: Option<u64>| Needs { disk: disk.map(Bytes), ..Needs::default() };
        let check = |kind: &str, needs: Needs, expected: (Option<Bytes>, Option<Volume>)| {
            let offer = Offer {
                provider: "aws".into(),
                kind: kind.into(),
                node: domain::Node::default(),
                rate: Rate::default(),
                price_source: String::new(),
            };
            assert_eq!(volumes.disk(&offer, &needs), expected, "{kind}");
            assert_eq!(volumes.reason(&offer).is_some(), expected.1.is_some(), "{kind}");
        };
        let chosen = (Some(Volume::LEAST_WORK), Some(Volume::at_least(4_500, 475)));
        check("us-east-1/p3.16xlarge/spot", needs(None), chosen);
        // Machines on demand beside spot machines have the same.
        check("us-east-1/us-east-1a/p3.16xlarge", needs(None), chosen);
        check("us-west-2/p3.16xlarge/spot", needs(Some(7)), (Some(Bytes(7)), None));
    }

    #[test]
    fn the_machine_that_is_chosen_has_the_volume_of_its_own_layout() {
        let catalog = Catalog::embedded().unwrap();
        let market = market(&catalog);
        let listing = market.listings.iter().position(|one| one.listing.cloud == Cloud::Aws).unwrap();
        let candidate = |throughput: u32| {
            let volume = Volume::at_least(4_500, throughput);
            Candidate {
                listing,
                terms: PurchaseOption::OnDemand,
                availability: Availability::Known,
                nodes: 1,
                timeline: RunTimeline::default(),
                volume: Some(choice(SamplesIn::Volume, volume, (4_500, throughput), false)),
                disk: None,
                cost: Cost::default(),
                kilograms: None,
                verdict: MemoryFit::Fits,
                simpler: None,
            }
        };
        // A simpler layout is a little slower, and reads less.
        let (simpler, fastest) = (Candidate { simpler: Some(0), ..candidate(450) }, candidate(475));
        let of = market.listings[listing].listing;
        let offer = Offer {
            provider: "aws".into(),
            kind: format!("{}/{}", of.region, of.instance_type),
            node: domain::Node::default(),
            rate: Rate::default(),
            price_source: String::new(),
        };
        let volumes = Volumes::of(&market, [&simpler, &fastest]);
        assert_eq!(volumes.disk(&offer, &Needs::default()).1, Some(Volume::at_least(4_500, 450)));
    }

    /// The search has no dependency on the crate that rents them.
    #[test]
    fn disks_of_other_clouds_are_as_large_in_the_plan_as_they_are_rented() {
        for work in [192, 500, 1_001].map(|gib: u64| Bytes(gib << 30)) {
            let rented = [
                (Cloud::Gcp, cloud::gcp::disk_gib(work)),
                (Cloud::Azure, cloud::azure::disk_gib(work)),
                (Cloud::Alibaba, cloud::alibaba::disk_gib(work)),
                (Cloud::Tencent, cloud::tencent::disk_gib(work)),
            ];
            for (cloud, gib) in rented {
                assert_eq!(boot_disk_gib(&cloud, work), Some(gib), "{cloud} {work}");
            }
        }
    }

    #[test]
    fn work_that_no_disk_holds_is_refused_with_its_cause() {
        let whole = VolumeChoice { gib: 26_124, ..choice(SamplesIn::Volume, Volume::BASE, (0, 0), false) };
        let nearest = Candidate {
            listing: 0,
            terms: PurchaseOption::OnDemand,
            availability: Availability::Known,
            nodes: 1,
            timeline: RunTimeline::default(),
            volume: Some(whole),
            disk: None,
            cost: Cost::default(),
            kilograms: None,
            verdict: MemoryFit::Fits,
            simpler: None,
        };
        let missed = BTreeMap::from([(Reason::Disk, NearMiss { candidates: 1, nearest })]);
        let mut answer = SearchResult { missed, ..SearchResult::default() };
        let refused = |answer: &SearchResult, needs: Needs| match refuse_too_large(answer, &needs) {
            Err(Error::Infeasible { reasons }) => reasons,
            other => panic!("it is rented: {other:?}"),
        };
        let reasons = refused(&answer, Needs::default());
        assert!(reasons[0].contains(" 26124 GiB, ") && reasons[0].contains(" 16384 GiB\n"), "{reasons:?}");
        assert!(reasons[0].ends_with("write `disk_size: …`, in GB, 17549 at most"), "{reasons:?}");
        assert_eq!(reasons.len(), 1);
        // A size that the job states is what to change.
        let stated = refused(&answer, Needs { disk: Some(Bytes(28_000_000_000_000)), ..Needs::default() });
        assert!(stated[0].starts_with("  with the system, `disk_size` needs a disk of 26124 GiB "), "{stated:?}");
        assert!(stated[0].contains("hint: write `disk_size: 17549` (GB) or less, or leave it out"), "{stated:?}");
        // Machines with enough disk are above the budget, or cannot be rented.
        answer.missed.insert(Reason::Budget, NearMiss { candidates: 1, nearest });
        answer.candidates.push(nearest);
        let reasons = refused(&answer, Needs::default());
        let [_, budget, unknown] = &reasons[..] else { panic!("{reasons:?}") };
        assert!(
            budget.starts_with("  machines with enough disk exceed `budget`\n    hint: raise `budget`"),
            "{budget}"
        );
        assert!(unknown.starts_with("  gradus cannot rent the machines with enough disk: "), "{unknown}");
        assert!(refuse_too_large(&SearchResult::default(), &Needs::default()).is_ok());
    }

    #[test]
    fn disks_are_counted_once() {
        let (hour, money) = (Duration::from_secs(3_600), Money::from_micros);
        let disks = Rate::from_micros_per_hour(60_000);
        // Of $10 the search has counted $0.04 for the data; the disks cost $0.06.
        assert_eq!(with_disks(money(10_000_000), money(40_000), disks, (hour, hour)), money(10_020_000));
        let twice = Duration::from_secs(7_200);
        assert_eq!(with_disks(money(20_000_000), money(40_000), disks, (twice, hour)), money(20_040_000));
        // Where the machine holds its disk, nothing takes the place of what was counted.
        assert_eq!(with_disks(money(10_000_000), money(40_000), Rate::default(), (hour, hour)), money(10_000_000));
    }
}
