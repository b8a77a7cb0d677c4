//! Azure's Retail Prices API: public JSON in pages, each with the address of the next one
//! (<https://learn.microsoft.com/rest/api/cost-management/retail-prices/azure-retail-prices>).
//!
//! Asked for are virtual machines of the sizes `Standard_N…`, which are those with GPUs. A row is a price on demand, of
//! spot, or of a reservation for its whole term; one on demand also has the hourly prices of savings plans, which stand in
//! where there is no reservation.

use domain::listing::Cloud;
use serde::Deserialize;
use serde_json::Value;

use super::amount::{divided, of_number};
use super::fetch::{PriceFailure, PriceFetcher};
use super::{KnownTypes, PriceTable, StatedPrice, cloud_apart};
use crate::aws::wire::HttpRequest;
use crate::aws::wire::query::word;
use crate::catalog::refreshed::PriceTerms;

/// Where the API is.
pub const ENDPOINT: &str = "https://prices.azure.com";

/// The API for people, and the source of its prices.
const SOURCE: &str = "Azure Retail Prices API";

/// Pages that are read at most. GPU sizes of all regions fill some hundreds.
const PAGES: usize = 3000;

/// Hours of the terms of reservations.
const YEAR: i64 = 8760;

#[derive(Deserialize)]
struct Page {
    #[serde(rename = "Items")]
    items: Vec<Value>,
    #[serde(rename = "NextPageLink", default)]
    next: Option<String>,
}

/// Reads the prices of all regions, or of those that are named; `today`, such as `2026-11-27`, tells prices that hold
/// from those to come.
///
/// # Errors
/// [`PriceFailure`].
pub fn fetch(
    fetcher: &PriceFetcher<'_>,
    endpoint: &str,
    known: &KnownTypes,
    regions: &[String],
    today: &str,
) -> Result<PriceTable, PriceFailure> {
    let mut table = PriceTable::default();
    let mut first: Vec<Option<&str>> = regions.iter().map(|region| Some(region.as_str())).collect();
    if first.is_empty() {
        first.push(None);
    }
    let mut pages = 0;
    for region in first {
        let mut next = Some(first_page(endpoint, region));
        while let Some(url) = next {
            pages += 1;
            if pages > PAGES {
                return Err(PriceFailure::TooLong { from: SOURCE.to_owned(), most: format!("{PAGES} pages") });
            }
            let request = HttpRequest { method: "GET", url: url.clone(), headers: Vec::new(), body: Vec::new() };
            let page: Page = fetcher.page(SOURCE, &request)?;
            page.items.iter().for_each(|item| read(item, known, today, &mut table));
            next = page.next.filter(|link| !link.is_empty());
            if let Some(link) = next.as_ref().filter(|link| **link == url || !is_of(link, endpoint)) {
                let why = format!("its next page is `{link}`, which is not a new page of `{endpoint}`");
                return Err(PriceFailure::Unreadable { from: SOURCE.to_owned(), why });
            }
        }
    }
    Ok(table)
}

/// The address of the first page of a region, or of all.
fn first_page(endpoint: &str, region: Option<&str>) -> String {
    let mut filter = "serviceName eq 'Virtual Machines' and contains(armSkuName, 'Standard_N')".to_owned();
    if let Some(region) = region {
        filter.push_str(&format!(" and armRegionName eq '{}'", region.replace('\'', "''")));
    }
    // This version has savings plans; prices are in dollars unless another currency is asked for.
    format!(
        "{}/api/retail/prices?api-version=2023-01-01-preview&$filter={}",
        endpoint.trim_end_matches('/'),
        word(&filter)
    )
}

/// Whether an address is one of the endpoint: Azure's own links name the port.
fn is_of(link: &str, endpoint: &str) -> bool {
    let bare = |url: &str| url.replacen(".com:443/", ".com/", 1);
    bare(link).starts_with(&format!("{}/", endpoint.trim_end_matches('/')))
}

/// Reads a row.
fn read(item: &Value, known: &KnownTypes, today: &str, table: &mut PriceTable) {
    table.rows += 1;
    let text = |name: &str| item[name].as_str().unwrap_or_default();
    let machine = text("armSkuName");
    let (product, sku) = (text("productName"), text("skuName"));
    if product.contains("Windows") || product.ends_with(" Win") || product.contains("Cloud") {
        return table.leave_out("Windows or cloud services");
    }
    if sku.contains("Low Priority") || !matches!(text("type"), "Consumption" | "Reservation") {
        return table.leave_out("low priority, or for development and tests only");
    }
    let since = text("effectiveStartDate").get(..10).unwrap_or_default();
    if since > today {
        return table.leave_out("a price to come");
    }
    let region = text("armRegionName").to_lowercase();
    if cloud_apart(&Cloud::Azure, &region).is_some() {
        return table.leave_out("in regions of the government, which other accounts rent in");
    }
    if !known.contains_key(machine) {
        return table.unknown(if machine.is_empty() { sku } else { machine });
    }
    let unit = text("unitOfMeasure");
    let Some(micros) = item["retailPrice"].as_f64().and_then(of_number).filter(|_| unit == "1 Hour") else {
        return table.leave_out("not a price of one hour");
    };
    let currency = text("currencyCode").to_owned();
    let price = |micros, derived: Option<String>| StatedPrice {
        micros,
        currency: currency.clone(),
        source: SOURCE.to_owned(),
        derived,
        is_confirmed: false,
    };
    let key = |terms| (region.clone(), machine.to_owned(), terms);
    // Of several the meter of the region itself counts, and the newest price.
    let meter = i32::from(item["isPrimaryMeterRegion"].as_bool().unwrap_or(true));
    let rank = format!("{meter} {since}");
    if text("type") == "Reservation" {
        let Some((terms, years)) = term(text("reservationTerm")) else {
            return table.leave_out("a reservation of another term");
        };
        let hours = years * YEAR;
        let derived = format!("the price of the reservation for its {hours} hours");
        return table.add(key(terms), &format!("reserved {rank}"), price(divided(micros, hours), Some(derived)));
    }
    if sku.contains("Spot") {
        return table.add(key(PriceTerms::Spot), &rank, price(micros, None));
    }
    table.add(key(PriceTerms::OnDemand), &rank, price(micros, None));
    for plan in item["savingsPlan"].as_array().into_iter().flatten() {
        let hourly = plan["retailPrice"].as_f64().and_then(of_number);
        if let (Some((terms, _)), Some(micros)) = (term(plan["term"].as_str().unwrap_or_default()), hourly) {
            // `plan` stands before `reserved`.
            table.add(key(terms), &format!("plan {rank}"), price(micros, Some("a savings plan".to_owned())));
        }
    }
}

/// The terms of a reservation, and their years.
fn term(text: &str) -> Option<(PriceTerms, i64)> {
    match text {
        "1 Year" => Some((PriceTerms::Reserved1y, 1)),
        "3 Years" => Some((PriceTerms::Reserved3y, 3)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::super::fetch::scripted::PriceScript;
    use super::*;

    const MACHINE: &str = "Standard_NC24ads_A100_v4";

    fn known() -> KnownTypes {
        KnownTypes::from([(MACHINE.to_owned(), BTreeSet::from(["eastus".to_owned()]))])
    }

    /// A row as the API documents it, with some fields changed.
    fn row(changed: &Value) -> Value {
        let mut row = json!({
            "currencyCode": "USD", "tierMinimumUnits": 0.0, "retailPrice": 3.673, "unitPrice": 3.673,
            "armRegionName": "eastus", "location": "US East", "effectiveStartDate": "2026-05-01T00:00:00Z",
            "productName": "Virtual Machines NCADS A100 v4 Series", "skuName": "NC24ads A100 v4",
            "serviceName": "Virtual Machines", "unitOfMeasure": "1 Hour", "type": "Consumption",
            "isPrimaryMeterRegion": true, "armSkuName": MACHINE,
        });
        for (name, value) in changed.as_object().unwrap() {
            row[name.as_str()] = value.clone();
        }
        row
    }

    fn check(rows: &[Value], expected: &[(PriceTerms, i64)]) -> PriceTable {
        let mut table = PriceTable::default();
        rows.iter().for_each(|changed| read(&row(changed), &known(), "2026-11-27", &mut table));
        let found: Vec<(PriceTerms, i64)> = table.prices().map(|(key, price, _)| (key.2, price.micros)).collect();
        assert_eq!(found, expected, "{rows:?}");
        assert_eq!(table.rows, rows.len());
        table
    }

    #[test]
    fn rows_are_prices_of_their_terms() {
        use PriceTerms::{OnDemand, Reserved1y, Reserved3y, Spot};
        let plans = json!([{ "unitPrice": 1.5, "retailPrice": 1.5, "term": "3 Years" }, { "retailPrice": 2.5, "term": "1 Year" }]);
        check(&[json!({})], &[(OnDemand, 3_673_000)]);
        check(&[json!({ "skuName": "NC24ads A100 v4 Spot", "retailPrice": 0.9 })], &[(Spot, 900_000)]);
        let reserved = json!({ "type": "Reservation", "reservationTerm": "1 Year", "retailPrice": 17520.0 });
        check(std::slice::from_ref(&reserved), &[(Reserved1y, 2_000_000)]);
        let table = check(
            &[json!({ "savingsPlan": plans }), reserved],
            &[(OnDemand, 3_673_000), (Reserved1y, 2_000_000), (Reserved3y, 1_500_000)],
        );
        let derived: Vec<&str> = table.prices().filter_map(|(_, price, _)| price.derived.as_deref()).collect();
        assert_eq!(derived, ["the price of the reservation for its 8760 hours", "a savings plan"]);
        let newer = json!({ "effectiveStartDate": "2026-06-01T00:00:00Z", "retailPrice": 3.0 });
        check(&[newer, json!({})], &[(OnDemand, 3_000_000)]);
        let elsewhere = json!({ "isPrimaryMeterRegion": false, "retailPrice": 9.0 });
        check(&[json!({}), elsewhere], &[(OnDemand, 3_673_000)]);
        for other in [
            json!({ "productName": "Virtual Machines NCADS A100 v4 Series Windows" }),
            json!({ "productName": "Virtual Machines NCCadsv5 Srs Win" }),
            json!({ "skuName": "NC24ads A100 v4 Low Priority" }),
            json!({ "type": "DevTestConsumption" }),
            json!({ "effectiveStartDate": "2027-01-01T00:00:00Z" }),
            json!({ "armRegionName": "usgovvirginia" }),
            json!({ "unitOfMeasure": "1/Month" }),
            json!({ "retailPrice": null }),
            json!({ "type": "Reservation", "reservationTerm": "5 Years" }),
        ] {
            let table = check(&[other], &[]);
            assert_eq!(table.left_out.values().sum::<usize>(), 1);
        }
        let table = check(&[json!({ "armSkuName": "Standard_ND96x_X999" })], &[]);
        assert_eq!(table.unknown.get("Standard_ND96x_X999"), Some(&1));
    }

    #[test]
    fn pages_follow_one_another_and_stay_at_the_api() {
        let check = |link: &'static str, expected: &str| {
            let script = PriceScript::new(move |url, number| {
                let last = url.contains("$skip=2");
                let next = if last { Value::Null } else { link.into() };
                let regions = ["eastus", "westus"];
                let items = [row(&json!({ "armRegionName": regions[number % 2] }))];
                (200, None, json!({ "Items": items, "NextPageLink": next, "Count": 1 }).to_string())
            });
            let fetcher = PriceFetcher { transport: &script, pause: &|_| () };
            let said = match fetch(&fetcher, ENDPOINT, &known(), &[], "2026-11-27") {
                Ok(table) => format!("{} prices", table.len()),
                Err(failure) => failure.to_string(),
            };
            assert!(said.starts_with(expected), "{said}");
            let asked = script.asked.lock().unwrap();
            assert!(asked[0].contains("serviceName%20eq%20%27Virtual%20Machines%27"), "{}", asked[0]);
            asked.len()
        };
        assert_eq!(check("https://prices.azure.com:443/api/retail/prices?$skip=2", "2 prices"), 2);
        let stays = "the answer of Azure Retail Prices API cannot be read: its next page is";
        assert_eq!(check("https://prices.azure.com.example/api/retail/prices?$skip=2", stays), 1);
        assert_eq!(check("http://169.254.169.254/latest", stays), 1);
        // A list without an end: the same page again.
        assert_eq!(check("https://prices.azure.com/api/retail/prices?$skip=1", stays), 2);
    }

    #[test]
    fn only_named_regions_are_asked_for() {
        let script = PriceScript::new(|_, _| (200, None, json!({ "Items": [], "NextPageLink": null }).to_string()));
        let fetcher = PriceFetcher { transport: &script, pause: &|_| () };
        let regions = ["eastus".to_owned(), "o'hare".to_owned()];
        let table = fetch(&fetcher, "http://127.0.0.1:1/", &known(), &regions, "2026-11-27").unwrap();
        assert!(table.is_empty());
        let asked = script.asked.lock().unwrap();
        assert!(asked[0].starts_with("http://127.0.0.1:1/api/retail/prices?api-version="), "{}", asked[0]);
        assert!(asked[0].ends_with("armRegionName%20eq%20%27eastus%27"), "{}", asked[0]);
        assert!(asked[1].ends_with("%27o%27%27hare%27"), "{}", asked[1]);
    }
}
