//! Amounts of a provider's bill, which are finer than micro-dollars.

use std::ops::Add;
use std::str::FromStr;

use domain::Money;

/// Digits after the point that are kept.
const DIGITS: i64 = 24;
/// A micro-dollar.
const MICRO: i128 = 10_i128.pow(18);

/// Dollars with 24 digits after the point: what providers write is exact, and so are sums. Digits beyond are dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct InvoiceAmount(i128);

impl InvoiceAmount {
    /// The nearest amount in micro-dollars; of two, the one further from zero.
    pub fn rounded(self) -> Money {
        let half = if self.0 < 0 { -MICRO / 2 } else { MICRO / 2 };
        let micros = self.0.saturating_add(half) / MICRO;
        let most = if micros < 0 { i64::MIN } else { i64::MAX };
        Money::from_micros(i64::try_from(micros).unwrap_or(most))
    }
}

impl Add for InvoiceAmount {
    type Output = InvoiceAmount;
    fn add(self, other: InvoiceAmount) -> InvoiceAmount {
        InvoiceAmount(self.0.saturating_add(other.0))
    }
}

impl std::iter::Sum for InvoiceAmount {
    fn sum<I: Iterator<Item = InvoiceAmount>>(iter: I) -> InvoiceAmount {
        iter.fold(InvoiceAmount::default(), Add::add)
    }
}

/// Reads `12.5`, `-0.0000012` and `1.2E-05`.
impl FromStr for InvoiceAmount {
    type Err = String;

    fn from_str(text: &str) -> Result<InvoiceAmount, String> {
        let wrong = || format!("`{text}` is no amount in dollars");
        let bare = text.trim();
        let (is_negative, bare) = match bare.strip_prefix('-') {
            Some(bare) => (true, bare),
            None => (false, bare.strip_prefix('+').unwrap_or(bare)),
        };
        let (mantissa, exponent) = match bare.split_once(['e', 'E']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i16>().map_err(|_| wrong())?),
            None => (bare, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let digits = format!("{whole}{fraction}");
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(wrong());
        }
        let shift = DIGITS + i64::from(exponent) - i64::try_from(fraction.len()).unwrap_or(i64::MAX / 2);
        let kept = match usize::try_from(-shift) {
            Ok(dropped) => digits.get(..digits.len().saturating_sub(dropped)).unwrap_or_default(),
            Err(_) => digits.as_str(),
        };
        let kept = kept.trim_start_matches('0');
        let mut units: i128 = if kept.is_empty() { 0 } else { kept.parse().map_err(|_| wrong())? };
        if units != 0 && shift > 0 {
            let power = u32::try_from(shift).ok().and_then(|shift| 10_i128.checked_pow(shift));
            units = power.and_then(|power| units.checked_mul(power)).ok_or_else(wrong)?;
        }
        Ok(InvoiceAmount(if is_negative { -units } else { units }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(text: &str) -> i64 {
        text.parse::<InvoiceAmount>().unwrap().rounded().micros()
    }

    #[test]
    fn decimal_text_is_read_exactly() {
        assert_eq!(micros("0.526"), 526_000);
        assert_eq!(micros("-1.25"), -1_250_000);
        assert_eq!(micros("+3"), 3_000_000);
        assert_eq!(micros(".5"), 500_000);
        assert_eq!(
            micros("9007199254.740993"),
            9_007_199_254_740_993,
            "a floating-point number has not so many digits"
        );
        assert_eq!(micros("1.2E-05"), 12);
        assert_eq!(micros("12e3"), 12_000_000_000);
        assert_eq!(micros("0"), 0);
        assert_eq!(micros("0E-30"), 0);
        assert_eq!(micros("0.00000000000000000000000000000000000123"), 0);
        assert_eq!(micros("1E-300"), 0);
    }

    #[test]
    fn sums_are_rounded_once() {
        assert_eq!(micros("0.0000005"), 1);
        assert_eq!(micros("-0.0000005"), -1);
        assert_eq!(micros("0.0000004999"), 0);
        let tenths = (0..10).map(|_| "0.0000001".parse::<InvoiceAmount>().unwrap());
        assert_eq!(tenths.sum::<InvoiceAmount>().rounded().micros(), 1);
        let thirds = (0..3).map(|_| "0.0104166667".parse::<InvoiceAmount>().unwrap());
        assert_eq!(thirds.sum::<InvoiceAmount>().rounded().micros(), 31_250);
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for wrong in ["", "-", "a", "1,5", "1.2.3", "$5", "1e", "1e99999", "NaN", "--1", "1e30"] {
            assert!(wrong.parse::<InvoiceAmount>().is_err(), "{wrong}");
        }
    }
}
