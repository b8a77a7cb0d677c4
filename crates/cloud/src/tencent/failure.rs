//! What an error of Tencent Cloud proves: its codes, as the reference of CVM and of its gateway name them. They come with HTTP
//! status 200.

use serde::Deserialize;

use crate::rented::CloudFailure;

/// An error of an answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub(super) struct TcError {
    pub code: String,
    pub message: String,
}

/// What an error means.
pub(super) fn failed(error: &TcError) -> CloudFailure {
    let (code, said) = (error.code.as_str(), format!("{}: {}", error.code, error.message));
    let starts = |beginnings: &[&str]| beginnings.iter().any(|beginning| code.starts_with(beginning));
    match () {
        () if starts(THROTTLED) => CloudFailure::Throttled(said),
        () if starts(CAPACITY) => CloudFailure::Capacity(said),
        () if starts(QUOTA) || code.contains("Quota") => CloudFailure::Quota(said),
        () if starts(DENIED) => CloudFailure::Denied(said),
        () if starts(KEYS) => {
            CloudFailure::Denied(format!("{said}; see docs/tencent.md for where gradus reads credentials from"))
        }
        () if starts(UNCLEAR) => CloudFailure::Doubt(said),
        () if code.contains("NotFound") => CloudFailure::NotFound(said),
        () => CloudFailure::Invalid(said),
    }
}

const THROTTLED: &[&str] = &["RequestLimitExceeded"];

/// That a zone does not sell a type counts too: elsewhere it may be sold. So does a price below the market's.
const CAPACITY: &[&str] = &[
    "ResourceInsufficient",
    "ResourcesSoldOut",
    "ResourceUnavailable",
    "ResourceNotFound.InvalidZoneInstanceType",
    "ResourceNotFound.NoDefaultCbs",
    "InvalidParameterValue.InstanceTypeNotFound",
    "InvalidParameterValue.ZoneNotSupported",
    "InvalidParameterValue.InsufficientOffering",
    "InvalidParameterValue.InsufficientPrice",
    "InvalidParameter.InvalidCloudDiskSoldOut",
    "FailedOperation.NoAvailableIpAddressCountInSubnet",
    "UnsupportedOperation.NoInstanceTypeSupportSpot",
    "UnsupportedOperation.SpotUnsupportedRegion",
    "UnsupportedOperation.InvalidZone",
    "UnsupportedOperation.Region",
];

const QUOTA: &[&str] = &["LimitExceeded"];

const DENIED: &[&str] = &[
    "AuthFailure.UnauthorizedOperation",
    "UnauthorizedOperation",
    "OperationDenied.AccountNotSupported",
    "InvalidAccount",
    "InvalidPermission",
    "AccountQualificationRestrictions",
];

/// The key or its signature was not accepted.
const KEYS: &[&str] = &["AuthFailure", "InvalidCredential", "MissingParameter.Authorization"];

/// The request may have been carried out, or is being carried out.
const UNCLEAR: &[&str] = &["InternalError", "InternalServerError", "MutexOperation", "ResponseTimeout"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_they_prove() {
        let check = |code: &str, expected: &str| {
            let word = format!("{:?}", failed(&TcError { code: code.into(), message: "m".into() }));
            assert!(word.starts_with(expected), "{word} is not {expected}");
        };
        for code in ["SpecifiedInstanceType", "ZoneSoldOutForSpecifiedInstance", "CloudDiskSoldOut"] {
            check(&format!("ResourceInsufficient.{code}"), "Capacity(");
        }
        check("ResourcesSoldOut.SpecifiedInstanceType", "Capacity(");
        check("InvalidParameterValue.InsufficientPrice", "Capacity(");
        check("InvalidParameterValue.ZoneNotSupported", "Capacity(");
        for code in ["LimitExceeded.SpotQuota", "LimitExceeded.UserSpotQuota", "InstancesQuotaLimitExceeded"] {
            check(code, "Quota(");
        }
        check("RequestLimitExceeded", "Throttled(");
        check("RequestLimitExceeded.UinLimitExceeded", "Throttled(");
        for code in ["AuthFailure.UnauthorizedOperation", "UnauthorizedOperation.MFAExpired"] {
            check(code, "Denied(");
        }
        check("InvalidAccount.InsufficientBalance", "Denied(");
        for code in ["AuthFailure.SecretIdNotFound", "AuthFailure.SignatureFailure", "AuthFailure.SignatureExpire"] {
            check(code, &format!("Denied(\"{code}: m; see docs/tencent.md"));
        }
        check("InvalidInstanceId.NotFound", "NotFound(");
        check("InternalError", "Doubt(");
        check("MutexOperation.TaskRunning", "Doubt(");
        check("InvalidParameterValue.Range", "Invalid(");
        check("UnsupportedOperation.InstanceStatePending", "Invalid(");
    }
}
