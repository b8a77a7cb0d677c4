//! What an error of Alibaba Cloud proves: its codes, as the references of ECS and of its gateway name them.

use serde::Deserialize;

use crate::aws::wire::HttpReply;
use crate::rented::CloudFailure;

#[derive(Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AcsError {
    #[serde(default)]
    code: String,
    #[serde(default)]
    message: String,
}

/// What an error reply means.
pub(super) fn failed(reply: &HttpReply) -> CloudFailure {
    let text = reply.text();
    let error: AcsError = serde_json::from_str(&text).unwrap_or_default();
    if error.code.is_empty() {
        let said = format!("HTTP status {}: {}", reply.status, text.chars().take(200).collect::<String>());
        return if reply.status == 429 { CloudFailure::Throttled(said) } else { CloudFailure::Doubt(said) };
    }
    let (code, said) = (error.code.as_str(), format!("{}: {}", error.code, error.message));
    let starts = |beginnings: &[&str]| beginnings.iter().any(|beginning| code.starts_with(beginning));
    match () {
        () if starts(THROTTLED) || reply.status == 429 => CloudFailure::Throttled(said),
        () if starts(CAPACITY) => CloudFailure::Capacity(said),
        () if code.contains("QuotaExceed") || code.contains("LimitExceed") => CloudFailure::Quota(said),
        () if starts(KEYS) => {
            CloudFailure::Denied(format!("{said}; see docs/alibaba.md for where gradus reads credentials from"))
        }
        () if starts(DENIED) => CloudFailure::Denied(said),
        () if starts(TOKEN) => CloudFailure::Exists(said),
        () if reply.status >= 500 || starts(UNCLEAR) => CloudFailure::Doubt(said),
        () if code.ends_with("NotFound") || code == "NoSuchResource" => CloudFailure::NotFound(said),
        () => CloudFailure::Invalid(said),
    }
}

const THROTTLED: &[&str] = &["Throttling"];

/// That a zone does not sell a type counts too: elsewhere it may be sold. So does a limit of a spot price below the market.
const CAPACITY: &[&str] = &[
    "OperationDenied.NoStock",
    "OperationDenied.PaygNotAvailable",
    "OperationDenied.ResourceControl",
    "OperationDenied.ZoneNotAllowed",
    "OperationDenied.ZoneSystemCategoryNotMatch",
    "OperationDenied.CloudSSDNotSupported",
    "OperationDenied.SpotPriceLowerThanPublicPrice",
    "CategoryNotSupported",
    "Zone.NotOnSale",
    "Zone.NotOpen",
    "InvalidResourceType.NotSupported",
    "InvalidInstanceType.NotSupported",
    "InvalidInstanceType.ValueNotSupported",
    "InvalidInstanceType.ZoneNotSupported",
    "InstanceType.Offline",
    "InvalidSpotPriceLimit.LowerThanPublicPrice",
    "InvalidVSwitchId.IpNotEnough",
    "QuotaExceeded.PrivateIpAddress",
    "InvalidOperation.PublicIpAddressNoStock",
];

/// The key or its signature was not accepted.
const KEYS: &[&str] = &[
    "InvalidAccessKeyId",
    "InvalidAccessKeySecret",
    "SignatureDoesNotMatch",
    "IncompleteSignature",
    "InvalidSecurityToken",
    "MissingSecurityToken",
    "MissingAccessKeyId",
    "InvalidTimeStamp",
];

const DENIED: &[&str] = &[
    "Forbidden",
    // As Alibaba spells it.
    "Forbbiden",
    "NoPermission",
    "Unauthorized",
    "RegionUnauthorized",
    "InvalidInstanceType.ValueUnauthorized",
    "InvalidUserData.Forbidden",
    "InvalidSpotAuthorized",
    "InvalidSpotAliUid",
    "InvalidAccount.NotSupportSpot",
    "InvalidPayMethod",
    "PaymentMethodNotFound",
    "SecurityRisk",
    "Account.Arrearage",
    "InvalidAccountStatus",
    "InsufficientBalance",
    "RealNameAuthenticationError",
    "AccountForbidden",
    "UserNotInTheWhiteList",
];

/// A request with this token came before.
const TOKEN: &[&str] = &["Idempotent", "LastTokenProcessing"];

/// The request may have been carried out; the gateway says this of one that a client has sent twice.
const UNCLEAR: &[&str] =
    &["SignatureNonceUsed", "InternalError", "Mayi.InternalError", "ServiceUnavailable", "UnknownError"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_they_prove() {
        let check = |status: u16, code: &str, expected: &str| {
            let body = serde_json::json!({ "RequestId": "r", "HostId": "h", "Code": code, "Message": "m" });
            let reply = HttpReply { headers: Vec::new(), status, body: body.to_string().into_bytes() };
            let word = format!("{:?}", failed(&reply));
            assert!(word.starts_with(expected), "{word} is not {expected}");
        };
        for code in ["OperationDenied.NoStock", "Zone.NotOnSale", "InvalidSpotPriceLimit.LowerThanPublicPrice"] {
            check(403, code, "Capacity(");
        }
        check(400, "InvalidInstanceType.ValueNotSupported", "Capacity(");
        check(400, "QuotaExceeded.PrivateIpAddress", "Capacity(");
        check(403, "CategoryNotSupported", "Capacity(");
        for code in ["QuotaExceed.ElasticQuota", "InstanceQuotaExceed", "QuotaExceed.AfterpayInstance"] {
            check(403, code, "Quota(");
        }
        for code in ["Throttling", "Throttling.User", "Throttling.Api"] {
            check(400, code, "Throttled(");
        }
        check(503, "Throttling", "Throttled(");
        for code in ["Forbidden.RAM", "NoPermission", "Account.Arrearage", "InvalidAccountStatus.NotEnoughBalance"] {
            check(403, code, "Denied(");
        }
        check(404, "InvalidAccessKeyId.NotFound", "Denied(\"InvalidAccessKeyId.NotFound: m; see docs/alibaba.md");
        check(400, "SignatureDoesNotMatch", "Denied(");
        check(400, "IdempotentParameterMismatch", "Exists(");
        check(403, "Mayi.InternalError", "Doubt(");
        check(404, "PaymentMethodNotFound", "Denied(");
        check(404, "InvalidInstanceId.NotFound", "NotFound(");
        check(404, "NoSuchResource", "NotFound(");
        check(400, "SignatureNonceUsed", "Doubt(");
        check(500, "InternalError", "Doubt(");
        check(403, "IncorrectInstanceStatus", "Invalid(");
        check(400, "InvalidParameter", "Invalid(");
    }

    #[test]
    fn what_is_no_answer_of_alibaba_proves_nothing() {
        let reply = |status, body: &str| HttpReply { headers: Vec::new(), status, body: body.into() };
        assert_eq!(failed(&reply(400, "<html>")), CloudFailure::Doubt("HTTP status 400: <html>".into()));
        assert_eq!(failed(&reply(403, "{}")), CloudFailure::Doubt("HTTP status 403: {}".into()));
        assert_eq!(failed(&reply(429, "")), CloudFailure::Throttled("HTTP status 429: ".into()));
    }
}
