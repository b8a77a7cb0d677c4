//! Our own CSV: one machine per line, with prices and their sources. Users write it for their own machines, and imports
//! are stored in it.

use std::fmt::Write;

use domain::Bytes;
use domain::gpu::Link;
use domain::listing::{Cloud, Fabric, Gpus, Listing, Price};

use crate::Catalog;
use crate::catalog::amount::{Currency, micros};
use crate::catalog::gpus::link;
use crate::catalog::import::{Defaults, Read};
use crate::catalog::listings::band;
use crate::catalog::table::{self, gibibytes, number, optional_rows, whole};
use crate::catalog::{Error, listings};

/// The columns; the first three must be there.
pub(super) const COLUMNS: [&str; 25] = [
    "instance_type",
    "gpu",
    "gpu_count",
    "cloud",
    "region",
    "slice",
    "gpu_mem_gib",
    "vcpu",
    "mem_gib",
    "disk_gb",
    "network_gbps",
    "fabric",
    "link",
    "interrupted",
    "currency",
    "dated",
    "source",
    "on_demand",
    "spot",
    "reserved_1y",
    "reserved_3y",
    "dedicated",
    "spelled",
    "derived",
    "machines",
];
const NEEDED: usize = 3;

/// An example of such a table.
pub fn hint() -> String {
    "write for example a first line `cloud,region,instance_type,gpu,gpu_count,vcpu,mem_gib,on_demand` and a second \
     `own,cellar,big-box,RTX4090,2,32,128,0.35`"
        .to_owned()
}

/// Reads a table of ours.
///
/// # Errors
/// [`Error`] with file and line.
pub fn read(file: &str, text: &str, catalog: &Catalog, defaults: &Defaults) -> Result<Read, Error> {
    let mut read = Read::default();
    optional_rows(file, text, COLUMNS, NEEDED, |cells, _| {
        read.listings.push(listing(cells, catalog, defaults)?);
        Ok(())
    })?;
    Ok(read)
}

fn listing(cells: [&str; 25], catalog: &Catalog, defaults: &Defaults) -> Result<Listing, String> {
    let [instance_type, gpu, count, cloud, region, slice, gpu_memory, cores, memory, disk, network, rest @ ..] = cells;
    let [fabric, link, interrupted, currency, dated, source, on_demand, spot, reserved_1y, rest @ ..] = rest;
    let [reserved_3y, dedicated, spelled, derived, machines] = rest;
    if instance_type.is_empty() {
        return Err("`instance_type` is empty".to_owned());
    }
    let cloud = match (cloud, &defaults.cloud) {
        ("", Some(cloud)) => Cloud::named(cloud),
        ("", None) => return Err("`cloud` is empty; name it there or with `--cloud`".to_owned()),
        (cloud, _) => Cloud::named(cloud),
    };
    let gpu_memory = gibibytes("gpu_mem_gib", gpu_memory)?;
    let slice = whole("slice", slice)?.unwrap_or(1).max(1);
    let known = catalog.gpu(gpu, gpu_memory.map(|memory| Bytes(memory.0.saturating_mul(u64::from(slice)))));
    let prices = Quote {
        currency: self::currency(currency, catalog)?,
        dated: if dated.is_empty() { &defaults.dated } else { dated },
        source: if source.is_empty() { &defaults.source } else { source },
        derived,
        may_be_free: cloud == Cloud::Own,
    };
    Ok(Listing {
        cloud,
        region: if region.is_empty() { "-".to_owned() } else { region.to_owned() },
        instance_type: instance_type.to_owned(),
        gpus: Gpus {
            name: known.map(|gpu| gpu.name.clone()),
            spelled: if spelled.is_empty() { gpu.to_owned() } else { spelled.to_owned() },
            count: whole("gpu_count", count)?.unwrap_or(0),
            slice,
            memory: gpu_memory.or(known.map(|gpu| Bytes(gpu.memory.0 / u64::from(slice)))),
        },
        cores: whole("vcpu", cores)?,
        memory: gibibytes("mem_gib", memory)?,
        disk: number("disk_gb", disk)?.map(|disk| Bytes((disk * 1e9) as u64)),
        network: number("network_gbps", network)?.map(|network| network * 1e9),
        fabric: listings::fabric(fabric)?,
        link: if link.is_empty() { None } else { Some(self::link(link)?) },
        on_demand: prices.price("on_demand", on_demand)?,
        spot: prices.price("spot", spot)?,
        reserved_1y: prices.price("reserved_1y", reserved_1y)?,
        reserved_3y: prices.price("reserved_3y", reserved_3y)?,
        dedicated: prices.price("dedicated", dedicated)?,
        interrupted: band(interrupted)?,
        machines: self::machines(machines)?,
    })
}

/// How many machines a row stands for.
fn machines(cell: &str) -> Result<Option<u32>, String> {
    match whole("machines", cell)? {
        Some(0) => Err("`machines` is 0: leave the row out, or write how many there are".to_owned()),
        count => Ok(count),
    }
}

/// Common fields of the prices of a row.
struct Quote<'a> {
    currency: &'a Currency,
    dated: &'a str,
    source: &'a str,
    derived: &'a str,
    /// The user's own machine may be free; elsewhere a zero price is an error.
    may_be_free: bool,
}

impl Quote<'_> {
    fn price(&self, column: &str, amount: &str) -> Result<Option<Price>, String> {
        if amount.is_empty() {
            return Ok(None);
        }
        let rate = self.currency.dollars(micros(amount).map_err(|error| format!("`{column}`: {error}"))?);
        if rate.micros_per_hour() == 0 && !self.may_be_free {
            return Err(format!(
                "`{column}`: a price of {amount} is no price; leave the cell empty if it is not known"
            ));
        }
        // The user's derivation comes first: the conversion starts from it.
        let derived = match (table::text(self.derived), self.currency.conversion()) {
            (Some(own), Some(conversion)) => Some(format!("{own}; {conversion}")),
            (own, conversion) => own.or(conversion),
        };
        Ok(Some(Price { rate, dated: self.dated.to_owned(), source: self.source.to_owned(), derived }))
    }
}

fn currency<'a>(code: &str, catalog: &'a Catalog) -> Result<&'a Currency, String> {
    let code = if code.is_empty() { "USD" } else { code };
    let known = catalog.currencies.iter().find(|currency| currency.code.eq_ignore_ascii_case(code));
    known.ok_or_else(|| {
        let codes: Vec<String> = catalog.currencies.iter().map(|known| format!("`{}`", known.code)).collect();
        format!("`currency`: `{code}` is not known; known are {}", codes.join(", "))
    })
}

/// Listings as a table of ours, in dollars.
pub fn text(listings: &[Listing]) -> String {
    let mut text = COLUMNS.join(",") + "\n";
    for listing in listings {
        let row = row(listing).map(|cell| quoted(&cell)).join(",");
        let _ = writeln!(text, "{row}");
    }
    text
}

fn row(listing: &Listing) -> [String; 25] {
    let gpus = &listing.gpus;
    let gibibytes = |bytes: Option<Bytes>| optional(bytes.map(|bytes| bytes.0 as f64 / f64::from(1 << 30)));
    let prices = [&listing.on_demand, &listing.spot, &listing.reserved_1y, &listing.reserved_3y, &listing.dedicated];
    let first = prices.iter().find_map(|price| price.as_ref());
    let [on_demand, spot, reserved_1y, reserved_3y, dedicated] =
        prices.map(|price| price.as_ref().map_or(String::new(), |price| decimal(price.rate.micros_per_hour())));
    [
        listing.instance_type.clone(),
        gpus.name.clone().unwrap_or_else(|| gpus.spelled.clone()),
        gpus.count.to_string(),
        listing.cloud.name().to_owned(),
        listing.region.clone(),
        gpus.slice.to_string(),
        gibibytes(gpus.memory),
        optional(listing.cores),
        gibibytes(listing.memory),
        optional(listing.disk.map(|disk| disk.0 as f64 / 1e9)),
        optional(listing.network.map(|network| network / 1e9)),
        fabric_word(listing.fabric).to_owned(),
        listing.link.map_or(String::new(), link_words),
        listing.interrupted.map_or(String::new(), |(from, to)| format!("{from}-{to}")),
        "USD".to_owned(),
        first.map_or(String::new(), |price| price.dated.clone()),
        first.map_or(String::new(), |price| price.source.clone()),
        on_demand,
        spot,
        reserved_1y,
        reserved_3y,
        dedicated,
        gpus.spelled.clone(),
        first.and_then(|price| price.derived.clone()).unwrap_or_default(),
        optional(listing.machines),
    ]
}

fn optional(value: Option<impl ToString>) -> String {
    value.map_or(String::new(), |value| value.to_string())
}

/// Millionths as a decimal text, exactly.
fn decimal(micros: i64) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    format!("{sign}{}", domain::money::decimal(micros.unsigned_abs(), 6, 6))
}

fn fabric_word(fabric: Fabric) -> &'static str {
    match fabric {
        Fabric::Ethernet => "ethernet",
        Fabric::Efa => "efa",
        Fabric::InfiniBand => "infiniband",
        Fabric::Roce => "roce",
    }
}

fn link_words(link: Link) -> String {
    match link {
        Link::Pcie => "pcie".to_owned(),
        Link::Bridge(speed) => format!("bridge {}", speed / 1e9),
        Link::Mesh(speed) => format!("mesh {}", speed / 1e9),
        Link::Switch(speed) => format!("switch {}", speed / 1e9),
    }
}

pub(in crate::catalog) fn quoted(cell: &str) -> String {
    match cell.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", cell.replace('"', "\"\"")),
        false => cell.to_owned(),
    }
}
