//! Policies of operations on an image of bytes: torchvision's `AutoAugment` (Cubuk et al., "AutoAugment: Learning
//! augmentation strategies from data", 2018) and `TrivialAugmentWide` (Müller and Hutter, "TrivialAugment: Tuning-free yet
//! state-of-the-art data augmentation", 2021), with their tables, strengths and probabilities.

use domain::train::AutoAugment;

use super::rand_augment::{NAMES, Operation, linspace};
use crate::sampling::random::Draws;
use Kind::{
    AutoContrast, Brightness, Color, Contrast, Equalize, Invert, Posterize, Rotate, Sharpness, ShearX, ShearY,
    Solarize, TranslateX, TranslateY,
};

/// Strengths of AutoAugment, from 0 on.
const AUTO_BINS: u32 = 10;
/// Strengths of TrivialAugment, from 0 on.
const TRIVIAL_BINS: u32 = 31;

/// An operation of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    Rotate,
    Brightness,
    Color,
    Contrast,
    Sharpness,
    Posterize,
    Solarize,
    AutoContrast,
    Equalize,
    Invert,
}

/// An operation, its probability and its strength.
type Step = (Kind, f64, u32);

const IMAGENET: [[Step; 2]; 25] = [
    [(Posterize, 0.4, 8), (Rotate, 0.6, 9)],
    [(Solarize, 0.6, 5), (AutoContrast, 0.6, 0)],
    [(Equalize, 0.8, 0), (Equalize, 0.6, 0)],
    [(Posterize, 0.6, 7), (Posterize, 0.6, 6)],
    [(Equalize, 0.4, 0), (Solarize, 0.2, 4)],
    [(Equalize, 0.4, 0), (Rotate, 0.8, 8)],
    [(Solarize, 0.6, 3), (Equalize, 0.6, 0)],
    [(Posterize, 0.8, 5), (Equalize, 1.0, 0)],
    [(Rotate, 0.2, 3), (Solarize, 0.6, 8)],
    [(Equalize, 0.6, 0), (Posterize, 0.4, 6)],
    [(Rotate, 0.8, 8), (Color, 0.4, 0)],
    [(Rotate, 0.4, 9), (Equalize, 0.6, 0)],
    [(Equalize, 0.0, 0), (Equalize, 0.8, 0)],
    [(Invert, 0.6, 0), (Equalize, 1.0, 0)],
    [(Color, 0.6, 4), (Contrast, 1.0, 8)],
    [(Rotate, 0.8, 8), (Color, 1.0, 2)],
    [(Color, 0.8, 8), (Solarize, 0.8, 7)],
    [(Sharpness, 0.4, 7), (Invert, 0.6, 0)],
    [(ShearX, 0.6, 5), (Equalize, 1.0, 0)],
    [(Color, 0.4, 0), (Equalize, 0.6, 0)],
    [(Equalize, 0.4, 0), (Solarize, 0.2, 4)],
    [(Solarize, 0.6, 5), (AutoContrast, 0.6, 0)],
    [(Invert, 0.6, 0), (Equalize, 1.0, 0)],
    [(Color, 0.6, 4), (Contrast, 1.0, 8)],
    [(Equalize, 0.8, 0), (Equalize, 0.6, 0)],
];

const CIFAR10: [[Step; 2]; 25] = [
    [(Invert, 0.1, 0), (Contrast, 0.2, 6)],
    [(Rotate, 0.7, 2), (TranslateX, 0.3, 9)],
    [(Sharpness, 0.8, 1), (Sharpness, 0.9, 3)],
    [(ShearY, 0.5, 8), (TranslateY, 0.7, 9)],
    [(AutoContrast, 0.5, 0), (Equalize, 0.9, 0)],
    [(ShearY, 0.2, 7), (Posterize, 0.3, 7)],
    [(Color, 0.4, 3), (Brightness, 0.6, 7)],
    [(Sharpness, 0.3, 9), (Brightness, 0.7, 9)],
    [(Equalize, 0.6, 0), (Equalize, 0.5, 0)],
    [(Contrast, 0.6, 7), (Sharpness, 0.6, 5)],
    [(Color, 0.7, 7), (TranslateX, 0.5, 8)],
    [(Equalize, 0.3, 0), (AutoContrast, 0.4, 0)],
    [(TranslateY, 0.4, 3), (Sharpness, 0.2, 6)],
    [(Brightness, 0.9, 6), (Color, 0.2, 8)],
    [(Solarize, 0.5, 2), (Invert, 0.0, 0)],
    [(Equalize, 0.2, 0), (AutoContrast, 0.6, 0)],
    [(Equalize, 0.2, 0), (Equalize, 0.6, 0)],
    [(Color, 0.9, 9), (Equalize, 0.6, 0)],
    [(AutoContrast, 0.8, 0), (Solarize, 0.2, 8)],
    [(Brightness, 0.1, 3), (Color, 0.7, 0)],
    [(Solarize, 0.4, 5), (AutoContrast, 0.9, 0)],
    [(TranslateY, 0.9, 9), (TranslateY, 0.7, 9)],
    [(AutoContrast, 0.9, 0), (Solarize, 0.8, 3)],
    [(Equalize, 0.8, 0), (Invert, 0.1, 0)],
    [(TranslateY, 0.7, 9), (AutoContrast, 0.9, 0)],
];

const SVHN: [[Step; 2]; 25] = [
    [(ShearX, 0.9, 4), (Invert, 0.2, 0)],
    [(ShearY, 0.9, 8), (Invert, 0.7, 0)],
    [(Equalize, 0.6, 0), (Solarize, 0.6, 6)],
    [(Invert, 0.9, 0), (Equalize, 0.6, 0)],
    [(Equalize, 0.6, 0), (Rotate, 0.9, 3)],
    [(ShearX, 0.9, 4), (AutoContrast, 0.8, 0)],
    [(ShearY, 0.9, 8), (Invert, 0.4, 0)],
    [(ShearY, 0.9, 5), (Solarize, 0.2, 6)],
    [(Invert, 0.9, 0), (AutoContrast, 0.8, 0)],
    [(Equalize, 0.6, 0), (Rotate, 0.9, 3)],
    [(ShearX, 0.9, 4), (Solarize, 0.3, 3)],
    [(ShearY, 0.8, 8), (Invert, 0.7, 0)],
    [(Equalize, 0.9, 0), (TranslateY, 0.6, 6)],
    [(Invert, 0.9, 0), (Equalize, 0.6, 0)],
    [(Contrast, 0.3, 3), (Rotate, 0.8, 4)],
    [(Invert, 0.8, 0), (TranslateY, 0.0, 2)],
    [(ShearY, 0.7, 6), (Solarize, 0.4, 8)],
    [(Invert, 0.6, 0), (Rotate, 0.8, 4)],
    [(ShearY, 0.3, 7), (TranslateX, 0.9, 3)],
    [(ShearX, 0.1, 6), (Invert, 0.6, 0)],
    [(Solarize, 0.7, 2), (TranslateY, 0.6, 7)],
    [(ShearY, 0.8, 4), (Invert, 0.8, 0)],
    [(ShearX, 0.7, 9), (TranslateY, 0.8, 3)],
    [(ShearY, 0.8, 5), (AutoContrast, 0.7, 0)],
    [(ShearX, 0.7, 2), (Invert, 0.1, 0)],
];

impl Kind {
    /// At a strength of AutoAugment.
    fn at(self, strength: u32, turned: bool, height: usize, width: usize) -> Operation {
        let sign = if turned { -1.0 } else { 1.0 };
        let up_to = |end: f64| sign * linspace(0.0, end as f32, AUTO_BINS, strength);
        let shift = |length: usize| up_to(150.0 / 331.0 * length as f64).trunc();
        match self {
            ShearX => Operation::ShearX(up_to(0.3)),
            ShearY => Operation::ShearY(up_to(0.3)),
            TranslateX => Operation::TranslateX(shift(width)),
            TranslateY => Operation::TranslateY(shift(height)),
            Rotate => Operation::Rotate(up_to(30.0)),
            Brightness => Operation::Brightness(1.0 + up_to(0.9)),
            Color => Operation::Color(1.0 + up_to(0.9)),
            Contrast => Operation::Contrast(1.0 + up_to(0.9)),
            Sharpness => Operation::Sharpness(1.0 + up_to(0.9)),
            // 8 - strength / 2.25, rounded; there are no halves.
            Posterize => Operation::Posterize(8 - (8 * strength + 9) / 18),
            Solarize => Operation::solarize(AUTO_BINS, strength),
            AutoContrast => Operation::AutoContrast,
            Equalize => Operation::Equalize,
            Invert => Operation::Invert,
        }
    }

    /// Whether it goes to two sides.
    fn is_signed(self) -> bool {
        match self {
            ShearX | ShearY | TranslateX | TranslateY | Rotate | Brightness | Color | Contrast | Sharpness => true,
            Posterize | Solarize | AutoContrast | Equalize | Invert => false,
        }
    }
}

/// The operations of one sample in one epoch: those of one line of the policy, each by its probability.
pub(crate) fn drawn(policy: AutoAugment, draws: &mut Draws, height: usize, width: usize) -> Vec<Operation> {
    let lines = match policy {
        AutoAugment::Imagenet => &IMAGENET,
        AutoAugment::Cifar10 => &CIFAR10,
        AutoAugment::Svhn => &SVHN,
    };
    let steps = lines[draws.below(lines.len() as u64) as usize];
    let mut operations = Vec::new();
    for (kind, probability, strength) in steps {
        // Both are drawn whatever comes of it, so that a table can be changed without other draws.
        let (is_done, turned) = (draws.share() < probability, draws.below(2) == 1);
        if is_done {
            operations.push(kind.at(strength, turned && kind.is_signed(), height, width));
        }
    }
    operations
}

/// The operation of this number among RandAugment's at a strength of 0 to 30, as TrivialAugment has it.
pub(crate) fn trivial(number: usize, strength: u32, turned: bool) -> Operation {
    let sign = if turned { -1.0 } else { 1.0 };
    let up_to = |end: f64| sign * linspace(0.0, end as f32, TRIVIAL_BINS, strength);
    match number {
        1 => Operation::ShearX(up_to(0.99)),
        2 => Operation::ShearY(up_to(0.99)),
        3 => Operation::TranslateX(up_to(32.0).trunc()),
        4 => Operation::TranslateY(up_to(32.0).trunc()),
        5 => Operation::Rotate(up_to(135.0)),
        6 => Operation::Brightness(1.0 + up_to(0.99)),
        7 => Operation::Color(1.0 + up_to(0.99)),
        8 => Operation::Contrast(1.0 + up_to(0.99)),
        9 => Operation::Sharpness(1.0 + up_to(0.99)),
        // 8 - strength / 5, rounded; there are no halves.
        10 => Operation::Posterize(8 - (2 * strength + 5) / 10),
        11 => Operation::solarize(TRIVIAL_BINS, strength),
        12 => Operation::AutoContrast,
        13 => Operation::Equalize,
        _ => Operation::Identity,
    }
}

/// The operation of one sample in one epoch.
pub(crate) fn drawn_trivial(draws: &mut Draws) -> Operation {
    let number = draws.below(NAMES.len() as u64) as usize;
    let strength = draws.below(u64::from(TRIVIAL_BINS)) as u32;
    trivial(number, strength, draws.below(2) == 1)
}

#[cfg(test)]
#[path = "auto_augment_tests.rs"]
mod tests;
