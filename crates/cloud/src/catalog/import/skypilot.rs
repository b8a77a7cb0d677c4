//! SkyPilot's catalog tables (`catalogs/v8/CLOUD/vms.csv`): a row for each machine and zone.
//!
//! In GCP's table, rows of machines with GPUs, such as `a2-highgpu-8g`, have the price of cores and memory only, and
//! the price of the GPUs is in rows without a machine. The two are added, or the machine is skipped.

use std::collections::HashMap;

use domain::listing::{Cloud, Fabric, Gpus, Listing, Price};
use domain::{Bytes, Rate};

use crate::Catalog;
use crate::catalog::Error;
use crate::catalog::amount::micros;
use crate::catalog::import::{Defaults, Read};
use crate::catalog::table::{gibibytes, number, optional_rows};

const COLUMNS: [&str; 10] = [
    "InstanceType",
    "AcceleratorName",
    "AcceleratorCount",
    "Region",
    "Price",
    "vCPUs",
    "MemoryGiB",
    "GpuInfo",
    "AvailabilityZone",
    "SpotPrice",
];
const NEEDED: usize = 5;

/// One row, read.
struct Row {
    instance_type: String,
    accelerator: String,
    /// May be a part of one.
    count: f64,
    region: String,
    zone: String,
    cores: Option<u32>,
    memory: Option<Bytes>,
    gpu_memory: Option<Bytes>,
    /// In micro-dollars an hour.
    price: Option<i64>,
    spot: Option<i64>,
}

/// Reads a table of SkyPilot's.
///
/// # Errors
/// [`Error`] with file and line; a table does not say of which cloud it is, so `defaults` must.
pub fn read(file: &str, text: &str, catalog: &Catalog, defaults: &Defaults) -> Result<Read, Error> {
    let Some(cloud) = &defaults.cloud else {
        return Err(Error::File {
            doing: "import",
            file: file.to_owned(),
            message: "SkyPilot's tables do not say of which cloud they are".to_owned(),
            hint: Some(format!("gradus catalog import {file} --cloud aws")),
        });
    };
    let cloud = Cloud::named(cloud);
    let mut rows = Vec::new();
    optional_rows(file, text, COLUMNS, NEEDED, |cells, _| {
        rows.push(row(cells)?);
        Ok(())
    })?;
    let loose = Loose::of(&rows, catalog);
    let ours = catalog.listings.iter().filter(|listing| listing.cloud == cloud);
    let known: Known = ours.map(|listing| (listing.instance_type.as_str(), listing)).collect();
    let mut read = Read::default();
    let mut places: HashMap<(String, String), usize> = HashMap::new();
    for row in rows.iter().filter(|row| !row.instance_type.is_empty()) {
        let listing = match listing(row, &cloud, catalog, (&known, &loose), defaults) {
            Ok(listing) => listing,
            Err(reason) => {
                read.leave_out(reason);
                continue;
            }
        };
        match places.get(&(row.region.clone(), row.instance_type.clone())) {
            Some(index) => cheaper(&mut read.listings[*index], &listing),
            None => {
                places.insert((row.region.clone(), row.instance_type.clone()), read.listings.len());
                read.listings.push(listing);
            }
        }
    }
    Ok(read)
}

fn row(cells: [&str; 10]) -> Result<Row, String> {
    let [instance_type, accelerator, count, region, on_demand, cores, memory, info, zone, spot] = cells;
    let price = |column: &str, cell: &str| match cell {
        "" => Ok(None),
        cell => micros(cell).map(Some).map_err(|error| format!("`{column}`: {error}")),
    };
    Ok(Row {
        instance_type: instance_type.to_owned(),
        accelerator: accelerator.to_owned(),
        count: number("AcceleratorCount", count)?.unwrap_or(0.0),
        region: region.to_owned(),
        zone: zone.to_owned(),
        cores: number("vCPUs", cores)?.map(|cores| cores as u32).filter(|cores| *cores > 0),
        memory: gibibytes("MemoryGiB", memory)?,
        gpu_memory: memory_of(info),
        price: price("Price", on_demand)?.filter(|price| *price > 0),
        spot: price("SpotPrice", spot)?.filter(|price| *price > 0),
    })
}

/// The memory of one GPU from a Python dictionary such as `{'Gpus': [{…, 'MemoryInfo': {'SizeInMiB': 16384}}], …}`.
fn memory_of(info: &str) -> Option<Bytes> {
    let (_, rest) = info.split_once("'SizeInMiB':")?;
    let digits: String = rest.trim_start().chars().take_while(char::is_ascii_digit).collect();
    let mebibytes: u64 = digits.parse().ok().filter(|mebibytes| (1..1 << 30).contains(mebibytes))?;
    Some(Bytes(mebibytes << 20))
}

/// Known listings of the cloud, by type.
type Known<'a> = HashMap<&'a str, &'a Listing>;

/// Prices of GPUs in separate rows: by GPU, number and zone.
struct Loose<'a>(HashMap<(String, u32, &'a str), &'a Row>);

impl<'a> Loose<'a> {
    fn of(rows: &'a [Row], catalog: &Catalog) -> Loose<'a> {
        let loose = rows.iter().filter(|row| row.instance_type.is_empty() && row.count >= 1.0);
        let keyed = loose.filter_map(|row| {
            let gpu = catalog.gpu(&row.accelerator, row.gpu_memory)?;
            Some(((kind(&gpu.name, &row.accelerator), row.count as u32, row.zone.as_str()), row))
        });
        Loose(keyed.collect())
    }
}

/// GCP sells the same H100 in two machine types at two prices; `mega` distinguishes them in both names.
fn kind(gpu: &str, name: &str) -> String {
    let is_mega = gpu.starts_with("H100") && name.to_ascii_lowercase().contains("mega");
    if is_mega { format!("{gpu} mega") } else { gpu.to_owned() }
}

/// A row as a listing, or why it is none.
fn listing(
    row: &Row,
    cloud: &Cloud,
    catalog: &Catalog,
    (known, loose): (&Known, &Loose),
    defaults: &Defaults,
) -> Result<Listing, &'static str> {
    let known = known.get(row.instance_type.as_str()).copied();
    let (gpus, price, spot, derived) = if row.accelerator.is_empty() {
        let known = known.filter(|known| known.gpus.count > 0).ok_or("a machine without GPUs that are known here")?;
        let name = known.gpus.name.as_deref().ok_or("a machine without GPUs that are known here")?;
        let key = (kind(name, &row.instance_type), known.gpus.count, row.zone.as_str());
        let added = loose.0.get(&key).filter(|_| known.gpus.slice == 1);
        let added = added.ok_or("the price of its GPUs is missing; the row holds cores and memory only")?;
        let sum = |host: Option<i64>, gpus: Option<i64>| host?.checked_add(gpus?);
        let derived = "cores and memory, and GPUs, added".to_owned();
        (known.gpus.clone(), sum(row.price, added.price), sum(row.spot, added.spot), Some(derived))
    } else {
        (gpus(row, catalog)?, row.price, row.spot, None)
    };
    if price.is_none() && spot.is_none() {
        return Err("a row without a price");
    }
    let dated = |micros: Option<i64>| {
        micros.map(|micros| Price {
            rate: Rate::from_micros_per_hour(micros),
            dated: defaults.dated.clone(),
            source: defaults.source.clone(),
            derived: derived.clone(),
        })
    };
    Ok(Listing {
        cloud: cloud.clone(),
        region: row.region.clone(),
        instance_type: row.instance_type.clone(),
        gpus,
        cores: row.cores.or(known.and_then(|known| known.cores)),
        memory: row.memory.or(known.and_then(|known| known.memory)),
        disk: known.and_then(|known| known.disk),
        network: known.and_then(|known| known.network),
        fabric: known.map_or(Fabric::default(), |known| known.fabric),
        link: known.and_then(|known| known.link),
        on_demand: dated(price),
        spot: dated(spot),
        reserved_1y: None,
        reserved_3y: None,
        dedicated: None,
        interrupted: None,
        machines: None,
    })
}

/// The GPUs that a row names.
fn gpus(row: &Row, catalog: &Catalog) -> Result<Gpus, &'static str> {
    if row.accelerator.to_ascii_lowercase().starts_with("tpu") {
        return Err("a TPU");
    }
    // `0.5` is half a GPU; SkyPilot states the memory of a full one then.
    let (count, slice) = match row.count {
        count if count >= 1.0 && count.fract() == 0.0 && count <= 1024.0 => (count as u32, 1),
        count if count > 0.0 && count < 1.0 => (1, (1.0 / count).round() as u32),
        _ => return Err("a number of GPUs that is none"),
    };
    let known = catalog.gpu(&row.accelerator, row.gpu_memory).or_else(|| catalog.gpu(&row.accelerator, None));
    let whole = known.map(|gpu| gpu.memory).or(row.gpu_memory);
    Ok(Gpus {
        name: known.map(|gpu| gpu.name.clone()),
        spelled: row.accelerator.clone(),
        count,
        slice,
        memory: whole.map(|memory| Bytes(memory.0 / u64::from(slice))),
    })
}

/// Zones of a region become one listing, at the lowest price of each kind.
fn cheaper(listing: &mut Listing, other: &Listing) {
    let mut differs = false;
    for (price, other) in [(&mut listing.on_demand, &other.on_demand), (&mut listing.spot, &other.spot)] {
        match (price, other) {
            (Some(price), Some(other)) => {
                differs |= price.rate != other.rate;
                price.rate = price.rate.min(other.rate);
            }
            (price @ None, Some(other)) => *price = Some(other.clone()),
            (Some(_) | None, None) => {}
        }
    }
    if !differs {
        return;
    }
    for price in [&mut listing.on_demand, &mut listing.spot].into_iter().flatten() {
        price.derived = Some(match &price.derived {
            Some(derived) if derived.ends_with(LOWEST) => derived.clone(),
            Some(derived) => format!("{derived}; {LOWEST}"),
            None => LOWEST.to_owned(),
        });
    }
}

const LOWEST: &str = "the lowest of the region's zones";
