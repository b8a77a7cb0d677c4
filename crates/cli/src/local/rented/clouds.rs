//! The clouds that machines are rented from: what each offers, where its zones are, and how it is asked.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use cloud::alibaba::{self, Alibaba, AlibabaOptions};
use cloud::aws::Client;
use cloud::aws::wire::{HttpReply, HttpRequest, HttpTransport};
use cloud::azure::{self, Azure, AzureOptions};
use cloud::gcp::{self, Gcp, GcpOptions};
use cloud::lambda::{self, Lambda, LambdaOptions};
use cloud::rented::{CloudApi, MachineChoice, ReachSettings, Rented, offers};
use cloud::tencent::{self, Tencent, TencentOptions};
use cloud::{Aws, AwsOptions, AwsSettings, Catalog, Provider, SshSettings};
use domain::job::Needs;
use domain::listing::Cloud;
use domain::wants::Wants;
use domain::{Bytes, Job, Offer, Rate};
use serde::de::DeserializeOwned;
use server::Home;
use store::WebClient;

use super::volumes::Volumes;
use crate::error::{Error, exit};
use crate::settings::GlobalSettings;

/// A client for HTTP that is made when it is used first: most commands rent nothing.
#[derive(Default)]
struct LazyWeb(OnceLock<Result<WebClient, String>>);

impl HttpTransport for LazyWeb {
    fn send(&self, request: &HttpRequest) -> Result<HttpReply, String> {
        let client = self.0.get_or_init(|| WebClient::new().map_err(|error| error.to_string())).as_ref();
        let HttpRequest { method, url, headers, body } = request;
        let (status, headers, body) = client.map_err(Clone::clone)?.send_whole(method, url, headers, body.clone())?;
        Ok(HttpReply { status, headers, body })
    }
}

/// A cloud that machines can be rented from.
pub enum RentedCloud {
    Aws { client: Box<Client>, options: AwsOptions },
    Lambda(Lambda),
    Gcp(Gcp),
    Azure(Azure),
    Alibaba(Alibaba),
    Tencent(Tencent),
}

/// The cloud that a job is to be run on, if it is one that is rented from.
pub fn asked_for(job: &Job) -> Option<&'static str> {
    domain::wants::RENTED_CLOUDS.into_iter().find(|name| job.wants.only_cloud(name))
}

impl RentedCloud {
    /// A cloud with the user's credentials.
    ///
    /// # Errors
    /// [`Error::Store`] in an executable without a client for HTTP, [`Error::Code`] where there are no credentials.
    pub fn open(name: &str, settings: &GlobalSettings, home: &Home) -> Result<RentedCloud, Error> {
        WebClient::new()?;
        match name {
            lambda::NAME => lambda(settings)?.map(RentedCloud::Lambda).ok_or_else(|| {
                no_credentials("Lambda", "no key was found", "set `LAMBDA_API_KEY` to a key of Lambda's console")
            }),
            gcp::NAME => {
                let (gcp, project) = gcp(settings, home)?;
                if let Err(why) = settings.gcp.source() {
                    return Err(no_credentials("Google", &why, "see docs/gcp.md"));
                }
                match project {
                    true => Ok(RentedCloud::Gcp(gcp)),
                    false => Err(no_credentials(
                        "Google",
                        "no project is named",
                        "set `GOOGLE_CLOUD_PROJECT`, or write `{\"project\": \"…\"}` into `gcp.json` of the home folder",
                    )),
                }
            }
            azure::NAME => {
                let (azure, has_subscription) = azure(settings, home)?;
                if let Err(why) = settings.azure.source() {
                    return Err(no_credentials("Azure", &why, "see docs/azure.md"));
                }
                match has_subscription {
                    true => Ok(RentedCloud::Azure(azure)),
                    false => Err(no_credentials(
                        "Azure",
                        "no subscription is named",
                        "set `AZURE_SUBSCRIPTION_ID`, or write `{\"subscription\": \"…\"}` into `azure.json` of the home folder",
                    )),
                }
            }
            alibaba::NAME => match settings.alibaba.source() {
                Ok(_) => alibaba(settings, home).map(RentedCloud::Alibaba),
                Err(why) => Err(no_credentials("Alibaba Cloud", &why, "see docs/alibaba.md")),
            },
            tencent::NAME => match settings.tencent.key() {
                Ok(_) => tencent(settings, home).map(RentedCloud::Tencent),
                Err(why) => Err(no_credentials("Tencent Cloud", &why, "see docs/tencent.md")),
            },
            _ => {
                if let Err(why) = settings.aws.source() {
                    return Err(no_credentials("AWS", &why, "see docs/aws.md for where gradus reads credentials from"));
                }
                let client = Box::new(Client::new(Arc::new(LazyWeb::default()), settings.aws.clone()));
                Ok(RentedCloud::Aws { client, options: options(home, "aws.json", "docs/aws.md")? })
            }
        }
    }

    /// What of the catalog a job may be rented, the cheapest first, with the price of a disk where that is paid for by itself:
    /// of the size, and where its speed is provisioned of the speed, that `volumes` has.
    pub fn offers(&self, catalog: &Catalog, (wants, needs): (&Wants, &Needs), volumes: &Volumes) -> Vec<Offer> {
        // Of a cloud that provisions no speed.
        let with_plain_disk = |offer: Offer, cloud: &Cloud, gib: fn(Bytes) -> u64| {
            let (disk, _) = volumes.disk(&offer, needs);
            offers::with_disk(catalog, cloud, offer, disk, gib)
        };
        let mut offers: Vec<Offer> = match self {
            RentedCloud::Aws { .. } => {
                let with_disk = |offer: Offer| {
                    let (disk, volume) = volumes.disk(&offer, needs);
                    cloud::aws::with_disk(catalog, offer, disk, volume)
                };
                cloud::aws::offers(catalog, wants).into_iter().map(with_disk).collect()
            }
            RentedCloud::Lambda(api) => api.offers(catalog, wants),
            RentedCloud::Gcp(api) => {
                let all = api.offers(catalog, wants).into_iter();
                all.map(|offer| with_plain_disk(offer, &Cloud::Gcp, gcp::disk_gib)).collect()
            }
            RentedCloud::Azure(api) => {
                let all = api.offers(catalog, wants).into_iter();
                all.map(|offer| with_plain_disk(offer, &Cloud::Azure, azure::disk_gib)).collect()
            }
            RentedCloud::Alibaba(api) => {
                let all = api.offers(catalog, wants).into_iter();
                all.map(|offer| with_plain_disk(offer, &Cloud::Alibaba, alibaba::disk_gib)).collect()
            }
            RentedCloud::Tencent(api) => {
                let all = api.offers(catalog, wants).into_iter();
                all.map(|offer| with_plain_disk(offer, &Cloud::Tencent, tencent::disk_gib)).collect()
            }
        };
        // The limit is for all that is paid by the hour.
        offers.retain(|offer| wants.max_price.is_none_or(|most| offer.rate <= most));
        // Disks cost differently in different regions.
        offers.sort_by(|one, other| (one.rate, &one.kind).cmp(&(other.rate, &other.kind)));
        offers
    }

    /// What the disk of an offer costs beside its machine.
    pub fn disk_rate(&self, catalog: &Catalog, offer: &Offer) -> Rate {
        let choice = offer.kind.parse::<MachineChoice>().ok();
        let (region, work) = (choice.as_ref().map(|choice| choice.region.as_str()), offer.node.disk_free);
        match self {
            RentedCloud::Aws { .. } => cloud::aws::disk_rate(catalog, region, &offer.node),
            // Its machines hold their disks.
            RentedCloud::Lambda(_) => Rate::default(),
            RentedCloud::Gcp(_) => offers::disk_rate(catalog, &Cloud::Gcp, region, gcp::disk_gib(work)),
            RentedCloud::Azure(_) => offers::disk_rate(catalog, &Cloud::Azure, region, azure::disk_gib(work)),
            RentedCloud::Alibaba(_) => offers::disk_rate(catalog, &Cloud::Alibaba, region, alibaba::disk_gib(work)),
            RentedCloud::Tencent(_) => offers::disk_rate(catalog, &Cloud::Tencent, region, tencent::disk_gib(work)),
        }
    }

    /// The zones of a region in which machines can be put, where there is a choice of them.
    ///
    /// # Errors
    /// Why they are not known.
    pub fn zones(&self, region: &str) -> Result<Vec<String>, String> {
        match self {
            // A subnet of the user's is in one zone.
            RentedCloud::Aws { options, .. } if options.subnets.contains_key(region) => Ok(Vec::new()),
            RentedCloud::Aws { client, .. } => cloud::aws::zones(client, region).map_err(|failure| failure.to_string()),
            // Azure chooses a zone where none is named.
            RentedCloud::Lambda(_) | RentedCloud::Azure(_) => Ok(Vec::new()),
            RentedCloud::Gcp(api) => api.zones(region).map_err(|failure| failure.to_string()),
            RentedCloud::Alibaba(api) => api.zones(region).map_err(|failure| failure.to_string()),
            RentedCloud::Tencent(api) => api.zones(region).map_err(|failure| failure.to_string()),
        }
    }

    /// What spot machines of these types cost now in each zone of a region, by type and zone; empty where it does not differ or
    /// is not known.
    ///
    /// # Errors
    /// Why it is not known.
    pub fn spot_prices(&self, region: &str, types: &[String]) -> Result<BTreeMap<(String, String), Rate>, String> {
        // Other clouds have one price for all zones of a region, or choose the zone themselves.
        let RentedCloud::Aws { client, .. } = self else { return Ok(BTreeMap::new()) };
        if types.is_empty() {
            return Ok(BTreeMap::new());
        }
        let types: Vec<&str> = types.iter().map(String::as_str).collect();
        let now = cloud::aws::wire::times::rfc3339(cloud::aws::now());
        cloud::prices::aws::zone_prices(client, &types, region, &now).map_err(|failure| failure.to_string())
    }
}

fn no_credentials(cloud: &str, why: &str, hint: &str) -> Error {
    let message = format!("cannot rent from {cloud}: {why}");
    Error::Code { message, hint: Some(hint.to_owned()), code: exit::WORLD }
}

/// The providers of rented machines of a home, whose machines are reached with what `ssh` says: those with credentials here,
/// and those from which anything was rented before.
///
/// # Errors
/// [`Error::File`] or [`Error::Usage`] when a file of settings cannot be read.
pub fn providers(settings: &GlobalSettings, home: &Home, ssh: &SshSettings) -> Result<Vec<Arc<dyn Provider>>, Error> {
    let reach = |ssh_config, reach| ReachSettings {
        owner: ssh.owner.clone(),
        socket: ssh.socket.clone(),
        program: ssh.program.clone(),
        ssh_config,
        reach,
        door: ssh.door.clone(),
    };
    let aws_options: AwsOptions = options(home, "aws.json", "docs/aws.md")?;
    let aws = AwsSettings {
        home: home.root().to_owned(),
        reach: reach(aws_options.ssh_config.clone(), aws_options.reach),
        options: aws_options,
    };
    let client = Client::new(Arc::new(LazyWeb::default()), settings.aws.clone());
    let mut providers: Vec<Arc<dyn Provider>> = vec![Arc::new(Aws::new(aws, client))];
    let was_used = |name: &str| home.root().join(name).is_dir();
    let root = || home.root().to_owned();
    if let Some(api) = lambda(settings)?.or_else(|| was_used(lambda::NAME).then(|| without_key(settings))) {
        let options: LambdaOptions = options(home, "lambda.json", "docs/lambda.md")?;
        providers.push(Arc::new(Rented::new(root(), reach(None, options.reach), api)));
    }
    let (api, has_project) = gcp(settings, home)?;
    if has_project && settings.gcp.is_set() || was_used(gcp::NAME) {
        providers.push(Arc::new(Rented::new(root(), reach(None, gcp_options(home)?.reach), api)));
    }
    // The identity of a machine is set by no variable, so that only the subscription says that Azure is used.
    let (api, has_subscription) = azure(settings, home)?;
    if has_subscription || was_used(azure::NAME) {
        providers.push(Arc::new(Rented::new(root(), reach(None, azure_options(home)?.reach), api)));
    }
    if settings.alibaba.is_set() || was_used(alibaba::NAME) {
        let reach = reach(None, alibaba_options(home)?.reach);
        providers.push(Arc::new(Rented::new(root(), reach, alibaba(settings, home)?)));
    }
    if settings.tencent.is_set() || was_used(tencent::NAME) {
        let reach = reach(None, tencent_options(home)?.reach);
        providers.push(Arc::new(Rented::new(root(), reach, tencent(settings, home)?)));
    }
    Ok(providers)
}

/// A client for Lambda, where there is a key.
fn lambda(settings: &GlobalSettings) -> Result<Option<Lambda>, Error> {
    let web = || Arc::new(LazyWeb::default());
    let endpoint = settings.lambda_endpoint.as_deref();
    Ok(settings.lambda_key.as_deref().map(|key| Lambda::new(web(), endpoint, key)))
}

/// A client that can only say that there is no key: machines may be left that were rented with one.
fn without_key(settings: &GlobalSettings) -> Lambda {
    Lambda::new(Arc::new(LazyWeb::default()), settings.lambda_endpoint.as_deref(), "")
}

/// A client for Compute Engine, and whether a project is known.
fn gcp(settings: &GlobalSettings, home: &Home) -> Result<(Gcp, bool), Error> {
    let options = gcp_options(home)?;
    let project = options.project.clone().or_else(|| settings.gcp.project());
    let endpoint = settings.gcp.variable("GRADUS_GCP_ENDPOINT").map(str::to_owned);
    let (web, sources) = (Arc::new(LazyWeb::default()), settings.gcp.clone());
    let api = Gcp::new(web, endpoint.as_deref(), sources, project.as_deref().unwrap_or_default(), options);
    Ok((api, project.is_some()))
}

/// A client for Azure, and whether a subscription is known.
fn azure(settings: &GlobalSettings, home: &Home) -> Result<(Azure, bool), Error> {
    let options = azure_options(home)?;
    let named = settings.azure.variable("AZURE_SUBSCRIPTION_ID").map(str::to_owned);
    let subscription = options.subscription.clone().or(named);
    let (web, sources) = (Arc::new(LazyWeb::default()), settings.azure.clone());
    let endpoint = settings.azure_endpoint.as_deref();
    let api = Azure::new(web, endpoint, sources, subscription.as_deref().unwrap_or_default(), options);
    Ok((api, subscription.is_some()))
}

/// A client for Alibaba Cloud.
fn alibaba(settings: &GlobalSettings, home: &Home) -> Result<Alibaba, Error> {
    let endpoint = settings.alibaba.variable("GRADUS_ALIBABA_ENDPOINT");
    Ok(Alibaba::new(Arc::new(LazyWeb::default()), endpoint, settings.alibaba.clone(), alibaba_options(home)?))
}

/// A client for Tencent Cloud.
fn tencent(settings: &GlobalSettings, home: &Home) -> Result<Tencent, Error> {
    let endpoint = settings.tencent.variable("GRADUS_TENCENT_ENDPOINT");
    Ok(Tencent::new(Arc::new(LazyWeb::default()), endpoint, settings.tencent.clone(), tencent_options(home)?))
}

fn gcp_options(home: &Home) -> Result<GcpOptions, Error> {
    options(home, "gcp.json", "docs/gcp.md")
}

fn azure_options(home: &Home) -> Result<AzureOptions, Error> {
    options(home, "azure.json", "docs/azure.md")
}

fn alibaba_options(home: &Home) -> Result<AlibabaOptions, Error> {
    options(home, "alibaba.json", "docs/alibaba.md")
}

fn tencent_options(home: &Home) -> Result<TencentOptions, Error> {
    options(home, "tencent.json", "docs/tencent.md")
}

/// What the user has set in a file of the home folder; nothing where there is none.
fn options<T: DeserializeOwned + Default>(home: &Home, name: &str, page: &str) -> Result<T, Error> {
    let path = home.root().join(Path::new(name));
    let text = match std::fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(T::default()),
        Err(error) => return Err(Error::file("read", &path)(error)),
    };
    serde_json::from_slice(&text).map_err(|error| Error::Usage {
        message: format!("`{}` cannot be read: {error}", path.display()),
        hint: format!("{page} lists what it may hold"),
    })
}

#[cfg(test)]
mod tests {
    use cloud::azure::AzureSources;
    use cloud::gcp::GcpSources;
    use domain::Elapsed;
    use plan::money::rent;

    use super::super::ranked::{Ranked, ranked};
    use super::*;

    /// What a plan counts for the disk of a machine is what is rented, also where a cloud provisions no speed.
    #[test]
    fn the_disk_that_is_rented_holds_the_data_on_every_cloud() {
        let catalog = Catalog::embedded().unwrap();
        let web = || Arc::new(LazyWeb::default());
        let gcp = Gcp::new(web(), None, GcpSources::default(), "project", GcpOptions::default());
        let azure = Azure::new(web(), None, AzureSources::default(), "subscription", AzureOptions::default());
        let clouds = [
            (RentedCloud::Gcp(gcp), "gcp/us-central1, instance_type: a2-highgpu-1g"),
            (RentedCloud::Azure(azure), "azure/centralus, instance_type: Standard_NC24ads_A100_v4"),
        ];
        for (cloud, machine) in &clouds {
            for (stated, gigabytes) in [("", 500), (", disk_size: 700", 700)] {
                let text = format!(
                    "run: python train.py\n\
                     resources: {{infra: {machine}, use_spot: false{stated}}}\n\
                     data: {{samples: 1281167, bytes: 500 GB}}\n\
                     workload: {{model: {{config: {{model_type: resnet, layer_type: bottleneck, depths: [3, 4, 6, 3]}}}}, \
                     image: 224, batch: 128, epochs: 9, optimizer: sgd_momentum}}\n"
                );
                let job = Job::parse(&text, "job.yaml").unwrap().job;
                let offered = |volumes: &Volumes| cloud.offers(&catalog, (&job.wants, &job.needs), volumes);
                let Ranked { offers, chosen, .. } = ranked(&job, &catalog, offered).unwrap();
                assert_eq!(offers[0].node.disk_free, Bytes(gigabytes * 1_000_000_000), "{machine}{stated}");
                let chosen = chosen.unwrap();
                let time = Elapsed(chosen.forecast.time.middle.micros());
                let paid = rent(cloud.disk_rate(&catalog, &offers[0]), 1, time);
                // Times are rounded to microseconds.
                let difference = paid.micros().abs_diff(chosen.storage.micros());
                assert!(paid.micros() > 0 && difference <= 2, "{machine}{stated}: {paid} {}", chosen.storage);
            }
        }
    }
}
