//! `gradus catalog refresh`: fetches the current prices of a cloud, shows what has changed, and lays them over the catalog.

pub mod history;
mod show;
mod sources;

use std::collections::BTreeSet;

use cloud::Catalog;
use cloud::catalog::refreshed;
use cloud::prices::compare::{PriceComparison, compare};
use cloud::prices::{CLOUDS, PriceTable, cloud_apart, is_region_name};
use domain::listing::{Cloud, Listing};

use crate::error::{Error, exit};
use crate::figures::{day_of, day_text};
use crate::printer::Printer;
use crate::settings::GlobalSettings;
use sources::FetchedPrices;

/// Arguments of `gradus catalog refresh`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Cloud whose prices to fetch: aws, azure, gcp, lambda, alibaba or tencent
    cloud: String,
    /// Only this region (repeatable); of AWS, the price list of one has some hundred megabytes
    #[arg(long = "region", value_name = "REGION")]
    regions: Vec<String>,
    /// Show what would change, and store nothing
    #[arg(long)]
    dry_run: bool,
    /// Take suspicious prices too: more than five times the one before or less than a fifth of it, stated twice, or in
    /// another currency
    #[arg(long)]
    accept: bool,
    /// List every change, not only the largest
    #[arg(long)]
    all: bool,
}

/// What a refresh has come to, for [`show`].
struct Outcome<'a> {
    cloud: &'a Cloud,
    dated: &'a str,
    table: &'a PriceTable,
    comparison: &'a PriceComparison,
    fetched: &'a FetchedPrices,
    /// Prices that an import of the user's hides.
    hidden: usize,
    /// The stored refresh; none for a dry run, or where there is nothing to store.
    file: Option<&'a refreshed::RefreshFile>,
}

/// Fetches prices, shows what has changed, and stores them.
///
/// # Errors
/// [`Error::Usage`] for a cloud or region that cannot be refreshed, [`Error::Code`] where prices cannot be read; what was
/// read of other regions is stored even then.
pub fn run(args: &Args, settings: &GlobalSettings, printer: &mut Printer) -> Result<u8, Error> {
    let cloud = named(&args.cloud)?;
    check_regions(&cloud, &args.regions)?;
    let catalog = Catalog::refreshed(&settings.home)?;
    // A damaged import is said before anything is read or stored.
    let imported = Catalog::open(&settings.home)?;
    let dated = day_text(day_of(jiff::Timestamp::now()));
    let fetched = sources::fetch(&cloud, (&catalog, &args.regions, &dated), settings, printer)?;
    let comparison = compare(&catalog, &cloud, &fetched.table, &dated, args.accept);
    let is_stored = !args.dry_run && !comparison.taken.is_empty();
    let file = match is_stored {
        true => Some(refreshed::keep(&settings.home, &cloud, &dated, &comparison.taken)?),
        false => None,
    };
    let outcome = Outcome {
        cloud: &cloud,
        dated: &dated,
        table: &fetched.table,
        comparison: &comparison,
        fetched: &fetched,
        hidden: hidden(&imported, &cloud, &comparison),
        file: file.as_ref(),
    };
    match printer.is_json() {
        true => printer.json(&show::value(&outcome)),
        false => show::lines(&outcome, args, printer),
    }
    finished(&outcome)
}

/// The exit code, or why not everything was read.
fn finished(outcome: &Outcome<'_>) -> Result<u8, Error> {
    let (cloud, unread) = (outcome.cloud, &outcome.fetched.unread);
    if let Some((region, why)) = unread.first() {
        let regions = match unread.len() {
            1 => format!("`{region}`"),
            several => format!("{several} regions from `{region}` on"),
        };
        let message = format!("prices of {cloud} in {regions} were not read: {why}");
        let hint = format!("`gradus catalog refresh {cloud} --region {region}` reads one region again");
        return Err(Error::Code { message, hint: Some(hint), code: exit::WORLD });
    }
    if outcome.table.is_empty() {
        let message = format!("{cloud} has answered, with no price of a machine that the catalog knows");
        let hint = format!("`gradus offers --cloud {cloud} --all` lists the machines and regions that it knows");
        return Err(Error::Code { message, hint: Some(hint), code: exit::WORLD });
    }
    Ok(exit::DONE)
}

/// The cloud that a word means.
fn spelled(word: &str) -> Cloud {
    match Cloud::named(word) {
        Cloud::Other(name) if name == "google" => Cloud::Gcp,
        cloud => cloud,
    }
}

/// The cloud of this name, if its prices can be refreshed.
fn named(name: &str) -> Result<Cloud, Error> {
    let known = CLOUDS.iter().map(|cloud| format!("`{cloud}`")).collect::<Vec<_>>().join(", ");
    match spelled(name) {
        cloud if CLOUDS.contains(&cloud) => Ok(cloud),
        Cloud::Own => Err(Error::Usage {
            message: "your own machines have no prices to fetch".to_owned(),
            hint: format!("`gradus catalog import FILE` changes them; clouds that can be refreshed: {known}"),
        }),
        cloud => Err(Error::Usage {
            message: format!("prices of `{cloud}` cannot be fetched"),
            hint: format!("use one of {known}; `gradus catalog import FILE --cloud {cloud}` reads prices from a file"),
        }),
    }
}

/// Refuses what is no name of a region, and regions whose prices are elsewhere.
fn check_regions(cloud: &Cloud, regions: &[String]) -> Result<(), Error> {
    if let Some(region) = regions.iter().find(|region| !is_region_name(region)) {
        let message = format!("`{region}` is no name of a region");
        return Err(Error::Usage { message, hint: "`gradus catalog regions` lists them".to_owned() });
    }
    if let Some((region, apart)) = regions.iter().find_map(|region| Some((region, cloud_apart(cloud, region)?))) {
        let message = format!("`{region}` is a region of `{apart}`, which needs an account of its own and is not read");
        let hint = format!("`gradus catalog import FILE --cloud {apart}` reads prices from a file");
        return Err(Error::Usage { message, hint });
    }
    Ok(())
}

/// How many of the prices belong to machines whose prices the user has imported.
fn hidden(catalog: &Catalog, cloud: &Cloud, comparison: &PriceComparison) -> usize {
    let is_imported = |listing: &&Listing| listing.cloud == *cloud && catalog.is_imported(listing);
    let imported: BTreeSet<(&str, &str)> = catalog
        .listings
        .iter()
        .filter(is_imported)
        .map(|listing| (listing.region.as_str(), listing.instance_type.as_str()))
        .collect();
    let is_hidden = |row: &&refreshed::RefreshedPrice| imported.contains(&(&*row.region, &*row.instance_type));
    comparison.taken.iter().filter(is_hidden).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clouds_that_cannot_be_refreshed_are_refused_with_those_that_can() {
        let check = |name: &str, expected: &str| {
            let said = match named(name) {
                Ok(cloud) => cloud.to_string(),
                Err(error) => format!("{error}; {}", error.hint().unwrap_or_default()),
            };
            assert!(said.starts_with(expected), "{said}");
            assert!(said.len() < 10 || said.contains("`aws`, `azure`, `gcp`, `lambda`"), "{said}");
        };
        check("AWS", "aws");
        check("google", "gcp");
        check("lambda", "lambda");
        check("Tencent", "tencent");
        check("oracle", "prices of `oracle` cannot be fetched; use one of");
        check("own", "your own machines have no prices to fetch");
        check("", "prices of `` cannot be fetched");
    }

    #[test]
    fn regions_are_names() {
        let check = |cloud: Cloud, region: &str, is_right: bool| {
            assert_eq!(check_regions(&cloud, &[region.to_owned()]).is_ok(), is_right, "{region}");
        };
        check(Cloud::Aws, "us-east-1", true);
        check(Cloud::Aws, "cn-north-1", false);
        check(Cloud::Aws, "us-gov-west-1", false);
        check(Cloud::Azure, "usgovvirginia", false);
        check(Cloud::Gcp, "../x", false);
        check(Cloud::Azure, "eastus' or 1", false);
        check(Cloud::Azure, "", false);
    }
}
