//! Pushes to a bucket and pulls from it that are killed at random instants, with every byte between counted.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use domain::random::Draws;

use crate::s3::Moto;

/// What one process may have under way when it is killed: eight streams with a part of 8 MiB each.
const UNDER_WAY: u64 = 8 * (8 << 20);

/// A relay to a port, and the bytes that went there and that came back.
struct Relay {
    port: u16,
    there: Arc<AtomicU64>,
    back: Arc<AtomicU64>,
}

impl Relay {
    fn to(port: u16) -> Relay {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let own = listener.local_addr().unwrap().port();
        let relay = Relay { port: own, there: Arc::default(), back: Arc::default() };
        let (there, back) = (Arc::clone(&relay.there), Arc::clone(&relay.back));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)) else { continue };
                for (from, to, count) in [(&client, &server, &there), (&server, &client, &back)] {
                    let (mut from, mut to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    let count = Arc::clone(count);
                    std::thread::spawn(move || {
                        let mut buffer = [0; 64 << 10];
                        while let Ok(read @ 1..) = from.read(&mut buffer) {
                            count.fetch_add(read as u64, Ordering::Relaxed);
                            if to.write_all(&buffer[..read]).is_err() {
                                break;
                            }
                        }
                        let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
                    });
                }
            }
        });
        relay
    }

    /// Bytes there and back so far.
    fn carried(&self) -> [u64; 2] {
        [&self.there, &self.back].map(|count| count.load(Ordering::Relaxed))
    }
}

struct Scene {
    folder: tempfile::TempDir,
    relay: Relay,
    draws: Draws,
}

/// What a command that was killed until it ended has cost.
struct Cost {
    kills: u64,
    /// Bytes in the direction of the transfer.
    carried: u64,
}

impl Cost {
    /// Each kill may send again what was under way, and no more; `once` is what an undisturbed command carries.
    fn check(&self, form: &str, once: u64) {
        let Cost { kills, carried } = *self;
        assert!(carried <= once + kills * UNDER_WAY + (1 << 20), "{form}: {carried} bytes, {kills} kills");
    }
}

impl Scene {
    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, home: &str, verb: &str, from: &str, to: &str, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gradus"));
        command.args(["data", verb, from, to]).args(more).arg("--home").arg(self.path(home));
        command.env("AWS_ENDPOINT_URL", format!("http://127.0.0.1:{}", self.relay.port));
        command.env("AWS_ACCESS_KEY_ID", "key").env("AWS_SECRET_ACCESS_KEY", "hush-hush");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        command
    }

    /// Runs a command to its end, and says how long it took and what went in `direction`.
    fn whole(&self, command: &mut Command, direction: usize) -> (Duration, u64) {
        let (began, before) = (Instant::now(), self.relay.carried()[direction]);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (began.elapsed(), self.relay.carried()[direction] - before)
    }

    /// Kills a command at random instants, at most so often, until it is faster.
    fn killed(&mut self, most: u64, usual: Duration, direction: usize, command: &dyn Fn(&Scene) -> Command) -> Cost {
        let before = self.relay.carried()[direction];
        let mut kills = 0;
        while kills < most {
            let instant = usual.mul_f64(self.draws.share());
            let mut child = command(self).spawn().unwrap();
            let began = Instant::now();
            while began.elapsed() < instant && child.try_wait().unwrap().is_none() {
                std::thread::sleep(Duration::from_micros(300));
            }
            if child.try_wait().unwrap().is_some() {
                let output = child.wait_with_output().unwrap();
                assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
                break;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            kills += 1;
        }
        self.whole(&mut command(self), direction);
        Cost { kills, carried: self.relay.carried()[direction] - before }
    }
}

fn read(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .filter(|path| path.is_file())
        .map(|path| (path.strip_prefix(folder).unwrap().into(), fs::read(&path).unwrap()))
        .collect()
}

/// `GRADUS_KILLS` says how many of each verb and form; few without it.
#[test]
#[ignore = "needs moto: `cargo xtask test` provides it"]
fn what_is_killed_sends_little_twice() {
    #[expect(clippy::disallowed_methods, reason = "a test has no arguments, and more kills take minutes")]
    let goal: u64 = std::env::var("GRADUS_KILLS").map_or(3, |text| text.parse().unwrap());
    let moto = Moto::start();
    let mut scene = Scene { folder: tempfile::tempdir().unwrap(), relay: Relay::to(moto.port), draws: Draws::new(6) };
    let here = scene.path("here");
    fs::create_dir(&here).unwrap();
    let mut draws = Draws::new(7);
    for number in 0..4 {
        fs::write(here.join(format!("large-{number}")), draws.bytes(12 << 20)).unwrap();
    }
    for number in 0..60 {
        let bytes = 1 + draws.below(60_000) as usize;
        fs::write(here.join(format!("small-{number}")), draws.bytes(bytes)).unwrap();
    }
    let (sent, here) = (read(&here), here.display().to_string());
    for (form, more) in [("chunks", &[][..]), ("plain", &["--plain"][..])] {
        let once = format!("s3://bucket/{form}-once");
        let (usual_push, up) = scene.whole(&mut scene.command("once", "push", &here, &once, more), 0);
        let there = scene.path("once-there").display().to_string();
        let (usual_pull, down) = scene.whole(&mut scene.command("once", "pull", &once, &there, &[]), 1);
        let (mut pushes, mut pulls, mut rounds) = ((0, 0), (0, 0), 0);
        while pushes.0 < goal || pulls.0 < goal {
            rounds += 1;
            let (home, uri) = (format!("home-{form}-{rounds}"), format!("s3://bucket/{form}-{rounds}"));
            let push = |scene: &Scene| scene.command(&home, "push", &here, &uri, more);
            let cost = scene.killed(goal - pushes.0.min(goal), usual_push, 0, &push);
            cost.check(form, up);
            pushes = (pushes.0 + cost.kills, pushes.1 + cost.carried.saturating_sub(up));
            let there = scene.path(&format!("there-{form}-{rounds}"));
            let name = there.display().to_string();
            let pull = |scene: &Scene| scene.command(&home, "pull", &uri, &name, &[]);
            let cost = scene.killed(goal - pulls.0.min(goal), usual_pull, 1, &pull);
            cost.check(form, down);
            pulls = (pulls.0 + cost.kills, pulls.1 + cost.carried.saturating_sub(down));
            assert!(read(&there) == sent, "{form}: what arrived is not what was sent");
            fs::remove_dir_all(&there).unwrap();
        }
        fs::remove_dir_all(scene.path("once-there")).unwrap();
        eprintln!(
            "{form}: {} kills of pushes carried {:.1} MB twice, of {:.1} MB once; {} kills of pulls {:.1} MB of {:.1} MB; {rounds} rounds",
            pushes.0,
            pushes.1 as f64 / 1e6,
            up as f64 / 1e6,
            pulls.0,
            pulls.1 as f64 / 1e6,
            down as f64 / 1e6,
        );
    }
}
