//! The achieved FLOP/s of a run, and its share of the device's peak.

use cloud::catalog::gpus::GpuTable;
use domain::rank::{Environment, Ready, Step};
use domain::series::Point;
use domain::train::Train;
use domain::{Record, RunId, Timestamp, Work};
use plan::model::ours;
use plan::utilisation::{flops_per_sample, peak};

use super::view::View;

/// The achieved arithmetic throughput, including everything that a step waits for.
#[derive(Debug, Clone, PartialEq)]
pub struct Arithmetic {
    /// Operations of the network itself, forwards and backwards, in FLOP/s over all ranks.
    pub flops: f64,
    /// Utilization of the stated peak, and the device; `None` if no peak is known, as for CPUs.
    pub utilisation: Option<(f64, String)>,
}

/// For a run; `None` if its network's operations are not counted, or nothing was measured.
pub fn arithmetic(run: &RunId, records: &[Record], points: &[Point]) -> Option<Arithmetic> {
    View::of(run, records, points, &[])?.arithmetic()
}

impl View {
    /// For the run of the report; `None` if its network's operations are not counted, or nothing was measured.
    pub fn arithmetic(&self) -> Option<Arithmetic> {
        let Work::Train(train) = &self.submitted.job.work else { return None };
        let (ready, environment) = (self.ready.as_ref()?, self.environment.as_ref()?);
        of(train, ready, environment, &self.curves.steps, &GpuTable::embedded().ok()?)
    }
}

fn of(
    train: &Train,
    ready: &Ready,
    environment: &Environment,
    steps: &[(Timestamp, Step)],
    gpus: &GpuTable,
) -> Option<Arithmetic> {
    let graph = ours::graph(train.model.architecture()?, ready.sample?, ready.classes.len() as u64)?;
    // The first step includes one-time initialization.
    let measured = steps.get(1..).filter(|steps| !steps.is_empty())?;
    let samples: f64 = measured.iter().map(|(_, step)| f64::from(step.samples)).sum();
    let seconds = measured.iter().map(|(_, step)| step.step_us).sum::<u64>() as f64 / 1e6;
    let flops = flops_per_sample(&graph) * samples / seconds.max(1e-6);
    let gpu = gpus.meant(&environment.device_name, None).filter(|_| environment.device.starts_with("cuda"));
    let utilisation = gpu.and_then(|gpu| {
        let all = peak(gpu, &environment.precision)? * f64::from(train.processes.max(1));
        Some((flops / all, gpu.name.clone()))
    });
    Some(Arithmetic { flops, utilisation })
}

impl Arithmetic {
    /// The rate, for people.
    pub fn rate(&self) -> String {
        match self.flops {
            flops if flops >= 1e12 => format!("{:.1} TFLOP/s", flops / 1e12),
            flops => format!("{:.1} GFLOP/s", flops / 1e9),
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::rank::Sample;
    use serde_json::json;

    use super::*;

    fn check(device: &str, name: &str, precision: &str, processes: u32, expected: (f64, Option<(f64, &str)>)) {
        let train = json!({
            "model": "resnet50", "data": {"path": "d"}, "epochs": 1, "batch": 64, "processes": processes,
        });
        let ready = json!({
            "step": 0, "steps": 9, "steps_per_epoch": 9, "samples": [576, 0, 0], "parameters": 1, "passed_over": [],
            "classes": vec!["c"; 1000], "sample": {"picture": {"channels": 3, "height": 224, "width": 224}},
        });
        let ready: Ready = serde_json::from_value(ready).unwrap();
        assert_eq!(ready.sample, Some(Sample::Image { channels: 3, height: 224, width: 224 }));
        let environment = Environment {
            device: device.to_owned(),
            device_name: name.to_owned(),
            precision: precision.to_owned(),
            ..Environment::default()
        };
        // The first takes a second, each of the others a tenth.
        let step = |step: u64| {
            let step_us = if step == 1 { 1_000_000 } else { 100_000 };
            let step = json!({
                "step": step, "epoch": 0, "loss": 1.0, "lr": 0.1, "samples": 64, "step_us": step_us,
                "data_wait_us": 0, "checkpoint_us": 0,
            });
            (Timestamp(0), serde_json::from_value(step).unwrap())
        };
        let steps: Vec<(Timestamp, Step)> = (1..=5).map(step).collect();
        let train = serde_json::from_value(train).unwrap();
        let found = of(&train, &ready, &environment, &steps, &GpuTable::embedded().unwrap()).unwrap();
        // torchvision's 4.089 billion multiply-adds, six operations each, 640 samples a second.
        assert!((found.flops / 1e12 - expected.0).abs() < 0.01, "{found:?}");
        let near = |found: &(f64, String), expected: &(f64, &str)| {
            (found.0 - expected.0).abs() < 1e-3 && found.1 == expected.1
        };
        assert!(
            match (&found.utilisation, &expected.1) {
                (Some(found), Some(expected)) => near(found, expected),
                (found, expected) => found.is_none() && expected.is_none(),
            },
            "{found:?}"
        );
    }

    #[test]
    fn the_share_of_a_peak_is_told_where_there_is_one() {
        check("cpu", "Intel(R) Xeon(R) Processor @ 2.10GHz", "bf16", 1, (15.7, None));
        check("cuda:0", "NVIDIA H100 80GB HBM3", "bf16", 1, (15.7, Some((15.7 / 989.4, "H100-SXM5"))));
        check("cuda:0", "NVIDIA H100 80GB HBM3", "bf16", 4, (15.7, Some((15.7 / 989.4 / 4.0, "H100-SXM5"))));
        check("cuda:0", "Tesla T4", "fp16", 1, (15.7, Some((15.7 / 65.0, "T4"))));
        check("cuda:0", "Tesla T4", "bf16", 1, (15.7, None));
        check("cuda:0", "a device of the future", "bf16", 1, (15.7, None));
    }
}
