//! Regions, tariffs and availability: where machines stand, and what bytes cost there.

use std::collections::{BTreeSet, HashMap};

use domain::Money;
use domain::listing::Cloud;
use domain::region::{Carbon, Compliance, Region};
use domain::tariff::{Service, Tariff};

use crate::catalog::Error;
use crate::catalog::amount::micros;
use crate::catalog::table::{number, rows};

/// Reads the regions, in the order of their names; `sources` says what stands behind the short name of a figure's source.
///
/// # Errors
/// [`Error`] with file and line.
pub fn regions(text: &str, sources: &str) -> Result<Vec<Region>, Error> {
    let mut known: HashMap<String, (String, String)> = HashMap::new();
    rows("catalog/regions-sources.csv", sources, ["key", "dated", "source"], |[key, dated, source]| {
        known.insert(key.to_owned(), (dated.to_owned(), source.to_owned()));
        Ok(())
    })?;
    let mut regions = Vec::new();
    let columns = ["cloud", "region", "country", "place", "compliance", "carbon_g_kwh", "carbon_source"];
    rows("catalog/regions.csv", text, columns, |[cloud, name, country, place, compliance, grams, source]| {
        let carbon = match number("carbon_g_kwh", grams)? {
            None => None,
            Some(grams_per_kwh) => {
                let (dated, source) = known.get(source).ok_or_else(|| format!("no source `{source}`"))?.clone();
                Some(Carbon { grams_per_kwh, dated, source })
            }
        };
        let compliance: Result<Vec<Compliance>, String> = compliance.split_whitespace().map(str::parse).collect();
        regions.push(Region {
            cloud: Cloud::named(cloud),
            name: name.to_owned(),
            country: country.to_owned(),
            place: place.to_owned(),
            compliance: compliance?,
            carbon,
        });
        Ok(())
    })?;
    regions.sort_by(|one: &Region, other: &Region| one.name.cmp(&other.name));
    Ok(regions)
}

/// Reads the tariffs.
///
/// # Errors
/// [`Error`] with file and line.
pub fn tariffs(text: &str) -> Result<Vec<Tariff>, Error> {
    let mut tariffs = Vec::new();
    let columns = ["cloud", "service", "price", "dated", "source"];
    rows("catalog/tariffs.csv", text, columns, |[cloud, word, price, dated, source]| {
        let service = Service::ALL.into_iter().find(|service| service.word() == word);
        tariffs.push(Tariff {
            cloud: Cloud::named(cloud),
            service: service.ok_or_else(|| format!("`service`: `{word}` is not known"))?,
            price: Money::from_micros(micros(price)?),
            dated: dated.to_owned(),
            source: source.to_owned(),
        });
        Ok(())
    })?;
    Ok(tariffs)
}

/// Where a kind of machine can be had.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Availability {
    pub cloud: Cloud,
    /// How the names of these machines start.
    pub machines: String,
    /// Everywhere that has them.
    pub regions: BTreeSet<String>,
    pub source: String,
}

/// Reads where machines can be had.
///
/// # Errors
/// [`Error`] with file and line.
pub fn availability(text: &str) -> Result<Vec<Availability>, Error> {
    let mut availability = Vec::new();
    let columns = ["cloud", "machines", "regions", "source"];
    rows("catalog/availability.csv", text, columns, |[cloud, machines, regions, source]| {
        availability.push(Availability {
            cloud: Cloud::named(cloud),
            machines: machines.to_owned(),
            regions: regions.split_whitespace().map(str::to_owned).collect(),
            source: source.to_owned(),
        });
        Ok(())
    })?;
    Ok(availability)
}
