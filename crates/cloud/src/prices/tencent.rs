//! Tencent Cloud's prices, with the user's key: `DescribeZoneInstanceConfigInfos` of CVM 2017-03-12, which lists what each zone
//! of a region sells (<https://www.tencentcloud.com/document/api/213/33254>).
//!
//! A price on demand is the list price of the dearest zone, for the first 96 hours; it is less later. A spot price is that of
//! the cheapest zone that has such machines now. Answers do not name their currency, which is that of the account.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::Deserialize;
use serde_json::{Value, json};

use super::amount::of_value;
use super::fetch::patient;
use super::{KnownTypes, PriceTable, StatedPrice};
use crate::catalog::refreshed::PriceTerms;
use crate::rented::CloudFailure;
use crate::tencent::Tencent;

/// The source of prices.
const SOURCE: &str = "Tencent Cloud CVM DescribeZoneInstanceConfigInfos";

/// Families that one request may ask for.
const FAMILIES: usize = 100;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PricedSet {
    #[serde(default)]
    instance_type_quota_set: Vec<PricedType>,
}

/// A machine type in a zone.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PricedType {
    #[serde(default)]
    instance_type: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    price: Option<TypePrice>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct TypePrice {
    #[serde(default)]
    charge_unit: Option<String>,
    /// Before what is off.
    #[serde(default)]
    unit_price: Value,
    #[serde(default)]
    unit_price_discount: Value,
}

/// What zones of a region ask for a machine type.
#[derive(Default)]
struct ZonePrices {
    /// Where there are such machines now.
    sold: Vec<i64>,
    /// Everywhere.
    all: Vec<i64>,
}

/// Reads what the machine types that a catalog knows cost in a region, on demand and spot.
///
/// # Errors
/// [`CloudFailure`].
pub fn fetch(
    api: &Tencent,
    known: &KnownTypes,
    region: &str,
    pause: &dyn Fn(Duration),
) -> Result<PriceTable, CloudFailure> {
    let families: BTreeSet<&str> = known.keys().filter_map(|name| Some(name.split_once('.')?.0)).collect();
    let families: Vec<&str> = families.into_iter().collect();
    let mut table = PriceTable::default();
    for (charge, terms) in [("POSTPAID_BY_HOUR", PriceTerms::OnDemand), ("SPOTPAID", PriceTerms::Spot)] {
        let mut found: BTreeMap<String, ZonePrices> = BTreeMap::new();
        for families in families.chunks(FAMILIES) {
            let filters = json!([{ "Name": "instance-charge-type", "Values": [charge] },
                                 { "Name": "instance-family", "Values": families }]);
            let body = json!({ "Filters": filters }).to_string();
            let asked = || api.read::<PricedSet>("DescribeZoneInstanceConfigInfos", region, &body);
            for row in patient(pause, asked)?.map(|answer| answer.instance_type_quota_set).unwrap_or_default() {
                read(row, terms, (known, &mut found), &mut table);
            }
        }
        for (machine, prices) in found {
            let Some(price) = chosen(&prices, terms, api.currency()) else { continue };
            table.add((region.to_owned(), machine, terms), "", price);
        }
    }
    Ok(table)
}

/// Reads a row.
fn read(
    row: PricedType,
    terms: PriceTerms,
    (known, found): (&KnownTypes, &mut BTreeMap<String, ZonePrices>),
    table: &mut PriceTable,
) {
    table.rows += 1;
    if !known.contains_key(&row.instance_type) {
        return table.unknown(&row.instance_type);
    }
    let by_hour = row.price.filter(|price| price.charge_unit.as_deref() == Some("HOUR"));
    let amount = by_hour.map(|price| match terms {
        PriceTerms::Spot => price.unit_price_discount,
        _ => price.unit_price,
    });
    let Some(micros) = amount.and_then(|amount| of_value(&amount)).filter(|micros| *micros > 0) else {
        return table.leave_out("not a price of one hour");
    };
    let prices = found.entry(row.instance_type).or_default();
    prices.all.push(micros);
    if row.status == "SELL" {
        prices.sold.push(micros);
    }
}

/// The price of a region; none of a spot machine that no zone has now.
fn chosen(prices: &ZonePrices, terms: PriceTerms, currency: &str) -> Option<StatedPrice> {
    let (micros, source) = match terms {
        PriceTerms::Spot => {
            let source = match prices.sold.len() {
                0 | 1 => SOURCE.to_owned(),
                zones => format!("{SOURCE}, the cheapest of {zones} zones"),
            };
            (*prices.sold.iter().min()?, source)
        }
        _ => (*prices.all.iter().max()?, SOURCE.to_owned()),
    };
    // Only zones that have such machines list them.
    Some(StatedPrice { micros, currency: currency.to_owned(), source, derived: None, is_confirmed: true })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::aws::wire::{HttpReply, HttpRequest, HttpTransport};
    use crate::tencent::{TencentOptions, TencentSources};

    /// Answers by what is asked for.
    struct Answers(fn(&Value) -> Value);

    impl HttpTransport for Answers {
        fn send(&self, request: &HttpRequest) -> Result<HttpReply, String> {
            let asked = serde_json::from_slice(&request.body).unwrap();
            let body = json!({ "Response": (self.0)(&asked) }).to_string().into_bytes();
            Ok(HttpReply { headers: Vec::new(), status: 200, body })
        }
    }

    fn fetched(currency: Option<&str>, answer: fn(&Value) -> Value) -> Result<PriceTable, CloudFailure> {
        let variables = [("TENCENTCLOUD_SECRET_ID", "id"), ("TENCENTCLOUD_SECRET_KEY", "secret")];
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let sources = TencentSources { variables, file: String::new() };
        let options = TencentOptions { currency: currency.map(str::to_owned), ..TencentOptions::default() };
        let api = Tencent::new(Arc::new(Answers(answer)), None, sources, options);
        let regions = || BTreeSet::from(["ap-guangzhou".to_owned()]);
        let known = ["GN7.2XLARGE32", "GN10Xp.2XLARGE40"].map(|name| (name.to_owned(), regions())).into();
        fetch(&api, &known, "ap-guangzhou", &|_| ())
    }

    /// As the reference of the API answers: a spot price is the price on demand with much of it off.
    fn answer(asked: &Value) -> Value {
        assert_eq!(asked["Filters"][1]["Values"], json!(["GN10Xp", "GN7"]));
        let row = |zone: u32, machine: &str, status: &str, price: Value| {
            let zone = format!("ap-guangzhou-{zone}");
            json!({ "Zone": zone, "InstanceType": machine, "Status": status, "Price": price })
        };
        let price = |list: f64, charged: f64| {
            let (unit, later) = ("HOUR", 0.1);
            json!({ "UnitPrice": list, "UnitPriceDiscount": charged, "ChargeUnit": unit, "UnitPriceSecondStep": later })
        };
        let rows = match asked["Filters"][0]["Values"][0].as_str().unwrap() {
            "SPOTPAID" => vec![
                row(3, "GN7.2XLARGE32", "SOLD_OUT", price(1.7, 0.17)),
                row(6, "GN7.2XLARGE32", "SELL", price(1.7, 0.34)),
                row(7, "GN7.2XLARGE32", "SELL", price(1.7, 0.3)),
                row(3, "GN10Xp.2XLARGE40", "SOLD_OUT", price(5.0, 1.0)),
            ],
            _ => vec![
                row(6, "GN7.2XLARGE32", "SELL", price(1.7, 1.5)),
                row(3, "GN7.2XLARGE32", "SOLD_OUT", price(1.72, 1.5)),
                row(3, "GN10Xp.2XLARGE40", "SOLD_OUT", Value::Null),
                row(3, "GN7.99XLARGE9", "SELL", price(9.0, 9.0)),
            ],
        };
        json!({ "InstanceTypeQuotaSet": rows, "RequestId": "r" })
    }

    #[test]
    fn a_region_costs_what_its_dearest_zone_does_and_its_cheapest_with_spot_machines() {
        let table = fetched(None, answer).unwrap();
        let found: Vec<_> = table.prices().map(|(key, price, _)| (key.2, price.micros, &*price.currency)).collect();
        assert_eq!(found, [(PriceTerms::OnDemand, 1_720_000, "USD"), (PriceTerms::Spot, 300_000, "USD")]);
        let (_, spot, _) = table.prices().last().unwrap();
        assert!(spot.source.ends_with("the cheapest of 2 zones"), "{}", spot.source);
        assert_eq!(table.unknown.keys().collect::<Vec<_>>(), ["GN7.99XLARGE9"]);
        assert_eq!((table.rows, table.left_out.get("not a price of one hour")), (8, Some(&1)));
    }

    #[test]
    fn an_account_that_pays_in_yuan_has_prices_in_yuan() {
        let table = fetched(Some("CNY"), answer).unwrap();
        assert!(table.prices().all(|(_, price, _)| price.currency == "CNY"));
    }

    #[test]
    fn a_refusal_is_no_empty_list() {
        let refused = fetched(None, |_| json!({ "Error": { "Code": "UnauthorizedOperation", "Message": "m" } }));
        assert!(matches!(refused, Err(CloudFailure::Denied(_))), "{refused:?}");
    }
}
