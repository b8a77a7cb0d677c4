//! How long it takes until a run makes steps: on a machine that nobody has used, again on the same one, and on another
//! one after its own is lost. The table is printed with what is aimed at, for a machine that does nothing else: here other
//! tests run meanwhile, so no time is asserted.

use std::io::Write;
use std::time::Instant;

use serde_json::Value;

use super::{Scene, expected};

/// This one begins without anything of gradus; the other is there to take over.
const HOST: u32 = 13;
const OTHER: u32 = 14;

/// A row: what, its seconds, and the seconds that are aimed at.
type Row = (String, f64, Option<f64>);

/// The newest run's times, in seconds.
struct Times {
    log: Vec<Value>,
    first_steps: Vec<f64>,
}

impl Times {
    fn of(scene: &Scene) -> Times {
        let text = scene.ok(&["events", &scene.name(), "--json"]);
        let log: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let db = rusqlite::Connection::open(scene.path("home/series.db")).unwrap();
        let query = "SELECT MIN(at) FROM points WHERE run = ?1 AND report LIKE '%\"report\":\"step\"%' \
                     GROUP BY attempt ORDER BY MIN(at)";
        let mut statement = db.prepare(query).unwrap();
        let rows = statement.query_map([scene.name()], |row| row.get::<_, i64>(0)).unwrap();
        let first_steps = rows.map(|at| at.unwrap() as f64 / 1e6).collect();
        Times { log, first_steps }
    }

    /// When events of this kind were written.
    fn all(&self, kind: &str) -> Vec<f64> {
        let of_kind = self.log.iter().filter(|record| record["event"] == kind);
        of_kind.map(|record| record["at"].as_i64().expect("a time") as f64 / 1e6).collect()
    }

    fn first(&self, kind: &str) -> f64 {
        *self.all(kind).first().unwrap_or_else(|| panic!("no `{kind}` in {:?}", self.log))
    }

    /// The rows of a run that had one attempt.
    fn rows(&self, name: &str, aim: Option<f64>) -> Vec<Row> {
        let [submitted, up, intended, ready] =
            ["submitted", "agent_up", "attempt_intended", "attempt_ready"].map(|kind| self.first(kind));
        let step = self.first_steps[0];
        let part = |what: &str, seconds: f64| (format!("  {what}"), seconds, None);
        vec![
            (format!("{name}: submit to first step"), step - submitted, aim),
            part("until the agent is up", up - submitted),
            part("until the attempt is sent", intended - up),
            part("until files, data and model are ready", ready - intended),
            part("until the first step is reported", step - ready),
        ]
    }
}

/// Prints the table past the test harness, which shows output of failed tests only.
fn print(rows: &[Row]) {
    let mut text = format!("{:<48}{:>10}{:>10}\n", "times on hosts of the lab", "seconds", "aim");
    for (what, seconds, aim) in rows {
        let aim = aim.map_or(String::new(), |aim| format!("≤ {aim:.0}"));
        text += &format!("{what:<48}{seconds:>10.2}{aim:>10}\n");
    }
    std::io::stderr().lock().write_all(text.as_bytes()).unwrap();
}

#[test]
#[ignore = "needs hosts: `cargo xtask test` provides them"]
fn a_first_a_second_and_a_resumed_run_are_timed() {
    let scene = Scene::with(&[]);
    let [host, other] = [HOST, OTHER].map(|number| number.to_string());
    for number in [&host, &other] {
        scene.lab(&["start", number]);
        scene.lab(&["exec", number, "rm", "-rf", "/root/.gradus"]);
    }
    // Without libtorch, it is bare.
    scene.lab(&["exec", &host, "umount", "/root/.cache/gradus"]);
    let config = scene.lab.join("ssh_config");
    let config = config.to_str().unwrap();
    let begun = Instant::now();
    scene.ok(&["nodes", "add", &format!("host-{host}"), "--ssh-config", config]);
    let added = begun.elapsed().as_secs_f64();
    scene.ok(&["nodes", "add", &format!("host-{other}"), "--ssh-config", config]);

    let here = scene.job(&format!("ssh/host-{host}"), 4);
    scene.ok(&["run", &here, "--json", "--yes", "--new"]);
    let first = Times::of(&scene);
    let to_step = first.first_steps[0] - first.first("submitted");
    let mut rows: Vec<Row> = vec![
        ("bare host to first step".to_owned(), added + to_step, None),
        ("  programs and libtorch are copied, it is measured".to_owned(), added, None),
    ];
    rows.extend(first.rows("first run", None));
    scene.ok(&["run", &here, "--json", "--yes", "--new"]);
    rows.extend(Times::of(&scene).rows("second run", Some(5.0)));

    let epochs = 1_800;
    let mut run = scene.start(&scene.job("ssh", epochs));
    let before = scene.manifests();
    scene.wait("checkpoints have come here", 120, || scene.manifests() >= before + 2);
    let place = scene.path("home/instances").join(format!("{}-i1", scene.name())).join("host");
    let place = std::fs::read_to_string(place).unwrap();
    let lost = place.trim().strip_prefix("host-").unwrap().to_owned();
    scene.lab(&["kill", &lost]);
    let is_trained = || scene.events().contains("trained its model");
    scene.wait("it is trained on the other", 180, is_trained);
    scene.lab(&["start", &lost]);
    scene.wait("the run has ended", 90, || run.try_wait().unwrap().is_some());
    let resumed = Times::of(&scene);
    let decided = resumed.first("attempt_ended");
    let [_, step] = resumed.first_steps[..] else { panic!("two attempts: {:?}", resumed.first_steps) };
    rows.push(("resumed on another host: loss decided to step".to_owned(), step - decided, Some(60.0)));
    print(&rows);

    assert_eq!(scene.weights(), expected(epochs));
}
