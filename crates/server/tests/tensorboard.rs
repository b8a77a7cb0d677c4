//! TensorBoard's own reader, given our event files.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use domain::rank::{Evaluated, EvaluatedSplit, Fetching, Ready, Report, Step, TaskMetrics};
use domain::series::Point;
use domain::{AttemptId, Timestamp};
use server::tensorboard::EventFile;

/// Wall time in seconds, step, value.
type Scalars = BTreeMap<String, Vec<(f64, u64, f64)>>;

fn read(folder: &Path) -> Scalars {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../benches/peers/tensorboard_read.py");
    let output = Command::new("python3").arg(script).arg(folder).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn at(seconds: u64) -> Timestamp {
    Timestamp(1_700_000_000_000_000 + seconds as i64 * 1_000_000)
}

fn point(attempt: u64, seconds: u64, report: Report) -> Point {
    Point { at: at(seconds), attempt: AttemptId::new(format!("digits-1-a{attempt}")), report }
}

fn ready(step: u64) -> Report {
    let (classes, passed_over) = (Vec::new(), Vec::new());
    Report::Ready(Ready {
        step,
        steps: 6,
        steps_per_epoch: 3,
        samples: [9, 3, 3],
        classes,
        parameters: 1,
        passed_over,
        sample: None,
        data: None,
    })
}

fn step(step: u64, loss: f64) -> Report {
    let (step_us, data_wait_us, checkpoint_us) = (20_000, 5_000, 0);
    Report::Step(Step {
        step,
        epoch: 0,
        loss,
        lr: 0.25,
        samples: 64,
        step_us,
        data_wait_us,
        checkpoint_us,
        data: Fetching::default(),
    })
}

fn evaluated(step: u64, split: EvaluatedSplit, accuracy: f64) -> Report {
    Report::Evaluated(Evaluated {
        step,
        epoch: 0,
        split,
        loss: 0.5,
        accuracy,
        best: true,
        figures: TaskMetrics::default(),
    })
}

/// Six steps in two attempts, of which steps 3 and 4 are made twice.
fn points() -> Vec<Point> {
    let first = [ready(0), step(1, 4.0), step(2, 3.0), step(3, 99.0), step(4, 99.0)];
    let second = [ready(2), step(3, 2.0), evaluated(3, EvaluatedSplit::Validation, 0.5), step(4, 1.0), step(5, 0.5)];
    let last =
        [step(6, 0.25), evaluated(6, EvaluatedSplit::Validation, 0.75), evaluated(6, EvaluatedSplit::Test, 0.625)];
    let attempts =
        first.into_iter().map(|report| (1, report)).chain(second.into_iter().chain(last).map(|report| (2, report)));
    attempts.enumerate().map(|(second, (attempt, report))| point(attempt, second as u64, report)).collect()
}

fn check(scalars: &Scalars) {
    let values =
        |tag: &str| -> Vec<(u64, f64)> { scalars[tag].iter().map(|(_, step, value)| (*step, *value)).collect() };
    assert_eq!(values("train/loss"), [(1, 4.0), (2, 3.0), (3, 2.0), (4, 1.0), (5, 0.5), (6, 0.25)]);
    assert_eq!(values("train/lr"), [1, 2, 3, 4, 5, 6].map(|step| (step, 0.25)));
    assert_eq!(values("train/samples_per_second"), [1, 2, 3, 4, 5, 6].map(|step| (step, 3200.0)));
    assert_eq!(values("train/data_wait").len(), 6);
    assert_eq!(values("validation/loss"), [(3, 0.5), (6, 0.5)]);
    assert_eq!(values("validation/accuracy"), [(3, 0.5), (6, 0.75)]);
    assert_eq!(values("test/accuracy"), [(6, 0.625)]);
    assert_eq!(scalars["train/loss"][0].0, 1_700_000_001.0);
    assert_eq!(scalars["train/loss"][2].0, 1_700_000_006.0, "step 3 is the later attempt's");
}

#[test]
#[ignore = "needs the `tensorboard` package for Python, which `cargo xtask test` provides"]
fn tensorboard_reads_a_finished_run() {
    let folder = tempfile::tempdir().unwrap();
    EventFile::create(folder.path(), &points()).unwrap();
    check(&read(folder.path()));
}

#[test]
#[ignore = "needs the `tensorboard` package for Python, which `cargo xtask test` provides"]
fn tensorboard_forgets_steps_that_are_made_again_while_it_watches() {
    let folder = tempfile::tempdir().unwrap();
    let points = points();
    let mut file = EventFile::create(folder.path(), &points[..3]).unwrap();
    for point in &points[3..] {
        file.append(std::slice::from_ref(point)).unwrap();
    }
    check(&read(folder.path()));
}
