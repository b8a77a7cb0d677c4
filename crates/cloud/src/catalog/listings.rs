//! Listings, joined from the hardware of an instance type, its price in each region, and the date of the price.

use std::collections::HashMap;

use domain::Bytes;
use domain::listing::{Cloud, Fabric, Gpus, Listing, Price};

use crate::catalog::amount::{Currency, micros};
use crate::catalog::gpus::{self, link};
use crate::catalog::table::{gibibytes, number, rows, text, whole};
use crate::catalog::{Error, Texts};

/// Kinds of price, as `catalog/quotes.csv` names them.
const KINDS: [&str; 5] = ["on_demand", "spot", "reserved_1y", "reserved_3y", "dedicated"];

/// Reads every listing.
///
/// # Errors
/// [`Error`] with file and line.
pub fn read(texts: &Texts, gpus: &gpus::GpuTable, currencies: &[Currency]) -> Result<Vec<Listing>, Error> {
    let machines = machines(texts, gpus)?;
    let quotes = quotes(texts.quotes, currencies)?;
    let mut listings = Vec::with_capacity(texts.offers.lines().count());
    let columns = [
        "cloud",
        "region",
        "instance_type",
        "on_demand",
        "spot",
        "reserved_1y",
        "reserved_3y",
        "dedicated",
        "interrupted",
        "quotes",
    ];
    // Rows of one cloud stand together.
    let mut named = String::new();
    let mut of_cloud = [None; KINDS.len()];
    rows("catalog/offers.csv", texts.offers, columns, |cells| {
        let [cloud, region, instance_type, prices @ .., interrupted, quoted] = cells;
        let machine = machines.get(cloud).and_then(|types| types.get(instance_type));
        let machine = machine.ok_or_else(|| format!("no instance type `{instance_type}` of `{cloud}`"))?;
        // Prices of one cloud from an unusual source have a name of their own.
        let is_same = named.strip_prefix(cloud).and_then(|rest| rest.strip_prefix(' ')) == Some(quoted);
        if !is_same {
            named = format!("{cloud} {quoted}");
            let quotes = quotes.get(named.trim_end());
            of_cloud = KINDS.map(|kind| quotes.and_then(|quotes| quotes.get(kind)));
        }
        let price = |kind: usize| match of_cloud[kind] {
            _ if prices[kind].is_empty() => Ok(None),
            Some(quote) => quote.price(prices[kind]).map(Some),
            None => Err(format!("`catalog/quotes.csv` does not say where `{}` of `{cloud}` comes from", KINDS[kind])),
        };
        listings.push(Listing {
            region: region.to_owned(),
            on_demand: price(0)?,
            spot: price(1)?,
            reserved_1y: price(2)?,
            reserved_3y: price(3)?,
            dedicated: price(4)?,
            interrupted: band(interrupted)?,
            ..machine.clone()
        });
        Ok(())
    })?;
    Ok(listings)
}

/// By cloud, then by the name of the type.
type Machines = HashMap<String, HashMap<String, Listing>>;

/// The columns of `catalog/instances.csv`.
const COLUMNS: [&str; 12] = [
    "cloud",
    "instance_type",
    "spelled",
    "gpu",
    "gpu_count",
    "slice",
    "vcpu",
    "mem_gib",
    "disk_gb",
    "network_gbps",
    "fabric",
    "link",
];

/// Every instance type as a listing without region and price.
fn machines(texts: &Texts, gpus: &gpus::GpuTable) -> Result<Machines, Error> {
    let mut machines = Machines::new();
    rows("catalog/instances.csv", texts.instances, COLUMNS, |cells| {
        let [cloud, instance_type, spelled, gpu, count, slice, cores, memory, disk, network, fabric, own_link] = cells;
        let known = gpus.named(gpu);
        if known.is_none() && gpus.left_out(gpu).is_none() {
            return Err(format!("`{gpu}` is neither a GPU of the table nor one that the aliases leave out"));
        }
        let slice = whole("slice", slice)?.unwrap_or(1).max(1);
        let machine = Listing {
            cloud: Cloud::named(cloud),
            region: String::new(),
            instance_type: instance_type.to_owned(),
            gpus: Gpus {
                name: known.map(|gpu| gpu.name.clone()),
                spelled: spelled.to_owned(),
                count: whole("gpu_count", count)?.unwrap_or(0),
                slice,
                memory: known.map(|gpu| Bytes(gpu.memory.0 / u64::from(slice))),
            },
            cores: whole("vcpu", cores)?,
            memory: gibibytes("mem_gib", memory)?,
            disk: number("disk_gb", disk)?.map(|disk| Bytes((disk * 1e9) as u64)),
            network: number("network_gbps", network)?.map(|network| network * 1e9),
            fabric: self::fabric(fabric)?,
            link: if own_link.is_empty() { None } else { Some(link(own_link)?) },
            on_demand: None,
            spot: None,
            reserved_1y: None,
            reserved_3y: None,
            dedicated: None,
            interrupted: None,
            machines: None,
        };
        machines.entry(cloud.to_owned()).or_default().insert(instance_type.to_owned(), machine);
        Ok(())
    })?;
    let columns = ["cloud", "instance_type", "vcpu", "mem_gib"];
    rows("catalog/instances-sparecores.csv", texts.sparecores, columns, |[cloud, instance_type, cores, memory]| {
        let machine = machines.get_mut(cloud).and_then(|types| types.get_mut(instance_type));
        let machine = machine.ok_or_else(|| format!("no instance type `{instance_type}` of `{cloud}`"))?;
        machine.cores = machine.cores.or(whole("vcpu", cores)?);
        machine.memory = machine.memory.or(gibibytes("mem_gib", memory)?);
        Ok(())
    })?;
    Ok(machines)
}

/// The source of prices of one kind of one cloud.
struct Quote<'a> {
    currency: &'a Currency,
    dated: String,
    source: String,
    derived: Option<String>,
}

impl Quote<'_> {
    fn price(&self, amount: &str) -> Result<Price, String> {
        let derived = match (self.currency.derivation(amount), &self.derived) {
            (Some(converted), Some(derived)) => Some(format!("{derived}; {converted}")),
            (converted, derived) => converted.or_else(|| derived.clone()),
        };
        let rate = self.currency.dollars(micros(amount)?);
        Ok(Price { rate, dated: self.dated.clone(), source: self.source.clone(), derived })
    }
}

/// By cloud, then by kind of price.
fn quotes<'a>(text: &str, currencies: &'a [Currency]) -> Result<HashMap<String, HashMap<String, Quote<'a>>>, Error> {
    let mut quotes: HashMap<String, HashMap<String, Quote>> = HashMap::new();
    let columns = ["cloud", "price", "currency", "dated", "derived", "source"];
    rows("catalog/quotes.csv", text, columns, |[cloud, kind, currency, dated, derived, source]| {
        let known = currencies.iter().find(|known| known.code == currency);
        let currency = known.ok_or_else(|| format!("no currency `{currency}` in `catalog/currencies.csv`"))?;
        let quote =
            Quote { currency, dated: dated.to_owned(), source: source.to_owned(), derived: self::text(derived) };
        quotes.entry(cloud.to_owned()).or_default().insert(kind.to_owned(), quote);
        Ok(())
    })?;
    Ok(quotes)
}

/// Parses a network; Ethernet for an empty cell.
pub fn fabric(cell: &str) -> Result<Fabric, String> {
    Ok(match cell {
        "" | "ethernet" => Fabric::Ethernet,
        "efa" => Fabric::Efa,
        "infiniband" => Fabric::InfiniBand,
        "roce" => Fabric::Roce,
        other => return Err(format!("`fabric`: `{other}` is none of `ethernet`, `efa`, `infiniband` and `roce`")),
    })
}

/// AWS's bands of monthly interruptions: `<5`, `5-10`, `>20`, in per cent.
pub fn band(cell: &str) -> Result<Option<(u8, u8)>, String> {
    let wrong = || format!("`interrupted`: `{cell}` is no band; write for example `5-10`");
    let per_cent = |text: &str| text.parse::<u8>().ok().filter(|share| *share <= 100).ok_or_else(wrong);
    if cell.is_empty() {
        return Ok(None);
    }
    if let Some(upper) = cell.strip_prefix('<') {
        return Ok(Some((0, per_cent(upper)?)));
    }
    if let Some(lower) = cell.strip_prefix('>') {
        return Ok(Some((per_cent(lower)?, 100)));
    }
    let (lower, upper) = cell.split_once('-').ok_or_else(wrong)?;
    Ok(Some((per_cent(lower)?, per_cent(upper)?)))
}
