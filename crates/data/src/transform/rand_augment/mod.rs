//! RandAugment on an image of bytes, as in torchvision (Cubuk et al., "RandAugment: Practical automated data
//! augmentation with a reduced search space", 2020): its fourteen operations, its 31 magnitudes, its `f32` arithmetic,
//! and nearest-neighbour sampling with black outside the image.
//!
//! Random draws depend only on (seed, epoch, sample, index in the list). Sines are computed here and not by the
//! platform's libm, so that every machine moves the same pixels. Read on in `levels` (colours) and `places` (geometry).

mod levels;
mod places;
#[cfg(test)]
mod tests;

use domain::train::RandAugment;

use self::places::Move;
use crate::sampling::random::Draws;

/// Strengths from 0 on.
const BINS: u32 = 31;

/// One operation and how strong it is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Operation {
    /// Identity.
    Identity,
    /// Each row moves by so many pixels a pixel from the top.
    ShearX(f64),
    /// Each column moves by so many pixels a pixel from the left.
    ShearY(f64),
    /// Pixels to the right.
    TranslateX(f64),
    /// Pixels down.
    TranslateY(f64),
    /// Degrees, counter-clockwise.
    Rotate(f64),
    /// A factor of every byte.
    Brightness(f64),
    /// How far each pixel is from its grey; 1 changes nothing.
    Color(f64),
    /// How far each byte is from the mean grey of the image; 1 changes nothing.
    Contrast(f64),
    /// How far each byte is from the mean of its surroundings; 1 changes nothing.
    Sharpness(f64),
    /// Bits that stay.
    Posterize(u32),
    /// Bytes from here on are inverted.
    Solarize(f64),
    /// The darkest byte of each channel becomes 0 and the brightest 255.
    AutoContrast,
    /// All bytes of each channel become about equally frequent.
    Equalize,
    /// Every byte is taken from 255.
    Invert,
    /// By which part of the colour circle each hue is turned.
    Hue(f64),
}

/// The names of the operations of RandAugment, in the order in which they are drawn; torchvision's.
pub const NAMES: [&str; 14] = [
    "Identity",
    "ShearX",
    "ShearY",
    "TranslateX",
    "TranslateY",
    "Rotate",
    "Brightness",
    "Color",
    "Contrast",
    "Sharpness",
    "Posterize",
    "Solarize",
    "AutoContrast",
    "Equalize",
];

/// The element of `torch.linspace(start, end, bins)`, whose rounding decides where a threshold lies.
pub(super) fn linspace(start: f32, end: f32, bins: u32, at: u32) -> f64 {
    let step = f64::from((end - start) / (bins - 1) as f32);
    let value = match at < bins / 2 {
        true => f64::from(start) + step * f64::from(at),
        false => f64::from(end) - step * f64::from(bins - 1 - at),
    };
    // Rounded once, as the library's fused product and sum is.
    f64::from(value as f32)
}

impl Operation {
    /// The operation of this number among [`NAMES`], at a strength of 0 to 30; `turned` to the other side where it has two.
    pub fn numbered(number: usize, magnitude: u32, turned: bool, height: usize, width: usize) -> Operation {
        let sign = if turned { -1.0 } else { 1.0 };
        let up_to = |end: f64| sign * linspace(0.0, end as f32, BINS, magnitude);
        let factor = || 1.0 + up_to(0.9);
        let shift = |length: usize| up_to(150.0 / 331.0 * length as f64).trunc();
        match number {
            1 => Operation::ShearX(up_to(0.3)),
            2 => Operation::ShearY(up_to(0.3)),
            3 => Operation::TranslateX(shift(width)),
            4 => Operation::TranslateY(shift(height)),
            5 => Operation::Rotate(up_to(30.0)),
            6 => Operation::Brightness(factor()),
            7 => Operation::Color(factor()),
            8 => Operation::Contrast(factor()),
            9 => Operation::Sharpness(factor()),
            10 => Operation::Posterize(8 - (2 * magnitude + 7) / 15),
            11 => Operation::solarize(BINS, magnitude),
            12 => Operation::AutoContrast,
            13 => Operation::Equalize,
            _ => Operation::Identity,
        }
    }

    /// Solarize with the threshold at this place of so many; bytes are compared with 32 bits.
    pub(super) fn solarize(bins: u32, at: u32) -> Operation {
        Operation::Solarize(f64::from((255.0 * linspace(1.0, 0.0, bins, at)) as f32))
    }

    /// Applies it to `planes`, red, green and blue of `height` × `width` bytes each; `spare` is memory.
    pub fn apply(self, planes: &mut Vec<u8>, spare: &mut Vec<u8>, height: usize, width: usize) {
        let mut moved = |by: Move| {
            spare.clear();
            spare.resize(planes.len(), 0);
            by.apply(planes, spare, height, width);
            std::mem::swap(planes, spare);
        };
        match self {
            Operation::Identity => {}
            Operation::ShearX(by) => moved(Move::shear([by, 0.0], height, width)),
            Operation::ShearY(by) => moved(Move::shear([0.0, by], height, width)),
            Operation::TranslateX(by) => moved(Move::shift([by, 0.0])),
            Operation::TranslateY(by) => moved(Move::shift([0.0, by])),
            Operation::Rotate(degrees) => moved(Move::turn(degrees)),
            Operation::Brightness(factor) => levels::brightness(planes, factor as f32),
            Operation::Color(factor) => levels::color(planes, factor),
            Operation::Contrast(factor) => levels::contrast(planes, factor),
            Operation::Sharpness(factor) => levels::sharpness(planes, spare, [height, width], factor),
            Operation::Posterize(bits) => levels::posterize(planes, bits),
            Operation::Solarize(threshold) => levels::solarize(planes, threshold),
            Operation::AutoContrast => levels::autocontrast(planes),
            Operation::Equalize => levels::equalize(planes),
            Operation::Invert => levels::invert(planes),
            Operation::Hue(shift) => levels::hue(planes, shift as f32),
        }
    }
}

/// The operations of one sample in one epoch.
pub(crate) fn drawn(
    spec: RandAugment,
    mut draws: Draws,
    height: usize,
    width: usize,
) -> impl Iterator<Item = Operation> {
    (0..spec.num_ops).map(move |_| {
        let number = draws.below(NAMES.len() as u64) as usize;
        let turned = draws.below(2) == 1;
        Operation::numbered(number, spec.magnitude, turned, height, width)
    })
}
