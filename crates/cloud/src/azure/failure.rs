//! What an error of Azure proves: its codes, as the Resource Manager and the operations of machines name them.

use serde::Deserialize;

use crate::aws::wire::HttpReply;
use crate::rented::CloudFailure;

/// An error, of a reply or of an operation.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub(super) struct ArmError {
    #[serde(default)]
    pub code: String,
    #[serde(default)]
    pub message: String,
}

#[derive(Deserialize)]
struct ArmRefused {
    error: ArmError,
}

/// What an error reply means.
pub(super) fn failed(reply: &HttpReply) -> CloudFailure {
    let text = reply.text();
    let error = match serde_json::from_str::<ArmRefused>(&text) {
        Ok(ArmRefused { error }) => error,
        Err(_) => ArmError { code: String::new(), message: text.chars().take(200).collect() },
    };
    let said = format!("HTTP status {} {}: {}", reply.status, error.code, error.message).replace(" : ", ": ");
    if let Some(failure) = of_code(&error, &said) {
        return failure;
    }
    match reply.status {
        401 => CloudFailure::Denied(format!("{said}; see docs/azure.md for where gradus reads credentials from")),
        403 => CloudFailure::Denied(said),
        404 => CloudFailure::NotFound(said),
        // 412 answers `If-None-Match: *` where there is a machine of this name.
        409 | 412 => CloudFailure::Exists(said),
        429 => CloudFailure::Throttled(said),
        500.. => CloudFailure::Doubt(said),
        _ => CloudFailure::Invalid(said),
    }
}

/// What an operation that has failed means. A machine may have run, and been billed, before it failed: only what is known
/// to have come before that proves anything.
pub(super) fn of_operation(error: &ArmError) -> CloudFailure {
    let said = format!("{}: {}", error.code, error.message);
    of_code(error, &said).unwrap_or(CloudFailure::Doubt(said))
}

/// What a code means wherever it comes from; none where that is not known.
fn of_code(error: &ArmError, said: &str) -> Option<CloudFailure> {
    let message = error.message.to_ascii_lowercase();
    let said = said.to_owned();
    Some(match error.code.as_str() {
        "SkuNotAvailable"
        | "AllocationFailed"
        | "ZonalAllocationFailed"
        | "OverconstrainedAllocationRequest"
        | "OverconstrainedZonalAllocationRequest"
        | "SpotPriceGreaterThanProvidedMaxPrice" => CloudFailure::Capacity(said),
        "QuotaExceeded" | "ResourceQuotaExceeded" | "PublicIPCountLimitReached" => CloudFailure::Quota(said),
        // One code for much: quotas of cores, spot prices above the limit, and what cannot be done at all.
        "OperationNotAllowed" if message.contains("quota") => CloudFailure::Quota(said),
        "OperationNotAllowed" if message.contains("max price") => CloudFailure::Capacity(said),
        "OperationNotAllowed" => CloudFailure::Invalid(said),
        "TooManyRequests" | "SubscriptionRequestsThrottled" => CloudFailure::Throttled(said),
        "AuthorizationFailed"
        | "LinkedAuthorizationFailed"
        | "RequestDisallowedByPolicy"
        | "SubscriptionNotFound"
        | "ReadOnlyDisabledSubscription"
        | "ScopeLocked" => CloudFailure::Denied(said),
        "ResourceGroupNotFound" => CloudFailure::NotFound(format!("{said}; docs/azure.md says how it is made")),
        "MissingSubscriptionRegistration" => CloudFailure::Denied(format!(
            "{said}; run `az provider register --namespace Microsoft.Compute`, and the same of `Microsoft.Network`"
        )),
        "InvalidParameter" | "InvalidRequestContent" | "InvalidResourceReference" | "BadRequest" => {
            CloudFailure::Invalid(said)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What Azure has answered, as its documentation and reports of users have it.
    const CORES: &str =
        "Operation could not be completed as it results in exceeding approved Total Regional Cores quota.";
    const SPOT: &str = "Unable to perform operation 'Create VM' since the provided max price '0.1 USD' is lower than \
                        the current spot price '0.2 USD' for Azure Spot VM size";

    #[test]
    fn errors_say_what_they_prove() {
        let check = |status: u16, code: &str, message: &str, expected: &str| {
            let body = serde_json::json!({ "error": { "code": code, "message": message } }).to_string().into_bytes();
            let word = format!("{:?}", failed(&HttpReply { headers: Vec::new(), status, body }));
            assert!(word.starts_with(expected), "{word} is not {expected}");
        };
        check(409, "SkuNotAvailable", "The requested VM size is currently not available in location.", "Capacity(");
        check(409, "AllocationFailed", "m", "Capacity(");
        check(409, "ZonalAllocationFailed", "m", "Capacity(");
        check(409, "QuotaExceeded", "m", "Quota(");
        check(409, "OperationNotAllowed", CORES, "Quota(");
        check(409, "OperationNotAllowed", SPOT, "Capacity(");
        check(409, "OperationNotAllowed", "Azure Spot is not supported for this offer.", "Invalid(");
        check(409, "SpotPriceGreaterThanProvidedMaxPrice", "m", "Capacity(");
        check(400, "PublicIPCountLimitReached", "m", "Quota(");
        check(409, "ScopeLocked", "The scope has a read-only lock.", "Denied(");
        check(409, "MissingSubscriptionRegistration", "m", "Denied(");
        check(412, "PreconditionFailed", "The resource already exists.", "Exists(");
        check(409, "Conflict", "It is being deleted.", "Exists(");
        check(429, "TooManyRequests", "m", "Throttled(");
        check(429, "", "m", "Throttled(");
        check(403, "AuthorizationFailed", "m", "Denied(");
        check(401, "ExpiredAuthenticationToken", "m", "Denied(");
        check(404, "ResourceGroupNotFound", "m", "NotFound(\"HTTP status 404 ResourceGroupNotFound: m; docs/azure.md");
        check(400, "InvalidResourceReference", "m", "Invalid(");
        check(400, "SomethingNew", "m", "Invalid(");
        check(500, "InternalServerError", "m", "Doubt(");
        let page = HttpReply { headers: Vec::new(), status: 503, body: b"<html>".to_vec() };
        assert_eq!(failed(&page), CloudFailure::Doubt("HTTP status 503: <html>".into()));
    }

    #[test]
    fn an_operation_proves_only_what_comes_before_a_machine_runs() {
        let of = |code: &str| {
            format!("{:?}", of_operation(&ArmError { code: code.into(), message: "no quota here".into() }))
        };
        assert!(of("AllocationFailed").starts_with("Capacity("));
        assert!(of("OperationNotAllowed").starts_with("Quota("));
        for code in ["OSProvisioningTimedOut", "OSProvisioningClientError", "InternalExecutionError", "Conflict"] {
            assert!(of(code).starts_with("Doubt("), "{code}");
        }
    }
}
