//! Sums measurements up without hiding their spread.

use std::fmt;

/// The middle of some measurements, and how far they lie apart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    pub median: f64,
    /// Below and above which a quarter of them lies.
    pub quartiles: [f64; 2],
    /// The smallest and the largest.
    pub ends: [f64; 2],
}

impl Spread {
    /// Quantiles between two measurements are interpolated. Zeros for no measurement.
    pub fn of(values: &[f64]) -> Spread {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |share: f64| -> f64 {
            let place = share * sorted.len().saturating_sub(1) as f64;
            let below = place.floor() as usize;
            let [low, high] = [below, below + 1].map(|at| sorted.get(at).or(sorted.last()).copied().unwrap_or(0.0));
            low + (high - low) * (place - below as f64)
        };
        Spread { median: at(0.5), quartiles: [at(0.25), at(0.75)], ends: [at(0.0), at(1.0)] }
    }

    /// The same of `values` times `factor`, as for another unit.
    pub fn times(self, factor: f64) -> Spread {
        let all = |pair: [f64; 2]| pair.map(|value| value * factor);
        Spread { median: self.median * factor, quartiles: all(self.quartiles), ends: all(self.ends) }
    }
}

/// `median (quartiles low–high, ends low–high)`, with the formatter's precision.
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(3);
        let Spread { median, quartiles: [low, high], ends: [least, most] } = self;
        write!(f, "{median:.digits$} (half {low:.digits$} to {high:.digits$}, all {least:.digits$} to {most:.digits$})")
    }
}

/// The mean; 0 of none.
pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len().max(1) as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(values: &[f64], text: &str) {
        assert_eq!(format!("{:.1}", Spread::of(values)), text);
    }

    #[test]
    fn measurements_are_summed_up() {
        check(&[3.0, 1.0, 2.0], "2.0 (half 1.5 to 2.5, all 1.0 to 3.0)");
        check(&[4.0, 1.0, 2.0, 3.0], "2.5 (half 1.8 to 3.2, all 1.0 to 4.0)");
        check(&[7.0], "7.0 (half 7.0 to 7.0, all 7.0 to 7.0)");
        check(&[], "0.0 (half 0.0 to 0.0, all 0.0 to 0.0)");
        assert_eq!(Spread::of(&[1.0, 3.0]).times(10.0), Spread::of(&[10.0, 30.0]));
        assert_eq!([mean(&[1.0, 2.0]), mean(&[])], [1.5, 0.0]);
    }
}
