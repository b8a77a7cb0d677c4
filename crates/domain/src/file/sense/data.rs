//! Checks of the keys of the data.

use super::Validator;
use crate::train::{Augment, ColorJitter, Data, Normalize, RandomErasing, Split};

/// Shares may add up to 1 with this error, so that thirds can be written.
const SHARE_ERROR: f64 = 1e-6;
const WIDEST_PAD: u32 = 256;
/// Longest side that an image is resized to before it is cropped.
const LONGEST_SIDE: u32 = 4096;
/// Smallest and largest alpha of a mix: below, a weight is 0 or 1; above, it is one half.
const ALPHA: (f64, f64) = (0.01, 100.0);
/// Smallest and largest ratio of an erased rectangle's sides.
const RATIO: (f64, f64) = (0.05, 20.0);
/// Less would not hold a batch of images.
const SMALLEST_CACHE: u64 = 1 << 20;

impl Validator {
    pub(super) fn data(&mut self, data: &Data) {
        self.path("train.data.path", &data.path);
        if let Split::Shares(shares) = data.split {
            self.shares(shares);
        }
        let mut seen: Vec<Augment> = Vec::new();
        for (index, augment) in data.augment.iter().enumerate() {
            let key = format!("train.data.augment[{index}]");
            let is_same_kind = |other: &Augment| std::mem::discriminant(other) == std::mem::discriminant(augment);
            if seen.iter().any(is_same_kind) {
                self.wrong(&key, "the same change stands here twice", "keep one of the two");
            }
            seen.push(*augment);
            let pad = match *augment {
                Augment::Flip | Augment::Mosaic | Augment::RandAugment(_) => continue,
                Augment::AutoAugment(_) | Augment::TrivialAugment => continue,
                Augment::ColorJitter(jitter) => {
                    self.jitter(&key, jitter);
                    continue;
                }
                Augment::RandomErasing(erasing) => {
                    self.erasing(&key, erasing, &data.augment[index + 1..]);
                    continue;
                }
                Augment::Mixup(alpha) | Augment::Cutmix(alpha) => {
                    self.mixing(&key, augment, alpha, &data.augment[index + 1..]);
                    continue;
                }
                Augment::RandomResizedCrop => {
                    self.crop(&key, index, data);
                    continue;
                }
                Augment::ResizeCrop(short) => {
                    self.crop(&key, index, data);
                    if short > LONGEST_SIDE || data.size.is_some_and(|size| short < size) {
                        let message =
                            format!("`{short}` is out of range: it must be at least `size` and at most {LONGEST_SIDE}");
                        self.wrong(&format!("{key}.resize_crop"), message, "256 is usual for a `size` of 224");
                    }
                    continue;
                }
                Augment::PadCrop(pad) => pad,
            };
            if pad == 0 || pad > WIDEST_PAD {
                let message = format!("`{pad}` is out of range: it must be at least 1 and at most {WIDEST_PAD}");
                self.wrong(&format!("{key}.pad_crop"), message, "4 is usual for 32×32 images");
            } else if data.size.is_some_and(|size| pad >= size) {
                let message = "the padding is as wide as the image, so a crop may miss the image";
                self.wrong(&format!("{key}.pad_crop"), message, "4 is usual for 32×32 images");
            }
        }
        if let Some(normalize) = &data.normalize {
            self.normalize(normalize);
        }
    }

    /// Mean and standard deviation of each channel.
    fn normalize(&mut self, normalize: &Normalize) {
        let (means, deviations) = (normalize.mean.len(), normalize.std.len());
        if means != deviations {
            let message = format!("{means} means and {deviations} standard deviations do not fit together");
            self.wrong("train.data.normalize", message, "write one of each a channel");
        } else if ![1, 3].contains(&means) {
            let message = format!("{means} channels are given; an image has 1 or 3");
            self.wrong("train.data.normalize", message, "write one mean and one deviation a channel");
        }
        if normalize.std.iter().any(|std| *std <= 0.0) {
            self.wrong(
                "train.data.normalize.std",
                "a standard deviation is above 0",
                "leave `normalize` out to have it measured",
            );
        }
    }

    /// Something varies.
    fn jitter(&mut self, key: &str, jitter: ColorJitter) {
        if jitter == ColorJitter::default() {
            let hint = "write for example `color_jitter: {brightness: 0.4, contrast: 0.4, saturation: 0.4, hue: 0.1}`";
            self.wrong(&format!("{key}.color_jitter"), "nothing varies", hint);
        }
    }

    /// Erasing comes after what changes the image, and its rectangle lies in the image.
    fn erasing(&mut self, key: &str, RandomErasing { p: _, scale, ratio }: RandomErasing, behind: &[Augment]) {
        let is_range = |[low, high]: [f64; 2], least: f64, most: f64| least <= low && low <= high && high <= most;
        if !is_range(scale, 0.0, 1.0) {
            let message = format!("`[{}, {}]` are no smallest and largest area between 0 and 1", scale[0], scale[1]);
            self.wrong(&format!("{key}.random_erasing.scale"), message, "`[0.02, 0.33]` is usual");
        }
        if !is_range(ratio, RATIO.0, RATIO.1) {
            let (least, most) = RATIO;
            let message = format!("`[{}, {}]` are no ratios between {least} and {most}", ratio[0], ratio[1]);
            self.wrong(&format!("{key}.random_erasing.ratio"), message, "`[0.3, 3.3]` is usual");
        }
        if !behind.iter().all(|other| matches!(other, Augment::Mixup(_) | Augment::Cutmix(_))) {
            let message = "a part of the finished image is erased, after all changes of it";
            self.wrong(key, message, "move it behind the other augmentations; `mixup` and `cutmix` come last");
        }
    }

    /// Cropping comes before anything else, and has a size.
    fn crop(&mut self, key: &str, index: usize, data: &Data) {
        if index > 0 {
            self.wrong(key, "cropping comes before other augmentations", "move it to the front, once");
        }
        if data.size.is_none() {
            self.wrong(key, "the size of the part is not known", "set `size`, such as `size: 224`");
        }
    }

    fn shares(&mut self, shares: [f64; 3]) {
        let key = "train.data.split";
        let [training, validation, test] = shares;
        let usual = "the usual split is `[0.7, 0.2, 0.1]`";
        if shares.iter().any(|share| !(0.0..=1.0).contains(share)) {
            return self.wrong(key, "a share is not between 0 and 1", usual);
        }
        let sum = training + validation + test;
        if (sum - 1.0).abs() > SHARE_ERROR {
            self.wrong(key, format!("the shares add up to {}, not to 1", (sum * 1e6).round() / 1e6), usual);
        }
        if training == 0.0 {
            self.wrong(key, "no samples are left to train on", usual);
        }
        if validation == 0.0 {
            self.warn(key, "without validation samples the last model counts as the best", usual);
        }
        if test == 0.0 {
            self.warn(key, "without test samples no test accuracy is reported", usual);
        }
    }

    /// Mixing comes last, because it takes finished images; and its alpha is in the usual range.
    fn mixing(&mut self, key: &str, augment: &Augment, alpha: f64, behind: &[Augment]) {
        let name = if matches!(augment, Augment::Mixup(_)) { "mixup" } else { "cutmix" };
        if !(ALPHA.0..=ALPHA.1).contains(&alpha) {
            let message = format!("`{alpha}` is out of range: it must be at least {} and at most {}", ALPHA.0, ALPHA.1);
            self.wrong(&format!("{key}.{name}"), message, "0.2 is usual for mixup, and 1 for cutmix");
        }
        if !behind.iter().all(|other| matches!(other, Augment::Mixup(_) | Augment::Cutmix(_))) {
            self.wrong(key, "images are mixed after all other augmentations", "move it to the end of the list");
        }
    }

    /// A cache is for remote data, and its size is positive; so is that of preloading.
    pub(super) fn cache(&mut self, data: &Data) {
        if let Some(preload) = data.preload.filter(|preload| preload.0 < SMALLEST_CACHE) {
            let message = format!("`{preload}` is too little for any images");
            self.wrong("train.data.preload", message, "write at least `1 MiB`, such as `64 GiB`");
        }
        let Some(cache) = data.cache else { return };
        if cache.budget.0 < SMALLEST_CACHE {
            let message = format!("`{}` is too little to keep anything", cache.budget);
            self.wrong("train.data.cache.budget", message, "write at least `1 MiB`, such as `10 GiB`");
        }
        let is_elsewhere = data.path.split_once("://").is_some_and(|(scheme, _)| scheme != "file");
        if !is_elsewhere && !data.path.trim().is_empty() {
            let message = "the data lies on this machine already";
            self.wrong(
                "train.data.cache",
                message,
                "leave the key out, or give an address such as `s3://BUCKET/PREFIX`",
            );
        }
    }
}
