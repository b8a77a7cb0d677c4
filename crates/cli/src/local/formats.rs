//! Number formats that this machine cannot compute in, refused before a run is submitted.

use std::path::Path;

use domain::problem::Problem;
use domain::train::Precision;
use domain::{Job, Work};

/// Whether there is an NVIDIA GPU: its driver makes a device file for each, `nvidia0`, `nvidia1`, ….
pub fn has_gpu(devices: &Path) -> bool {
    let names = std::fs::read_dir(devices).into_iter().flatten().flatten().map(|entry| entry.file_name());
    names.into_iter().any(|name| {
        let number = name.to_str().and_then(|name| name.strip_prefix("nvidia"));
        number.is_some_and(|number| number.starts_with(|digit: char| digit.is_ascii_digit()))
    })
}

/// The problem of a job whose precision only a GPU has.
pub fn lacking(job: &Job, has_gpu: bool) -> Option<Problem> {
    let Work::Train(train) = &job.work else { return None };
    if has_gpu || train.precision != Precision::Tf32 {
        return None;
    }
    let message = "`tf32` is a format of NVIDIA GPUs since A100, and this machine has none";
    Some(Problem::at("train.precision", message).hint("write `precision: auto`, or `fp32`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tf32_needs_a_gpu() {
        let job = |precision: &str| {
            let text = format!("train: {{model: cnn, data: {{path: d}}, epochs: 1, batch: 8, precision: {precision}}}");
            Job::parse(&text, "job.yaml").unwrap().job
        };
        assert_eq!(lacking(&job("tf32"), false).unwrap().key, "train.precision");
        assert_eq!((lacking(&job("tf32"), true), lacking(&job("bf16"), false)), (None, None));
        let devices = tempfile::tempdir().unwrap();
        std::fs::write(devices.path().join("nvidiactl"), "").unwrap();
        assert!(!has_gpu(devices.path()));
        std::fs::write(devices.path().join("nvidia0"), "").unwrap();
        assert!(has_gpu(devices.path()));
    }
}
