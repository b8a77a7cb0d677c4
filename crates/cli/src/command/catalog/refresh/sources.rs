//! Where the prices of each cloud come from: its address, the user's credentials, and what is said while they are read.

use std::sync::Arc;
use std::time::Duration;

use cloud::Catalog;
use cloud::aws::wire::failure::AwsFailure;
use cloud::aws::wire::{HttpReply, HttpRequest, HttpTransport, times};
use cloud::aws::{Client, now};
use cloud::catalog::refreshed::PriceTerms;
use cloud::prices::fetch::{PriceFailure, PriceFetcher, PriceReply, PriceTransport};
use cloud::prices::gcp::GcpAccess;
use cloud::prices::{KnownTypes, PriceTable, alibaba, aws, azure, gcp, known_types, lambda, tencent};
use cloud::rented::CloudFailure;
use domain::listing::Cloud;
use server::Home;
use store::WebClient;

use crate::error::{Error, exit};
use crate::local::rented::RentedCloud;
use crate::printer::Printer;
use crate::settings::GlobalSettings;

/// How often spot prices of a region are asked for where AWS allows no more requests.
const TRIES: u32 = 4;

/// What was read, and what was not.
#[derive(Debug, Default)]
pub struct FetchedPrices {
    pub table: PriceTable,
    /// Regions whose prices were not read, and why.
    pub unread: Vec<(String, String)>,
    /// What else is missing, and why.
    pub notes: Vec<String>,
}

/// The client for HTTP.
struct PriceWeb(WebClient);

impl PriceTransport for PriceWeb {
    fn open(&self, request: &HttpRequest) -> Result<PriceReply, String> {
        let HttpRequest { method, url, headers, body } = request;
        let (status, after, body) = self.0.open_paced(method, url, headers, body.clone())?;
        Ok(PriceReply { status, retry_after: Some(after).filter(|after| !after.is_empty()), body })
    }
}

impl HttpTransport for PriceWeb {
    fn send(&self, request: &HttpRequest) -> Result<HttpReply, String> {
        let HttpRequest { method, url, headers, body } = request;
        let (status, body) = self.0.send(method, url, headers, body.clone())?;
        Ok(HttpReply { headers: Vec::new(), status, body })
    }
}

/// Reads the prices of a cloud: of all regions, or of those that are named, as of a day.
///
/// # Errors
/// [`Error::Store`] in an executable without a client for HTTP, [`Error::Code`] where nothing can be read.
pub fn fetch(
    cloud: &Cloud,
    (catalog, regions, today): (&Catalog, &[String], &str),
    settings: &GlobalSettings,
    printer: &mut Printer,
) -> Result<FetchedPrices, Error> {
    let web = Arc::new(PriceWeb(WebClient::new()?));
    let fetcher = PriceFetcher { transport: &*web, pause: &std::thread::sleep };
    let known = known_types(catalog, cloud);
    let table = match cloud {
        Cloud::Aws => return Ok(of_aws(&web, &known, regions, settings, printer)),
        Cloud::Azure => {
            let endpoint = settings.azure_endpoint.as_deref().unwrap_or(azure::ENDPOINT);
            azure::fetch(&fetcher, endpoint, &known, regions, today)
        }
        Cloud::Gcp => {
            let endpoint = settings.gcp.variable("GRADUS_GCP_ENDPOINT").unwrap_or(gcp::ENDPOINT);
            gcp::fetch(&fetcher, endpoint, &google(settings, &web)?, catalog, regions)
        }
        Cloud::Lambda => {
            let Some(key) = &settings.lambda_key else { return Err(failed(cloud, "no key was found", true)) };
            let endpoint = settings.lambda_endpoint.as_deref().unwrap_or(cloud::lambda::ENDPOINT);
            lambda::fetch(&fetcher, endpoint, key, &known, regions)
        }
        Cloud::Alibaba => return of_alibaba(&known, regions, settings, printer),
        Cloud::Tencent => return of_tencent(&known, regions, settings, printer),
        Cloud::Own | Cloud::Other(_) => Ok(PriceTable::default()),
    };
    let table = table.map_err(|failure| failed(cloud, &failure.to_string(), failure.is_denied()))?;
    Ok(FetchedPrices { table, ..FetchedPrices::default() })
}

/// The key or token for Google.
fn google(settings: &GlobalSettings, web: &PriceWeb) -> Result<GcpAccess, Error> {
    if let Some(key) = settings.gcp.variable("GOOGLE_API_KEY") {
        return Ok(GcpAccess::Key(key.to_owned()));
    }
    let source = settings.gcp.source().map_err(|why| failed(&Cloud::Gcp, &why, true))?;
    let token = source.token(web).map_err(|failure| failed(&Cloud::Gcp, &failure.to_string(), true))?;
    Ok(GcpAccess::Token { token: token.text, project: settings.gcp.project() })
}

/// The price list of each region, then spot prices where there are credentials.
fn of_aws(
    web: &Arc<PriceWeb>,
    known: &KnownTypes,
    regions: &[String],
    settings: &GlobalSettings,
    printer: &mut Printer,
) -> FetchedPrices {
    let fetcher = PriceFetcher { transport: &**web, pause: &std::thread::sleep };
    let endpoint = settings.aws_prices_endpoint.as_deref().unwrap_or(aws::ENDPOINT);
    let mut regions: Vec<String> = match regions {
        [] => known.values().flatten().cloned().collect(),
        named => named.to_vec(),
    };
    regions.sort_unstable();
    regions.dedup();
    if regions.len() > 1 {
        printer.say(format!(
            "reading the price lists of {} regions, some hundred megabytes each; `--region` names fewer",
            regions.len()
        ));
    }
    let mut fetched = FetchedPrices::default();
    for (number, region) in regions.iter().enumerate() {
        printer.progress(&format!("reading the price list of {region} ({} of {})", number + 1, regions.len()));
        let failure = match aws::fetch(&fetcher, endpoint, known, region) {
            Ok(table) => {
                fetched.table.extend(table);
                continue;
            }
            Err(failure) => failure,
        };
        // Without an answer there is none for the others either.
        let last = if matches!(failure, PriceFailure::NoAnswer { .. }) { regions.len() } else { number + 1 };
        fetched.unread.extend(regions[number..last].iter().map(|region| (region.clone(), failure.to_string())));
        if last == regions.len() {
            break;
        }
    }
    if !fetched.table.is_empty() {
        let client = Client::new(web.clone(), settings.aws.clone());
        spot(&client, &regions, &mut fetched, printer);
    }
    fetched
}

/// Reads spot prices of regions. That they cannot be read is noted: prices on demand are of use without them.
fn spot(client: &Client, regions: &[String], fetched: &mut FetchedPrices, printer: &mut Printer) {
    let since = times::rfc3339(now());
    // Where there are no credentials, one try is enough.
    let key = regions.first().map_or(Ok(()), |region| client.key(region).map(drop));
    if let Err(failure) = key {
        fetched.notes.push(format!("spot prices were not read, which needs credentials of AWS: {failure}"));
        return;
    }
    for region in regions {
        printer.progress(&format!("reading spot prices of {region}"));
        let mut pause = Duration::from_secs(1);
        let types = on_demand(&fetched.table, region);
        let types: Vec<&str> = types.iter().map(String::as_str).collect();
        if types.is_empty() {
            continue;
        }
        let mut answer = aws::spot(client, &types, region, &since);
        for _ in 1..TRIES {
            if !matches!(answer, Err(AwsFailure::Throttled(_))) {
                break;
            }
            std::thread::sleep(pause);
            pause *= 2;
            answer = aws::spot(client, &types, region, &since);
        }
        match answer {
            Ok(table) => fetched.table.extend(table),
            Err(failure) => fetched.notes.push(format!("spot prices of {region} were not read: {failure}")),
        }
    }
}

/// What each region of a cloud whose API needs a key costs, as `read` adds it.
fn by_region(
    known: &KnownTypes,
    regions: &[String],
    printer: &mut Printer,
    mut read: impl FnMut(&str, &mut FetchedPrices) -> Result<(), CloudFailure>,
) -> FetchedPrices {
    let mut regions: Vec<String> = match regions {
        [] => known.values().flatten().cloned().collect(),
        named => named.to_vec(),
    };
    regions.sort_unstable();
    regions.dedup();
    let mut fetched = FetchedPrices::default();
    for (number, region) in regions.iter().enumerate() {
        printer.progress(&format!("reading the prices of {region} ({} of {})", number + 1, regions.len()));
        let Err(failure) = read(region, &mut fetched) else { continue };
        // A key that may not do it here may not do it elsewhere.
        let last = if matches!(failure, CloudFailure::Denied(_)) { regions.len() } else { number + 1 };
        fetched.unread.extend(regions[number..last].iter().map(|region| (region.clone(), failure.to_string())));
        if last == regions.len() {
            break;
        }
    }
    fetched
}

/// Machines on demand, then spot machines. That spot prices cannot be read is noted: those on demand are of use without them.
fn of_alibaba(
    known: &KnownTypes,
    regions: &[String],
    settings: &GlobalSettings,
    printer: &mut Printer,
) -> Result<FetchedPrices, Error> {
    let RentedCloud::Alibaba(api) = RentedCloud::open(cloud::alibaba::NAME, settings, &Home::open(&settings.home)?)?
    else {
        return Ok(FetchedPrices::default());
    };
    Ok(by_region(known, regions, printer, |region, fetched| {
        fetched.table.extend(alibaba::on_demand(&api, known, region, &std::thread::sleep)?);
        match alibaba::spot(&api, &on_demand(&fetched.table, region), region, &std::thread::sleep) {
            Ok(table) => fetched.table.extend(table),
            Err(failure) => fetched.notes.push(format!("spot prices of {region} were not read: {failure}")),
        }
        Ok(())
    }))
}

/// What each zone sells. Answers do not say in which currency.
fn of_tencent(
    known: &KnownTypes,
    regions: &[String],
    settings: &GlobalSettings,
    printer: &mut Printer,
) -> Result<FetchedPrices, Error> {
    let RentedCloud::Tencent(api) = RentedCloud::open(cloud::tencent::NAME, settings, &Home::open(&settings.home)?)?
    else {
        return Ok(FetchedPrices::default());
    };
    let mut fetched = by_region(known, regions, printer, |region, fetched| {
        fetched.table.extend(tencent::fetch(&api, known, region, &std::thread::sleep)?);
        Ok(())
    });
    fetched.notes.push(format!(
        "Tencent does not say in which currency its prices are: they were read as {}; `currency` in `tencent.json` of the \
         home folder names another one",
        api.currency()
    ));
    Ok(fetched)
}

/// The machine types that a region has on demand, as its price list says.
fn on_demand(table: &PriceTable, region: &str) -> Vec<String> {
    let there = table.prices().filter(|(key, _, _)| key.0 == region && key.2 == PriceTerms::OnDemand);
    there.map(|(key, _, _)| key.1.clone()).collect()
}

/// Why the prices of a cloud could not be read, and what to do.
fn failed(cloud: &Cloud, why: &str, is_denied: bool) -> Error {
    let hint = match cloud {
        Cloud::Gcp if is_denied => {
            "enable the Cloud Billing API of a project, and set `GOOGLE_API_KEY` to an API key of it, or run `gcloud auth \
             application-default login`"
        }
        Cloud::Lambda if is_denied => "set `LAMBDA_API_KEY` to a key of Lambda's console",
        _ => "run the same command again; nothing was changed",
    };
    Error::Code {
        message: format!("cannot read the prices of {cloud}: {why}"),
        hint: Some(hint.to_owned()),
        code: exit::WORLD,
    }
}
