//! An exported model gives the same scores in torchvision.

use std::path::Path;
use std::process::Command;

use crate::built;
use crate::measure::program::number;
use xtask::doing::{self, Outcome};
use xtask::{peers, setup};

/// Largest difference of a score: float32 sums in another order.
const LARGEST: f64 = 1e-4;

/// Compares the model in `folder` (`model.safetensors` and `model.json`) on images of a tar, or on random ones.
pub fn parity(root: &Path, folder: &str, images: Option<&String>) -> Outcome {
    let logits = built(root)?.join("examples/logits");
    let mut script = Command::new(setup::python()?);
    script.arg(root.join("benches/peers/torchvision_logits.py")).env("PYTHONPATH", peers::pytorch()?);
    script.arg(logits).arg(folder).args(images);
    let answer = serde_json::from_str(&doing::read(&mut script)?)?;
    let number = |key: &str| number(&answer, key);
    let (count, agree, largest) = (number("images")?, number("agree")?, number("largest")?);
    let difference = number("difference")?;
    println!("{count} images, logits up to {largest:.2}: largest difference {difference:.1e}, {agree} classes agree");
    // Not `>`: a difference that is no number must fail too.
    match difference <= LARGEST {
        true => Ok(format!("parity: torchvision loads it strictly and agrees to {LARGEST:.0e}")),
        false => Err(format!("torchvision's logits differ by {difference:.1e}, more than {LARGEST:.0e}").into()),
    }
}
