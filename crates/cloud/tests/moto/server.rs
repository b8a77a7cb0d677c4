//! A running moto server, and clients for it.

use std::collections::BTreeMap;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use cloud::aws::credentials::CredentialSources;
use cloud::aws::wire::{HttpReply, HttpRequest, HttpTransport};
use cloud::aws::{Addresses, Client, ReachSettings};
use cloud::ssh::{Executables, NodeReach};
use cloud::{Aws, AwsOptions, AwsSettings};

/// A running moto, ended when dropped.
pub struct Moto {
    process: Child,
    pub port: u16,
}

impl Moto {
    /// Starts one; after `free` calls it checks signatures and policies, if given.
    pub fn start(free: Option<u32>) -> Moto {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut python = Command::new("python3");
        python.args(["-c", "from moto.server import main; main()", "-H", "127.0.0.1", "-p", &port.to_string()]);
        if let Some(free) = free {
            python.env("INITIAL_NO_AUTH_ACTION_COUNT", free.to_string());
        }
        let process = python.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let moto = Moto { process, port };
        let (web, began) = (Web::new(), Instant::now());
        let ready = HttpRequest {
            method: "GET",
            url: format!("http://127.0.0.1:{port}/moto-api/data.json"),
            headers: Vec::new(),
            body: Vec::new(),
        };
        while web.send(&ready).map(|reply| reply.status) != Ok(200) {
            assert!(began.elapsed() < Duration::from_secs(120), "moto does not answer");
            std::thread::sleep(Duration::from_millis(50));
        }
        moto
    }
}

impl Drop for Moto {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The HTTP client that the command line also uses.
pub struct Web(store::WebClient);

impl Web {
    pub fn new() -> Web {
        Web(store::WebClient::new().unwrap())
    }
}

impl HttpTransport for Web {
    fn send(&self, request: &HttpRequest) -> Result<HttpReply, String> {
        let HttpRequest { method, url, headers, body } = request;
        let (status, body) = self.0.send(method, url, headers, body.clone())?;
        Ok(HttpReply { headers: Vec::new(), status, body })
    }
}

/// A client with this key at this port.
pub fn client(port: u16, (id, secret): (&str, &str)) -> Client {
    let variables = [
        ("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{port}")),
        ("AWS_ACCESS_KEY_ID", id.to_owned()),
        ("AWS_SECRET_ACCESS_KEY", secret.to_owned()),
    ];
    let variables: BTreeMap<String, String> =
        variables.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
    Client::new(Arc::new(Web::new()), CredentialSources { variables, ..CredentialSources::default() })
}

/// The owner of the machines in tests.
pub const OWNER: &str = "owner-of-tests";

/// A provider with its own home.
pub fn provider(home: &Path, port: u16, key: (&str, &str)) -> Aws {
    provider_with(home, port, key, None)
}

/// The same, whose machines have these addresses.
pub fn provider_with(home: &Path, port: u16, key: (&str, &str), addresses: Option<Addresses>) -> Aws {
    // The addresses that moto invents must be unreachable.
    let unreachable = home.join("unreachable");
    std::fs::write(&unreachable, "Host *\n  ProxyCommand false\n").unwrap();
    let options = AwsOptions {
        image: Some("ami-12c6146b".to_owned()),
        ssh_from: Some("192.0.2.1".to_owned()),
        addresses,
        ..AwsOptions::default()
    };
    let program = Executables { gradus: PathBuf::from("/bin/true"), rank: PathBuf::from("/bin/true"), libtorch: None };
    let reach = ReachSettings {
        owner: OWNER.to_owned(),
        socket: home.join("loop.sock"),
        program,
        ssh_config: Some(unreachable),
        reach: NodeReach::Tunnel,
        door: None,
    };
    Aws::new(AwsSettings { home: home.to_owned(), options, reach }, client(port, key))
}
