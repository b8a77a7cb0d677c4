//! Targets of samples with any number of labels, or with a number, on the device.

use data::Targets;
use tch::{Device, Tensor};

use crate::model::OutputShape;
use crate::torch;

/// What is predicted for a sample with one label of these.
pub(super) fn output(targets: Option<&Targets>, classes: &[String]) -> OutputShape {
    match targets {
        None => OutputShape::Classes(classes.len() as i64),
        Some(Targets::Flags { names, .. }) => OutputShape::Labels(names.len() as i64),
        Some(Targets::Numbers(_)) => OutputShape::Number,
    }
}

/// The targets of samples whose labels have these numbers: booleans `samples × labels`, or float32, one per sample.
pub(super) fn target_tensor(targets: &Targets, labels: &[i64], device: Device) -> torch::Result<Tensor> {
    let count = labels.len() as i64;
    match targets {
        Targets::Numbers(numbers) => {
            let values: Vec<f32> = labels.iter().map(|label| numbers[*label as usize]).collect();
            torch::upload(&values, &[count], device)
        }
        Targets::Flags { names, rows } => {
            let row = |label: &i64| &rows[*label as usize * names.len()..][..names.len()];
            let flags: Vec<bool> = labels.iter().flat_map(row).copied().collect();
            torch::upload(&flags, &[count, names.len() as i64], device)
        }
    }
}
