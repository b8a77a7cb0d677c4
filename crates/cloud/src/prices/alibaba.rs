//! Alibaba Cloud's prices, with the user's key: `DescribePrice` for machines on demand, and `DescribeSpotPriceHistory` for spot
//! machines, both of ECS 2014-05-26
//! (<https://www.alibabacloud.com/help/en/ecs/developer-reference/api-ecs-2014-05-26-describeprice>).
//!
//! Each is asked about one machine type in one region. Of a price the part `instanceType` counts, which is the machine without
//! its disk, and before what an account has off.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::amount::of_value;
use super::fetch::patient;
use super::{KnownTypes, PriceTable, StatedPrice, types_in};
use crate::alibaba::{Alibaba, disk_kind};
use crate::aws::wire::query::params;
use crate::catalog::refreshed::PriceTerms;
use crate::rented::CloudFailure;

/// The sources of prices.
const SOURCE: &str = "Alibaba Cloud ECS DescribePrice";
const SPOT_SOURCE: &str = "Alibaba Cloud ECS DescribeSpotPriceHistory";

/// Pages of the history of one machine type that are read; more is taken for a mistake.
const PAGES: usize = 100;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PriceAnswer {
    #[serde(default)]
    price_info: PriceInfo,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PriceInfo {
    #[serde(default)]
    price: EcsPrice,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct EcsPrice {
    #[serde(default)]
    currency: String,
    #[serde(default)]
    detail_infos: PriceDetails,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PriceDetails {
    #[serde(default)]
    detail_info: Vec<PriceDetail>,
}

/// The price of a part.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PriceDetail {
    #[serde(default)]
    resource: String,
    #[serde(default)]
    original_price: Value,
}

/// Reads what the machine types that a catalog knows in a region cost on demand.
///
/// # Errors
/// [`CloudFailure`].
pub fn on_demand(
    api: &Alibaba,
    known: &KnownTypes,
    region: &str,
    pause: &dyn Fn(Duration),
) -> Result<PriceTable, CloudFailure> {
    let mut table = PriceTable::default();
    for machine in types_in(known, region) {
        let sent = params([
            ("RegionId", region),
            ("ResourceType", "instance"),
            ("InstanceType", machine),
            ("SystemDisk.Category", disk_kind(machine)),
            ("SystemDisk.Size", "40"),
            ("PriceUnit", "Hour"),
        ]);
        table.rows += 1;
        match patient(pause, || api.read::<PriceAnswer>("DescribePrice", region, &sent))? {
            Some(answer) => add(&answer.price_info.price, (region, machine), &mut table),
            None => table.leave_out("without a price in the region"),
        }
    }
    Ok(table)
}

fn add(price: &EcsPrice, (region, machine): (&str, &str), table: &mut PriceTable) {
    let part = price.detail_infos.detail_info.iter().find(|part| part.resource == "instanceType");
    let Some(micros) = part.and_then(|part| of_value(&part.original_price)) else {
        return table.leave_out("without a price of the machine alone");
    };
    let price = StatedPrice {
        micros,
        currency: price.currency.clone(),
        source: SOURCE.to_owned(),
        derived: None,
        is_confirmed: false,
    };
    table.add((region.to_owned(), machine.to_owned(), PriceTerms::OnDemand), "", price);
}

/// A page of the last hours.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SpotHistory {
    #[serde(default)]
    currency: String,
    #[serde(default)]
    next_offset: Option<u64>,
    #[serde(default)]
    spot_prices: SpotRows,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SpotRows {
    #[serde(default)]
    spot_price_type: Vec<SpotRow>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SpotRow {
    #[serde(default)]
    zone_id: String,
    #[serde(default)]
    timestamp: String,
    #[serde(default)]
    spot_price: Value,
}

/// Reads what machine types cost now as spot machines in a region: the price of the cheapest zone.
///
/// # Errors
/// [`CloudFailure`].
pub fn spot(
    api: &Alibaba,
    types: &[String],
    region: &str,
    pause: &dyn Fn(Duration),
) -> Result<PriceTable, CloudFailure> {
    let mut table = PriceTable::default();
    for machine in types {
        let (mut newest, mut offset, mut currency) = (BTreeMap::<String, (String, Value)>::new(), 0, String::new());
        for page in 0.. {
            if page == PAGES {
                let why = format!("the list of spot prices of `{machine}` in `{region}` has no end");
                return Err(CloudFailure::Doubt(why));
            }
            let sent = params([
                ("RegionId", region),
                ("NetworkType", "vpc"),
                ("InstanceType", machine),
                ("OSType", "linux"),
                ("Offset", &offset.to_string()),
            ]);
            let asked = || api.read::<SpotHistory>("DescribeSpotPriceHistory", region, &sent);
            let Some(history) = patient(pause, asked)? else { break };
            currency = history.currency;
            for row in history.spot_prices.spot_price_type {
                table.rows += 1;
                let is_newer = newest.get(&row.zone_id).is_none_or(|(since, _)| *since < row.timestamp);
                if is_newer {
                    newest.insert(row.zone_id, (row.timestamp, row.spot_price));
                }
            }
            match history.next_offset {
                Some(next) if next > offset => offset = next,
                _ => break,
            }
        }
        cheapest(&newest, (region, machine), currency, &mut table);
    }
    Ok(table)
}

fn cheapest(
    newest: &BTreeMap<String, (String, Value)>,
    (region, machine): (&str, &str),
    currency: String,
    table: &mut PriceTable,
) {
    // A zone that sells no such machine has a price of nothing.
    let amounts: Vec<i64> =
        newest.values().filter_map(|(_, amount)| of_value(amount)).filter(|micros| *micros > 0).collect();
    let Some(micros) = amounts.iter().min().copied() else { return };
    let source = match amounts.len() {
        1 => SPOT_SOURCE.to_owned(),
        zones => format!("{SPOT_SOURCE}, the cheapest of {zones} zones"),
    };
    let price = StatedPrice { micros, currency, source, derived: None, is_confirmed: true };
    table.add((region.to_owned(), machine.to_owned(), PriceTerms::Spot), "", price);
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::alibaba::{AlibabaOptions, AlibabaSources};
    use crate::aws::wire::{HttpReply, HttpRequest, HttpTransport};

    /// Answers by the action and the query.
    struct Answers(fn(&str, &str) -> (u16, Value));

    impl HttpTransport for Answers {
        fn send(&self, request: &HttpRequest) -> Result<HttpReply, String> {
            let action = request.headers.iter().find(|(name, _)| name == "x-acs-action").unwrap().1.clone();
            let (status, body) = (self.0)(&action, &request.url);
            Ok(HttpReply { headers: Vec::new(), status, body: body.to_string().into_bytes() })
        }
    }

    fn api(answer: fn(&str, &str) -> (u16, Value)) -> Alibaba {
        let variables = [("ALIBABA_CLOUD_ACCESS_KEY_ID", "id"), ("ALIBABA_CLOUD_ACCESS_KEY_SECRET", "secret")];
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let sources = AlibabaSources { variables, config: String::new() };
        Alibaba::new(Arc::new(Answers(answer)), None, sources, AlibabaOptions::default())
    }

    fn known() -> KnownTypes {
        let regions = || BTreeSet::from(["cn-hangzhou".to_owned()]);
        ["ecs.gn6i-c4g1.xlarge", "ecs.gn5-c4g1.xlarge"].map(|name| (name.to_owned(), regions())).into()
    }

    /// As the reference of the API answers.
    fn answer(action: &str, url: &str) -> (u16, Value) {
        match action {
            "DescribePrice" if url.contains("InstanceType=ecs.gn5-") => {
                assert!(url.contains("SystemDisk.Category=cloud_ssd"), "{url}");
                (400, json!({ "Code": "InvalidInstanceType.ValueNotSupported", "Message": "m" }))
            }
            "DescribePrice" => {
                assert!(url.contains("PriceUnit=Hour") && url.contains("ResourceType=instance"), "{url}");
                let part = |resource: &str, price: f64| json!({ "Resource": resource, "OriginalPrice": price });
                let details = json!({ "DetailInfo": [part("systemDisk", 0.05), part("instanceType", 11.63)] });
                let price = json!({ "OriginalPrice": 11.68, "DiscountPrice": 0, "TradePrice": 2, "Currency": "CNY",
                                    "DetailInfos": details });
                (200, json!({ "RequestId": "r", "PriceInfo": { "Price": price, "Rules": { "Rule": [] } } }))
            }
            "DescribeSpotPriceHistory" => {
                let row = |zone: &str, hour: u32, price: f64| {
                    json!({ "ZoneId": format!("cn-hangzhou-{zone}"), "Timestamp": format!("2026-11-27T0{hour}:00:00Z"),
                            "SpotPrice": price, "OriginPrice": 11.63, "NetworkType": "vpc", "IoOptimized": "optimized" })
                };
                let (rows, next) = match url.contains("&Offset=0&") {
                    true => (vec![row("g", 3, 1.5), row("h", 3, 0.9), row("i", 3, 0.0)], json!(3)),
                    false => (vec![row("h", 5, 1.25), row("g", 4, 1.4)], Value::Null),
                };
                let prices = json!({ "SpotPriceType": rows });
                (200, json!({ "RequestId": "r", "Currency": "CNY", "NextOffset": next, "SpotPrices": prices }))
            }
            other => panic!("{other}"),
        }
    }

    fn shown(table: &PriceTable) -> Vec<(&str, i64, &str)> {
        table.prices().map(|(key, price, _)| (key.1.as_str(), price.micros, price.currency.as_str())).collect()
    }

    #[test]
    fn a_machine_costs_what_its_type_does_without_the_disk() {
        let table = on_demand(&api(answer), &known(), "cn-hangzhou", &|_| ()).unwrap();
        assert_eq!(shown(&table), [("ecs.gn6i-c4g1.xlarge", 11_630_000, "CNY")]);
        assert_eq!((table.rows, table.left_out.get("without a price in the region")), (2, Some(&1)));
    }

    #[test]
    fn the_newest_spot_price_of_the_cheapest_zone_counts() {
        let types = ["ecs.gn6i-c4g1.xlarge".to_owned()];
        let table = spot(&api(answer), &types, "cn-hangzhou", &|_| ()).unwrap();
        assert_eq!(shown(&table), [("ecs.gn6i-c4g1.xlarge", 1_250_000, "CNY")]);
        let (_, price, _) = table.prices().next().unwrap();
        assert_eq!(price.source, "Alibaba Cloud ECS DescribeSpotPriceHistory, the cheapest of 2 zones");
    }

    #[test]
    fn a_refusal_ends_the_region_and_a_missing_price_does_not() {
        let denied = api(|_, _| (403, json!({ "Code": "Forbidden.RAM", "Message": "m" })));
        assert!(matches!(on_demand(&denied, &known(), "r", &|_| ()), Err(CloudFailure::Denied(_))));
        let slow = api(|_, _| (400, json!({ "Code": "Throttling.User", "Message": "m" })));
        let pauses = std::cell::RefCell::new(Vec::new());
        let pause = |pause: Duration| pauses.borrow_mut().push(pause.as_millis());
        assert!(matches!(on_demand(&slow, &known(), "r", &pause), Err(CloudFailure::Throttled(_))));
        assert_eq!(*pauses.borrow(), [500, 1000, 2000]);
    }
}
