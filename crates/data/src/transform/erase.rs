//! A rectangle of a finished sample set to zero, as torchvision's `RandomErasing` (Zhong et al., "Random erasing data
//! augmentation", 2017) after normalisation.

use std::ops::Range;

use domain::train::{MemoryFormat, RandomErasing};

use super::mix::Form;
use super::recipe::{exponential, logarithm};
use super::slots::Values;
use crate::sampling::random::Draws;

/// Rows and columns that are erased.
pub(crate) type Rectangle = [Range<usize>; 2];

/// The rectangle of one sample in one epoch, if any, found as torchvision finds it.
pub(crate) fn drawn(erasing: RandomErasing, draws: &mut Draws, height: usize, width: usize) -> Option<Rectangle> {
    let is_erased = draws.share() < erasing.p;
    let [smallest, largest] = erasing.scale;
    let (low, high) = (logarithm(erasing.ratio[0]), logarithm(erasing.ratio[1]));
    for _ in 0..10 {
        let area = (height * width) as f64 * (smallest + (largest - smallest) * draws.share());
        let ratio = exponential(low + (high - low) * draws.share());
        let h = (area * ratio).sqrt().round_ties_even() as usize;
        let w = (area / ratio).sqrt().round_ties_even() as usize;
        if h < height && w < width {
            let y = draws.below((height - h + 1) as u64) as usize;
            let x = draws.below((width - w + 1) as u64) as usize;
            return is_erased.then_some([y..y + h, x..x + w]);
        }
    }
    None
}

/// Erases it; `scaling` has the factor and the offset of each channel from a byte to its value.
pub(crate) fn erase([rows, columns]: &Rectangle, values: Values<'_>, scaling: &[(f32, f32)], form: Form) {
    let places = |channel: usize| {
        let Form { channels, height, width, layout } = form;
        let (columns, height) = (columns.clone(), height);
        rows.clone().flat_map(move |y| {
            columns.clone().map(move |x| match layout {
                MemoryFormat::Contiguous => (channel * height + y) * width + x,
                MemoryFormat::ChannelsLast => (y * width + x) * channels + channel,
            })
        })
    };
    match values {
        Values::F32(values) => {
            (0..form.channels).flat_map(places).for_each(|place| values[place] = 0.0);
        }
        Values::Bf16(values) => (0..form.channels).flat_map(places).for_each(|place| values[place] = 0),
        Values::U8(values) => {
            for (channel, (factor, offset)) in scaling.iter().enumerate().take(form.channels) {
                let mean = (-offset / factor).round_ties_even() as u8;
                places(channel).for_each(|place| values[place] = mean);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::random::{Purpose, key};

    const ERASING: RandomErasing = RandomErasing { p: 0.25, scale: [0.02, 0.33], ratio: [0.3, 3.3] };

    #[test]
    fn rectangles_have_their_area_and_their_share_of_images() {
        let (mut erased, mut area, mut middle) = (0_u32, 0.0, 0.0);
        for sample in 0..8000 {
            let mut draws = Draws::new(key(Purpose::Augment, 9, &[0, sample, 3]));
            let Some([rows, columns]) = drawn(ERASING, &mut draws, 64, 48) else { continue };
            assert!(rows.end <= 64 && columns.end <= 48);
            erased += 1;
            area += (rows.len() * columns.len()) as f64 / (64.0 * 48.0);
            middle += (rows.start + rows.end) as f64 / 128.0;
        }
        // Five standard deviations of a binomial with p = 1/4 are 194; of the mean area, 0.01.
        assert!(erased.abs_diff(2000) < 194, "{erased}");
        assert!((area / f64::from(erased) - 0.17).abs() < 0.012, "{}", area / f64::from(erased));
        assert!((middle / f64::from(erased) - 0.5).abs() < 0.02);
        let never = RandomErasing { p: 0.0, ..ERASING };
        assert_eq!(drawn(never, &mut Draws::new(1), 64, 48), None);
    }

    #[test]
    fn the_rectangle_is_zero_and_nothing_else_is() {
        let rectangle = [1..3, 2..4];
        for layout in [MemoryFormat::Contiguous, MemoryFormat::ChannelsLast] {
            let form = Form { channels: 2, height: 3, width: 5, layout };
            let mut values: Vec<f32> = (1..=30_u8).map(f32::from).collect();
            erase(&rectangle, Values::F32(&mut values), &[], form);
            let at = |channel: usize, y: usize, x: usize| match layout {
                MemoryFormat::Contiguous => values[(channel * 3 + y) * 5 + x],
                MemoryFormat::ChannelsLast => values[(y * 5 + x) * 2 + channel],
            };
            for (y, x) in (0..3).flat_map(|y| (0..5).map(move |x| (y, x))) {
                let is_inside = rectangle[0].contains(&y) && rectangle[1].contains(&x);
                assert!((0..2).all(|channel| (at(channel, y, x) == 0.0) == is_inside), "{y}, {x}");
            }
        }
        let form = Form { channels: 1, height: 2, width: 2, layout: MemoryFormat::Contiguous };
        let mut bytes = [9_u8; 4];
        // A mean of 0.4 and a deviation of 0.2: a byte is normalised by 1 / (255 · 0.2) and -2.
        erase(&[0..1, 0..2], Values::U8(&mut bytes), &[(1.0 / 51.0, -2.0)], form);
        assert_eq!(bytes, [102, 102, 9, 9]);
    }
}
