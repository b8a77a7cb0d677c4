//! The keyword `augment`: a list as in a job file, checked as there.

use domain::train::Augment;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// The augmentations of a JSON list.
///
/// # Errors
/// `ValueError` for a name that is not known, and for a number out of its range.
pub fn augmentations(json: &str) -> PyResult<Vec<Augment>> {
    let hint = "`augment` is a list such as [\"random_resized_crop\", \"flip\", {\"rand_augment\": {\"magnitude\": 9}}, {\"mixup\": 0.2}]; docs/job-file.md has all names";
    let refused = |why: String| PyValueError::new_err(format!("`augment`: {why}\nhint: {hint}"));
    let list: Vec<Augment> = serde_json::from_str(json).map_err(|error| refused(error.to_string()))?;
    match list.iter().find_map(range_error) {
        Some(why) => Err(refused(why)),
        None => Ok(list),
    }
}

/// What is out of its range, if anything is.
fn range_error(augment: &Augment) -> Option<String> {
    let check = |is_right: bool, what: &str| (!is_right).then(|| what.to_owned());
    let is_span = |[low, high]: [f64; 2]| low > 0.0 && low <= high && high.is_finite();
    match augment {
        Augment::RandAugment(spec) => check((1..=14).contains(&spec.num_ops), "`rand_augment.num_ops` is 1 to 14")
            .or_else(|| check(spec.magnitude <= 30, "`rand_augment.magnitude` is 0 to 30")),
        Augment::ColorJitter(jitter) => {
            let factors = [jitter.brightness, jitter.contrast, jitter.saturation];
            check(
                factors.iter().all(|factor| *factor >= 0.0 && factor.is_finite()),
                "`color_jitter` has numbers from 0",
            )
            .or_else(|| check((0.0..=0.5).contains(&jitter.hue), "`color_jitter.hue` is 0 to 0.5"))
        }
        Augment::RandomErasing(erasing) => check((0.0..=1.0).contains(&erasing.p), "`random_erasing.p` is 0 to 1")
            .or_else(|| {
                check(is_span(erasing.scale) && erasing.scale[1] <= 1.0, "`random_erasing.scale` is two shares")
            })
            .or_else(|| check(is_span(erasing.ratio), "`random_erasing.ratio` is two numbers above 0")),
        Augment::Mixup(alpha) | Augment::Cutmix(alpha) => {
            check(*alpha > 0.0 && alpha.is_finite(), "the alpha of `mixup` and `cutmix` is above 0")
        }
        Augment::ResizeCrop(short) => check((8..=4096).contains(short), "`resize_crop` is 8 to 4096 pixels"),
        Augment::PadCrop(pixels) => check(*pixels <= 1024, "`pad_crop` is 1024 pixels at most"),
        Augment::RandomResizedCrop | Augment::Flip | Augment::Mosaic => None,
        Augment::AutoAugment(_) | Augment::TrivialAugment => None,
    }
}
