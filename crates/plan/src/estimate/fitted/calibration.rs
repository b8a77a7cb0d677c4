//! Calibration: a short measured run, or a table of some, corrects estimates of the same network.
//!
//! What estimate and measurement differ by is mostly the same for all ways to run one network on like machines, so the
//! mean of logarithms corrects the middle, drawn to nothing by n ÷ (n + 1) on machines that were not measured; the band
//! narrows to what is left, as the spread of n measurements and the variance before say (a normal mean with a known
//! prior).

use serde::{Deserialize, Serialize};

use super::band::Percentiles;

/// A measured step beside its estimate.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct MeasuredStep {
    /// Seconds of a step, the median of the run's.
    pub seconds: f64,
    /// The estimate of the same step, uncorrected.
    pub estimated: f64,
    /// It ran on the kind of machine that the estimate is for.
    pub alike: bool,
}

/// What measurements say about estimates.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Calibration {
    /// Estimates are multiplied with it.
    pub factor: f64,
    /// Standard deviation of the logarithm that is left.
    pub deviation: f64,
    pub runs: usize,
}

/// Standard deviation of one measured run around the mean of many on the same machine.
const NOISE: f64 = 0.03;
/// The same between kinds of machines, once a network was measured on another.
const ELSEWHERE: f64 = 0.12;

impl Calibration {
    /// Learns from measurements; none where there are none to learn from.
    pub fn of(measured: &[MeasuredStep]) -> Option<Calibration> {
        let usable = |one: &&MeasuredStep| one.seconds > 0.0 && one.estimated > 0.0;
        let [mut sum, mut weights] = [0.0, 0.0];
        for one in measured.iter().filter(usable) {
            let deviation = if one.alike { NOISE } else { (NOISE * NOISE + ELSEWHERE * ELSEWHERE).sqrt() };
            sum += (one.seconds / one.estimated).ln() / (deviation * deviation);
            weights += 1.0 / (deviation * deviation);
        }
        let runs = measured.iter().filter(usable).count();
        if runs == 0 {
            return None;
        }
        let alike = measured.iter().filter(usable).any(|one| one.alike);
        let rest = if alike { NOISE } else { ELSEWHERE };
        let deviation = (1.0 / weights + rest * rest).sqrt();
        let shrink = if alike { 1.0 } else { runs as f64 / (runs as f64 + 1.0) };
        Some(Calibration { factor: (shrink * sum / weights).exp(), deviation, runs })
    }

    /// Corrects an estimate and narrows its band, never widening it.
    pub fn correct(&self, estimate: Percentiles) -> Percentiles {
        // The tenth and ninetieth percentile of a normal distribution.
        let reach = 1.2816 * self.deviation;
        let middle = estimate.middle * self.factor;
        let below = (estimate.middle / estimate.low).ln().min(reach);
        let above = (estimate.high / estimate.middle).ln().min(reach);
        Percentiles { low: middle * (-below).exp(), middle, high: middle * above.exp() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ESTIMATE: Percentiles = Percentiles { low: 8.0, middle: 10.0, high: 13.0 };

    #[test]
    fn a_run_on_the_same_machine_is_believed() {
        let calibration =
            Calibration::of(&[MeasuredStep { seconds: 1.2, estimated: 1.0, alike: true }]).expect("one run");
        let corrected = calibration.correct(ESTIMATE);
        assert!((corrected.middle - 12.0).abs() < 1e-9, "{corrected:?}");
        assert!(corrected.high / corrected.low < 1.15, "{corrected:?}");
    }

    #[test]
    fn a_run_elsewhere_moves_the_estimate_half_way_and_keeps_a_wider_band() {
        let calibration =
            Calibration::of(&[MeasuredStep { seconds: 1.21, estimated: 1.0, alike: false }]).expect("one run");
        let corrected = calibration.correct(ESTIMATE);
        assert!((corrected.middle - 11.0).abs() < 1e-9, "{corrected:?}");
        let width = corrected.high / corrected.low;
        assert!((1.2..1.6).contains(&width), "{corrected:?}");
    }

    #[test]
    fn nothing_measured_teaches_nothing() {
        assert_eq!(Calibration::of(&[]), None);
        assert_eq!(Calibration::of(&[MeasuredStep { seconds: 0.0, estimated: 1.0, alike: true }]), None);
    }

    #[test]
    fn a_band_is_never_widened() {
        let narrow = Percentiles { low: 9.9, middle: 10.0, high: 10.1 };
        let calibration =
            Calibration::of(&[MeasuredStep { seconds: 1.0, estimated: 1.0, alike: false }]).expect("one run");
        let corrected = calibration.correct(narrow);
        assert!(corrected.high / corrected.low <= 10.1 / 9.9 + 1e-9);
    }
}
