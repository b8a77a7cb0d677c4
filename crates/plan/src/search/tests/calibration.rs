//! Rows that cannot calibrate a plan: each is rejected for what is wrong with it, with what to change.

use domain::Job;

use super::*;
use crate::estimate::FittedCoefficients;
use crate::measured::MeasuredRow;

const JOB: &str = "run: python train.py\ndata: {samples: 1000000, bytes: 1 GB}\n\
    workload: {model: {config: {model_type: resnet}}, image: 224, batch: 64, steps: 10}\n";

/// A row that is understood, but for what `change` does to it.
#[track_caller]
fn check(change: impl Fn(MeasuredRow) -> MeasuredRow, why: &str, hint: &str) {
    let row = MeasuredRow {
        source: "mine".to_owned(),
        gpu: "G0".to_owned(),
        gpus: Some(2),
        batch: Some(32.0),
        throughput: Some(200.0),
        ..MeasuredRow::default()
    };
    let job = Job::parse(JOB, "job.yaml").unwrap_or_else(|problems| panic!("{problems:?}")).job;
    let workload = resolve(&job, None).expect("resolved");
    let coefficients = FittedCoefficients::embedded().expect("figures");
    let known = gpu(0);
    let rows = [change(row)];
    let found =
        CalibrationData::of(&rows, &workload, None, |name, _| (name == known.name).then_some(&known), &coefficients);
    match found {
        Ok(_) => assert_eq!(why, "usable"),
        Err(rejected) => {
            assert_eq!((rejected.row, &*rejected.why), (0, why));
            assert!(rejected.hint.contains(hint), "{}", rejected.hint);
        }
    }
}

#[test]
fn a_row_is_rejected_for_what_is_wrong_with_it() {
    check(|row| row, "usable", "");
    let named = |gpu: &str| gpu.to_owned();
    check(|row| MeasuredRow { gpu: named("G9"), ..row }, "no GPU `G9` is known", "`gradus catalog gpus`");
    check(|row| MeasuredRow { batch: None, ..row }, "it states no `batch_per_gpu`", "add it");
    check(|row| MeasuredRow { unit: named("epochs/h"), ..row }, "its unit `epochs/h` is not known", "`samples/s`");
    let tokens = "it counts tokens, and the job states no `sequence`";
    check(|row| MeasuredRow { unit: named("tokens/s"), ..row }, tokens, "write `sequence: …`");
    // Neither is a matter of the number format.
    let unknown = "`ring4` in the column `parallelism` is not known";
    check(|row| MeasuredRow { parallelism: named("ring4"), ..row }, unknown, "`TP2 PP4`");
    let divided = "its degrees multiply to 4, which does not divide `n_gpus` (2)";
    check(|row| MeasuredRow { parallelism: named("TP4"), ..row }, divided, "`n_gpus` counts");
    check(|row| MeasuredRow { precision: named("bf16"), ..row }, "G0 has no `bf16`", "correct `precision`");
}
