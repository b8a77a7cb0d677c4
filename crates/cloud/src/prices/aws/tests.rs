//! A price list in the documented form, and spot prices.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::fetch::scripted::PriceScript;
use super::*;
use crate::aws::wire::scripted::{Script, client, reply};

fn known() -> KnownTypes {
    let types = ["p5.48xlarge", "g4dn.metal"];
    types.map(|name| (name.to_owned(), BTreeSet::from(["us-east-1".to_owned()]))).into()
}

/// A product with some attributes changed.
fn product(sku: &str, changed: &[(&str, &str)]) -> (String, Value) {
    let mut attributes = json!({
        "servicecode": "AmazonEC2", "location": "US East (N. Virginia)", "locationType": "AWS Region",
        "instanceType": "p5.48xlarge", "vcpu": "192", "memory": "2048 GiB", "gpu": "8", "tenancy": "Shared",
        "operatingSystem": "Linux", "licenseModel": "No License required", "capacitystatus": "Used",
        "preInstalledSw": "NA", "marketoption": "OnDemand", "operation": "RunInstances",
    });
    for (name, value) in changed {
        attributes[*name] = (*value).into();
    }
    let family =
        if attributes["instanceType"] == "g4dn.metal" { "Compute Instance (bare metal)" } else { "Compute Instance" };
    (sku.to_owned(), json!({ "sku": sku, "productFamily": family, "attributes": attributes }))
}

fn hourly(amount: &str) -> Value {
    json!({
        "effectiveDate": "2026-11-01T00:00:00Z",
        "priceDimensions": { "A.1.H": { "unit": "Hrs", "beginRange": "0", "endRange": "Inf", "pricePerUnit": { "USD": amount } } },
        "termAttributes": {},
    })
}

fn reserved(length: &str, class: &str, option: &str, amount: &str) -> Value {
    let mut offer = hourly(amount);
    offer["priceDimensions"]["A.1.U"] = json!({ "unit": "Quantity", "pricePerUnit": { "USD": "500000" } });
    offer["termAttributes"] =
        json!({ "LeaseContractLength": length, "OfferingClass": class, "PurchaseOption": option });
    offer
}

fn list() -> Value {
    let products: serde_json::Map<String, Value> = [
        product("A", &[]),
        product("BLOCK", &[("marketoption", "CapacityBlock")]),
        product("WINDOWS", &[("operatingSystem", "Windows")]),
        product("DEDICATED", &[("tenancy", "Dedicated")]),
        product("UNUSED", &[("capacitystatus", "UnusedCapacityReservation")]),
        product("SQL", &[("preInstalledSw", "SQL Std")]),
        product("LOCAL", &[("locationType", "AWS Local Zone")]),
        product("METAL", &[("instanceType", "g4dn.metal")]),
        product("NEW", &[("instanceType", "p9.48xlarge")]),
        product("CPU", &[("instanceType", "c7i.large"), ("gpu", "0")]),
        ("DISK".to_owned(), json!({ "productFamily": "Storage", "attributes": { "volumeApiName": "gp3" } })),
    ]
    .into_iter()
    .collect();
    let on_demand = json!({
        "A": { "A.1": hourly("55.0400000000") },
        "BLOCK": { "BLOCK.1": hourly("0.0000000000") },
        "METAL": { "METAL.1": hourly("7.8240000000") },
        "NEW": { "NEW.1": hourly("99") },
        "DISK": { "DISK.1": { "odd": [1, 2, { "shape": null }] } },
    });
    let of_a = json!({
        "A.2": reserved("1yr", "standard", "No Upfront", "40"),
        "A.3": reserved("3yr", "standard", "No Upfront", "25.5"),
        "A.4": reserved("1yr", "standard", "All Upfront", "0"),
        "A.5": reserved("1yr", "convertible", "No Upfront", "45"),
    });
    json!({
        "formatVersion": "v1.0", "disclaimer": "as documented", "offerCode": "AmazonEC2", "version": "20261101",
        "publicationDate": "2026-11-01T00:00:00Z", "products": products,
        "terms": { "OnDemand": on_demand, "Reserved": { "A": of_a }, "Other": {} }, "attributesList": {},
    })
}

fn read(text: String) -> Result<PriceTable, String> {
    let script = PriceScript::new(move |_, _| (200, None, text.clone()));
    let fetcher = PriceFetcher { transport: &script, pause: &|_| () };
    let table = fetch(&fetcher, "http://x/", &known(), "us-east-1");
    assert_eq!(script.asked.lock().unwrap()[0], "http://x/offers/v1.0/aws/AmazonEC2/current/us-east-1/index.json");
    table.map_err(|failure| failure.to_string())
}

#[test]
fn a_price_list_is_read_for_linux_machines_by_the_hour() {
    use PriceTerms::{Dedicated, OnDemand, Reserved1y, Reserved3y};
    let table = read(list().to_string()).unwrap();
    let found: Vec<_> =
        table.prices().map(|(key, price, other)| (key.1.as_str(), key.2, price.micros, other)).collect();
    let expected = [
        ("g4dn.metal", OnDemand, 7_824_000, None),
        ("g4dn.metal", Dedicated, 7_824_000, None),
        ("p5.48xlarge", OnDemand, 55_040_000, None),
        ("p5.48xlarge", Reserved1y, 40_000_000, None),
        ("p5.48xlarge", Reserved3y, 25_500_000, None),
    ];
    assert_eq!(found, expected);
    assert!(table.prices().all(|(key, price, _)| key.0 == "us-east-1" && price.is_confirmed));
    assert_eq!(table.unknown.iter().collect::<Vec<_>>(), [(&"p9.48xlarge".to_owned(), &1)]);
    assert_eq!(table.left_out.get("machines without GPUs"), Some(&1));
}

#[test]
fn what_is_no_price_list_is_an_error() {
    let check = |text: String, expected: &str| {
        let said = read(text).unwrap_err();
        assert!(said.contains(expected), "{said}");
    };
    let whole = list().to_string();
    check(whole[..whole.len() - 2].to_owned(), "EOF");
    check(whole[..whole.len() / 2].to_owned(), "EOF");
    check("<html>".to_owned(), "expected value");
    check("[]".to_owned(), "an object of the price list");
    check("{}".to_owned(), "it has no `products` and `terms`");
    check(r#"{"terms": {}, "products": {}}"#.to_owned(), "`terms` stands before `products`");
    check(r#"{"products": {"A": 7}, "terms": {}}"#.to_owned(), "invalid type");
    check(whole + "x", "trailing characters");
}

#[test]
fn another_currency_is_said_and_not_hidden() {
    let text = list().to_string().replace(r#"{"USD":"55.0400000000"}"#, r#"{"CNY":"400.0"}"#);
    let table = read(text).unwrap();
    let yuan = table.prices().find(|(_, price, _)| price.currency == "CNY").unwrap();
    assert_eq!((yuan.0.1.as_str(), yuan.1.micros), ("p5.48xlarge", 400_000_000));
}

fn quote(machine: &str, zone: &str, amount: &str, time: &str) -> String {
    format!(
        "<item><instanceType>{machine}</instanceType><productDescription>Linux/UNIX</productDescription>\
         <spotPrice>{amount}</spotPrice><timestamp>{time}</timestamp><availabilityZone>{zone}</availabilityZone></item>"
    )
}

#[test]
fn the_newest_spot_price_of_the_cheapest_zone_counts() {
    let script = Script::new(|asked| {
        assert!(
            asked.contains("Action=DescribeSpotPriceHistory") && asked.contains("InstanceType.2=p5.48xlarge"),
            "{asked}"
        );
        let (items, token) = match asked.contains("NextToken=more") {
            false => {
                let first = quote("p5.48xlarge", "us-east-1a", "20.5", "2026-11-26T10:00:00.000Z");
                (first + &quote("p5.48xlarge", "us-east-1b", "9.0", "2026-11-20T10:00:00.000Z"), "more")
            }
            true => {
                let newer = quote("p5.48xlarge", "us-east-1b", "22.25", "2026-11-26T11:00:00.000Z");
                (newer + &quote("m5.large", "us-east-1a", "0.1", "2026-11-26T11:00:00.000Z"), "")
            }
        };
        let set = format!("<spotPriceHistorySet>{items}</spotPriceHistorySet><nextToken>{token}</nextToken>");
        Ok(reply(200, &format!("<DescribeSpotPriceHistoryResponse>{set}</DescribeSpotPriceHistoryResponse>")))
    });
    let client = client(script);
    let table = spot(&client, &["g4dn.metal", "p5.48xlarge"], "us-east-1", "2026-11-27T00:00:00Z").unwrap();
    let found: Vec<_> = table.prices().map(|(key, price, _)| (key.1.as_str(), price.micros)).collect();
    assert_eq!(found, [("p5.48xlarge", 20_500_000)]);
    assert!(
        table.prices().all(|(_, price, _)| price.source.ends_with("the cheapest of 2 zones") && price.is_confirmed)
    );
    assert_eq!(table.unknown.get("m5.large"), Some(&1));
}

#[test]
fn a_list_of_spot_prices_without_end_is_an_error() {
    let page = "<R><spotPriceHistorySet/><nextToken>again</nextToken></R>";
    let client = client(Script::new(move |_| Ok(reply(200, page))));
    let failure = spot(&client, &["p5.48xlarge"], "us-east-1", "2026-11-27T00:00:00Z").unwrap_err();
    assert!(failure.to_string().contains("has no end"), "{failure}");
}
