//! How an agent reaches the loop directly: over TLS, at an address of the server, instead of through a tunnel.
//!
//! The server makes a join token for one instance ([`JoinOffer`]), which is good once and for a while. The agent draws a
//! secret of its own, writes it down, and sends both ([`JoinRequest`]); from then on the secret alone lets it in. Since the
//! secret is on disk before it is sent, the same request can be repeated after an answer was lost.

use serde::{Deserialize, Serialize};

use crate::id::InstanceId;

/// The version of [`JoinRequest`].
pub const JOIN_SCHEMA: u32 = 1;

/// Digits of a SHA-256 in hexadecimal.
const FINGERPRINT: usize = 64;

/// Something that only the two ends of a connection may know. It cannot be printed.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct AccessSecret(pub String);

impl std::fmt::Debug for AccessSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("AccessSecret(…)")
    }
}

/// By what an agent recognises its server. A certificate is always verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerTrust {
    /// Its certificate is signed by an authority that the machine of the agent trusts.
    System,
    /// Its certificate is signed by one of these: certificates in the format PEM.
    Authorities(String),
    /// Its certificate has this SHA-256, in lower-case hexadecimal digits, whatever name it is for.
    Fingerprint(String),
}

impl ServerTrust {
    /// A fingerprint as tools print it: 64 hexadecimal digits of either case, with or without colons. `None` for other text.
    pub fn of_fingerprint(text: &str) -> Option<ServerTrust> {
        let digits: String = text.trim().chars().filter(|letter| *letter != ':').collect();
        let is_hash = digits.len() == FINGERPRINT && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hash.then(|| ServerTrust::Fingerprint(digits.to_ascii_lowercase()))
    }
}

/// A server that agents reach directly.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentServer {
    /// Its address, such as `https://192.0.2.7:7070`, without a slash at the end.
    pub url: String,
    /// By what it is recognised.
    pub trust: ServerTrust,
}

/// What an agent needs in order to join.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinOffer {
    /// Where.
    pub server: AgentServer,
    /// The join token, for one instance and one use.
    pub token: AccessSecret,
}

/// An agent's request to join, `POST /v1/agent/join`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinRequest {
    /// Version of the message.
    pub schema: u32,
    /// Who joins.
    pub instance: InstanceId,
    /// The join token.
    pub token: AccessSecret,
    /// What the agent will be recognised by.
    pub secret: AccessSecret,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_read_as_tools_print_it() {
        let digits = "ab".repeat(32);
        let expected = Some(ServerTrust::Fingerprint(digits.clone()));
        let with_colons = vec!["AB"; 32].join(":");
        for text in [digits.as_str(), &digits.to_uppercase(), &with_colons, &format!(" {digits}\n")] {
            assert_eq!(ServerTrust::of_fingerprint(text), expected, "{text}");
        }
        for text in ["", "system", &digits[1..], &format!("{digits}a"), &"xy".repeat(32)] {
            assert_eq!(ServerTrust::of_fingerprint(text), None, "{text}");
        }
    }

    #[test]
    fn secrets_cannot_be_printed() {
        let secret = || AccessSecret("planted-7f3a9c1e".into());
        let instance = InstanceId::new("digits-1-i1");
        let request = JoinRequest { schema: JOIN_SCHEMA, instance, token: secret(), secret: secret() };
        let server = AgentServer { url: "https://192.0.2.7:7070".into(), trust: ServerTrust::System };
        let printed = format!("{request:?} {:?}", JoinOffer { server, token: secret() });
        assert!(!printed.contains("planted"), "{printed}");
        let json = serde_json::to_string(&request).unwrap();
        assert_eq!(serde_json::from_str::<JoinRequest>(&json).unwrap(), request);
    }
}
