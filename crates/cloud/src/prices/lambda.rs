//! Lambda's instance types, with the user's key: one price each, in whole cents, for every region
//! (<https://docs.lambda.ai/api/cloud>).
//!
//! Regions are named only where machines are free now. They are confirmed; the price holds for the regions of the catalog
//! as well.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::fetch::{PriceFailure, PriceFetcher};
use super::{KnownTypes, PriceTable, StatedPrice};
use crate::aws::wire::HttpRequest;
use crate::catalog::refreshed::PriceTerms;

/// The API for people, and the source of its prices.
const SOURCE: &str = "Lambda Cloud API";

#[derive(Deserialize)]
struct Answer {
    data: BTreeMap<String, Value>,
}

/// Reads the prices of all instance types with this key.
///
/// # Errors
/// [`PriceFailure`].
pub fn fetch(
    fetcher: &PriceFetcher<'_>,
    endpoint: &str,
    key: &str,
    known: &KnownTypes,
    regions: &[String],
) -> Result<PriceTable, PriceFailure> {
    let request = HttpRequest {
        method: "GET",
        url: format!("{}/api/v1/instance-types", endpoint.trim_end_matches('/')),
        headers: vec![("authorization".to_owned(), format!("Bearer {key}"))],
        body: Vec::new(),
    };
    let answer: Answer = fetcher.page(SOURCE, &request)?;
    Ok(read(&answer, known, regions))
}

fn read(answer: &Answer, known: &KnownTypes, wanted: &[String]) -> PriceTable {
    let mut table = PriceTable::default();
    for (name, entry) in &answer.data {
        table.rows += 1;
        let machine = entry["instance_type"]["name"].as_str().unwrap_or(name);
        let Some(listed) = known.get(machine) else {
            table.unknown(machine);
            continue;
        };
        let Some(cents) = entry["instance_type"]["price_cents_per_hour"].as_i64() else {
            table.leave_out("without a price per hour");
            continue;
        };
        let free = entry["regions_with_capacity_available"].as_array().into_iter().flatten();
        let free: BTreeSet<&str> = free.filter_map(|region| region["name"].as_str()).collect();
        let all: BTreeSet<&str> = listed.iter().map(String::as_str).chain(free.iter().copied()).collect();
        for region in all.into_iter().filter(|region| wanted.is_empty() || wanted.iter().any(|name| name == region)) {
            let price = StatedPrice {
                micros: cents.saturating_mul(10_000),
                currency: "USD".to_owned(),
                source: SOURCE.to_owned(),
                derived: None,
                is_confirmed: free.contains(region),
            };
            table.add((region.to_owned(), machine.to_owned(), PriceTerms::OnDemand), "", price);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::fetch::scripted::PriceScript;
    use super::*;

    #[test]
    fn a_price_holds_in_listed_regions_and_those_with_free_machines() {
        let types = json!({ "data": {
            "gpu_1x_a6000": {
                "instance_type": { "name": "gpu_1x_a6000", "description": "1x A6000 (48 GB)", "price_cents_per_hour": 92,
                                   "specs": { "vcpus": 14, "memory_gib": 100, "storage_gib": 200, "gpus": 1 } },
                "regions_with_capacity_available": [{ "name": "us-west-3", "description": "Utah, USA" }],
            },
            "gpu_9x_new": { "instance_type": { "name": "gpu_9x_new", "price_cents_per_hour": 1 } },
            "gpu_8x_v100": { "instance_type": { "name": "gpu_8x_v100" } },
        }});
        let script = PriceScript::new(move |_, _| (200, None, types.to_string()));
        let fetcher = PriceFetcher { transport: &script, pause: &|_| () };
        let listed = || BTreeSet::from(["us-east-1".to_owned()]);
        let known = KnownTypes::from([("gpu_1x_a6000".to_owned(), listed()), ("gpu_8x_v100".to_owned(), listed())]);
        let table = fetch(&fetcher, "http://x", "secret", &known, &[]).unwrap();
        let found: Vec<_> =
            table.prices().map(|(key, price, _)| (key.0.as_str(), price.micros, price.is_confirmed)).collect();
        assert_eq!(found, [("us-east-1", 920_000, false), ("us-west-3", 920_000, true)]);
        assert_eq!(table.unknown.keys().collect::<Vec<_>>(), ["gpu_9x_new"]);
        assert_eq!(table.left_out.get("without a price per hour"), Some(&1));
        let one = fetch(&fetcher, "http://x", "secret", &known, &["us-west-3".to_owned()]).unwrap();
        assert_eq!(one.len(), 1);
        assert_eq!(script.asked.lock().unwrap()[0], "http://x/api/v1/instance-types");
    }
}
