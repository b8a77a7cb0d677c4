//! Errors of requests to a server, with hints.

use serde_json::Value;

use crate::error::{Error, exit};

/// No answer came.
pub fn unreached(url: &str, why: &str) -> Error {
    let lower = why.to_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| lower.contains(part));
    let hint = if has(&["notvalidforname", "not valid for name"]) {
        "use the name that its certificate is for".to_owned()
    } else if has(&["usedasendentity"]) {
        "its certificate is made for signing others: make one with `-addext basicConstraints=critical,CA:FALSE`"
            .to_owned()
    } else if has(&["expired"]) {
        "its certificate has expired: start it with a newer one".to_owned()
    } else if has(&["certificate", "unknownissuer"]) {
        format!("if you trust it, log in with who signed its certificate: `gradus login {url} --ca FILE`")
    } else if url.starts_with("https") && has(&["invalidcontenttype", "corrupt", "invalid message"]) {
        "it speaks no TLS there: begin the address with `http://`".to_owned()
    } else if has(&["refused"]) {
        "nothing listens there: start it with `gradus serve --listen ADDRESS:PORT`, or check the address".to_owned()
    } else if has(&["dns", "lookup", "resolve"]) {
        "check the name of its machine".to_owned()
    } else if has(&["timed out", "timeout"]) {
        "check the address, and that no firewall is in between".to_owned()
    } else {
        "check that `gradus serve` runs there, and whether its address begins with `http://` or `https://`".to_owned()
    };
    code(format!("cannot reach the server at `{url}`: {}", cause(why)), Some(hint), exit::WORLD)
}

/// The cause, without the client's operation.
fn cause(why: &str) -> &str {
    let after_url = why.split_once("/v1/").and_then(|(_, rest)| rest.split_once("): ")).map_or(why, |(_, rest)| rest);
    after_url.strip_prefix("client error (Connect): ").unwrap_or(after_url)
}

/// Parses an answer, or returns its error.
pub fn answer(url: &str, status: u16, body: &[u8]) -> Result<Value, Error> {
    let Ok(value) = serde_json::from_slice::<Value>(body) else { return Err(stranger(url, status)) };
    if (200..300).contains(&status) {
        return Ok(value);
    }
    let Some(message) = value["error"]["message"].as_str() else { return Err(stranger(url, status)) };
    let hint = value["error"]["hint"].as_str().map(str::to_owned);
    if status == 401 {
        let hint = format!("log in with a token of that server: `gradus login {url} --token-file FILE`");
        return Err(code(format!("the server at `{url}` refuses: {message}"), Some(hint), exit::WORLD));
    }
    // A server of an earlier version does not say what the command there would exit with.
    let said = value["error"]["exit_code"].as_u64().and_then(|code| u8::try_from(code).ok());
    let by_status = if (400..500).contains(&status) { exit::USAGE } else { exit::WORLD };
    Err(code(message.to_owned(), hint, said.unwrap_or(by_status)))
}

/// A stream ended before what it follows did.
pub fn broken_off(url: &str) -> Error {
    let hint = "check what is between here and the server: its streams are cut off before anything comes".to_owned();
    code(format!("the server at `{url}` breaks its answers off"), Some(hint), exit::WORLD)
}

/// The error for a server that is not gradus.
pub fn stranger(url: &str, status: u16) -> Error {
    let message = format!("what answers at `{url}` (with status {status}) is no server of gradus that this one knows");
    let hint = "check the address; if it is right, update the older of the two".to_owned();
    code(message, Some(hint), exit::WORLD)
}

fn code(message: String, hint: Option<String>, code: u8) -> Error {
    Error::Code { message, hint, code }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_a_hint_for_its_cause() {
        let check = |url: &str, why: &str, part: &str| {
            let hint = unreached(url, why).hint().unwrap();
            assert!(hint.contains(part), "{why}: {hint}");
        };
        check("http://127.0.0.1:1", "tcp connect error: Connection refused (os error 111)", "nothing listens there");
        check("https://a.b", "invalid peer certificate: UnknownIssuer", "--ca FILE");
        check("https://a.b", "invalid peer certificate: certificate not valid for name \"a.b\"", "use the name");
        check("https://a.b", "invalid peer certificate: Other(OtherError(CaUsedAsEndEntity))", "CA:FALSE");
        check("https://a.b", "invalid peer certificate: Expired", "has expired");
        check("https://a.b", "received corrupt message of type InvalidContentType", "begin the address with `http://`");
        check("https://a.b", "dns error: failed to lookup address information", "check the name");
        check("https://a.b", "operation timed out", "firewall");
    }

    #[test]
    fn the_cause_is_told_without_the_request() {
        let why =
            "error sending request for url (http://u:1/v1/health): client error (Connect): tcp connect error: refused";
        assert_eq!(cause(why), "tcp connect error: refused");
        assert_eq!(cause("connection closed"), "connection closed");
    }

    #[test]
    fn an_answer_is_sorted_by_its_status() {
        let check = |status: u16, body: &str, part: &str, code: u8| {
            let error = answer("http://u", status, body.as_bytes()).unwrap_err();
            let said = format!("{error} {}", error.hint().unwrap_or_default());
            assert!(said.contains(part) && error.code() == code, "{said}");
        };
        let refused = r#"{"error":{"message":"no","hint":"try"}}"#;
        check(401, refused, "`gradus login http://u", exit::WORLD);
        check(409, refused, "no try", exit::USAGE);
        check(503, refused, "no try", exit::WORLD);
        let spent = r#"{"error":{"message":"no","hint":"try","exit_code":3}}"#;
        check(409, spent, "no try", exit::WORLD);
        check(404, "<html>", "is no server of gradus", exit::WORLD);
        check(200, "<html>", "is no server of gradus", exit::WORLD);
        check(404, "{}", "is no server of gradus", exit::WORLD);
    }
}
