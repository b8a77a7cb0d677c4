//! The offers of AWS, from the catalog: on demand and spot, in every region.

use domain::listing::Cloud;
use domain::volume::Volume;
use domain::wants::Wants;
use domain::{Bytes, Node, Offer, Rate};

use super::NAME;
use crate::catalog::Catalog;
use crate::rented::MachineChoice;
use crate::rented::offers::{self, Listable};

/// Families whose processors do not run our executables, which are for x86-64.
const ARM: [&str; 1] = ["g5g."];

/// What of AWS is listed.
const LISTS: Listable<'_> =
    Listable { cloud: Cloud::Aws, provider: NAME, disk: Volume::LEAST_WORK, leaves_out: &ARM, is_confirmed: true };

/// Everything that the catalog lists of AWS and that gradus can rent for a job that wants this, the cheapest first, without
/// the price of a disk. Spot machines too, unless the job wants none: it is the plan that chooses.
pub fn offers(catalog: &Catalog, wants: &Wants) -> Vec<Offer> {
    offers::offers(catalog, wants, &LISTS)
}

/// The same offer with at least so much disk, that fast, and with the price of its disk in its rate.
pub fn with_disk(catalog: &Catalog, offer: Offer, needed: Option<Bytes>, volume: Option<Volume>) -> Offer {
    let disk_free = needed.map_or(offer.node.disk_free, |needed| offer.node.disk_free.max(needed));
    let volume = volume.filter(|volume| *volume != Volume::BASE);
    let node = Node { disk_free, volume, ..offer.node.clone() };
    let choice = offer.kind.parse::<MachineChoice>().ok();
    let rate = disk_rate(catalog, choice.as_ref().map(|choice| choice.region.as_str()), &node);
    let disk = match volume {
        None => format!("a disk of {} GiB", Volume::BASE.gib(disk_free)),
        Some(volume) => format!("a disk of {} GiB, {volume}", volume.gib(disk_free)),
    };
    offers::priced(offer, node, rate, &disk)
}

/// What the disk of such a machine costs in a region, with its provisioned speed, rounded up.
pub fn disk_rate(catalog: &Catalog, region: Option<&str>, node: &Node) -> Rate {
    let volume = node.volume.unwrap_or(Volume::BASE);
    let price = |service| offers::price(catalog, &Cloud::Aws, region, service);
    offers::hourly(volume.month(volume.gib(node.disk_free), price))
}

#[cfg(test)]
mod tests {
    use domain::accelerators::Accelerators;
    use domain::volume::DiskTier;
    use domain::wants::Spot;

    use super::*;

    fn kinds(wants: Wants) -> Vec<String> {
        offers(&Catalog::embedded().unwrap(), &wants).into_iter().map(|offer| offer.kind).collect()
    }

    #[test]
    fn the_catalog_s_machines_are_offered_as_they_are_wanted() {
        let all = kinds(Wants::default());
        assert!(all.iter().any(|kind| kind == "us-east-1/g4dn.xlarge"), "{all:?}");
        assert!(!all.iter().any(|kind| kind.contains("g5g.")) && all.iter().any(|kind| kind.ends_with("/spot")));
        let never = kinds(Wants { spot: Spot::Never, ..Wants::default() });
        assert!(!never.iter().any(|kind| kind.ends_with("/spot")));
        let accelerators: Vec<Accelerators> = vec!["T4:1".parse().unwrap()];
        let one = Wants { accelerators, regions: vec!["us-east-1".into()], spot: Spot::Only, ..Wants::default() };
        let spot = kinds(one.clone());
        assert!(spot[0].starts_with("us-east-1/g4dn.") && spot.iter().all(|kind| kind.ends_with("/spot")), "{spot:?}");
        let zone = Wants { zone: Some("us-east-1a".into()), ..one };
        assert!(kinds(zone)[0].starts_with("us-east-1/us-east-1a/g4dn."));
        let cheap = Wants { max_price: Some("0.01/h".parse().unwrap()), ..Wants::default() };
        assert_eq!(kinds(cheap), Vec::<String>::new());
        let named = Wants { instance_type: Some("p4d.24xlarge".into()), ..Wants::default() };
        assert!(kinds(named).iter().all(|kind| kind.contains("/p4d.24xlarge")));
    }

    /// An eighth of the price on demand, from an advisor's savings: no plan trusts it, and no run asks for it.
    #[test]
    fn a_spot_price_that_no_plan_trusts_is_not_asked_for() {
        let at = |region: &str, kind: &str| {
            let instance_type = Some(kind.to_owned());
            kinds(Wants { instance_type, regions: vec![region.to_owned()], ..Wants::default() })
        };
        assert_eq!(at("us-east-1", "p3dn.24xlarge"), ["us-east-1/p3dn.24xlarge"]);
        assert_eq!(at("us-east-1", "g4dn.xlarge"), ["us-east-1/g4dn.xlarge/spot", "us-east-1/g4dn.xlarge"]);
    }

    #[test]
    fn a_disk_is_paid_for_by_the_hour() {
        let catalog = Catalog::embedded().unwrap();
        let rate = |region: &str, volume: Option<Volume>| {
            let node = Node { disk_free: Volume::LEAST_WORK, volume, ..Node::default() };
            disk_rate(&catalog, Some(region), &node).to_string()
        };
        // 140 GiB at $0.08 a month are $11.20, in 730 hours.
        assert_eq!(rate("us-east-1", None), "$0.015343/h");
        // At $0.152 a month they are $21.28.
        assert_eq!(rate("sa-east-1", None), "$0.029151/h");
        // With 4,000 IOPS at $0.005 and 312 MiB/s at $0.04 a month they are $43.68, and $82.99 in São Paulo.
        let high = Some(DiskTier::High.volume());
        assert_eq!((rate("us-east-1", high), rate("sa-east-1", high)), ("$0.059836/h".into(), "$0.113688/h".into()));
        // 140 GiB at $0.125 and 20,000 IOPS at $0.065 a month are $1,317.50.
        let ultra = Some(DiskTier::Ultra.volume());
        assert_eq!(rate("us-east-1", ultra), "$1.804795/h");
        // The dearest that is known, $0.1518 and $0.0792, where AWS's list had no io2.
        assert_eq!(rate("sa-east-1", ultra), "$2.198976/h");
        let here = Wants { regions: vec!["us-east-1".into()], ..Wants::default() };
        let offer = offers(&catalog, &here).remove(0);
        let larger = with_disk(&catalog, offer.clone(), Some(Bytes(200 << 30)), None);
        assert_eq!(larger.node.disk_free, Bytes(200 << 30));
        let more = larger.rate.micros_per_hour() - offer.rate.micros_per_hour();
        assert_eq!(more, 26_302, "240 GiB");
        assert!(larger.price_source.ends_with("of it $0.026302/h for a disk of 240 GiB"), "{}", larger.price_source);
        let faster = with_disk(&catalog, offer.clone(), None, high);
        assert_eq!(faster.rate.micros_per_hour() - offer.rate.micros_per_hour(), 59_836);
        let said = "of it $0.059836/h for a disk of 140 GiB, gp3 with 7000 IOPS and 437 MiB/s";
        assert!(faster.price_source.ends_with(said) && faster.node.volume == high, "{}", faster.price_source);
        assert_eq!(with_disk(&catalog, offer, None, Some(Volume::BASE)).node.volume, None);
    }
}
