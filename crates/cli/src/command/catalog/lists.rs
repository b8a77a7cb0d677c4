//! `gradus catalog gpus` and `catalog regions`: the names that other commands and job files take.

use std::collections::{BTreeMap, BTreeSet};

use cloud::Catalog;
use serde_json::json;

use crate::error::Error;
use crate::error::exit;
use crate::printer::Printer;
use crate::table;

/// Every known GPU with its memory and its number of offers.
///
/// # Errors
/// None today.
pub fn gpus(catalog: &Catalog, printer: &mut Printer) -> Result<u8, Error> {
    let mut rows = Vec::new();
    for gpu in &catalog.gpus.list {
        let offered = catalog.listings.iter().filter(|listing| listing.gpus.name.as_deref() == Some(&*gpu.name));
        let counts: BTreeSet<u32> = offered.clone().map(|listing| listing.gpus.count).collect();
        let (offers, gibibytes) = (offered.count(), gpu.memory.0 as f64 / f64::from(1 << 30));
        if printer.is_json() {
            printer.json(&json!({ "gpu": gpu.name, "memory_gib": gibibytes, "offers": offers, "counts": counts }));
            continue;
        }
        let counts: Vec<String> = counts.iter().filter(|count| **count > 0).map(u32::to_string).collect();
        rows.push(vec![gpu.name.clone(), format!("{gibibytes:.0} GiB"), offers.to_string(), counts.join(", ")]);
    }
    if !printer.is_json() {
        let head = ["GPU", "memory", "offers", "per machine"];
        table::lines(&head, &rows).into_iter().for_each(|line| printer.data(line));
    }
    Ok(exit::DONE)
}

/// Every region with offers, by cloud.
///
/// # Errors
/// None today.
pub fn regions(catalog: &Catalog, printer: &mut Printer) -> Result<u8, Error> {
    let mut offers: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for listing in &catalog.listings {
        *offers.entry((listing.cloud.name(), &listing.region)).or_default() += 1;
    }
    let mut rows = Vec::new();
    for ((cloud, name), offers) in offers {
        let known = catalog.region(&domain::listing::Cloud::named(cloud), name);
        let country = known.map(|region| region.country.clone()).filter(|country| !country.is_empty());
        let rules: Vec<&str> = known.iter().flat_map(|region| &region.compliance).map(|rule| rule.word()).collect();
        if printer.is_json() {
            printer.json(&json!({
                "cloud": cloud, "region": name, "country": country, "compliance": rules, "offers": offers
            }));
            continue;
        }
        let country = country.unwrap_or_else(|| "-".to_owned());
        rows.push(vec![cloud.to_owned(), name.to_owned(), country, offers.to_string(), rules.join(", ")]);
    }
    if !printer.is_json() {
        let head = ["cloud", "region", "country", "offers", "compliance"];
        table::lines(&head, &rows).into_iter().for_each(|line| printer.data(line));
    }
    Ok(exit::DONE)
}
