//! Regions, tariffs and availability: where machines stand, and what bytes cost there.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use domain::Money;
use domain::listing::Cloud;
use domain::region::{Carbon, Compliance, Region};
use domain::tariff::{Service, Tariff};
use domain::terms::{Availability, PurchaseOption};

use crate::catalog::Error;
use crate::catalog::amount::micros;
use crate::catalog::table::{number, rows, text};

/// Reads the regions, sorted by name; `sources` expands the short name of a figure's source.
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
    let columns = ["cloud", "region", "service", "price", "dated", "source"];
    rows("catalog/tariffs.csv", text, columns, |[cloud, region, word, price, dated, source]| {
        let service = Service::ALL.into_iter().find(|service| service.word() == word);
        tariffs.push(Tariff {
            cloud: Cloud::named(cloud),
            region: self::text(region),
            service: service.ok_or_else(|| format!("`service`: `{word}` is not known"))?,
            price: Money::from_micros(micros(price)?),
            dated: dated.to_owned(),
            source: source.to_owned(),
        });
        Ok(())
    })?;
    Ok(tariffs)
}

/// The regions and terms in which a machine type is available.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AvailabilityRow {
    /// How the names of these machines start.
    pub machines: String,
    /// The terms of the row.
    pub terms: Vec<PurchaseOption>,
    /// The regions; `None` if no source lists them.
    pub regions: Option<BTreeSet<String>>,
    /// Where sources contradict each other.
    pub doubtful: BTreeSet<String>,
    pub source: String,
}

impl AvailabilityRow {
    /// The availability in a region.
    pub fn says(&self, region: &str) -> Availability {
        match &self.regions {
            None => Availability::Unknown,
            Some(_) if self.doubtful.contains(region) => Availability::Unknown,
            Some(regions) if regions.contains(region) => Availability::Known,
            Some(_) => Availability::Denied,
        }
    }
}

/// Reads the availability of machines, by cloud, sorted by name. `?` in place of regions means that no source lists them, and after a
/// region that sources contradict each other.
///
/// # Errors
/// [`Error`] with file and line.
pub fn availability(text: &str) -> Result<BTreeMap<Cloud, Vec<AvailabilityRow>>, Error> {
    let mut availability: BTreeMap<Cloud, Vec<AvailabilityRow>> = BTreeMap::new();
    let columns = ["cloud", "machines", "terms", "regions", "source"];
    rows("catalog/availability.csv", text, columns, |[cloud, machines, terms, regions, source]| {
        let terms: Result<Vec<PurchaseOption>, String> = terms.split_whitespace().map(terms_named).collect();
        let (doubtful, named): (Vec<&str>, Vec<&str>) =
            regions.split_whitespace().partition(|region| region.ends_with('?'));
        availability.entry(Cloud::named(cloud)).or_default().push(AvailabilityRow {
            machines: machines.to_owned(),
            terms: terms?,
            regions: (regions != "?").then(|| named.into_iter().map(str::to_owned).collect()),
            doubtful: doubtful.into_iter().map(|region| region.trim_end_matches('?').to_owned()).collect(),
            source: source.to_owned(),
        });
        Ok(())
    })?;
    for rows in availability.values_mut() {
        rows.sort_by(|one, other| one.machines.cmp(&other.machines));
    }
    Ok(availability)
}

fn terms_named(word: &str) -> Result<PurchaseOption, String> {
    let known = PurchaseOption::ALL.into_iter().find(|terms| terms.key() == word);
    known.ok_or_else(|| format!("`terms`: `{word}` is none of `on_demand`, `spot` and `dedicated`"))
}
