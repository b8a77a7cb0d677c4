//! The environment variables of each object store, and hints if they are missing.

use crate::access::Access;
use crate::location::{Location, StorageService};

/// Differences between services that speak S3.
pub(super) struct Dialect<'a> {
    pub key: Option<&'a str>,
    pub secret: Option<&'a str>,
    pub token: Option<&'a str>,
    pub region: Option<&'a str>,
    pub endpoint: Option<String>,
    pub hint: &'static str,
}

pub(super) fn dialect(service: StorageService, access: &Access) -> Dialect<'_> {
    match service {
        StorageService::S3 | StorageService::Gs | StorageService::Az => Dialect {
            key: access.get("AWS_ACCESS_KEY_ID"),
            secret: access.get("AWS_SECRET_ACCESS_KEY"),
            token: access.get("AWS_SESSION_TOKEN"),
            region: access.first(&["AWS_REGION", "AWS_DEFAULT_REGION"]),
            endpoint: access.first(&["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"]).map(str::to_owned),
            hint: "set `AWS_ACCESS_KEY_ID` and `AWS_SECRET_ACCESS_KEY`, or run `aws configure`; for a public bucket \
                   set `AWS_SKIP_SIGNATURE=true`",
        },
        StorageService::Oss => {
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
        StorageService::Cos => {
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

/// Which variables hold credentials for a location.
pub(super) fn credentials_hint(location: &Location) -> &'static str {
    match location {
        Location::Local(_) | Location::Web { .. } => "check who may read it",
        Location::Object {
            service: service @ (StorageService::S3 | StorageService::Oss | StorageService::Cos),
            ..
        } => dialect(*service, &Access::default()).hint,
        Location::Object { service: StorageService::Gs, .. } => GS_HINT,
        Location::Object { service: StorageService::Az, .. } => AZ_HINT,
    }
}

pub(super) const GS_HINT: &str = "name a key file in `GOOGLE_APPLICATION_CREDENTIALS`; for a public bucket set \
                       `GOOGLE_SKIP_SIGNATURE=true`";
pub(super) const AZ_HINT: &str =
    "set `AZURE_STORAGE_ACCOUNT_NAME`, and `AZURE_STORAGE_ACCOUNT_KEY` or `AZURE_STORAGE_SAS_TOKEN`";
