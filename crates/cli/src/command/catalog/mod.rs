//! `gradus catalog`: the catalog of machines and prices: its age, gaps, imports and refreshes.

mod lists;
mod refresh;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use cloud::Catalog;
use cloud::catalog::import::{self, Defaults, stem};
use domain::listing::Listing;
use domain::terms::PurchaseOption;
use serde_json::json;

use crate::error::Error;
use crate::error::exit;
use crate::figures::{age, counted, day_of, grouped};
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use crate::table;

/// Arguments of `gradus catalog`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Subcommand>,
}

#[derive(Debug, clap::Subcommand)]
enum Subcommand {
    /// Show the age and the gaps of the prices (the default)
    Info,
    /// Import prices, your own machines or GPUs that are unknown here from a CSV file, such as SkyPilot's `vms.csv`
    Import {
        /// CSV file whose header line names the columns, such as `InstanceType`, `AcceleratorName`, `AcceleratorCount`,
        /// `Price`, `SpotPrice`, `Region`; if one is missing, the error names it and shows an example
        file: PathBuf,
        /// Cloud of rows without one; `own` for your own machines
        #[arg(long, value_name = "NAME")]
        cloud: Option<String>,
        /// Date of the prices, such as `2026-11-01` [default: modification date of the file]
        #[arg(long, value_name = "DAY")]
        dated: Option<String>,
    },
    /// Fetch the current prices of a cloud from its price API, show what has changed, and use them from now on
    Refresh(refresh::Args),
    /// List the refreshes of prices
    History,
    /// Undo the newest refresh of a cloud
    Revert {
        /// Cloud, as shown by `gradus catalog history`
        cloud: String,
    },
    /// List the GPU names that `--gpu` and `resources.accelerators` accept
    Gpus,
    /// List regions with offers
    Regions,
    /// Remove an import
    Forget {
        /// Name, as shown by `gradus catalog info`
        name: String,
    },
}

/// Shows or changes the catalog.
///
/// # Errors
/// [`Error`].
pub fn run(args: Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    match args.command.unwrap_or(Subcommand::Info) {
        Subcommand::Info => info(&Catalog::open(&settings.home)?, printer),
        Subcommand::Import { file, cloud, dated } => import(&settings.home, &file, cloud, dated, printer),
        Subcommand::Refresh(args) => refresh::run(&args, settings, printer),
        Subcommand::History => refresh::history::run(settings, printer),
        Subcommand::Revert { cloud } => refresh::history::revert(&cloud, settings, printer),
        Subcommand::Gpus => lists::gpus(&Catalog::open(&settings.home)?, printer),
        Subcommand::Regions => lists::regions(&Catalog::open(&settings.home)?, printer),
        Subcommand::Forget { name } => forget(&settings.home, &name, printer),
    }
}

fn import(
    home: &Path,
    file: &Path,
    cloud: Option<String>,
    dated: Option<String>,
    printer: &mut Printer,
) -> Result<u8, Error> {
    let bytes = std::fs::read(file).map_err(Error::file("read", file))?;
    let name = file.display().to_string();
    let text = String::from_utf8(bytes).map_err(|_| Error::Usage {
        message: format!("cannot import `{name}`: not UTF-8 text"),
        hint: "save it as CSV in UTF-8".to_owned(),
    })?;
    let dated = match dated {
        Some(day) if age(&day, i64::MAX).is_some() => day,
        Some(day) => {
            let message = format!("`{day}` is not a date");
            return Err(Error::Usage { message, hint: "use for example `--dated 2026-11-01`".to_owned() });
        }
        None => written(file).map_err(Error::file("read", file))?,
    };
    let short = file.file_name().map_or(name.clone(), |name| name.to_string_lossy().into_owned());
    let cloud = cloud.map(|cloud| if cloud.eq_ignore_ascii_case("google") { "gcp".to_owned() } else { cloud });
    let defaults = Defaults { cloud: cloud.clone(), dated, source: format!("imported from {short}") };
    let file_stem = file.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
    let kept = cloud.map_or(file_stem.clone(), |cloud| format!("{cloud}-{file_stem}"));
    let mut catalog = Catalog::embedded()?;
    catalog.describe_imported(home, &kept)?;
    let read = import::read(&name, &text, &catalog, &defaults)?;
    catalog.describe(&read.gpus, &name).map_err(|(message, hint)| Error::Usage { message, hint })?;
    let path = import::keep_read(home, &kept, &read)?;
    let kept = stem(&path.file_name().unwrap_or_default().to_string_lossy()).to_owned();
    imported(&kept, &path, &read, replaced(&catalog, &read.listings), printer);
    Ok(exit::DONE)
}

/// Prints the result of an import under the name `kept`: replaced and skipped rows.
fn imported(kept: &str, path: &Path, read: &import::Read, replaced: usize, printer: &mut Printer) {
    let unknown: BTreeSet<&str> = read
        .listings
        .iter()
        .filter(|listing| listing.gpus.name.is_none())
        .map(|row| row.gpus.spelled.as_str())
        .collect();
    let without_price = read.listings.iter().filter(|listing| !has_price(listing)).count();
    if printer.is_json() {
        printer.json(&json!({
            "import": kept,
            "file": path,
            "listings": read.listings.len(),
            "replaced": replaced,
            "gpus": read.gpus.keys().collect::<Vec<_>>(),
            "left_out": read.left_out,
            "unread_columns": read.unread,
            "without_price": without_price,
            "unknown_gpus": unknown,
        }));
        return;
    }
    if !read.gpus.is_empty() {
        let names = read.gpus.keys().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        printer.data(format!("{} imported as `{kept}`: {names}", counted(read.gpus.len() as u64, "GPU")));
        printer.say("nothing was measured on them: estimates have a wide band");
        unread(read).into_iter().for_each(|line| printer.say(line));
        printer.say(format!("undo with `gradus catalog forget {kept}`"));
        return;
    }
    printer.data(format!(
        "{} imported as `{kept}`, replacing {replaced} of the built-in catalog",
        counted(read.listings.len() as u64, "offer")
    ));
    for (reason, count) in &read.left_out {
        printer.say(format!("skipped {count} rows: {reason}"));
    }
    unread(read).into_iter().for_each(|line| printer.say(line));
    if without_price > 0 {
        let offers = counted(without_price as u64, "offer");
        printer.say(format!("without a price, not used in plans: {offers}; columns of prices: `on_demand`, `spot`"));
    }
    if !unknown.is_empty() {
        let names = unknown.into_iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
        printer.say(format!("unknown GPUs, not used in plans: {names}"));
    }
    printer.say(format!("undo with `gradus catalog forget {kept}`"));
}

/// The columns that nothing was read from.
fn unread(read: &import::Read) -> Option<String> {
    let column = |(name, meant): (&String, &Option<String>)| match meant {
        Some(meant) => format!("`{name}` (did you mean `{meant}`?)"),
        None => format!("`{name}`"),
    };
    let columns: Vec<String> = read.unread.iter().map(column).collect();
    (!columns.is_empty()).then(|| format!("columns that are not read: {}", columns.join(", ")))
}

/// Whether a machine can be planned with: at an hourly price.
fn has_price(listing: &Listing) -> bool {
    PurchaseOption::ALL.iter().any(|terms| terms.price(listing).is_some())
}

/// How many built-in listings an import replaces.
fn replaced(catalog: &Catalog, listings: &[Listing]) -> usize {
    let key = |listing: &Listing| (listing.cloud.clone(), listing.region.clone(), listing.instance_type.clone());
    let ours: BTreeSet<_> = catalog.listings.iter().map(key).collect();
    listings.iter().filter(|listing| ours.contains(&key(listing))).count()
}

fn forget(home: &Path, name: &str, printer: &mut Printer) -> Result<u8, Error> {
    if import::forget(home, name)? {
        if printer.is_json() {
            printer.json(&json!({ "forgotten": name }));
        }
        printer.say(format!("removed import `{name}`"));
        return Ok(exit::DONE);
    }
    let names: Vec<String> = import::names(home)?.iter().map(|name| format!("`{}`", stem(name))).collect();
    let hint = match names.is_empty() {
        true => "there are no imports".to_owned(),
        false => format!("imports: {}", names.join(", ")),
    };
    Err(Error::Usage { message: format!("no import `{name}`"), hint })
}

/// Prices of one cloud, one kind and one day.
#[derive(Default)]
struct Quote {
    prices: usize,
    sources: BTreeSet<String>,
}

fn info(catalog: &Catalog, printer: &mut Printer) -> Result<u8, Error> {
    let today = day_of(jiff::Timestamp::now());
    let quotes = quotes(catalog);
    let gaps = Gaps::of(catalog);
    if printer.is_json() {
        let quotes: Vec<_> = quotes
            .iter()
            .map(|((cloud, kind, dated), quote)| {
                json!({ "cloud": cloud, "price": kind, "dated": dated, "age_days": age(dated, today),
                        "prices": quote.prices, "sources": quote.sources })
            })
            .collect();
        printer.json(&json!({
            "offers": catalog.listings.len(),
            "gpus": catalog.gpus.list.len(),
            "quotes": quotes,
            "gaps": gaps.value(),
            "imports": catalog.imports.iter().map(|import| json!({ "name": stem(&import.name), "offers": import.listings })).collect::<Vec<_>>(),
        }));
        return Ok(exit::DONE);
    }
    let without: usize = gaps.without_price.values().sum();
    let of_kinds = |kinds: &[&str]| -> usize {
        quotes.iter().filter(|((_, kind, _), _)| kinds.contains(kind)).map(|(_, quote)| quote.prices).sum()
    };
    printer.data(format!(
        "{} offers of {} GPU types: {} hourly prices, {} reservation prices; {} offers have no price (import one)",
        grouped(catalog.listings.len() as u64),
        catalog.gpus.list.len(),
        grouped(of_kinds(&["on demand", "spot", "dedicated"]) as u64),
        grouped(of_kinds(&["1 year", "3 years"]) as u64),
        grouped(without as u64),
    ));
    printer.data("");
    let rows: Vec<Vec<String>> = quotes
        .iter()
        .map(|((cloud, kind, dated), quote)| {
            let age = age(dated, today).map_or_else(|| "-".to_owned(), |days| format!("{days} days"));
            let sources = quote.sources.iter().cloned().collect::<Vec<_>>().join("; ");
            vec![cloud.clone(), (*kind).to_owned(), quote.prices.to_string(), dated.clone(), age, sources]
        })
        .collect();
    let head = ["cloud", "price", "offers", "date", "age", "source"];
    table::lines(&head, &rows).into_iter().for_each(|line| printer.data(line));
    printer.data("");
    gaps.lines().into_iter().for_each(|line| printer.data(line));
    for import in &catalog.imports {
        printer.data(format!("imported: `{}`, {} offers", stem(&import.name), import.listings));
    }
    printer.say(
        "vCPUs and memory of Azure, GCP and Alibaba machines: Spare Cores (sparecores.com), CC BY-SA 4.0, 2026-01-31",
    );
    Ok(exit::DONE)
}

fn quotes(catalog: &Catalog) -> BTreeMap<(String, &'static str, String), Quote> {
    let mut quotes: BTreeMap<_, Quote> = BTreeMap::new();
    for listing in &catalog.listings {
        let prices = [
            ("on demand", &listing.on_demand),
            ("spot", &listing.spot),
            ("1 year", &listing.reserved_1y),
            ("3 years", &listing.reserved_3y),
            ("dedicated", &listing.dedicated),
        ];
        for (kind, price) in prices {
            let Some(price) = price else { continue };
            let quote = quotes.entry((listing.cloud.name().to_owned(), kind, price.dated.clone())).or_default();
            quote.prices += 1;
            quote.sources.insert(price.source.clone());
        }
    }
    quotes
}

/// Missing facts.
#[derive(Default)]
struct Gaps {
    /// Offers without any price, by cloud.
    without_price: BTreeMap<String, usize>,
    /// Spellings of GPUs that are not in the table: how many offers, and why.
    unknown_gpus: BTreeMap<String, (usize, String)>,
    /// Machine types, not offers.
    without_gpu_count: BTreeSet<String>,
    without_cores: BTreeSet<String>,
    without_network: BTreeSet<String>,
    regions_without_carbon: BTreeSet<String>,
    /// Offers with a price by cloud, then by whether there are such machines.
    availability: BTreeMap<String, BTreeMap<&'static str, usize>>,
}

impl Gaps {
    fn of(catalog: &Catalog) -> Gaps {
        let mut gaps = Gaps::default();
        for listing in &catalog.listings {
            let cloud = listing.cloud.name();
            let machine = format!("{cloud} {}", listing.instance_type);
            if listing.on_demand.is_none() && listing.spot.is_none() {
                *gaps.without_price.entry(cloud.to_owned()).or_default() += 1;
            }
            if listing.gpus.name.is_none() {
                let why = catalog.gpus.left_out(&listing.gpus.spelled).unwrap_or("unknown GPU");
                gaps.unknown_gpus.entry(listing.gpus.spelled.clone()).or_insert((0, why.to_owned())).0 += 1;
            }
            for (missing, set) in [
                (listing.gpus.count == 0, &mut gaps.without_gpu_count),
                (listing.cores.is_none(), &mut gaps.without_cores),
                (listing.network.is_none(), &mut gaps.without_network),
            ] {
                if missing {
                    set.insert(machine.clone());
                }
            }
            for terms in PurchaseOption::ALL.into_iter().filter(|terms| terms.price(listing).is_some()) {
                let offers = gaps.availability.entry(cloud.to_owned()).or_default();
                *offers.entry(catalog.availability(listing, terms).word()).or_default() += 1;
            }
            let region = catalog.region(&listing.cloud, &listing.region);
            if region.is_none_or(|region| region.carbon.is_none()) {
                gaps.regions_without_carbon.insert(format!("{cloud} {}", listing.region));
            }
        }
        gaps
    }

    fn lines(&self) -> Vec<String> {
        let mut lines = Vec::new();
        for (cloud, count) in &self.without_price {
            lines.push(format!("no price: {count} offers of {cloud}"));
        }
        for (spelled, (count, why)) in &self.unknown_gpus {
            lines.push(format!("GPU `{spelled}`, {count} offers: {why}"));
        }
        for (what, set) in [
            ("GPU count", &self.without_gpu_count),
            ("CPU cores", &self.without_cores),
            ("network", &self.without_network),
        ] {
            if !set.is_empty() {
                lines.push(format!("unknown {what}: {} machine types", set.len()));
            }
        }
        let priced = |word: &str| -> Vec<String> {
            let counts = self.availability.iter().filter_map(|(cloud, counts)| Some((cloud, counts.get(word)?)));
            counts.map(|(cloud, count)| format!("{count} offers of {cloud}")).collect()
        };
        for (word, what) in [
            ("denied", "priced in regions without the machine"),
            ("unknown", "priced, and no source says that there are such machines"),
        ] {
            let told = priced(word);
            if !told.is_empty() {
                lines.push(format!("{what}: {}", told.join(", ")));
            }
        }
        if !self.regions_without_carbon.is_empty() {
            let regions = self.regions_without_carbon.iter().cloned().collect::<Vec<_>>().join(", ");
            lines.push(format!("unknown grid emissions: {regions}"));
        }
        lines
    }

    fn value(&self) -> serde_json::Value {
        let unknown: BTreeMap<_, _> = self
            .unknown_gpus
            .iter()
            .map(|(spelled, (count, why))| (spelled, json!({ "offers": count, "why": why })))
            .collect();
        json!({
            "offers_without_price": self.without_price,
            "unknown_gpus": unknown,
            "machines_without_gpu_count": self.without_gpu_count,
            "machines_without_cores": self.without_cores,
            "machines_without_network": self.without_network,
            "regions_without_carbon": self.regions_without_carbon,
            "offers_by_availability": self.availability,
        })
    }
}

/// The day a file was written.
fn written(file: &Path) -> std::io::Result<String> {
    let time = std::fs::metadata(file)?.modified()?;
    let stamp = jiff::Timestamp::try_from(time).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    Ok(stamp.strftime("%Y-%m-%d").to_string())
}
