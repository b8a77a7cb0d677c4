//! `gradus offers`: machines of the clouds with their prices, dates and sources.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use cloud::Catalog;
use cloud::catalog::wanted::{Market, Wanted};
use cloud::prices::CLOUDS;
use domain::Rate;
use domain::accelerators::Accelerators;
use domain::listing::{Cloud, Listing, Price};
use domain::money::decimal;
use domain::region::Compliance;
use domain::terms::{Availability, PurchaseOption, is_distrusted};
use plan::search::admit::other_family;
use serde_json::{Value, json};
use server::api::OfferQuery;

use crate::error::Error;
use crate::error::arguments::rows;
use crate::error::exit;
use crate::local::rented::constraints::usage;
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use crate::table;

/// Rows by default.
const LIMIT: usize = 20;

/// Arguments of `gradus offers`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The same as `--gpu`
    #[arg(value_name = "GPU[:COUNT]", conflicts_with = "gpu")]
    named: Option<Accelerators>,
    /// GPUs of a machine: `A100`, `A100:8`, `A100-80GB:8`, `40GB+:8`; or a fractional GPU: `A100-80GB:1g.10gb`, `L4:0.125`
    #[arg(long, value_name = "GPU[:COUNT]")]
    gpu: Option<Accelerators>,
    /// Only this cloud (repeatable)
    #[arg(long = "cloud", value_name = "NAME")]
    clouds: Vec<String>,
    /// Only this region: a name, a prefix such as `europe-*`, or a country such as `DE` (repeatable)
    #[arg(long = "region", value_name = "REGION")]
    regions: Vec<String>,
    /// Use spot prices: cheaper, but the cloud can preempt the machine at any time
    #[arg(long)]
    spot: bool,
    /// Highest price per hour of a machine
    #[arg(long, value_name = "PRICE", allow_hyphen_values = true)]
    max_price: Option<Rate>,
    /// Only regions with `gdpr`, `hipaa`, `soc2` or `iso27001` compliance (repeatable)
    #[arg(long, value_name = "RULE")]
    compliance: Vec<Compliance>,
    /// Sort order
    #[arg(long, value_enum, default_value = "price")]
    sort: Sort,
    /// Maximum number of rows [default: 20; all with `--all` and `--json`]
    #[arg(long, value_name = "NUMBER", value_parser = rows, allow_hyphen_values = true)]
    limit: Option<u64>,
    /// List every region of each machine; include offers without a price, fractional GPUs, unsupported GPUs, and regions
    /// without the machine, and spot prices too low to be trusted
    #[arg(long)]
    all: bool,
}

/// Sort orders.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Sort {
    /// Cheapest machine first
    Price,
    /// Lowest price per GPU first
    GpuPrice,
    /// Most GPU memory first
    Memory,
}

/// Lists offers.
///
/// # Errors
/// [`Error::Usage`] for names that are not in the catalog.
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let mut catalog = Catalog::open(&settings.home)?;
    let wanted = Wanted {
        gpu: args.named.or(args.gpu),
        clouds: args.clouds,
        regions: args.regions,
        compliance: args.compliance,
        market: if args.spot { Market::Spot } else { Market::OnDemand },
        max_price: args.max_price,
    };
    divide(&mut catalog, &wanted)?;
    wanted.check(&catalog).map_err(usage)?;
    let (mut offers, unaffordable) = sorted(&catalog, &wanted, args.all, args.sort);
    let unpriced: Vec<&Listing> =
        unaffordable.iter().copied().filter(|listing| wanted.market.price(listing).is_none()).collect();
    let priced = offers.len();
    if args.all && wanted.max_price.is_none() {
        offers.extend(&unpriced);
    }
    let all_priced = priced == offers.len();
    let most = args.limit.map(|limit| usize::try_from(limit).unwrap_or(usize::MAX));
    if printer.is_json() {
        offers.truncate(most.unwrap_or(usize::MAX));
        offers.iter().for_each(|listing| printer.json(&value(&catalog, listing)));
        return Ok(exit::DONE);
    }
    if offers.is_empty() {
        nothing(&catalog, &wanted, &unaffordable, args.all, printer);
        return Ok(exit::DONE);
    }
    let mut rows = if args.all { offers.iter().map(|listing| (*listing, 0)).collect() } else { by_machine(&offers) };
    let found = rows.len();
    rows.truncate(most.unwrap_or(if args.all { usize::MAX } else { LIMIT }));
    print(&catalog, &rows, wanted.market, printer);
    if rows.iter().any(|(_, others)| *others > 0) {
        printer.say("one region per machine, the first in this order; list every region with `--all`");
    }
    if found > rows.len() {
        let what = if args.all { "offers" } else { "machines" };
        printer.say(format!("{} of {found} {what}; show all with `--limit {found}`", rows.len()));
    }
    if !args.all && !unpriced.is_empty() && all_priced {
        printer.say(format!("{} more without a price; show them with `--all`", unpriced.len()));
    }
    Ok(exit::DONE)
}

/// Matching offers, sorted, and those that match but are too expensive.
fn sorted<'a>(catalog: &'a Catalog, wanted: &Wanted, all: bool, sort: Sort) -> (Vec<&'a Listing>, Vec<&'a Listing>) {
    let admitted = catalog.listings.iter().filter(|listing| is_shown(catalog, wanted, all, listing));
    let (mut offers, unaffordable): (Vec<&Listing>, Vec<&Listing>) =
        admitted.partition(|listing| wanted.affords(listing));
    let rank = |listing: &Listing| catalog.availability(listing, wanted.market.terms());
    offers.sort_by(|one, other| {
        // Unconfirmed offers come after confirmed ones.
        rank(one).cmp(&rank(other)).then_with(|| order(one, other, sort, wanted.market))
    });
    (offers, unaffordable)
}

/// The cheapest offers for the API, as `--json` writes them.
///
/// # Errors
/// As [`run`].
pub fn list(query: &OfferQuery, settings: &GlobalSettings) -> Result<Vec<Value>, Error> {
    let mut catalog = Catalog::open(&settings.home)?;
    let gpu = query.gpu.as_deref().map(str::parse::<Accelerators>).transpose();
    let gpu = gpu.map_err(|error| Error::Usage {
        message: format!("`gpu`: {error}"),
        hint: "write for example `A100:8`".to_owned(),
    })?;
    let wanted = Wanted {
        gpu,
        clouds: query.cloud.iter().cloned().collect(),
        regions: query.region.iter().cloned().collect(),
        market: if query.spot { Market::Spot } else { Market::OnDemand },
        ..Wanted::default()
    };
    divide(&mut catalog, &wanted)?;
    wanted.check(&catalog).map_err(usage)?;
    let (offers, _) = sorted(&catalog, &wanted, false, Sort::Price);
    let most = query.limit.unwrap_or(usize::MAX);
    Ok(offers.into_iter().take(most).map(|listing| value(&catalog, listing)).collect())
}

/// Adds the fractional GPUs that are asked for.
fn divide(catalog: &mut Catalog, wanted: &Wanted) -> Result<(), Error> {
    let Some(gpu) = &wanted.gpu else { return Ok(()) };
    catalog.divide(gpu).map_err(|(message, hint)| Error::Usage { message, hint })
}

/// Whether a listing matches and is shown, its price aside. Without `all`, fractional GPUs, what is out of stock and,
/// where no GPU is named, machines that nothing here trains on are hidden.
fn is_shown(catalog: &Catalog, wanted: &Wanted, all: bool, listing: &Listing) -> bool {
    let trains = listing.gpus.name.is_some() && listing.gpus.count > 0;
    let terms = wanted.market.terms();
    let there = || {
        let availability = catalog.availability(listing, terms);
        let is_trusted = terms != PurchaseOption::Spot || !is_distrusted(listing, availability);
        availability != Availability::Denied && is_trusted && listing.gpus.slice == 1
    };
    (all || ((wanted.gpu.is_some() || trains) && there())) && wanted.admits(catalog, listing)
}

fn order(one: &Listing, other: &Listing, sort: Sort, market: Market) -> Ordering {
    let rate = |listing: &Listing| market.price(listing).map(|price| price.rate.micros_per_hour());
    let by_price = rate(one).cmp(&rate(other));
    let first = match sort {
        Sort::Price => by_price,
        Sort::GpuPrice => {
            let each = |listing: &Listing| market.price(listing).and_then(|price| for_a_gpu(listing, price));
            match (each(one), each(other)) {
                (Some(one), Some(other)) => one.cmp(&other),
                // Unknown numbers of GPUs come last.
                (one, other) => one.is_none().cmp(&other.is_none()),
            }
        }
        Sort::Memory => other.gpus.memory.cmp(&one.gpus.memory),
    };
    let name =
        |listing: &Listing| (listing.cloud.name().to_owned(), listing.region.clone(), listing.instance_type.clone());
    first.then(by_price).then_with(|| name(one).cmp(&name(other)))
}

/// The price per full GPU of a machine, rounded to the nearest micro-dollar.
fn for_a_gpu(listing: &Listing, price: &Price) -> Option<Rate> {
    let (count, slice) = (i64::from(listing.gpus.count), i64::from(listing.gpus.slice));
    let whole = price.rate.micros_per_hour().checked_mul(slice)?;
    let rounded = whole.checked_add(count / 2)?.checked_div(count)?;
    Some(Rate::from_micros_per_hour(rounded))
}

/// One row per machine of a cloud: its first listing, and in how many other regions it is offered.
fn by_machine<'a>(offers: &[&'a Listing]) -> Vec<(&'a Listing, usize)> {
    let mut rows: Vec<(&Listing, usize)> = Vec::new();
    let mut places: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for listing in offers {
        let machine = (listing.cloud.name(), listing.instance_type.as_str());
        match places.get(&machine) {
            Some(place) => rows[*place].1 += 1,
            None => {
                places.insert(machine, rows.len());
                rows.push((listing, 0));
            }
        }
    }
    rows
}

fn print(catalog: &Catalog, offers: &[(&Listing, usize)], market: Market, printer: &mut Printer) {
    let other = match market {
        Market::OnDemand => "spot",
        Market::Spot => "on demand",
    };
    let head = ["cloud", "region", "machine", "GPUs", "memory", "cores", "price", "per GPU", other, "stock", "date"];
    let rows: Vec<Vec<String>> =
        offers.iter().map(|(listing, others)| row(catalog, listing, *others, market)).collect();
    table::lines(&head, &rows).into_iter().for_each(|line| printer.data(line));
    printer.say("prices in $ per hour per machine");
    let unknown = |listing: &Listing| catalog.availability(listing, market.terms()) == Availability::Unknown;
    if offers.iter().any(|(listing, _)| unknown(listing)) {
        let what = "no source says that the region has such machines; these stand last: ask the cloud";
        printer.say(format!("stock `unknown`: {what}"));
    }
    let sources: BTreeSet<String> =
        offers.iter().filter_map(|(listing, _)| source(listing, market.price(listing)?)).collect();
    sources.into_iter().for_each(|source| printer.say(source));
}

fn row(catalog: &Catalog, listing: &Listing, others: usize, market: Market) -> Vec<String> {
    let price = market.price(listing);
    let other = match market {
        Market::OnDemand => &listing.spot,
        Market::Spot => &listing.on_demand,
    };
    let unknown = || "-".to_owned();
    let gibibytes = |bytes: domain::Bytes| format!("{:.0} GiB", bytes.0 as f64 / f64::from(1 << 30));
    vec![
        listing.cloud.name().to_owned(),
        match others {
            0 => listing.region.clone(),
            others => format!("{} +{others}", listing.region),
        },
        listing.instance_type.clone(),
        gpus(catalog, listing),
        listing.gpus.memory.map_or_else(unknown, gibibytes),
        listing.cores.map_or_else(unknown, |cores| cores.to_string()),
        price.map_or_else(unknown, |price| dollars(price.rate)),
        price.and_then(|price| for_a_gpu(listing, price)).map_or_else(unknown, dollars),
        other.as_ref().map_or_else(unknown, |price| dollars(price.rate)),
        catalog.availability(listing, market.terms()).word().to_owned(),
        price.map_or_else(unknown, |price| price.dated.clone()),
    ]
}

/// `8 × A100-SXM4-40GB`, `1/6 × A10`.
fn gpus(catalog: &Catalog, listing: &Listing) -> String {
    let gpus = &listing.gpus;
    let name = gpus.name.as_ref().unwrap_or(&gpus.spelled);
    let family = gpus.name.as_ref().and_then(|name| catalog.gpu(name, None)).and_then(other_family);
    let family = family.map(|family| format!(" ({family})")).unwrap_or_default();
    match (gpus.count, gpus.slice) {
        (0, _) => format!("? × {name}{family}"),
        (count, 1) => format!("{count} × {name}{family}"),
        (count, slice) => format!("{count}/{slice} × {name}{family}"),
    }
}

/// Rounds to a hundredth of a cent; `--json` has all digits.
fn dollars(rate: Rate) -> String {
    // Prices are never negative.
    decimal(rate.micros_per_hour().unsigned_abs(), 4, 4)
}

fn source(listing: &Listing, price: &Price) -> Option<String> {
    // A converted price differs from row to row; that it was converted is what matters here.
    let derived = price.derived.as_ref().map(|derived| match derived.split_once(" an hour at ") {
        Some((_, rate)) => format!(" (at {rate})"),
        None => format!(" ({derived})"),
    });
    Some(format!("{} {}: {}{}", listing.cloud, price.dated, price.source, derived.unwrap_or_default()))
}

/// Prints which option excludes all offers.
fn nothing(catalog: &Catalog, wanted: &Wanted, unaffordable: &[&Listing], all: bool, printer: &mut Printer) {
    printer.say("no offer matches");
    let priced = unaffordable.iter().filter_map(|listing| Some((wanted.market.price(listing)?.rate, *listing)));
    if let Some((rate, listing)) = priced.min_by_key(|(rate, _)| *rate) {
        printer.say(format!(
            "the cheapest is {rate}: `{}` in `{}`; raise `--max-price`",
            listing.instance_type, listing.region
        ));
        return;
    }
    if !unaffordable.is_empty() {
        printer.say(format!("{} machines without a price; show them with `--all`", unaffordable.len()));
        let clouds: BTreeSet<&Cloud> = unaffordable.iter().map(|listing| &listing.cloud).collect();
        for cloud in clouds.into_iter().filter(|cloud| CLOUDS.contains(cloud)) {
            printer.say(format!("`gradus catalog refresh {cloud}` reads prices of {cloud}"));
        }
    }
    let any_number = wanted.gpu.as_ref().map(|gpu| Accelerators { count: None, ..gpu.clone() });
    if any_number.is_some_and(|gpu| !catalog.listings.iter().any(|listing| catalog.has(listing, &gpu))) {
        printer.say("no machine in the catalog has this GPU; `gradus catalog import` takes machines that have it");
    }
    let without: [(&str, Wanted); 4] = [
        ("--gpu", Wanted { gpu: None, ..wanted.clone() }),
        ("--cloud", Wanted { clouds: Vec::new(), ..wanted.clone() }),
        ("--region", Wanted { regions: Vec::new(), ..wanted.clone() }),
        ("--compliance", Wanted { compliance: Vec::new(), ..wanted.clone() }),
    ];
    let is_left = |relaxed: &Wanted, row: &&Listing| is_shown(catalog, relaxed, all, row) && relaxed.affords(row);
    if let Some(gpu) = wanted.gpu.as_ref().filter(|gpu| gpu.count.is_some()) {
        let any = Wanted { gpu: Some(Accelerators { count: None, ..gpu.clone() }), ..wanted.clone() };
        let counts: BTreeSet<u32> =
            catalog.listings.iter().filter(|row| is_left(&any, row)).map(|row| row.gpus.count).collect();
        if !counts.is_empty() {
            let counts: Vec<String> = counts.iter().map(u32::to_string).collect();
            printer.say(format!("machines have {} of this GPU: use one of these counts after `:`", counts.join(", ")));
        }
    }
    for (flag, relaxed) in without.iter().filter(|(_, relaxed)| relaxed != wanted) {
        let left = catalog.listings.iter().filter(|row| is_left(relaxed, row)).count();
        if left > 0 {
            printer.say(format!("without `{flag}`: {left} offers"));
        }
    }
}

/// An offer as JSON; prices in integer micro-dollars per hour.
fn value(catalog: &Catalog, listing: &Listing) -> Value {
    let price = |price: &Option<Price>| {
        price.as_ref().map(|price| {
            json!({
                "micro_usd_per_hour": price.rate.micros_per_hour(),
                "dated": price.dated,
                "source": price.source,
                "derived": price.derived,
            })
        })
    };
    let gibibytes = |bytes: Option<domain::Bytes>| bytes.map(|bytes| bytes.0 as f64 / f64::from(1 << 30));
    let region = catalog.region(&listing.cloud, &listing.region);
    let priced = PurchaseOption::ALL.into_iter().filter(|terms| terms.price(listing).is_some());
    let availability: BTreeMap<&str, Availability> =
        priced.map(|terms| (terms.key(), catalog.availability(listing, terms))).collect();
    json!({
        "cloud": listing.cloud,
        "region": listing.region,
        "country": region.map(|region| &region.country).filter(|country| !country.is_empty()),
        "compliance": region.map(|region| &region.compliance),
        "carbon_g_per_kwh": region.and_then(|region| Some(region.carbon.as_ref()?.grams_per_kwh)),
        "instance_type": listing.instance_type,
        "gpu": listing.gpus.name,
        "gpu_spelled": listing.gpus.spelled,
        "gpu_count": listing.gpus.count,
        "gpu_slice": listing.gpus.slice,
        "gpu_memory_gib": gibibytes(listing.gpus.memory),
        "cores": listing.cores,
        "memory_gib": gibibytes(listing.memory),
        "disk_gb": listing.disk.map(|disk| disk.0 as f64 / 1e9),
        "network_gbps": listing.network.map(|network| network / 1e9),
        "fabric": listing.fabric,
        "on_demand": price(&listing.on_demand),
        "spot": price(&listing.spot),
        "reserved_1y": price(&listing.reserved_1y),
        "reserved_3y": price(&listing.reserved_3y),
        "dedicated": price(&listing.dedicated),
        "interrupted_per_cent_a_month": listing.interrupted,
        "availability": availability,
    })
}
