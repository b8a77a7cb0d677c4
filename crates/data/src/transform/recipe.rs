//! Recipes: the crop of an image that a sample uses, its size, and the data type in which it is written.
//!
//! A recipe is a value; random draws depend on (seed, epoch, sample) only. Cropping rules and their defaults are
//! torchvision's, so a recipe of the same name gives the same images.

use domain::train::Augment;

use super::resample::Span;
use crate::sampling::random::Draws;

/// The operations on every image.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct ImageTransform {
    /// Which part is shown.
    pub crop: Crop,
    /// Height and width of the sample.
    pub size: usize,
    /// Whether half of the samples are mirrored left to right.
    pub flip: bool,
}

/// Which part of an image a sample shows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Crop {
    /// A random part, of a share of the area and an aspect ratio in these ranges, resized to the sample's size.
    Area {
        /// Share of the area.
        scale: [f64; 2],
        /// Width over height.
        ratio: [f64; 2],
    },
    /// The image is resized until its short side is so long; a random part is cut out.
    Random(usize),
    /// The same, and the middle is cut out.
    Centre(usize),
}

/// torchvision's defaults of `RandomResizedCrop`.
const AREA: Crop = Crop::Area { scale: [0.08, 1.0], ratio: [3.0 / 4.0, 4.0 / 3.0] };

/// The presets' names.
pub const NAMES: [&str; 4] = ["imagenet-train", "imagenet-val", "resize256-randomcrop224", "small-images"];

/// A common preset of image preparation, in terms of the job file.
#[derive(Debug, Clone, PartialEq)]
pub struct TransformPreset {
    /// `train.data.size`.
    pub size: u32,
    /// `train.data.augment`.
    pub augment: Vec<Augment>,
    /// Whether samples are prepared as for evaluation: the middle, without chance.
    pub evaluation: bool,
}

impl TransformPreset {
    /// The preset of this name, one of [`NAMES`], or a former name of one; with another size, if one is given.
    pub fn named(name: &str, size: Option<u32>) -> Option<TransformPreset> {
        let large = size.unwrap_or(224);
        let short = shown(large as usize) as u32;
        let (size, augment, evaluation) = match name {
            "imagenet-train" => (large, vec![Augment::RandomResizedCrop, Augment::Flip], false),
            "imagenet-val" => (large, vec![Augment::ResizeCrop(short)], true),
            "resize256-randomcrop224" => (large, vec![Augment::ResizeCrop(short), Augment::Flip], false),
            "small-images" | "small-pictures" => (size.unwrap_or(32), vec![Augment::PadCrop(4), Augment::Flip], false),
            _ => return None,
        };
        Some(TransformPreset { size, augment, evaluation })
    }
}

/// The short side to which an image is resized before a centre crop of `size`: 256 for 224, the usual ratio.
fn shown(size: usize) -> usize {
    (size * 8).div_ceil(7)
}

impl ImageTransform {
    /// The crop that the first operations of a list specify, and whether other operations follow.
    pub(crate) fn of(augment: &[Augment], size: usize) -> Option<(ImageTransform, bool)> {
        let (first, rest) = augment.split_first()?;
        let crop = match first {
            Augment::RandomResizedCrop => AREA,
            Augment::ResizeCrop(short) => Crop::Random(*short as usize),
            Augment::Flip | Augment::PadCrop(_) | Augment::Mosaic => return None,
            Augment::RandAugment(_) | Augment::Mixup(_) | Augment::Cutmix(_) => return None,
            Augment::ColorJitter(_) | Augment::AutoAugment(_) => return None,
            Augment::TrivialAugment | Augment::RandomErasing(_) => return None,
        };
        let alone = matches!(rest, [] | [Augment::Flip]);
        Some((ImageTransform { crop, size, flip: alone && rest.len() == 1 }, !alone))
    }

    /// The evaluation counterpart of a training recipe: a centre crop, at the scale seen in training.
    pub(crate) fn evaluated(&self) -> ImageTransform {
        let short = match self.crop {
            Crop::Area { .. } => shown(self.size),
            Crop::Random(short) | Crop::Centre(short) => short,
        };
        ImageTransform { crop: Crop::Centre(short), flip: false, ..*self }
    }

    /// The part of an image of `height` × `width` that a sample shows: along columns, and along rows.
    pub(crate) fn place(&self, height: usize, width: usize, mut draws: Draws) -> [Span; 2] {
        let size = self.size;
        let (columns, rows) = match self.crop {
            Crop::Area { scale, ratio } => {
                let (x, y, w, h) = area(height, width, scale, ratio, &mut draws);
                let whole = |from| Span { from, to: size, wanted: 0..size, mirrored: false };
                (whole(x..x + w), whole(y..y + h))
            }
            Crop::Random(short) | Crop::Centre(short) => {
                let short = short.max(size);
                let (to_height, to_width) = if height <= width {
                    (short, (short as u64 * width as u64 / height as u64) as usize)
                } else {
                    ((short as u64 * height as u64 / width as u64) as usize, short)
                };
                let random = matches!(self.crop, Crop::Random(_));
                let mut cut = |from: usize, to: usize| {
                    let spare = to - size;
                    let start = if random { draws.below(spare as u64 + 1) as usize } else { half_to_even(spare) };
                    Span { from: 0..from, to, wanted: start..start + size, mirrored: false }
                };
                let rows = cut(height, to_height);
                (cut(width, to_width), rows)
            }
        };
        let mirrored = self.flip && draws.below(2) == 1;
        [Span { mirrored, ..columns }, rows]
    }
}

/// Half of a number, rounded as Python's `round` does.
fn half_to_even(number: usize) -> usize {
    match number % 4 {
        3 => number / 2 + 1,
        _ => number / 2,
    }
}

/// Column, row, width and height, as `RandomResizedCrop.get_params` of torchvision finds them.
fn area(
    height: usize,
    width: usize,
    scale: [f64; 2],
    ratio: [f64; 2],
    draws: &mut Draws,
) -> (usize, usize, usize, usize) {
    let (low, high) = (logarithm(ratio[0]), logarithm(ratio[1]));
    for _ in 0..10 {
        let target = (height * width) as f64 * between(scale, draws);
        let aspect = exponential(between([low, high], draws));
        let (w, h) = ((target * aspect).sqrt().round_ties_even(), (target / aspect).sqrt().round_ties_even());
        let (w, h) = (w as usize, h as usize);
        if (1..=width).contains(&w) && (1..=height).contains(&h) {
            let y = draws.below((height - h + 1) as u64) as usize;
            let x = draws.below((width - w + 1) as u64) as usize;
            return (x, y, w, h);
        }
    }
    let (wide, high) = (width as f64, height as f64);
    let (w, h) = if wide / high < ratio[0] {
        (width, (wide / ratio[0]).round_ties_even() as usize)
    } else if wide / high > ratio[1] {
        ((high * ratio[1]).round_ties_even() as usize, height)
    } else {
        (width, height)
    };
    let (w, h) = (w.clamp(1, width), h.clamp(1, height));
    ((width - w) / 2, (height - h) / 2, w, h)
}

fn between([low, high]: [f64; 2], draws: &mut Draws) -> f64 {
    low + (high - low) * draws.share()
}

/// eˣ for small x, by its series: the same bits on every machine, which the platform's own function is not.
pub(super) fn exponential(x: f64) -> f64 {
    let step = x / 16.0;
    let (mut sum, mut term) = (1.0, 1.0);
    for n in 1..16 {
        term *= step / f64::from(n);
        sum += term;
    }
    (0..4).fold(sum, |power, _| power * power)
}

/// The natural logarithm, by Newton's method on [`exponential`].
pub(super) fn logarithm(y: f64) -> f64 {
    (0..20).fold(0.0, |x, _| x - 2.0 * (exponential(x) - y) / (exponential(x) + y))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::random::{Purpose, key};

    fn named(name: &str) -> Option<ImageTransform> {
        let TransformPreset { size, augment, evaluation } = TransformPreset::named(name, None).unwrap();
        let (recipe, more) = ImageTransform::of(&augment, size as usize)?;
        assert!(!more);
        Some(if evaluation { recipe.evaluated() } else { recipe })
    }

    #[test]
    fn series_are_the_functions() {
        for x in [-2.0, -0.3, 0.0, 0.28, 1.0, 2.5_f64] {
            assert!((exponential(x) / x.exp() - 1.0).abs() < 1e-14);
            assert!((logarithm(x.exp()) - x).abs() < 1e-13);
        }
    }

    #[test]
    fn the_middle_is_torchvisions() {
        // `CenterCrop` takes `int(round(spare / 2.0))`.
        for (spare, start) in [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 2), (117, 58), (119, 60)] {
            assert_eq!(half_to_even(spare), start, "{spare}");
        }
        let recipe = named("imagenet-val").unwrap();
        let [columns, rows] = recipe.place(375, 500, Draws::new(0));
        assert_eq!(columns, Span { from: 0..500, to: 341, wanted: 58..282, mirrored: false });
        assert_eq!(rows, Span { from: 0..375, to: 256, wanted: 16..240, mirrored: false });
    }

    #[test]
    fn parts_lie_in_the_image_and_are_spread_over_it() {
        for name in NAMES {
            let Some(recipe) = named(name) else { continue };
            let (mut mirrored, mut starts) = (0, 0);
            for sample in 0..2000 {
                for (height, width) in [(375, 500), (1, 1), (1, 700), (700, 3), (64, 64)] {
                    let draws = Draws::new(key(Purpose::Augment, 1, &[2, sample]));
                    let [columns, rows] = recipe.place(height, width, draws);
                    for (span, length) in [(&columns, width), (&rows, height)] {
                        assert!(!span.from.is_empty() && span.from.end <= length, "{name}: {span:?} of {length}");
                        assert!(span.wanted.len() == recipe.size && span.wanted.end <= span.to, "{name}: {span:?}");
                    }
                    if (height, width) == (375, 500) {
                        mirrored += usize::from(columns.mirrored);
                        starts += columns.from.start + columns.wanted.start;
                    }
                }
            }
            if recipe.flip {
                // Five standard deviations of a binomial with n = 2000 are 112.
                assert!(mirrored.abs_diff(1000) < 112, "{name}: {mirrored} of 2000 are mirrored");
                assert!(starts / 2000 > 40, "{name}: parts begin at {} on average", starts / 2000);
            }
        }
    }
}
