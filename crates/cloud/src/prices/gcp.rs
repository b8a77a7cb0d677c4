//! Google's Cloud Billing catalog: prices of parts in pages, with an API key or a token
//! (<https://cloud.google.com/billing/v1/how-tos/catalog-api>).
//!
//! It has no price of a machine. One is added up from what its cores, memory, GPUs and, for A2 Ultra, local disks cost in
//! its region; where a part is missing, costs nothing, or has two prices, the machine is left out. A part holds for whole
//! groups of regions, whether they have the machine or not, so no price confirms that a region has it.

mod parts;

use domain::listing::{Cloud, Listing};
use serde::Deserialize;
use serde_json::Value;

use super::amount::of_nanos;
use super::fetch::{PriceFailure, PriceFetcher};
use super::{PriceTable, StatedPrice};
use crate::Catalog;
use crate::aws::wire::HttpRequest;
use crate::aws::wire::query::word;
use crate::catalog::refreshed::PriceTerms;
use parts::{MachinePart, PartKind, gpus, is_core, parts_of, plain};

/// Where the API is.
pub const ENDPOINT: &str = "https://cloudbilling.googleapis.com";

/// The API for people, and the source of its prices.
const SOURCE: &str = "Cloud Billing catalog";

/// The number of Compute Engine among Google's services.
const SERVICE: &str = "6F81-5844-456A";

/// Pages of 5,000 parts that are read at most; there are some ten.
const PAGES: usize = 100;

/// Hours of the month by which local disks are billed.
const MONTH: i128 = 730;

#[derive(Deserialize)]
struct Page {
    skus: Vec<Value>,
    #[serde(rename = "nextPageToken", default)]
    next: String,
}

/// How Google is asked: the headers of an API key, or of a token with the project that the quota is of.
pub enum GcpAccess {
    Key(String),
    Token { token: String, project: Option<String> },
}

impl GcpAccess {
    fn headers(&self) -> Vec<(String, String)> {
        match self {
            GcpAccess::Key(key) => vec![("x-goog-api-key".to_owned(), key.clone())],
            GcpAccess::Token { token, project } => {
                let mut headers = vec![("authorization".to_owned(), format!("Bearer {token}"))];
                headers.extend(project.clone().map(|project| ("x-goog-user-project".to_owned(), project)));
                headers
            }
        }
    }
}

/// Reads the prices of the machines that the catalog lists, in all its regions or in those that are named.
///
/// # Errors
/// [`PriceFailure`].
pub fn fetch(
    fetcher: &PriceFetcher<'_>,
    endpoint: &str,
    access: &GcpAccess,
    catalog: &Catalog,
    regions: &[String],
) -> Result<PriceTable, PriceFailure> {
    let (mut table, mut skus, mut token) = (PriceTable::default(), Vec::new(), String::new());
    let endpoint = endpoint.trim_end_matches('/');
    for _ in 0..PAGES {
        let mut url = format!("{endpoint}/v1/services/{SERVICE}/skus?currencyCode=USD&pageSize=5000");
        if !token.is_empty() {
            url.push_str(&format!("&pageToken={}", word(&token)));
        }
        let request = HttpRequest { method: "GET", url, headers: access.headers(), body: Vec::new() };
        let page: Page = fetcher.page(SOURCE, &request)?;
        table.rows += page.skus.len();
        skus.extend(page.skus.iter().filter_map(sku));
        token = page.next;
        if token.is_empty() {
            let is_wanted = |listing: &&Listing| {
                listing.cloud == Cloud::Gcp && (regions.is_empty() || regions.contains(&listing.region))
            };
            catalog.listings.iter().filter(is_wanted).for_each(|listing| add(listing, &skus, &mut table));
            unknown(&skus, &mut table);
            return Ok(table);
        }
    }
    Err(PriceFailure::TooLong { from: SOURCE.to_owned(), most: format!("{PAGES} pages") })
}

/// What a part costs.
struct Sku {
    description: String,
    /// The same as [`plain`] writes it.
    words: String,
    kind: PartKind,
    terms: PriceTerms,
    regions: Vec<String>,
    currency: String,
    /// Billionths per unit: an hour of a core, of a GiB of memory, of a GPU, or a month of a GiB of disk.
    nanos: i128,
}

/// Words of prices that are not those of a machine as it is rented by the hour, or with a commitment.
const OTHERS: [&str; 9] =
    ["custom", "reserved", "sole tenancy", "premium", "overcommit", "dws", "calendar", "flex start", "upgrade"];

/// Reads a part; none where it is no part of a machine with GPUs, or its price is not understood.
fn sku(value: &Value) -> Option<Sku> {
    let category = &value["category"];
    let kind = PartKind::of(category["resourceGroup"].as_str()?)?;
    let terms = match category["usageType"].as_str()? {
        "OnDemand" => PriceTerms::OnDemand,
        "Preemptible" => PriceTerms::Spot,
        "Commit1Yr" => PriceTerms::Reserved1y,
        "Commit3Yr" => PriceTerms::Reserved3y,
        _ => return None,
    };
    let description = value["description"].as_str()?.to_owned();
    let lower = description.to_lowercase();
    if OTHERS.iter().any(|other| lower.contains(other)) {
        return None;
    }
    let words = plain(&description);
    if matches!(kind, PartKind::Cores | PartKind::Memory) && !is_core(&words) {
        return None;
    }
    // A timeline, of which the last price holds; a price for all amounts is one without steps.
    let expression = &value["pricingInfo"].as_array()?.last()?["pricingExpression"];
    if expression["usageUnit"].as_str()? != kind.unit() {
        return None;
    }
    let [rate] = &expression["tieredRates"].as_array()?[..] else { return None };
    let price = &rate["unitPrice"];
    let units = match &price["units"] {
        Value::String(units) => units.parse::<i64>().ok()?,
        units => units.as_i64().unwrap_or(0),
    };
    let nanos = i128::from(units) * 1_000_000_000 + i128::from(price["nanos"].as_i64().unwrap_or(0));
    let regions = value["serviceRegions"].as_array()?.iter().filter_map(|region| Some(region.as_str()?.to_owned()));
    let currency = price["currencyCode"].as_str().unwrap_or("USD").to_owned();
    Some(Sku { description, words, kind, terms, regions: regions.collect(), currency, nanos })
}

/// Adds the prices of a machine in its region, under each of the terms whose parts are all there.
fn add(listing: &Listing, skus: &[Sku], table: &mut PriceTable) {
    let Some(parts) = parts_of(listing) else {
        return table.leave_out("machines whose parts are not known");
    };
    for terms in [PriceTerms::OnDemand, PriceTerms::Spot, PriceTerms::Reserved1y, PriceTerms::Reserved3y] {
        let found: Vec<&Sku> =
            skus.iter().filter(|sku| sku.terms == terms && sku.regions.contains(&listing.region)).collect();
        let Some(costs) = parts.iter().map(|part| cost(part, &found)).collect::<Option<Vec<_>>>() else {
            table.leave_out(&format!("{}: a part has no price, or two", terms.word()));
            continue;
        };
        let currencies: Vec<&str> = costs.iter().map(|(_, currency)| *currency).collect();
        let currency = currencies.iter().find(|code| **code != "USD").copied().unwrap_or("USD");
        let price = StatedPrice {
            micros: of_nanos(costs.iter().map(|(nanos, _)| nanos).sum()),
            currency: currency.to_owned(),
            source: format!("{SOURCE}, parts added up"),
            derived: None,
            is_confirmed: false,
        };
        table.add((listing.region.clone(), listing.instance_type.clone(), terms), "", price);
    }
}

/// What a part of a machine costs in an hour, in billionths, and in which currency.
fn cost<'a>(part: &MachinePart, skus: &[&'a Sku]) -> Option<(i128, &'a str)> {
    let mut matching = skus.iter().filter(|sku| sku.kind == part.kind && part.is_meant(&sku.words));
    let first = matching.next()?;
    let has_other = matching.any(|other| (other.nanos, &other.currency) != (first.nanos, &first.currency));
    // A part without a price reads as one that costs nothing, and a machine would look cheap by it.
    if first.nanos <= 0 || has_other {
        return None;
    }
    let nanos = first.nanos * i128::from(part.count);
    let hourly = if part.kind == PartKind::LocalDisk { (nanos + MONTH / 2).div_euclid(MONTH) } else { nanos };
    Some((hourly, first.currency.as_str()))
}

/// Counts GPUs by the hour that no machine with known parts has.
fn unknown(skus: &[Sku], table: &mut PriceTable) {
    let gpus = gpus();
    for sku in skus.iter().filter(|sku| sku.kind == PartKind::Gpu && sku.terms == PriceTerms::OnDemand) {
        if !gpus.iter().any(|gpu| gpu.is_meant(&sku.words)) {
            table.unknown(sku.description.split(" running in").next().unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests;
