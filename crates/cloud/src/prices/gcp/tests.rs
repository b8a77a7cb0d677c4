//! Parts in the documented form, with the prices of us-central1 that the catalog's machines are made of.

use serde_json::json;

use super::super::fetch::scripted::PriceScript;
use super::*;

fn part(description: &str, group: &str, usage: &str, nanos: i64) -> Value {
    let unit = PartKind::of(group).map_or("h", PartKind::unit);
    json!({
        "name": "services/6F81-5844-456A/skus/0000-0000-0000", "skuId": "0000-0000-0000", "description": description,
        "category": { "serviceDisplayName": "Compute Engine", "resourceFamily": "Compute", "resourceGroup": group, "usageType": usage },
        "serviceRegions": ["us-central1", "us-west9"],
        "pricingInfo": [{
            "summary": "", "effectiveTime": "2026-11-01T00:00:00Z", "currencyConversionRate": 1,
            "pricingExpression": {
                "usageUnit": unit, "usageUnitDescription": "hour", "displayQuantity": 1,
                "tieredRates": [{ "startUsageAmount": 0, "unitPrice": {
                    "currencyCode": "USD", "units": (nanos / 1_000_000_000).to_string(), "nanos": nanos % 1_000_000_000,
                }}],
            },
        }],
        "serviceProviderName": "Google",
    })
}

fn a2() -> Vec<Value> {
    vec![
        part("A2 Instance Core running in Americas", "CPU", "OnDemand", 31_611_000),
        part("A2 Instance Ram running in Americas", "RAM", "OnDemand", 4_237_000),
        part("Nvidia Tesla A100 GPU running in Americas", "GPU", "OnDemand", 2_933_908_000),
        part("A2 Custom Instance Core running in Americas", "CPU", "OnDemand", 1),
        part("Calendar Mode A2 Instance Core running in Americas", "CPU", "OnDemand", 1),
        part("Network Egress", "PremiumInternetEgress", "OnDemand", 1),
        part("Nvidia H200 141GB GPU running in Americas", "GPU", "OnDemand", 5_000_000_000),
    ]
}

fn read(pages: Vec<Vec<Value>>) -> PriceTable {
    let last = pages.len() - 1;
    let script = PriceScript::new(move |url, number| {
        assert_eq!(url.contains(&format!("pageToken=t%2F{number}")), number > 0, "{url}");
        let next = if number < last { format!("t/{}", number + 1) } else { String::new() };
        (200, None, json!({ "skus": pages[number], "nextPageToken": next }).to_string())
    });
    let fetcher = PriceFetcher { transport: &script, pause: &|_| () };
    let catalog = Catalog::embedded().unwrap();
    fetch(&fetcher, "http://x", &GcpAccess::Key("k".into()), &catalog, &["us-central1".into()]).unwrap()
}

fn price(table: &PriceTable, machine: &str, terms: PriceTerms) -> Option<i64> {
    let mut found = table.prices().filter(|(key, _, _)| key.1 == machine && key.2 == terms);
    found.next().map(|(key, price, _)| {
        assert!(key.0 == "us-central1" && !price.is_confirmed && price.currency == "USD");
        price.micros
    })
}

#[test]
fn a_machine_costs_what_its_parts_cost() {
    let parts = a2();
    let table = read(vec![parts[..2].to_vec(), parts[2..].to_vec()]);
    // As the catalog has it.
    assert_eq!(price(&table, "a2-highgpu-1g", PriceTerms::OnDemand), Some(3_673_385));
    assert_eq!(price(&table, "a2-megagpu-16g", PriceTerms::OnDemand), Some(55_739_504));
    assert_eq!(price(&table, "a2-highgpu-1g", PriceTerms::Spot), None);
    assert_eq!(price(&table, "a2-ultragpu-1g", PriceTerms::OnDemand), None, "its GPU has no price");
    assert_eq!(table.unknown.keys().collect::<Vec<_>>(), ["Nvidia H200 141GB GPU"]);
    assert_eq!(table.rows, parts.len());
}

#[test]
fn spot_and_commitments_have_parts_of_their_own() {
    let mut parts = a2();
    parts.extend([
        part("Spot Preemptible A2 Instance Core running in Americas", "CPU", "Preemptible", 20_000_000),
        part("Spot Preemptible A2 Instance Ram running in Americas", "RAM", "Preemptible", 2_000_000),
        part(
            "Nvidia Tesla A100 GPU attached to Spot Preemptible VMs running in Americas",
            "GPU",
            "Preemptible",
            1_000_000_000,
        ),
        part("Commitment v1: A2 Cpu in Americas for 1 Year", "CPU", "Commit1Yr", 10_000_000),
        part("Commitment v1: A2 Ram in Americas for 1 Year", "RAM", "Commit1Yr", 1_000_000),
    ]);
    let table = read(vec![parts]);
    assert_eq!(price(&table, "a2-highgpu-1g", PriceTerms::Spot), Some(240_000 + 170_000 + 1_000_000));
    assert_eq!(price(&table, "a2-highgpu-1g", PriceTerms::Reserved1y), None, "its GPU has no such price");
}

#[test]
fn local_disks_of_a2_ultra_are_billed_by_the_month() {
    let mut parts = a2();
    parts.push(part("Nvidia Tesla A100 80GB GPU running in Americas", "GPU", "OnDemand", 3_928_080_000));
    parts.push(part("SSD backed Local Storage", "LocalSSD", "OnDemand", 80_000_000));
    let table = read(vec![parts]);
    let expected = 12 * 31_611 + 170 * 4_237 + 3_928_080 + 41_096;
    assert_eq!(price(&table, "a2-ultragpu-1g", PriceTerms::OnDemand), Some(expected));
}

#[test]
fn two_prices_of_a_part_are_no_price() {
    let mut parts = a2();
    parts.push(part("A2 Instance Core running in Iowa", "CPU", "OnDemand", 31_611_001));
    let table = read(vec![parts]);
    assert_eq!(price(&table, "a2-highgpu-1g", PriceTerms::OnDemand), None);
    assert!(table.left_out.contains_key("on demand: a part has no price, or two"), "{:?}", table.left_out);
}

#[test]
fn a_part_that_costs_nothing_is_no_part() {
    let mut parts = a2();
    *parts[2].pointer_mut("/pricingInfo/0/pricingExpression/tieredRates/0").unwrap() = json!({ "startUsageAmount": 0 });
    let table = read(vec![parts]);
    assert_eq!(price(&table, "a2-highgpu-1g", PriceTerms::OnDemand), None);
}

#[test]
fn what_is_not_understood_is_no_part() {
    let good = &a2()[0];
    assert!(sku(good).is_some());
    let check = |pointer: &str, value: Value| {
        let mut changed = good.clone();
        *changed.pointer_mut(pointer).unwrap() = value;
        assert!(sku(&changed).is_none(), "{pointer}");
    };
    check("/category/usageType", "Commit5Yr".into());
    check("/category/resourceGroup", Value::Null);
    check("/pricingInfo", json!([]));
    check("/pricingInfo/0/pricingExpression/usageUnit", "mo".into());
    check("/pricingInfo/0/pricingExpression/tieredRates", json!([{}, {}]));
    check("/pricingInfo/0/pricingExpression/tieredRates/0/unitPrice/units", "many".into());
    check("/serviceRegions", "everywhere".into());
}
