//! Refreshed prices: what `gradus catalog refresh` has read from a cloud, laid over the tables that ship.
//!
//! Each refresh is a dated file of prices in the home folder, and holds what the file before it of the same cloud held
//! as well. So the newest file of each cloud counts, and to revert one is to go back to the file before it. Hardware
//! stays that of the tables, and what the user has imported replaces both.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::path::{Path, PathBuf};

use domain::Rate;
use domain::listing::{Cloud, Listing, Price};
use domain::terms::PurchaseOption;

use crate::Catalog;
use crate::catalog::amount::micros;
use crate::catalog::table::{self, rows};
use crate::catalog::{Error, import, key};
use crate::rented::rentals::replace;

/// Folder of refreshes, below that of imports.
const FOLDER: &str = "refreshed";

/// Held in that folder while a refresh is stored or reverted.
const LOCK: &str = "lock";

/// The ending of a file that was reverted: it stays, and is not read.
const REVERTED: &str = ".reverted";

/// Columns of a file.
const COLUMNS: [&str; 9] =
    ["cloud", "region", "instance_type", "terms", "usd_per_hour", "dated", "source", "derived", "available"];

/// A kind of price that a listing has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PriceTerms {
    OnDemand,
    Spot,
    /// Reserved for a year.
    Reserved1y,
    /// Reserved for three years.
    Reserved3y,
    Dedicated,
}

impl PriceTerms {
    /// All of them, in the order of the tables.
    pub const ALL: [PriceTerms; 5] =
        [PriceTerms::OnDemand, PriceTerms::Spot, PriceTerms::Reserved1y, PriceTerms::Reserved3y, PriceTerms::Dedicated];

    /// Its name in tables.
    pub fn key(self) -> &'static str {
        match self {
            PriceTerms::OnDemand => "on_demand",
            PriceTerms::Spot => "spot",
            PriceTerms::Reserved1y => "reserved_1y",
            PriceTerms::Reserved3y => "reserved_3y",
            PriceTerms::Dedicated => "dedicated",
        }
    }

    /// Its name for people.
    pub fn word(self) -> &'static str {
        match self {
            PriceTerms::OnDemand => "on demand",
            PriceTerms::Spot => "spot",
            PriceTerms::Reserved1y => "1 year",
            PriceTerms::Reserved3y => "3 years",
            PriceTerms::Dedicated => "dedicated",
        }
    }

    /// The price of a listing under these terms.
    pub fn price(self, listing: &Listing) -> Option<&Price> {
        match self {
            PriceTerms::OnDemand => listing.on_demand.as_ref(),
            PriceTerms::Spot => listing.spot.as_ref(),
            PriceTerms::Reserved1y => listing.reserved_1y.as_ref(),
            PriceTerms::Reserved3y => listing.reserved_3y.as_ref(),
            PriceTerms::Dedicated => listing.dedicated.as_ref(),
        }
    }

    fn set(self, listing: &mut Listing, price: Price) {
        let place = match self {
            PriceTerms::OnDemand => &mut listing.on_demand,
            PriceTerms::Spot => &mut listing.spot,
            PriceTerms::Reserved1y => &mut listing.reserved_1y,
            PriceTerms::Reserved3y => &mut listing.reserved_3y,
            PriceTerms::Dedicated => &mut listing.dedicated,
        };
        *place = Some(price);
    }

    /// The terms by the hour that it is the price of.
    fn option(self) -> Option<PurchaseOption> {
        match self {
            PriceTerms::OnDemand => Some(PurchaseOption::OnDemand),
            PriceTerms::Spot => Some(PurchaseOption::Spot),
            PriceTerms::Dedicated => Some(PurchaseOption::Dedicated),
            PriceTerms::Reserved1y | PriceTerms::Reserved3y => None,
        }
    }
}

/// A price that was read from a cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefreshedPrice {
    pub cloud: Cloud,
    pub region: String,
    pub instance_type: String,
    pub terms: PriceTerms,
    pub price: Price,
    /// Whether the cloud says with it that the region has such machines under these terms.
    pub is_confirmed: bool,
}

/// A refresh in a home.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RefreshFile {
    /// Counted from 1 within a home.
    pub number: u32,
    /// The day of the refresh, `2026-11-27`.
    pub dated: String,
    /// The cloud's name.
    pub cloud: String,
    /// The name of the file.
    pub name: String,
    pub is_reverted: bool,
}

impl RefreshFile {
    /// Reads `0003-2026-11-27-azure.csv`, or the same with `.reverted`.
    fn named(name: &str) -> Option<RefreshFile> {
        let (bare, is_reverted) = match name.strip_suffix(REVERTED) {
            Some(bare) => (bare, true),
            None => (name, false),
        };
        let (number, rest) = bare.strip_suffix(".csv")?.split_once('-')?;
        let (dated, cloud) = rest.split_at_checked("2026-11-27".len())?;
        Some(RefreshFile {
            number: number.parse().ok()?,
            dated: dated.to_owned(),
            cloud: cloud.strip_prefix('-')?.to_owned(),
            name: name.to_owned(),
            is_reverted,
        })
    }
}

/// The folder of the refreshes of a home.
pub fn folder(home: &Path) -> PathBuf {
    home.join(import::FOLDER).join(FOLDER)
}

/// All refreshes of a home, the oldest first, with those that were reverted.
///
/// # Errors
/// [`Error::File`] when the folder cannot be read.
pub fn history(home: &Path) -> Result<Vec<RefreshFile>, Error> {
    let folder = folder(home);
    let entries = match fs::read_dir(&folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(import::failed("read", &folder)(error)),
    };
    let mut files = Vec::new();
    for entry in entries {
        let name = entry.map_err(import::failed("read", &folder))?.file_name();
        files.extend(RefreshFile::named(&name.to_string_lossy()));
    }
    files.sort_by(|one, other| (one.number, &one.name).cmp(&(other.number, &other.name)));
    Ok(files)
}

/// The refresh of each cloud that counts: the newest one that was not reverted.
pub fn newest(files: &[RefreshFile]) -> Vec<&RefreshFile> {
    let mut newest: BTreeMap<&str, &RefreshFile> = BTreeMap::new();
    for file in files.iter().filter(|file| !file.is_reverted) {
        newest.insert(&file.cloud, file);
    }
    newest.into_values().collect()
}

/// The prices of a refresh.
///
/// # Errors
/// [`Error`] with file and line.
pub fn read(home: &Path, file: &RefreshFile) -> Result<Vec<RefreshedPrice>, Error> {
    let path = folder(home).join(&file.name);
    let damaged = |error: Error| error.of_refresh(&file.cloud);
    let text = fs::read_to_string(&path).map_err(import::failed("read", &path)).map_err(damaged)?;
    parse(&path.display().to_string(), &text).map_err(damaged)
}

fn parse(file: &str, text: &str) -> Result<Vec<RefreshedPrice>, Error> {
    let mut prices = Vec::new();
    rows(file, text, COLUMNS, |cells| {
        let [cloud, region, instance_type, terms, amount, dated, source, derived, available] = cells;
        let known = PriceTerms::ALL.into_iter().find(|known| known.key() == terms);
        let rate = micros(amount)?;
        if rate == 0 {
            return Err(format!("`usd_per_hour`: a price of {amount} is no price"));
        }
        prices.push(RefreshedPrice {
            cloud: Cloud::named(cloud),
            region: region.to_owned(),
            instance_type: instance_type.to_owned(),
            terms: known.ok_or_else(|| format!("`terms`: `{terms}` is not known"))?,
            price: Price {
                rate: Rate::from_micros_per_hour(rate),
                dated: dated.to_owned(),
                source: source.to_owned(),
                derived: table::text(derived),
            },
            is_confirmed: available == "yes",
        });
        Ok(())
    })?;
    Ok(prices)
}

fn text(prices: &[RefreshedPrice]) -> String {
    let mut text = COLUMNS.join(",") + "\n";
    for row in prices {
        let micros = row.price.rate.micros_per_hour().unsigned_abs();
        let amount = domain::money::decimal(micros, 6, 6);
        let cells: [&str; 9] = [
            row.cloud.name(),
            &row.region,
            &row.instance_type,
            row.terms.key(),
            &amount,
            &row.price.dated,
            &row.price.source,
            row.price.derived.as_deref().unwrap_or_default(),
            if row.is_confirmed { "yes" } else { "" },
        ];
        text.push_str(&cells.map(import::own::quoted).join(","));
        text.push('\n');
    }
    text
}

/// One change at a time: two at once would take the same number, and lose what the other has read.
fn lock(folder: &Path) -> Result<fs::File, Error> {
    let path = folder.join(LOCK);
    let file = fs::OpenOptions::new().create(true).truncate(false).write(true).open(&path);
    let file = file.map_err(import::failed("open", &path))?;
    file.lock().map_err(import::failed("lock", &path))?;
    Ok(file)
}

/// Stores a refresh of a cloud, together with the prices of the one before it that it has not read again.
///
/// # Errors
/// [`Error`] when the one before it cannot be read, or the folder not be written.
pub fn keep(home: &Path, cloud: &Cloud, dated: &str, new: &[RefreshedPrice]) -> Result<RefreshFile, Error> {
    let folder = folder(home);
    fs::create_dir_all(&folder).map_err(import::failed("make the folder", &folder))?;
    let _one_at_a_time = lock(&folder)?;
    let files = history(home)?;
    let key = |row: &RefreshedPrice| (row.region.clone(), row.instance_type.clone(), row.terms);
    let mut all = BTreeMap::new();
    if let Some(before) = newest(&files).into_iter().find(|file| file.cloud == cloud.name()) {
        all.extend(read(home, before)?.into_iter().map(|row| (key(&row), row)));
    }
    all.extend(new.iter().map(|row| (key(row), row.clone())));
    let all: Vec<RefreshedPrice> = all.into_values().collect();
    let number = files.iter().map(|file| file.number).max().unwrap_or(0) + 1;
    let name = format!("{number:04}-{dated}-{}.csv", cloud.name());
    replace(&folder, &name, text(&all).as_bytes()).map_err(import::failed("write", &folder.join(&name)))?;
    let cloud = cloud.name().to_owned();
    Ok(RefreshFile { number, dated: dated.to_owned(), cloud, name, is_reverted: false })
}

/// Reverts the newest refresh of a cloud, and returns it; none where there is none.
///
/// # Errors
/// [`Error::File`] when the folder cannot be locked, or the file not be renamed.
pub fn revert(home: &Path, cloud: &str) -> Result<Option<RefreshFile>, Error> {
    let folder = folder(home);
    if !folder.is_dir() {
        return Ok(None);
    }
    let _one_at_a_time = lock(&folder)?;
    let files = history(home)?;
    let Some(file) = newest(&files).into_iter().find(|file| file.cloud == cloud) else { return Ok(None) };
    let path = folder.join(&file.name);
    let reverted = format!("{}{REVERTED}", file.name);
    fs::rename(&path, folder.join(&reverted)).map_err(import::failed("rename", &path))?;
    Ok(Some(RefreshFile { name: reverted, is_reverted: true, ..file.clone() }))
}

impl Catalog {
    /// Lays the refreshes of a home over the tables.
    pub(super) fn refresh(&mut self, home: &Path) -> Result<(), Error> {
        let files = history(home)?;
        for file in newest(&files) {
            self.lay(read(home, file)?);
        }
        Ok(())
    }

    /// Lays prices over those of the same cloud, region and type. A known type in a region that is not listed yet gets a
    /// listing there; a type that is not known is ignored.
    pub fn lay(&mut self, prices: Vec<RefreshedPrice>) {
        let mut places: HashMap<_, usize> =
            self.listings.iter().enumerate().map(|(index, listing)| (key(listing), index)).collect();
        let mut machines: HashMap<(String, String), usize> = HashMap::new();
        for (index, listing) in self.listings.iter().enumerate() {
            machines.entry((listing.cloud.name().to_owned(), listing.instance_type.clone())).or_insert(index);
        }
        for RefreshedPrice { cloud, region, instance_type, terms, price, is_confirmed } in prices {
            let name = cloud.name().to_owned();
            let Some(machine) = machines.get(&(name.clone(), instance_type.clone())) else { continue };
            let place = (name, region, instance_type);
            let index = *places.entry(place.clone()).or_insert_with(|| {
                let listing = elsewhere(&self.listings[*machine], &place.1);
                self.listings.push(listing);
                self.listings.len() - 1
            });
            terms.set(&mut self.listings[index], price);
            if let (true, Some(option)) = (is_confirmed, terms.option()) {
                self.confirmed.insert((place, option));
            }
        }
    }
}

/// The same machine in another region, without prices.
fn elsewhere(machine: &Listing, region: &str) -> Listing {
    Listing {
        region: region.to_owned(),
        on_demand: None,
        spot: None,
        reserved_1y: None,
        reserved_3y: None,
        dedicated: None,
        interrupted: None,
        machines: None,
        ..machine.clone()
    }
}
