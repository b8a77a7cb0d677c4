//! A stand-in for AWS in tests, and the provider that uses it.

use std::path::Path;
use std::sync::{Arc, Mutex};

use super::super::credentials::CredentialSources;
use super::super::{Aws, AwsOptions, AwsSettings, Client, ReachSettings};
use super::{HttpReply, HttpRequest, HttpTransport};
use crate::ssh::{Executables, NodeReach};

type Answering = dyn Fn(&str) -> Result<HttpReply, String> + Send + Sync;

/// Answers by the region and the form that was sent, and remembers them.
pub struct Script {
    answer: Box<Answering>,
    /// `REGION FORM` of each request.
    pub asked: Mutex<Vec<String>>,
}

impl Script {
    /// Answers each request with the result of this function.
    pub fn new(answer: impl Fn(&str) -> Result<HttpReply, String> + Send + Sync + 'static) -> Arc<Script> {
        Arc::new(Script { answer: Box::new(answer), asked: Mutex::default() })
    }
}

impl HttpTransport for Script {
    fn send(&self, request: &HttpRequest) -> Result<HttpReply, String> {
        let region = request.url.split('.').nth(1).unwrap_or_default();
        let asked = format!("{region} {}", String::from_utf8_lossy(&request.body));
        self.asked.lock().unwrap().push(asked.clone());
        (self.answer)(&asked)
    }
}

/// An answer.
pub fn reply(status: u16, body: &str) -> HttpReply {
    HttpReply { headers: Vec::new(), status, body: body.into() }
}

/// An error as EC2 writes it.
pub fn error(code: &str) -> HttpReply {
    reply(400, &format!("<Response><Errors><Error><Code>{code}</Code></Error></Errors></Response>"))
}

/// A client that uses it.
pub fn client(script: Arc<Script>) -> Client {
    let variables = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")];
    let variables = variables.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
    Client::new(script, CredentialSources { variables, ..CredentialSources::default() })
}

/// The provider that uses it.
pub fn aws(home: &Path, script: Arc<Script>) -> Aws {
    aws_reached(home, script, NodeReach::Tunnel)
}

/// The same, where agents of machines that it rents are to reach a loop so that has no address for them.
pub fn aws_reached(home: &Path, script: Arc<Script>, reach: NodeReach) -> Aws {
    let program = Executables { gradus: "/bin/true".into(), rank: "/bin/true".into(), libtorch: None };
    let (owner, socket) = ("me".into(), home.join("loop.sock"));
    let reach = ReachSettings { owner, socket, program, ssh_config: None, reach, door: None };
    let options = AwsOptions { ssh_from: Some("192.0.2.1".into()), ..AwsOptions::default() };
    Aws::new(AwsSettings { home: home.to_owned(), options, reach }, client(script))
}

/// Answers as the metadata service of a machine of EC2 in `vpc-1` does, and all else by the form that was sent.
struct InEc2(Box<Answering>);

impl HttpTransport for InEc2 {
    fn send(&self, request: &HttpRequest) -> Result<HttpReply, String> {
        let key = r#"{"AccessKeyId":"A","SecretAccessKey":"s","Expiration":"2999-01-01T00:00:00Z"}"#;
        match request.url.as_str() {
            url if url.ends_with("/api/token") => Ok(reply(200, "T")),
            url if url.ends_with("/security-credentials/") => Ok(reply(200, "role")),
            url if url.ends_with("/security-credentials/role") => Ok(reply(200, key)),
            url if url.ends_with("/placement/region") => Ok(reply(200, "us-east-1")),
            url if url.ends_with("/meta-data/mac") => Ok(reply(200, "m")),
            url if url.ends_with("/macs/m/vpc-id") => Ok(reply(200, "vpc-1")),
            url if url.ends_with("/local-ipv4") => Ok(reply(200, "10.0.0.7")),
            url if url.contains("checkip") => Ok(reply(200, "192.0.2.1")),
            _ => (self.0)(&String::from_utf8_lossy(&request.body)),
        }
    }
}

/// A client on such a machine, with its role.
pub fn client_in_ec2(answer: impl Fn(&str) -> Result<HttpReply, String> + Send + Sync + 'static) -> Client {
    Client::new(Arc::new(InEc2(Box::new(answer))), CredentialSources::default())
}
