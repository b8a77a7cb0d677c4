//! Decimal amounts, exactly: text to whole micro-units, and one currency to another with one rounding, half up.

use domain::Rate;
use domain::money::decimal;

const MICROS: i128 = 1_000_000;

/// A decimal amount in millionths, rounded half up where it is finer. No sign, no exponent.
///
/// # Errors
/// A sentence that shows the text.
pub fn micros(text: &str) -> Result<i64, String> {
    let wrong = || format!("`{text}` is no amount; write for example `2.85`");
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let is_digits = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if (whole.is_empty() && fraction.is_empty()) || !is_digits(whole) || !is_digits(fraction) {
        return Err(wrong());
    }
    let whole: i64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| wrong())? };
    let mut micros = whole.checked_mul(MICROS as i64).ok_or_else(wrong)?;
    let mut unit = MICROS as i64 / 10;
    for digit in fraction.bytes().map(|byte| i64::from(byte - b'0')) {
        if unit == 0 {
            return micros.checked_add(i64::from(digit >= 5)).ok_or_else(wrong);
        }
        micros = micros.checked_add(digit * unit).ok_or_else(wrong)?;
        unit /= 10;
    }
    Ok(micros)
}

/// The price of one dollar in a currency, in millionths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Currency {
    /// Three letters, such as `CNY`.
    pub code: String,
    pub per_dollar_micros: i64,
    /// The day it was true.
    pub dated: String,
    pub source: String,
}

impl Currency {
    /// The price in dollars.
    pub fn dollars(&self, micros: i64) -> Rate {
        let per_dollar = i128::from(self.per_dollar_micros.max(1));
        let dollars = (i128::from(micros) * MICROS * 2 + per_dollar).div_euclid(2 * per_dollar);
        Rate::from_micros_per_hour(i64::try_from(dollars).unwrap_or(i64::MAX))
    }

    /// How a price was converted; `None` for dollars.
    pub fn derivation(&self, amount: &str) -> Option<String> {
        self.conversion().map(|conversion| format!("{amount} {} an hour {conversion}", self.code))
    }

    /// The exchange rate used; `None` for dollars.
    pub fn conversion(&self) -> Option<String> {
        let rate = decimal(self.per_dollar_micros.unsigned_abs(), 0, 6);
        (self.code != "USD").then(|| format!("at {rate} {} a dollar, {}", self.code, self.dated))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact() {
        let check = |text: &str, expected: i64| assert_eq!(micros(text), Ok(expected), "{text}");
        check("21.957642", 21_957_642);
        check("99.6489544392329", 99_648_954);
        check("0.0000005", 1);
        check("0.00000049", 0);
        check(".5", 500_000);
        check("7", 7_000_000);
        for wrong in ["", ".", "-1", "NaN", "inf", "1e3", "1,5", "99999999999999999999", "9223372036854.775808"] {
            assert!(micros(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn currencies_round_once_and_half_up() {
        let yuan = Currency { code: "CNY".into(), per_dollar_micros: 8_000_000, dated: "d".into(), source: "s".into() };
        assert_eq!(yuan.dollars(8_000_000).micros_per_hour(), 1_000_000);
        assert_eq!(yuan.dollars(4).micros_per_hour(), 1);
        assert_eq!(yuan.dollars(3).micros_per_hour(), 0);
        assert_eq!(yuan.derivation("8").unwrap(), "8 CNY an hour at 8 CNY a dollar, d");
    }
}
