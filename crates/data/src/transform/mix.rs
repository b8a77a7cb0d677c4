//! Mixes images of a batch: mixup (Zhang et al., "mixup: Beyond empirical risk minimization", 2018) and CutMix (Yun et
//! al., "CutMix: Regularization strategy to train strong classifiers", 2019), as in torchvision's references.
//!
//! Each image is mixed with the one before it in the batch of all ranks, the first with the last. The method of a
//! batch, its weight and its rectangle are drawn from (seed, epoch, position of the batch), so a batch is the same for
//! any number of threads and ranks and after any interruption. A rank whose share does not start the batch also
//! prepares the sample before its first one, rather than request it from another rank.

use domain::train::{Augment, MemoryFormat};

use super::beta::symmetric;
use super::slots::Values;
use crate::sampling::random::{Draws, Purpose, key};

/// Which ways there are.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Mixing {
    mixup: Option<f64>,
    cutmix: Option<f64>,
    seed: u64,
}

/// How the images of one batch are mixed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Blend {
    pattern: Pattern,
    /// Weight of an image's own class in its target; the other class has the remainder.
    pub own: f64,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Pattern {
    /// Every value is a sum of both.
    WeightedSum,
    /// Rows and columns that show the other image.
    Rectangle { rows: (usize, usize), columns: (usize, usize) },
}

/// The form of the samples in memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    pub channels: usize,
    pub height: usize,
    pub width: usize,
    pub layout: MemoryFormat,
}

impl Mixing {
    /// The mixing that a list of augmentations specifies; `None` without any.
    pub fn of(augment: &[Augment], seed: u64) -> Option<Mixing> {
        let mut mixing = Mixing { mixup: None, cutmix: None, seed };
        for change in augment {
            match change {
                Augment::Mixup(alpha) => mixing.mixup = Some(*alpha),
                Augment::Cutmix(alpha) => mixing.cutmix = Some(*alpha),
                Augment::RandomResizedCrop | Augment::ResizeCrop(_) | Augment::Flip | Augment::PadCrop(_) => {}
                Augment::Mosaic | Augment::RandAugment(_) | Augment::ColorJitter(_) | Augment::AutoAugment(_) => {}
                Augment::TrivialAugment | Augment::RandomErasing(_) => {}
            }
        }
        (mixing.mixup.is_some() || mixing.cutmix.is_some()).then_some(mixing)
    }

    /// How the batch is mixed that begins at a position of an epoch.
    pub fn draw(&self, epoch: u64, position: u64, height: usize, width: usize) -> Blend {
        let mut draws = Draws::new(key(Purpose::Mix, self.seed, &[epoch, position]));
        let by_rectangle = draws.below(2) == 1;
        match (self.mixup, self.cutmix) {
            (Some(alpha), None) => Blend { pattern: Pattern::WeightedSum, own: symmetric(alpha, &mut draws) },
            (Some(alpha), Some(_)) if !by_rectangle => {
                Blend { pattern: Pattern::WeightedSum, own: symmetric(alpha, &mut draws) }
            }
            (_, Some(alpha)) => rectangle(symmetric(alpha, &mut draws), draws, height, width),
            (None, None) => Blend { pattern: Pattern::WeightedSum, own: 1.0 },
        }
    }
}

/// A rectangle of 1 − `own` of the image, clipped to it, as placed by torchvision's `CutMix`.
fn rectangle(own: f64, mut draws: Draws, height: usize, width: usize) -> Blend {
    let (x, y) = (draws.below(width as u64) as usize, draws.below(height as u64) as usize);
    let half = 0.5 * (1.0 - own).sqrt();
    let span = |middle: usize, length: usize| {
        let reach = (half * length as f64) as usize;
        (middle.saturating_sub(reach), (middle + reach).min(length))
    };
    let (columns, rows) = (span(x, width), span(y, height));
    let area = (columns.1 - columns.0) * (rows.1 - rows.0);
    Blend { pattern: Pattern::Rectangle { rows, columns }, own: 1.0 - area as f64 / (width * height) as f64 }
}

impl Blend {
    /// Mixes `count` samples with those before them, the first with `guest`: the sample behind them in `values`, or
    /// else the last of them.
    pub fn apply(&self, values: Values<'_>, count: usize, has_guest: bool, form: Form) {
        let rounded = |own: f32, other: f32| own + other;
        match values {
            Values::F32(values) => self.mix(values, count, has_guest, form, |byte| byte, rounded),
            Values::Bf16(values) => {
                let wide = |bits: u16| f32::from_bits(u32::from(bits) << 16);
                self.mix(values, count, has_guest, form, wide, |own, other| {
                    crate::decode::kernels::to_bf16(own + other)
                });
            }
            Values::U8(values) => {
                let byte = |own: f32, other: f32| (own + other).round_ties_even() as u8;
                self.mix(values, count, has_guest, form, f32::from, byte);
            }
        }
    }

    fn mix<T: Copy>(
        &self,
        values: &mut [T],
        count: usize,
        has_guest: bool,
        form: Form,
        wide: impl Fn(T) -> f32,
        sum: impl Fn(f32, f32) -> T,
    ) {
        let length = form.channels * form.height * form.width;
        if count == 0 || length == 0 {
            return;
        }
        // The last sample is changed first, so that each is mixed with the unmixed other.
        let guest_at = if has_guest { count } else { count - 1 };
        let guest = values[guest_at * length..][..length].to_vec();
        for sample in (0..count).rev() {
            let (before, rest) = values.split_at_mut(sample * length);
            let other = if sample == 0 { &guest[..] } else { &before[(sample - 1) * length..] };
            self.pair(&mut rest[..length], other, form, &wide, &sum);
        }
    }

    fn pair<T: Copy>(
        &self,
        own: &mut [T],
        other: &[T],
        form: Form,
        wide: &impl Fn(T) -> f32,
        sum: &impl Fn(f32, f32) -> T,
    ) {
        let Form { channels, height, width, layout } = form;
        match self.pattern {
            Pattern::WeightedSum => {
                let (share, rest) = (self.own as f32, (1.0 - self.own) as f32);
                for (own, other) in own.iter_mut().zip(other) {
                    *own = sum(wide(*own) * share, wide(*other) * rest);
                }
            }
            Pattern::Rectangle { rows, columns } => {
                // Planes of rows of numbers, or rows of pixels of as many numbers as there are channels.
                let (planes, step) = match layout {
                    MemoryFormat::Contiguous => (channels, 1),
                    MemoryFormat::ChannelsLast => (1, channels),
                };
                for plane in 0..planes {
                    for row in rows.0..rows.1 {
                        let start = (plane * height + row) * width * step;
                        let part = start + columns.0 * step..start + columns.1 * step;
                        own[part.clone()].copy_from_slice(&other[part]);
                    }
                }
            }
        }
    }
}
