//! From a location to a [`Remote`]: which client, which endpoint, which credentials, and how patient.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};

use crate::Error;
use crate::access::Access;
use crate::endpoint::Endpoint;
use crate::location::{Location, Service};
use crate::remote::{Multipart, Remote};

/// How many streams, how long the parts, and how patient.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Requests under way at a time.
    pub streams: usize,
    /// Length of a part of an upload and of a range of a download. Services take parts of 5 MiB and more.
    pub part: u64,
    /// How long a connection may take.
    pub connect: Duration,
    /// How long a download may stand still.
    pub stall: Duration,
    /// How long one request may take in all; an upload of one part must fit.
    pub request: Duration,
    /// How long a failing request is tried again.
    pub patience: Duration,
    /// The same before anything was answered, when the address is likely to be wrong.
    pub reach: Duration,
}

impl Limits {
    /// Those of a command that somebody waits for: an address that nobody answers at is told within seconds.
    pub fn attended() -> Limits {
        Limits { reach: Duration::from_secs(3), ..Limits::default() }
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            streams: 8,
            part: 8 << 20,
            connect: Duration::from_secs(10),
            stall: Duration::from_secs(30),
            // 8 MiB in five minutes are 28 kB/s.
            request: Duration::from_secs(300),
            patience: Duration::from_secs(120),
            reach: Duration::from_secs(120),
        }
    }
}

/// Opens a location. No byte travels yet, but that credentials may be looked for.
///
/// # Errors
/// [`Error::NoCredentials`], or what is wrong with the settings.
pub fn open(location: &Location, access: &Access, limits: Limits) -> Result<Remote, Error> {
    let (store, multipart, prefix): (Arc<dyn ObjectStore>, Multipart, &str) = match location {
        Location::Local(path) => {
            std::fs::create_dir_all(path).map_err(Error::file("make", path))?;
            let path = std::fs::canonicalize(path).map_err(Error::file("open", path))?;
            (Arc::new(LocalFileSystem::new_with_prefix(path).map_err(|error| unusable(location, &error))?), None, "")
        }
        Location::Web { origin, path } => {
            let builder = HttpBuilder::new().with_url(origin).with_client_options(options(limits, true));
            let store = builder.with_retry(retries(limits)).build().map_err(|error| unusable(location, &error))?;
            (Arc::new(store), None, path)
        }
        Location::Object { service, bucket, path } => {
            let (store, multipart) = match service {
                Service::S3 | Service::Oss | Service::Cos => s3(location, *service, bucket, access, limits)?,
                Service::Gs => gs(location, bucket, access, limits)?,
                Service::Az => az(location, bucket, access, limits)?,
            };
            (store, multipart, path)
        }
    };
    let prefix = Path::parse(prefix).map_err(|error| unusable(location, &error))?;
    let endpoint = endpoint(location, access).filter(|_| !access.has_proxy());
    Ok(Remote::new(location.clone(), store, multipart, prefix, limits)?.behind(endpoint))
}

/// Whom requests for a location go to.
fn endpoint(location: &Location, access: &Access) -> Option<Endpoint> {
    let named = |names: &[&'static str]| {
        let name = names.iter().copied().find(|name| access.get(name).is_some())?;
        Endpoint::of(access.get(name)?, Some(name))
    };
    // Without keys it is the machine that is asked for some first, and its answer tells more.
    let keys = ["AWS_ACCESS_KEY_ID", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT"];
    let keys = keys.into_iter().chain(["AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN"]);
    let keys = keys.chain(["OSS_ACCESS_KEY_ID", "TENCENTCLOUD_SECRET_ID"]).collect::<Vec<_>>();
    let usual = |address: String| Endpoint::of(&address, None).filter(|_| access.first(&keys).is_some());
    match location {
        Location::Local(_) => None,
        Location::Web { origin, .. } => Endpoint::of(origin, None),
        Location::Object { service, .. } => match service {
            Service::S3 => named(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]).or_else(|| {
                let region = access.first(&["AWS_REGION", "AWS_DEFAULT_REGION"]).unwrap_or("us-east-1");
                usual(format!("https://s3.{region}.amazonaws.com"))
            }),
            Service::Gs => named(&["GOOGLE_BASE_URL"]).or_else(|| usual("https://storage.googleapis.com".to_owned())),
            Service::Az => named(&["AZURE_STORAGE_ENDPOINT"]).or_else(|| {
                usual(format!("https://{}.blob.core.windows.net", access.get("AZURE_STORAGE_ACCOUNT_NAME")?))
            }),
            Service::Oss => named(&["OSS_ENDPOINT"])
                .or_else(|| usual(format!("https://oss-{}.aliyuncs.com", access.get("OSS_REGION")?))),
            Service::Cos => named(&["TENCENTCLOUD_COS_ENDPOINT"])
                .or_else(|| usual(format!("https://cos.{}.myqcloud.com", access.get("TENCENTCLOUD_REGION")?))),
        },
    }
}

fn unusable(location: &Location, error: &dyn std::fmt::Display) -> Error {
    let message = format!("`{location}` cannot be opened: {error}");
    Error::Usage { message, hint: "check the address and the variables of the service".into() }
}

fn options(limits: Limits, allow_http: bool) -> ClientOptions {
    ClientOptions::new()
        .with_connect_timeout(limits.connect)
        .with_timeout(limits.request)
        .with_allow_http(allow_http)
        .with_user_agent(object_store::HeaderValue::from_static(concat!("gradus/", env!("CARGO_PKG_VERSION"))))
}

/// A request is tried again within a quarter of the patience; what fails longer is tried from its beginning.
fn retries(limits: Limits) -> RetryConfig {
    let backoff =
        BackoffConfig { init_backoff: Duration::from_millis(100), max_backoff: Duration::from_secs(8), base: 2.0 };
    RetryConfig { backoff, max_retries: 6, retry_timeout: limits.patience / 4 }
}

/// What differs between those that speak S3.
struct Dialect<'a> {
    key: Option<&'a str>,
    secret: Option<&'a str>,
    token: Option<&'a str>,
    region: Option<&'a str>,
    endpoint: Option<String>,
    hint: &'static str,
}

fn dialect(service: Service, access: &Access) -> Dialect<'_> {
    match service {
        Service::S3 | Service::Gs | Service::Az => Dialect {
            key: access.get("AWS_ACCESS_KEY_ID"),
            secret: access.get("AWS_SECRET_ACCESS_KEY"),
            token: access.get("AWS_SESSION_TOKEN"),
            region: access.first(&["AWS_REGION", "AWS_DEFAULT_REGION"]),
            endpoint: access.first(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]).map(str::to_owned),
            hint: "set `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, or run `aws configure`; for a public bucket \
                   set `AWS_SKIP_SIGNATURE=true`",
        },
        Service::Oss => {
            let region = access.get("OSS_REGION");
            let endpoint = region.map(|region| format!("https://oss-{region}.aliyuncs.com"));
            Dialect {
                key: access.get("OSS_ACCESS_KEY_ID"),
                secret: access.get("OSS_ACCESS_KEY_SECRET"),
                token: access.get("OSS_SESSION_TOKEN"),
                region,
                endpoint: access.get("OSS_ENDPOINT").map(str::to_owned).or(endpoint),
                hint: "set `OSS_ACCESS_KEY_ID`, `OSS_ACCESS_KEY_SECRET` and `OSS_REGION`, such as `cn-hangzhou`",
            }
        }
        Service::Cos => {
            let region = access.get("TENCENTCLOUD_REGION");
            let endpoint = region.map(|region| format!("https://cos.{region}.myqcloud.com"));
            Dialect {
                key: access.get("TENCENTCLOUD_SECRET_ID"),
                secret: access.get("TENCENTCLOUD_SECRET_KEY"),
                token: None,
                region,
                endpoint: access.get("TENCENTCLOUD_COS_ENDPOINT").map(str::to_owned).or(endpoint),
                hint: "set `TENCENTCLOUD_SECRET_ID`, `TENCENTCLOUD_SECRET_KEY` and `TENCENTCLOUD_REGION`, such as \
                       `ap-guangzhou`",
            }
        }
    }
}

type Opened = (Arc<dyn ObjectStore>, Multipart);

fn s3(location: &Location, service: Service, bucket: &str, access: &Access, limits: Limits) -> Result<Opened, Error> {
    let dialect = dialect(service, access);
    let is_true = |name: &str| access.get(name).is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1");
    let is_amazon = dialect.endpoint.is_none();
    let mut builder = AmazonS3Builder::new()
        .with_bucket_name(bucket)
        .with_region(dialect.region.unwrap_or("us-east-1"))
        .with_retry(retries(limits));
    let mut allow_http = false;
    if let Some(endpoint) = &dialect.endpoint {
        allow_http = endpoint.starts_with("http://");
        // The bucket stands before the host at both Chinese services; at others that must be asked for.
        let is_virtual = matches!(service, Service::Oss | Service::Cos)
            && access.first(&["OSS_ENDPOINT", "TENCENTCLOUD_COS_ENDPOINT"]).is_none();
        let is_virtual = is_virtual || is_true("AWS_VIRTUAL_HOSTED_STYLE_REQUEST");
        let endpoint = match (is_virtual, endpoint.split_once("://")) {
            (true, Some((scheme, host))) if !host.starts_with(&format!("{bucket}.")) => {
                format!("{scheme}://{bucket}.{host}")
            }
            (true | false, _) => endpoint.clone(),
        };
        builder = builder.with_endpoint(endpoint).with_virtual_hosted_style_request(is_virtual);
    } else if service != Service::S3 {
        return Err(no_credentials(location, dialect.hint));
    }
    let lacking = || no_credentials(location, dialect.hint);
    match (dialect.key, dialect.secret) {
        _ if service == Service::S3 && is_true("AWS_SKIP_SIGNATURE") => builder = builder.with_skip_signature(true),
        (Some(key), Some(secret)) => {
            builder = builder.with_access_key_id(key).with_secret_access_key(secret);
            if let Some(token) = dialect.token {
                builder = builder.with_token(token);
            }
        }
        (Some(_), None) | (None, Some(_)) => return Err(lacking()),
        (None, None) if service != Service::S3 => return Err(lacking()),
        (None, None) => {
            let mut is_elsewhere = false;
            for name in [
                "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
                "AWS_CONTAINER_CREDENTIALS_FULL_URI",
                "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
                "AWS_WEB_IDENTITY_TOKEN_FILE",
                "AWS_ROLE_ARN",
            ] {
                if let (Some(value), Ok(key)) = (access.get(name), name.to_ascii_lowercase().parse()) {
                    builder = builder.with_config(key, value);
                    is_elsewhere = true;
                }
            }
            // A machine of Amazon's has credentials of its own; elsewhere nothing answers, and asking would take long.
            if !is_elsewhere && (!is_amazon || !has_metadata()) {
                return Err(lacking());
            }
        }
    }
    let store = builder.with_client_options(options(limits, allow_http)).build();
    let store = Arc::new(store.map_err(|error| unusable(location, &error))?);
    Ok((store.clone(), Some(store)))
}

fn gs(location: &Location, bucket: &str, access: &Access, limits: Limits) -> Result<Opened, Error> {
    let mut builder = GoogleCloudStorageBuilder::new().with_bucket_name(bucket).with_retry(retries(limits));
    let base = access.get("GOOGLE_BASE_URL");
    if let Some(base) = base {
        builder = builder.with_base_url(base);
    }
    match access.first(&["GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT"]) {
        Some(path) => builder = builder.with_application_credentials(path),
        None if access.get("GOOGLE_SKIP_SIGNATURE").is_some() => builder = builder.with_skip_signature(true),
        None if has_metadata() => {}
        None => return Err(no_credentials(location, GS_HINT)),
    }
    let allow_http = base.is_some_and(|base| base.starts_with("http://"));
    let store = builder.with_client_options(options(limits, allow_http)).build();
    let store = Arc::new(store.map_err(|error| unusable(location, &error))?);
    Ok((store.clone(), Some(store)))
}

fn az(location: &Location, container: &str, access: &Access, limits: Limits) -> Result<Opened, Error> {
    let lacking = || no_credentials(location, AZ_HINT);
    let account = access.get("AZURE_STORAGE_ACCOUNT_NAME").ok_or_else(lacking)?;
    let mut builder =
        MicrosoftAzureBuilder::new().with_container_name(container).with_account(account).with_retry(retries(limits));
    match (access.get("AZURE_STORAGE_ACCOUNT_KEY"), access.get("AZURE_STORAGE_SAS_TOKEN")) {
        (Some(key), _) => builder = builder.with_access_key(key),
        (None, Some(token)) => {
            builder = builder.with_config(object_store::azure::AzureConfigKey::SasKey, token);
        }
        (None, None) if has_metadata() => {}
        (None, None) => return Err(lacking()),
    }
    let endpoint = access.get("AZURE_STORAGE_ENDPOINT");
    if let Some(endpoint) = endpoint {
        builder = builder.with_endpoint(endpoint.to_owned());
    }
    let allow_http = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
    let store = builder.with_client_options(options(limits, allow_http)).build();
    let store = Arc::new(store.map_err(|error| unusable(location, &error))?);
    Ok((store.clone(), Some(store)))
}

/// Which variables hold credentials for a location.
pub(crate) fn credentials_hint(location: &Location) -> &'static str {
    match location {
        Location::Local(_) | Location::Web { .. } => "check who may read it",
        Location::Object { service: service @ (Service::S3 | Service::Oss | Service::Cos), .. } => {
            dialect(*service, &Access::default()).hint
        }
        Location::Object { service: Service::Gs, .. } => GS_HINT,
        Location::Object { service: Service::Az, .. } => AZ_HINT,
    }
}

const GS_HINT: &str = "name a key file in `GOOGLE_APPLICATION_CREDENTIALS`; for a public bucket set \
                       `GOOGLE_SKIP_SIGNATURE=true`";
const AZ_HINT: &str = "set `AZURE_STORAGE_ACCOUNT_NAME`, and `AZURE_STORAGE_ACCOUNT_KEY` or `AZURE_STORAGE_SAS_TOKEN`";

fn no_credentials(location: &Location, hint: &str) -> Error {
    Error::NoCredentials { location: location.to_string(), hint: hint.to_owned() }
}

/// Whether this is a machine of a cloud, whose metadata service answers at the address that all clouds use.
fn has_metadata() -> bool {
    let address = SocketAddr::from(([169, 254, 169, 254], 80));
    TcpStream::connect_timeout(&address, Duration::from_millis(300)).is_ok()
}
