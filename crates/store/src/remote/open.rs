//! From a location to a [`Remote`]: which client, which endpoint, which credentials, and how patient.

use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3Builder, Checksum};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{BackoffConfig, ClientOptions, ObjectStore, RetryConfig};

use super::dialect::{AZ_HINT, GS_HINT, dialect};
use super::listing::UnreadableKeys;
use super::received::VerifyingConnector;
use super::{Multipart, Remote};
use crate::access::Access;
use crate::endpoint::Endpoint;
use crate::location::{Location, StorageService};
use crate::remote::tls::install_tls;
use crate::{Error, Limits};

/// How requests name this program.
const USER_AGENT: &str = concat!("gradus/", env!("CARGO_PKG_VERSION"));

/// Opens a location. No requests are sent, except to find credentials.
///
/// # Errors
/// [`Error::NoCredentials`], or invalid settings.
pub fn open(location: &Location, access: &Access, limits: Limits) -> Result<Remote, Error> {
    install_tls();
    let opening = Opening { location, access, limits, unreadable: UnreadableKeys::default() };
    let (store, multipart, prefix): (Arc<dyn ObjectStore>, Multipart, &str) = match location {
        Location::Local(path) => {
            std::fs::create_dir_all(path).map_err(Error::file("make", path))?;
            let path = std::fs::canonicalize(path).map_err(Error::file("open", path))?;
            (Arc::new(LocalFileSystem::new_with_prefix(path).map_err(|error| opening.unusable(&error))?), None, "")
        }
        Location::Web { origin, path } => {
            let builder = HttpBuilder::new().with_url(origin).with_client_options(opening.options(true));
            let store = builder.with_retry(opening.retries()).build().map_err(|error| opening.unusable(&error))?;
            (Arc::new(store), None, path)
        }
        Location::Object { service, bucket, path } => {
            let (store, multipart) = match service {
                StorageService::S3 | StorageService::Oss | StorageService::Cos => opening.s3(*service, bucket)?,
                StorageService::Gs => opening.gs(bucket)?,
                StorageService::Az => opening.az(bucket)?,
            };
            (store, multipart, path)
        }
    };
    let prefix = Path::parse(prefix).map_err(|error| opening.unusable(&error))?;
    let endpoint = endpoint(location, access).filter(|_| !access.has_proxy());
    Ok(Remote::new(location.clone(), store, multipart, prefix, limits)?.behind(endpoint).noting(opening.unreadable))
}

/// Whom requests for a location go to.
fn endpoint(location: &Location, access: &Access) -> Option<Endpoint> {
    let named = |names: &[&'static str]| {
        let name = names.iter().copied().find(|name| access.get(name).is_some())?;
        Endpoint::of(access.get(name)?, Some(name))
    };
    // Without keys the machine's metadata service is tried first, and its error is more specific.
    let keys = ["AWS_ACCESS_KEY_ID", "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT"];
    let keys = keys.into_iter().chain(["AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN"]);
    let keys = keys.chain(["OSS_ACCESS_KEY_ID", "TENCENTCLOUD_SECRET_ID"]).collect::<Vec<_>>();
    let usual = |address: String| Endpoint::of(&address, None).filter(|_| access.first(&keys).is_some());
    match location {
        Location::Local(_) => None,
        Location::Web { origin, .. } => Endpoint::of(origin, None),
        Location::Object { service, .. } => match service {
            StorageService::S3 => named(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]).or_else(|| {
                let region = access.first(&["AWS_REGION", "AWS_DEFAULT_REGION"]).unwrap_or("us-east-1");
                usual(format!("https://s3.{region}.amazonaws.com"))
            }),
            StorageService::Gs => {
                named(&["GOOGLE_BASE_URL"]).or_else(|| usual("https://storage.googleapis.com".to_owned()))
            }
            StorageService::Az => named(&["AZURE_STORAGE_ENDPOINT"]).or_else(|| {
                usual(format!("https://{}.blob.core.windows.net", access.get("AZURE_STORAGE_ACCOUNT_NAME")?))
            }),
            StorageService::Oss => named(&["OSS_ENDPOINT"])
                .or_else(|| usual(format!("https://oss-{}.aliyuncs.com", access.get("OSS_REGION")?))),
            StorageService::Cos => named(&["TENCENTCLOUD_COS_ENDPOINT"])
                .or_else(|| usual(format!("https://cos.{}.myqcloud.com", access.get("TENCENTCLOUD_REGION")?))),
        },
    }
}

/// Amazon verifies it for each object and part, and stores it with the object. Others refuse unknown headers; for all
/// of them the reported checksum is compared (`received`).
const AMAZON_CHECKSUM: Checksum = Checksum::SHA256;

type Opened = (Arc<dyn ObjectStore>, Multipart);

/// What the clients of all services are made from.
struct Opening<'a> {
    location: &'a Location,
    access: &'a Access,
    limits: Limits,
    /// Keys that listings leave out.
    unreadable: UnreadableKeys,
}

impl Opening<'_> {
    fn unusable(&self, error: &dyn std::fmt::Display) -> Error {
        let message = format!("`{}` cannot be opened: {error}", self.location);
        Error::Usage { message, hint: "check the address and the variables of the service".into() }
    }

    fn no_credentials(&self, hint: &str) -> Error {
        Error::NoCredentials { location: self.location.to_string(), hint: hint.to_owned() }
    }

    fn options(&self, allow_http: bool) -> ClientOptions {
        ClientOptions::new()
            .with_connect_timeout(self.limits.connect)
            .with_timeout(self.limits.request)
            .with_allow_http(allow_http)
            .with_user_agent(object_store::HeaderValue::from_static(USER_AGENT))
    }

    /// A request is retried within a quarter of the patience; if it still fails, the transfer restarts.
    fn retries(&self) -> RetryConfig {
        let backoff =
            BackoffConfig { init_backoff: Duration::from_millis(100), max_backoff: Duration::from_secs(8), base: 2.0 };
        RetryConfig { backoff, max_retries: 6, retry_timeout: self.limits.patience / 4 }
    }

    fn connector(&self, allow_http: bool) -> Result<VerifyingConnector, Error> {
        let uploads = reqwest::Client::builder()
            .connect_timeout(self.limits.connect)
            .timeout(self.limits.request)
            .https_only(!allow_http)
            .user_agent(USER_AGENT);
        let uploads = uploads.build().map_err(|error| self.unusable(&error))?;
        Ok(VerifyingConnector::new(uploads, &self.unreadable))
    }

    fn s3(&self, service: StorageService, bucket: &str) -> Result<Opened, Error> {
        let dialect = dialect(service, self.access);
        let is_true =
            |name: &str| self.access.get(name).is_some_and(|value| value.eq_ignore_ascii_case("true") || value == "1");
        let is_amazon = dialect.endpoint.is_none();
        let mut builder = AmazonS3Builder::new()
            .with_bucket_name(bucket)
            .with_region(dialect.region.unwrap_or("us-east-1"))
            .with_retry(self.retries());
        let mut allow_http = false;
        if let Some(endpoint) = &dialect.endpoint {
            allow_http = endpoint.starts_with("http://");
            // Both Chinese services use virtual-hosted addresses; for others that must be requested.
            let is_virtual = matches!(service, StorageService::Oss | StorageService::Cos)
                && self.access.first(&["OSS_ENDPOINT", "TENCENTCLOUD_COS_ENDPOINT"]).is_none();
            let is_virtual = is_virtual || is_true("AWS_VIRTUAL_HOSTED_STYLE_REQUEST");
            let endpoint = match (is_virtual, endpoint.split_once("://")) {
                (true, Some((scheme, host))) if !host.starts_with(&format!("{bucket}.")) => {
                    format!("{scheme}://{bucket}.{host}")
                }
                (true | false, _) => endpoint.clone(),
            };
            builder = builder.with_endpoint(endpoint).with_virtual_hosted_style_request(is_virtual);
        } else if service != StorageService::S3 {
            return Err(self.no_credentials(dialect.hint));
        }
        if is_amazon {
            builder = builder.with_checksum_algorithm(AMAZON_CHECKSUM);
        }
        let lacking = || self.no_credentials(dialect.hint);
        match (dialect.key, dialect.secret) {
            _ if service == StorageService::S3 && is_true("AWS_SKIP_SIGNATURE") => {
                builder = builder.with_skip_signature(true)
            }
            (Some(key), Some(secret)) => {
                builder = builder.with_access_key_id(key).with_secret_access_key(secret);
                if let Some(token) = dialect.token {
                    builder = builder.with_token(token);
                }
            }
            (Some(_), None) | (None, Some(_)) => return Err(lacking()),
            (None, None) if service != StorageService::S3 => return Err(lacking()),
            (None, None) => match foreign_credentials(builder, self.access) {
                (named, true) => builder = named,
                // An Amazon machine has credentials of its own; elsewhere there is no answer, and trying would take long.
                (plain, false) if is_amazon && has_metadata() => builder = plain,
                (_, false) => return Err(lacking()),
            },
        }
        let builder = builder.with_http_connector(self.connector(allow_http)?);
        let store = builder.with_client_options(self.options(allow_http)).build();
        let store = Arc::new(store.map_err(|error| self.unusable(&error))?);
        Ok((store.clone(), Some(store)))
    }

    fn gs(&self, bucket: &str) -> Result<Opened, Error> {
        let mut builder = GoogleCloudStorageBuilder::new().with_bucket_name(bucket).with_retry(self.retries());
        let base = self.access.get("GOOGLE_BASE_URL");
        if let Some(base) = base {
            builder = builder.with_base_url(base);
        }
        match self.access.first(&["GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT"]) {
            Some(path) => builder = builder.with_application_credentials(path),
            None if self.access.get("GOOGLE_SKIP_SIGNATURE").is_some() => builder = builder.with_skip_signature(true),
            None if has_metadata() => {}
            None => return Err(self.no_credentials(GS_HINT)),
        }
        let allow_http = base.is_some_and(|base| base.starts_with("http://"));
        let builder = builder.with_http_connector(self.connector(allow_http)?);
        let store = builder.with_client_options(self.options(allow_http)).build();
        let store = Arc::new(store.map_err(|error| self.unusable(&error))?);
        Ok((store.clone(), Some(store)))
    }

    fn az(&self, container: &str) -> Result<Opened, Error> {
        let lacking = || self.no_credentials(AZ_HINT);
        let account = self.access.get("AZURE_STORAGE_ACCOUNT_NAME").ok_or_else(lacking)?;
        let mut builder = MicrosoftAzureBuilder::new()
            .with_container_name(container)
            .with_account(account)
            .with_retry(self.retries());
        match (self.access.get("AZURE_STORAGE_ACCOUNT_KEY"), self.access.get("AZURE_STORAGE_SAS_TOKEN")) {
            (Some(key), _) => builder = builder.with_access_key(key),
            (None, Some(token)) => {
                builder = builder.with_config(object_store::azure::AzureConfigKey::SasKey, token);
            }
            (None, None) if has_metadata() => {}
            (None, None) => return Err(lacking()),
        }
        let endpoint = self.access.get("AZURE_STORAGE_ENDPOINT");
        if let Some(endpoint) = endpoint {
            builder = builder.with_endpoint(endpoint.to_owned());
        }
        let allow_http = endpoint.is_some_and(|endpoint| endpoint.starts_with("http://"));
        let builder = builder.with_http_connector(self.connector(allow_http)?);
        let store = builder.with_client_options(self.options(allow_http)).build();
        let store = Arc::new(store.map_err(|error| self.unusable(&error))?);
        Ok((store.clone(), Some(store)))
    }
}

/// Passes on where a container or a role gets its credentials; returns whether any such source is configured.
fn foreign_credentials(mut builder: AmazonS3Builder, access: &Access) -> (AmazonS3Builder, bool) {
    let mut is_named = false;
    for name in [
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
        "AWS_CONTAINER_CREDENTIALS_FULL_URI",
        "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_ROLE_ARN",
    ] {
        if let (Some(value), Ok(key)) = (access.get(name), name.to_ascii_lowercase().parse()) {
            builder = builder.with_config(key, value);
            is_named = true;
        }
    }
    (builder, is_named)
}

/// Whether this is a cloud machine, whose metadata service answers at the address that all clouds use.
fn has_metadata() -> bool {
    let address = SocketAddr::from(([169, 254, 169, 254], 80));
    TcpStream::connect_timeout(&address, Duration::from_millis(300)).is_ok()
}
