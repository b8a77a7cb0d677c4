//! Agents that reach `gradus serve` over TLS: who is let in, and that the next server knows them.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use agent::DirectLoop;
use domain::joining::{AccessSecret, AgentServer, ServerTrust};
use domain::wire::{Heartbeat, SCHEMA};
use domain::{Elapsed, InstanceId, Timestamp};
use node::{Folder, LaunchSpec, read_secret, write_secret};
use server::api::{AgentAccess, TlsIdentity};
use store::WebClient;

use super::remote::{Served, token_file};
use crate::home::{Home, text};

/// For an answer, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(60);

/// A server's home, and the tokens that a provider has of it.
struct Scene {
    home: Home,
    access: Arc<AgentAccess>,
    trust: ServerTrust,
}

/// A certificate with its key.
fn identity(name: &str) -> [String; 2] {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/line/background/tls");
    ["certificate.pem", "key.pem"].map(|file| text(&folder.join(format!("{name}{file}"))).to_owned())
}

impl Scene {
    /// Tokens are made before the server starts, which reads them.
    fn new() -> Scene {
        let home = Home::new();
        let [certificate, key] = identity("");
        let identity = TlsIdentity::read(Path::new(&certificate), Path::new(&key)).unwrap();
        let trust = ServerTrust::Fingerprint(identity.fingerprint().to_owned());
        // Where agents are told to go is not asked for here: each is told by its test.
        let server = AgentServer { url: "https://127.0.0.1:1".into(), trust: trust.clone() };
        let access = AgentAccess::open(&server::Home::open(&home.path()).unwrap(), server).unwrap();
        Scene { home, access, trust }
    }

    /// A join token that was made so many minutes ago and is good for ten.
    fn token(&self, instance: &str, minutes_ago: i64) -> AccessSecret {
        let at = Timestamp(server::clock::now().0 - minutes_ago * 60_000_000);
        self.access.offer(&InstanceId::new(instance), Elapsed(600_000_000), at).unwrap().token
    }

    /// A server at an address, with a certificate.
    fn serve(&self, address: &str, certificate: &str) -> Served {
        let [certificate, key] = identity(certificate);
        let options: [&str; 6] = ["--tls-cert", &certificate, "--tls-key", &key, "--agents-at", "https://127.0.0.1:1"];
        Served::start_at(address, &self.home, &options)
    }

    /// The folder of an instance on its node.
    fn folder(&self, name: &str) -> Folder {
        let folder = self.home.path().with_file_name("node").join("instances").join(name);
        fs::create_dir_all(&folder).unwrap();
        Folder::new(folder)
    }

    /// An agent with a folder of its own, which has this token.
    fn agent(&self, folder: &str, instance: &str, url: &str, token: &AccessSecret) -> Agent {
        let folder = self.folder(folder);
        write_secret(&folder.join_token(), token).unwrap();
        self.agent_again(folder, instance, url)
    }

    /// An agent that has whatever its folder has.
    fn agent_again(&self, folder: Folder, instance: &str, url: &str) -> Agent {
        let (instance, server) =
            (InstanceId::new(instance), AgentServer { url: url.to_owned(), trust: self.trust.clone() });
        let place = DirectLoop::open(&server, &folder, &instance).unwrap();
        Agent { folder, instance, place }
    }

    /// That a token does not let an agent in, and why.
    fn refused(&self, instance: &str, url: &str, token: &AccessSecret, word: &str) {
        let agent = self.agent(word, instance, url, token);
        let why = agent.calls().unwrap_err();
        assert!(why.contains(word) && !why.contains(&token.0), "{why}");
        assert!(fs::read_to_string(agent.folder.join_log()).unwrap().contains(word));
    }
}

/// The client of an agent.
struct Agent {
    folder: Folder,
    instance: InstanceId,
    place: DirectLoop,
}

impl Agent {
    /// Sends what is JSON to an address below that of agents.
    fn post(&self, address: &str, body: String) -> Result<(u16, String), String> {
        let answer = self.place.post(address, body.into_bytes(), DEADLINE);
        answer.map(|(status, body)| (status, String::from_utf8_lossy(&body).into_owned()))
    }

    /// Calls the loop for an instance.
    fn calls_as(&self, instance: &InstanceId) -> Result<(u16, String), String> {
        let heartbeat = Heartbeat {
            schema: SCHEMA,
            instance: instance.clone(),
            started: Timestamp(1),
            elapsed: Elapsed(1),
            entries: Vec::new(),
            reclaim: None,
            incarnation: 7,
            attempt: None,
        };
        self.post("tick", serde_json::to_string(&heartbeat).unwrap())
    }

    /// Calls the loop; the status of its answer.
    fn calls(&self) -> Result<u16, String> {
        self.calls_as(&self.instance).map(|(status, _)| status)
    }

    fn secret(&self) -> String {
        read_secret(&self.folder.session_secret()).unwrap().unwrap().0
    }
}

#[test]
fn an_agent_joins_once_with_its_own_token_and_does_its_own_work_only() {
    let scene = Scene::new();
    let (good, other, late) = (scene.token("a-1-i1", 0), scene.token("b-1-i1", 0), scene.token("c-1-i1", 60));
    let served = scene.serve("127.0.0.1:0", "");
    let url = served.url.as_str();
    scene.refused("a-1-i1", url, &AccessSecret(format!("gradus_join_{}", "0".repeat(64))), "unknown_token");
    scene.refused("a-1-i1", url, &other, "other_instance");
    scene.refused("c-1-i1", url, &late, "expired_token");
    let agent = scene.agent("a", "a-1-i1", url, &good);
    assert_eq!(agent.calls(), Ok(200));
    assert!(!agent.folder.join_token().exists(), "it was used");
    scene.refused("a-1-i1", url, &good, "used_token");
    assert_eq!(agent.calls(), Ok(200), "whoever was refused has changed nothing");
    // An agent has its own name, and the files of its own run.
    let check = |answer: Result<(u16, String), String>, word: &str| {
        let (status, why) = answer.unwrap();
        assert!(status == 403 && why.contains(word), "{status} {why}");
    };
    check(agent.calls_as(&InstanceId::new("b-1-i1")), "other_instance");
    check(agent.post("runs/b-1/files", r#"{"parts": []}"#.to_owned()), "other_run");
    check(agent.post("runs/..%2f..%2fetc/files", r#"{"parts": []}"#.to_owned()), "other_run");
    let kept = fs::read_to_string(scene.home.path().join("agents.json")).unwrap();
    for secret in [&good.0, &other.0, &late.0, &agent.secret()] {
        assert!(!kept.contains(secret), "hashes only: {kept}");
    }
}

#[test]
fn secrets_of_agents_and_tokens_of_clients_open_only_their_own_doors() {
    let scene = Scene::new();
    let token = scene.token("a-1-i1", 0);
    let served = scene.serve("127.0.0.1:0", "");
    let agent = scene.agent("a", "a-1-i1", &served.url, &token);
    assert_eq!(agent.calls(), Ok(200));
    let owner = fs::read_to_string(token_file(&scene.home)).unwrap().trim().to_owned();
    // The certificate is also recognised by who is told to trust it as an authority.
    let [certificate, _] = identity("");
    let trust = ServerTrust::Authorities(fs::read_to_string(certificate).unwrap());
    let client = WebClient::of_trusted(&trust, true).unwrap();
    let ask = |method: &str, path: &str, secret: &str, body: &str| {
        let mut headers = vec![("content-type".to_owned(), "application/json".to_owned())];
        headers.extend((!secret.is_empty()).then(|| ("authorization".to_owned(), format!("Bearer {secret}"))));
        let url = format!("{}{path}", served.url);
        client.send_within((method, &url), &headers, body.as_bytes().to_vec(), DEADLINE).unwrap().0
    };
    assert_eq!(ask("GET", "/v1/runs", &owner, ""), 200);
    assert_eq!(ask("GET", "/v1/runs", &agent.secret(), ""), 401, "an agent is no client");
    for secret in ["", owner.as_str(), token.0.as_str()] {
        assert_eq!(ask("POST", "/v1/agent/tick", secret, "{}"), 401, "`{secret}` is no agent's");
        assert_eq!(ask("GET", "/v1/agent/runs/a-1/files", secret, ""), 401);
    }
    let join = |secret: &str| {
        let request = serde_json::json!({
            "schema": 1, "instance": "a-1-i1", "token": token.0, "secret": secret,
        });
        ask("POST", "/v1/agent/join", "", &request.to_string())
    };
    assert_eq!((join(""), join("short"), join(&"x".repeat(32)), join(&"x".repeat(5000))), (422, 422, 403, 413));
    assert_eq!(ask("POST", "/v1/agent/join", "", "{"), 422);
    let later = serde_json::json!({ "schema": 2, "instance": "a-1-i1", "token": "t", "secret": "s" });
    assert_eq!(ask("POST", "/v1/agent/join", "", &later.to_string()), 422);
}

#[test]
fn an_agent_is_known_to_the_next_server_if_that_has_the_same_certificate() {
    let scene = Scene::new();
    let token = scene.token("a-1-i1", 0);
    // The port is needed again later: no other test takes any of this address.
    let served = scene.serve("127.0.71.1:0", "");
    let url = served.url.clone();
    let address = url.strip_prefix("https://").unwrap();
    let agent = scene.agent("a", "a-1-i1", &url, &token);
    assert_eq!(agent.calls(), Ok(200));
    drop(served);
    agent.calls().unwrap_err();
    let served = scene.serve(address, "");
    scene.home.until("the agent calls again", || agent.calls() == Ok(200));
    let again = scene.agent_again(agent.folder.clone(), "a-1-i1", &url);
    assert_eq!(again.calls(), Ok(200), "an agent that is started again has its secret");
    scene.refused("a-1-i1", &url, &token, "used_token");
    drop(served);
    let served = scene.serve(address, "other-");
    let why = agent.calls().unwrap_err();
    assert!(why.contains("SHA-256") && !why.contains(&agent.secret()), "{why}");
    drop(served);
    let _served = scene.serve(address, "");
    scene.home.until("the agent calls again", || agent.calls() == Ok(200));
}

/// How often a server has noted that an agent calls which is not in its log.
fn noted(home: &Home) -> i64 {
    let path = home.path().join("series.db");
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY;
    let Ok(db) = rusqlite::Connection::open_with_flags(path, flags) else { return 0 };
    let query = "SELECT COUNT(*) FROM operations WHERE subject = 'a-1-i1' AND text LIKE '%its agent calls%'";
    db.query_row(query, [], |row| row.get(0)).unwrap_or(0)
}

#[test]
fn the_process_of_an_agent_joins_and_finds_the_next_server() {
    let scene = Scene::new();
    let token = scene.token("a-1-i1", 0);
    // As above.
    let served = scene.serve("127.0.71.2:0", "");
    let url = served.url.clone();
    let folder = scene.folder("a-1-i1");
    let spec = LaunchSpec {
        schema: node::SCHEMA,
        instance: InstanceId::new("a-1-i1"),
        token: "request".into(),
        owner: "test".into(),
        socket: "/nowhere/loop.sock".into(),
        rank_program: "/nowhere/gradus-rank".into(),
        libtorch: None,
        is_remote: true,
        address: None,
        first_answer: None,
        server: Some(AgentServer { url: url.clone(), trust: scene.trust.clone() }),
    };
    folder.write_launch_spec(&spec).unwrap();
    write_secret(&folder.join_token(), &token).unwrap();
    let mut command = scene.home.command(&["agent", "--folder", text(folder.path())]);
    let mut agent = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    scene.home.until("it calls", || noted(&scene.home) == 1);
    assert!(!folder.join_token().exists() && folder.session_secret().exists());
    let secret = read_secret(&folder.session_secret()).unwrap().unwrap().0;
    for file in ["cmdline", "environ"] {
        let shown = fs::read(format!("/proc/{}/{file}", agent.id())).unwrap();
        let shown = String::from_utf8_lossy(&shown);
        assert!(!shown.contains(&secret) && !shown.contains(&token.0), "in its {file}");
    }
    drop(served);
    let _served = scene.serve(url.strip_prefix("https://").unwrap(), "");
    scene.home.until("it calls the next server", || noted(&scene.home) == 2);
    assert!(agent.try_wait().unwrap().is_none(), "it is still at work");
    agent.kill().unwrap();
    agent.wait().unwrap();
}

#[test]
fn an_address_that_agents_cannot_use_is_refused_before_the_server_starts() {
    let home = Home::new();
    let [certificate, key] = identity("");
    for address in ["http://192.0.2.7:7070", "https://", "192.0.2.7:7070", "https://me@192.0.2.7", "https://a/b"] {
        let options = ["--tls-cert", certificate.as_str(), "--tls-key", key.as_str(), "--agents-at", address];
        let said = home.gradus(&[&["serve", "--listen", "127.0.0.1:0"], &options[..]].concat());
        let hint = "write `--agents-at https://HOST:PORT`";
        assert!(said.code == Some(2) && said.err.contains(hint), "{address}: {:?} {}", said.code, said.err);
    }
    let agents = ["--agents-at", "https://192.0.2.7:7070", "--agents-ca", key.as_str()];
    let options = ["--tls-cert", certificate.as_str(), "--tls-key", key.as_str()];
    let said = home.gradus(&[&["serve", "--listen", "127.0.0.1:0"], &options[..], &agents[..]].concat());
    assert!(said.code == Some(2) && said.err.contains("there is no certificate"), "{:?} {}", said.code, said.err);
    let said = home.gradus(&["serve", "--listen", "127.0.0.1:0", "--agents-at", "https://192.0.2.7:7070"]);
    assert!(said.code == Some(2) && said.err.contains("--tls-cert"), "{:?} {}", said.code, said.err);
}
