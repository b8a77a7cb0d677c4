//! AWS's price list of EC2: one public JSON file per region, of some hundred megabytes, read as it comes
//! (<https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/price-changes.html>); and spot prices, for which
//! `DescribeSpotPriceHistory` is asked with the user's credentials.
//!
//! The file has products, then the terms of each by its key (`sku`). Only products that are a Linux machine by the hour
//! are remembered. Capacity blocks look the same but for `marketoption`, and cost 0 there.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::io::{BufReader, Read};

use domain::Rate;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, Visitor};

use super::amount::signed_micros;
use super::fetch::{PriceFailure, PriceFetcher};
use super::{KnownTypes, PriceTable, StatedPrice};
use crate::aws::Client;
use crate::aws::wire::HttpRequest;
use crate::aws::wire::answers::{SpotPrices, SpotQuote};
use crate::aws::wire::failure::AwsFailure;
use crate::aws::wire::query::{describe_spot_prices, word};
use crate::catalog::refreshed::PriceTerms;

/// Where the price list is.
pub const ENDPOINT: &str = "https://pricing.us-east-1.amazonaws.com";

/// The price list for people, and the source of its prices.
const SOURCE: &str = "AWS price list";

/// The source of spot prices.
const SPOT_SOURCE: &str = "EC2 DescribeSpotPriceHistory";

/// Bytes of the file of a region that are read at most.
const LONGEST: u64 = 4 << 30;

/// Pages of spot prices that are read at most.
const PAGES: usize = 100;

/// Reads the price list of a region.
///
/// # Errors
/// [`PriceFailure`].
pub fn fetch(
    fetcher: &PriceFetcher<'_>,
    endpoint: &str,
    known: &KnownTypes,
    region: &str,
) -> Result<PriceTable, PriceFailure> {
    let endpoint = endpoint.trim_end_matches('/');
    let url = format!("{endpoint}/offers/v1.0/aws/AmazonEC2/current/{}/index.json", word(region));
    let request = HttpRequest { method: "GET", url, headers: Vec::new(), body: Vec::new() };
    let read = |reader: &mut dyn Read| -> Result<PriceTable, serde_json::Error> {
        let mut list = PriceList { known, region, products: HashMap::new(), table: PriceTable::default() };
        let mut json = serde_json::Deserializer::from_reader(BufReader::with_capacity(1 << 17, reader));
        Part { list: &mut list, level: Level::File }.deserialize(&mut json)?;
        json.end()?;
        Ok(list.table)
    };
    fetcher.get(&format!("{SOURCE} of {region}"), &request, LONGEST, read)
}

/// What is remembered while a file is read.
struct PriceList<'a> {
    known: &'a KnownTypes,
    region: &'a str,
    /// The machine type of each product that counts, by its key.
    products: HashMap<String, String>,
    table: PriceTable,
}

/// An object of the file.
struct Part<'a, 'b> {
    list: &'a mut PriceList<'b>,
    level: Level,
}

/// Which object it is.
#[derive(Clone, Copy)]
enum Level {
    File,
    Products,
    Terms,
    /// Terms by the key of their product: on demand, or reserved.
    Offers {
        is_reserved: bool,
    },
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Product {
    product_family: String,
    attributes: Attributes,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Attributes {
    instance_type: String,
    operating_system: String,
    tenancy: String,
    pre_installed_sw: String,
    capacitystatus: String,
    license_model: String,
    marketoption: String,
    location_type: String,
    /// How many GPUs, if any.
    gpu: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Offer {
    price_dimensions: BTreeMap<String, Dimension>,
    term_attributes: TermAttributes,
    effective_date: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Dimension {
    unit: String,
    price_per_unit: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct TermAttributes {
    lease_contract_length: String,
    offering_class: String,
    purchase_option: String,
}

impl<'de> DeserializeSeed<'de> for Part<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for Part<'_, '_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("an object of the price list")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let Part { list, level } = self;
        let (mut has_products, mut has_terms) = (false, false);
        while let Some(key) = map.next_key::<String>()? {
            match (level, key.as_str()) {
                (Level::File, "products") => {
                    has_products = true;
                    map.next_value_seed(Part { list: &mut *list, level: Level::Products })?;
                }
                (Level::File, "terms") if !has_products => {
                    return Err(A::Error::custom("`terms` stands before `products`"));
                }
                (Level::File, "terms") => {
                    has_terms = true;
                    map.next_value_seed(Part { list: &mut *list, level: Level::Terms })?;
                }
                (Level::Terms, "OnDemand" | "Reserved") => {
                    let level = Level::Offers { is_reserved: key == "Reserved" };
                    map.next_value_seed(Part { list: &mut *list, level })?;
                }
                (Level::Products, _) => {
                    let product: Product = map.next_value()?;
                    list.product(&key, &product);
                }
                (Level::Offers { is_reserved }, _) if list.products.contains_key(&key) => {
                    let offers: BTreeMap<String, Offer> = map.next_value()?;
                    offers.values().for_each(|offer| list.offer(&key, is_reserved, offer));
                }
                (Level::File | Level::Terms | Level::Offers { .. }, _) => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        match level {
            Level::File if !(has_products && has_terms) => Err(A::Error::custom("it has no `products` and `terms`")),
            Level::File | Level::Products | Level::Terms | Level::Offers { .. } => Ok(()),
        }
    }
}

impl PriceList<'_> {
    /// Remembers a product, if it is a machine that the catalog knows, as it is rented.
    fn product(&mut self, sku: &str, product: &Product) {
        let Attributes { instance_type, gpu, .. } = &product.attributes;
        if !is_machine(product) {
            return;
        }
        self.table.rows += 1;
        if self.known.contains_key(instance_type) {
            self.products.insert(sku.to_owned(), instance_type.clone());
        } else if matches!(gpu.as_str(), "" | "0" | "NA") {
            self.table.leave_out("machines without GPUs");
        } else {
            self.table.unknown(instance_type);
        }
    }

    fn offer(&mut self, sku: &str, is_reserved: bool, offer: &Offer) {
        let Some(machine) = self.products.get(sku) else { return };
        let terms = &offer.term_attributes;
        let (terms, derived) = match (is_reserved, terms.lease_contract_length.as_str()) {
            (false, _) => (PriceTerms::OnDemand, None),
            _ if terms.offering_class != "standard" || terms.purchase_option != "No Upfront" => return,
            (true, "1yr") => (PriceTerms::Reserved1y, Some("nothing paid in advance")),
            (true, "3yr") => (PriceTerms::Reserved3y, Some("nothing paid in advance")),
            (true, _) => return,
        };
        let hourly = offer.price_dimensions.values().find(|dimension| dimension.unit.eq_ignore_ascii_case("hrs"));
        let amounts = hourly.map(|hourly| &hourly.price_per_unit);
        let dollars = amounts.and_then(|amounts| amounts.get_key_value("USD").or_else(|| amounts.iter().next()));
        let Some((currency, micros)) = dollars.and_then(|(code, text)| Some((code, signed_micros(text)?))) else {
            return self.table.leave_out("not a price of one hour");
        };
        let price = StatedPrice {
            micros,
            currency: currency.clone(),
            source: SOURCE.to_owned(),
            derived: derived.map(str::to_owned),
            is_confirmed: true,
        };
        let key = |terms| (self.region.to_owned(), machine.clone(), terms);
        // The catalog has bare metal as machines that nobody shares, too.
        if terms == PriceTerms::OnDemand && machine.contains(".metal") {
            self.table.add(key(PriceTerms::Dedicated), &offer.effective_date, price.clone());
        }
        self.table.add(key(terms), &offer.effective_date, price);
    }
}

/// Whether a product is a Linux machine by the hour, shared with others, without software to pay for.
fn is_machine(product: &Product) -> bool {
    let Attributes { operating_system, tenancy, pre_installed_sw, capacitystatus, license_model, .. } =
        &product.attributes;
    let Attributes { marketoption, location_type, .. } = &product.attributes;
    product.product_family.starts_with("Compute Instance")
        && operating_system == "Linux"
        && tenancy == "Shared"
        && pre_installed_sw == "NA"
        && capacitystatus == "Used"
        && license_model == "No License required"
        && matches!(marketoption.as_str(), "" | "OnDemand")
        && matches!(location_type.as_str(), "" | "AWS Region")
}

/// Reads what machine types cost as spot machines in a region since `now`, as AWS writes times: the price of the cheapest
/// zone. The types must be those of the region.
///
/// # Errors
/// [`AwsFailure`].
pub fn spot(client: &Client, types: &[&str], region: &str, now: &str) -> Result<PriceTable, AwsFailure> {
    let mut table = PriceTable::default();
    let newest = newest(client, types, region, now, |_| table.rows += 1)?;
    cheapest(newest, types, region, &mut table);
    Ok(table)
}

/// What machine types cost as spot machines since `now` in each zone of a region, by type and zone.
///
/// # Errors
/// [`AwsFailure`].
pub fn zone_prices(
    client: &Client,
    types: &[&str],
    region: &str,
    now: &str,
) -> Result<BTreeMap<(String, String), Rate>, AwsFailure> {
    let newest = newest(client, types, region, now, |_| ())?;
    let priced = newest.into_iter().filter_map(|(place, (_, amount))| {
        let micros = signed_micros(&amount).filter(|micros| *micros > 0)?;
        Some((place, Rate::from_micros_per_hour(micros)))
    });
    Ok(priced.collect())
}

/// Time and price of the newest quote of each type and zone.
type NewestQuotes = BTreeMap<(String, String), (String, String)>;

/// Reads all pages; `count` hears of each quote.
fn newest(
    client: &Client,
    types: &[&str],
    region: &str,
    now: &str,
    mut count: impl FnMut(&SpotQuote),
) -> Result<NewestQuotes, AwsFailure> {
    let mut newest = NewestQuotes::new();
    let mut page: Option<String> = None;
    for _ in 0..PAGES {
        let answer: SpotPrices = client.ask(region, &describe_spot_prices(types, now, page.as_deref()))?;
        for quote in answer.spot_price_history_set.item {
            count(&quote);
            let place = (quote.instance_type, quote.availability_zone);
            let is_newer = newest.get(&place).is_none_or(|(since, _)| *since < quote.timestamp);
            if is_newer {
                newest.insert(place, (quote.timestamp, quote.spot_price));
            }
        }
        page = Some(answer.next_token).filter(|token| !token.is_empty());
        if page.is_none() {
            return Ok(newest);
        }
    }
    Err(AwsFailure::Doubt(format!("the list of spot prices of `{region}` has no end")))
}

fn cheapest(newest: NewestQuotes, types: &[&str], region: &str, table: &mut PriceTable) {
    let mut zones: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for ((machine, _), (_, amount)) in newest {
        match signed_micros(&amount) {
            Some(_) if !types.contains(&machine.as_str()) => table.unknown(&machine),
            Some(micros) => zones.entry(machine).or_default().push(micros),
            None => table.leave_out("not a price of one hour"),
        }
    }
    for (machine, amounts) in zones {
        let Some(micros) = amounts.iter().min().copied() else { continue };
        let source = match amounts.len() {
            1 => SPOT_SOURCE.to_owned(),
            zones => format!("{SPOT_SOURCE}, the cheapest of {zones} zones"),
        };
        let price = StatedPrice { micros, currency: "USD".to_owned(), source, derived: None, is_confirmed: true };
        table.add((region.to_owned(), machine, PriceTerms::Spot), "", price);
    }
}

#[cfg(test)]
mod tests;
