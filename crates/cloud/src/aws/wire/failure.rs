//! Interprets errors of AWS: whether anything was rented, and what to do.

use domain::rental::Refusal;

use super::HttpReply;
use super::query::Query;

/// Why AWS did not carry out a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AwsFailure {
    /// No such machine is free there now.
    Capacity(String),
    /// The account may not have more of these.
    Quota(String),
    /// Too many requests.
    Throttled(String),
    /// The identity may not do this.
    Denied {
        /// Such as `ec2:RunInstances`.
        action: String,
        message: String,
    },
    /// There are no credentials, or AWS does not accept them.
    Credentials(String),
    /// The token was used before: with other parameters, or for a machine that is gone since.
    TokenReused(String),
    /// It would have been allowed, and was not done.
    DryRun,
    /// There is no such resource.
    NotFound(String),
    /// The request cannot be carried out as it is.
    Invalid {
        /// AWS's error code.
        code: String,
        message: String,
    },
    /// Whether it was carried out is not known.
    Doubt(String),
}

impl AwsFailure {
    /// Interprets an error reply to a request.
    pub fn of(query: &Query, reply: &HttpReply) -> AwsFailure {
        let text = reply.text();
        let Some((code, message)) = named(&text) else {
            return AwsFailure::unnamed(reply.status, &text);
        };
        let said = if message.is_empty() { code.clone() } else { format!("{code}: {message}") };
        let is = |words: &[&str]| words.contains(&&*code);
        match () {
            // AWS sends some of these with a status of 500.
            () if is(CAPACITY) => AwsFailure::Capacity(said),
            // The zone of a subnet may lack a type that other zones of the region have.
            () if code == "Unsupported" && message.contains("Availability Zone") => AwsFailure::Capacity(said),
            () if is(QUOTA) => AwsFailure::Quota(said),
            () if is(THROTTLED) => AwsFailure::Throttled(said),
            () if is(DENIED) => {
                let action = denied_action(&message).unwrap_or_else(|| format!("{}:{}", query.service, query.action));
                AwsFailure::Denied { action, message: said }
            }
            () if is(CREDENTIALS) => AwsFailure::Credentials(format!("{said}; AWS does not accept the credentials")),
            () if is(TOKEN_REUSED) => AwsFailure::TokenReused(said),
            () if code == "DryRunOperation" => AwsFailure::DryRun,
            () if code.ends_with(".NotFound") || code == "ParameterNotFound" => AwsFailure::NotFound(said),
            () if reply.status >= 500 || is(UNCLEAR) => AwsFailure::Doubt(said),
            () => AwsFailure::Invalid { code, message },
        }
    }

    /// An error without a code of AWS: from a proxy, or a broken server.
    fn unnamed(status: u16, text: &str) -> AwsFailure {
        let first = text.trim().lines().next().unwrap_or_default().chars().take(200).collect::<String>();
        let said = format!("HTTP status {status}: {first}");
        match status {
            429 => AwsFailure::Throttled(said),
            _ => AwsFailure::Doubt(said),
        }
    }

    /// The refusal that a failed launch proves; `None` if it is inconclusive.
    pub fn refusal(&self) -> Option<Refusal> {
        let message = self.to_string();
        let invalid = |message| Some(Refusal::Invalid { message, disk: None });
        match self {
            AwsFailure::Capacity(_) => Some(Refusal::Capacity { message }),
            AwsFailure::Quota(_) => Some(Refusal::Quota { message }),
            AwsFailure::Throttled(_) => Some(Refusal::Throttled { after: None }),
            AwsFailure::Denied { .. } | AwsFailure::Credentials(_) => Some(Refusal::Denied { message }),
            AwsFailure::NotFound(_) | AwsFailure::Invalid { .. } | AwsFailure::DryRun => invalid(message),
            AwsFailure::TokenReused(_) | AwsFailure::Doubt(_) => None,
        }
    }
}

impl std::fmt::Display for AwsFailure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AwsFailure::Denied { action, message } => {
                write!(formatter, "{message}; allow `{action}`, as `gradus cloud policy aws` prints it")
            }
            AwsFailure::Invalid { code, message } => write!(formatter, "{code}: {message}"),
            AwsFailure::DryRun => formatter.write_str("it was a dry run"),
            AwsFailure::Capacity(said)
            | AwsFailure::Quota(said)
            | AwsFailure::Credentials(said)
            | AwsFailure::Throttled(said)
            | AwsFailure::TokenReused(said)
            | AwsFailure::NotFound(said)
            | AwsFailure::Doubt(said) => formatter.write_str(said),
        }
    }
}

const CAPACITY: &[&str] = &[
    "InsufficientInstanceCapacity",
    "InsufficientHostCapacity",
    "InsufficientReservedInstanceCapacity",
    "ReservationCapacityExceeded",
    "InsufficientCapacity",
    "InsufficientCapacityOnOutpost",
    "SpotMaxPriceTooLow",
    "InsufficientFreeAddressesInSubnet",
    "InsufficientVolumeCapacity",
];

const QUOTA: &[&str] = &[
    "VcpuLimitExceeded",
    "InstanceLimitExceeded",
    "MaxSpotInstanceCountExceeded",
    "MaxSpotFleetRequestCountExceeded",
    "VolumeLimitExceeded",
    "MaxIOPSLimitExceeded",
];

const THROTTLED: &[&str] = &[
    "RequestLimitExceeded",
    "Throttling",
    "ThrottlingException",
    "RequestThrottled",
    "TooManyRequestsException",
    "EC2ThrottledException",
    "SlowDown",
    "PriorRequestNotComplete",
];

const TOKEN_REUSED: &[&str] = &["IdempotentParameterMismatch", "IdempotentInstanceTerminated"];

const DENIED: &[&str] = &["UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "OptInRequired"];

const CREDENTIALS: &[&str] = &[
    "AuthFailure",
    "InvalidClientTokenId",
    "SignatureDoesNotMatch",
    "UnrecognizedClientException",
    "InvalidSignatureException",
    "IncompleteSignature",
    "MissingAuthenticationToken",
    "ExpiredToken",
    "ExpiredTokenException",
    "InvalidIdentityToken",
    "IDPRejectedClaim",
    "RequestExpired",
    "InvalidAccessKeyId",
];

/// They are sent with a status below 500 too.
const UNCLEAR: &[&str] = &["InternalError", "InternalFailure", "Unavailable", "ServiceUnavailable", "RequestTimeout"];

/// Code and message of an error, in XML of EC2 or STS, or in JSON.
fn named(text: &str) -> Option<(String, String)> {
    if text.trim_start().starts_with('{') {
        let value: serde_json::Value = serde_json::from_str(text).ok()?;
        let code = value["__type"].as_str()?.rsplit('#').next()?.to_owned();
        let message = value["message"].as_str().or(value["Message"].as_str()).unwrap_or_default();
        return Some((code, message.to_owned()));
    }
    let code = element(text, "Code")?;
    Some((code, element(text, "Message").unwrap_or_default()))
}

/// The text of the first element of that name.
fn element(text: &str, name: &str) -> Option<String> {
    let (_, rest) = text.split_once(&format!("<{name}>"))?;
    let (inside, _) = rest.split_once(&format!("</{name}>"))?;
    let inside = quick_xml::escape::unescape(inside).map_or_else(|_| inside.to_owned(), |text| text.into_owned());
    Some(inside.trim().to_owned()).filter(|inside| !inside.is_empty())
}

/// The action that a message names as not allowed.
fn denied_action(message: &str) -> Option<String> {
    let (_, rest) = message.split_once("not authorized to perform: ")?;
    let action: String = rest.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == ':').collect();
    action.contains(':').then_some(action)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(status: u16, body: &str, expected: &str) {
        let query = Query { service: "ec2", action: "RunInstances", params: Vec::new() };
        let failure = AwsFailure::of(&query, &HttpReply { headers: Vec::new(), status, body: body.into() });
        let word = match &failure.refusal() {
            None => "doubt",
            Some(Refusal::Capacity { .. }) => "capacity",
            Some(Refusal::Quota { .. }) => "quota",
            Some(Refusal::Throttled { .. }) => "throttled",
            Some(Refusal::Denied { .. }) => "denied",
            Some(Refusal::Invalid { .. }) => "invalid",
        };
        assert_eq!(format!("{word}: {failure}"), expected, "{body}");
    }

    fn ec2(code: &str, message: &str) -> String {
        format!(
            "<?xml version=\"1.0\"?>\n<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error>\
             </Errors><RequestID>1</RequestID></Response>"
        )
    }

    #[test]
    fn errors_say_whether_anything_was_rented() {
        let none = "We currently do not have sufficient p4d.24xlarge capacity";
        for status in [400, 500] {
            let body = ec2("InsufficientInstanceCapacity", none);
            check(status, &body, &format!("capacity: InsufficientInstanceCapacity: {none}"));
        }
        check(400, &ec2("SpotMaxPriceTooLow", "low"), "capacity: SpotMaxPriceTooLow: low");
        check(400, &ec2("VcpuLimitExceeded", "8 vCPU"), "quota: VcpuLimitExceeded: 8 vCPU");
        check(400, &ec2("MaxSpotInstanceCountExceeded", "max"), "quota: MaxSpotInstanceCountExceeded: max");
        check(503, &ec2("RequestLimitExceeded", "slow"), "throttled: RequestLimitExceeded: slow");
        check(429, "slow down", "throttled: HTTP status 429: slow down");
        check(400, &ec2("InvalidAMIID.NotFound", "ami-1"), "invalid: InvalidAMIID.NotFound: ami-1");
        check(400, &ec2("InvalidParameterValue", "a &lt; b"), "invalid: InvalidParameterValue: a < b");
        check(400, &ec2("IdempotentParameterMismatch", "other"), "doubt: IdempotentParameterMismatch: other");
        check(400, &ec2("IdempotentInstanceTerminated", "i-1"), "doubt: IdempotentInstanceTerminated: i-1");
        for code in ["SlowDown", "EC2ThrottledException", "PriorRequestNotComplete"] {
            check(400, &ec2(code, "slow"), &format!("throttled: {code}: slow"));
        }
        for code in ["InsufficientFreeAddressesInSubnet", "InsufficientVolumeCapacity", "ReservationCapacityExceeded"] {
            check(400, &ec2(code, "none"), &format!("capacity: {code}: none"));
        }
        let zone =
            "Your requested instance type (p5.48xlarge) is not supported in your requested Availability Zone (b).";
        check(400, &ec2("Unsupported", zone), &format!("capacity: Unsupported: {zone}"));
        check(400, &ec2("Unsupported", "no such mode"), "invalid: Unsupported: no such mode");
        check(500, &ec2("InternalError", "oops"), "doubt: InternalError: oops");
        check(503, &ec2("Unavailable", "oops"), "doubt: Unavailable: oops");
        check(400, &ec2("ServiceUnavailable", ""), "doubt: ServiceUnavailable");
        check(502, "<html>Bad gateway</html>", "doubt: HTTP status 502: <html>Bad gateway</html>");
        check(403, "", "doubt: HTTP status 403: ");
    }

    #[test]
    fn what_is_not_allowed_is_named() {
        let said = "You are not authorized to perform this operation. User: arn:aws:iam::1:user/me is not authorized to \
                    perform: ec2:CreateTags on resource: x because no identity-based policy allows it";
        check(
            403,
            &ec2("UnauthorizedOperation", said),
            &format!(
                "denied: UnauthorizedOperation: {said}; allow `ec2:CreateTags`, as `gradus cloud policy aws` prints it"
            ),
        );
        check(
            403,
            &ec2("AccessDenied", "no"),
            "denied: AccessDenied: no; allow `ec2:RunInstances`, as `gradus cloud policy aws` prints it",
        );
        for code in ["AuthFailure", "SignatureDoesNotMatch", "ExpiredToken", "InvalidClientTokenId"] {
            let ending = "AWS does not accept the credentials";
            check(403, &ec2(code, "no"), &format!("denied: {code}: no; {ending}"));
        }
        let json = r#"{"__type":"com.amazon#AccessDeniedException","Message":"is not authorized to perform: ssm:GetParameter on"}"#;
        check(
            400,
            json,
            "denied: AccessDeniedException: is not authorized to perform: ssm:GetParameter on; allow `ssm:GetParameter`, \
             as `gradus cloud policy aws` prints it",
        );
    }
}
