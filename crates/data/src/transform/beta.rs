//! Draws from the symmetric Beta distribution, the same bits on every machine.
//!
//! Up to alpha 1 by Jöhnk ("Erzeugung von betaverteilten und gammaverteilten Zufallszahlen", 1964), in logarithms so
//! that no alpha is too small; above by Ulrich ("Computer generation of distributions on the m-sphere", 1984). Powers
//! and logarithms are summed here, for the platform's own differ in their last bits from one machine to another.

use crate::sampling::random::Draws;

/// A number between 0 and 1 from Beta(`alpha`, `alpha`); `alpha` is above 0.
pub(crate) fn symmetric(alpha: f64, draws: &mut Draws) -> f64 {
    if alpha <= 1.0 {
        loop {
            let (one, other) = (logarithm(unit(draws)) / alpha, logarithm(unit(draws)) / alpha);
            let most = one.max(other);
            let sum = most + logarithm(exponential(one - most) + exponential(other - most));
            if sum <= 0.0 {
                return exponential(one - sum);
            }
        }
    }
    loop {
        let (u, v) = (unit(draws), 2.0 * unit(draws) - 1.0);
        let square = u * u + v * v;
        if square <= 1.0 {
            let rest = 1.0 - exponential(logarithm(square) * 2.0 / (2.0 * alpha - 1.0));
            return 0.5 + u * v / square * rest.max(0.0).sqrt();
        }
    }
}

/// A number above 0 and below 1.
fn unit(draws: &mut Draws) -> f64 {
    ((draws.bits() >> 11) as f64 + 0.5) / (1_u64 << 53) as f64
}

/// The natural logarithm of a normal number above 0: of its mantissa by the series of the inverse hyperbolic tangent.
fn logarithm(x: f64) -> f64 {
    const MANTISSA: u64 = (1 << 52) - 1;
    let bits = x.to_bits();
    let mut exponent = (bits >> 52) as i64 - 1023;
    let mut mantissa = f64::from_bits(bits & MANTISSA | 1023 << 52);
    if mantissa > std::f64::consts::SQRT_2 {
        mantissa /= 2.0;
        exponent += 1;
    }
    let part = (mantissa - 1.0) / (mantissa + 1.0);
    let square = part * part;
    let sum = (0..14).rev().fold(0.0, |sum, n| sum * square + 1.0 / f64::from(2 * n + 1));
    2.0 * part * sum + exponent as f64 * std::f64::consts::LN_2
}

/// e to the power of a number up to 700; 0 far below 0.
fn exponential(x: f64) -> f64 {
    let power = (x / std::f64::consts::LN_2).round_ties_even();
    if power < -1022.0 {
        return 0.0;
    }
    let rest = x - power * std::f64::consts::LN_2;
    let (mut sum, mut term) = (1.0, 1.0);
    for n in 1..20 {
        term *= rest / f64::from(n);
        sum += term;
    }
    sum * f64::from_bits(((power as i64 + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sampling::random::{Purpose, key};

    #[test]
    fn series_are_the_functions() {
        for x in [1e-300, 1e-9, 0.3, 0.7, 0.999, 1.0, 1.5, 7.0, 1e200_f64] {
            assert!((logarithm(x) - x.ln()).abs() <= 1e-14 * x.ln().abs().max(1.0), "{x}");
        }
        for x in [-800.0, -700.0, -30.0, -0.5, 0.0, 0.4, 20.0_f64] {
            assert!((exponential(x) - x.exp()).abs() <= 1e-13 * x.exp(), "{x}");
        }
    }

    /// The moments of Beta(α, α): mean ½, variance 1 / (4 (2α + 1)), and the fourth central one.
    #[test]
    fn moments_are_those_of_the_distribution() {
        for alpha in [0.05, 0.2, 0.8, 1.0, 1.5, 8.0] {
            let mut draws = Draws::new(key(Purpose::Mix, 5, &[1]));
            let count = 60_000;
            let (mut mean, mut second, mut fourth) = (0.0, 0.0, 0.0);
            for _ in 0..count {
                let x = symmetric(alpha, &mut draws);
                assert!((0.0..=1.0).contains(&x), "{x}");
                let far = x - 0.5;
                mean += x / f64::from(count);
                second += far * far / f64::from(count);
                fourth += far.powi(4) / f64::from(count);
            }
            let variance = 1.0 / (4.0 * (2.0 * alpha + 1.0));
            let kurtosis = 3.0 - 6.0 / (2.0 * alpha + 3.0);
            assert!((mean - 0.5).abs() < 5.0 * (variance / f64::from(count)).sqrt(), "alpha {alpha}: mean {mean}");
            assert!((second / variance - 1.0).abs() < 0.03, "alpha {alpha}: variance {second}");
            assert!((fourth / variance.powi(2) / kurtosis - 1.0).abs() < 0.06, "alpha {alpha}: fourth {fourth}");
        }
    }
}
