//! Filters of listings. An unknown name is an error that suggests the nearest known ones, so that a typo never looks
//! like an empty market.

use std::collections::{BTreeMap, BTreeSet};

use domain::Rate;
use domain::accelerators::{AcceleratorKind, Accelerators, GpuPart};
use domain::file::nearest::nearest;
use domain::listing::{Cloud, Listing, Price};
use domain::region::Compliance;
use domain::terms::PurchaseOption;

use crate::Catalog;

/// A filter of listings. Empty lists and `None` match everything.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Wanted {
    pub gpu: Option<Accelerators>,
    pub clouds: Vec<String>,
    /// Names of regions, with `*` at the end for all that start so, or two letters of a country.
    pub regions: Vec<String>,
    /// The region must have them all.
    pub compliance: Vec<Compliance>,
    /// The market whose prices are compared.
    pub market: Market,
    /// Of the complete machine.
    pub max_price: Option<Rate>,
}

/// Which of a listing's prices counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Market {
    #[default]
    OnDemand,
    Spot,
}

/// A name that does not occur in the catalog.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no {what} `{word}` is known{}", because.as_ref().map(|why| format!(": {why}")).unwrap_or_default())]
pub struct Unknown {
    /// `GPU`, `cloud` or `region`.
    pub what: &'static str,
    pub word: String,
    /// Why it is not in the catalog, if known.
    pub because: Option<String>,
    /// Suggestions, nearest first.
    pub nearest: Vec<String>,
}

impl Unknown {
    /// What to type instead.
    pub fn hint(&self) -> String {
        let near: Vec<String> = self.nearest.iter().map(|word| format!("`{word}`")).collect();
        let near = near.join(", ");
        // All clouds are named; of the others those that are like the word.
        let list = match self.what {
            "GPU" => "`gradus catalog gpus` lists all",
            "region" => "`gradus catalog regions` lists all",
            "cloud" if Cloud::named(&self.word) == Cloud::Own => {
                return "import your machines: `gradus catalog import FILE.csv --cloud own`, a table with the columns \
                        `region,instance_type,gpu,gpu_count,on_demand`"
                    .to_owned();
            }
            _ => return format!("known are {near}"),
        };
        match near.is_empty() {
            true => list.to_owned(),
            false => format!("known are {near} and more: {list}"),
        }
    }
}

impl Market {
    /// The terms whose price is compared.
    pub fn terms(self) -> PurchaseOption {
        match self {
            Market::OnDemand => PurchaseOption::OnDemand,
            Market::Spot => PurchaseOption::Spot,
        }
    }

    /// The price that counts.
    pub fn price(self, listing: &Listing) -> Option<&Price> {
        self.terms().price(listing)
    }
}

impl Wanted {
    /// Checks that every name is known.
    ///
    /// # Errors
    /// [`Unknown`], for the first unknown name.
    pub fn check(&self, catalog: &Catalog) -> Result<(), Unknown> {
        if let Some(Accelerators { kind: AcceleratorKind::Named(name), .. }) = &self.gpu
            && catalog.gpus_named(name).is_empty()
            && !catalog.listings.iter().any(|listing| listing.gpus.spelled.eq_ignore_ascii_case(name))
        {
            let known = catalog.gpus.list.iter().map(|gpu| gpu.name.as_str());
            let because = catalog.gpus.left_out(name).map(str::to_owned);
            return Err(Unknown { because, ..unknown("GPU", name, known) });
        }
        let clouds: BTreeSet<&str> = catalog.listings.iter().map(|listing| listing.cloud.name()).collect();
        for word in &self.clouds {
            if !clouds.contains(Cloud::named(word).name()) {
                let is_own = Cloud::named(word) == Cloud::Own;
                return Err(Unknown {
                    because: is_own.then(|| "no machine of yours was imported".to_owned()),
                    nearest: clouds.iter().map(|name| (*name).to_owned()).collect(),
                    ..unknown("cloud", word, [])
                });
            }
        }
        for word in &self.regions {
            let found = catalog.listings.iter().any(|listing| catalog.stands_in(listing, word));
            if !found {
                return Err(self.unknown_region(catalog, word));
            }
        }
        Ok(())
    }

    /// An unknown region. If no name is similar, suggests those with most machines of the requested clouds.
    fn unknown_region(&self, catalog: &Catalog, word: &str) -> Unknown {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        let wanted = |listing: &&Listing| {
            self.clouds.is_empty() || self.clouds.iter().any(|name| Cloud::named(name) == listing.cloud)
        };
        // A region without a price could be typed and would not help.
        for listing in catalog.listings.iter().filter(wanted).filter(|listing| listing.on_demand.is_some()) {
            *counts.entry(&listing.region).or_default() += 1;
        }
        let mut unknown = unknown("region", word, counts.keys().copied());
        // Two common letters mean nothing for a region; a complete component does, such as `eu` of `eu-moon-1`.
        let part = |name: &str| name.split(['-', '*']).next().unwrap_or_default().to_ascii_lowercase();
        let first = nearest(word, unknown.nearest.iter().map(String::as_str)).map(str::to_owned);
        unknown.nearest.retain(|name| Some(name) == first.as_ref() || part(name) == part(word));
        if unknown.nearest.is_empty() {
            let mut largest: Vec<(&str, usize)> = counts.into_iter().collect();
            largest.sort_by_key(|(name, count)| (std::cmp::Reverse(*count), *name));
            unknown.nearest = largest.into_iter().take(NAMED).map(|(name, _)| name.to_owned()).collect();
        }
        unknown
    }

    /// Whether a listing matches, regardless of its price.
    pub fn admits(&self, catalog: &Catalog, listing: &Listing) -> bool {
        let cloud = self.clouds.is_empty() || self.clouds.iter().any(|name| Cloud::named(name) == listing.cloud);
        cloud
            && (self.regions.is_empty() || self.regions.iter().any(|word| catalog.stands_in(listing, word)))
            && self.gpu.as_ref().is_none_or(|gpu| catalog.has(listing, gpu))
            && (self.compliance.is_empty() || self.complies(catalog, listing))
    }

    /// Whether its price is known and low enough.
    pub fn affords(&self, listing: &Listing) -> bool {
        self.market.price(listing).is_some_and(|price| self.max_price.is_none_or(|most| price.rate <= most))
    }

    fn complies(&self, catalog: &Catalog, listing: &Listing) -> bool {
        let region = catalog.region(&listing.cloud, &listing.region);
        region.is_some_and(|region| self.compliance.iter().all(|needed| region.compliance.contains(needed)))
    }
}

impl Catalog {
    /// Every GPU that a spelling may mean: `A100` is four of them, `A100-80GB` two.
    pub fn gpus_named(&self, spelling: &str) -> Vec<&str> {
        let mut named: Vec<&str> = self.gpus.candidates(spelling).iter().map(|gpu| gpu.name.as_str()).collect();
        if named.is_empty() {
            named.extend(self.gpu(spelling, None).map(|gpu| gpu.name.as_str()));
        }
        named
    }

    /// The names of the GPUs, or slices of them, that a request may mean.
    pub fn names_of(&self, name: &str, part: Option<&GpuPart>) -> Vec<&str> {
        match part {
            None => self.gpus_named(name),
            Some(part) => self.gpus.parts(name, part).into_iter().map(|slice| slice.gpu.name.as_str()).collect(),
        }
    }

    /// Whether a listing has the requested GPUs. A fractional GPU does not count.
    pub fn has(&self, listing: &Listing, wanted: &Accelerators) -> bool {
        let gpus = &listing.gpus;
        if wanted.count.is_some_and(|count| gpus.count != count || gpus.slice != 1) {
            return false;
        }
        match (&wanted.kind, &gpus.name) {
            (AcceleratorKind::Named(name), Some(known)) => {
                self.names_of(name, wanted.part.as_ref()).contains(&known.as_str())
            }
            (AcceleratorKind::Named(name), None) => wanted.part.is_none() && gpus.spelled.eq_ignore_ascii_case(name),
            (AcceleratorKind::Memory { memory, or_more }, _) => {
                gpus.memory.is_some_and(|own| own == *memory || (*or_more && own > *memory))
            }
        }
    }

    /// Whether a listing stands in a region: by its name, the start of it with `*`, or its country's two letters.
    fn stands_in(&self, listing: &Listing, word: &str) -> bool {
        if let Some(start) = word.strip_suffix('*') {
            return listing.region.starts_with(start);
        }
        listing.region.eq_ignore_ascii_case(word)
            || (word.len() == 2
                && self
                    .region(&listing.cloud, &listing.region)
                    .is_some_and(|region| region.country.eq_ignore_ascii_case(word)))
    }
}

/// Names that a hint holds at most.
const NAMED: usize = 6;

/// Suggestions: names with a common prefix, and the nearest by edit distance.
fn unknown<'a>(what: &'static str, word: &str, known: impl IntoIterator<Item = &'a str>) -> Unknown {
    let known: Vec<&str> = known.into_iter().collect();
    let mut near: Vec<String> = nearest(word, known.iter().copied()).map(str::to_owned).into_iter().collect();
    let start: String = word.to_ascii_lowercase().chars().take(2).collect();
    for name in known.iter().filter(|name| start.len() == 2 && name.to_ascii_lowercase().starts_with(&start)) {
        if near.len() < NAMED && !near.iter().any(|other| other == name) {
            near.push((*name).to_owned());
        }
    }
    Unknown { what, word: word.to_owned(), because: None, nearest: near }
}
