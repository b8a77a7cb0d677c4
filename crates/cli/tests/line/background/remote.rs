//! The command line as the client of a server, which has a home of its own.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::home::{Home, Said, counting, text};

/// A server on loopback, killed when the test ends.
pub struct Served {
    child: Child,
    pub url: String,
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Served {
    /// Serves a home; the address is the one that it prints.
    pub fn start(home: &Home, arguments: &[&str]) -> Served {
        Served::start_at("127.0.0.1:0", home, arguments)
    }

    /// The same at an address of this machine.
    pub fn start_at(address: &str, home: &Home, arguments: &[&str]) -> Served {
        let all = [&["serve", "--json", "--listen", address], arguments].concat();
        let mut child = home.command(&all).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut addresses = lines.map_while(Result::ok).filter_map(|line| {
            let value: Value = serde_json::from_str(&line).unwrap();
            value["address"].as_str().filter(|address| address.starts_with("http")).map(str::to_owned)
        });
        let url = addresses.next().expect("the server prints its address");
        Served { child, url }
    }
}

/// The token of a home, as its owner can read it.
pub fn token_file(home: &Home) -> String {
    text(&home.path().join("api.token")).to_owned()
}

/// A server's home, the server, and the home of a client that is logged in to it.
pub fn logged_in() -> (Home, Served, Home) {
    let (there, here) = (Home::new(), Home::new());
    let served = Served::start(&there, &[]);
    let said = here.gradus(&["login", &served.url, "--token-file", &token_file(&there)]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.out.contains(&format!("server   {} (gradus ", served.url)), "{}", said.out);
    (there, served, here)
}

pub fn succeeded(said: Said) -> String {
    assert_eq!(said.code, Some(0), "{}{}", said.out, said.err);
    said.out
}

#[test]
fn commands_show_the_same_of_a_server_as_of_its_home() {
    let (there, _served, here) = logged_in();
    let job = there.job("p.yaml", "name: p\nenvs: {COLOUR: red}\nrun: |\n  echo hello\n  printf rest\n");
    let said = here.gradus(&["run", text(&job), "--yes"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.err.contains("rank 0 | hello") && said.err.contains("rank 0 | rest"), "{}", said.err);
    assert!(said.out.contains(": succeeded\n") && said.out.contains("bill     $0.00 for"), "{}", said.out);
    let last = here.gradus(&["run", text(&job), "--yes", "--json"]).last();
    assert_eq!((&last["event"], &last["outcome"]), (&"done".into(), &"succeeded".into()), "{last}");
    assert!(here.path().join("runs").read_dir().unwrap().next().is_none(), "nothing runs here");
    let commands: [&[&str]; 14] = [
        &["status"],
        &["status", "--json"],
        &["status", "last"],
        &["status", "last", "--json"],
        &["logs", "last"],
        &["logs", "last", "--follow"],
        &["logs", "last", "--json"],
        &["events"],
        &["events", "last"],
        &["events", "last", "--json"],
        &["cost"],
        &["cost", "last", "--json"],
        &["wait", "last"],
        &["stop", "last"],
    ];
    for command in commands {
        let (mine, its) = (here.gradus(command), there.gradus(command));
        assert_eq!((mine.code, &mine.out), (its.code, &its.out), "{command:?} {} {}", mine.err, its.err);
        assert_eq!(mine.code, Some(0), "{command:?} {}", mine.err);
    }
    // What fails, fails alike.
    let commands: [(&[&str], i32); 6] = [
        (&["status", "nobody"], 102),
        (&["logs", "no/body"], 102),
        (&["status", "p-"], 2),
        (&["attach", "last"], 2),
        (&["resume", "last", "--budget", "$5"], 2),
        (&["stop", "nobody"], 102),
    ];
    for (command, code) in commands {
        let (mine, its) = (here.gradus(command), there.gradus(command));
        assert_eq!((mine.code, &mine.err), (its.code, &its.err), "{command:?}");
        assert_eq!(mine.code, Some(code), "{command:?} {}", mine.err);
    }
    let said = here.gradus(&["report", "last"]);
    assert!(said.code == Some(2) && said.err.contains("`--server local` uses the home of this one"), "{}", said.err);
    assert_eq!(succeeded(here.gradus(&["status", "--server", "local"])), "");
    succeeded(here.gradus(&["logout"]));
    assert_eq!(succeeded(here.gradus(&["status"])), "");
}

#[test]
fn a_run_of_a_server_is_stopped_and_resumed_from_elsewhere() {
    let (there, _served, here) = logged_in();
    let job = there.job("count.yaml", &counting(40));
    let out = succeeded(here.gradus(&["run", text(&job), "--yes", "--detach"]));
    assert!(out.contains("continues in the background"), "{out}");
    there.until("it counts", || there.counted() > 2);
    let follower = here.start(&["logs", "last", "--follow"]);
    let out = succeeded(here.gradus(&["stop", "last"]));
    assert!(out.contains(": stopped\n") && out.contains("resume   gradus resume count-"), "{out}");
    let followed = crate::home::said(follower.wait_with_output().unwrap());
    assert_eq!(followed.out, "attempt starts at 0\n", "{}", followed.err);
    let stopped = there.counted();
    let said = here.gradus(&["resume", "last"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(said.err.contains("resuming") && said.err.contains("counted to 40"), "{}", said.err);
    let out = succeeded(here.gradus(&["logs", "last"]));
    assert!(out.contains(&format!("attempt starts at {stopped}\n")), "{out}");
    let word = here.gradus(&["status", "last", "--json"]).last()["word"].clone();
    assert_eq!(word, "succeeded");
}

#[test]
fn models_and_checkpoints_of_a_server_are_brought_here() {
    let (there, _served, here) = logged_in();
    let digits = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits.csv.gz").canonicalize().unwrap();
    let job = format!(
        "name: small\ntrain:\n  model: mlp\n  data: {{path: {}}}\n  epochs: 2\n  batch: 96\n  threads: 1\n  \
         checkpoint: {{every: 10 steps}}\n",
        digits.display()
    );
    let done = here.gradus(&["run", text(&there.job("small.yaml", &job)), "--yes", "--json"]).last();
    let (to, other) = (here.path().join("copy"), here.path().join("other"));
    let export =
        |to: &Path, more: &[&str]| here.gradus(&[&["models", "export", "last", "--to", text(to)], more].concat());
    let said = export(&to, &["--json"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(said.last()["model_sha256"], done["model_sha256"]);
    let model = done["model"].as_str().unwrap();
    assert_eq!(fs::read(to.join("model.safetensors")).unwrap(), fs::read(model).unwrap());
    assert!(to.join("model.json").is_file());
    let (mine, its) = (here.gradus(&["checkpoints", "list", "last"]), there.gradus(&["checkpoints", "list", "last"]));
    assert_eq!((mine.code, &mine.out), (its.code, &its.out), "{}", mine.err);
    let pulled = |home: &Home, folder: &Path| {
        let said = home.gradus(&["checkpoints", "pull", "last", "--output", text(folder), "--json"]);
        assert_eq!(said.code, Some(0), "{}", said.err);
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        (said.last()["bytes"].clone(), names.collect::<std::collections::BTreeSet<_>>())
    };
    assert_eq!(pulled(&here, &here.path().join("pulled")), pulled(&there, &there.path().join("pulled")));
    // What needs its home is refused, and so is another file than the one that was trained.
    let said = export(&other, &["--onnx"]);
    assert!(said.code == Some(2) && said.err.contains("another format"), "{}", said.err);
    fs::write(model, b"changed").unwrap();
    let said = export(&other, &[]);
    assert!(said.code == Some(3) && said.err.contains("SHA-256"), "{}", said.err);
    assert_eq!(fs::read_dir(&other).unwrap().count(), 0, "nothing of it is left");
}

#[test]
fn a_token_with_a_name_enters_until_it_expires_or_is_removed() {
    let (there, here) = (Home::new(), Home::new());
    let served = Served::start(&there, &[]);
    let status = |token: &str| {
        let mut command = here.command(&["status", "--server", &served.url]);
        crate::home::said(command.env("GRADUS_TOKEN", token).output().unwrap())
    };
    let token = succeeded(there.gradus(&["token", "create", "ann@laptop", "--expires", "30d"]));
    let bare = there.gradus(&["token", "create", "zoe", "--expires", "30"]);
    assert!(bare.code == Some(2) && bare.err.contains("`30` has no unit; write for example `30d`"), "{}", bare.err);
    let other = succeeded(there.gradus(&["token", "create", "ben"]));
    assert_eq!(status(token.trim()).code, Some(0));
    let mut same = there.command(&["token", "create", "carl"]);
    let same = crate::home::said(same.env("USER", "carl").output().unwrap());
    assert!(same.code == Some(0) && same.err.contains("counts as that of `carl`"), "{}", same.err);
    assert!(same.out.trim().starts_with("gradus_") && same.out.lines().count() == 1, "{}", same.out);
    let again = there.gradus(&["token", "create", "ben"]);
    assert!(again.code == Some(2) && again.err.contains("gradus token rm ben"), "{}", again.err);
    let listed = succeeded(there.gradus(&["token", "list"]));
    assert!(listed.contains("ann@laptop") && listed.contains("never"), "{listed}");
    // Its time has come.
    let path = there.path().join("tokens.json");
    let mut known: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    known[0]["expires"] = 1_000_000.into();
    fs::write(&path, known.to_string()).unwrap();
    let said = status(token.trim());
    assert!(
        said.code == Some(3) && said.err.contains("`ann@laptop` has expired at 1970-01-01T00:00:01Z"),
        "{}",
        said.err
    );
    assert!(succeeded(there.gradus(&["token", "list"])).contains("1970-01-01T00:00:01Z (expired)"));
    assert_eq!(status(other.trim()).code, Some(0));
    succeeded(there.gradus(&["token", "rm", "ben"]));
    let said = status(other.trim());
    assert!(said.code == Some(3) && said.err.contains("is not known here, or was removed"), "{}", said.err);
    let said = there.gradus(&["token", "rm", "ben"]);
    assert!(said.code == Some(2) && said.err.contains("no token is called `ben`"), "{}", said.err);
}

#[test]
fn a_server_with_tls_is_entered_by_whoever_trusts_its_certificate() {
    let (there, here) = (Home::new(), Home::new());
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/line/background/tls");
    let (certificate, key) = (folder.join("certificate.pem"), folder.join("key.pem"));
    let served = Served::start(&there, &["--tls-cert", text(&certificate), "--tls-key", text(&key)]);
    let (token, url) = (token_file(&there), served.url.as_str());
    assert!(url.starts_with("https://"), "{url}");
    let check = |arguments: &[&str], part: &str| {
        let said = here.gradus(&[&["login", "--token-file", &token], arguments].concat());
        assert!(said.code == Some(3) && said.err.contains(part), "{arguments:?}: {:?} {}", said.code, said.err);
    };
    check(&[url], "--ca FILE");
    check(&[&url.replace("https:", "http:")], "`https://`");
    succeeded(here.gradus(&["login", url, "--ca", text(&certificate), "--token-file", &token]));
    let job = there.job("p.yaml", "name: p\nrun: echo hello\n");
    succeeded(here.gradus(&["run", text(&job), "--yes"]));
    assert_eq!(succeeded(here.gradus(&["logs", "last", "--follow"])), "hello\n");
    let said = there.gradus(&["serve", "--listen", "127.0.0.1:0", "--tls-cert", &token, "--tls-key", text(&key)]);
    assert!(said.err.contains("there is none in the format PEM"), "{}", said.err);
    let said = there.gradus(&["serve", "--listen", "127.0.0.1:0", "--tls-cert", text(&certificate)]);
    assert!(said.code == Some(2) && said.err.contains("--tls-key"), "{}", said.err);
}

#[test]
fn a_login_that_cannot_work_says_what_to_type() {
    let (there, here) = (Home::new(), Home::new());
    let served = Served::start(&there, &[]);
    let (token, url) = (token_file(&there), served.url.as_str());
    let wrong = here.job("wrong.token", "0123456789abcdef\n");
    let check = |arguments: &[&str], code: i32, part: &str| {
        let said = here.gradus(&[&["login"], arguments].concat());
        assert!(said.code == Some(code) && said.err.contains(part), "{arguments:?}: {:?} {}", said.code, said.err);
    };
    check(&["127.0.0.1:7070", "--token-file", &token], 2, "write `http://127.0.0.1:7070`");
    check(&["http://127.0.0.1:1", "--token-file", &token], 3, "nothing listens there");
    check(&["http://192.0.2.1:1", "--token-file", &token], 2, "use `https://`");
    check(&[&url.replace("http:", "https:"), "--token-file", &token], 3, "begin the address with `http://`");
    check(&[url, "--token-file", text(&wrong)], 3, "gradus login http://127.0.0.1");
    check(&[url, "--token-file", "none"], 2, "none");
    check(&[url], 2, "no token was given");
    check(&[url, "--ca", text(&wrong), "--token-file", &token], 2, "no certificate");
    // Nothing was stored.
    assert_eq!(succeeded(here.gradus(&["status"])), "");
    let said = here.command(&["status", "--server", url]).env("GRADUS_TOKEN", "no").output().unwrap();
    let said = crate::home::said(said);
    assert!(said.code == Some(3) && said.err.contains("refuses"), "{}", said.err);
    let secret = fs::read_to_string(&token).unwrap();
    let said = here.command(&["login", url]).env("GRADUS_TOKEN", secret.trim()).output().unwrap();
    succeeded(crate::home::said(said));
    let stored = here.path().join("login.json");
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(fs::metadata(&stored).unwrap().permissions().mode() & 0o777, 0o600);
    // A server that has gone.
    drop(served);
    let said = here.gradus(&["status"]);
    assert!(said.code == Some(3) && said.err.contains("nothing listens there"), "{}", said.err);
}
