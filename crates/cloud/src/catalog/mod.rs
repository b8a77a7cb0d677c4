//! The catalog: machines to rent, their prices and hardware; dated, each figure with its source.
//!
//! The tables in `catalog/` at the root of the repository are embedded, so that planning needs no network. They are
//! joined once, when the catalog is read; this module makes no decisions. Money is read as decimal text and stored in
//! integer micro-dollars. Read [`listings`] for the join, and `catalog/README.md` for the source of every table.

pub(crate) mod amount;
pub mod described;
pub mod gpus;
pub mod import;
mod layouts;
mod listings;
mod places;
pub mod refreshed;
pub mod slices;
mod table;
pub mod wanted;

pub use amount::Currency;
pub use places::AvailabilityRow;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use domain::Bytes;
use domain::gpu::Gpu;
use domain::listing::{Cloud, Listing};
use domain::region::Region;
use domain::tariff::{Service, Tariff};
use domain::terms::{Availability, PurchaseOption};

use crate::catalog::amount::micros;
use crate::catalog::gpus::GpuTable;
use crate::catalog::table::rows;

/// The complete catalog.
#[derive(Debug, Clone, PartialEq)]
pub struct Catalog {
    /// Every instance type in every region, in the order of the tables.
    pub listings: Vec<Listing>,
    /// Every GPU that is known, and its spellings.
    pub gpus: GpuTable,
    pub currencies: Vec<Currency>,
    /// In the order of their names.
    pub regions: Vec<Region>,
    pub tariffs: Vec<Tariff>,
    /// Where machine types are available, for clouds that list prices for other regions too; in the order of their names.
    pub availability: BTreeMap<Cloud, Vec<AvailabilityRow>>,
    /// Cloud, region and type of imported listings.
    imported: HashSet<(String, String, String)>,
    /// What a cloud has confirmed with a refreshed price: cloud, region and type, and the terms.
    confirmed: HashSet<((String, String, String), PurchaseOption)>,
    /// Imports in order; later rows override earlier ones, and all override ours.
    pub imports: Vec<import::Import>,
}

/// A table that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A row is wrong.
    #[error("cannot read line {line} of `{file}`: {message}")]
    Row {
        file: String,
        /// Counted from 1.
        line: u64,
        message: String,
        /// The next thing to type.
        hint: Option<String>,
    },
    /// A file is unusable, or cannot be read.
    #[error("cannot {doing} `{file}`: {message}")]
    File {
        doing: &'static str,
        file: String,
        message: String,
        /// The next thing to type.
        hint: Option<String>,
    },
}

impl Error {
    fn row(file: &str, line: u64, message: String) -> Error {
        Error::Row { file: file.to_owned(), line, message, hint: None }
    }

    /// The next thing to type, if known.
    pub fn hint(&self) -> Option<&str> {
        match self {
            Error::Row { hint, .. } | Error::File { hint, .. } => hint.as_deref(),
        }
    }

    /// The same about a file that was imported once: it can be removed.
    fn of_kept(mut self, name: &str) -> Error {
        let (Error::Row { hint, .. } | Error::File { hint, .. }) = &mut self;
        *hint = Some(format!("`gradus catalog forget {}`, and import it again", import::stem(name)));
        self
    }

    /// The same about the newest refresh of a cloud: it can be reverted.
    fn of_refresh(mut self, cloud: &str) -> Error {
        let (Error::Row { hint, .. } | Error::File { hint, .. }) = &mut self;
        *hint = Some(format!("`gradus catalog revert {cloud}`, then `gradus catalog refresh {cloud}`"));
        self
    }
}

/// The texts of the tables.
#[derive(Debug, Clone, Copy)]
struct Texts<'a> {
    gpus: &'a str,
    aliases: &'a str,
    mig: &'a str,
    currencies: &'a str,
    instances: &'a str,
    sparecores: &'a str,
    quotes: &'a str,
    offers: &'a str,
    regions: &'a str,
    region_sources: &'a str,
    tariffs: &'a str,
    availability: &'a str,
}

const EMBEDDED: Texts = Texts {
    gpus: include_str!("../../../../catalog/gpus.csv"),
    aliases: include_str!("../../../../catalog/aliases.csv"),
    mig: include_str!("../../../../catalog/mig.csv"),
    currencies: include_str!("../../../../catalog/currencies.csv"),
    instances: include_str!("../../../../catalog/instances.csv"),
    sparecores: include_str!("../../../../catalog/instances-sparecores.csv"),
    quotes: include_str!("../../../../catalog/quotes.csv"),
    offers: include_str!("../../../../catalog/offers.csv"),
    regions: include_str!("../../../../catalog/regions.csv"),
    region_sources: include_str!("../../../../catalog/regions-sources.csv"),
    tariffs: include_str!("../../../../catalog/tariffs.csv"),
    availability: include_str!("../../../../catalog/availability.csv"),
};

impl Catalog {
    /// The catalog that is part of the program.
    ///
    /// # Errors
    /// [`Error`] when a table of ours is wrong; a test reads them all.
    pub fn embedded() -> Result<Catalog, Error> {
        Catalog::read(&EMBEDDED)
    }

    /// The embedded tables with the refreshed prices of a home, without its imports.
    ///
    /// # Errors
    /// [`Error`] if a refresh cannot be read; `gradus catalog revert` goes back to the one before it.
    pub fn refreshed(home: &Path) -> Result<Catalog, Error> {
        let mut catalog = Catalog::embedded()?;
        catalog.refresh(home)?;
        Ok(catalog)
    }

    /// The catalog of a home: the embedded tables, refreshed prices over them, and imports over both.
    ///
    /// # Errors
    /// [`Error`] if an imported file or a refresh cannot be read; it names the file, and the command that removes it.
    pub fn open(home: &Path) -> Result<Catalog, Error> {
        let mut catalog = Catalog::refreshed(home)?;
        for (name, text) in import::kept(home)? {
            let read = import::again(&name, &text, &catalog).map_err(|error| error.of_kept(&name))?;
            catalog.describe_kept(&read.gpus, &name)?;
            catalog.add(import::Import { name, listings: read.listings.len() }, read.listings);
        }
        Ok(catalog)
    }

    /// Adds listings; they replace those of the same cloud, region and type.
    pub fn add(&mut self, import: import::Import, listings: Vec<Listing>) {
        let mut places: HashMap<_, usize> =
            self.listings.iter().enumerate().map(|(index, listing)| (key(listing), index)).collect();
        for listing in listings {
            self.imported.insert(key(&listing));
            match places.get(&key(&listing)) {
                Some(index) => self.listings[*index] = listing,
                None => {
                    places.insert(key(&listing), self.listings.len());
                    self.listings.push(listing);
                }
            }
        }
        self.imports.push(import);
    }

    fn read(texts: &Texts) -> Result<Catalog, Error> {
        // Where machines stand is read beside what they are: one does not depend on the other.
        std::thread::scope(|scope| {
            let places = scope.spawn(|| -> Result<_, Error> {
                let regions = places::regions(texts.regions, texts.region_sources)?;
                Ok((regions, places::tariffs(texts.tariffs)?, places::availability(texts.availability)?))
            });
            let (gpus, currencies, listings) = Catalog::machines(texts)?;
            let places = places.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            let (regions, tariffs, availability) = places?;
            Ok(Catalog {
                listings,
                gpus,
                currencies,
                regions,
                tariffs,
                availability,
                imported: HashSet::new(),
                confirmed: HashSet::new(),
                imports: Vec::new(),
            })
        })
    }

    /// The tables of machines and their prices.
    fn machines(texts: &Texts) -> Result<(GpuTable, Vec<Currency>, Vec<Listing>), Error> {
        let gpus = GpuTable::read(texts.gpus, texts.aliases, texts.mig)?;
        let mut currencies = Vec::new();
        let columns = ["currency", "per_dollar", "dated", "source"];
        rows("catalog/currencies.csv", texts.currencies, columns, |[code, per_dollar, dated, source]| {
            let per_dollar_micros = micros(per_dollar)?;
            if per_dollar_micros == 0 {
                return Err(format!("`per_dollar`: `{per_dollar}` is nothing"));
            }
            let [code, dated, source] = [code, dated, source].map(str::to_owned);
            currencies.push(Currency { code, per_dollar_micros, dated, source });
            Ok(())
        })?;
        let listings = listings::read(texts, &gpus, &currencies)?;
        Ok((gpus, currencies, listings))
    }

    /// The GPU that a spelling means: `A100`, `a100-80gb`, `NVIDIA H100 80GB HBM3`. Memory, if given, decides between
    /// GPUs of one spelling, and must match; the default is the smallest, as in SkyPilot.
    pub fn gpu(&self, spelling: &str, memory: Option<Bytes>) -> Option<&Gpu> {
        self.gpus.meant(spelling, memory)
    }

    /// A region of a cloud; `None` if it is unknown.
    pub fn region(&self, cloud: &Cloud, name: &str) -> Option<&Region> {
        let first = self.regions.partition_point(|region| region.name.as_str() < name);
        let named = self.regions[first..].iter().take_while(|region| region.name == name);
        named.into_iter().find(|region| region.cloud == *cloud)
    }

    /// Whether a listed machine is actually available under given terms. Everything that lists, compares or recommends
    /// machines uses this. GCP lists prices in regions where a machine is not available, often the lowest ones. An
    /// import is the user's own statement of availability, and so is a refreshed price that the cloud lists only where it
    /// has the machine.
    pub fn availability(&self, listing: &Listing, terms: PurchaseOption) -> Availability {
        if listing.cloud == Cloud::Own || (!self.imported.is_empty() && self.imported.contains(&key(listing))) {
            return Availability::Known;
        }
        if !self.confirmed.is_empty() && self.confirmed.contains(&(key(listing), terms)) {
            return Availability::Known;
        }
        self.says(listing, terms).map_or(Availability::Unknown, |row| row.says(&listing.region))
    }

    /// The availability row for a machine under given terms: the longest matching name wins.
    pub fn says(&self, listing: &Listing, terms: PurchaseOption) -> Option<&AvailabilityRow> {
        let rows = self.availability.get(&listing.cloud)?;
        // What a name starts with stands before it, the longest last.
        let end = rows.partition_point(|row| row.machines <= listing.instance_type);
        let is_named = |row: &&AvailabilityRow| listing.instance_type.starts_with(&row.machines);
        rows[..end].iter().rev().find(|row| is_named(row) && row.terms.contains(&terms))
    }

    /// Whether a listing is one of the user's imports.
    pub fn is_imported(&self, listing: &Listing) -> bool {
        self.imported.contains(&key(listing))
    }

    /// The price of a service of a cloud in a region, or in those without a price of their own; `None` if it is unknown,
    /// which does not mean free.
    pub fn tariff(&self, cloud: &Cloud, region: Option<&str>, service: Service) -> Option<&Tariff> {
        Tariff::of(&self.tariffs, cloud, region, service)
    }
}

/// The key by which a listing is replaced.
fn key(listing: &Listing) -> (String, String, String) {
    (listing.cloud.name().to_owned(), listing.region.clone(), listing.instance_type.clone())
}

#[cfg(test)]
mod tests;
