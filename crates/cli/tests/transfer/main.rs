//! `gradus data push` and `pull` as processes: killed at random instants, and told what they do.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use domain::random::Draws;
use serde_json::Value;

struct Scene {
    folder: tempfile::TempDir,
}

impl Scene {
    fn new() -> Scene {
        Scene { folder: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, verb: &str, from: &Path, to: &Path) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradus"));
        command.args(["data", verb]).arg(from).arg(to).arg("--json").arg("--home").arg(self.path("home"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn carry(&self, verb: &str, from: &Path, to: &Path) -> Value {
        told(&self.command(verb, from, to).output().unwrap())
    }

    /// Changes some files and adds one.
    fn change(&self, draws: &mut Draws) {
        let folder = self.path("here");
        fs::create_dir_all(folder.join("inner")).unwrap();
        for _ in 0..8 {
            let length = 1 + draws.below(400_000) as usize;
            fs::write(folder.join(format!("inner/{}", draws.below(40))), draws.bytes(length)).unwrap();
        }
        fs::write(folder.join("text"), format!("{} words\n", draws.bits()).repeat(30_000)).unwrap();
    }
}

fn told(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

fn read(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let (mut found, mut waiting) = (BTreeMap::new(), vec![folder.to_owned()]);
    while let Some(next) = waiting.pop() {
        for entry in fs::read_dir(next).unwrap().map(Result::unwrap).filter(|entry| entry.file_name() != ".gradus") {
            match entry.file_type().unwrap().is_dir() {
                true => waiting.push(entry.path()),
                false => {
                    let name = entry.path().strip_prefix(folder).unwrap().display().to_string();
                    found.insert(name, fs::read(entry.path()).unwrap());
                }
            }
        }
    }
    found
}

/// Starts a command and kills it after a while; returns its output if it was faster, and how long it took.
fn kill(command: &mut Command, after: Duration) -> Option<Output> {
    let mut child = command.spawn().unwrap();
    let began = Instant::now();
    while began.elapsed() < after {
        if child.try_wait().unwrap().is_some() {
            return Some(child.wait_with_output().unwrap());
        }
        std::thread::sleep(Duration::from_micros(300));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    None
}

/// A hundred kills of pushes, and as many of pulls: whoever reads meanwhile sees one whole state or the other.
#[test]
fn a_hundred_kills_corrupt_nothing() {
    let seed = 4;
    eprintln!("seed {seed}");
    let (scene, mut draws) = (Scene::new(), Draws::new(seed));
    let (here, remote, there) = (scene.path("here"), scene.path("remote"), scene.path("there"));
    scene.change(&mut draws);
    let began = Instant::now();
    scene.carry("push", &here, &remote);
    scene.carry("pull", &remote, &there);
    // A guess of how long one takes only steers where the kills fall.
    let usual = began.elapsed() / 2;
    let (mut pushes, mut pulls) = (0, 0);
    let mut before = read(&here);
    while pushes < 100 || pulls < 100 {
        scene.change(&mut draws);
        let after = read(&here);
        loop {
            let instant = usual.mul_f64(draws.share());
            if pushes >= 100
                || kill(&mut scene.command("push", &here, &remote), instant).map(|output| told(&output)).is_some()
            {
                break;
            }
            pushes += 1;
            if pushes % 10 == 0 {
                // Into an empty folder: every byte that a reader sees came from there.
                let reader = scene.path(&format!("reader-{pushes}"));
                scene.carry("pull", &remote, &reader);
                let seen = read(&reader);
                assert!(seen == before || seen == after, "neither state is there after kill {pushes} of a push");
                fs::remove_dir_all(reader).unwrap();
            }
        }
        scene.carry("push", &here, &remote);
        loop {
            let instant = usual.mul_f64(draws.share());
            if pulls >= 100
                || kill(&mut scene.command("pull", &remote, &there), instant).map(|output| told(&output)).is_some()
            {
                break;
            }
            pulls += 1;
            for (name, bytes) in read(&there) {
                let is_known = before.get(&name) == Some(&bytes) || after.get(&name) == Some(&bytes);
                assert!(is_known, "`{name}` is corrupt after kill {pulls} of a pull");
            }
        }
        scene.carry("pull", &remote, &there);
        assert_eq!(read(&there), after);
        before = after;
    }
}

#[test]
fn a_dry_run_says_bytes_and_cost() {
    let scene = Scene::new();
    let mut draws = Draws::new(1);
    scene.change(&mut draws);
    let output = scene.command("push", &scene.path("here"), &scene.path("remote")).arg("--dry-run").output().unwrap();
    let said = told(&output);
    assert_eq!((&said["dry_run"], &said["cost_micro_usd"]), (&Value::Bool(true), &Value::from(0)));
    assert_eq!(said["new_bytes"], said["bytes"]);
    assert_eq!(fs::read_dir(scene.path("remote")).unwrap().count(), 0);
}

#[test]
fn wrong_words_are_told_with_a_hint() {
    let scene = Scene::new();
    let check = |arguments: &[&str], code: i32, expected: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradus"));
        command.arg("data").args(arguments).arg("--home").arg(scene.path("home"));
        for name in ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_PROFILE", "HOME"] {
            command.env_remove(name);
        }
        let output = command.env("AWS_ENDPOINT_URL", "http://127.0.0.1:9").env("NO_COLOR", "1").output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(code) && text.contains(expected), "{arguments:?}: {text}");
        assert!(text.contains("hint:"), "{arguments:?}: {text}");
    };
    let (here, gone) = (scene.path("here"), scene.path("gone"));
    fs::create_dir_all(&here).unwrap();
    fs::write(here.join("text"), "words").unwrap();
    let (here, gone) = (here.to_str().unwrap(), gone.to_str().unwrap());
    check(&["push", here, "ftp://host/x"], 2, "`ftp://` is not known");
    check(&["push", here, "s3://bucket/x"], 2, "no credentials are known for `s3://bucket/x`");
    check(&["push", gone, scene.path("remote").to_str().unwrap()], 2, "cannot open");
    assert!(!scene.path("remote").exists(), "a folder was made for nothing");
    check(&["push", here, scene.path("here/inner").to_str().unwrap()], 2, "each push would send what earlier ones");
    scene.carry("push", &scene.path("here"), &scene.path("remote"));
    check(&["sync", scene.path("remote").to_str().unwrap(), gone], 2, "`gradus data pull ");
    check(&["pull", "http://127.0.0.1:9/x", gone], 3, "cannot reach `127.0.0.1:9`");
    check(&["pull", "gs://bucket/x", here], 2, "GOOGLE_APPLICATION_CREDENTIALS");
    check(&["pull", scene.path("nothing").to_str().unwrap(), here], 2, "there is nothing at");
    check(&["sync", "s3://a/x", "s3://b/x"], 2, "source and target are both remote");
    check(&["pull", "https://user:secret@host/x", here], 2, "must not hold a password");
}
