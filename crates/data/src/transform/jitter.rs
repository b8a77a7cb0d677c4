//! Brightness, contrast, saturation and hue at random, in random order, as torchvision's `ColorJitter`.

use domain::train::ColorJitter;

use super::rand_augment::Operation;
use crate::sampling::random::Draws;

/// The operations of one sample in one epoch; none for what does not vary.
pub(crate) fn drawn(jitter: ColorJitter, draws: &mut Draws) -> Vec<Operation> {
    let mut order = [0, 1, 2, 3];
    for last in (1..order.len()).rev() {
        order.swap(last, draws.below(last as u64 + 1) as usize);
    }
    let mut factor = |by: f64| {
        let (low, high) = ((1.0 - by).max(0.0), 1.0 + by);
        let factor = low + (high - low) * draws.share();
        (by > 0.0).then_some(factor)
    };
    let ColorJitter { brightness, contrast, saturation, hue } = jitter;
    let [brightness, contrast, saturation] = [brightness, contrast, saturation].map(&mut factor);
    let shift = (2.0 * draws.share() - 1.0) * hue;
    let operations = [
        brightness.map(Operation::Brightness),
        contrast.map(Operation::Contrast),
        saturation.map(Operation::Color),
        (hue > 0.0).then_some(Operation::Hue(shift)),
    ];
    order.into_iter().filter_map(|at| operations[at]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::random::{Purpose, key};

    #[test]
    fn factors_are_even_within_their_bounds_and_in_every_order() {
        let jitter = ColorJitter { brightness: 0.4, contrast: 2.0, saturation: 0.0, hue: 0.1 };
        let mut firsts = [0_u32; 3];
        let (mut brightness, mut contrast, mut hue) = (0.0, 0.0, 0.0);
        for sample in 0..6000 {
            let found = drawn(jitter, &mut Draws::new(key(Purpose::Augment, 5, &[1, sample, 0])));
            assert_eq!(found.len(), 3, "saturation does not vary");
            for (place, operation) in found.into_iter().enumerate() {
                let kind = match operation {
                    Operation::Brightness(factor) => {
                        assert!((0.6..1.4).contains(&factor));
                        brightness += factor;
                        0
                    }
                    Operation::Contrast(factor) => {
                        assert!((0.0..3.0).contains(&factor), "below zero there is nothing: {factor}");
                        contrast += factor;
                        1
                    }
                    Operation::Hue(shift) => {
                        assert!((-0.1..0.1).contains(&shift));
                        hue += shift;
                        2
                    }
                    other => panic!("{other:?}"),
                };
                firsts[kind] += u32::from(place == 0);
            }
        }
        // Five standard deviations: 182 of a binomial with p = 1/3; 0.015, 0.056 and 0.0038 of the means.
        assert!(firsts.iter().all(|count| count.abs_diff(2000) < 182), "{firsts:?}");
        let [brightness, contrast, hue] = [brightness, contrast, hue].map(|sum| sum / 6000.0);
        assert!((brightness - 1.0).abs() < 0.015, "{brightness}");
        assert!((contrast - 1.5).abs() < 0.056, "{contrast}");
        assert!(hue.abs() < 0.0038, "{hue}");
    }
}
