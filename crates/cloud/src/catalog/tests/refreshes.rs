//! Refreshed prices: over the tables, under imports, kept from one refresh to the next, and reverted.

use std::fs;
use std::path::Path;

use domain::Rate;
use domain::listing::{Cloud, Listing, Price};
use domain::terms::{Availability, PurchaseOption};
use domain::wants::Wants;

use super::embedded;
use crate::catalog::import::{self, Defaults};
use crate::catalog::refreshed::{self, PriceTerms, RefreshedPrice};
use crate::catalog::{Catalog, Error};

const DAY: &str = "2026-11-27";

fn price(region: &str, machine: &str, terms: PriceTerms, micros: i64) -> RefreshedPrice {
    let rate = Rate::from_micros_per_hour(micros);
    let price = Price { rate, dated: DAY.into(), source: "the, \"list\"".into(), derived: Some("as is".into()) };
    let (region, instance_type) = (region.to_owned(), machine.to_owned());
    RefreshedPrice { cloud: Cloud::Aws, region, instance_type, terms, price, is_confirmed: true }
}

fn keep(home: &Path, prices: &[RefreshedPrice]) {
    refreshed::keep(home, &Cloud::Aws, DAY, prices).unwrap();
}

fn listing<'a>(catalog: &'a Catalog, region: &str, machine: &str) -> Option<&'a Listing> {
    let is_meant = |listing: &&Listing| listing.region == region && listing.instance_type == machine;
    catalog.listings.iter().filter(|listing| listing.cloud == Cloud::Aws).find(is_meant)
}

fn on_demand(home: &Path, machine: &str) -> String {
    let catalog = Catalog::open(home).unwrap();
    listing(&catalog, "us-east-1", machine).unwrap().on_demand.as_ref().unwrap().rate.to_string()
}

#[test]
fn a_refreshed_price_replaces_one_and_leaves_the_others() {
    let home = tempfile::tempdir().unwrap();
    let new = price("us-east-1", "g4dn.xlarge", PriceTerms::OnDemand, 123_456);
    keep(home.path(), std::slice::from_ref(&new));
    let catalog = Catalog::open(home.path()).unwrap();
    let before = embedded();
    assert_eq!(catalog.listings.len(), before.listings.len());
    let [old, now] = [&before, &catalog].map(|catalog| listing(catalog, "us-east-1", "g4dn.xlarge").unwrap());
    assert_eq!(now.on_demand, Some(new.price));
    assert_eq!((&now.spot, &now.reserved_1y, &now.gpus), (&old.spot, &old.reserved_1y, &old.gpus));
    assert_eq!(now.interrupted, old.interrupted);
}

#[test]
fn what_is_rented_carries_the_date_and_source_of_its_price() {
    let home = tempfile::tempdir().unwrap();
    keep(home.path(), &[price("us-east-1", "g4dn.xlarge", PriceTerms::OnDemand, 111_000)]);
    let catalog = Catalog::open(home.path()).unwrap();
    let wants =
        Wants { instance_type: Some("g4dn.xlarge".into()), regions: vec!["us-east-1".into()], ..Wants::default() };
    let offers = crate::aws::offers(&catalog, &wants);
    let offer = offers.iter().find(|offer| offer.kind == "us-east-1/g4dn.xlarge").unwrap();
    assert_eq!((offer.rate.micros_per_hour(), &*offer.price_source), (111_000, "the, \"list\", 2026-11-27"));
}

#[test]
fn a_known_machine_in_a_new_region_is_listed_there_and_an_unknown_one_is_not() {
    let home = tempfile::tempdir().unwrap();
    let rows = [
        price("xx-new-1", "g4dn.xlarge", PriceTerms::Spot, 500_000),
        price("xx-new-1", "p99.huge", PriceTerms::OnDemand, 500_000),
    ];
    keep(home.path(), &rows);
    let catalog = Catalog::open(home.path()).unwrap();
    assert_eq!(listing(&catalog, "xx-new-1", "p99.huge"), None);
    let new = listing(&catalog, "xx-new-1", "g4dn.xlarge").unwrap();
    assert!(new.on_demand.is_none() && new.cores == Some(4), "{new:?}");
    assert_eq!(catalog.availability(new, PurchaseOption::Spot), Availability::Known);
    assert_ne!(catalog.availability(new, PurchaseOption::OnDemand), Availability::Known);
}

#[test]
fn a_refresh_of_one_region_keeps_what_another_has_read_and_can_be_reverted() {
    let home = tempfile::tempdir().unwrap();
    let shipped = on_demand(home.path(), "g4dn.xlarge");
    keep(home.path(), &[price("us-east-1", "g4dn.xlarge", PriceTerms::OnDemand, 111_000)]);
    keep(home.path(), &[price("us-east-1", "g5.xlarge", PriceTerms::OnDemand, 222_000)]);
    assert_eq!(on_demand(home.path(), "g4dn.xlarge"), "$0.111/h");
    assert_eq!(on_demand(home.path(), "g5.xlarge"), "$0.222/h");
    let name = |name: Option<refreshed::RefreshFile>| name.map(|file| file.name);
    let reverted = name(refreshed::revert(home.path(), "aws").unwrap());
    assert_eq!(reverted.as_deref(), Some("0002-2026-11-27-aws.csv.reverted"));
    assert_eq!(on_demand(home.path(), "g4dn.xlarge"), "$0.111/h");
    assert_ne!(on_demand(home.path(), "g5.xlarge"), "$0.222/h");
    assert!(refreshed::revert(home.path(), "azure").unwrap().is_none());
    assert!(refreshed::revert(home.path(), "aws").unwrap().is_some());
    assert_eq!(on_demand(home.path(), "g4dn.xlarge"), shipped);
    assert!(refreshed::revert(home.path(), "aws").unwrap().is_none());
    // What was reverted stays, and its number is not used again.
    keep(home.path(), &[price("us-east-1", "g4dn.xlarge", PriceTerms::OnDemand, 333_000)]);
    let files = refreshed::history(home.path()).unwrap();
    let told: Vec<(u32, bool)> = files.iter().map(|file| (file.number, file.is_reverted)).collect();
    assert_eq!(told, [(1, true), (2, true), (3, false)]);
}

#[test]
fn refreshes_at_the_same_time_lose_nothing_of_each_other() {
    const AT_ONCE: u32 = 8;
    let home = tempfile::tempdir().unwrap();
    let path = home.path();
    std::thread::scope(|scope| {
        for number in 0..AT_ONCE {
            scope.spawn(move || {
                keep(path, &[price(&format!("xx-new-{number}"), "g4dn.xlarge", PriceTerms::OnDemand, 500_000)]);
            });
        }
    });
    let numbers: Vec<u32> = refreshed::history(path).unwrap().iter().map(|file| file.number).collect();
    assert_eq!(numbers, (1..=AT_ONCE).collect::<Vec<_>>());
    let catalog = Catalog::open(path).unwrap();
    for number in 0..AT_ONCE {
        assert!(listing(&catalog, &format!("xx-new-{number}"), "g4dn.xlarge").is_some(), "{number}");
    }
}

#[test]
fn an_import_is_over_a_refresh() {
    let home = tempfile::tempdir().unwrap();
    let text =
        "cloud,region,instance_type,gpu,gpu_count,vcpu,mem_gib,on_demand\naws,us-east-1,g4dn.xlarge,T4,1,4,16,0.3\n";
    let defaults = Defaults { dated: DAY.into(), source: "a contract".into(), cloud: None };
    let read = import::read("mine.csv", text, &embedded(), &defaults).unwrap();
    import::keep(home.path(), "mine", &read.listings).unwrap();
    keep(home.path(), &[price("us-east-1", "g4dn.xlarge", PriceTerms::OnDemand, 111_000)]);
    assert_eq!(on_demand(home.path(), "g4dn.xlarge"), "$0.30/h");
    let catalog = Catalog::open(home.path()).unwrap();
    assert!(catalog.is_imported(listing(&catalog, "us-east-1", "g4dn.xlarge").unwrap()));
    import::forget(home.path(), "mine").unwrap();
    assert_eq!(on_demand(home.path(), "g4dn.xlarge"), "$0.111/h");
}

#[test]
fn a_damaged_refresh_says_how_to_go_back() {
    let home = tempfile::tempdir().unwrap();
    keep(home.path(), &[price("us-east-1", "g4dn.xlarge", PriceTerms::OnDemand, 111_000)]);
    let path = refreshed::folder(home.path()).join("0001-2026-11-27-aws.csv");
    let text = fs::read_to_string(&path).unwrap();
    let check = |text: &str, expected: &str| {
        fs::write(&path, text).unwrap();
        let error: Error = Catalog::open(home.path()).unwrap_err();
        assert!(error.to_string().contains(expected), "{error}");
        assert_eq!(error.hint(), Some("`gradus catalog revert aws`, then `gradus catalog refresh aws`"));
    };
    check("", "the file is empty");
    check(&text.replace("0.111", "0"), "is no price");
    check(&text.replace("0.111", "NaN"), "`NaN000` is no amount");
    check(&text.replace("on_demand", "gift"), "`gift` is not known");
    check(&text.replace(",usd_per_hour", ",amount"), "no column `usd_per_hour`");
    // A file that was not finished is none.
    fs::write(&path, &text).unwrap();
    fs::write(refreshed::folder(home.path()).join("0002-2026-11-27-aws.csv.partial"), "half").unwrap();
    assert_eq!(on_demand(home.path(), "g4dn.xlarge"), "$0.111/h");
    refreshed::revert(home.path(), "aws").unwrap();
    assert!(Catalog::open(home.path()).is_ok());
}
